package mysqld

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Process is one start of a server. Its methods may be called concurrently.
type Process struct {
	srv  *Server // only what never changes, and settled
	cmd  *exec.Cmd
	log  string // path
	done chan struct{}

	mu     sync.Mutex // guards what follows
	reaped bool       // the process id may be another's
	killed bool       // by us
	end    End
}

// fork starts the process and the goroutine that waits for its end.
func (s *Server) fork() (*Process, error) {
	p := &Process{srv: s, log: s.logFile(s.starts), done: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the server's log: %w", err)
	}
	defer log.Close()
	p.cmd = exec.Command(s.in.Binary, s.args()...)
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Dir, p.cmd.Env = log, log, s.dir, environ()
	// Its own process group, so that Ctrl-C on a terminal does not reach it.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error, 1)
	go p.run(s.conf.Spawn, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("fork the server: %w", err)
	}
	return p, nil
}

// hugePages makes glibc's allocator take memory in large steps and ask for huge pages.
// Half of a start is page faults of memory that the server clears: this takes a
// quarter off it, and more off one with the performance schema. Other C libraries and
// allocators do not look at it.
const hugePages = "GLIBC_TUNABLES=glibc.malloc.hugetlb=1:glibc.malloc.top_pad=33554432:glibc.malloc.mmap_threshold=33554432"

// environ is a server's environment: this process's without what a server would act on
// (a service manager's sockets and notifications are for plugpull, not for its
// server), and with hugePages unless its user has tuned the allocator.
func environ() []string {
	env := []string{hugePages} // of two with one name the later one counts
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		switch {
		case name == "NOTIFY_SOCKET", strings.HasPrefix(name, "LISTEN_"),
			strings.HasPrefix(name, "MYSQL"), strings.HasPrefix(name, "MARIADB"):
		default:
			env = append(env, kv)
		}
	}
	return env
}

// run forks the server and returns when it is gone. It keeps its thread all that
// time: the kernel sends the parent's death signal when the forking thread ends, and a
// thread of the Go runtime may end long before the program.
func (p *Process) run(spawn func(func() error) error, started chan<- error) {
	if spawn == nil {
		spawn = func(start func() error) error { return start() }
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := spawn(p.cmd.Start)
	started <- err
	if err != nil {
		return
	}
	pid := p.cmd.Process.Pid
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// A child that it left behind: while the leader is not reaped, the group's
	// number cannot be another's.
	_ = unix.Kill(-pid, unix.SIGKILL)
	_ = p.cmd.Wait()
	p.reaped, p.end = true, p.howItEnded()
	close(p.done)
}

func (p *Process) howItEnded() End {
	ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case !ok || ws.Exited():
		return End{Cause: ByItself, Code: p.cmd.ProcessState.ExitCode()}
	case ws.Signal() != syscall.SIGKILL:
		return End{Cause: ByItself, Code: -1, Signal: ws.Signal()}
	case p.killed:
		return End{Cause: ByUs, Code: -1, Signal: ws.Signal()}
	}
	return End{Cause: ByOthers, Code: -1, Signal: ws.Signal()}
}

// Kill sends SIGKILL and blocks until the server is gone or ctx ends. Gone means the
// whole of it: the kernel reports a process to its parent only when its last thread
// has ended, and a thread waits for its own requests to the drive before it ends: of
// up to 37 that io_uring had under way at the kill, none was left when the process had
// been reaped (Linux 6.18). It blocks as long as the drive keeps one of them. A process that had
// ended before keeps the end it had.
func (p *Process) Kill(ctx context.Context) (End, error) {
	p.mu.Lock()
	if !p.over() {
		p.killed = true
		_ = p.cmd.Process.Signal(syscall.SIGKILL) // not reaped under the lock, so it cannot fail
	}
	p.mu.Unlock()
	return p.gone(ctx)
}

// over reports whether the process has ended, reaped or not, so that a SIGKILL of
// somebody else's is not taken for one of ours.
func (p *Process) over() bool {
	if p.reaped {
		return true
	}
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, p.cmd.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
	return err == nil && info.Signo != 0
}

// Stop asks for an orderly shutdown and blocks until the server is gone or ctx ends.
func (p *Process) Stop(ctx context.Context) (End, error) {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return End{}, err
	}
	return p.gone(ctx)
}

func (p *Process) gone(ctx context.Context) (End, error) {
	select {
	case <-p.done:
		return p.end, nil
	case <-ctx.Done():
		return End{}, fmt.Errorf("wait until the server is gone: %w", ctx.Err())
	}
}

// Signal sends a signal, for instance SIGSTOP. It does nothing when the process has
// ended. SIGKILL is Kill's: from here it counts as somebody else's.
func (p *Process) Signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %v to the server: %w", sig, err)
	}
	return nil
}

// Exited returns a channel that is closed when the process is gone.
func (p *Process) Exited() <-chan struct{} { return p.done }

// End returns how the process ended; false while it runs.
func (p *Process) End() (End, bool) {
	select {
	case <-p.done:
		return p.end, true
	default:
		return End{}, false
	}
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }
