package sqlitevfs

import (
	"sync"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"
)

// locks are SQLite's locks on one file, between the connections of one process.
type locks struct {
	mu      sync.Mutex
	shared  int         // connections that hold SHARED or more
	writer  *sqliteFile // who holds RESERVED or more
	pending bool        // writer waits for readers to leave, or has EXCLUSIVE
}

// lock raises f's lock or returns BUSY; it never waits, since SQLite's busy handler does.
func (l *locks) lock(f *sqliteFile, want vfs.LockLevel) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.level >= want {
		return nil
	}
	if f.readOnly && want >= vfs.LOCK_RESERVED {
		return sqlite3.IOERR_LOCK
	}
	if want >= vfs.LOCK_RESERVED && l.writer != nil && l.writer != f {
		return sqlite3.BUSY
	}
	switch want {
	case vfs.LOCK_SHARED:
		if l.pending {
			return sqlite3.BUSY
		}
		l.shared++
	case vfs.LOCK_RESERVED:
		l.writer = f
	case vfs.LOCK_EXCLUSIVE:
		l.writer, l.pending, f.level = f, true, vfs.LOCK_PENDING
		if l.shared > 1 {
			return sqlite3.BUSY // PENDING is kept, so that no new reader comes in
		}
	}
	f.level = want
	return nil
}

// unlock lowers f's lock to SHARED or NONE.
func (l *locks) unlock(f *sqliteFile, to vfs.LockLevel) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.level <= to {
		return
	}
	if l.writer == f {
		l.writer, l.pending = nil, false
	}
	if to == vfs.LOCK_NONE {
		l.shared--
	}
	f.level = to
}

// reserved reports whether any connection holds RESERVED or more.
func (l *locks) reserved() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writer != nil
}
