package blockdev

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Unmount unmounts what is mounted at dir. While it is in use it tries again until ctx ends,
// and then the error is ErrBusy. It blocks, whatever ctx says, for as long as the
// filesystem needs to write what is dirty.
func Unmount(ctx context.Context, dir string) error {
	err := poll(ctx, func() (bool, error) {
		err := unmount(dir, 0)
		if errors.Is(err, unix.EBUSY) {
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return fmt.Errorf("unmount %s: %w", dir, err)
	}
	return nil
}

// UnmountLazily takes dir out of sight at once; the filesystem goes on until its last user has
// ended, and nothing tells when.
func UnmountLazily(dir string) error {
	if err := unmount(dir, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount %s lazily: %w", dir, err)
	}
	return nil
}

func unmount(dir string, flags int) error {
	err := unix.Unmount(dir, flags)
	if errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("%w: %w", ErrNotMounted, err)
	}
	return err
}
