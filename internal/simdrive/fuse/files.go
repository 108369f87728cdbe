package fuse

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	gofuse "github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"plugpull/internal/simdrive"
)

const (
	driveName  = "drive"
	driveInode = 2
	// blockSize is the granularity of discard that a loop device takes from StatFs.
	blockSize = 4096
	// forever is how long the kernel need not ask again for what never changes.
	forever = 1000 * time.Hour
)

// power is one power-on. Its number is the handle of the files opened in it.
type power struct {
	number uint64
	dev    Device // nil: none
}

// files is the filesystem: a folder with the drive. What it does not answer, the
// embedded one does with ENOSYS, after which the kernel does without.
type files struct {
	gofuse.RawFileSystem
	size  int64
	power atomic.Pointer[power]
	first atomic.Pointer[error] // see Server.Err

	requests, noPower, stale, failed counters
	opens                            atomic.Uint64
	inFlight                         atomic.Int64
}

func newFiles(size int64) *files {
	f := &files{RawFileSystem: gofuse.NewDefaultRawFileSystem(), size: size}
	f.power.Store(&power{})
	return f
}

// serve counts a request and passes it to the device, if the file that it came
// through is of this power-on.
func (f *files) serve(k kind, file uint64, do func(Device) error) gofuse.Status {
	f.requests[k].Add(1)
	f.inFlight.Add(1)
	defer f.inFlight.Add(-1)
	p := f.power.Load()
	switch {
	case p.number != file:
		f.stale[k].Add(1)
		return gofuse.EIO
	case p.dev == nil:
		f.noPower[k].Add(1)
		return gofuse.EIO
	}
	return f.status(k, do(p.dev))
}

// status counts what became of a request and returns what the kernel is told.
func (f *files) status(k kind, err error) gofuse.Status {
	switch {
	case err == nil:
		return gofuse.OK
	case errors.Is(err, simdrive.ErrPowerOff):
		f.noPower[k].Add(1)
		return gofuse.EIO
	case errors.Is(err, simdrive.ErrStale):
		f.stale[k].Add(1)
		return gofuse.EIO
	}
	f.failed[k].Add(1)
	switch {
	case errors.Is(err, simdrive.ErrAlign), errors.Is(err, simdrive.ErrRange):
		return gofuse.EINVAL
	case !errors.Is(err, simdrive.ErrDead):
		f.keep(err)
	}
	return gofuse.EIO
}

// keep keeps the first failure.
func (f *files) keep(err error) { f.first.CompareAndSwap(nil, &err) }

// panicked keeps a panic, which go-fuse has caught, as a failure.
func (f *files) panicked(v any) gofuse.Status {
	f.keep(fmt.Errorf("panic: %v\n%s", v, debug.Stack()))
	return gofuse.EIO
}

// String implements gofuse.RawFileSystem.
func (f *files) String() string { return fsName }

// Read implements gofuse.RawFileSystem. It reads into the reply's own buffer.
func (f *files) Read(_ <-chan struct{}, in *gofuse.ReadIn, buf []byte) (gofuse.ReadResult, gofuse.Status) {
	off := int64(in.Offset)
	if end := max(0, f.size-off); off >= 0 && int64(len(buf)) > end {
		buf = buf[:end]
	}
	st := f.serve(read, in.Fh, func(d Device) error {
		_, err := d.ReadAt(buf, off)
		return err
	})
	if !st.Ok() {
		return nil, st
	}
	return gofuse.ReadResultData(buf), st
}

// Write implements gofuse.RawFileSystem. After a write with O_DSYNC, O_SYNC or
// RWF_DSYNC to a file with direct I/O the kernel sends no fsync, but these flags.
func (f *files) Write(_ <-chan struct{}, in *gofuse.WriteIn, data []byte) (uint32, gofuse.Status) {
	st := f.serve(write, in.Fh, func(d Device) error {
		_, err := d.WriteAt(data, int64(in.Offset))
		return err
	})
	if st.Ok() && in.Flags&unix.O_DSYNC != 0 {
		st = f.serve(flush, in.Fh, Device.Flush)
	}
	if !st.Ok() {
		return 0, st
	}
	return uint32(len(data)), st
}

// Fsync implements gofuse.RawFileSystem. This is the flush; Flush is of close(2).
func (f *files) Fsync(_ <-chan struct{}, in *gofuse.FsyncIn) gofuse.Status {
	return f.serve(flush, in.Fh, Device.Flush)
}

// Fallocate implements gofuse.RawFileSystem. A loop device sends PUNCH_HOLE with
// KEEP_SIZE for DISCARD and WRITE_ZEROES, ZERO_RANGE with KEEP_SIZE for WRITE_ZEROES
// that may not unmap; the drive never grows, so KEEP_SIZE is no matter.
func (f *files) Fallocate(_ <-chan struct{}, in *gofuse.FallocateIn) gofuse.Status {
	switch in.Mode &^ unix.FALLOC_FL_KEEP_SIZE {
	case unix.FALLOC_FL_PUNCH_HOLE, unix.FALLOC_FL_ZERO_RANGE:
	default:
		return gofuse.Status(unix.EOPNOTSUPP)
	}
	return f.serve(discard, in.Fh, func(d Device) error {
		return d.Discard(int64(in.Offset), int64(in.Length))
	})
}
