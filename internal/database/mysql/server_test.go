package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"plugpull/client"
	"plugpull/internal/testserver"
	"plugpull/internal/workload"
)

// shared is the server of all tests that leave it as it was.
var shared struct {
	s    *testserver.Server
	err  error
	once bool
	n    atomic.Int64
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.s != nil {
		_ = shared.s.Close()
	}
	os.Exit(code)
}

// sharedServer returns the shared server. The tests that use it do not run in
// parallel.
func sharedServer(t testing.TB) *testserver.Server {
	testserver.NeedMariaDB(t)
	if !shared.once {
		shared.once = true
		shared.s, shared.err = testserver.Start(context.Background(), testserver.Options{})
	}
	require.NoError(t, shared.err)
	return shared.s
}

func ownServer(t testing.TB, args ...string) *testserver.Server {
	testserver.NeedMariaDB(t)
	s, err := testserver.Start(context.Background(), testserver.Options{Args: args})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// testDSN returns a DSN with a schema of the test's own.
func testDSN(port uint16) DSN {
	return DSN{User: "root", Host: "127.0.0.1", Port: port, Schema: fmt.Sprintf("pp_%d", shared.n.Add(1)), ConnectTimeout: 5 * time.Second}
}

// prepared returns a prepared schema for a profile.
func prepared(t testing.TB, port int, profile workload.Profile, opts Options) (*DB, workload.Params) {
	d, err := Open(testDSN(uint16(port)), opts)
	require.NoError(t, err)
	p := workload.Params{Run: uuid.New(), Profile: profile, PayloadMin: 0, PayloadMax: 60}
	if profile == workload.Churn {
		p.Window = workload.MinWindow
	}
	require.NoError(t, d.Prepare(ctx(t), p, 1))
	return d, p
}

// through returns the same DB as seen through a proxy.
func through(t *testing.T, d *DB, p *proxy, opts Options) *DB {
	dsn := d.DSN()
	dsn.Port = p.port()
	d, err := Open(dsn, opts)
	require.NoError(t, err)
	return d
}

func dial(t testing.TB, d *DB, p workload.Params) client.Conn {
	c, err := d.Dial(ctx(t), p, 1)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func op(n workload.Seq) workload.Op { return workload.Op{Stream: 1, Seq: n, First: 1} }

func ctx(t testing.TB) context.Context {
	c, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return c
}

// do executes statements as root on a connection of its own.
func do(t testing.TB, d *DB, stmts ...string) {
	t.Helper()
	require.NoError(t, d.control(context.Background(), "", func(c *sql.Conn) error {
		for _, q := range stmts {
			if _, err := c.ExecContext(context.Background(), q); err != nil {
				return fmt.Errorf("%s: %w", q, err)
			}
		}
		return nil
	}))
}

func queryInt(t testing.TB, d *DB, q string) (n int) {
	t.Helper()
	require.NoError(t, d.control(context.Background(), "", func(c *sql.Conn) error {
		return c.QueryRowContext(context.Background(), q).Scan(&n)
	}))
	return n
}

// open executes statements on a connection that stays open until the test
// ends.
func open(t *testing.T, d *DB, stmts ...string) *sql.Conn {
	t.Helper()
	connector, err := d.connector(d.dsn.Schema, dialControl)
	require.NoError(t, err)
	pool := sql.OpenDB(connector)
	t.Cleanup(func() { _ = pool.Close() })
	c, err := pool.Conn(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	for _, q := range stmts {
		_, err := c.ExecContext(context.Background(), q)
		require.NoError(t, err, q)
	}
	return c
}

func killAll(t *testing.T, d *DB, what string, ids []uint64) {
	for _, id := range ids {
		do(t, d, sprintf("KILL %s %d", what, id))
	}
}
