package witness

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"golang.org/x/sys/unix"
)

// osFile is a file that is read and written past the page cache.
type osFile struct{ fd int }

// OpenFile opens a file that is there for O_DIRECT, which the filesystem has to take. It
// blocks on the disk. The error of a file that is gone is fs.ErrNotExist.
func OpenFile(path string) (File, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return osFile{fd}, nil
}

func (f osFile) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		got, err := unix.Pread(f.fd, p[n:], off+int64(n))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return n, err
		case got == 0:
			return n, io.EOF
		default:
			n += got
		}
	}
	return n, nil
}

func (f osFile) WriteAt(p []byte, off int64) (int, error) {
	for {
		n, err := unix.Pwrite(f.fd, p, off)
		switch {
		case errors.Is(err, unix.EINTR):
		case err == nil && n < len(p):
			return n, io.ErrShortWrite
		default:
			return n, err
		}
	}
}

// Sync waits for fdatasync(2), which covers the size as well.
func (f osFile) Sync() error {
	for {
		if err := unix.Fdatasync(f.fd); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func (f osFile) Size() (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(f.fd, &st); err != nil {
		return 0, fmt.Errorf("fstat: %w", err)
	}
	return st.Size, nil
}

func (f osFile) Close() error { return unix.Close(f.fd) }
