package sqlitevfs

import (
	"errors"
	"fmt"
	"sync"
)

// Device is what the files are on. Reads may have any offset and length; writes
// are of whole, aligned sectors of 512 bytes. Flush makes durable what was
// written before it was called. All methods may be called concurrently.
type Device interface {
	ReadAt(p []byte, off int64) (int, error)
	WriteAt(p []byte, off int64) (int, error)
	Flush() error
	Size() int64
}

// Errors that are not the device's own, which are wrapped as they are.
var (
	// ErrDamaged: the device holds no file layer, or one that is damaged.
	ErrDamaged = errors.New("the file layer on the device is damaged or was never made")
	// ErrFull: the extent of a file, or every extent, is full.
	ErrFull = errors.New("no room on the device")
	// ErrNotExist: there is no file of that name.
	ErrNotExist = errors.New("no such file")
)

// FS is a mounted file layer. Its methods may be called concurrently.
type FS struct {
	dev    Device
	extent int64

	mu    sync.Mutex // not held during a flush
	slots [files]slot
	seq   uint64 // of the last entry written
	buf   []byte // for partial sectors

	// A write is durable when a flush that began after it is done.
	begun, done uint64

	reg registration
}

// slot is a directory entry with its two extents. FS.mu guards it.
type slot struct {
	ino  *inode // nil: free, or gone
	home uint8  // the copy of the entry that is durable
	// gone: a deletion was written when so many flushes had begun; the slot is free once
	// a later one is done.
	gone   bool
	goneAt uint64
}

// inode is a file, which may be open under no name any more.
type inode struct {
	name string
	slot int
	// syncing is held while an entry is written and flushed: two writes under way at once
	// could tear both copies. Taken before FS.mu.
	syncing sync.Mutex

	// FS.mu guards the rest.
	size    int64
	half    uint8 // the extent that it is in
	refs    int
	deleted bool
	entry   bool  // an entry that says that it exists may be on the device
	durable bool  // one is
	durSize int64 // the size that it says
	durHalf uint8 // and the extent

	locks locks
}

// Format makes an empty file layer and flushes it. What was on the device is lost.
func Format(dev Device) error {
	extent := (dev.Size() - offExtents) / (2 * files) / grain * grain
	if extent <= 0 {
		return fmt.Errorf("format: a device of %d bytes is too small: want at least %d", dev.Size(), offExtents+2*files*grain)
	}
	b := make([]byte, offExtents)
	encodeSuper(b[offSuper:offSuper+sector], extent)
	for i := range files {
		for c := range uint8(2) {
			at := entryAt(i, c)
			(&entry{seq: uint64(1 - c)}).encode(b[at:at+sector], i)
		}
	}
	if _, err := dev.WriteAt(b, 0); err != nil {
		return fmt.Errorf("format: %w", err)
	}
	if err := dev.Flush(); err != nil {
		return fmt.Errorf("format: %w", err)
	}
	return nil
}

// Mount reads the directory of a device. It writes only where two entries have
// the same name, of which the newer stands: an honest device never shows that.
// The error wraps ErrDamaged where the directory cannot be trusted, else it is the device's.
func Mount(dev Device) (*FS, error) {
	b := make([]byte, offExtents)
	if dev.Size() < offExtents {
		return nil, fmt.Errorf("mount: %w: a device of %d bytes", ErrDamaged, dev.Size())
	}
	if _, err := dev.ReadAt(b, 0); err != nil {
		return nil, fmt.Errorf("mount: %w", err)
	}
	extent, err := decodeSuper(b[offSuper:offSuper+sector], dev.Size())
	if err != nil {
		return nil, fmt.Errorf("mount: %w", err)
	}
	fs := &FS{dev: dev, extent: extent}
	var found [files]entry
	for i := range files {
		e, home, err := newest(b, i, extent)
		if err != nil {
			return nil, fmt.Errorf("mount: %w", err)
		}
		found[i] = e
		fs.slots[i].home = home
		fs.seq = max(fs.seq, e.seq)
	}
	if err := fs.adopt(found[:]); err != nil {
		return nil, fmt.Errorf("mount: %w", err)
	}
	return fs, nil
}

// newest returns the copy of an entry that stands.
func newest(b []byte, slot int, extent int64) (e entry, home uint8, err error) {
	at, bt := entryAt(slot, 0), entryAt(slot, 1)
	a, errA := decodeEntry(b[at:at+sector], slot, extent)
	o, errB := decodeEntry(b[bt:bt+sector], slot, extent)
	switch {
	case errA != nil && errB != nil:
		return entry{}, 0, errors.Join(errA, errB)
	case errA != nil || errB == nil && o.seq > a.seq:
		return o, 1, nil
	}
	return a, 0, nil
}

