package probe

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/database/mysql"
	"plugpull/internal/hostcheck"
	"plugpull/internal/usage"
)

func worst(all []hostcheck.Finding) hostcheck.Level {
	level := hostcheck.OK
	for _, f := range all {
		level = hostcheck.Worst(level, f.Level)
	}
	return level
}

func TestPostgres(t *testing.T) {
	s := startPostgres(t, "-c", "wal_level=logical")
	s.do(t, "CREATE ROLE least LOGIN", PostgresGrantText("postgres", "least"), "CREATE ROLE less LOGIN", "CREATE ROLE other LOGIN",
		PostgresGrantText("postgres", "other"), "REVOKE ALL ON SCHEMA public FROM PUBLIC")
	before := s.everything(t)
	leavesNothing := func(t *testing.T) {
		t.Helper()
		assert.Equal(t, before, s.everything(t), "a probe leaves nothing behind")
	}
	t.Run("probe", func(t *testing.T) { postgresProbes(t, s, leavesNothing) })
	t.Run("settings", func(t *testing.T) { postgresPlanted(t, s) })
	t.Run("refusals", func(t *testing.T) { postgresRefusals(t, s, leavesNothing) })
	t.Run("foreign schema", func(t *testing.T) { postgresForeign(t, s) })
	t.Run("leftovers of the dead", func(t *testing.T) { postgresLeftovers(t, s, leavesNothing) })
}

func postgresProbes(t *testing.T, s pgServer, leavesNothing func(*testing.T)) {
	own, least := s.target(t, "least"), s.target(t, "least")
	own.Schema = "own-name"
	least.InServer = true
	for name, target := range map[string]Postgres{"client": s.target(t, "super"), "in server, least rights": least, "schema": own} {
		t.Run(name, func(t *testing.T) {
			rows := ""
			schema := cmp.Or(target.Schema, DefaultSchema)
			r, err := Run(context.Background(), target, Options{Commits: 2500, Around: func(begin bool) {
				if !begin {
					rows = s.list(t, `SELECT count(*) || ' ' || count(DISTINCT xmin::text) FROM "`+schema+`".commits`)[0]
				}
			}})
			require.NoError(t, err)
			assert.EqualValues(t, 2500, r.Commits)
			assert.EqualValues(t, 2500, r.hist.TotalCount())
			assert.Equal(t, "2500 2500", rows, "each row is a transaction of its own")
			assert.Equal(t, "on", r.Settings["synchronous_commit"])
			assert.Contains(t, r.Version, "PostgreSQL")
			assert.Positive(t, r.Rate())
			assert.False(t, r.Interrupted)
			assert.InDelta(t, r.Took.Seconds(), r.Mean().Seconds()*2500, r.Took.Seconds()/2, "the latencies make up the time")
			assert.Equal(t, "flush_latency", Interpret(&r, Evidence{})[0].Code)
			assert.NotEqual(t, hostcheck.Critical, worst(Interpret(&r, Evidence{})), "the clean twin")
			leavesNothing(t)
		})
	}
	for _, inServer := range []bool{false, true} {
		t.Run("interrupted", func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			target := s.target(t, "least")
			target.InServer = inServer
			var seen Tick
			r, err := Run(ctx, target, Options{Tick: func(k Tick) { seen = k; cancel() }})
			require.ErrorIs(t, err, context.Canceled)
			assert.NotContains(t, err.Error(), "removed")
			assert.True(t, r.Interrupted)
			assert.GreaterOrEqual(t, r.Commits, seen.Commits, "what was measured is kept")
			leavesNothing(t)
		})
	}
	folders, err := s.target(t, "super").LogFolders(context.Background())
	require.NoError(t, err)
	assert.Equal(t, []string{s.Dir + "/data/pg_wal"}, folders)
	folders, err = s.target(t, "least").LogFolders(context.Background())
	require.NoError(t, err)
	assert.Empty(t, folders, "this login is not told")
}

// What makes a commit wait for nothing is found, whether the server or the login says it.
func postgresPlanted(t *testing.T, s pgServer) {
	probed := func(want ...string) {
		t.Helper()
		r, err := Run(context.Background(), s.target(t, "least"), Options{Commits: 100})
		require.NoError(t, err)
		got := Interpret(&r, Evidence{})
		assert.Equal(t, want, codes(got))
		assert.Equal(t, hostcheck.Critical, worst(got))
	}
	s.with(t, "fsync", "off", func() { probed("not_durable", "rate_misleads") })
	s.with(t, "synchronous_commit", "off", func() { probed("not_durable", "rate_misleads") })
	s.do(t, "ALTER ROLE least SET synchronous_commit = off")
	probed("not_durable", "rate_misleads")
	s.do(t, "ALTER ROLE least RESET synchronous_commit")
	// A standby that is away: the commit waits until it is cancelled, and the schema goes all the same.
	t.Run("no standby", func(t *testing.T) {
		before := s.everything(t)
		s.with(t, "synchronous_standby_names", "away", func() {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			target := s.target(t, "least")
			target.limits = limits{200 * time.Millisecond, 5 * time.Second, 5 * time.Second}
			waits := make(chan bool)
			go func() {
				defer cancel()
				waits <- pollUntil(func() bool {
					return s.try("SELECT 1/count(*) FROM pg_stat_activity WHERE application_name = 'plugpull probe' AND wait_event = 'SyncRep'") == nil
				})
			}()
			var err error
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, err = Run(ctx, target, Options{Commits: 1})
			}()
			require.True(t, <-waits, "a commit waits for the standby")
			<-ended
			require.ErrorIs(t, err, context.Canceled)
			assert.NotContains(t, err.Error(), "could not be removed")
			assert.Equal(t, before, s.everything(t))
			log, err := os.ReadFile(s.Dir + "/log")
			require.NoError(t, err)
			assert.Equal(t, 1, strings.Count(string(log), "canceling wait for synchronous replication"), "the removal waits for no standby")
		})
	})
}

