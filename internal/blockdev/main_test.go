package blockdev

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"plugpull/internal/testskip"
)

// childEnv makes the test binary run one of children instead of the tests.
const childEnv = "PLUGPULL_BLOCKDEV_CHILD"

// children are what the tests do in a process of its own. What they print is for the test.
var children = map[string]func(args []string) error{
	"propagation":  childPropagation,
	"main-thread":  childMainThread,
	"to-be-killed": childToBeKilled,
	"attach":       childAttach,
	"nobody":       childNobody,
}

func TestMain(m *testing.M) {
	name := os.Getenv(childEnv)
	if name == "" {
		os.Exit(m.Run())
	}
	if err := children[name](os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
}

// limit bounds whatever a test waits for: a test that reaches it has failed.
const limit = time.Minute

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

// needRoot skips where this package cannot work.
func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		testskip.Skip(t, "needs root; to run it: sudo -E go test ./internal/blockdev")
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		testskip.Skip(t, "needs the loop driver: %v; to run it: modprobe loop", err)
	}
}

// child is a command that runs one of children.
func child(t testing.TB, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(testContext(t), os.Args[0], args...)
	c.Env = append(os.Environ(), childEnv+"="+name)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return c
}

// startChild starts a child and returns once it has printed a line, with that line.
func startChild(t testing.TB, c *exec.Cmd) string {
	t.Helper()
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err, "%s", &stderr)
	return strings.TrimSpace(line)
}

// image makes a sparse file of so many MiB in a folder of the test's own.
func image(t testing.TB, mib int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Truncate(path, mib<<20))
	return path
}

// attached attaches a file for as long as the test runs.
func attached(t testing.TB, path string, o Options) *Loop {
	t.Helper()
	o.Autoclear = true
	l, err := Attach(testContext(t), path, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		require.NoError(t, l.Detach(ctx))
	})
	return l
}

// namespace makes one for as long as the test runs.
func namespace(t testing.TB) *Namespace {
	t.Helper()
	n, err := NewNamespace()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	return n
}

// sizes are the smallest devices, in MiB, that the mkfs programs take.
var sizes = map[string]int64{"ext4": 16, "xfs": 300, "btrfs": 128}

// devices returns what makes, at most once for each kind, a device with a filesystem.
func devices(t testing.TB) func(kind string) *Loop {
	made := make(map[string]*Loop)
	return func(kind string) *Loop {
		if made[kind] == nil {
			made[kind], _ = device(t, kind)
		}
		return made[kind]
	}
}

// device makes a filesystem on a new loop device, which it returns with the image.
func device(t testing.TB, kind string) (*Loop, string) {
	t.Helper()
	path := image(t, sizes[kind])
	l := attached(t, path, Options{})
	makeFS(t, FS{Type: kind}, l.Path())
	return l, path
}

func makeFS(t testing.TB, f FS, dev string) {
	t.Helper()
	err := Make(testContext(t), f, dev)
	var missing *NotInstalledError
	if errors.As(err, &missing) {
		testskip.Skip(t, "%v; to run it: apt-get install %s", err, missing.Package)
	}
	require.NoError(t, err)
}

// await polls until ok.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	err := poll(testContext(t), func() (bool, error) { return ok(), nil })
	require.NoError(t, err, "waited for %s", what)
}

// loopsOn counts the loop devices whose backing file is below a folder.
func loopsOn(t testing.TB, dir string) (count int) {
	t.Helper()
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	require.NoError(t, err)
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil && strings.HasPrefix(string(b), dir+"/") {
			count++
		}
	}
	return count
}
