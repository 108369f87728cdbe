package postgres

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/hostcheck"
	"plugpull/internal/hostcheck/databases"
	"plugpull/internal/testserver/pgserver"
)

type levels = map[string]hostcheck.Level

func codes(r *databases.Report) levels {
	m := levels{}
	for _, f := range r.Findings {
		m[f.Code] = f.Level
	}
	return m
}

func check(t *testing.T, d DSN) *databases.Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := Check(ctx, d)
	require.NoError(t, err)
	return r
}

// A server that is reached through something is not taken for one of this machine.
func TestReachedDirectly(t *testing.T) {
	s := startServer(t)
	require.Empty(t, check(t, s.dsn(t, "super", pgserver.Password)).Apart, "over a socket")
	s.leave()
	s.Stop()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	require.NoError(t, l.Close())
	s.Port = uint16(port)
	s.Start(t, "-c", "listen_addresses=127.0.0.1")

	d := s.dsn(t, "super", pgserver.Password)
	d.Host = "127.0.0.1"
	require.Empty(t, check(t, d).Apart)
	d.Port = tunnel(t, port)
	require.Equal(t, databases.NotDirect, check(t, d).Apart)
}

// tunnel passes the connections to a port of its own on to another one.
func tunnel(t *testing.T, to int) uint16 {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var all sync.WaitGroup
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		all.Wait()
	})
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return // closed
			}
			out, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(to)))
			if err != nil {
				_ = in.Close()
				continue
			}
			pass := func(to, from net.Conn) {
				_, _ = io.Copy(to, from)
				_, _ = in.Close(), out.Close()
			}
			all.Go(func() { pass(in, out) })
			all.Go(func() { pass(out, in) })
		}
	})
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

// Every dangerous setting is planted in turn in a real server, and asked for with the least privileges; the
// clean twin has none.
func TestRealServer(t *testing.T) {
	s := startServer(t)
	s.do(t, "postgres", "CREATE ROLE low LOGIN PASSWORD 'pw' IN ROLE pg_read_all_settings", "CREATE ROLE nobody LOGIN PASSWORD 'pw'",
		"CREATE ROLE app", "CREATE DATABASE shop", "CREATE TABLE kept (i int)")
	// What the environment says of sessions must not stand before the server's own values.
	t.Setenv("PGOPTIONS", "-c synchronous_commit=off -c zero_damaged_pages=on")
	low := s.dsn(t, "low", "pw")

	r := check(t, low)
	require.Empty(t, r.Findings, "the clean twin")
	assert.Equal(t, databases.Postgres, r.Kind)
	assert.NotContains(t, r.Where, "pw")
	assert.Equal(t, []databases.Folder{{Path: s.Data(), What: "data", From: "data_directory", Pages: true}, {Path: filepath.Join(s.Data(), "pg_wal"), What: "WAL, often a link", From: "data_directory"}}, r.Folders)
	assert.Contains(t, r.Facts, hostcheck.Fact{Key: "pg_is_in_recovery", Value: "false", From: "pg_is_in_recovery()"})

	t.Run("settings", func(t *testing.T) { plantSettings(t, s, low) })
	t.Run("overrides", func(t *testing.T) { plantOverrides(t, s, low) })
	t.Run("tables", func(t *testing.T) { plantTables(t, s, low) })
	t.Run("privileges", func(t *testing.T) { privileges(t, s) })
	t.Run("waiting in the files", func(t *testing.T) { plantWaiting(t, s, low) })
	t.Run("at the start", func(t *testing.T) { plantStart(t, s, low) })
}

func plantSettings(t *testing.T, s *server, low DSN) {
	for name, p := range map[string]struct {
		bad, good string
		level     hostcheck.Level
	}{
		"fsync":                   {"off", "on", hostcheck.Critical},
		"synchronous_commit":      {"off", "on", hostcheck.Critical},
		"full_page_writes":        {"off", "on", hostcheck.Critical},
		"zero_damaged_pages":      {"on", "off", hostcheck.Critical},
		"ignore_checksum_failure": {"on", "off", hostcheck.Warning},
	} {
		t.Run(name, func(t *testing.T) {
			s.set(t, name, p.bad)
			defer s.reset(t, name, p.good)
			r := check(t, low)
			require.Equal(t, levels{"postgres_" + name: p.level}, codes(r))
			assert.Contains(t, r.Findings[0].Text, "postgresql.auto.conf", "it says where it is set")
			assert.Contains(t, r.Findings[0].Text, "; safe: "+p.good)
		})
	}
	t.Run("remote_write", func(t *testing.T) {
		s.set(t, "synchronous_commit", "remote_write")
		defer s.reset(t, "synchronous_commit", "on")
		assert.Empty(t, check(t, low).Findings, "it flushes here, whatever the standbys do")
	})
	t.Run("the window", func(t *testing.T) {
		s.set(t, "wal_writer_delay", "50ms")
		s.set(t, "synchronous_commit", "off")
		defer s.reset(t, "wal_writer_delay", "200ms")
		defer s.reset(t, "synchronous_commit", "on")
		assert.Contains(t, check(t, low).Findings[0].Text, "150ms")
	})
}

func plantOverrides(t *testing.T, s *server, low DSN) {
	const c, w, u = hostcheck.Critical, hostcheck.Warning, hostcheck.Unknown
	const override = "postgres_override_synchronous_commit"
	for name, p := range map[string]struct {
		whom, value string
		want        levels
		says        string
	}{
		"a role":            {"ROLE app", "off", levels{override: w}, "for role app"},
		"a role, written 0": {"ROLE app", "'0'", levels{override: w}, "for role app"},
		"a database":        {"DATABASE shop", "off", levels{override: w}, "for database shop"},
		"both":              {"ROLE app IN DATABASE shop", "no", levels{override: w}, "for role app in database shop"},
		"all roles":         {"ROLE ALL", "off", levels{override: c, "postgres_synchronous_commit": c}, "set for all roles"},
		"this login":        {"ROLE low", "on", levels{"postgres_server_value_hidden": u}, "another login"},
		"harmless":          {"ROLE app", "local", levels{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s.do(t, "postgres", "ALTER "+p.whom+" SET synchronous_commit = "+p.value)
			defer s.do(t, "postgres", "ALTER "+p.whom+" RESET synchronous_commit")
			r := check(t, low)
			require.Equal(t, p.want, codes(r))
			if len(p.want) > 0 {
				assert.Contains(t, r.Findings[0].Text, p.says)
			}
		})
	}
}

func plantTables(t *testing.T, s *server, low DSN) {
	space := filepath.Join(s.Dir, "space")
	require.NoError(t, os.Mkdir(space, 0o700))
	s.Own(t, space)
	s.do(t, "shop", "CREATE UNLOGGED TABLE cart (i int)", "CREATE TEMP TABLE own (i int)")
	s.do(t, "postgres", "CREATE TABLESPACE fast LOCATION '"+space+"'")
	r := check(t, low)
	require.Equal(t, levels{"postgres_unlogged_tables": hostcheck.Warning}, codes(r))
	assert.Contains(t, r.Findings[0].Text, "database shop has UNLOGGED tables (public.cart)")
	assert.Contains(t, r.Folders, databases.Folder{Path: space, What: "tablespace fast", From: "pg_tablespace_location", Pages: true})

	s.do(t, "shop", "REVOKE CONNECT ON DATABASE shop FROM PUBLIC")
	r = check(t, low)
	require.Equal(t, levels{"postgres_database_not_read": hostcheck.Unknown}, codes(r), "no longer seen, and not taken for none")
	assert.Contains(t, r.Findings[0].Text, "shop")
	s.do(t, "shop", "GRANT CONNECT ON DATABASE shop TO PUBLIC", "ALTER TABLE cart SET LOGGED")
	s.do(t, "postgres", "DROP TABLESPACE fast", "CREATE DATABASE form IS_TEMPLATE true")
	s.do(t, "form", "CREATE UNLOGGED TABLE cart (i int)")
	assert.Empty(t, check(t, low).Findings, "a template is not entered")
}

