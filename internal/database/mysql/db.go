package mysql

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"plugpull/internal/workload"
)

// DefaultSilence is how long a stream waits for a byte of a reply.
const DefaultSilence = 10 * time.Second

// controlTimeout is the TCP_USER_TIMEOUT of the connections that are not
// streams: how long unacknowledged data may wait.
const controlTimeout = 30 * time.Second

// scanBuffer is the read-ahead of a survivor cursor, in bytes. A verification
// opens two cursors for each of up to 64 streams.
const scanBuffer = 32 << 10

// Options of a DB.
type Options struct {
	// Silence is the time without a byte of the reply after which a stream's
	// operation is given up; zero: DefaultSilence. It also bounds each step of
	// connecting.
	Silence time.Duration
}

// DB is a server and schema to connect to. It holds no connection. Its methods
// may be called concurrently.
type DB struct {
	dsn     DSN
	silence time.Duration
	tls     *tls.Config
}

// Open prepares access to a server: it reads the TLS files but does not
// connect.
func Open(dsn DSN, opts Options) (*DB, error) {
	if dsn.User == "" || !validSchema(dsn.Schema) {
		return nil, errors.New("mysql DSN: not made by ParseDSN")
	}
	if opts.Silence == 0 {
		opts.Silence = DefaultSilence
	}
	if dsn.ConnectTimeout == 0 {
		dsn.ConnectTimeout = DefaultConnectTimeout
	}
	conf, err := tlsConfig(dsn)
	if err != nil {
		return nil, err
	}
	return &DB{dsn: dsn, silence: opts.Silence, tls: conf}, nil
}

// DSN returns what the DB was opened with.
func (d *DB) DSN() DSN { return d.dsn }

// Format implements fmt.Formatter: it prints the DSN without its password.
func (d DB) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, d.dsn.String()) }

// LogValue implements slog.LogValuer.
func (d *DB) LogValue() slog.Value { return d.dsn.LogValue() }

func tlsConfig(dsn DSN) (*tls.Config, error) {
	switch dsn.TLS {
	case "":
		return nil, nil
	case "skip-verify", "preferred":
		c := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // asked for by the user
		return c, addClientCert(c, dsn)
	}
	c := &tls.Config{ServerName: dsn.Host, MinVersion: tls.VersionTLS12}
	if dsn.TLSCA != "" {
		pem, err := os.ReadFile(dsn.TLSCA)
		if err != nil {
			return nil, fmt.Errorf("tls-ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls-ca: %s holds no certificate in PEM form", dsn.TLSCA)
		}
	}
	return c, addClientCert(c, dsn)
}

func addClientCert(c *tls.Config, dsn DSN) error {
	if dsn.TLSCert == "" {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(dsn.TLSCert, dsn.TLSKey)
	if err != nil {
		return fmt.Errorf("tls-cert and tls-key: %w", err)
	}
	c.Certificates = []tls.Certificate{pair}
	return nil
}

// dialFunc opens the socket under a connection of the driver.
type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// connector returns the driver's connector to the schema, which may be empty.
// One Connect makes one connection.
func (d *DB) connector(schema string, dial dialFunc) (sqldriver.Connector, error) {
	cfg := driver.NewConfig()
	cfg.User = d.dsn.User
	if d.dsn.password != nil {
		cfg.Passwd = *d.dsn.password
	}
	cfg.Net, cfg.Addr = "tcp", d.dsn.addr()
	if d.dsn.Socket != "" {
		cfg.Net, cfg.Addr = "unix", d.dsn.Socket
	}
	cfg.DBName = schema
	cfg.TLS = d.tls
	cfg.AllowFallbackToPlaintext = d.dsn.TLS == "preferred"
	cfg.Timeout = d.dsn.ConnectTimeout
	cfg.Logger = &driver.NopLogger{}
	cfg.DialFunc = dial
	c, err := driver.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("configure the driver: %w", err)
	}
	return c, nil
}

func dialControl(ctx context.Context, network, addr string) (net.Conn, error) {
	return dialSocket(ctx, network, addr, controlTimeout)
}

// dialUntil dials connections that break when ctx ends, so that a statement which waits without watching a context
// fails then too.
func dialUntil(ctx context.Context) func(context.Context, string, string) (net.Conn, error) {
	return func(dialing context.Context, network, addr string) (net.Conn, error) {
		c, err := dialControl(dialing, network, addr)
		if err == nil {
			context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
		}
		return c, err
	}
}

