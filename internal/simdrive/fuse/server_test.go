package fuse_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"plugpull/internal/simdrive"
	"plugpull/internal/simdrive/fuse"
)

// Abort frees a process that waits for a device that does not return, and Close
// says that the device still does not.
func TestAbortFreesTheHung(t *testing.T) {
	for _, k := range []string{"read", "write", "flush", "discard"} {
		t.Run(k, func(t *testing.T) {
			r := mount(t)
			g := newGate()
			t.Cleanup(g.let) // before the rig closes
			r.s.Power(g)
			var out strings.Builder
			child := hangChild(r.s.Path(), k)
			child.Stdout, child.Stderr = &out, &out
			require.NoError(t, child.Start())
			ended := make(chan error, 1)
			go func() { ended <- child.Wait() }()
			assert.Equal(t, k, wait(t, "the child's request", g.arrived))
			assert.EqualValues(t, 1, r.s.Stats().InFlight)
			require.NoError(t, child.Process.Kill()) // which alone does not free it

			within(t, "Abort", func() {
				assert.NoError(t, r.s.Abort())
				assert.NoError(t, r.s.Abort())
			})
			assert.Error(t, wait(t, "the child's end", ended), out.String())
			_, err := unix.Open(r.s.Path(), unix.O_RDONLY, 0)
			assert.ErrorIs(t, err, unix.ENOTCONN)

			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			assert.ErrorIs(t, r.s.Close(ctx), context.Canceled, "the device has not returned")
			assert.Empty(t, mountOf(t, filepath.Dir(r.s.Path())), "an aborted mount goes at once")
		})
	}
}

// hangChild returns a command that makes one request of a kind.
func hangChild(path, kind string) *exec.Cmd {
	args := map[string][]string{
		"read":    {"dd", "if=" + path, "of=/dev/null", "iflag=direct", "bs=4096", "count=1"},
		"write":   {"dd", "if=/dev/zero", "of=" + path, "conv=notrunc", "bs=4096", "count=1"},
		"flush":   {"sync", path},
		"discard": {"fallocate", "--punch-hole", "--offset=0", "--length=4096", path},
	}[kind]
	c := exec.Command(args[0], args[1:]...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return c
}

// A request that the child waits for gets an error, not only a signal.
func TestAbortIsAnError(t *testing.T) {
	r := mount(t)
	g := newGate()
	t.Cleanup(g.let)
	r.s.Power(g)
	f := r.open()
	failed := make(chan error, 1)
	go func() {
		_, err := unix.Pread(f.fd, aligned(4096), 0)
		failed <- err
	}()
	wait(t, "the read", g.arrived)
	require.NoError(t, r.s.Abort())
	assert.ErrorIs(t, wait(t, "its end", failed), unix.ECONNABORTED)
	_, err := unix.Pread(f.fd, aligned(4096), 0)
	assert.ErrorIs(t, err, unix.ENOTCONN)
	g.let()
	r.close() // though f is open
	assert.Empty(t, mountOf(t, filepath.Dir(r.s.Path())))
}

// Requests are served while others wait: reads whatever there is, and writes beside
// writes. Flush and discard the kernel sends alone, with no write beside them.
func TestRequestsOverlap(t *testing.T) {
	for _, c := range []struct {
		name  string
		kinds []string
	}{
		{"writes", []string{"write", "write", "write", "write", "write", "write", "write", "write", "read", "read"}},
		{"flush", []string{"flush", "read", "read", "read", "read", "read", "read", "read", "read"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := mount(t)
			g := newGate()
			t.Cleanup(g.let)
			r.s.Power(g)
			f := r.open()
			ended := make(chan error, len(c.kinds))
			for _, k := range c.kinds {
				call := f.requests()[k]
				go func() { ended <- call() }()
			}
			var at []string
			for range c.kinds {
				at = append(at, wait(t, "all requests at once", g.arrived))
			}
			assert.ElementsMatch(t, c.kinds, at)
			assert.EqualValues(t, len(c.kinds), r.s.Stats().InFlight)
			g.let()
			for range c.kinds {
				assert.NoError(t, wait(t, "their end", ended))
			}
		})
	}
}

// Close leaves nothing behind, and waits for files that are open.
func TestClose(t *testing.T) {
	r := mountDrive(t, simdrive.Config{}) // what the first use of the library starts is there
	r.close()
	fds := openFiles(t)

	r = mountDrive(t, simdrive.Config{})
	dir := filepath.Dir(r.s.Path())
	assert.Contains(t, mountOf(t, dir), fmt.Sprintf(" 0:%d ", r.s.Connection()))
	f := r.open()
	f.write(1, 0, 4096)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	err := r.s.Close(ctx)
	assert.ErrorIs(t, err, unix.EBUSY)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.EqualValues(t, 1, f.at(0), "it is still served")

	closed := make(chan error, 1)
	go func() { closed <- r.s.Close(context.Background()) }()
	f.close()
	assert.NoError(t, wait(t, "Close", closed))
	assert.NoError(t, r.s.Close(context.Background()))
	assert.NoError(t, r.s.Abort(), "after Close there is nothing to abort")
	assert.Empty(t, mountOf(t, dir))
	assert.Equal(t, fds, openFiles(t))
	// A goroutine has let go of what it served before it is gone.
	assert.Eventually(t, func() bool { return !strings.Contains(stacks(), "go-fuse") }, limit, time.Millisecond)
}

// A process that began a mount namespace of its own meanwhile has a copy of the
// mount, which does not keep Close waiting.
func TestCloseWithACopy(t *testing.T) {
	r := mountDrive(t, simdrive.Config{})
	c := exec.Command("unshare", "--mount", "--propagation=private", "sh", "-c", "echo; read x; cat "+r.s.Path())
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := c.StdinPipe()
	require.NoError(t, err)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	_, err = out.Read(make([]byte, 1)) // it has begun
	assert.NoError(t, err)
	r.close()
	assert.NoError(t, in.Close())
	assert.Error(t, c.Wait(), "the copy still reads the drive")
}

func stacks() string {
	p := make([]byte, 1<<20)
	return string(p[:runtime.Stack(p, true)])
}

// openFiles returns what this process has open, but for the folder that lists it.
func openFiles(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, e := range entries {
		if name, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			names = append(names, name)
		}
	}
	return names
}

