package blockdev

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

var (
	// ErrBusy says that something was still in use when the context ended. It is
	// wrapped together with the context's cause.
	ErrBusy = errors.New("still in use")
	// ErrNotMounted says that nothing is mounted at the folder.
	ErrNotMounted = errors.New("not a mount point")
	// ErrNoLoopDriver says that the kernel's loop driver cannot be reached.
	ErrNoLoopDriver = errors.New("no loop driver")
)

// MismatchError says that the kernel did something else than it was asked to and said
// that it had.
type MismatchError struct {
	Device     string // "loop3"
	What       string // "direct I/O"
	Asked, Got string
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%s: %s is %s, asked for %s", e.Device, e.What, e.Got, e.Asked)
}

// Waits between two looks at something that the kernel does not announce.
const (
	firstPause = time.Millisecond
	lastPause  = 20 * time.Millisecond
)

// poll calls done, with growing pauses, until it says true or fails, or ctx ends: then the
// error is ErrBusy. It looks at least once.
func poll(ctx context.Context, done func() (bool, error)) error {
	pause := firstPause
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w: %w", ErrBusy, context.Cause(ctx))
		}
		pause = min(2*pause, lastPause)
	}
}

// open is open(2) without the runtime's poller. os.OpenFile would ask the poller to watch
// the file, and for a file of a FUSE filesystem served by this process that blocks
// the very scheduler that is to serve it.
func open(path string, flags int) (int, error) {
	for {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}
