// Package pgserver starts throw-away PostgreSQL servers for tests, run by an unprivileged user since PostgreSQL refuses
// root.
//
// It guarantees that a server, its children and its files end with the test, and the processes also with the process
// that runs it.
package pgserver

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/url"
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

// The superuser, and its password where the server asks for one.
const (
	Super    = "super"
	Password = "sup3r"
)

// Server is a server on a Unix socket, and on a TCP port where Start was told so.
type Server struct {
	Dir  string // of the socket, the data and the log
	Port uint16 // of the socket's name and of TCP; 0: the default. It counts from the next Start on.

	bin  string
	cred *syscall.Credential // nil: this user
	cmd  *exec.Cmd
	done chan struct{}
}

// New makes a server in a folder below parent ("": the system's temporary one), and starts it. It lets in whom
// anybody says to be with trust, else by password. Its data is copied from a template, since making it takes
// seconds. A test without PostgreSQL, or without a user to run it as, is skipped.
func New(t testing.TB, parent string, trust bool, args ...string) *Server {
	t.Helper()
	s := &Server{bin: binaries(t)}
	if os.Geteuid() == 0 {
		s.cred = unprivileged(t)
	}
	template := s.template(t)
	dir, err := os.MkdirTemp(parent, "plugpull-pg-")
	require.NoError(t, err)
	s.Dir = dir
	t.Cleanup(func() {
		s.Stop()
		require.NoError(t, os.RemoveAll(dir))
	})
	s.Own(t, dir)
	s.run(t, "cp", "-a", template, s.Data())
	if trust {
		require.NoError(t, os.WriteFile(filepath.Join(s.Data(), "pg_hba.conf"), []byte("local all all trust\nhost all all samehost trust\n"), 0o600))
	}
	s.Start(t, args...)
	return s
}

// Data is the data folder.
func (s *Server) Data() string { return filepath.Join(s.Dir, "data") }

// binaries returns the folder with the newest server's programs: Debian puts them outside PATH.
func binaries(t testing.TB) string {
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

// Program returns the path of one of PostgreSQL's programs.
func (s *Server) Program(name string) string { return filepath.Join(s.bin, name) }

func unprivileged(t testing.TB) *syscall.Credential {
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

func (s *Server) uid() int {
	if s.cred != nil {
		return int(s.cred.Uid)
	}
	return os.Getuid()
}

// Own gives a file to the server's user.
func (s *Server) Own(t testing.TB, path string) {
	t.Helper()
	if s.cred != nil {
		require.NoError(t, os.Chown(path, int(s.cred.Uid), int(s.cred.Gid)))
	}
}

// Command is a program that runs as the server's user and ends with this process.
func (s *Server) Command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	// SIGQUIT ends a server at once, with its children and its shared memory.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred, Setpgid: true, Pdeathsig: syscall.SIGQUIT}
	cmd.Dir = "/"
	return cmd
}

func (s *Server) run(t testing.TB, name string, args ...string) {
	t.Helper()
	out, err := s.Command(name, args...).CombinedOutput()
	require.NoError(t, err, "%s: %s", name, out)
}

// template returns a folder that initdb made, kept in the system's temporary folder for each version and user.
func (s *Server) template(t testing.TB) string {
	t.Helper()
	version, err := exec.Command(s.Program("postgres"), "--version").Output()
	require.NoError(t, err)
	sum := sha256.Sum256(append(version, Password...))
	final := filepath.Join(os.TempDir(), fmt.Sprintf("plugpull-pg-template-%x-%d", sum[:6], s.uid()))
	if st, err := os.Lstat(final); err == nil {
		sys := st.Sys().(*syscall.Stat_t)
		require.True(t, st.IsDir() && int(sys.Uid) == s.uid() && st.Mode().Perm() == 0o700, "%s is not a private folder of the server's user: remove it", final)
		return final
	}
	work, err := os.MkdirTemp("", "plugpull-pg-template-")
	require.NoError(t, err)
	defer os.RemoveAll(work)
	s.Own(t, work)
	password := filepath.Join(work, "pw")
	require.NoError(t, os.WriteFile(password, []byte(Password+"\n"), 0o600))
	s.Own(t, password)
	made := filepath.Join(work, "data")
	s.run(t, s.Program("initdb"), "-D", made, "-U", Super, "-A", "scram-sha-256", "--pwfile="+password, "--no-sync", "--no-locale", "-E", "UTF8", "--no-instructions")
	if err := os.Rename(made, final); err != nil {
		_, there := os.Lstat(final) // another process was first: its template is as good
		require.NoError(t, there, "%v", err)
	}
	return final
}

// Start starts the server, which does not run, and waits until it answers.
func (s *Server) Start(t testing.TB, args ...string) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(s.Dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	require.NoError(t, err)
	defer log.Close()
	own := []string{"-D", s.Data(), "-k", s.Dir, "-c", "listen_addresses=", "-c", "shared_buffers=16MB", "-c", "max_connections=20"}
	if s.Port != 0 {
		own = append(own, "-p", strconv.Itoa(int(s.Port)))
	}
	s.cmd = s.Command(s.Program("postgres"), append(own, args...)...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	require.NoError(t, s.cmd.Start())
	s.done = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) { // ends with the process, which Stop waits for
		_ = cmd.Wait()
		close(done)
	}(s.cmd, s.done)
	s.await(t)
}

// await waits until the server answers, and fails the test when it ends or a minute has passed.
func (s *Server) await(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := s.ping(ctx)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-s.done:
			require.NoError(t, err, "the server has ended: %s", s.Log())
		case <-ctx.Done():
			require.NoError(t, err, s.Log())
		}
	}
}

func (s *Server) ping(ctx context.Context) error {
	c, err := pgx.Connect(ctx, s.URL(Super, Password))
	if err != nil {
		return err
	}
	return c.Close(ctx)
}

// URL is a user's DSN over the socket, to the database postgres. Without a password it has none.
func (s *Server) URL(role, password string) string {
	u := url.URL{Scheme: "postgres", User: url.User(role), Path: "/postgres", RawQuery: url.Values{"host": {s.Dir}}.Encode()}
	if password != "" {
		u.User = url.UserPassword(role, password)
	}
	if s.Port != 0 {
		u.Host = fmt.Sprintf(":%d", s.Port)
	}
	return u.String()
}

// Log is what the server has written.
func (s *Server) Log() string {
	b, err := os.ReadFile(filepath.Join(s.Dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// PID is of the server's first process.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Stop shuts the server down, if it runs, and waits for its end.
func (s *Server) Stop() { s.End(syscall.SIGINT) }

// End ends the server, if it runs, by a signal: SIGINT in order, SIGQUIT as a crash. It waits for its end.
func (s *Server) End(how syscall.Signal) {
	if s.cmd == nil || s.cmd.Process == nil {
		return
	}
	_ = s.cmd.Process.Signal(how) // it may have ended
	select {
	case <-s.done:
	case <-time.After(20 * time.Second):
		_ = s.cmd.Process.Signal(syscall.SIGQUIT)
		<-s.done
	}
	s.cmd = nil
}
