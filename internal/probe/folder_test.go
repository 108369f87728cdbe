package probe

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"plugpull/internal/usage"
)

func TestFolderProbe(t *testing.T) {
	dir := t.TempDir()
	r, err := Run(context.Background(), Folder{dir}, Options{Commits: 50})
	require.NoError(t, err)
	assert.EqualValues(t, 50, r.Commits)
	assert.Equal(t, KindFolder, r.Kind)
	assert.Positive(t, r.Rate())
	assertEmpty(t, dir)

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r, err = Run(ctx, Folder{dir}, Options{})
	require.ErrorIs(t, err, context.Canceled)
	assert.True(t, r.Interrupted)
	assertEmpty(t, dir)

	_, err = Run(context.Background(), Folder{filepath.Join(dir, "none")}, Options{})
	assert.True(t, usage.Is(err))
	_, err = Run(context.Background(), Folder{dir}, Options{For: 2 * MaxFor})
	assert.True(t, usage.Is(err))
	_, err = Run(context.Background(), Folder{dir}, Options{Commits: MaxCommits + 1})
	assert.True(t, usage.Is(err))
}

func assertEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, entries)
}

func TestFolderInMemory(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "plugpull-probe-test-")
	if err != nil {
		t.Skip("no /dev/shm to write to")
	}
	defer os.RemoveAll(dir)
	r, err := Run(context.Background(), Folder{dir}, Options{Commits: 50})
	require.NoError(t, err)
	assert.Equal(t, []string{"in_memory", "rate_misleads"}, codes(Interpret(&r, Evidence{})))
}

func TestFilesOfTheDead(t *testing.T) {
	dir := t.TempDir()
	kill := startVictim(t, dir)
	left := func() []string {
		m, err := filepath.Glob(filepath.Join(dir, filePrefix+"*"))
		require.NoError(t, err)
		return m
	}
	require.Eventually(t, func() bool {
		for _, name := range left() {
			if st, err := os.Stat(name); err == nil && st.Size() > int64(len(fileMark)) {
				return true
			}
		}
		return false
	}, 20*time.Second, 10*time.Millisecond)

	foreign := filepath.Join(dir, filePrefix+"mine")
	require.NoError(t, os.WriteFile(foreign, []byte("someone's own file, longer than the mark that a probe writes to its own"), 0o600))
	_, err := Run(context.Background(), Folder{dir}, Options{Commits: 5})
	require.NoError(t, err)
	assert.Len(t, left(), 2, "a probe that lives keeps its file, and so does someone else")
	kill()
	require.Len(t, left(), 2)
	require.NoError(t, os.WriteFile(filepath.Join(dir, filePrefix+"empty"), nil, 0o600))
	require.NoError(t, os.Symlink(foreign, filepath.Join(dir, filePrefix+"link")))
	_, err = Run(context.Background(), Folder{dir}, Options{Commits: 5})
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{foreign, filepath.Join(dir, filePrefix+"link")}, left())
}

// Each record is flushed before it counts.
func TestFolderFlushes(t *testing.T) {
	f, err := makeFile(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, fdatasync(f))
	require.NoError(t, f.Close())
	assert.ErrorIs(t, fdatasync(f), unix.EBADF, "an error of the flush is not swallowed")

	g := &goal{meter: newMeter(nil), limit: time.Minute, most: 3, began: time.Now()}
	var file bytes.Buffer
	var flushed []int
	require.NoError(t, appendTo(context.Background(), &file, func() error { flushed = append(flushed, file.Len()); return nil }, g))
	assert.Equal(t, []int{recordSize, 2 * recordSize, 3 * recordSize}, flushed)

	g = &goal{meter: newMeter(nil), limit: time.Minute, most: 3, began: time.Now()}
	assert.ErrorIs(t, appendTo(context.Background(), &file, func() error { return unix.EIO }, g), unix.EIO)
	assert.Zero(t, g.commits)
}
