package ledger

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// file is what a Writer does with its file once it is open. All methods block
// on the disk and are called by one goroutine at a time.
type file interface {
	WriteAt(p []byte, off int64) (int, error)
	// Datasync makes durable what was written, and the file's size.
	Datasync() error
	// Close gives up the lock as well.
	Close() error
}

type osFile struct{ *os.File }

func (f osFile) Datasync() error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		// A signal says nothing of the disk; the kernel keeps an error of the
		// disk until a call has reported it.
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// lock takes the lock that makes f's process the only writer, without waiting.
// It belongs to the open file: closing it, or dying, gives it up.
func lock(f *os.File, path string) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return &LockedError{Path: path}
		case !errors.Is(err, unix.EINTR):
			return fmt.Errorf("ledger %s: lock: %w", path, err)
		}
	}
}

// syncDir makes the file's name durable.
func syncDir(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer d.Close() //nolint:errcheck // opened for reading
	return d.Sync()
}

// regular refuses what could block a reader or change under it: pipes, devices,
// directories.
func regular(f *os.File, path string) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("%s: not a regular file: %w", path, ErrNotLedger)
	}
	return nil
}

// advise adds to a disk's error what a person can do about it.
func advise(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%w (the disk under the ledger is full: make room there and start again with the same ledger; what it recorded so far stays valid)", err)
	}
	return err
}
