package fuse

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// guard is a child process that aborts the connection when this process is killed.
//
// A thread of this process can wait for its own drive: in a mount, or in the fsync of
// a file on a filesystem on it. When the process is killed, such a thread waits for ever
// and keeps /dev/fuse open, so that the kernel never gives the connection up. The guard is
// forked by a thread that does nothing else and so ends at once; the kernel then sends the guard
// its signal.
type guard struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the guard is gone and reaped
}

// script writes to the abort file, its descriptor 3, when it is told that its parent is gone. A
// shell heeds a trap only while it waits, so it has something to wait for.
const script = `trap 'echo 1 >&3; kill $! 2>/dev/null; exit' TERM; while :; do sleep 86400 & wait $!; done`

// startGuard needs the file that aborts the connection.
func startGuard(abort int) (*guard, error) {
	fd, err := unix.FcntlInt(uintptr(abort), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("copy the abort file: %w", err)
	}
	file := os.NewFile(uintptr(fd), "abort")
	defer file.Close()
	g := &guard{cmd: exec.Command("/bin/sh", "-c", script), done: make(chan struct{})}
	g.cmd.ExtraFiles = []*os.File{file}
	// Its own process group: Ctrl-C is not for it.
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
	started := make(chan error, 1)
	go func() {
		defer close(g.done)
		runtime.LockOSThread() // for good: the thread's end is the signal
		err := g.cmd.Start()
		started <- err
		if err == nil {
			_ = g.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start the guard of the connection: %w", err)
	}
	return g, nil
}

// stop ends the guard, which then aborts nothing, and waits until it is gone.
func (g *guard) stop() error {
	if g == nil {
		return nil
	}
	err := unix.Kill(-g.cmd.Process.Pid, unix.SIGKILL)
	<-g.done
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("end the guard of the connection: %w", err)
	}
	return nil
}