// privileges: with none, the folders are unknown, and the settings are judged all the same.
func privileges(t *testing.T, s *server) {
	s.set(t, "fsync", "off")
	defer s.reset(t, "fsync", "on")
	nobody := s.dsn(t, "nobody", "pw")
	assert.Equal(t, levels{"postgres_folders_not_known": hostcheck.Unknown, "postgres_fsync": hostcheck.Critical}, codes(check(t, nobody)))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, user := range []string{"low", "nobody"} {
		assert.ErrorContains(t, try(ctx, s.dsn(t, user, "pw"), "SELECT * FROM kept"), "permission denied", "%s reads rows", user)
	}

	_, err := Check(ctx, s.dsn(t, "low", "wr0ng"))
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "wr0ng")
	cancel()
	_, err = Check(ctx, nobody)
	assert.ErrorIs(t, err, context.Canceled)
}

// plantWaiting: settings that the files have and the server not yet.
func plantWaiting(t *testing.T, s *server, low DSN) {
	super := s.dsn(t, "super", pgserver.Password)
	s.do(t, "postgres", "ALTER SYSTEM SET full_page_writes = off")
	assert.Empty(t, check(t, low).Findings, "this login cannot see the files")
	r := check(t, super)
	require.Equal(t, levels{"postgres_pending_reload": hostcheck.Warning}, codes(r))
	assert.Contains(t, r.Findings[0].Text, "full_page_writes is off in "+s.Data())
	s.do(t, "postgres", "ALTER SYSTEM RESET full_page_writes", "ALTER SYSTEM SET data_sync_retry = on", "SELECT pg_reload_conf()")
	s.awaitTrue(t, "(SELECT pending_restart FROM pg_settings WHERE name = 'data_sync_retry')")
	assert.Equal(t, levels{"postgres_pending_restart": hostcheck.Unknown}, codes(check(t, low)), "that it waits is seen, and for what is not")
	assert.Equal(t, levels{"postgres_pending_restart": hostcheck.Warning}, codes(check(t, super)))
	s.do(t, "postgres", "GRANT SELECT ON pg_file_settings TO low", "GRANT EXECUTE ON FUNCTION pg_show_all_file_settings() TO low")
	assert.Equal(t, levels{"postgres_pending_restart": hostcheck.Warning}, codes(check(t, low)), "with the grants of the package's comment")
	s.do(t, "postgres", "ALTER SYSTEM RESET data_sync_retry")
}

func plantStart(t *testing.T, s *server, low DSN) {
	s.restart(t, "-c", "data_sync_retry=on", "-c", "ignore_invalid_pages=on")
	assert.Equal(t, levels{"postgres_data_sync_retry": hostcheck.Warning, "postgres_ignore_invalid_pages": hostcheck.Critical}, codes(check(t, low)))

	signal := filepath.Join(s.Data(), "standby.signal")
	require.NoError(t, os.WriteFile(signal, nil, 0o600))
	s.Own(t, signal)
	s.restart(t)
	r := check(t, low)
	assert.Empty(t, r.Findings)
	assert.Contains(t, r.Facts, hostcheck.Fact{Key: "pg_is_in_recovery", Value: "true", From: "pg_is_in_recovery()"})

	require.NoError(t, os.Remove(signal))
	s.restart(t, "-c", "wal_level=minimal", "-c", "max_wal_senders=0", "-c", "wal_sync_method=open_datasync", "-c", "commit_delay=1000")
	assert.Empty(t, check(t, low).Findings, "none of these loses anything")
}
