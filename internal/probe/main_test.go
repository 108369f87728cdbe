package probe

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"plugpull/internal/database/mysql"
	"plugpull/internal/hostcheck/databases/postgres"
	"plugpull/internal/testserver"
)

// victimEnv makes the test's program a probe that waits for its death: a DSN, or a folder.
const victimEnv = "PLUGPULL_PROBE_VICTIM"

func TestMain(m *testing.M) {
	if where := os.Getenv(victimEnv); where != "" {
		os.Exit(victim(where))
	}
	os.Exit(m.Run())
}

func victim(where string) int {
	var target Target = Folder{Dir: where}
	if dsn, err := mysql.ParseDSN(where); err == nil {
		db, err := mysql.Open(dsn, mysql.Options{})
		if err != nil {
			return 1
		}
		target = Server{DB: db, InServer: true}
	} else if dsn, err := postgres.ParseDSN(where); err == nil {
		target = Postgres{DSN: dsn, InServer: true}
	}
	_, err := Run(context.Background(), target, Options{For: time.Minute})
	fmt.Fprintln(os.Stderr, "the victim ended by itself:", err)
	return 1
}

// startVictim starts a probe in a process of its own and returns its end: kill -9.
func startVictim(t *testing.T, where string) (kill func()) {
	c := exec.Command(os.Args[0], "-test.run=^$")
	c.Env = append(os.Environ(), victimEnv+"="+where)
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, c.Start())
	killed := false
	kill = func() {
		if !killed {
			killed = true
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}
	t.Cleanup(kill)
	return kill
}

func startServer(t testing.TB, o testserver.Options) *testserver.Server {
	t.Helper()
	testserver.NeedMariaDB(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if o.Dir == "" {
		o.Dir = quick(t)
	}
	s, err := testserver.Start(ctx, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// quick returns a folder in memory where there can be one: what these tests assert does not depend on a disk.
func quick(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "plugpull-probe-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

func dsnOf(s *testserver.Server, user string) string { return "mysql://" + user + "@" + s.Addr() }

func open(t testing.TB, dsn string) *mysql.DB {
	t.Helper()
	d, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	db, err := mysql.Open(d, mysql.Options{})
	require.NoError(t, err)
	return db
}

// list returns a query's first column.
func list(t testing.TB, d *mysql.DB, q string) (out []string) {
	t.Helper()
	require.NoError(t, d.Control(context.Background(), func(c *sql.Conn) error {
		rows, err := c.QueryContext(context.Background(), q)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var s string
			if err := rows.Scan(&s); err != nil {
				return err
			}
			out = append(out, s)
		}
		return rows.Err()
	}))
	return out
}

func execute(t testing.TB, d *mysql.DB, statements ...string) {
	t.Helper()
	require.NoError(t, d.Control(context.Background(), func(c *sql.Conn) error {
		for _, q := range statements {
			if _, err := c.ExecContext(context.Background(), q); err != nil {
				return fmt.Errorf("%s: %w", q, err)
			}
		}
		return nil
	}))
}

// everything is what a probe could leave in a server.
func everything(t testing.TB, d *mysql.DB) []string {
	t.Helper()
	return list(t, d, "SELECT SCHEMA_NAME FROM information_schema.SCHEMATA UNION ALL SELECT ROUTINE_NAME FROM information_schema.ROUTINES UNION ALL "+
		"SELECT CONCAT(User, Routine_name) FROM mysql.procs_priv ORDER BY 1")
}
