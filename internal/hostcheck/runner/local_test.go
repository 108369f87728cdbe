package runner

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/hostcheck"
)

// limit bounds whatever a test waits for: a test that reaches it has failed.
const limit = 2 * time.Minute

// asks is what every runner that reaches a host must do alike.
func asks(t *testing.T, r hostcheck.Runner) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	odd := filepath.Join(dir, `a 'quoted' $(name)`)
	require.NoError(t, os.MkdirAll(filepath.Join(odd, "sub"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(odd, "file"), []byte("x\x00\ny"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(odd, ".hidden"), nil, 0o644))
	require.NoError(t, os.Symlink(odd, filepath.Join(dir, "link")))
	require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "dangling")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "big"), make([]byte, maxFile+1), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "fits"), make([]byte, maxFile), 0o644))

	out, err := r.Run(ctx, "sh", "-c", `printf 'out %s' "$1"; echo err >&2; exit 3`, "sh", `it's "$HOME" * \`)
	require.NoError(t, err, "another exit status than 0 is no error")
	assert.Equal(t, hostcheck.Output{Stdout: []byte(`out it's "$HOME" * \`), Stderr: []byte("err\n"), Code: 3}, out)
	out, err = r.Run(ctx, "sh", "-c", `echo $LC_ALL $PATH; cat`)
	require.NoError(t, err)
	assert.Regexp(t, `^C .*/usr/sbin:/sbin\n$`, string(out.Stdout), "English, more folders, no input")
	out, err = r.Run(ctx, "sh", "-c", "kill -9 $$")
	require.NoError(t, err)
	assert.Equal(t, 137, out.Code)
	out, err = r.Run(ctx, "sh", "-c", "exit 127")
	require.NoError(t, err, "a program's own 127 is not a missing program")
	assert.Equal(t, 127, out.Code)
	_, err = r.Run(ctx, "no-such-program-here")
	require.ErrorIs(t, err, hostcheck.ErrNotInstalled)
	_, err = Local{}.Run(t.Context(), "/nowhere/such-a-tool")
	require.ErrorIs(t, err, hostcheck.ErrNotInstalled, "by its path")
	_, err = r.Run(ctx, "head", "-c", strconv.Itoa(maxStdout+1), "/dev/zero")
	require.ErrorIs(t, err, ErrTooLarge)
	out, err = r.Run(ctx, "sh", "-c", "head -c 1000000 /dev/zero >&2; echo done")
	require.NoError(t, err, "noise on stderr is cut, not an error")
	assert.Equal(t, "done\n", string(out.Stdout))
	assert.Len(t, out.Stderr, maxStderr)

	b, err := r.ReadFile(ctx, filepath.Join(odd, "file"))
	require.NoError(t, err)
	assert.Equal(t, "x\x00\ny", string(b))
	b, err = r.ReadFile(ctx, filepath.Join(dir, "fits"))
	require.NoError(t, err)
	assert.Len(t, b, maxFile)
	_, err = r.ReadFile(ctx, filepath.Join(dir, "big"))
	require.ErrorIs(t, err, ErrTooLarge)
	_, err = r.ReadFile(ctx, filepath.Join(dir, "missing"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = r.ReadFile(ctx, odd)
	require.Error(t, err, "a folder is no file")
	require.NotErrorIs(t, err, fs.ErrNotExist)

	names, err := r.ReadDir(ctx, filepath.Join(dir, "link"))
	require.NoError(t, err, "a link to a folder counts as a folder")
	assert.Equal(t, []string{".hidden", "file", "sub"}, names)
	_, err = r.ReadDir(ctx, filepath.Join(dir, "missing"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = r.ReadDir(ctx, filepath.Join(odd, "file"))
	require.Error(t, err, "a file is no folder")

	to, err := r.RealPath(ctx, filepath.Join(dir, "link", "sub", "..", "file"))
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(odd, "file"), to)
	for _, gone := range []string{"missing", "dangling"} {
		_, err = r.RealPath(ctx, filepath.Join(dir, gone))
		require.ErrorIs(t, err, fs.ErrNotExist, gone)
	}
	if os.Geteuid() != 0 {
		require.NoError(t, os.Chmod(filepath.Join(odd, "file"), 0))
		_, err = r.ReadFile(ctx, filepath.Join(odd, "file"))
		require.ErrorIs(t, err, fs.ErrPermission)
	}
}

// ends asserts that the end of ctx ends the program and its children, and returns its cause.
func ends(t *testing.T, r hostcheck.Runner) {
	pids := filepath.Join(t.TempDir(), "pids")
	gone := errors.New("the test has seen enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := r.Run(ctx, "sh", "-c", `sleep 1000 & echo $! $$ >"$1.new"; mv "$1.new" "$1"; wait`, "sh", pids)
		done <- err
	}()
	var b []byte
	require.Eventually(t, func() (ok bool) {
		var err error
		b, err = os.ReadFile(pids)
		return err == nil
	}, limit, time.Millisecond)
	cancel(gone)
	select {
	case err := <-done:
		require.ErrorIs(t, err, gone)
	case <-time.After(limit):
		t.Fatal("the end of the context did not end Run")
	}
	for _, pid := range strings.Fields(string(b)) {
		n, err := strconv.Atoi(pid)
		require.NoError(t, err)
		if !assert.Eventually(t, func() bool { return !alive(n) }, limit, time.Millisecond, "process %d lives on", n) {
			_ = syscall.Kill(n, syscall.SIGKILL)
		}
	}
	for _, f := range []func() error{
		func() error { _, err := r.ReadFile(ctx, "/etc/passwd"); return err },
		func() error { _, err := r.ReadDir(ctx, "/"); return err },
		func() error { _, err := r.RealPath(ctx, "/"); return err },
	} {
		require.ErrorIs(t, f(), gone)
	}
}

func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err == nil && !strings.Contains(string(b), ") Z ") // nobody may reap it
}

func TestLocal(t *testing.T)     { asks(t, Local{}) }
func TestLocalEnds(t *testing.T) { ends(t, Local{}) }

func TestLocalLeavesNoChildWithThePipes(t *testing.T) {
	out, err := Local{}.Run(t.Context(), "sh", "-c", "sleep 1000 & echo $!")
	require.NoError(t, err, "the program itself has ended well")
	pid, err := strconv.Atoi(strings.TrimSpace(string(out.Stdout)))
	require.NoError(t, err)
	assert.Eventually(t, func() bool { return !alive(pid) }, limit, time.Millisecond)
}
