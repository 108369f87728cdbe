package mysqld

import (
	"context"
	"database/sql"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func query(t *testing.T, s *Server, statements ...string) {
	t.Helper()
	db, err := sql.Open("mysql", "root@tcp("+s.Addr()+")/")
	require.NoError(t, err)
	defer db.Close()
	for _, stmt := range statements {
		_, err := db.ExecContext(limited(t), stmt)
		require.NoError(t, err, stmt)
	}
}

func value(t *testing.T, s *Server, q string) (v string) {
	t.Helper()
	db, err := sql.Open("mysql", "root@unix("+s.Socket()+")/")
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.QueryRowContext(limited(t), q).Scan(&v), q)
	return v
}

func TestKilledServerRecovers(t *testing.T) {
	c := config(t)
	c.Settings = map[string]string{"innodb_flush_log_at_trx_commit": "1", "max-connections": "77"}
	c.Init = []string{"CREATE DATABASE IF NOT EXISTS made_at_start", "SET GLOBAL max_connect_errors=9"}
	s := place(t, c)
	p := start(t, s)
	assert.False(t, p.Recovered(), "the files were those of an orderly shutdown:\n%s", p.Log(4000))
	assert.Equal(t, "77", value(t, s, "SELECT @@max_connections"))
	assert.Equal(t, "9", value(t, s, "SELECT @@global.max_connect_errors"))
	assert.Equal(t, "1", value(t, s, "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name='made_at_start'"))
	query(t, s, "CREATE TABLE made_at_start.t(a INT PRIMARY KEY)", "INSERT INTO made_at_start.t VALUES(42)")
	_, over := p.End()
	assert.False(t, over)
	kill(t, p)
	<-p.Exited()
	assert.ErrorIs(t, syscall.Kill(p.PID(), 0), syscall.ESRCH)
	end, err := p.Kill(limited(t))
	require.NoError(t, err, "a second kill does nothing")
	assert.Equal(t, End{Cause: ByUs, Code: -1, Signal: syscall.SIGKILL}, end)

	port := s.Port()
	again := start(t, s)
	assert.True(t, again.Recovered(), again.Log(4000))
	assert.Equal(t, port, s.Port())
	assert.Equal(t, "42", value(t, s, "SELECT a FROM made_at_start.t"))
	mark := again.Mark()
	_, err = s.Start(limited(t))
	require.Error(t, err, "one at a time")
	end, err = again.Stop(limited(t))
	require.NoError(t, err)
	assert.Equal(t, End{Cause: ByItself}, end)
	assert.Contains(t, again.LogSince(mark, 4000), "Shutdown complete")
	assert.NotContains(t, again.LogSince(mark, 4000), "ready for connections")
	assert.LessOrEqual(t, len(again.Log(50)), 50)
	assert.Contains(t, p.Log(9000), "ready for connections", "the log before the last is kept")
	assert.False(t, start(t, s).Recovered(), "after an orderly shutdown")
}

func TestSomebodyElsesKillIsNotOurs(t *testing.T) {
	s := place(t, config(t))
	p := start(t, s)
	p.mu.Lock() // it stays unreaped
	require.NoError(t, syscall.Kill(p.PID(), syscall.SIGKILL))
	assert.Eventually(t, p.over, 30*time.Second, time.Millisecond, "a Kill from now on is too late to be its end")
	p.mu.Unlock()
	end, err := p.Kill(limited(t))
	require.NoError(t, err)
	assert.Equal(t, ByOthers, end.Cause)

	p = start(t, s)
	require.NoError(t, p.Signal(syscall.SIGSTOP))
	require.NoError(t, p.Signal(syscall.SIGABRT))
	require.NoError(t, p.Signal(syscall.SIGCONT))
	<-p.Exited()
	end, _ = p.End()
	assert.Equal(t, End{Cause: ByItself, Code: -1, Signal: syscall.SIGABRT}, end)
}

