package probe

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"plugpull/internal/hostcheck/databases/postgres"
	"plugpull/internal/testserver/pgserver"
)

// pgServer is a throw-away PostgreSQL on a Unix socket that trusts everybody.
type pgServer struct{ *pgserver.Server }

// startPostgres keeps it in memory where it can: its speed is no matter of these tests.
func startPostgres(t testing.TB, args ...string) pgServer {
	t.Helper()
	parent := "/dev/shm"
	if _, err := os.Stat(parent); err != nil {
		parent = ""
	}
	return pgServer{pgserver.New(t, parent, true, args...)}
}

func (s pgServer) dsn(role string) string { return s.URL(role, "") }

func (s pgServer) target(t testing.TB, role string) Postgres {
	t.Helper()
	dsn, err := postgres.ParseDSN(s.dsn(role))
	require.NoError(t, err)
	return Postgres{DSN: dsn}
}

// connected runs f on a connection of the superuser.
func (s pgServer) connected(f func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, s.dsn("super"))
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	return f(ctx, c)
}

func (s pgServer) try(statements ...string) error {
	return s.connected(func(ctx context.Context, c *pgx.Conn) error {
		for _, q := range statements {
			if _, err := c.Exec(ctx, q); err != nil {
				return fmt.Errorf("%s: %w", q, err)
			}
		}
		return nil
	})
}

func (s pgServer) do(t testing.TB, statements ...string) {
	t.Helper()
	require.NoError(t, s.try(statements...))
}

// list returns a query's first column.
func (s pgServer) list(t testing.TB, q string) (out []string) {
	t.Helper()
	require.NoError(t, s.connected(func(ctx context.Context, c *pgx.Conn) (err error) {
		rows, _ := c.Query(ctx, q)
		out, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	}))
	return out
}

// everything is what a probe could leave in a server.
func (s pgServer) everything(t testing.TB) []string {
	t.Helper()
	return s.list(t, "SELECT nspname::text FROM pg_namespace WHERE nspname !~ '^pg_(toast_)?temp' UNION ALL SELECT relname::text FROM pg_class WHERE oid >= 16384 UNION ALL SELECT proname::text FROM pg_proc WHERE oid >= 16384 ORDER BY 1")
}

// with sets a setting in the files for as long as f runs.
func (s pgServer) with(t testing.TB, name, value string, f func()) {
	t.Helper()
	before := s.list(t, "SELECT current_setting('"+name+"')")
	set := func(q, want string) {
		s.do(t, q, "SELECT pg_reload_conf()")
		require.Eventually(t, func() bool { return s.list(t, "SELECT current_setting('"+name+"')")[0] == want }, 20*time.Second, 20*time.Millisecond)
	}
	set("ALTER SYSTEM SET "+name+" = '"+value+"'", value)
	defer set("ALTER SYSTEM RESET "+name, before[0])
	f()
}
