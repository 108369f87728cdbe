package blockdev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// tmpfs mounts one at dir by the system call alone.
func tmpfs(dir string) error { return unix.Mount("none", dir, "tmpfs", 0, "size=1m") }

// visible says whether a mountinfo file names dir.
func visible(mountinfo, dir string) (bool, error) {
	b, err := os.ReadFile(mountinfo)
	return strings.Contains(string(b), " "+dir+" "), err
}

func TestNamespaceHidesItsMounts(t *testing.T) {
	needRoot(t)
	n, dir := namespace(t), t.TempDir()
	require.NoError(t, n.Do(func() error { return tmpfs(dir) }))
	cat := func() (string, error) {
		out, err := exec.Command("cat", "/proc/self/mountinfo").Output()
		return string(out), err
	}
	host, err := cat()
	require.NoError(t, err)
	require.NotContains(t, host, dir)
	var inside string
	require.NoError(t, n.Do(func() (err error) { inside, err = cat(); return err }))
	require.Contains(t, inside, dir, "a process that was started inside sees it")
	out, err := exec.Command("nsenter", "--mount="+n.Path(), "cat", "/proc/self/mountinfo").Output()
	require.NoError(t, err)
	require.Contains(t, string(out), dir, "Path names it")
	for range 20 { // the runtime must not start other threads from the namespace's
		seen, err := visible("/proc/thread-self/mountinfo", dir)
		require.NoError(t, err)
		require.False(t, seen)
		runtime.Gosched()
	}
}

// On a host with shared mounts, as systemd makes them, nothing crosses in either direction.
// The child is in a namespace of its own, so that it may share mounts.
func TestNamespacePropagation(t *testing.T) {
	needRoot(t)
	n, dir := namespace(t), t.TempDir()
	require.NoError(t, n.Do(func() error {
		out, err := child(t, "propagation", dir).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}))
}

func childPropagation(args []string) error {
	shared := args[0]
	ours, theirs := filepath.Join(shared, "ours"), filepath.Join(shared, "theirs")
	err := errors.Join(tmpfs(shared), unix.Mount("none", shared, "", unix.MS_SHARED, ""),
		os.Mkdir(ours, 0o700), os.Mkdir(theirs, 0o700))
	if err != nil {
		return err
	}
	n, err := NewNamespace()
	if err != nil {
		return err
	}
	defer n.Close()
	if err := errors.Join(n.Do(func() error { return tmpfs(ours) }), tmpfs(theirs)); err != nil {
		return err
	}
	if seen, err := visible("/proc/self/mountinfo", ours); seen || err != nil {
		return fmt.Errorf("the host sees the namespace's mount: %v %w", seen, err)
	}
	return n.Do(func() error {
		if seen, err := visible("/proc/thread-self/mountinfo", theirs); seen || err != nil {
			return fmt.Errorf("the namespace sees the host's later mount: %v %w", seen, err)
		}
		return nil
	})
}

// The main thread's mounts are what /proc/self shows of a process. A goroutine that the first
// goroutine starts and waits for runs on the main thread.
func TestNamespaceLeavesTheMainThreadAlone(t *testing.T) {
	needRoot(t)
	out, err := child(t, "main-thread", t.TempDir()).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func childMainThread(args []string) error {
	n, err := NewNamespace()
	if err != nil {
		return err
	}
	if err := n.Do(func() error { return tmpfs(args[0]) }); err != nil {
		return err
	}
	if seen, err := visible("/proc/self/mountinfo", args[0]); seen || err != nil {
		return fmt.Errorf("the main thread is in the namespace: %v %w", seen, err)
	}
	return n.Close()
}

func TestNamespaceClose(t *testing.T) {
	needRoot(t)
	l, _ := device(t, "ext4")
	n, dir := namespace(t), t.TempDir()
	require.NoError(t, n.Do(func() error { _, err := Mount(l.Path(), dir, FS{Type: "ext4"}); return err }))
	exclusive := func() error {
		fd, err := open(l.Path(), unix.O_RDONLY|unix.O_EXCL)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	}
	require.ErrorIs(t, exclusive(), unix.EBUSY, "it is mounted")
	sleep := exec.Command("sleep", "1000")
	sleep.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	other := namespace(t)
	require.NoError(t, other.Do(sleep.Start))
	t.Cleanup(func() { _ = sleep.Process.Kill() })

	require.NoError(t, n.Close())
	require.NoError(t, exclusive(), "it is unmounted when Close returns")
	require.NoError(t, n.Close(), "again")
	require.ErrorIs(t, n.Do(func() error { return nil }), fs.ErrClosed)

	require.NoError(t, other.Close())
	var exit *exec.ExitError
	require.ErrorAs(t, sleep.Wait(), &exit)
	require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal(),
		"its Pdeathsig is that of the namespace's thread")
}

func TestNamespaceDo(t *testing.T) {
	needRoot(t)
	n := namespace(t)
	failure := errors.New("of the function")
	require.ErrorIs(t, n.Do(func() error { return failure }), failure)
	thread := func() (id int) {
		require.NoError(t, n.Do(func() error { id = unix.Gettid(); return nil }))
		return id
	}
	require.Equal(t, thread(), thread(), "one thread")
	require.ErrorContains(t, n.Do(func() error { runtime.Goexit(); return nil }), "ended its goroutine")
	require.ErrorIs(t, n.Do(func() error { return nil }), fs.ErrClosed)
}

// After kill -9 the kernel alone takes the mount and the loop device away.
func TestKilledProcessLeavesNothing(t *testing.T) {
	needRoot(t)
	path, dir := image(t, sizes["ext4"]), t.TempDir()
	c := child(t, "to-be-killed", path, dir)
	device := startChild(t, c)
	require.Equal(t, 1, loopsOn(t, filepath.Dir(path)), "%s is attached", device)
	seen, err := visible("/proc/self/mountinfo", dir)
	require.NoError(t, err)
	require.False(t, seen, "the host never sees the mount")

	require.NoError(t, c.Process.Kill())
	require.Error(t, c.Wait())
	await(t, device+" to be detached", func() bool { return loopsOn(t, filepath.Dir(path)) == 0 })
	seen, err = visible("/proc/self/mountinfo", dir)
	require.NoError(t, err)
	require.False(t, seen)
	l := attached(t, path, Options{})
	inNamespace(t, func(dir string) {
		_, err := Mount(l.Path(), dir, FS{Type: "ext4"})
		require.NoError(t, err, "the image is whole and free")
	})
}

// childToBeKilled mounts an image, starts a process that uses it, and waits to be killed.
func childToBeKilled(args []string) error {
	path, dir := args[0], args[1]
	n, err := NewNamespace()
	if err != nil {
		return err
	}
	err = n.Do(func() error {
		l, err := Attach(context.Background(), path, Options{Autoclear: true, DirectIO: true})
		if err != nil {
			return err
		}
		if err := Make(context.Background(), FS{Type: "ext4"}, l.Path()); err != nil {
			return err
		}
		if _, err := Mount(l.Path(), dir, FS{Type: "ext4"}); err != nil {
			return err
		}
		user := exec.Command("sleep", "1000")
		user.Dir = dir
		user.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := user.Start(); err != nil {
			return err
		}
		fmt.Println(l.Path())
		return nil
	})
	if err != nil {
		return err
	}
	select {}
}
