package probe

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"plugpull/internal/database/mysql"
	"plugpull/internal/usage"
)

// Database is what a probe needs of a server; *mysql.DB is one.
type Database interface {
	// Control runs f on a connection of its own, without a schema, and closes it. It blocks until f has returned. When ctx
	// ends it breaks the connection, so that a statement fails that waits for its answer with a context of its own: to
	// have the driver watch a context costs as much as a commit to memory.
	Control(ctx context.Context, f func(c *sql.Conn) error) error
	// Direct reports whether the server is on this machine and no tunnel or proxy is between.
	Direct(ctx context.Context) (bool, error)
	// Settings reads the server's global variables and status.
	Settings(ctx context.Context) (mysql.Settings, error)
	// DSN says where the server is. Its schema is not used.
	DSN() mysql.DSN
}

// DefaultSchema is the probe's schema.
const DefaultSchema = "plugpull_probe"

// Server probes a MySQL or MariaDB server: each commit is one INSERT that commits by itself. It makes a schema of its own there
// and drops it. Only one probe at a time is let in on a server.
type Server struct {
	DB     Database
	Schema string // empty: DefaultSchema
	// InServer runs the loop as a stored procedure, without the network. The user needs CREATE ROUTINE and
	// EXECUTE beside what else a probe needs.
	InServer bool
	// AllowBinlog lets the probe run where the binary log is on: its schema, table and rows are
	// written there and go to every replica.
	AllowBinlog bool

	limits limits // zero but in tests
}

// limits bound what an interruption does not end at once.
type limits struct {
	// graceful is how long a statement in progress may go on, so that the connection ends in order.
	graceful time.Duration
	// clean is how long the removal of the schema may take.
	clean time.Duration
	// lock is how long to wait for the lock of a probe that was just killed: until the server notices.
	lock time.Duration
}

func (l limits) orDefault() limits {
	if l == (limits{}) {
		return limits{graceful: 3 * time.Second, clean: 30 * time.Second, lock: 5 * time.Second}
	}
	return l
}

// BinlogError says that the server's binary log is on.
type BinlogError struct{}

func (*BinlogError) Error() string {
	return "the server's binary log is on: the probe's schema and every row of it would be written there and sent to all replicas; allow it if that may be"
}

// ErrBusy says that another probe runs on the server.
var ErrBusy = errors.New("another probe runs on this server")

// lockName is the server-wide lock that a probe holds.
const lockName = "plugpull_probe"

func (s Server) measure(ctx context.Context, r *Result, g *goal) (err error) {
	r.Kind = KindClient
	if s.InServer {
		r.Kind = KindInServer
	}
	if s.Schema == "" {
		s.Schema = DefaultSchema
	}
	if !validSchema(s.Schema) {
		return usage.Errorf("the probe's schema must be 1 to 64 of a–z 0–9 _ $ - and no system schema")
	}
	where := s.DB.DSN()
	where.Schema = s.Schema
	r.Where = where.String()
	settings, err := s.DB.Settings(ctx)
	if err != nil {
		return err
	}
	r.Settings, r.Version = settings.Variables, settings.Variables["version"]
	switch {
	case settings.ReadOnly:
		return usage.Errorf("the server is read-only")
	case settings.LogBin && !s.AllowBinlog:
		return usage.Wrap(&BinlogError{})
	}
	own, err := newPlace(s)
	if err != nil {
		return err
	}
	s.limits = s.limits.orDefault()
	defer func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limits.clean)
		defer cancel()
		err = errors.Join(err, s.clean(clean, own))
	}()
	late, cancel := lateContext(ctx, s.limits.graceful)
	defer cancel()
	return s.DB.Control(late, func(c *sql.Conn) error {
		if err := s.prepareSession(ctx, c); err != nil {
			return err
		}
		if err := own.make(ctx, c); err != nil {
			return err
		}
		if s.InServer {
			return g.run(func() error { return callChunks(ctx, c, own, g) })
		}
		return inClient(ctx, c, own, g)
	})
}

// prepareSession sets what the loop needs and takes the lock of probes.
func (s Server) prepareSession(ctx context.Context, c *sql.Conn) error {
	// UTC, so that no summer time begins between two readings of the clock.
	if _, err := c.ExecContext(ctx, "SET SESSION autocommit=1, time_zone='+00:00'"); err != nil {
		return fmt.Errorf("set up the session: %w", err)
	}
	return s.takeLock(ctx, c)
}

func (s Server) takeLock(ctx context.Context, c *sql.Conn) error {
	var got sql.NullInt64
	if err := c.QueryRowContext(ctx, "SELECT GET_LOCK(?, ?)", lockName, s.limits.lock.Seconds()).Scan(&got); err != nil {
		return fmt.Errorf("take the probe's lock: %w", err)
	}
	if got.Int64 != 1 {
		return ErrBusy
	}
	return nil
}

// clean removes the schema, on a connection of its own: the loop's may be lost.
func (s Server) clean(ctx context.Context, own *place) error {
	if !own.touched {
		return nil
	}
	err := s.DB.Control(ctx, func(c *sql.Conn) error {
		if err := s.takeLock(ctx, c); err != nil {
			return err
		}
		return own.remove(ctx, c)
	})
	if err != nil {
		return fmt.Errorf("the probe's schema %s could not be removed; the next probe will do so, or DROP DATABASE `%s`: %w", own.schema, own.schema, err)
	}
	return nil
}

// lateContext ends some time after ctx does. The function it returns ends it at once.
func lateContext(ctx context.Context, after time.Duration) (context.Context, func()) {
	late, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(over)
		t := time.NewTimer(after)
		defer t.Stop()
		select {
		case <-t.C:
			cancel(ctx.Err())
		case <-late.Done():
		}
	})
	return late, func() {
		cancel(context.Canceled)
		if !stop() {
			<-over
		}
	}
}

// inClient sends one INSERT after the other, below the pool of database/sql.
func inClient(ctx context.Context, c *sql.Conn, own *place, g *goal) error {
	return c.Raw(func(dc any) error {
		p, ok := dc.(driver.ConnPrepareContext)
		if !ok {
			return errors.New("the driver's connection prepares no statement")
		}
		stmt, err := p.PrepareContext(ctx, own.insert("?"))
		if err != nil {
			return fmt.Errorf("prepare the insert: %w", err)
		}
		defer stmt.Close()
		insert, ok := stmt.(driver.StmtExecContext)
		if !ok {
			return errors.New("the driver's statement takes no context")
		}
		return g.run(func() error { return insertRows(ctx, insert, g) })
	})
}

func insertRows(ctx context.Context, insert driver.StmtExecContext, g *goal) error {
	args := []driver.NamedValue{{Ordinal: 1, Value: filler}}
	for last := time.Now(); !g.reached(); {
		if err := ctx.Err(); err != nil {
			return err
		}
		sent := time.Now()
		if _, err := insert.ExecContext(context.Background(), args); err != nil {
			return fmt.Errorf("insert a row: %w", err)
		}
		now := time.Now()
		g.add(now.Sub(sent), now.Sub(last))
		last = now
	}
	return nil
}
