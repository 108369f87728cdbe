package mysqld

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"plugpull/internal/testskip"
)

func TestServerDiesWithItsOwner(t *testing.T) {
	need(t)
	c := config(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), ownerEnv+"="+c.Datadir+"|"+c.Dir)
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err, line)
	require.NoError(t, syscall.Kill(pid, 0), "it runs")
	defer func() {
		if !ended(pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}()
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	assert.Eventually(t, func() bool { return ended(pid) }, 30*time.Second, 5*time.Millisecond)
}

// ended reports whether a process is gone or a zombie, which somebody else reaps.
func ended(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z")
}

// The thread that happens to start a server may end while the server runs.
func TestServerOutlivesTheThreadThatAskedForIt(t *testing.T) {
	need(t)
	s := place(t, config(t))
	var p *Process
	tid := onThreadThatEnds(func() {
		var err error
		p, err = s.Start(limited(t))
		assert.NoError(t, err)
	})
	require.NotNil(t, p)
	require.NoError(t, p.Await(limited(t)))
	require.Eventually(t, func() bool {
		_, err := os.Stat("/proc/self/task/" + strconv.Itoa(tid))
		return errors.Is(err, fs.ErrNotExist)
	}, 30*time.Second, time.Millisecond)
	assert.Equal(t, "1", value(t, s, "SELECT 1"))
}

// onThreadThatEnds runs f on a thread that ends after it, and returns the thread's id.
// The main thread never ends, so it is kept busy meanwhile.
func onThreadThatEnds(f func()) (tid int) {
	done, release := make(chan int), make(chan struct{})
	defer close(release)
	for {
		go func() {
			runtime.LockOSThread() // without an unlock: the thread ends with the goroutine
			if unix.Gettid() == unix.Getpid() {
				done <- 0
				<-release
				runtime.UnlockOSThread()
				return
			}
			f()
			done <- unix.Gettid()
		}()
		if tid := <-done; tid != 0 {
			return tid
		}
	}
}

func TestCyclesLeaveNothingBehind(t *testing.T) {
	need(t)
	c := config(t)
	s := place(t, c)
	kill(t, start(t, s))
	files, fds := list(t, c.Dir), descriptors(t)
	var last *Process
	for range 10 {
		last = start(t, s)
		kill(t, last)
		assert.ErrorIs(t, syscall.Kill(-last.PID(), 0), syscall.ESRCH, "nobody is left in its process group")
	}
	assert.Equal(t, fds, descriptors(t))
	assert.LessOrEqual(t, len(list(t, c.Dir)), len(files)+1, "%q: only the log before the last is new", list(t, c.Dir))
	assert.NoFileExists(t, filepath.Join(c.Datadir, "ibtmp1"), "temporary tables are not on the device under test")
	require.NoError(t, s.Close())
	assert.Empty(t, list(t, c.Dir))
	assert.DirExists(t, c.Datadir)
	require.NoError(t, s.Close(), "a second time")
}

func list(t *testing.T, dir string) (paths []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if path != dir {
			paths = append(paths, path)
		}
		return err
	}))
	return paths
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}

// A server on a thread with a mount namespace of its own, where the data folder is
// read-only and then not there at all for anybody else.
func TestSpawnOnAThreadWithItsOwnMounts(t *testing.T) {
	in := need(t)
	if os.Getuid() != 0 {
		testskip.Skip(t, "needs root for a mount namespace; to run it: sudo -E go test ./internal/mysqld")
	}
	c := config(t)
	th := newThread(t)
	th.do(t, func() error {
		return errors.Join(unix.Unshare(unix.CLONE_NEWNS),
			unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount(c.Datadir, c.Datadir, "", unix.MS_BIND, ""),
			unix.Mount("none", c.Datadir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
	})
	c.Spawn = th.run
	s, err := New(in, c)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	se := startError(t, s)
	assert.True(t, se.Exited)
	assert.Equal(t, ByItself, se.End.Cause)
	assert.Contains(t, se.Log, "Read-only", "the server is where the data cannot be written")
	th.do(t, func() error { return unix.Mount("none", c.Datadir, "", unix.MS_REMOUNT|unix.MS_BIND, "") })
	p := start(t, s)
	own, err := os.Readlink("/proc/thread-self/ns/mnt")
	require.NoError(t, err)
	theirs, err := os.Readlink("/proc/" + strconv.Itoa(p.PID()) + "/ns/mnt")
	require.NoError(t, err)
	assert.NotEqual(t, own, theirs)
	kill(t, p)
}

// thread is an OS thread that runs functions until the test ends.
type thread struct {
	work chan func()
}

func newThread(t *testing.T) *thread {
	th := &thread{work: make(chan func())}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		runtime.LockOSThread() // without an unlock: the thread is not to be used again
		for f := range th.work {
			f()
		}
	}()
	t.Cleanup(func() { close(th.work); <-gone })
	return th
}

func (th *thread) run(f func() error) error {
	done := make(chan error)
	th.work <- func() { done <- f() }
	return <-done
}

func (th *thread) do(t *testing.T, f func() error) {
	t.Helper()
	require.NoError(t, th.run(f))
}
