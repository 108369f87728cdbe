package fuse_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"plugpull/internal/simdrive"
	"plugpull/internal/simdrive/fuse"
)

// What is written is read, in one request of up to 1 MiB, and nothing but the drive
// holds it.
func TestContents(t *testing.T) {
	r := mountDrive(t, simdrive.Config{})
	st, err := os.Stat(r.s.Path())
	require.NoError(t, err)
	assert.EqualValues(t, driveSize, st.Size())
	assert.True(t, st.Mode().IsRegular())
	entries, err := os.ReadDir(filepath.Dir(r.s.Path()))
	require.NoError(t, err)
	assert.Len(t, entries, 1)

	for name, flags := range map[string]int{"direct": unix.O_DIRECT, "buffered": 0} {
		t.Run(name, func(t *testing.T) {
			f := open(t, r.s.Path(), flags)
			before := r.s.Stats().Requests
			f.write(1, 0, 1<<20)
			f.write(2, 512, 512)
			f.write(3, driveSize-512, 512)
			p := aligned(1 << 20)
			n, err := unix.Pread(f.fd, p, 0)
			require.NoError(t, err)
			assert.Equal(t, 1<<20, n)
			assert.Equal(t, []byte{1, 2, 2, 1, 1}, []byte{p[511], p[512], p[1023], p[1024], p[1<<20-1]})
			n, err = unix.Pread(f.fd, p, driveSize-512)
			require.NoError(t, err)
			assert.Equal(t, 512, n, "the drive ends")
			assert.EqualValues(t, 3, p[0])
			n, err = unix.Pread(f.fd, p, driveSize)
			require.NoError(t, err)
			assert.Zero(t, n)

			after := r.s.Stats().Requests
			assert.EqualValues(t, 3, after.Writes-before.Writes)
			assert.LessOrEqual(t, after.Reads-before.Reads, uint64(4))
			assert.Zero(t, after.Flushes)

			h, err := r.d.PowerOn() // the drive keeps its cache
			require.NoError(t, err)
			r.s.Power(h)
			f = open(t, r.s.Path(), flags)
			require.EqualValues(t, 1, f.at(4096))
			_, err = h.WriteAt(filled(7, 4096), 4096)
			require.NoError(t, err)
			assert.EqualValues(t, 7, f.at(4096), "the page cache holds the drive's data")
		})
	}
}

// A drive has a size and sectors.
func TestRefused(t *testing.T) {
	r := mountDrive(t, simdrive.Config{})
	f := r.open()
	cases := map[string]struct {
		err  unix.Errno
		call func() error
	}{
		"write of part of a sector":  {unix.EINVAL, func() error { _, err := unix.Pwrite(f.fd, filled(1, 100), 0); return err }},
		"write inside a sector":      {unix.EINVAL, func() error { _, err := unix.Pwrite(f.fd, filled(1, 512), 100); return err }},
		"write beyond the end":       {unix.EINVAL, func() error { _, err := unix.Pwrite(f.fd, filled(1, 512), driveSize); return err }},
		"discard of part":            {unix.EINVAL, func() error { return unix.Fallocate(f.fd, punch, 100, 512) }},
		"discard beyond the end":     {unix.EINVAL, func() error { return unix.Fallocate(f.fd, punch, driveSize, 512) }},
		"fallocate":                  {unix.EOPNOTSUPP, func() error { return unix.Fallocate(f.fd, 0, 0, 4096) }},
		"shorter":                    {unix.EPERM, func() error { return unix.Ftruncate(f.fd, 4096) }},
		"open and truncate":          {unix.EPERM, func() error { _, err := unix.Open(r.s.Path(), unix.O_RDWR|unix.O_TRUNC, 0); return err }},
		"another file":               {unix.ENOENT, func() error { _, err := unix.Open(r.s.Path()+"2", unix.O_RDONLY, 0); return err }},
		"shared memory of its pages": {unix.ENODEV, func() error { _, err := unix.Mmap(f.fd, 0, 4096, unix.PROT_WRITE, unix.MAP_SHARED); return err }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.err, c.call()) })
	}
	assert.NoError(t, r.s.Err(), "the caller's mistakes are no failures")
	assert.Equal(t, fuse.Counts{Writes: 3, Discards: 2}, r.s.Stats().Failed)
	f.write(1, 0, 512)
	assert.EqualValues(t, 1, f.at(0))
}

// What was synced survives a cut, and only that.
func TestDurable(t *testing.T) {
	r := mountDrive(t, simdrive.Config{})
	none := func(int) error { return nil }
	dsync := func(fd int) error {
		_, err := unix.Pwritev2(fd, [][]byte{filled(2, 512)}, 0, unix.RWF_DSYNC)
		return err
	}
	for name, c := range map[string]struct {
		flags   int
		sync    func(fd int) error
		durable bool
	}{
		"fsync":     {0, unix.Fsync, true},
		"fdatasync": {0, unix.Fdatasync, true},
		"no sync":   {0, none, false},
		"O_DSYNC":   {unix.O_DSYNC, none, true},
		"O_SYNC":    {unix.O_SYNC, none, true},
		"RWF_DSYNC": {0, dsync, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, r.s.Path(), unix.O_DIRECT|c.flags)
			f.write(1, 0, 512)
			require.NoError(t, unix.Fsync(f.fd))
			f.write(2, 0, 512)
			require.NoError(t, c.sync(f.fd))
			r.d.Cut()
			r.powerOn()
			assert.Equal(t, c.durable, r.open().at(0) == 2)
		})
	}
}

