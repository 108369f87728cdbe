package postgres

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// DSN says where a server is and how to log in. The zero value is not valid; use ParseDSN. No way of printing
// it shows the password.
type DSN struct {
	User     string
	Host     string // a name, an address without brackets, or the folder of a Unix socket
	Port     uint16
	Database string // the first one to connect to; every other one is connected to as well
	TLS      map[string]string
	Timeout  time.Duration // of connecting

	// A pointer, so that fmt prints no more than an address even where it cannot call Format.
	password *string
}

// Defaults of a DSN.
const (
	DefaultDatabase = "postgres"
	DefaultPort     = 5432
	DefaultTimeout  = 10 * time.Second
)

var errForm = errors.New("want postgres://USER@HOST[:PORT][/DATABASE][?host=SOCKETFOLDER&sslmode=…&sslrootcert=…], with any of @ : / ? # % within a part percent-encoded")

// ParseDSN parses postgres://user@host:port/database?param=value, also postgresql://. It is strict: unknown
// and repeated parameters are errors that name them. A password in it is accepted; see HasPassword. Errors
// never quote what could be a part of a password.
//
// The parameters are host (the folder of the Unix socket), connect_timeout in seconds, and of TLS sslmode,
// sslrootcert, sslcert and sslkey, as libpq has them. What is not given may come from libpq's environment
// variables and its password file, as for psql; PGOPTIONS and other session settings are not used.
func ParseDSN(s string) (DSN, error) {
	d, err := parse(s)
	if err != nil {
		return DSN{}, fmt.Errorf("postgres DSN: %w", err)
	}
	return d, nil
}

func parse(s string) (DSN, error) {
	rest, ok := strings.CutPrefix(s, "postgres://")
	if !ok {
		rest, ok = strings.CutPrefix(s, "postgresql://")
	}
	// More than one @, or one behind the host, is a password that was not encoded: nothing of such a text
	// may be quoted, so it is not looked at.
	authority := rest[:strings.IndexAny(rest+"/", "/?#")]
	if !ok || strings.Count(rest, "@") > 1 || strings.Count(rest, "@") != strings.Count(authority, "@") {
		return DSN{}, errForm
	}
	u, err := url.Parse(s)
	if err != nil || u.Opaque != "" || u.Fragment != "" || strings.HasSuffix(s, "#") {
		return DSN{}, errForm // err quotes the text
	}
	d := DSN{Host: u.Hostname(), Port: DefaultPort, Timeout: DefaultTimeout, Database: strings.TrimPrefix(u.Path, "/")}
	if u.User == nil || u.User.Username() == "" {
		return DSN{}, errors.New("the user is missing")
	}
	d.User = u.User.Username()
	if p, ok := u.User.Password(); ok {
		d.SetPassword(p)
	}
	if d.Database == "" {
		d.Database = DefaultDatabase
	}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return DSN{}, errors.New("the port must be 1 to 65535")
		}
		d.Port = uint16(n)
	} else if strings.HasSuffix(u.Host, ":") {
		return DSN{}, errors.New("the port is empty")
	}
	if !validHost(d.Host, strings.HasPrefix(u.Host, "[")) {
		return DSN{}, errors.New("the host must be a name, an IPv4 address or an IPv6 address in brackets")
	}
	if err := d.params(u.RawQuery); err != nil {
		return DSN{}, err
	}
	if d.Host == "" {
		return DSN{}, errors.New("the host is missing")
	}
	if strings.ContainsAny(d.Database+d.User, "\x00/") {
		return DSN{}, errors.New("the user or the database has a character that none can have")
	}
	return d, nil
}

func (d *DSN) params(raw string) error {
	q, err := url.ParseQuery(raw)
	if err != nil {
		return errForm
	}
	var errs []error
	for name, v := range q {
		switch {
		case len(v) > 1:
			errs = append(errs, fmt.Errorf("parameter %q is given %d times", name, len(v)))
		default:
			errs = append(errs, d.param(name, v[0]))
		}
	}
	return errors.Join(errs...)
}

func (d *DSN) param(name, value string) error {
	switch name {
	case "host":
		if !path.IsAbs(value) || strings.ContainsAny(value, ",\x00") {
			return errors.New("parameter \"host\" must be the absolute path of the socket's folder")
		}
		if d.Host != "" && d.Host != "localhost" {
			return errors.New("parameter \"host\" contradicts the host before it: give one of the two")
		}
		d.Host = value
	case "connect_timeout":
		n, err := strconv.ParseUint(value, 10, 16)
		if err != nil || n == 0 || n > 600 {
			return fmt.Errorf("connect_timeout=%q: want 1 to 600 seconds", value)
		}
		d.Timeout = time.Duration(n) * time.Second
	case "sslmode", "sslrootcert", "sslcert", "sslkey":
		if value == "" {
			return fmt.Errorf("parameter %q is empty", name)
		}
		if name == "sslmode" && !slices.Contains([]string{"disable", "allow", "prefer", "require", "verify-ca", "verify-full"}, value) {
			return fmt.Errorf("sslmode=%q: want disable, allow, prefer, require, verify-ca or verify-full", value)
		}
		if d.TLS == nil {
			d.TLS = map[string]string{}
		}
		d.TLS[name] = value
	default:
		return fmt.Errorf("unknown parameter %q: known are host, connect_timeout, sslmode, sslrootcert, sslcert, sslkey", name)
	}
	return nil
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

// HasPassword reports whether a password is set, also an empty one.
func (d DSN) HasPassword() bool { return d.password != nil }

// SetPassword sets the password.
func (d *DSN) SetPassword(p string) { d.password = &p }

// String returns the DSN without its password, in a form that ParseDSN takes.
func (d DSN) String() string {
	u := url.URL{Scheme: "postgres", User: url.User(d.User), Path: "/" + d.Database}
	q := url.Values{}
	host := d.Host
	if path.IsAbs(host) {
		q.Set("host", host)
		host = ""
	} else if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	u.Host = host + ":" + strconv.Itoa(int(d.Port))
	for name, v := range d.TLS {
		q.Set(name, v)
	}
	if d.Timeout != DefaultTimeout {
		q.Set("connect_timeout", strconv.Itoa(int(d.Timeout.Seconds())))
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// Format implements fmt.Formatter: every verb prints what String returns.
func (d DSN) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, d.String()) }

// LogValue implements slog.LogValuer.
func (d DSN) LogValue() slog.Value { return slog.StringValue(d.String()) }

// config returns the driver's configuration. The password is not part of any text that is parsed, so that no
// error can quote it.
func (d DSN) config() (*pgx.ConnConfig, error) {
	var b strings.Builder
	word := func(name, value string) {
		b.WriteString(name + "='" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value) + "' ")
	}
	word("host", d.Host)
	word("port", strconv.Itoa(int(d.Port)))
	word("user", d.User)
	word("database", d.Database)
	word("target_session_attrs", "any")
	word("connect_timeout", strconv.Itoa(int(d.Timeout.Seconds())))
	for name, v := range d.TLS {
		word(name, v)
	}
	cfg, err := pgx.ParseConfig(b.String())
	if err != nil {
		return nil, fmt.Errorf("configure the driver: %w", err)
	}
	if d.password != nil {
		cfg.Password = *d.password
	}
	// What the environment would set for the session would hide the server's own settings.
	cfg.RuntimeParams = map[string]string{"application_name": "plugpull check"}
	// A pooler between may not keep prepared statements.
	cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	return cfg, nil
}
