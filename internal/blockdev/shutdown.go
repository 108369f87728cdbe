package blockdev

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// XFS_IOC_GOINGDOWN of xfs_fs.h, which ext4 and others took over as EXT4_IOC_SHUTDOWN:
// _IOR('X', 125, __u32). (mips, powerpc and sparc encode _IOR otherwise.)
const (
	goingDown  = 0x8004587d
	noLogFlush = 2 // XFS_FSOP_GOING_FLAGS_NOLOGFLUSH, EXT4_GOING_FLAGS_NOLOGFLUSH
)

// Shutdown makes the filesystem mounted at dir stop: from now on every request fails with EIO
// and the journal is not written. It is no power cut by itself, since what was under way still
// reaches the device: cut the drive first. The error is errors.ErrUnsupported where
// the filesystem has no such thing (btrfs before Linux 6.19).
func Shutdown(dir string) error {
	fd, err := open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return fmt.Errorf("shut down the filesystem at %s: %w", dir, err)
	}
	defer unix.Close(fd)
	err = unix.IoctlSetPointerInt(fd, goingDown, noLogFlush)
	if errors.Is(err, unix.ENOTTY) {
		err = fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	}
	if err != nil {
		return fmt.Errorf("shut down the filesystem at %s: %w", dir, err)
	}
	return nil
}
