// Package e2e holds the tests of the whole experiment: the real plugpull binary against
// real MariaDB servers that are really killed.
package e2e

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	_ "github.com/go-sql-driver/mysql"

	"plugpull/internal/testserver"
)

// binary is the plugpull that TestMain built; only TestMain sets it.
var binary string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "plugpull-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "plugpull")
	// Outlets' records of tests are none of this machine's.
	if err := os.Setenv("XDG_STATE_HOME", filepath.Join(dir, "state")); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	build := exec.Command("go", "build", "-o", binary, "plugpull/cmd/plugpull")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "e2e: build plugpull: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// limit bounds whatever a test waits for: a test that reaches it has failed.
const limit = time.Minute

// command returns a plugpull that is not started yet. It is killed when the
// test ends or this process dies. env comes after the environment, from which
// PLUGPULL_DSN has been removed.
func command(t testing.TB, env []string, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.Command(binary, args...)
	c.Env = append(c.Environ(), "PLUGPULL_DSN=")
	c.Env = append(c.Env, env...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	t.Cleanup(func() {
		if c.Process != nil && c.ProcessState == nil {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	})
	return c
}

// plugpull runs the binary to its end and returns what it said. It fails the test when
// that takes longer than limit.
func plugpull(t testing.TB, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	p := start(t, env, args...)
	code = p.wait(t)
	return p.out.String(), p.err.String(), code
}

// proc is a running plugpull.
type proc struct {
	cmd      *exec.Cmd
	out, err bytes.Buffer // complete once wait has returned
	ended    chan struct{}
}

// start starts the binary.
func start(t testing.TB, env []string, args ...string) *proc {
	t.Helper()
	return startCommand(t, command(t, env, args...))
}

// startCommand starts a command that command returned.
func startCommand(t testing.TB, c *exec.Cmd) *proc {
	t.Helper()
	p := &proc{cmd: c, ended: make(chan struct{})}
	c.Stdout, c.Stderr = &p.out, &p.err
	require.NoError(t, c.Start())
	go func() {
		_ = c.Wait() // the code is in ProcessState
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = c.Process.Kill()
		<-p.ended
	})
	return p
}

// wait blocks until the process has ended and returns its exit code, −1 when a signal ended it.
func (p *proc) wait(t testing.TB) int {
	t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // prints what it waits for
		<-p.ended
		t.Fatalf("%v did not end within %v:\n%s\n%s", p.cmd.Args, limit, &p.out, &p.err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// The user that plugpull connects as: with the privileges that --help names and no others.
const (
	user     = "plugpull"
	password = "s3cret-of-the-test"
	grant    = "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP ON plugpull.* TO 'plugpull'@'%'"
)

// server starts a MariaDB that ends with the test and has the user. It skips
// where there is no MariaDB.
func server(t testing.TB, args ...string) *testserver.Server {
	t.Helper()
	return serverWith(t, testserver.Options{Args: args})
}

// serverWith is server with further options; Init is added to.
func serverWith(t testing.TB, opts testserver.Options) *testserver.Server {
	t.Helper()
	testserver.NeedMariaDB(t)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	opts.Dir = memoryDir(t)
	opts.Init = append([]string{"CREATE USER IF NOT EXISTS 'plugpull'@'%' IDENTIFIED BY '" + password + "'", grant}, opts.Init...)
	s, err := testserver.Start(ctx, opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// memoryDir is a folder in memory for a server that will be killed: there InnoDB maps its log, which
// spares it the race of its log writer (testserver says which). Without room it is a plain one.
func memoryDir(t testing.TB) string {
	t.Helper()
	const memory, room = "/dev/shm", 2 << 30
	var st syscall.Statfs_t
	if err := syscall.Statfs(memory, &st); err != nil || st.Bavail*uint64(st.Bsize) < room {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(memory, "plugpull-e2e-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// dsn is a server's DSN without the password.
func dsn(s *testserver.Server, schema string) string {
	return "mysql://" + user + "@" + s.Addr() + "/" + schema
}

// dsnEnv is the environment that holds the whole DSN of the schema plugpull.
func dsnEnv(s *testserver.Server) []string {
	return []string{"PLUGPULL_DSN=mysql://" + user + ":" + password + "@" + s.Addr() + "/plugpull"}
}

// root opens a pool of connections as the server's root, to the schema plugpull.
func root(t testing.TB, s *testserver.Server) *sql.DB {
	t.Helper()
	return rootAt(t, s, "plugpull")
}

// rootAt is root with another schema, or none.
func rootAt(t testing.TB, s *testserver.Server, schema string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", "root@unix("+s.Socket()+")/"+schema)
	require.NoError(t, err)
	db.SetMaxIdleConns(-1) // none that a killed server leaves behind
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// restart kills a server and starts it again.
func restart(t testing.TB, s *testserver.Server, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	require.NoError(t, s.Restart(ctx, args...))
}

// await polls until ok, every 5 ms.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited %v for %s", limit, what)
		}
	}
}

// awaitSize blocks until a file has at least size bytes: a ledger that has grown shows
// that commits are under way.
func awaitSize(t testing.TB, path string, size int64) {
	t.Helper()
	await(t, fmt.Sprintf("%s to reach %d bytes", path, size), func() bool {
		st, err := os.Stat(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return err == nil && st.Size() >= size
	})
}
