package fuse

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// mountFuse mounts a FUSE filesystem on dir and returns its end of the connection.
// go-fuse's own direct mount would let children inherit that: a connection lives
// until the last copy is closed, so they would keep a dead server's mount hanging.
func mountFuse(dir string) (fd int, err error) {
	fd, err = unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open /dev/fuse: %w", err)
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d,max_read=%d", fd, os.Geteuid(), os.Getegid(), maxRequest)
	if err := unix.Mount(fsName, dir, "fuse."+fsName, flags, options); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("mount: %w", err)
	}
	return fd, nil
}

// connection returns the number of the connection that is mounted on dir. It asks
// the kernel only, for nobody serves yet.
func connection(dir string) (int, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, dir, unix.AT_STATX_DONT_SYNC|unix.AT_SYMLINK_NOFOLLOW, 0, &st); err != nil {
		return 0, fmt.Errorf("find the FUSE connection: %w", err)
	}
	return int(st.Dev_minor), nil
}

// openAbort opens the file that aborts a connection when anything is written to it.
// /sys/fs/fuse/connections need not be mounted: the file is opened in an instance of
// that filesystem that is mounted nowhere, and that goes with it.
func openAbort(connection int) (fd int, err error) {
	ctl, err := unix.Fsopen("fusectl", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("open fusectl: %w", err)
	}
	defer unix.Close(ctl)
	if err := unix.FsconfigCreate(ctl); err != nil {
		return -1, fmt.Errorf("create fusectl: %w", err)
	}
	root, err := unix.Fsmount(ctl, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return -1, fmt.Errorf("mount fusectl: %w", err)
	}
	defer unix.Close(root)
	fd, err = unix.Openat(root, fmt.Sprintf("%d/abort", connection), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open the abort file of FUSE connection %d: %w", connection, err)
	}
	return fd, nil
}

// pollName is a file that go-fuse itself answers for: its name for what follows.
const pollName = ".go-fuse-epoll-hack"

// forestallPoll makes the kernel ask once whether a file of dir can be polled, and
// hear ENOSYS, so that it never asks again. Else it would ask when a file of the
// drive is opened with os.Open in this process, while the Go runtime holds what
// the goroutine that has to answer may need. See WaitMount of go-fuse, which would
// do the same if it knew dir.
func forestallPoll(dir string) error {
	fd, err := unix.Open(filepath.Join(dir, pollName), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("reach the mounted folder: %w", err)
	}
	defer unix.Close(fd)
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return nil
}