// A mount in a namespace of one thread is seen by no other, and is aborted from any.
// No child gets the connection, which would live on in it.
func TestPrivateNamespace(t *testing.T) {
	needFUSE(t)
	dir := t.TempDir()
	hung, freed := make(chan *fuse.Server, 1), make(chan error, 1)
	g := newGate()
	t.Cleanup(g.let)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		freed <- private(dir, g, hung)
	}()
	var s *fuse.Server
	select {
	case s = <-hung:
	case err := <-freed:
		require.NoError(t, err)
	}
	assert.Empty(t, mountOf(t, dir))
	_, err := os.Stat(s.Path())
	assert.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, s.Abort())
	assert.NoError(t, wait(t, "the private thread", freed))
}

// private mounts a drive in a namespace of the calling thread, and reads it there
// until it is aborted.
func private(dir string, g *gate, hung chan<- *fuse.Server) error {
	if err := unshare(); err != nil {
		return err
	}
	s, err := fuse.Mount(dir, driveSize)
	if err != nil {
		return err
	}
	defer func() { _ = s.Abort() }()
	out, err := exec.Command("ls", "-l", "/proc/self/fd").CombinedOutput()
	if err != nil || strings.Contains(string(out), "fuse") || strings.Contains(string(out), "abort") {
		return fmt.Errorf("a child has %s: %w", out, err)
	}
	s.Power(g)
	fd, err := unix.Open(s.Path(), unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	go func() {
		<-g.arrived
		hung <- s
	}()
	if _, err := unix.Pread(fd, aligned(4096), 0); !errors.Is(err, unix.ECONNABORTED) {
		return fmt.Errorf("read: %w", err)
	}
	if err := unix.Close(fd); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Close(ctx); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("close: %w", err)
	}
	if _, err := os.Stat(s.Path()); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("still mounted: %w", err)
	}
	return nil
}

// What cannot be mounted leaves nothing.
func TestMountFails(t *testing.T) {
	needFUSE(t)
	before := openFiles(t)
	for name, c := range map[string]struct {
		dir  string
		size int64
	}{
		"size":      {t.TempDir(), 1000},
		"no size":   {t.TempDir(), 0},
		"no folder": {filepath.Join(t.TempDir(), "none"), driveSize},
	} {
		_, err := fuse.Mount(c.dir, c.size)
		assert.Error(t, err, name)
	}
	assert.Equal(t, before, openFiles(t))
}