// After a cut every request fails and nothing is done.
func TestCut(t *testing.T) {
	r := mountDrive(t, simdrive.Config{})
	f := r.open()
	f.write(1, 0, 4096)
	require.NoError(t, unix.Fsync(f.fd))
	r.d.Cut()
	for name, call := range f.requests() {
		assert.Equal(t, unix.EIO, call(), name)
		assert.Equal(t, unix.EIO, call(), name)
	}
	all := fuse.Counts{Reads: 2, Writes: 2, Flushes: 2, Discards: 2}
	assert.Equal(t, all, r.s.Stats().NoPower)
	r.s.Power(nil)
	_, err := unix.Open(r.s.Path(), unix.O_RDONLY, 0)
	assert.Equal(t, unix.EIO, err)
	assert.NoError(t, r.s.Err())

	r.powerOn()
	assert.EqualValues(t, 1, r.open().at(0))
	st := r.s.Stats()
	assert.Zero(t, st.Stale.Sum()+st.Failed.Sum())
	assert.EqualValues(t, 2, st.Opens)
	assert.Zero(t, st.InFlight)
}

// A file of an older power-on fails for ever, at the wire and, before the wire
// knows, at the drive.
func TestGenerationFence(t *testing.T) {
	r := mountDrive(t, simdrive.Config{})
	old := r.open()
	old.write(1, 0, 4096)
	require.NoError(t, unix.Fsync(old.fd))
	r.d.Cut()
	h, err := r.d.PowerOn()
	require.NoError(t, err)
	for _, when := range []string{"before the wire knows", "after"} {
		for name, call := range old.requests() {
			assert.Equal(t, unix.EIO, call(), "%s %s", name, when)
		}
		r.s.Power(h)
	}
	assert.Equal(t, fuse.Counts{Reads: 2, Writes: 2, Flushes: 2, Discards: 2}, r.s.Stats().Stale)
	now := r.open()
	assert.EqualValues(t, 1, now.at(0))
	require.NoError(t, unix.Fsync(now.fd))
	r.d.Cut()
	r.powerOn()
	assert.EqualValues(t, 1, r.open().at(0), "a write through the old file came through")
	assert.Equal(t, unix.EIO, old.requests()["read"]())
	assert.EqualValues(t, 1, r.d.Stats().Writes)
}

// The fence does not need the device: a file never changes its power-on.
func TestFenceOfWire(t *testing.T) {
	r := mount(t)
	first, second := newGate(), newGate()
	first.let()
	second.let()
	r.s.Power(first)
	old := r.open()
	r.s.Power(second)
	for name, call := range old.requests() {
		assert.Equal(t, unix.EIO, call(), name)
	}
	assert.Empty(t, first.arrived)
	assert.Empty(t, second.arrived)
	assert.Equal(t, fuse.Counts{Reads: 1, Writes: 1, Flushes: 1, Discards: 1}, r.s.Stats().Stale)
}

// A discarded range reads as zeros, and is as volatile as a write.
func TestDiscard(t *testing.T) {
	const zero = unix.FALLOC_FL_ZERO_RANGE
	for name, mode := range map[string]uint32{"punch": punch, "zero": zero, "zero and keep size": zero | unix.FALLOC_FL_KEEP_SIZE} {
		t.Run(name, func(t *testing.T) {
			r := mountDrive(t, simdrive.Config{})
			f := r.open()
			f.write(1, 0, 8192)
			require.NoError(t, unix.Fsync(f.fd))
			require.NoError(t, unix.Fallocate(f.fd, mode, 512, 4096))
			seen := func(f *file) []byte { return []byte{f.at(511), f.at(512), f.at(4607), f.at(4608)} }
			assert.Equal(t, []byte{1, 0, 0, 1}, seen(f))
			r.d.Cut()
			r.powerOn()
			f = r.open()
			assert.Equal(t, []byte{1, 1, 1, 1}, seen(f))
			require.NoError(t, unix.Fallocate(f.fd, mode, 512, 4096))
			require.NoError(t, unix.Fsync(f.fd))
			r.d.Cut()
			r.powerOn()
			assert.Equal(t, []byte{1, 0, 0, 1}, seen(r.open()))
			assert.EqualValues(t, 2, r.s.Stats().Requests.Discards)
		})
	}
}

// failing is a device all of whose requests fail, or panic where there is no error.
type failing struct{ err error }

func (d failing) fail() error {
	if d.err == nil {
		panic("a bug")
	}
	return d.err
}

func (d failing) ReadAt([]byte, int64) (int, error)  { return 0, d.fail() }
func (d failing) WriteAt([]byte, int64) (int, error) { return 0, d.fail() }
func (d failing) Flush() error                       { return d.fail() }
func (d failing) Discard(_, _ int64) error           { return d.fail() }

// A failure that is not the drive's is EIO for the kernel, and the first is kept.
func TestErr(t *testing.T) {
	broken := errors.New("the base's disk is full")
	for name, c := range map[string]struct {
		err  error
		kept string
	}{
		"base":     {broken, broken.Error()},
		"panic":    {nil, "a bug"},
		"dead":     {simdrive.ErrDead, ""},
		"no power": {simdrive.ErrPowerOff, ""},
		"stale":    {simdrive.ErrStale, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := mount(t)
			r.s.Power(failing{c.err})
			f := r.open()
			for name, call := range f.requests() {
				assert.Equal(t, unix.EIO, call(), name)
			}
			r.s.Power(failing{errors.New("a later one")})
			if c.kept == "" {
				require.NoError(t, r.s.Err())
				return
			}
			assert.Equal(t, unix.EIO, r.open().requests()["write"]())
			require.ErrorContains(t, r.s.Err(), c.kept)
		})
	}
}
