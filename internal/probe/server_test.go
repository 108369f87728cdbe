package probe

import (
	"context"
	"database/sql"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/database/mysql"
	"plugpull/internal/testserver"
	"plugpull/internal/usage"
)

func TestServer(t *testing.T) {
	s := startServer(t, testserver.Options{Init: []string{
		"CREATE USER IF NOT EXISTS least@'%'", GrantText(DefaultSchema, "least@'%'", true),
		"CREATE USER IF NOT EXISTS less@'%'", GrantText(DefaultSchema, "less@'%'", false),
	}})
	root := open(t, dsnOf(s, "root"))
	t.Run("probe", func(t *testing.T) { probes(t, s, root) })
	t.Run("foreign schema", func(t *testing.T) { foreignSchemas(t, root) })
	t.Run("leftovers of the dead", func(t *testing.T) { leftovers(t, s, root) })
}

func probes(t *testing.T, s *testserver.Server, root *mysql.DB) {
	before := everything(t, root)
	leavesNothing := func(t *testing.T) {
		assert.Equal(t, before, everything(t, root), "a probe leaves nothing behind")
	}
	for name, target := range map[string]Server{
		"client":    {DB: root},
		"in server": {DB: root, InServer: true},
		"least":     {DB: open(t, dsnOf(s, "least")), InServer: true},
		"schema":    {DB: root, Schema: "own-name", InServer: true},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Run(context.Background(), target, Options{Commits: 2500})
			require.NoError(t, err)
			assert.EqualValues(t, 2500, r.Commits)
			assert.EqualValues(t, 2500, r.hist.TotalCount())
			assert.Equal(t, "1", r.Settings["innodb_flush_log_at_trx_commit"])
			assert.Contains(t, r.Version, "MariaDB")
			assert.Positive(t, r.Rate())
			assert.False(t, r.Interrupted)
			assert.LessOrEqual(t, r.Latency(50), r.Latency(100))
			assert.InDelta(t, r.Took.Seconds(), r.Mean().Seconds()*2500, r.Took.Seconds()/2, "the latencies make up the time")
			leavesNothing(t)
		})
	}
	for _, inServer := range []bool{false, true} {
		t.Run("interrupted", func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			var seen Tick
			r, err := Run(ctx, Server{DB: root, InServer: inServer}, Options{Tick: func(k Tick) { seen = k; cancel() }})
			require.ErrorIs(t, err, context.Canceled)
			assert.NotContains(t, err.Error(), "removed")
			assert.True(t, r.Interrupted)
			assert.Positive(t, seen.Rate)
			assert.GreaterOrEqual(t, r.Commits, seen.Commits, "what was measured is kept")
			assert.Less(t, r.Took, DefaultFor)
			leavesNothing(t)
		})
	}
	t.Run("missing right", func(t *testing.T) {
		_, err := Run(context.Background(), Server{DB: open(t, dsnOf(s, "less")), InServer: true}, Options{Commits: 10})
		var priv *mysql.PrivilegeError
		require.ErrorAs(t, err, &priv)
		assert.True(t, usage.Is(err))
		assert.Contains(t, priv.Grant, "CREATE ROUTINE, EXECUTE ON `plugpull\\_probe`.* TO 'less'")
		leavesNothing(t)
	})
	t.Run("read-only", func(t *testing.T) {
		execute(t, root, "SET GLOBAL read_only=1")
		_, err := Run(context.Background(), Server{DB: root}, Options{Commits: 10})
		execute(t, root, "SET GLOBAL read_only=0")
		require.ErrorContains(t, err, "read-only")
		assert.True(t, usage.Is(err))
	})
	t.Run("settings", func(t *testing.T) {
		execute(t, root, "SET GLOBAL innodb_flush_log_at_trx_commit=2")
		r, err := Run(context.Background(), Server{DB: root}, Options{Commits: 100})
		execute(t, root, "SET GLOBAL innodb_flush_log_at_trx_commit=1")
		require.NoError(t, err)
		assert.Equal(t, []string{"not_durable", "rate_misleads"}, codes(Interpret(&r, Evidence{})))
	})
	for _, bad := range []string{"mysql", "Upper", "a`b", "ä"} {
		_, err := Run(context.Background(), Server{DB: root, Schema: bad}, Options{})
		assert.True(t, usage.Is(err), bad)
	}
}

