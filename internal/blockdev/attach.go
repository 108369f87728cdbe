package blockdev

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// Attach attaches a file, or a block device, to a free loop device. Any number of processes
// may do so at once: the kernel gives each device to one of them. Attach then checks
// that the device is what was asked for; a *MismatchError says that it is not, and then
// nothing stays attached.
//
// With a file of a FUSE filesystem it blocks until the server has answered. It waits for other
// processes only while they take the devices it was about to take, until ctx ends.
func Attach(ctx context.Context, path string, o Options) (*Loop, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("attach %s: %w", path, err)
	}
	l, err := attach(ctx, path, o)
	if err != nil {
		return nil, fmt.Errorf("attach %s to a loop device: %w", path, err)
	}
	return l, nil
}

// complete fills in the defaults.
func (o *Options) complete() error {
	if o.BlockSize == 0 {
		o.BlockSize = 512
	}
	if b := o.BlockSize; b < 512 || b&(b-1) != 0 || b > unix.Getpagesize() {
		return fmt.Errorf("block size %d: want a power of two from 512 to %d", b, unix.Getpagesize())
	}
	switch {
	case o.WriteCache == "" && o.ReadOnly:
		o.WriteCache = WriteThrough
	case o.WriteCache == "":
		o.WriteCache = WriteBack
	case o.WriteCache != WriteBack && o.WriteCache != WriteThrough:
		return fmt.Errorf("write cache %q: want %q or %q", o.WriteCache, WriteBack, WriteThrough)
	}
	if o.ReadOnly && o.WriteCache != WriteThrough {
		return errors.New("a read-only loop device has no write cache")
	}
	return nil
}

func (o *Options) access() int {
	if o.ReadOnly {
		return unix.O_RDONLY
	}
	return unix.O_RDWR
}

func (o *Options) flags() (f uint32) {
	if o.ReadOnly {
		f |= unix.LO_FLAGS_READ_ONLY
	}
	if o.Autoclear {
		f |= unix.LO_FLAGS_AUTOCLEAR
	}
	if o.DirectIO {
		f |= unix.LO_FLAGS_DIRECT_IO
	}
	return f
}

// errTaken says that another process was faster.
var errTaken = errors.New("taken by another process")

func attach(ctx context.Context, path string, o Options) (l *Loop, err error) {
	backing, err := open(path, o.access())
	if err != nil {
		return nil, fmt.Errorf("open the file: %w", err)
	}
	defer unix.Close(backing) // the kernel has its own reference
	control, err := open("/dev/loop-control", unix.O_RDWR)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) {
		err = fmt.Errorf("%w (modprobe loop loads it): %w", ErrNoLoopDriver, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open /dev/loop-control: %w", err)
	}
	defer unix.Close(control)
	wait := poll(ctx, func() (bool, error) {
		l, err = attachFree(control, backing, path, o)
		return !errors.Is(err, errTaken), nil
	})
	if wait != nil {
		return nil, errors.Join(wait, err)
	}
	return l, err
}

// attachFree tries the device that the kernel thinks is free.
func attachFree(control, backing int, path string, o Options) (*Loop, error) {
	number, err := unix.IoctlRetInt(control, unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return nil, fmt.Errorf("find a free loop device: %w", err)
	}
	l := &Loop{number: number, readOnly: o.ReadOnly, fd: -1}
	// Opened for writing to configure it: the kernel makes it read-only otherwise.
	fd, err := l.openNode(o.access())
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if err := configure(fd, backing, path, o); err != nil {
		return nil, fmt.Errorf("configure %s: %w", l.Path(), err)
	}
	if err := l.settle(fd, backing, o); err != nil {
		_, undo := unix.IoctlRetInt(fd, unix.LOOP_CLR_FD)
		return nil, errors.Join(err, undo)
	}
	return l, nil
}

// configure attaches in one step: with the older LOOP_SET_FD and LOOP_SET_STATUS64 the device
// is there for a while with other options than those asked for.
func configure(fd, backing int, path string, o Options) error {
	c := unix.LoopConfig{Fd: uint32(backing), Size: uint32(o.BlockSize)}
	c.Info.Flags = o.flags()
	copy(c.Info.File_name[:len(c.Info.File_name)-1], path)
	err := unix.IoctlLoopConfigure(fd, &c)
	switch {
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("%w: %w", errTaken, err)
	case errors.Is(err, unix.ENOTTY):
		return fmt.Errorf("LOOP_CONFIGURE: %w: Linux 5.8 or later is needed: %w", errors.ErrUnsupported, err)
	case errors.Is(err, unix.EINVAL): // also the answer of older kernels to an ioctl they do not know
		return fmt.Errorf("LOOP_CONFIGURE is refused (Linux before 5.8 does not know it): %w", err)
	}
	return err
}

