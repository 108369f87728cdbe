// Package testserver starts throw-away MariaDB servers for tests and for the
// demonstration.
//
// It guarantees that a server listens only where it was told to, keeps its data
// in a folder of its own, reads no option file of the machine, and dies with
// the process that started it. It is not for data that anyone wants to keep.
package testserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Limits of starting and stopping a server.
const (
	startLimit = 60 * time.Second
	pollEvery  = 20 * time.Millisecond
	portTries  = 5
)

// Options say how to start a server. The zero value is a server on 127.0.0.1
// with a free port and its data in a temporary folder.
type Options struct {
	Dir    string   // where the server's folder is made; empty: the system's temporary folder
	Bind   string   // IP address to listen on; empty: 127.0.0.1
	Port   int      // zero: a free one
	Args   []string // further options of mariadbd; they come last and so win
	Prefix []string // command put before mariadbd; it must exec it, as "ip netns exec NAME" does
	Init   []string // SQL statements executed at every start, before the greeting
}

// Server is a running or stopped server. Its methods may not be called
// concurrently, except Addr, Port, Socket, Datadir and Log.
type Server struct {
	opts Options
	dir  string
	port int
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has been waited for

	mu sync.Mutex // guards ex
	ex error      // how the process ended
}

// ErrNotInstalled says that there is no MariaDB server on this machine.
var ErrNotInstalled = errors.New("mariadbd and mariadb-install-db are not installed (Debian: apt-get install mariadb-server-core mariadb-client)")

// Start starts a server and blocks until it greets, for up to a minute. The
// caller must call Close. The user root has no password on it.
func Start(ctx context.Context, opts Options) (*Server, error) {
	template, err := template(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(opts.Dir, "plugpull-db-")
	if err != nil {
		return nil, fmt.Errorf("make the server's folder: %w", err)
	}
	if opts.Bind == "" {
		opts.Bind = "127.0.0.1"
	}
	s := &Server{opts: opts, dir: dir, port: opts.Port}
	if err := s.setUp(ctx, template); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

func (s *Server) setUp(ctx context.Context, template string) error {
	if err := os.CopyFS(s.Datadir(), os.DirFS(template)); err != nil {
		return fmt.Errorf("copy the data template: %w", err)
	}
	var init strings.Builder
	for _, stmt := range s.opts.Init {
		init.WriteString(stmt + ";\n")
	}
	if err := os.WriteFile(s.initFile(), []byte(init.String()), 0o600); err != nil {
		return fmt.Errorf("write the init file: %w", err)
	}
	for try := 1; ; try++ {
		if s.opts.Port == 0 {
			port, err := freePort(s.opts.Bind)
			if err != nil {
				return err
			}
			s.port = port
		}
		err := s.launch(ctx)
		if err == nil || s.opts.Port != 0 || try == portTries || !taken(s.opts.Bind, s.port) {
			return err
		}
	}
}

// freePort asks the kernel for a free port. With an address that is not of
// this network namespace it asks on the loopback address.
func freePort(bind string) (int, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(bind, "0"))
	if err != nil {
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return 0, fmt.Errorf("find a free port: %w", err)
		}
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}

func taken(bind string, port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort(bind, strconv.Itoa(port)))
	if err != nil {
		return errors.Is(err, syscall.EADDRINUSE)
	}
	_ = l.Close()
	return false
}

func (s *Server) args() []string {
	args := append([]string{}, s.opts.Prefix...)
	args = append(args, "mariadbd", "--no-defaults",
		// A tmpdir of its own: a server removes the temporary tables of others when it starts.
		"--datadir="+s.Datadir(), "--tmpdir="+s.dir, "--socket="+s.Socket(), "--pid-file="+filepath.Join(s.dir, "pid"),
		"--bind-address="+s.opts.Bind, "--port="+strconv.Itoa(s.port), "--init-file="+s.initFile(),
		// Synchronous I/O: what the kernel does with the requests of a process that was killed is
		// not what these tests are about.
		"--innodb-use-native-aio=OFF",
		// 10.11.19 writes a redo log block from a buffer that other connections are still filling, so
		// that a kill may leave old records behind the log's end, and recovery applies them
		// again. Through the page cache a write is too short for that, nearly always.
		"--loose-innodb-log-file-buffering=ON",
		"--innodb-log-file-size="+templateLogSize, "--innodb-buffer-pool-size=32M", "--key-buffer-size=1M",
		"--aria-pagecache-buffer-size=1M", "--performance-schema=OFF", "--skip-name-resolve",
		"--innodb-buffer-pool-dump-at-shutdown=OFF", "--innodb-buffer-pool-load-at-startup=OFF",
		"--table-open-cache=200", "--max-connections=300")
	args = append(args, asRoot()...)
	return append(args, s.opts.Args...)
}

