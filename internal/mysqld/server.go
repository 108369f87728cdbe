package mysqld

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// maxSocket is the longest path of a Unix socket in bytes.
const maxSocket = 107

// Config says how a server is run. Paths are absolute.
type Config struct {
	// Datadir is the data folder, on the device under test. It need not be there
	// before Start.
	Datadir string
	// Dir is where New makes a folder for the server's socket, pid file, log and
	// temporary files: off the device under test, best on a tmpfs. At most 60 bytes.
	Dir string
	// Bind is the IP address to listen on; empty: 127.0.0.1.
	Bind string
	// Port is the TCP port; zero: a free one, which stays the same until Close.
	Port int
	// Settings are options of the server by name, as a scenario gives them:
	// "innodb_flush_log_at_trx_commit": "2". They win over this package's own. An
	// empty value gives the option without "=".
	Settings map[string]string
	// Init are SQL statements, one line each, that the server executes at every
	// start, before its greeting. One that fails is in the log and nowhere else.
	Init []string
	// Spawn runs start, which forks the server, on the OS thread that is to be its
	// parent (for its mount namespace, say), and returns start's error. The kernel
	// kills the server when that thread ends: it has to stay until the server is
	// gone. Dir has to be the same folder there. Nil: a thread that is kept for it.
	Spawn func(start func() error) error
}

// Server is the place of a server: its folder, port and settings, which stay the
// same over any number of starts. Its methods may not be called concurrently,
// except Addr, Port and Socket.
type Server struct {
	in     Install
	conf   Config
	dir    string
	held   *hold
	starts int
	last   *Process
	closed bool

	settled atomic.Bool // it is known whether the server takes its settings
}

// New makes a server's folder and holds its port, so that the kernel gives it to
// nobody else. The caller must call Close. Errors: ErrSetting; a fixed port that
// another socket listens on is a *StartError with PortTaken.
func New(in Install, conf Config) (*Server, error) {
	if conf.Bind == "" {
		conf.Bind = "127.0.0.1"
	}
	ip, err := netip.ParseAddr(conf.Bind)
	if err != nil {
		return nil, fmt.Errorf("the address to listen on: %w", err)
	}
	if err := conf.check(); err != nil {
		return nil, err
	}
	held, err := holdPort(netip.AddrPortFrom(ip, uint16(conf.Port)))
	if err != nil {
		if errors.Is(err, unix.EADDRINUSE) {
			return nil, &StartError{PortTaken: true, Err: err}
		}
		return nil, err
	}
	dir, err := os.MkdirTemp(conf.Dir, "db-")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the server's folder: %w", err), held.release())
	}
	s := &Server{in: in, conf: conf, dir: dir, held: held}
	err = s.writeInit()
	if len(s.Socket()) > maxSocket {
		err = fmt.Errorf("the path %s is longer than the %d bytes that a socket's may have", s.Socket(), maxSocket)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (c Config) check() error {
	switch {
	case !filepath.IsAbs(c.Datadir) || !filepath.IsAbs(c.Dir):
		return fmt.Errorf("the folders of a server have to be absolute paths: %q and %q", c.Datadir, c.Dir)
	case c.Port < 0 || c.Port > 65535:
		return fmt.Errorf("port %d: there is no such port", c.Port)
	}
	for _, stmt := range c.Init {
		if strings.Contains(stmt, "\n") {
			return fmt.Errorf("a statement for the server's start has more than one line: %q", stmt)
		}
	}
	return CheckSettings(c.Settings)
}

func (s *Server) writeInit() error {
	if len(s.conf.Init) == 0 {
		return nil
	}
	if err := os.WriteFile(s.initFile(), []byte(strings.Join(s.conf.Init, ";\n")+";\n"), 0o600); err != nil {
		return fmt.Errorf("write the statements for the server's start: %w", err)
	}
	return nil
}

// Start forks the server and returns without waiting for its greeting: see
// Process.Await. The process before has to have ended. A port that another socket
// listens on is a *StartError with PortTaken, and the data was not touched. ctx
// does not end the server.
func (s *Server) Start(ctx context.Context) (*Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, &StartError{Err: err}
	}
	if s.last != nil {
		if _, over := s.last.End(); !over {
			return nil, &StartError{Err: errors.New("the process before has not ended")}
		}
	}
	if s.held.taken() {
		return nil, &StartError{PortTaken: true}
	}
	if err := s.sweep(); err != nil {
		return nil, &StartError{Err: err}
	}
	s.starts++
	p, err := s.fork()
	if err != nil {
		return nil, &StartError{Err: err}
	}
	s.last = p
	return p, nil
}

// sweep removes what a killed server left in the folder: temporary files, and a
// socket with its lock file, which names a process id that may be another's by now.
// The log of the start before the last goes too.
func (s *Server) sweep() error {
	errs := []error{os.RemoveAll(s.tmpdir()), os.Mkdir(s.tmpdir(), 0o700)}
	for _, path := range []string{s.Socket(), s.Socket() + ".lock", s.pidFile(), s.logFile(s.starts - 1)} {
		if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("clean the server's folder: %w", err)
	}
	return nil
}

// Close kills the server if it runs, which may block as Kill does, releases the
// port and removes the server's folder with its logs. The data folder stays. A second
// Close does nothing.
func (s *Server) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	var errs []error
	if s.last != nil {
		_, err := s.last.Kill(context.Background())
		errs = append(errs, err)
	}
	return errors.Join(append(errs, s.held.release(), os.RemoveAll(s.dir))...)
}

// Addr returns host:port.
func (s *Server) Addr() string { return s.held.addr.String() }

// Port returns the TCP port.
func (s *Server) Port() int { return int(s.held.addr.Port()) }

// Socket returns the path of the Unix socket.
func (s *Server) Socket() string { return filepath.Join(s.dir, "s") }

func (s *Server) tmpdir() string           { return filepath.Join(s.dir, "tmp") }
func (s *Server) pidFile() string          { return filepath.Join(s.dir, "pid") }
func (s *Server) initFile() string         { return filepath.Join(s.dir, "init.sql") }
func (s *Server) logFile(start int) string { return filepath.Join(s.dir, fmt.Sprintf("log.%d", start)) }