// openNode opens the device file, and makes it where /dev is no devtmpfs, as in a container.
func (l *Loop) openNode(access int) (int, error) {
	dev, err := readSys(l.Name(), "dev")
	if err != nil {
		return -1, err
	}
	if _, err := fmt.Sscanf(dev, "%d:%d", &l.major, &l.minor); err != nil {
		return -1, fmt.Errorf("%s: device number %q: %w", l.Name(), dev, err)
	}
	want := unix.Mkdev(l.major, l.minor)
	var st unix.Stat_t
	err = unix.Stat(l.Path(), &st)
	if errors.Is(err, unix.ENOENT) {
		err = unix.Mknod(l.Path(), unix.S_IFBLK|0o600, int(want))
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return -1, fmt.Errorf("make %s: %w", l.Path(), err)
		}
		err = unix.Stat(l.Path(), &st)
	}
	if err != nil {
		return -1, fmt.Errorf("stat %s: %w", l.Path(), err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK || st.Rdev != want {
		return -1, fmt.Errorf("%s is not block device %s", l.Path(), dev)
	}
	fd, err := open(l.Path(), access)
	if errors.Is(err, unix.ENXIO) { // another process's device in the middle of its detach
		err = fmt.Errorf("%w: %w", errTaken, err)
	}
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", l.Path(), err)
	}
	return fd, nil
}

// settle checks a device that was just configured, sets its write cache, and opens the
// descriptor that the Loop keeps. That one is read-only: kernels that are built
// without BLK_DEV_WRITE_MOUNTED do not mount a device that someone has open for writing.
func (l *Loop) settle(fd, backing int, o Options) (err error) {
	if err := l.checkStatus(fd, backing, o); err != nil {
		return err
	}
	if !o.ReadOnly {
		if err := setWriteCache(l.Name(), o.WriteCache); err != nil {
			return err
		}
	}
	q, err := l.Queue()
	if err != nil {
		return err
	}
	if q.LogicalBlockSize != o.BlockSize {
		return &MismatchError{Device: l.Name(), What: "block size",
			Asked: strconv.Itoa(o.BlockSize), Got: strconv.Itoa(q.LogicalBlockSize)}
	}
	if q.WriteCache != o.WriteCache {
		return &MismatchError{Device: l.Name(), What: "write cache",
			Asked: string(o.WriteCache), Got: string(q.WriteCache)}
	}
	if l.backing, err = readSys(l.Name(), "loop/backing_file"); err != nil {
		return err
	}
	if l.seq, err = readSys(l.Name(), "diskseq"); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	if l.fd, err = open(l.Path(), unix.O_RDONLY); err != nil {
		return fmt.Errorf("open %s again: %w", l.Path(), err)
	}
	return nil
}

// checkStatus compares the kernel's own account of the attachment with what was asked.
func (l *Loop) checkStatus(fd, backing int, o Options) error {
	var st unix.Stat_t
	if err := unix.Fstat(backing, &st); err != nil {
		return fmt.Errorf("stat the file: %w", err)
	}
	info, err := unix.IoctlLoopGetStatus64(fd)
	if err != nil {
		return fmt.Errorf("read the status of %s: %w", l.Name(), err)
	}
	if info.Device != st.Dev || info.Inode != st.Ino {
		return &MismatchError{Device: l.Name(), What: "backing file (device, inode)",
			Asked: fmt.Sprint(st.Dev, st.Ino), Got: fmt.Sprint(info.Device, info.Inode)}
	}
	for _, f := range []struct {
		what string
		flag uint32
	}{
		{"direct I/O", unix.LO_FLAGS_DIRECT_IO},
		{"read-only", unix.LO_FLAGS_READ_ONLY},
		{"autoclear", unix.LO_FLAGS_AUTOCLEAR},
	} {
		if asked, got := o.flags()&f.flag != 0, info.Flags&f.flag != 0; asked != got {
			return &MismatchError{Device: l.Name(), What: f.what,
				Asked: strconv.FormatBool(asked), Got: strconv.FormatBool(got)}
		}
	}
	return nil
}