// launch starts the process and waits for its greeting on its own socket: it
// is there after the TCP port, and no other server can answer on it.
func (s *Server) launch(ctx context.Context) error {
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open the server's log: %w", err)
	}
	defer log.Close()
	args := s.args()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	// Its own process group, so that Ctrl-C on a terminal does not reach it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := cmd.Start(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return fmt.Errorf("%w: %w", ErrNotInstalled, err)
		}
		return fmt.Errorf("start mariadbd: %w", err)
	}
	done := make(chan struct{})
	s.cmd, s.done = cmd, done
	go func() { // ends with the process; Kill and Stop wait for it
		err := cmd.Wait()
		s.mu.Lock()
		s.ex = err
		s.mu.Unlock()
		close(done)
	}()
	if err := s.awaitGreeting(ctx); err != nil {
		_ = s.Kill()
		return fmt.Errorf("%w; the end of its log:\n%s", err, s.Log(2000))
	}
	return nil
}

func (s *Server) awaitGreeting(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.done:
			return fmt.Errorf("mariadbd ended before it greeted: %w", s.exit())
		case <-ctx.Done():
			return fmt.Errorf("wait for mariadbd's greeting: %w", ctx.Err())
		case <-tick.C:
			if greets(ctx, s.Socket()) {
				return nil
			}
		}
	}
}

// greets reports whether the first packet of the server is a handshake of
// protocol 10 rather than an error.
func greets(ctx context.Context, socket string) bool {
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	var head [5]byte
	_, err = io.ReadFull(c, head[:])
	return err == nil && head[4] == 10
}

func (s *Server) exit() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ex == nil {
		return errors.New("exit status 0")
	}
	return s.ex
}

// Kill ends the server with SIGKILL and blocks until it is gone. It does
// nothing when the server does not run.
func (s *Server) Kill() error {
	if err := s.signal(syscall.SIGKILL); err != nil {
		return err
	}
	if s.done != nil {
		<-s.done
	}
	return nil
}

// Stop asks the server to shut down in order and blocks until it has or ctx
// ends.
func (s *Server) Stop(ctx context.Context) error {
	if err := s.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for mariadbd to shut down: %w", ctx.Err())
	}
}

// Signal sends a signal to the server, for instance SIGSTOP. It does nothing
// when the server does not run.
func (s *Server) Signal(sig syscall.Signal) error { return s.signal(sig) }

func (s *Server) signal(sig syscall.Signal) error {
	if s.cmd == nil || s.cmd.Process == nil {
		return nil
	}
	if err := s.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %v to mariadbd: %w", sig, err)
	}
	return nil
}

// Restart kills the server if it runs and starts it again on the same data,
// port and socket, with args in place of Options.Args if there are any.
func (s *Server) Restart(ctx context.Context, args ...string) error {
	if err := s.Kill(); err != nil {
		return err
	}
	if len(args) > 0 {
		s.opts.Args = args
	}
	return s.launch(ctx)
}

// Close kills the server and removes its folder.
func (s *Server) Close() error {
	return errors.Join(s.Kill(), os.RemoveAll(s.dir))
}

// Addr returns host:port.
func (s *Server) Addr() string { return net.JoinHostPort(s.opts.Bind, strconv.Itoa(s.port)) }

// Port returns the TCP port.
func (s *Server) Port() int { return s.port }

// Socket returns the path of the Unix socket.
func (s *Server) Socket() string { return filepath.Join(s.dir, "s") }

// Datadir returns the folder with the server's data.
func (s *Server) Datadir() string { return filepath.Join(s.dir, "data") }

// PID returns the process id, zero before the first start.
func (s *Server) PID() int {
	if s.cmd == nil || s.cmd.Process == nil {
		return 0
	}
	return s.cmd.Process.Pid
}

// Log returns at most the last max bytes of the server's output.
func (s *Server) Log(max int) string {
	b, err := os.ReadFile(s.logFile())
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(b[len(b)-min(max, len(b)):]))
}

func (s *Server) logFile() string  { return filepath.Join(s.dir, "log") }
func (s *Server) initFile() string { return filepath.Join(s.dir, "init.sql") }
