// Package dsnurl takes apart the URLs that say where a database is.
//
// It guarantees that no error quotes what could be a part of a password, also where a person forgot to encode a
// character of it, and that a part is either understood or an error.
package dsnurl

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// ErrForm: the text is not of the form SCHEME://USER[:PASSWORD]@[HOST][:PORT][/PATH][?NAME=VALUE&…], or a character
// in it is not percent-encoded. It has no detail, since that could be a part of a password.
var ErrForm = errors.New("not the form of a DSN")

// URL is a DSN in its parts.
type URL struct {
	User     string
	Password *string // nil: none is given; it may be empty
	Host     string  // without brackets; may be empty
	Port     uint16  // 0: none is given
	Path     string  // without the first /
	Params   []Param // sorted by name
}

// Param is a parameter. Each has a name of its own.
type Param struct{ Name, Value string }

// Parse takes a DSN of one of the schemes apart.
func Parse(s string, schemes ...string) (URL, error) {
	scheme, rest, ok := strings.Cut(s, "://")
	// More than one @, or one behind the host, is a password that was not encoded: nothing of such a text may be
	// quoted, so it is not looked at.
	authority := rest[:strings.IndexAny(rest+"/", "/?#")]
	if !ok || !slices.Contains(schemes, scheme) || strings.Count(rest, "@") > 1 || strings.Count(rest, "@") != strings.Count(authority, "@") {
		return URL{}, ErrForm
	}
	u, err := url.Parse(s)
	if err != nil || u.Opaque != "" || u.Fragment != "" || strings.HasSuffix(s, "#") {
		return URL{}, ErrForm // err quotes the text
	}
	d := URL{Host: u.Hostname(), Path: strings.TrimPrefix(u.Path, "/")}
	if u.User == nil || u.User.Username() == "" {
		return URL{}, errors.New("the user is missing")
	}
	d.User = u.User.Username()
	if p, ok := u.User.Password(); ok {
		d.Password = &p
	}
	if !validHost(d.Host, strings.HasPrefix(u.Host, "[")) {
		return URL{}, errors.New("the host must be a name, an IPv4 address or an IPv6 address in brackets")
	}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return URL{}, errors.New("the port must be 1 to 65535")
		}
		d.Port = uint16(n)
	} else if strings.HasSuffix(u.Host, ":") {
		return URL{}, errors.New("the port is empty")
	}
	d.Params, err = params(u.RawQuery)
	return d, err
}

func params(raw string) ([]Param, error) {
	q, err := url.ParseQuery(raw)
	if err != nil {
		return nil, ErrForm // err quotes the text
	}
	var all []Param
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(q)) {
		if n := len(q[name]); n > 1 {
			errs = append(errs, fmt.Errorf("parameter %q is given %d times", name, n))
		}
		all = append(all, Param{name, q[name][0]})
	}
	return all, errors.Join(errs...)
}

// validHost accepts the empty host, which a socket needs.
func validHost(host string, bracketed bool) bool {
	if bracketed {
		a, err := netip.ParseAddr(host)
		return err == nil && a.Is6()
	}
	for _, c := range []byte(host) {
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '.' || c == '-' || c == '_') {
			return false
		}
	}
	return true
}
