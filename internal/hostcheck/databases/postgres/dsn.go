package postgres

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"plugpull/internal/dsnurl"
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
	u, err := dsnurl.Parse(s, "postgres", "postgresql")
	switch {
	case errors.Is(err, dsnurl.ErrForm):
		return DSN{}, errForm
	case err != nil:
		return DSN{}, err
	}
	d := DSN{User: u.User, Host: u.Host, Port: cmp.Or(u.Port, DefaultPort), Database: cmp.Or(u.Path, DefaultDatabase),
		Timeout: DefaultTimeout, password: u.Password}
	var errs []error
	for _, p := range u.Params {
		errs = append(errs, d.param(p.Name, p.Value))
	}
	if err := errors.Join(errs...); err != nil {
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

// Config returns the driver's configuration, for an application of this name. The password is not part of any text
// that is parsed, so that no error can quote it; fmt prints the configuration with it.
func (d DSN) Config(application string) (*pgx.ConnConfig, error) {
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
	cfg.RuntimeParams = map[string]string{"application_name": application}
	// A pooler between may not keep prepared statements.
	cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	return cfg, nil
}
