package fuse_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"plugpull/internal/simdrive"
	"plugpull/internal/simdrive/fuse"
	"plugpull/internal/testskip"
)

// run runs a command to its end and returns what it said.
func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := try(name, args...)
	require.NoError(t, err, "%s %v: %s", name, args, out)
	return out
}

func try(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	c := exec.CommandContext(ctx, name, args...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := c.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// loop attaches a loop device to the drive; the test's end detaches it.
func (r *rig) loop() string {
	t := r.t
	t.Helper()
	for _, tool := range []string{"losetup", "mkfs.ext4", "blkdiscard"} {
		if _, err := exec.LookPath(tool); err != nil {
			testskip.Skip(t, "needs util-linux and e2fsprogs: %v", err)
		}
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		testskip.Skip(t, "needs loop devices: %v", err)
	}
	dev := run(t, "losetup", "--find", "--show", "--direct-io=on", "--sector-size=512", r.s.Path())
	t.Cleanup(func() {
		if t.Failed() {
			_ = r.s.Abort() // before what waits for it
		}
		detach(t, dev, r.s.Path())
	})
	queue := filepath.Join("/sys/block", filepath.Base(dev), "queue")
	// It sticks to a loop device, whoever had it before.
	require.NoError(t, os.WriteFile(filepath.Join(queue, "write_cache"), []byte("write back"), 0))
	for name, want := range map[string]string{"write_cache": "write back", "fua": "0", "discard_granularity": "4096"} {
		got, err := os.ReadFile(filepath.Join(queue, name))
		require.NoError(t, err)
		require.Equal(t, want, strings.TrimSpace(string(got)), name)
	}
	require.Equal(t, "1", run(t, "losetup", "--noheadings", "--output", "DIO", dev))
	return dev
}

// detach detaches a loop device if it is still attached to the drive.
func detach(t testing.TB, dev, path string) {
	t.Helper()
	if back, err := try("losetup", "--noheadings", "--output", "BACK-FILE", dev); err == nil && back == path {
		run(t, "losetup", "--detach", dev)
	}
}

// mountExt4 mounts dev with a journal that commits only when it is asked to.
func mountExt4(t testing.TB, dev string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	run(t, "mount", "-t", "ext4", "-o", "commit=3600,noatime", dev, dir)
	t.Cleanup(func() { unmountExt4(t, dir) })
	return dir
}

// unmountExt4 unmounts what is mounted, whose device may have no power.
func unmountExt4(t testing.TB, dir string) {
	t.Helper()
	if err := unix.Unmount(dir, 0); !errors.Is(err, unix.EINVAL) {
		require.NoError(t, err)
	}
}

func makeExt4(t testing.TB, dev string) {
	t.Helper()
	run(t, "mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", dev)
}

// On ext4 a synced write survives the cut, one that is only written does not, and
// what the old mount still writes after the power-on reaches nothing.
func TestExt4(t *testing.T) {
	needFUSE(t)
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	// Else a namespace that another process begins meanwhile could keep ext4 mounted.
	require.NoError(t, unshare())
	r := mountDrive(t, simdrive.Config{})
	dev := r.loop()
	makeExt4(t, dev)
	dir := mountExt4(t, dev)
	synced, written := filepath.Join(dir, "synced"), filepath.Join(dir, "written")
	a := open(t, synced, unix.O_CREAT|unix.O_DIRECT)
	b := open(t, written, unix.O_CREAT|unix.O_DIRECT)
	a.write(1, 0, 8192)
	b.write(1, 0, 8192)
	require.NoError(t, unix.Syncfs(a.fd)) // not sync(2), which waits for every disk of the machine

	before := r.s.Stats().Requests
	a.write(2, 0, 4096)
	require.NoError(t, unix.Fdatasync(a.fd))
	after := r.s.Stats().Requests
	assert.EqualValues(t, 1, after.Flushes-before.Flushes, "an overwrite with fdatasync is one flush")
	assert.EqualValues(t, 1, after.Writes-before.Writes)
	b.write(2, 0, 4096)
	require.EqualValues(t, 2, b.at(0))
	require.Equal(t, after.Flushes, r.s.Stats().Requests.Flushes, "something flushed meanwhile")
	report := r.d.Cut()
	assert.GreaterOrEqual(t, report.DroppedBytes, int64(4096))

	r.powerOn()
	for range 3 {
		_, err := unix.Pwrite(a.fd, filled(3, 4096), 0)
		assert.Error(t, err)
	}
	assert.GreaterOrEqual(t, r.s.Stats().Stale.Writes, uint64(1), "writes of the old mount")
	a.close()
	b.close()
	unmountExt4(t, dir)
	run(t, "losetup", "--detach", dev)
	assert.Zero(t, r.d.Stats().DirtyBytes, "the old mount wrote into the new image")

	dev = r.loop()
	dir = mountExt4(t, dev)
	a, b = open(t, filepath.Join(dir, "synced"), 0), open(t, filepath.Join(dir, "written"), 0)
	assert.Equal(t, []byte{2, 1}, []byte{a.at(0), a.at(4096)})
	assert.Equal(t, []byte{1, 1}, []byte{b.at(0), b.at(4096)})
	a.close()
	b.close()
	assert.NoError(t, r.s.Err())
	assert.Zero(t, r.s.Stats().Failed.Sum())
}

// What a loop device makes of a block device's requests.
func TestLoopRequests(t *testing.T) {
	r := mountDrive(t, simdrive.Config{})
	dev := r.loop()
	f := open(t, dev, unix.O_DIRECT)
	count := func(what func()) fuse.Counts {
		a := r.s.Stats().Requests
		what()
		b := r.s.Stats().Requests
		return fuse.Counts{Writes: b.Writes - a.Writes, Flushes: b.Flushes - a.Flushes, Discards: b.Discards - a.Discards}
	}
	for _, c := range []struct {
		name string
		call func()
		want fuse.Counts
	}{
		{"write of a sector", func() { f.write(1, 512, 512) }, fuse.Counts{Writes: 1}},
		{"write", func() { f.write(1, 0, 65536) }, fuse.Counts{Writes: 1}},
		{"fsync", func() { require.NoError(t, unix.Fsync(f.fd)) }, fuse.Counts{Flushes: 1}},
		{"O_DSYNC write", func() {
			_, err := unix.Pwritev2(f.fd, [][]byte{filled(2, 4096)}, 0, unix.RWF_DSYNC)
			require.NoError(t, err)
		}, fuse.Counts{Writes: 1, Flushes: 2}}, // of FUA, and of the sync
		{"discard", func() { run(t, "blkdiscard", "-o", "4096", "-l", "4096", dev) }, fuse.Counts{Discards: 1}},
		{"write zeros", func() { run(t, "blkdiscard", "-z", "-o", "16384", "-l", "8192", dev) }, fuse.Counts{Discards: 1}},
	} {
		got := count(c.call)
		if c.name == "discard" || c.name == "write zeros" {
			got.Flushes = 0 // closing the device may flush
		}
		assert.Equal(t, c.want, got, c.name)
	}
	assert.Equal(t, []byte{2, 0, 0, 1, 0, 0, 1},
		[]byte{f.at(4095), f.at(4096), f.at(8191), f.at(8192), f.at(16384), f.at(24575), f.at(24576)})
	assert.Zero(t, r.s.Stats().Failed.Sum())
	f.close()
}

// gatedWrites is a device whose writes wait.
type gatedWrites struct {
	fuse.Device
	*gate
}

func (d gatedWrites) ReadAt(p []byte, off int64) (int, error) { return d.Device.ReadAt(p, off) }
func (d gatedWrites) Flush() error                            { return d.Device.Flush() }
func (d gatedWrites) Discard(off, n int64) error              { return d.Device.Discard(off, n) }
func (d gatedWrites) WriteAt(p []byte, off int64) (int, error) {
	d.pass("write")
	return d.Device.WriteAt(p, off)
}

// A loop device has many writes under way, though it has one thread.
func TestLoopOverlaps(t *testing.T) {
	r := mountDrive(t, simdrive.Config{})
	h, err := r.d.PowerOn()
	require.NoError(t, err)
	d := gatedWrites{h, newGate()}
	t.Cleanup(d.let)
	r.s.Power(d)
	dev := r.loop()
	f := open(t, dev, unix.O_DIRECT)
	const writers = 32
	ended := make(chan error, writers)
	for i := range int64(writers) {
		go func() {
			_, err := unix.Pwrite(f.fd, filled(byte(i+1), 4096), i*65536)
			ended <- err
		}()
	}
	for range writers {
		wait(t, "all writes at once", d.arrived)
	}
	assert.Zero(t, f.at(1<<20), "a read passes them")
	d.let()
	for range writers {
		assert.NoError(t, wait(t, "their end", ended))
	}
	for i := range int64(writers) {
		assert.EqualValues(t, i+1, f.at(i*65536))
	}
	f.close()
}

// Abort frees a loop device, and all that is on it, from a device that hangs.
func TestAbortFreesTheLoop(t *testing.T) {
	r := mountDrive(t, simdrive.Config{})
	h, err := r.d.PowerOn()
	require.NoError(t, err)
	g := newGate()
	r.s.Power(gatedWrites{h, g})
	dev := r.loop()
	t.Cleanup(g.let)
	child := exec.Command("dd", "if=/dev/zero", "of="+dev, "bs=1M", "count=4", "conv=fsync")
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, child.Start())
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	wait(t, "a write", g.arrived)
	require.NoError(t, r.s.Abort())
	assert.Error(t, wait(t, "the child's end", ended))
	detach(t, dev, r.s.Path())
	g.let()
	r.close()
	assert.Empty(t, mountOf(t, filepath.Dir(r.s.Path())))
}
