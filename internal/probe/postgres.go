package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"golang.org/x/sys/unix"

	"plugpull/internal/hostcheck/databases/postgres"
	"plugpull/internal/usage"
)

// Postgres probes a PostgreSQL server from version 12 on: each commit is one prepared INSERT that commits by itself, as
// that of Server, and as pgbench's -M prepared. It makes a schema of its own in the DSN's database and drops it.
// Only one probe at a time is let in on a database. It was run against 15 alone.
type Postgres struct {
	DSN    postgres.DSN
	Schema string // empty: DefaultSchema
	// InServer runs the loop as a stored procedure, without the network.
	InServer bool
	// AllowLogical lets the probe run where logical replication takes tables that it was not told of: the probe's rows
	// go to all subscribers, and one without such a table stops there.
	AllowLogical bool

	limits limits // zero but in tests
}

// postgresLock is the number of the advisory lock that a probe holds in its database: "plugprob".
const postgresLock = 0x706c756770726f62

// silence is how long a server's machine may leave what was sent to it unacknowledged.
const silence = 30 * time.Second

func (s Postgres) measure(ctx context.Context, r *Result, g *goal) (err error) {
	r.Kind, r.Where = KindClient, s.DSN.String()
	if s.InServer {
		r.Kind = KindInServer
	}
	s.limits = s.limits.orDefault()
	own, err := newPostgresPlace(s)
	if err != nil {
		return err
	}
	defer func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limits.clean)
		defer cancel()
		err = errors.Join(err, s.clean(clean, own))
	}()
	return s.control(ctx, func(c *pgx.Conn) error {
		if err := s.ask(ctx, c, r); err != nil {
			return err
		}
		if err := s.prepareSession(ctx, c); err != nil {
			return err
		}
		if err := own.make(ctx, c); err != nil {
			return err
		}
		if s.InServer {
			return g.run(func() error { return callPostgresChunks(ctx, c, own, g) })
		}
		return insertIntoPostgres(ctx, c, own, g)
	})
}

// config returns the driver's configuration.
func (s Postgres) config() (*pgx.ConnConfig, error) {
	cfg, err := s.DSN.Config("plugpull probe")
	if err != nil {
		return nil, err
	}
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	cfg.DialFunc = (&net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4},
		Control:         boundSilence,
	}).DialContext
	// A commit that waits for a standby that is not there ends by nothing but a cancel request.
	cfg.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: c, CancelRequestDelay: s.limits.graceful / 2, DeadlineDelay: s.limits.graceful}
	}
	return cfg, nil
}

func boundSilence(network, _ string, raw syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	var sockErr error
	err := raw.Control(func(fd uintptr) {
		sockErr = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silence.Milliseconds()))
	})
	return errors.Join(err, sockErr)
}

// control runs f on a connection of its own.
func (s Postgres) control(ctx context.Context, f func(*pgx.Conn) error) error {
	cfg, err := s.config()
	if err != nil {
		return err
	}
	c, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return fmt.Errorf("connect to %v: %w", s.DSN, err)
	}
	defer func() {
		bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = c.Close(bye) // whatever it says, the connection is over
		select {
		case <-c.PgConn().CleanupDone():
		case <-bye.Done():
		}
	}()
	return f(c)
}

// prepareSession sets what the loop needs, and takes the lock of probes. What decides on a commit's flush stays as the
// login has it.
func (s Postgres) prepareSession(ctx context.Context, c *pgx.Conn) error {
	for _, q := range []string{
		"SET search_path = pg_catalog",
		"SET statement_timeout = 0",
		"SET idle_in_transaction_session_timeout = 0",
		fmt.Sprintf("SET lock_timeout = %d", max(1, s.limits.lock.Milliseconds())),
	} {
		if _, err := c.Exec(ctx, q); err != nil {
			return fmt.Errorf("set up the session: %w", err)
		}
	}
	_, err := c.Exec(ctx, "SELECT pg_advisory_lock($1)", int64(postgresLock))
	if sqlstate(err) == stateLockTimeout {
		return ErrBusy
	}
	if err != nil {
		return fmt.Errorf("take the probe's lock: %w", err)
	}
	return nil
}

// clean removes the schema, on a connection of its own: the loop's may be lost.
func (s Postgres) clean(ctx context.Context, own *postgresPlace) error {
	if !own.touched {
		return nil
	}
	err := s.control(ctx, func(c *pgx.Conn) error {
		if err := s.prepareSession(ctx, c); err != nil {
			return err
		}
		// Nothing of it need wait for a standby, and one that is away would keep it for ever.
		if _, err := c.Exec(ctx, "SET synchronous_commit = local"); err != nil {
			return fmt.Errorf("set up the session: %w", err)
		}
		return own.remove(ctx, c)
	})
	if err != nil {
		return fmt.Errorf("the probe's schema %s could not be removed; the next probe will do so, or DROP SCHEMA %s CASCADE in the database %s: %w",
			own.schema, own.quoted(), own.database, err)
	}
	return nil
}

// insertIntoPostgres sends one INSERT after the other. It has no parameter, so that the server plans it once: planning it each
// time costs as much as a commit to memory.
func insertIntoPostgres(ctx context.Context, c *pgx.Conn, own *postgresPlace, g *goal) error {
	const name = "plugpull_probe"
	if _, err := c.PgConn().Prepare(ctx, name, own.insert("'"+filler+"'"), nil); err != nil {
		return fmt.Errorf("prepare the insert: %w", err)
	}
	return g.run(func() error {
		for last := time.Now(); !g.reached(); {
			if err := ctx.Err(); err != nil {
				return err
			}
			sent := time.Now()
			if _, err := c.PgConn().ExecPrepared(ctx, name, nil, nil, nil).Close(); err != nil {
				return fmt.Errorf("insert a row: %w", err)
			}
			now := time.Now()
			g.add(now.Sub(sent), now.Sub(last))
			last = now
		}
		return nil
	})
}

// PostgreSQL's codes of errors.
const (
	stateDenied      = "42501"
	stateLockTimeout = "55P03"
	stateExists      = "42P06" // the schema
	stateDependents  = "2BP01"
)

// sqlstate returns the server's code in err, empty for none.
func sqlstate(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

func validPostgresSchema(s string) error {
	if !schemaName.MatchString(s) || len(s) > 63 || strings.HasPrefix(s, "pg_") || s == "information_schema" {
		return usage.Errorf("the probe's schema must be 1 to 63 of a–z 0–9 _ $ - and no system schema")
	}
	return nil
}
