package postgres

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"plugpull/internal/testserver/pgserver"
)

// server is a throw-away server with a connection of the superuser.
type server struct {
	*pgserver.Server
	super *pgx.Conn // to the database postgres; nil until it is needed
}

func startServer(t *testing.T, args ...string) *server {
	t.Helper()
	s := &server{Server: pgserver.New(t, "", false, args...)}
	t.Cleanup(s.leave)
	return s
}

// leave closes the superuser's connection.
func (s *server) leave() {
	if s.super != nil {
		closeConn(s.super)
		s.super = nil
	}
}

func (s *server) restart(t *testing.T, args ...string) {
	t.Helper()
	s.leave()
	s.Stop()
	s.Start(t, args...)
}

func (s *server) dsn(t *testing.T, user, password string) DSN {
	t.Helper()
	d, err := ParseDSN("postgres://" + user + "@/?host=" + s.Dir)
	require.NoError(t, err)
	d.Port = cmp.Or(s.Port, d.Port)
	d.SetPassword(password)
	return d
}

// await tries f until it succeeds or a minute has passed.
func (s *server) await(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for err := f(ctx); err != nil; err = f(ctx) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			require.NoError(t, err, s.Log())
		}
	}
}

// do executes statements as the superuser, each by itself.
func (s *server) do(t *testing.T, database string, statements ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := s.super
	if c == nil || database != "postgres" {
		d := s.dsn(t, pgserver.Super, pgserver.Password)
		d.Database = database
		cfg, err := d.Config("plugpull check")
		require.NoError(t, err)
		c, err = pgx.ConnectConfig(ctx, cfg)
		require.NoError(t, err)
		if database == "postgres" {
			s.super = c
		} else {
			defer closeConn(c)
		}
	}
	for _, q := range statements {
		_, err := c.Exec(ctx, q)
		require.NoError(t, err, q)
	}
}

// set changes a setting in the files, reloads, and waits until new sessions have it.
func (s *server) set(t *testing.T, name, value string) {
	t.Helper()
	s.do(t, "postgres", "ALTER SYSTEM SET "+name+" = '"+value+"'", "SELECT pg_reload_conf()")
	s.awaitTrue(t, "current_setting('"+name+"') = '"+value+"'")
}

// awaitTrue waits until the superuser's session sees what a reload brought: the server has read its files before
// it tells its sessions to.
func (s *server) awaitTrue(t *testing.T, condition string) {
	t.Helper()
	s.await(t, func(ctx context.Context) error {
		var is bool
		err := s.super.QueryRow(ctx, "SELECT "+condition).Scan(&is)
		if err == nil && !is {
			err = errors.New("not yet: " + condition)
		}
		return err
	})
}

func (s *server) reset(t *testing.T, name, value string) {
	t.Helper()
	s.set(t, name, value)
	s.do(t, "postgres", "ALTER SYSTEM RESET "+name)
}

func try(ctx context.Context, d DSN, q string) error {
	cfg, err := d.Config("plugpull check")
	if err != nil {
		return err
	}
	c, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer closeConn(c)
	_, err = c.Exec(ctx, q)
	return err
}
