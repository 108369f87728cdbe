package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/hostcheck"
)

// host is a host with what a real one rarely has at hand.
type host struct{ hostcheck.Runner }

func (host) Describe() string { return "db1" }

func (h host) Run(ctx context.Context, name string, args ...string) (hostcheck.Output, error) {
	if name == "broken" {
		return hostcheck.Output{}, errors.New("exec format\nerror")
	}
	return h.Runner.Run(ctx, name, args...)
}

func (h host) ReadFile(ctx context.Context, path string) ([]byte, error) {
	switch path {
	case "/denied":
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrPermission}
	case "/odd":
		return nil, errors.New("input/output error")
	}
	return h.Runner.ReadFile(ctx, path)
}

// answer is what a runner said, without what may differ between a host and what was saved of it.
type answer struct {
	Out                                           any
	NotExist, Denied, NotInstalled, NotSaved, Err bool
}

func answered(out any, err error) answer {
	return answer{out, errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission),
		errors.Is(err, hostcheck.ErrNotInstalled), errors.Is(err, hostcheck.ErrNotSaved), err != nil}
}

func interview(ctx context.Context, r hostcheck.Runner, dir string) map[string]answer {
	long := strings.Repeat("x", 300)
	all := map[string]answer{}
	for _, line := range []string{"sh -c 'exit'", "printf a/b%%s", "false", "sh -c exit\u00a07", "no-such-program-here", "broken", "echo " + long, "echo " + long + "y"} {
		f := strings.Split(line, " ")
		out, err := r.Run(ctx, f[0], f[1:]...)
		all["run "+line] = answered(fmt.Sprintf("%q %q %d", out.Stdout, out.Stderr, out.Code), err)
	}
	for _, p := range []string{"/", dir, dir + "/file", dir + "/../" + filepath.Base(dir) + "/file", dir + "/link", dir + "/none", "/denied", "/odd", dir + "/" + long} {
		b, err := r.ReadFile(ctx, p)
		all["file "+p] = answered(string(b), err)
		names, err := r.ReadDir(ctx, p)
		if p != "/" { // others make files there meanwhile
			all["dir "+p] = answered(strings.Join(names, "|"), err)
		}
		to, err := r.RealPath(ctx, p)
		all["path "+p] = answered(to, err)
	}
	return all
}

func TestSavedAnswersAsTheHostDid(t *testing.T) {
	dir, into := t.TempDir(), filepath.Join(t.TempDir(), "saved")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), []byte("one\ntwo"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".dot"), []byte{0, 255}, 0o644))
	require.NoError(t, os.Symlink("file", filepath.Join(dir, "link")))
	rec, err := NewRecorder(host{Local{}}, into)
	require.NoError(t, err)
	want := interview(t.Context(), rec, dir)
	require.NoError(t, rec.Err())

	require.NoError(t, os.RemoveAll(dir), "what is saved needs no host")
	saved, err := OpenSaved(into)
	require.NoError(t, err)
	assert.Equal(t, "db1", saved.Describe())
	got := interview(t.Context(), saved, dir)
	for what, a := range want {
		assert.False(t, a.NotSaved, what)
		assert.Equal(t, a, got[what], what)
	}
	info, err := os.Stat(into)
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o700), info.Mode().Perm(), "it has serial numbers in it")
}

func TestSavedHasNothingOfWhatWasNotAsked(t *testing.T) {
	into := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(into, "host"), []byte("db1\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(into, "secret"), []byte("s"), 0o644))
	s, err := OpenSaved(into)
	require.NoError(t, err)
	_, err = s.Run(t.Context(), "smartctl", "-a", "/dev/sda")
	require.ErrorIs(t, err, hostcheck.ErrNotSaved)
	assert.Contains(t, err.Error(), "smartctl -a /dev/sda")
	for _, p := range []string{"/sys/x", "/../secret", "../secret", "/", ""} {
		for what, a := range map[string]error{"file": second(s.ReadFile(t.Context(), p)), "dir": second(s.ReadDir(t.Context(), p)), "path": second(s.RealPath(t.Context(), p))} {
			require.ErrorIs(t, a, hostcheck.ErrNotSaved, "%s %q", what, p)
			require.NotErrorIs(t, a, fs.ErrNotExist, "%s %q", what, p)
		}
	}
	_, err = OpenSaved(filepath.Join(into, "none"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func second[T any](_ T, err error) error { return err }

func TestSavedRefusesADamagedFolder(t *testing.T) {
	into := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(into, "commands"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(into, "host"), nil, 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(into, "commands", "hdparm.code"), []byte("zero"), 0o644))
	s, err := OpenSaved(into)
	require.NoError(t, err)
	_, err = s.Run(t.Context(), "hdparm")
	require.Error(t, err)
}

func TestRecorder(t *testing.T) {
	into := t.TempDir()
	rec, err := NewRecorder(host{Local{}}, into)
	require.NoError(t, err)
	_, err = NewRecorder(host{Local{}}, into)
	require.ErrorIs(t, err, fs.ErrExist, "answers of two hosts never mix")

	// An answer that changes is kept as it was last, both ways.
	file := filepath.Join(t.TempDir(), "file")
	saved, err := OpenSaved(into)
	require.NoError(t, err)
	for _, there := range []bool{false, true, false} {
		if there {
			require.NoError(t, os.WriteFile(file, []byte("now"), 0o644))
		} else {
			require.NoError(t, os.RemoveAll(file))
		}
		_, errLive := rec.ReadFile(t.Context(), file)
		_, errSaved := saved.ReadFile(t.Context(), file)
		assert.Equal(t, there, errLive == nil)
		assert.Equal(t, there, errSaved == nil)
	}

	// What ended with the context says nothing of the host.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = rec.Run(ctx, "hostname")
	require.ErrorIs(t, err, context.Canceled)
	_, err = rec.ReadFile(ctx, "/etc/hostname")
	require.ErrorIs(t, err, context.Canceled)
	_, err = saved.Run(t.Context(), "hostname")
	require.ErrorIs(t, err, hostcheck.ErrNotSaved)
	_, err = saved.ReadFile(t.Context(), "/etc/hostname")
	require.ErrorIs(t, err, hostcheck.ErrNotSaved)

	// A folder that cannot be written is said, and the answer is passed on.
	require.NoError(t, os.WriteFile(filepath.Join(into, "links"), nil, 0o644))
	to, err := rec.RealPath(t.Context(), "/")
	require.NoError(t, err)
	assert.Equal(t, "/", to)
	require.Error(t, rec.Err())
}
