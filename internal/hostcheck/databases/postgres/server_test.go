package postgres

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
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

	"plugpull/internal/testskip"
)

// server is a throw-away PostgreSQL on a Unix socket, run by an unprivileged user: it refuses root.
type server struct {
	bin, dir string
	cred     *syscall.Credential // nil: this user
	cmd      *exec.Cmd
	done     chan struct{}
	port     uint16    // 0: the default
	super    *pgx.Conn // of the superuser to the database postgres; nil until it is needed
}

const superPassword = "sup3r"

// startServer starts a server with its data copied from a template, since making it takes seconds. It ends with the
// test, and with the process that runs it.
func startServer(t *testing.T, args ...string) *server {
	t.Helper()
	s := &server{bin: binaries(t)}
	if os.Geteuid() == 0 {
		s.cred = unprivileged(t)
	}
	template := s.template(t)
	dir, err := os.MkdirTemp("", "plugpull-pg-")
	require.NoError(t, err)
	s.dir = dir
	t.Cleanup(func() {
		s.stop(t)
		require.NoError(t, os.RemoveAll(dir))
	})
	s.own(t, dir)
	s.run(t, "cp", "-a", template, s.data())
	s.start(t, args...)
	return s
}

// binaries returns the folder with the newest server's programs: Debian puts them outside PATH.
func binaries(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	require.NoError(t, err)
	slices.SortFunc(found, func(a, b string) int { return major(a) - major(b) })
	if len(found) == 0 {
		return filepath.Dir(testskip.Program(t, "initdb", "postgresql"))
	}
	return filepath.Dir(found[len(found)-1])
}

func major(path string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	return n
}

func unprivileged(t *testing.T) *syscall.Credential {
	t.Helper()
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		require.NoError(t, err)
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		require.NoError(t, err)
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	testskip.Skip(t, "there is neither a user postgres nor nobody to run the server as")
	return nil
}

func (s *server) uid() int {
	if s.cred != nil {
		return int(s.cred.Uid)
	}
	return os.Getuid()
}

func (s *server) own(t *testing.T, path string) {
	t.Helper()
	if s.cred != nil {
		require.NoError(t, os.Chown(path, int(s.cred.Uid), int(s.cred.Gid)))
	}
}

func (s *server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	// SIGQUIT ends a server at once, with its children and its shared memory.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred, Setpgid: true, Pdeathsig: syscall.SIGQUIT}
	cmd.Dir = "/"
	return cmd
}

func (s *server) run(t *testing.T, name string, args ...string) {
	t.Helper()
	out, err := s.command(name, args...).CombinedOutput()
	require.NoError(t, err, "%s: %s", name, out)
}

// template returns a folder that initdb made, kept in the system's temporary folder for each version and user.
func (s *server) template(t *testing.T) string {
	t.Helper()
	version, err := exec.Command(filepath.Join(s.bin, "postgres"), "--version").Output()
	require.NoError(t, err)
	sum := sha256.Sum256(append(version, superPassword...))
	final := filepath.Join(os.TempDir(), fmt.Sprintf("plugpull-pg-template-%x-%d", sum[:6], s.uid()))
	if st, err := os.Lstat(final); err == nil {
		sys := st.Sys().(*syscall.Stat_t)
		require.True(t, st.IsDir() && int(sys.Uid) == s.uid() && st.Mode().Perm() == 0o700, "%s is not a private folder of the server's user: remove it", final)
		return final
	}
	work, err := os.MkdirTemp("", "plugpull-pg-template-")
	require.NoError(t, err)
	defer os.RemoveAll(work)
	s.own(t, work)
	password := filepath.Join(work, "pw")
	require.NoError(t, os.WriteFile(password, []byte(superPassword+"\n"), 0o600))
	s.own(t, password)
	made := filepath.Join(work, "data")
	s.run(t, filepath.Join(s.bin, "initdb"), "-D", made, "-U", "super", "-A", "scram-sha-256", "--pwfile="+password, "--no-sync", "--no-locale", "-E", "UTF8", "--no-instructions")
	if err := os.Rename(made, final); err != nil {
		_, there := os.Lstat(final) // another process was first: its template is as good
		require.NoError(t, there, "%v", err)
	}
	return final
}

func (s *server) data() string { return filepath.Join(s.dir, "data") }

// start starts the server and waits until it answers.
func (s *server) start(t *testing.T, args ...string) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	require.NoError(t, err)
	defer log.Close()
	args = append([]string{"-D", s.data(), "-k", s.dir, "-c", "listen_addresses=", "-c", "shared_buffers=16MB", "-c", "max_connections=20"}, args...)
	s.cmd = s.command(filepath.Join(s.bin, "postgres"), args...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	require.NoError(t, s.cmd.Start())
	s.done = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) { // ends with the process, which stop waits for
		_ = cmd.Wait()
		close(done)
	}(s.cmd, s.done)
	s.await(t, func(ctx context.Context) error { return try(ctx, s.dsn(t, "super", superPassword), "SELECT 1") })
}

// await tries f until it succeeds, the server ends, or a minute has passed.
func (s *server) await(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f(ctx)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-s.done:
			require.NoError(t, errors.Join(errors.New("the server has ended"), err), s.log())
		case <-ctx.Done():
			require.NoError(t, err, s.log())
		}
	}
}

func (s *server) log() string {
	b, err := os.ReadFile(filepath.Join(s.dir, "log"))
	return fmt.Sprint(string(b), err)
}

// stop shuts the server down and waits for its end.
func (s *server) stop(t *testing.T) {
	t.Helper()
	if s.cmd == nil || s.cmd.Process == nil {
		return
	}
	if s.super != nil {
		closeConn(s.super)
		s.super = nil
	}
	if err := s.cmd.Process.Signal(syscall.SIGINT); err != nil {
		require.ErrorIs(t, err, os.ErrProcessDone)
	}
	select {
	case <-s.done:
	case <-time.After(20 * time.Second):
		_ = s.cmd.Process.Signal(syscall.SIGQUIT)
		<-s.done
	}
	s.cmd = nil
}

func (s *server) restart(t *testing.T, args ...string) {
	t.Helper()
	s.stop(t)
	s.start(t, args...)
}

func (s *server) dsn(t *testing.T, user, password string) DSN {
	t.Helper()
	d, err := ParseDSN("postgres://" + user + "@/?host=" + s.dir)
	require.NoError(t, err)
	d.Port = cmp.Or(s.port, d.Port)
	d.SetPassword(password)
	return d
}

// do executes statements as the superuser, each by itself.
func (s *server) do(t *testing.T, database string, statements ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := s.super
	if c == nil || database != "postgres" {
		d := s.dsn(t, "super", superPassword)
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