// pollUntil waits until f is true, for at most 20 s.
func pollUntil(f func() bool) bool {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); <-tick.C {
		if f() {
			return true
		}
	}
	return false
}

func postgresRefusals(t *testing.T, s pgServer, leavesNothing func(*testing.T)) {
	refused := func(t *testing.T, target Postgres) error {
		t.Helper()
		_, err := Run(context.Background(), target, Options{Commits: 10})
		require.Error(t, err)
		assert.True(t, usage.Is(err), "%v", err)
		leavesNothing(t)
		return err
	}
	t.Run("missing right", func(t *testing.T) {
		var priv *mysql.PrivilegeError
		require.ErrorAs(t, refused(t, s.target(t, "less")), &priv)
		assert.Equal(t, `GRANT CREATE ON DATABASE "postgres" TO "less"`, priv.Grant)
	})
	t.Run("read-only", func(t *testing.T) {
		s.do(t, "ALTER ROLE less SET default_transaction_read_only = on")
		assert.ErrorContains(t, refused(t, s.target(t, "less")), "read-only")
	})
	t.Run("publication", func(t *testing.T) {
		s.do(t, "CREATE PUBLICATION everything FOR ALL TABLES")
		defer s.do(t, "DROP PUBLICATION everything")
		var logical *LogicalError
		require.ErrorAs(t, refused(t, s.target(t, "least")), &logical)
		assert.Equal(t, []string{"everything"}, logical.Publications)
		assert.Empty(t, logical.Slots)
		target := s.target(t, "least")
		target.AllowLogical = true
		_, err := Run(context.Background(), target, Options{Commits: 10})
		assert.NoError(t, err)
	})
	t.Run("slot", func(t *testing.T) {
		s.do(t, "SELECT pg_create_logical_replication_slot('taker', 'test_decoding')")
		defer s.do(t, "SELECT pg_drop_replication_slot('taker')")
		var logical *LogicalError
		require.ErrorAs(t, refused(t, s.target(t, "least")), &logical)
		assert.Equal(t, []string{"taker"}, logical.Slots)
		assert.Empty(t, logical.Publications)
	})
	t.Run("harmless replication", func(t *testing.T) {
		s.do(t, "CREATE TABLE public.orders (id int)", "CREATE PUBLICATION one FOR TABLE public.orders", "SELECT pg_create_logical_replication_slot('careful', 'pgoutput')")
		defer s.do(t, "SELECT pg_drop_replication_slot('careful')", "DROP PUBLICATION one", "DROP TABLE public.orders")
		_, err := Run(context.Background(), s.target(t, "least"), Options{Commits: 10})
		assert.NoError(t, err)
	})
	for _, bad := range []string{"pg_x", "information_schema", "Upper", `a"b`, "ä"} {
		target := s.target(t, "least")
		target.Schema = bad
		assert.Error(t, refused(t, target), bad)
	}
	t.Run("standby", func(t *testing.T) {
		s.End(syscall.SIGINT)
		signal := s.Dir + "/data/standby.signal"
		require.NoError(t, os.WriteFile(signal, nil, 0o644))
		s.Start(t)
		assert.ErrorContains(t, func() error {
			_, err := Run(context.Background(), s.target(t, "super"), Options{Commits: 10})
			assert.True(t, usage.Is(err))
			return err
		}(), "standby")
		s.End(syscall.SIGINT)
		require.NoError(t, os.Remove(signal))
		s.Start(t)
	})
}