func TestAwaitEndsWithItsContext(t *testing.T) {
	s := place(t, config(t))
	p, err := s.Start(limited(t))
	require.NoError(t, err)
	require.NoError(t, p.Signal(syscall.SIGSTOP))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var se *StartError
	require.ErrorAs(t, p.Await(ctx), &se)
	assert.ErrorIs(t, se, context.Canceled)
	assert.False(t, se.Exited)
	kill(t, p)
	err = p.Await(limited(t))
	require.ErrorAs(t, err, &se)
	assert.Equal(t, End{Cause: ByUs, Code: -1, Signal: syscall.SIGKILL}, se.End)
}

// startError starts a server that does not come up.
func startError(t *testing.T, s *Server) *StartError {
	t.Helper()
	p, err := s.Start(limited(t))
	if err == nil {
		err = p.Await(limited(t))
	}
	var se *StartError
	require.ErrorAs(t, err, &se)
	return se
}

func TestStartErrors(t *testing.T) {
	tests := []struct {
		name    string
		damage  func(t *testing.T, c *Config)
		refused string
		log     string // evidence that a reader wants to see
	}{
		{"an option that the server does not know", func(_ *testing.T, c *Config) {
			c.Settings = map[string]string{"sync_binlog": "1", "no_such_option": "1"}
		}, "no_such_option", "no_such_option"},
		{"a value that InnoDB does not take", func(_ *testing.T, c *Config) {
			c.Settings = map[string]string{"innodb_flush_method": "by_hand"}
		}, "innodb_flush_method", "by_hand"},
		{"no data folder", func(t *testing.T, c *Config) {
			require.NoError(t, os.RemoveAll(c.Datadir))
		}, "", "directory"},
		{"garbage in place of the system tablespace", func(t *testing.T, c *Config) {
			c.Settings = map[string]string{"sync_binlog": "1"}
			st, err := os.Stat(filepath.Join(c.Datadir, "ibdata1"))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(c.Datadir, "ibdata1"), make([]byte, st.Size()), 0o600))
		}, "", "ibdata1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			need(t)
			c := config(t)
			tt.damage(t, &c)
			se := startError(t, place(t, c))
			assert.True(t, se.Exited)
			assert.Equal(t, ByItself, se.End.Cause)
			assert.Equal(t, tt.refused, se.Refused, "%v", se)
			assert.NoError(t, se.Err)
			assert.False(t, se.PortTaken)
			assert.Contains(t, se.Log, tt.log)
		})
	}
}

func TestPortTaken(t *testing.T) {
	in, c := need(t), config(t)
	s := place(t, c)
	// The server sets SO_REUSEADDR as net.Listen does.
	l, err := net.Listen("tcp", s.Addr())
	require.NoError(t, err, "the port is held without listening")
	se := startError(t, s)
	assert.True(t, se.PortTaken)
	assert.False(t, se.Exited, "it was not even started")
	c.Port = s.Port()
	_, err = New(in, c)
	require.ErrorAs(t, err, &se)
	assert.True(t, se.PortTaken)
	require.NoError(t, l.Close())

	p, err := s.Start(limited(t))
	require.NoError(t, err)
	require.NoError(t, p.Signal(syscall.SIGSTOP))
	l, err = net.Listen("tcp", s.Addr())
	require.NoError(t, err)
	defer l.Close()
	require.NoError(t, p.Signal(syscall.SIGCONT))
	require.ErrorAs(t, p.Await(limited(t)), &se, "somebody was faster")
	assert.True(t, se.PortTaken)
	assert.True(t, se.Exited)
	assert.Contains(t, se.Log, strconv.Itoa(s.Port()))
}

func TestConfigIsChecked(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 100))
	require.NoError(t, os.Mkdir(long, 0o700))
	for name, c := range map[string]Config{
		"relative":  {Datadir: "data", Dir: "/tmp"},
		"long":      {Datadir: "/d", Dir: long},
		"two lines": {Datadir: "/d", Dir: "/tmp", Init: []string{"SELECT\n1"}},
		"no IP":     {Datadir: "/d", Dir: "/tmp", Bind: "localhost"},
		"port":      {Datadir: "/d", Dir: "/tmp", Port: 70000},
		"setting":   {Datadir: "/d", Dir: "/tmp", Settings: map[string]string{"datadir": "/x"}},
	} {
		_, err := New(Install{}, c)
		assert.Error(t, err, name)
	}
	assert.Empty(t, list(t, long))
}
