package sqlitevfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/util/vfsutil"
	"github.com/ncruces/go-sqlite3/vfs"
)

// registration is what Register leaves to be undone.
type registration struct {
	mu   sync.Mutex
	name string
	dir  string // of the WAL indexes
}

// Register makes the file layer a VFS of SQLite and returns its name, which is
// unique in the process. The WAL index, which is shared memory and never
// survives a power cut, is kept in a new folder of the host inside dir; empty means
// the host's folder for temporary files. The caller must call Unregister.
func (fs *FS) Register(dir string) (string, error) {
	fs.reg.mu.Lock()
	defer fs.reg.mu.Unlock()
	if fs.reg.name != "" {
		return fs.reg.name, nil
	}
	tmp, err := os.MkdirTemp(dir, "plugpull-shm-")
	if err != nil {
		return "", fmt.Errorf("make a folder for the WAL index: %w", err)
	}
	// The registry keeps fs alive, so no other FS has its address meanwhile.
	fs.reg.name, fs.reg.dir = fmt.Sprintf("plugpull-%p", fs), tmp
	vfs.Register(fs.reg.name, sqliteVFS{fs, tmp})
	return fs.reg.name, nil
}

// Unregister takes the VFS out of SQLite and removes the WAL index. Every connection must
// be closed before. It may be repeated.
func (fs *FS) Unregister() error {
	fs.reg.mu.Lock()
	defer fs.reg.mu.Unlock()
	if fs.reg.name == "" {
		return nil
	}
	vfs.Unregister(fs.reg.name)
	fs.reg.name = ""
	if err := os.RemoveAll(fs.reg.dir); err != nil {
		return fmt.Errorf("remove the WAL index: %w", err)
	}
	return nil
}

// sqliteVFS is the FS in SQLite's words. SQLite gets the code of the failed request
// from the library (SQLITE_IOERR_READ …), with the device's error beneath it.
type sqliteVFS struct {
	fs  *FS
	dir string
}

// Open implements vfs.VFS. Files without a name are temporary ones, and are kept in memory.
func (v sqliteVFS) Open(name string, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	if name == "" {
		return &vfsutil.SliceFile{}, flags | vfs.OPEN_MEMORY, nil
	}
	const exclusive = vfs.OPEN_EXCLUSIVE | vfs.OPEN_CREATE
	if flags&exclusive == exclusive && v.fs.Exists(name) {
		return nil, flags, sqlite3.CANTOPEN
	}
	f, err := v.fs.open(name, flags&vfs.OPEN_CREATE != 0)
	if err != nil {
		return nil, flags, code(err)
	}
	// By the extent: a file that was deleted and made again shares nothing with the old one.
	shm := filepath.Join(v.dir, fmt.Sprintf("%d-shm", f.ino.slot))
	return &sqliteFile{
		File:     f,
		shm:      vfs.NewSharedMemory(shm, flags),
		readOnly: flags&vfs.OPEN_READONLY != 0,
		erase:    flags&vfs.OPEN_DELETEONCLOSE != 0,
	}, flags, nil
}

// Delete implements vfs.VFS.
func (v sqliteVFS) Delete(name string, syncDir bool) error {
	err := v.fs.Delete(name, syncDir)
	if errors.Is(err, ErrNotExist) {
		return sqlite3.IOERR_DELETE_NOENT
	}
	return err
}

// Access implements vfs.VFS.
func (v sqliteVFS) Access(name string, _ vfs.AccessFlag) (bool, error) {
	return v.fs.Exists(name), nil
}

// FullPathname implements vfs.VFS: there are no folders.
func (v sqliteVFS) FullPathname(name string) (string, error) {
	name = strings.TrimPrefix(name, "/")
	// SQLite adds the name of its journal or WAL.
	if err := checkName(name + "-journal"); err != nil {
		return "", err
	}
	return name, nil
}

// code gives SQLite the result code of errors that are not the device's.
func code(err error) error {
	if errors.Is(err, ErrFull) {
		return vfs.SystemError(err, sqlite3.FULL)
	}
	return err
}

// sqliteFile is an open file in SQLite's words: one connection's.
type sqliteFile struct {
	*File
	shm      vfs.SharedMemory
	readOnly bool
	erase    bool          // when it is closed
	level    vfs.LockLevel // guarded by the inode's locks
}

var (
	_ vfs.FileSharedMemory = (*sqliteFile)(nil)
	_ vfs.FileHasMoved     = (*sqliteFile)(nil)
	_ vfs.FileLockState    = (*sqliteFile)(nil)
)

// Close implements vfs.File.
func (f *sqliteFile) Close() error {
	if f.shm != nil {
		_ = f.shm.Close() // it was never opened, or is unmapped
	}
	f.ino.locks.unlock(f, vfs.LOCK_NONE)
	if f.erase {
		_ = f.fs.Delete(f.ino.name, false)
	}
	return f.File.Close()
}

// WriteAt implements vfs.File.
func (f *sqliteFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(p, off)
	return n, code(err)
}

// Truncate implements vfs.File.
func (f *sqliteFile) Truncate(size int64) error { return code(f.File.Truncate(size)) }

// Sync implements vfs.File. SYNC_DATAONLY changes nothing: a size that SQLite relies on
// must be durable with it, as after fdatasync.
func (f *sqliteFile) Sync(vfs.SyncFlag) error { return f.File.Sync() }

// Size implements vfs.File.
func (f *sqliteFile) Size() (int64, error) { return f.File.Size(), nil }

// Lock implements vfs.File.
func (f *sqliteFile) Lock(level vfs.LockLevel) error { return f.ino.locks.lock(f, level) }

// Unlock implements vfs.File.
func (f *sqliteFile) Unlock(level vfs.LockLevel) error {
	f.ino.locks.unlock(f, level)
	return nil
}

// CheckReservedLock implements vfs.File.
func (f *sqliteFile) CheckReservedLock() (bool, error) { return f.ino.locks.reserved(), nil }

// LockState implements vfs.FileLockState.
func (f *sqliteFile) LockState() vfs.LockLevel { return f.level }

// SectorSize implements vfs.File.
func (f *sqliteFile) SectorSize() int { return sector }

// DeviceCharacteristics implements vfs.File: see the package comment.
func (f *sqliteFile) DeviceCharacteristics() vfs.DeviceCharacteristic {
	return vfs.IOCAP_POWERSAFE_OVERWRITE | vfs.IOCAP_SUBPAGE_READ
}

// HasMoved implements vfs.FileHasMoved.
func (f *sqliteFile) HasMoved() (bool, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return f.ino.deleted, nil
}

// SharedMemory implements vfs.FileSharedMemory.
func (f *sqliteFile) SharedMemory() vfs.SharedMemory { return f.shm }