// What is not a probe's stays as it is.
func foreignSchemas(t *testing.T, root *mysql.DB) {
	mark := "CREATE TABLE plugpull_probe.plugpull_probe_mark (token CHAR(36))"
	for name, c := range map[string]struct {
		made []string
		what string
	}{
		"empty":          {nil, ""},
		"table":          {[]string{"CREATE TABLE plugpull_probe.orders (id INT)"}, "orders"},
		"commits alone":  {[]string{"CREATE TABLE plugpull_probe.commits (id INT)"}, "commits"},
		"mark and table": {[]string{mark, "CREATE TABLE plugpull_probe.orders (id INT)"}, "orders"},
		"mark is a view": {[]string{"CREATE VIEW plugpull_probe.plugpull_probe_mark AS SELECT 1"}, "plugpull_probe_mark"},
		"routine":        {[]string{mark, "CREATE FUNCTION plugpull_probe.f() RETURNS INT RETURN 1"}, "f"},
		"event":          {[]string{mark, "CREATE EVENT plugpull_probe.e ON SCHEDULE EVERY 1 DAY DO SELECT 1"}, "e"},
	} {
		t.Run(name, func(t *testing.T) {
			execute(t, root, append([]string{"CREATE DATABASE plugpull_probe"}, c.made...)...)
			defer execute(t, root, "DROP DATABASE plugpull_probe")
			_, err := Run(context.Background(), Server{DB: root}, Options{Commits: 10})
			var foreign *ForeignError
			require.ErrorAs(t, err, &foreign)
			assert.True(t, usage.Is(err))
			assert.Equal(t, ForeignError{DefaultSchema, c.what}, *foreign)
			assert.Contains(t, list(t, root, "SHOW DATABASES"), DefaultSchema)
		})
	}
	t.Run("a table that came in the meantime", func(t *testing.T) {
		defer execute(t, root, "DROP DATABASE plugpull_probe")
		done := false
		_, err := Run(context.Background(), Server{DB: root}, Options{For: 1100 * time.Millisecond, Tick: func(Tick) {
			if !done {
				execute(t, root, "CREATE TABLE plugpull_probe.orders (id INT)")
				done = true
			}
		}})
		require.True(t, done)
		var foreign *ForeignError
		require.ErrorAs(t, err, &foreign)
		assert.Contains(t, err.Error(), "could not be removed")
		assert.Contains(t, list(t, root, "SHOW TABLES FROM plugpull_probe"), "orders")
	})
}

// A probe that was killed, or whose server was, leaves something that the next one knows and removes.
func leftovers(t *testing.T, s *testserver.Server, root *mysql.DB) {
	before := everything(t, root)
	commits := func() int {
		n := 0
		err := root.Control(context.Background(), func(c *sql.Conn) error {
			return c.QueryRowContext(context.Background(), "SELECT COUNT(*) FROM plugpull_probe.commits").Scan(&n)
		})
		if err != nil {
			return 0
		}
		return n
	}
	t.Run("kill", func(t *testing.T) {
		kill := startVictim(t, dsnOf(s, "root"))
		require.Eventually(t, func() bool { return commits() > 0 }, 20*time.Second, 20*time.Millisecond)
		_, err := Run(context.Background(), Server{DB: root, limits: limits{time.Second, time.Second, time.Millisecond}}, Options{Commits: 10})
		require.ErrorIs(t, err, ErrBusy, "a probe that lives is left alone")
		kill()
		require.NotEqual(t, before, everything(t, root))
		r, err := Run(context.Background(), Server{DB: root}, Options{Commits: 10})
		require.NoError(t, err)
		assert.EqualValues(t, 10, r.Commits)
		assert.Equal(t, before, everything(t, root))
	})
	for _, inServer := range []bool{false, true} {
		t.Run("the server hangs", func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			stop := func(Tick) {
				require.NoError(t, s.Signal(syscall.SIGSTOP))
				time.AfterFunc(50*time.Millisecond, cancel) // while a statement waits
			}
			r, err := Run(ctx, Server{DB: root, InServer: inServer, limits: limits{100 * time.Millisecond, 100 * time.Millisecond, time.Second}}, Options{Tick: stop})
			require.NoError(t, s.Signal(syscall.SIGCONT))
			require.ErrorIs(t, err, context.Canceled)
			assert.ErrorContains(t, err, "could not be removed")
			assert.True(t, r.Interrupted)
			assert.Positive(t, r.Commits)
			_, err = Run(context.Background(), Server{DB: root}, Options{Commits: 10})
			require.NoError(t, err)
			assert.Equal(t, before, everything(t, root))
		})
	}
	t.Run("the server dies", func(t *testing.T) {
		killed := false
		r, err := Run(context.Background(), Server{DB: root}, Options{Tick: func(Tick) {
			if !killed {
				killed = true
				require.NoError(t, s.Kill())
			}
		}})
		require.ErrorContains(t, err, "could not be removed")
		assert.False(t, r.Interrupted)
		assert.Positive(t, r.Commits)
		require.NoError(t, s.Restart(context.Background()))
		require.NotEqual(t, before, everything(t, root))
		_, err = Run(context.Background(), Server{DB: root, InServer: true}, Options{Commits: 10})
		require.NoError(t, err)
		assert.Equal(t, before, everything(t, root))
	})
}

func TestBinlog(t *testing.T) {
	s := startServer(t, testserver.Options{Args: []string{"--log-bin=b", "--sync-binlog=1", "--server-id=1"}})
	root := open(t, dsnOf(s, "root"))
	_, err := Run(context.Background(), Server{DB: root}, Options{Commits: 10})
	var on *BinlogError
	require.ErrorAs(t, err, &on)
	assert.True(t, usage.Is(err))
	for _, inServer := range []bool{false, true} {
		r, err := Run(context.Background(), Server{DB: root, AllowBinlog: true, InServer: inServer}, Options{Commits: 200})
		require.NoError(t, err)
		assert.EqualValues(t, 200, r.Commits)
		assert.Contains(t, Interpret(&r, Evidence{})[0].Text, "two flushes")
	}
}
