package mysql

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"plugpull/internal/dsnurl"
)

// DSN says where a server is and how to log in. The zero value is not valid;
// use ParseDSN. No way of printing it shows the password.
type DSN struct {
	User           string
	Host           string // empty with Socket; an IPv6 address without brackets
	Port           uint16
	Socket         string // path of a Unix socket; empty: TCP
	Schema         string
	TLS            string // "", "true", "skip-verify" or "preferred"
	TLSCA          string // file with the certificates to trust; empty: the system's
	TLSCert        string // file with the client's certificate
	TLSKey         string // file with the client's key
	ConnectTimeout time.Duration

	// A pointer, so that fmt prints no more than an address even where it
	// cannot call Format: in an unexported field of another struct.
	password *string
}

// Defaults of a DSN.
const (
	DefaultSchema         = "plugpull"
	DefaultPort           = 3306
	DefaultConnectTimeout = 10 * time.Second
)

var errDSNForm = errors.New("want mysql://USER@HOST[:PORT][/SCHEMA][?tls=…&socket=…], with any of @ : / ? # % within a part percent-encoded")

// ParseDSN parses mysql://user@host:port/schema?param=value. It is strict:
// unknown, repeated and contradictory parameters are errors that name them. A
// password in it is accepted; see HasPassword. Errors never quote what could be
// a part of a password.
func ParseDSN(s string) (DSN, error) {
	d, err := parseDSN(s)
	if err != nil {
		return DSN{}, fmt.Errorf("mysql DSN: %w", err)
	}
	return d, nil
}

func parseDSN(s string) (DSN, error) {
	u, err := dsnurl.Parse(s, "mysql")
	switch {
	case errors.Is(err, dsnurl.ErrForm):
		return DSN{}, errDSNForm
	case err != nil:
		return DSN{}, err
	}
	d := DSN{User: u.User, Host: u.Host, Port: cmp.Or(u.Port, DefaultPort), Schema: cmp.Or(u.Path, DefaultSchema),
		ConnectTimeout: DefaultConnectTimeout, password: u.Password}
	var errs []error
	for _, p := range u.Params {
		errs = append(errs, d.param(p.Name, p.Value))
	}
	if err := errors.Join(errs...); err != nil {
		return DSN{}, err
	}
	return d, d.validate(u.Port != 0)
}

func (d *DSN) param(name, value string) error {
	texts := map[string]*string{"socket": &d.Socket, "tls-ca": &d.TLSCA, "tls-cert": &d.TLSCert, "tls-key": &d.TLSKey}
	if p := texts[name]; p != nil {
		if value == "" {
			return fmt.Errorf("parameter %q is empty", name)
		}
		*p = value
		return nil
	}
	switch name {
	case "tls":
		if !slices.Contains([]string{"true", "false", "skip-verify", "preferred"}, value) {
			return fmt.Errorf("tls=%q: want true, skip-verify, preferred or false", value)
		}
		d.TLS = value
	case "connect-timeout":
		t, err := time.ParseDuration(value)
		if err != nil || t < time.Millisecond || t > 10*time.Minute {
			return fmt.Errorf("connect-timeout=%q: want a duration of 1ms to 10m, as in 10s", value)
		}
		d.ConnectTimeout = t
	default:
		return fmt.Errorf("unknown parameter %q: known are connect-timeout, socket, tls, tls-ca, tls-cert, tls-key", name)
	}
	return nil
}

// validate checks what depends on more than one part, and fills in the TLS
// mode that certificates imply.
func (d *DSN) validate(portGiven bool) error {
	var errs []error
	add := func(bad bool, text string) {
		if bad {
			errs = append(errs, errors.New(text))
		}
	}
	files := d.TLSCA != "" || d.TLSCert != "" || d.TLSKey != ""
	if d.TLS == "" && files {
		d.TLS = "true"
	}
	add(d.TLS == "false" && files, "tls=false contradicts tls-ca, tls-cert and tls-key")
	add(d.TLSCA != "" && d.TLS != "true", "tls-ca needs tls=true: no other mode verifies the server's certificate")
	add((d.TLSCert == "") != (d.TLSKey == ""), "tls-cert and tls-key belong together")
	if d.TLS == "false" {
		d.TLS = ""
	}
	switch {
	case d.Socket == "":
		add(d.Host == "", "the host is missing")
	default:
		add(portGiven || (d.Host != "" && d.Host != "localhost"), "socket contradicts a host and a port: give neither")
		add(d.TLS != "", "TLS is not used over a socket: its peer is this machine")
		d.Host = ""
	}
	// Not quoted: with a missing @ it can be a part of a password.
	add(!validSchema(d.Schema), "the schema must be 1 to 64 of A–Z a–z 0–9 _ $ - and no system schema")
	return errors.Join(errs...)
}

func validSchema(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for _, c := range []byte(s) {
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '$' || c == '-') {
			return false
		}
	}
	return !slices.Contains([]string{"mysql", "sys", "information_schema", "performance_schema"}, strings.ToLower(s))
}

// HasPassword reports whether a password is set, also an empty one.
func (d DSN) HasPassword() bool { return d.password != nil }

// SetPassword sets the password.
func (d *DSN) SetPassword(p string) { d.password = &p }

// String returns the DSN without its password, in a form that ParseDSN takes.
func (d DSN) String() string {
	u := url.URL{Scheme: "mysql", User: url.User(d.User), Path: "/" + d.Schema}
	if d.Socket == "" {
		u.Host = d.addr()
	}
	q := url.Values{}
	for name, v := range map[string]string{"socket": d.Socket, "tls": d.TLS, "tls-ca": d.TLSCA, "tls-cert": d.TLSCert, "tls-key": d.TLSKey} {
		if v != "" {
			q.Set(name, v)
		}
	}
	if d.ConnectTimeout != DefaultConnectTimeout && d.ConnectTimeout != 0 {
		q.Set("connect-timeout", d.ConnectTimeout.String())
	}
	u.RawQuery = q.Encode()
	return u.String()
}

func (d DSN) addr() string { return net.JoinHostPort(d.Host, strconv.Itoa(int(d.Port))) }

// Format implements fmt.Formatter: every verb prints what String returns.
func (d DSN) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, d.String()) }

// LogValue implements slog.LogValuer.
func (d DSN) LogValue() slog.Value { return slog.StringValue(d.String()) }
