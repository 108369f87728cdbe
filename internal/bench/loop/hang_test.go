package loop

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/simdrive"
	"plugpull/internal/simdrive/fuse"
	"plugpull/internal/testskip"
)

// hangs is a drive that stops answering when it is told to.
type hangs struct {
	fuse.Device
	now   *atomic.Bool
	never chan struct{}
}

func (d hangs) WriteAt(p []byte, off int64) (int, error) {
	if d.now.Load() {
		<-d.never
	}
	return d.Device.WriteAt(p, off)
}

func (d hangs) Flush() error {
	if d.now.Load() {
		<-d.never
	}
	return d.Device.Flush()
}

// A drive that hangs ends the run with an error that says so, in a bounded time, and no process
// is left that nobody can kill.
func TestDriveThatHangs(t *testing.T) {
	sc := builtin(t, "ext4")
	var now atomic.Bool
	never := make(chan struct{})
	testskip.LoopBench(t)
	b, err := New(context.Background(), ConfigOf(&sc, 7, 10e9, ""))
	require.NoError(t, err)
	b.c.Limit = 2 * time.Second
	b.c.Device = func(h *simdrive.Handle) fuse.Device { return hangs{h, &now, never} }
	require.NoError(t, b.Renew(context.Background(), 1))
	pid := b.proc.PID()
	now.Store(true)
	written := make(chan error, 1)
	go func() { written <- b.syncAfterWrite() }()
	time.Sleep(200 * time.Millisecond) // into the hang; a test of nothing if it is not, and then it fails below
	_, cutErr := b.Cut(context.Background())
	err = b.tearDown(context.Background())
	if cutErr != nil {
		err = cutErr
	}
	require.Error(t, err)
	assert.ErrorIs(t, err, errHung)
	assert.Error(t, <-written)
	assert.ErrorIs(t, b.limited(context.Background(), "go on", func(context.Context) error { return nil }), errHung)
	close(never)
	require.NoError(t, b.Close(), "what hung can be taken down")
	assert.NoFileExists(t, "/proc/"+strconv.Itoa(pid), "the server is gone")
}

// syncAfterWrite writes to the filesystem and waits for the drive.
func (b *Bench) syncAfterWrite() error {
	return b.ns.Do(func() error {
		f, err := os.Create(b.path("mnt/hang"))
		if err != nil {
			return err
		}
		defer f.Close()
		if _, err := f.WriteString(strings.Repeat("x", 1<<20)); err != nil {
			return err
		}
		return f.Sync()
	})
}
