package blockdev

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// One hundred rounds, each with a mount that works and one that is refused, leave nothing.
func TestRoundsLeaveNothing(t *testing.T) {
	needRoot(t)
	path, dir := image(t, sizes["ext4"]), t.TempDir()
	round := func(first bool) {
		n, err := NewNamespace()
		require.NoError(t, err)
		defer n.Close()
		require.NoError(t, n.Do(func() error {
			l, err := Attach(testContext(t), path, Options{Autoclear: true})
			require.NoError(t, err)
			if first {
				makeFS(t, FS{Type: "ext4"}, l.Path())
			}
			_, err = Mount(l.Path(), dir, FS{Type: "ext4", Options: []string{"wibble"}})
			require.ErrorIs(t, err, unix.EINVAL)
			_, err = Mount(l.Path(), dir, FS{Type: "ext4", Options: []string{"barrier=0"}})
			require.NoError(t, err)
			require.NoError(t, Unmount(testContext(t), dir))
			return l.Detach(testContext(t))
		}))
		require.NoError(t, n.Close())
	}
	count := func(pattern string) int {
		names, err := filepath.Glob(pattern)
		require.NoError(t, err)
		return len(names)
	}
	round(true)
	fds, threads := count("/proc/self/fd/*"), count("/proc/self/task/*")
	for range 100 {
		round(false)
	}
	require.Zero(t, loopsOn(t, filepath.Dir(path)))
	seen, err := visible("/proc/self/mountinfo", dir)
	require.NoError(t, err)
	require.False(t, seen)
	require.Equal(t, fds, count("/proc/self/fd/*"))
	// The runtime keeps some threads of its own; one a round would be a leak.
	await(t, "the threads to end", func() bool { return count("/proc/self/task/*") < threads+20 })
}