func dialScan(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := dialSocket(ctx, network, addr, controlTimeout)
	if err != nil {
		return nil, err
	}
	return buffered{c, bufio.NewReaderSize(c, scanBuffer)}, nil
}

// control runs f on a connection of its own, which is closed after it. The
// pool's habit of trying a bad connection again is harmless there: nothing
// that is counted goes through it.
func (d *DB) control(ctx context.Context, schema string, f func(c *sql.Conn) error) (err error) {
	return d.controlBy(ctx, schema, dialUntil(ctx), f)
}

func (d *DB) controlBy(ctx context.Context, schema string, dial dialFunc, f func(c *sql.Conn) error) (err error) {
	connector, err := d.connector(schema, dial)
	if err != nil {
		return err
	}
	pool := sql.OpenDB(connector)
	pool.SetMaxOpenConns(1)
	defer func() { err = errors.Join(err, pool.Close()) }()
	c, err := pool.Conn(ctx)
	if err != nil {
		return &ConnectError{DSN: d.dsn, Err: err}
	}
	defer func() {
		if e := c.Close(); e != nil && !errors.Is(e, sql.ErrConnDone) {
			err = errors.Join(err, e)
		}
	}()
	// A server whose default mode is lax or that cuts statements short is
	// none of the users' fault.
	if _, err := c.ExecContext(ctx, "SET SESSION sql_mode='"+sqlMode+"', autocommit=1"); err != nil {
		return fmt.Errorf("set up the session: %w", err)
	}
	return f(c)
}

// Control runs f on a connection of its own, with no schema chosen and with
// strict SQL in its session. It blocks until f returns; the connection is closed after it.
func (d *DB) Control(ctx context.Context, f func(c *sql.Conn) error) error {
	return d.control(ctx, "", f)
}

// Direct reports whether the server is at the other end of our connection and has this machine's name: not so through a
// tunnel, a proxy or the published port of a container, where it sees another port than ours, or has a name of its own.
// A Unix socket is direct. It blocks until the server has answered or ctx is done.
func (d *DB) Direct(ctx context.Context) (direct bool, err error) {
	if d.dsn.Socket != "" {
		return true, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return false, fmt.Errorf("this machine's name: %w", err)
	}
	ours, theirs, host := "", "", ""
	dial := func(dialing context.Context, network, addr string) (net.Conn, error) {
		c, err := dialUntil(ctx)(dialing, network, addr)
		if err == nil {
			_, ours, err = net.SplitHostPort(c.LocalAddr().String())
		}
		return c, err
	}
	err = d.controlBy(ctx, "", dial, func(c *sql.Conn) error {
		return c.QueryRowContext(ctx, "SELECT SUBSTRING_INDEX(HOST, ':', -1), @@hostname FROM information_schema.PROCESSLIST WHERE ID = CONNECTION_ID()").Scan(&theirs, &host)
	})
	return err == nil && ours == theirs && host == name, err
}

// ConnectError says that no connection could be made.
type ConnectError struct {
	DSN DSN
	Err error
}

func (e *ConnectError) Error() string {
	switch Errno(e.Err) {
	case erConCount, erTooManyUserConnections, erUserLimit:
		return fmt.Sprintf("connect to %v: the server has no room for another connection (raise max_connections and max_user_connections): %v", e.DSN, e.Err)
	}
	return fmt.Sprintf("connect to %v: %v", e.DSN, e.Err)
}

func (e *ConnectError) Unwrap() error { return e.Err }

// Errno returns the server's error number in err, zero for none.
func Errno(err error) uint32 {
	var se *sharpenedError
	if errors.As(err, &se) {
		return se.number
	}
	var me *driver.MySQLError
	if errors.As(err, &me) {
		return uint32(me.Number)
	}
	return 0
}

// table returns the quoted name of a data table of an epoch.
func (d *DB) table(t workload.Table, epoch uint32) string { return d.quoted(tableName(t, epoch)) }

func (d *DB) quoted(table string) string { return "`" + d.dsn.Schema + "`.`" + table + "`" }

func tableName(t workload.Table, epoch uint32) string { return fmt.Sprintf("%s_%d", t, epoch) }