// adopt makes inodes of the entries that were found.
func (fs *FS) adopt(found []entry) error {
	stale := false
	for i, e := range found {
		if !e.exists {
			continue
		}
		superseded := false
		for _, o := range found {
			superseded = superseded || o.exists && o.name == e.name && o.seq > e.seq
		}
		fs.slots[i].ino = &inode{name: e.name, slot: i, size: e.size, half: e.half, entry: true, durable: true, durSize: e.size, durHalf: e.half}
		if superseded {
			stale = true
			if err := fs.bury(&fs.slots[i]); err != nil {
				return err
			}
		}
	}
	if stale { // else they could come back when the newer one is deleted
		return fs.flush()
	}
	return nil
}

// flush makes durable what was written before the call.
func (fs *FS) flush() error {
	fs.mu.Lock()
	fs.begun++
	n := fs.begun
	fs.mu.Unlock()
	if err := fs.dev.Flush(); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	fs.mu.Lock()
	fs.done = max(fs.done, n)
	fs.mu.Unlock()
	return nil
}

// Sync makes everything durable, as an orderly unmount does. Connections may be open.
func (fs *FS) Sync() error {
	fs.mu.Lock()
	var open []*File
	for i := range fs.slots {
		if ino := fs.slots[i].ino; ino != nil {
			open = append(open, &File{fs: fs, ino: ino})
		}
	}
	fs.mu.Unlock()
	for _, f := range open { // of one that is deleted meanwhile it makes that durable
		if err := f.Sync(); err != nil {
			return err
		}
	}
	return fs.flush()
}

// writeEntry writes e over the copy that is not durable. FS.mu is held.
func (fs *FS) writeEntry(i int, e entry) error {
	fs.seq++
	e.seq = fs.seq
	var b [sector]byte
	e.encode(b[:], i)
	if _, err := fs.dev.WriteAt(b[:], entryAt(i, 1-fs.slots[i].home)); err != nil {
		return fmt.Errorf("write directory entry %d: %w", i, err)
	}
	return nil
}

// bury takes a file's name away and writes its deletion. FS.mu is held (or the
// FS is not shared yet).
func (fs *FS) bury(s *slot) error {
	if s.ino.entry {
		if err := fs.writeEntry(s.ino.slot, entry{}); err != nil {
			return err
		}
		s.gone, s.goneAt = true, fs.begun
	}
	s.ino.deleted = true
	if s.ino.refs == 0 {
		s.ino = nil
	}
	return nil
}

// find returns the slot of a file, nil if there is none. FS.mu is held.
func (fs *FS) find(name string) *slot {
	for i := range fs.slots {
		if ino := fs.slots[i].ino; ino != nil && !ino.deleted && ino.name == name {
			return &fs.slots[i]
		}
	}
	return nil
}

// free returns a slot that nothing on the device can claim, or -1. FS.mu is held.
func (fs *FS) free() int {
	for i := range fs.slots {
		s := &fs.slots[i]
		if s.ino != nil {
			continue
		}
		if s.gone && fs.done > s.goneAt {
			s.gone, s.home = false, 1-s.home
		}
		if !s.gone {
			return i
		}
	}
	return -1
}

// Exists reports whether there is a file of that name.
func (fs *FS) Exists(name string) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.find(name) != nil
}

// File opens a file and creates it if need be: then it is empty, and durable
// after its first Sync. The caller must close it. The error wraps ErrFull where no
// extent is left.
func (fs *FS) File(name string) (*File, error) { return fs.open(name, true) }

func (fs *FS) open(name string, create bool) (*File, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	s := fs.find(name)
	if s == nil && !create {
		return nil, fmt.Errorf("open %s: %w", name, ErrNotExist)
	}
	if s == nil {
		i := fs.free()
		if i < 0 { // as a filesystem does when deletions hold the room
			fs.mu.Unlock()
			err := fs.flush()
			fs.mu.Lock()
			if err != nil {
				return nil, fmt.Errorf("create %s: %w", name, err)
			}
			if s = fs.find(name); s == nil {
				i = fs.free()
			}
		}
		if s == nil {
			if i < 0 {
				return nil, fmt.Errorf("create %s: %w: there are %d files", name, ErrFull, files)
			}
			s = &fs.slots[i]
			s.ino = &inode{name: name, slot: i}
		}
	}
	s.ino.refs++
	return &File{fs: fs, ino: s.ino}, nil
}

// Delete takes a file away; those who have it open keep it. With syncDir it
// returns when the deletion is durable, else it is written and not flushed. The error
// wraps ErrNotExist where there is no such file.
func (fs *FS) Delete(name string, syncDir bool) error {
	fs.mu.Lock()
	s := fs.find(name)
	if s == nil {
		fs.mu.Unlock()
		return fmt.Errorf("delete %s: %w", name, ErrNotExist)
	}
	ino := s.ino
	fs.mu.Unlock()

	ino.syncing.Lock()
	defer ino.syncing.Unlock()
	fs.mu.Lock()
	if ino.deleted {
		fs.mu.Unlock()
		return fmt.Errorf("delete %s: %w", name, ErrNotExist)
	}
	err := fs.bury(s)
	fs.mu.Unlock()
	if err == nil && syncDir {
		err = fs.flush()
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", name, err)
	}
	return nil
}
