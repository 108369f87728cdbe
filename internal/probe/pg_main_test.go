package probe

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"plugpull/internal/hostcheck/databases/postgres"
	"plugpull/internal/testskip"
)

// pgServer is a throw-away PostgreSQL on a Unix socket that trusts everybody, run by an unprivileged user: it refuses root.
type pgServer struct {
	bin, dir string
	cred     *syscall.Credential // nil: this user
	cmd      *exec.Cmd
	done     chan struct{}
}

func startPostgres(t testing.TB, args ...string) *pgServer {
	t.Helper()
	s := &pgServer{bin: pgBinaries(t), dir: quick(t)}
	if os.Geteuid() == 0 {
		s.cred = pgUser(t)
		require.NoError(t, os.Chown(s.dir, int(s.cred.Uid), int(s.cred.Gid)))
	}
	out, err := s.command("initdb", "-D", s.dir+"/data", "-U", "super", "-A", "trust", "--no-sync", "--no-locale", "-E", "UTF8").CombinedOutput()
	require.NoError(t, err, "%s", out)
	s.start(t, args...)
	t.Cleanup(func() { s.stop(syscall.SIGINT) })
	return s
}

// pgBinaries returns the folder with the newest server's programs: Debian puts them outside PATH.
func pgBinaries(t testing.TB) string {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	require.NoError(t, err)
	if len(found) == 0 {
		return filepath.Dir(testskip.Program(t, "initdb", "postgresql"))
	}
	major := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
		return n
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return major(a) - major(b) }))
}

func pgUser(t testing.TB) *syscall.Credential {
	t.Helper()
	u, err := user.Lookup("postgres")
	if err != nil {
		testskip.Skip(t, "there is no user postgres to run the server as: %v", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	require.NoError(t, err)
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	require.NoError(t, err)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

func (s *pgServer) command(name string, args ...string) *exec.Cmd {
	c := exec.Command(filepath.Join(s.bin, name), args...)
	// SIGQUIT ends a server at once, with its children and its shared memory.
	c.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred, Setpgid: true, Pdeathsig: syscall.SIGQUIT}
	c.Dir = "/"
	return c
}

// start starts the server and waits until it answers.
func (s *pgServer) start(t testing.TB, args ...string) {
	t.Helper()
	log, err := os.OpenFile(s.dir+"/log", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	require.NoError(t, err)
	defer log.Close()
	s.cmd = s.command("postgres", append([]string{"-D", s.dir + "/data", "-k", s.dir, "-c", "listen_addresses=", "-c", "max_connections=20"}, args...)...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	require.NoError(t, s.cmd.Start())
	s.done = make(chan struct{})
	go func(c *exec.Cmd, done chan struct{}) { // ends with the process, which stop waits for
		_ = c.Wait()
		close(done)
	}(s.cmd, s.done)
	require.Eventually(t, func() bool { return s.try("SELECT 1") == nil }, time.Minute, 20*time.Millisecond, "%s/log", s.dir)
}

// stop ends the server: SIGINT in order, SIGQUIT as a crash.
func (s *pgServer) stop(how syscall.Signal) {
	_ = s.cmd.Process.Signal(how)
	select {
	case <-s.done:
	case <-time.After(20 * time.Second):
		_ = s.cmd.Process.Signal(syscall.SIGQUIT)
		<-s.done
	}
}

func (s *pgServer) dsn(role string) string { return "postgres://" + role + "@/postgres?host=" + s.dir }

func (s *pgServer) target(t testing.TB, role string) Postgres {
	t.Helper()
	dsn, err := postgres.ParseDSN(s.dsn(role))
	require.NoError(t, err)
	return Postgres{DSN: dsn}
}

// connected runs f on a connection of the superuser.
func (s *pgServer) connected(f func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, s.dsn("super"))
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	return f(ctx, c)
}

func (s *pgServer) try(statements ...string) error {
	return s.connected(func(ctx context.Context, c *pgx.Conn) error {
		for _, q := range statements {
			if _, err := c.Exec(ctx, q); err != nil {
				return fmt.Errorf("%s: %w", q, err)
			}
		}
		return nil
	})
}

func (s *pgServer) do(t testing.TB, statements ...string) {
	t.Helper()
	require.NoError(t, s.try(statements...))
}

// list returns a query's first column.
func (s *pgServer) list(t testing.TB, q string) (out []string) {
	t.Helper()
	require.NoError(t, s.connected(func(ctx context.Context, c *pgx.Conn) (err error) {
		rows, _ := c.Query(ctx, q)
		out, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	}))
	return out
}

// everything is what a probe could leave in a server.
func (s *pgServer) everything(t testing.TB) []string {
	t.Helper()
	return s.list(t, "SELECT nspname::text FROM pg_namespace WHERE nspname !~ '^pg_(toast_)?temp' UNION ALL SELECT relname::text FROM pg_class WHERE oid >= 16384 UNION ALL SELECT proname::text FROM pg_proc WHERE oid >= 16384 ORDER BY 1")
}

// with sets a setting in the files for as long as f runs.
func (s *pgServer) with(t testing.TB, name, value string, f func()) {
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
