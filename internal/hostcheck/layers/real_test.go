package layers

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/blockdev"
	"plugpull/internal/hostcheck"
	"plugpull/internal/hostcheck/runner"
	"plugpull/internal/testskip"
)

func TestThisMachine(t *testing.T) {
	n := Folder(t.Context(), runner.Local{}, os.TempDir(), Options{})
	require.Equal(t, "folder", n.Kind)
	require.Len(t, n.Below, 1, "%+v", n.Findings)
	require.Equal(t, "mount", n.Below[0].Kind)
	r := hostcheck.Report{Tops: []*hostcheck.Node{n}}
	r.Judge()
	var b strings.Builder
	require.NoError(t, r.WriteText(&b, true))
	t.Log("\n" + b.String())
	_, err := Mounts(t.Context(), runner.Local{})
	require.NoError(t, err)
}

// threadLocal asks this machine as the calling thread sees its mounts.
type threadLocal struct{ runner.Local }

func (l threadLocal) ReadFile(ctx context.Context, path string) ([]byte, error) {
	if path == mountInfo {
		path = "/proc/thread-self/mountinfo"
	}
	return l.Local.ReadFile(ctx, path)
}

// A real filesystem on a real loop device: what the kernel is told of its cache decides over the verdict, and
// over the flushes that it counts.
func TestRealLoopDevice(t *testing.T) {
	if os.Geteuid() != 0 {
		testskip.Skip(t, "needs root; to run it: sudo -E go test ./internal/hostcheck/layers")
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		testskip.Skip(t, "needs the loop driver: %v; to run it: modprobe loop", err)
	}
	testskip.Program(t, "mkfs.ext4", "e2fsprogs")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	require.NoError(t, os.WriteFile(image, nil, 0o600))
	require.NoError(t, os.Truncate(image, 16<<20))
	loop, err := blockdev.Attach(ctx, image, blockdev.Options{Autoclear: true})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, loop.Detach(ctx))
	})
	require.NoError(t, blockdev.Make(ctx, blockdev.FS{Type: "ext4"}, loop.Path()))
	space, err := blockdev.NewNamespace()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, space.Close()) })

	require.NoError(t, space.Do(func() error {
		if _, err := blockdev.Mount(loop.Path(), dir, blockdev.FS{Type: "ext4"}); err != nil {
			return err
		}
		back, flushed := loopVerdict(t, loop, dir, blockdev.WriteBack)
		through, dropped := loopVerdict(t, loop, dir, blockdev.WriteThrough)
		if err := blockdev.Unmount(ctx, dir); err != nil {
			return err
		}
		require.NotContains(t, causes(back), "loop "+loop.Name(), "%s", causes(back))
		require.Positive(t, flushed)
		require.Equal(t, hostcheck.Critical, through.Level, through.Verdict)
		require.Contains(t, through.Verdict, "loop "+loop.Name()+" has a volatile cache")
		require.Zero(t, dropped)
		return nil
	}))
}

func causes(r *hostcheck.Report) (all string) {
	for _, f := range r.Because {
		all += f.Text + "\n"
	}
	return all
}

// loopVerdict judges a folder on a loop device, and counts the flushes that an fsync there brings to it. It
// is called on the thread that has the mount, and must not end it.
func loopVerdict(t *testing.T, loop *blockdev.Loop, dir string, cache blockdev.WriteCache) (*hostcheck.Report, uint64) {
	assert.NoError(t, loop.SetWriteCache(cache))
	n := Folder(t.Context(), threadLocal{}, dir, Options{})
	r := &hostcheck.Report{Tops: []*hostcheck.Node{n}}
	r.Judge()
	var b strings.Builder
	assert.NoError(t, r.WriteText(&b, true))
	t.Log("\n" + b.String())

	before := Flushes(t.Context(), threadLocal{}, n)[loop.Name()]
	assert.Equal(t, string(cache), before.WriteCache)
	f, err := os.Create(filepath.Join(dir, "file"))
	if !assert.NoError(t, err) {
		return r, 0
	}
	defer f.Close()
	_, err = f.WriteString("a commit")
	assert.NoError(t, err)
	assert.NoError(t, f.Sync())
	return r, Flushes(t.Context(), threadLocal{}, n)[loop.Name()].Flushes - before.Flushes
}
