package sqlitevfs

import (
	"fmt"
	"io"
)

// File is an open file. Its methods may be called concurrently; after Close
// they must not be called.
type File struct {
	fs  *FS
	ino *inode
}

// ReadAt reads what was written last. The error is io.EOF at the end of the file,
// else the device's.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if off < 0 {
		return 0, fmt.Errorf("read %s: offset %d", f.ino.name, off)
	}
	n := int(min(int64(len(p)), max(0, f.ino.size-off)))
	if n > 0 {
		if m, err := f.fs.dev.ReadAt(p[:n], f.fs.base(f.ino)+off); err != nil {
			return m, fmt.Errorf("read %s: %w", f.ino.name, err)
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt writes to the device and does not flush. The file grows as far as
// needed; a gap reads as zeros. The error wraps ErrFull, before anything was written, where the
// extent is too small, else it is the device's and the write may be there in part.
func (f *File) WriteAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if off < 0 {
		return 0, fmt.Errorf("write %s: offset %d", f.ino.name, off)
	}
	if off > f.fs.extent-int64(len(p)) {
		return 0, fmt.Errorf("write %s: %w: %d bytes at %d in an extent of %d", f.ino.name, ErrFull, len(p), off, f.fs.extent)
	}
	err := f.fs.zero(f.ino, off)
	if err == nil {
		err = f.fs.write(f.ino, p, off)
	}
	if err != nil {
		return 0, fmt.Errorf("write %s: %w", f.ino.name, err)
	}
	return len(p), nil
}

// Truncate sets the size, in memory until the next Sync. What it adds reads as
// zeros. It waits for a Sync of the file that is under way.
func (f *File) Truncate(size int64) error {
	f.ino.syncing.Lock()
	defer f.ino.syncing.Unlock()
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if size < 0 || size > f.fs.extent {
		return fmt.Errorf("truncate %s to %d bytes: %w", f.ino.name, size, ErrFull)
	}
	if err := f.fs.zero(f.ino, size); err != nil {
		return fmt.Errorf("truncate %s: %w", f.ino.name, err)
	}
	if ino := f.ino; size == 0 && ino.durable && ino.durSize > 0 && ino.durHalf == ino.half {
		ino.half = 1 - ino.half // what is durable stays as it is
	}
	f.ino.size = size
	return nil
}

// Size returns the size in bytes.
func (f *File) Size() int64 {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return f.ino.size
}

// Sync makes durable what was written before it was called, the file's existence
// and its size. It blocks on the device: one flush, or two and the write of an entry
// between them where the size or the existence is new.
func (f *File) Sync() error {
	ino := f.ino
	ino.syncing.Lock()
	defer ino.syncing.Unlock()

	f.fs.mu.Lock()
	size := ino.size // what is written from now on is not covered
	same := ino.deleted || ino.durable && ino.durSize == size && ino.durHalf == ino.half
	f.fs.mu.Unlock()

	err := f.fs.flush()
	if err == nil && !same {
		err = f.syncEntry(size)
	}
	if err != nil {
		return fmt.Errorf("sync %s: %w", ino.name, err)
	}
	return nil
}

// syncEntry makes an entry with size durable. The inode's syncing is held.
func (f *File) syncEntry(size int64) error {
	ino := f.ino
	f.fs.mu.Lock()
	ino.entry = true // also if the write fails: it may be there
	err := f.fs.writeEntry(ino.slot, entry{exists: true, size: size, half: ino.half, name: ino.name})
	f.fs.mu.Unlock()
	if err != nil {
		return err
	}
	if err := f.fs.flush(); err != nil {
		return err
	}
	f.fs.mu.Lock()
	s := &f.fs.slots[ino.slot]
	s.home = 1 - s.home
	ino.durable, ino.durSize, ino.durHalf = true, size, ino.half
	f.fs.mu.Unlock()
	return nil
}

// Close lets go of the file. It syncs nothing.
func (f *File) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	ino := f.ino
	if ino.refs--; ino.refs == 0 && ino.deleted {
		f.fs.slots[ino.slot].ino = nil
	}
	return nil
}

func (fs *FS) base(ino *inode) int64 {
	return offExtents + (2*int64(ino.slot)+int64(ino.half))*fs.extent
}

const zeroChunk = 64 << 10

// zero fills from the end of the file up to end, which may lie before it.
func (fs *FS) zero(ino *inode, end int64) error {
	for ino.size < end {
		n := min(end-ino.size, zeroChunk-ino.size%sector)
		if err := fs.write(ino, make([]byte, n), ino.size); err != nil {
			return err
		}
	}
	return nil
}

// write writes p, with the rest of the sectors that it shares, in one request. FS.mu is held.
func (fs *FS) write(ino *inode, p []byte, off int64) error {
	if len(p) == 0 {
		return nil
	}
	end := off + int64(len(p))
	lo, hi := off/sector*sector, (end+sector-1)/sector*sector
	b := p
	if lo != off || hi != end {
		if int64(cap(fs.buf)) < hi-lo {
			fs.buf = make([]byte, hi-lo)
		}
		b = fs.buf[:hi-lo]
		if lo != off {
			if err := fs.rest(ino, b[:sector], lo); err != nil {
				return err
			}
		}
		if hi != end && (lo == off || hi-lo > sector) {
			if err := fs.rest(ino, b[len(b)-sector:], hi-sector); err != nil {
				return err
			}
		}
		copy(b[off-lo:], p)
	}
	if _, err := fs.dev.WriteAt(b, fs.base(ino)+lo); err != nil {
		return err
	}
	ino.size = max(ino.size, end)
	return nil
}

// rest reads the sector at off that is about to be written in part; what lies
// beyond the end of the file is zero, whatever an older file left there.
func (fs *FS) rest(ino *inode, b []byte, off int64) error {
	have := min(sector, max(0, ino.size-off))
	clear(b[have:])
	if have == 0 {
		return nil
	}
	_, err := fs.dev.ReadAt(b[:have], fs.base(ino)+off)
	return err
}