// What is not a probe's stays as it is.
func postgresForeign(t *testing.T, s pgServer) {
	mark := "CREATE TABLE plugpull_probe.plugpull_probe_mark (token char(36))"
	for name, c := range map[string]struct {
		made []string
		what string
	}{
		"empty":          {nil, ""},
		"table":          {[]string{"CREATE TABLE plugpull_probe.orders (id int)"}, "table plugpull_probe.orders"},
		"commits alone":  {[]string{"CREATE TABLE plugpull_probe.commits (id int)"}, "table plugpull_probe.commits"},
		"mark and table": {[]string{mark, "CREATE TABLE plugpull_probe.orders (id int)"}, "table plugpull_probe.orders"},
		"mark is a view": {[]string{"CREATE VIEW plugpull_probe.plugpull_probe_mark AS SELECT 1"}, "view plugpull_probe.plugpull_probe_mark"},
		"function":       {[]string{mark, "CREATE FUNCTION plugpull_probe.commit_chunk() RETURNS int LANGUAGE sql AS 'SELECT 1'"}, "function plugpull_probe.commit_chunk()"},
		"type":           {[]string{mark, "CREATE TYPE plugpull_probe.mood AS ENUM ('sad')"}, "type plugpull_probe.mood"},
		"rested on":      {[]string{mark, "CREATE VIEW public.v AS SELECT * FROM plugpull_probe.plugpull_probe_mark"}, "something others rest on"},
	} {
		t.Run(name, func(t *testing.T) {
			s.do(t, append([]string{"CREATE SCHEMA plugpull_probe"}, c.made...)...)
			defer s.do(t, "DROP SCHEMA plugpull_probe CASCADE")
			was := s.everything(t)
			_, err := Run(context.Background(), s.target(t, "super"), Options{Commits: 10})
			var foreign *ForeignError
			require.ErrorAs(t, err, &foreign)
			assert.True(t, usage.Is(err))
			assert.Equal(t, ForeignError{DefaultSchema, c.what}, *foreign)
			assert.Equal(t, was, s.everything(t))
		})
	}
	t.Run("a table that came in the meantime", func(t *testing.T) {
		defer s.do(t, "DROP SCHEMA plugpull_probe CASCADE")
		_, err := Run(context.Background(), s.target(t, "super"), Options{Commits: 10, Around: func(begin bool) {
			if begin {
				s.do(t, "CREATE TABLE plugpull_probe.orders (id int)")
			}
		}})
		var foreign *ForeignError
		require.ErrorAs(t, err, &foreign)
		assert.Contains(t, err.Error(), "could not be removed")
		assert.Contains(t, s.everything(t), "orders")
	})
	t.Run("another role's probe", func(t *testing.T) {
		s.do(t, "SET ROLE other", "CREATE SCHEMA plugpull_probe", mark)
		defer s.do(t, "DROP SCHEMA plugpull_probe CASCADE")
		_, err := Run(context.Background(), s.target(t, "least"), Options{Commits: 10})
		assert.True(t, usage.Is(err))
		assert.ErrorContains(t, err, "left by a probe of another role")
	})
}

// A probe that was killed, or whose server was, leaves something that the next one knows and removes.
func postgresLeftovers(t *testing.T, s pgServer, leavesNothing func(*testing.T)) {
	again := func(t *testing.T) {
		t.Helper()
		_, err := Run(context.Background(), s.target(t, "super"), Options{Commits: 10})
		require.NoError(t, err)
		leavesNothing(t)
	}
	t.Run("kill", func(t *testing.T) {
		kill := startVictim(t, s.dsn("super"))
		require.True(t, pollUntil(func() bool { return s.try("SELECT 1/count(*) FROM plugpull_probe.commits") == nil }))
		target := s.target(t, "super")
		target.limits = limits{time.Second, time.Second, time.Millisecond}
		_, err := Run(context.Background(), target, Options{Commits: 10})
		require.ErrorIs(t, err, ErrBusy, "a probe that lives is left alone")
		kill()
		require.Contains(t, s.everything(t), DefaultSchema)
		again(t)
	})
	t.Run("the server hangs", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		target := s.target(t, "super")
		target.limits = limits{100 * time.Millisecond, time.Second, 100 * time.Millisecond}
		pid := 0
		r, err := Run(ctx, target, Options{Tick: func(Tick) {
			_, err := fmt.Sscan(s.list(t, "SELECT pid::text FROM pg_stat_activity WHERE application_name = 'plugpull probe'")[0], &pid)
			require.NoError(t, err)
			require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
			time.AfterFunc(50*time.Millisecond, cancel) // while a statement waits
		}})
		require.NotZero(t, pid)
		require.NoError(t, syscall.Kill(pid, syscall.SIGCONT))
		require.ErrorIs(t, err, context.Canceled)
		assert.ErrorContains(t, err, `could not be removed; the next probe will do so, or DROP SCHEMA "plugpull_probe" CASCADE in the database postgres`)
		assert.True(t, r.Interrupted)
		assert.Positive(t, r.Commits)
		again(t)
	})
	t.Run("the server dies", func(t *testing.T) {
		killed := false
		r, err := Run(context.Background(), s.target(t, "super"), Options{Tick: func(Tick) {
			if !killed {
				killed = true
				s.End(syscall.SIGQUIT)
			}
		}})
		require.ErrorContains(t, err, "could not be removed")
		assert.False(t, r.Interrupted)
		assert.Positive(t, r.Commits)
		s.Start(t)
		require.Contains(t, s.everything(t), DefaultSchema)
		again(t)
	})
}
