package blockdev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"golang.org/x/sys/unix"
)

// Options of a loop device. The zero value is 512-byte blocks, through the page
// cache, writable, attached until detached, with a write-back cache.
type Options struct {
	// BlockSize is the logical block size in bytes; 0 means 512. The kernel's own default
	// depends on the filesystem of the backing file, so that it is never asked for.
	BlockSize int
	// DirectIO keeps the host's page cache out.
	DirectIO bool
	ReadOnly bool
	// Autoclear detaches the device when nothing has it open any more. The Loop itself
	// has it open: this is what cleans up after a process that was killed.
	Autoclear bool
	// WriteCache is what the kernel is to believe of the device; "" means WriteBack. It
	// is always set, since a loop device keeps the setting of its last user. A
	// read-only device has none: it is WriteThrough or "".
	WriteCache WriteCache
}

// Loop is a loop device attached by this process. Safe for concurrent use.
type Loop struct {
	number       int
	readOnly     bool
	major, minor uint32
	seq          string // diskseq while attached; "" where the kernel has none (before 5.15)
	backing      string // the kernel's name of the backing file

	mu sync.Mutex
	fd int // read-only; -1 once detached
}

// Number is N of /dev/loopN. It says nothing about the minor number.
func (l *Loop) Number() int { return l.number }

// Name is the kernel's name, which its messages and /sys/block use: "loop3".
func (l *Loop) Name() string { return loopName(l.number) }

// Path is the device: "/dev/loop3".
func (l *Loop) Path() string { return "/dev/" + l.Name() }

// Major is the major device number.
func (l *Loop) Major() uint32 { return l.major }

// Minor is the minor device number.
func (l *Loop) Minor() uint32 { return l.minor }

// Queue reads what the kernel believes of the device now.
func (l *Loop) Queue() (Queue, error) { return ReadQueue(l.Name()) }

// SetWriteCache changes what the kernel believes of the device, and reads it back. It takes
// effect with the next flush, also under a mounted filesystem.
func (l *Loop) SetWriteCache(w WriteCache) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fd < 0 {
		return fmt.Errorf("%s: set the write cache: %w", l.Name(), fs.ErrClosed)
	}
	return setWriteCache(l.Name(), w)
}

// Detach detaches the device and waits until it is gone. While someone else has it open (a
// mount, a scan by udev) the kernel detaches it only when they close it: when ctx ends
// before, the error is ErrBusy, and Detach may be called again to wait on. Once it is
// gone, Detach does nothing.
//
// Unmount first: the kernel then detaches it at once. A write-through cache is reset to write-back, so that whoever uses the
// device next is not left without flushes; after kill -9 that is left undone.
func (l *Loop) Detach(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	if l.fd >= 0 {
		err = l.release()
	}
	if l.fd < 0 {
		err = errors.Join(err, poll(ctx, l.gone))
	}
	if err != nil {
		return fmt.Errorf("detach %s: %w", l.Name(), err)
	}
	return nil
}

// release asks the kernel to detach the device at its last close, and closes it. After an
// error of the request itself it stays open.
func (l *Loop) release() error {
	var reset error
	if !l.readOnly {
		reset = setWriteCache(l.Name(), WriteBack)
	}
	// ENXIO: detached already, by someone who does not mind our having it open.
	_, err := unix.IoctlRetInt(l.fd, unix.LOOP_CLR_FD)
	if err != nil && !errors.Is(err, unix.ENXIO) {
		return errors.Join(reset, err)
	}
	err = unix.Close(l.fd)
	l.fd = -1
	return errors.Join(reset, err)
}

// gone says whether the device is no longer this attachment. It looks without opening the
// device, which would hold it, or someone else's next attachment of it.
func (l *Loop) gone() (bool, error) {
	backing, err := readSys(l.Name(), "loop/backing_file")
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV):
		return true, nil
	case err != nil:
		return false, err
	case l.seq == "":
		return backing != l.backing, nil
	}
	seq, err := readSys(l.Name(), "diskseq")
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return seq != l.seq, err
}

func loopName(number int) string { return fmt.Sprintf("loop%d", number) }
