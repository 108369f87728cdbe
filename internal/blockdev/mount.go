package blockdev

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// MountError says that the kernel did not mount, and why.
type MountError struct {
	Device, Dir string
	FS          FS
	Step        string // the system call, with the option it was about: "fsconfig nobarrier"
	Errno       unix.Errno
	// Reasons are the kernel's answers to this very mount: "xfs: Unknown parameter
	// 'nobarrier'".
	Reasons []string
	// Log are the kernel's messages of the same time that name the device.
	Log []string
}

func (e *MountError) Error() string {
	s := fmt.Sprintf("mount %s on %s as %s", e.Device, e.Dir, e.FS.Type)
	if len(e.FS.Options) > 0 {
		s += " with " + strings.Join(e.FS.Options, ",")
	}
	s += fmt.Sprintf(": %s: %v", e.Step, e.Errno)
	if said := append(e.Reasons[:len(e.Reasons):len(e.Reasons)], e.Log...); len(said) > 0 {
		s += ": " + strings.Join(said, "; ")
	}
	return s
}

// Unwrap returns the errno: EINVAL for an unknown option or no filesystem at all, EUCLEAN
// for a damaged one, EBUSY for one in use, ENODEV for a type the kernel does not have.
func (e *MountError) Unwrap() error { return e.Errno }

// Mount mounts a device on a folder and returns what ReadMount reads back. It blocks for as
// long as the journal's recovery takes. Options are what mount(8) takes, except what
// only mount(8) understands (loop, nofail, x-…).
//
// A device whose superblock is in use elsewhere is refused with EBUSY (Linux 6.6 and later;
// before, compare the options read back): it would be shared, with the options of the
// first mount, or a part of them. Clones of one xfs image
// mounted at the same time need the option nouuid, which is the caller's to give. Clones of
// one btrfs image must not be mounted at the same time before Linux 6.7: the kernel
// takes them for one filesystem. Mount refuses the wrong device with a *MismatchError.
func Mount(dev, dir string, f FS) (*MountInfo, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, fmt.Errorf("mount %s: %w", dev, err)
	}
	log, _ := OpenKernelLog() // its lines are a bonus: nil without permission
	defer log.Close()
	reasons, err := mountNew(dev, dir, f)
	if errors.Is(err, unix.ENOSYS) {
		reasons, err = nil, mountOld(dev, dir, f)
	}
	said := log.texts(filepath.Base(dev))
	var failed *MountError
	if errors.As(err, &failed) {
		failed.Reasons, failed.Log = reasons, said
	}
	if err != nil {
		return nil, err
	}
	m, err := checkMount(dev, dir)
	if err != nil {
		return nil, errors.Join(err, UnmountLazily(dir))
	}
	m.Messages = append(reasons, said...)
	return m, nil
}

// mountNew mounts by fsopen(2), whose context says what it does not like.
func mountNew(dev, dir string, f FS) (reasons []string, err error) {
	fail := func(step string, err error) ([]string, error) {
		return reasons, mountFailed(dev, dir, f, step, err)
	}
	ctx, err := unix.Fsopen(f.Type, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fail("fsopen", err)
	}
	defer unix.Close(ctx)
	defer func() { reasons = contextLog(ctx) }()
	if err := unix.FsconfigSetString(ctx, "source", dev); err != nil {
		return fail("fsconfig source", err)
	}
	o := sortOptions(f.Options)
	for _, option := range o.sb {
		if err := fsconfig(ctx, option); err != nil {
			return fail("fsconfig "+option, err)
		}
	}
	if err := create(ctx); err != nil {
		return fail("fsconfig create", err)
	}
	mnt, err := unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, int(o.attr))
	if err != nil {
		return fail("fsmount", err)
	}
	defer unix.Close(mnt) // unmounts it when it was not moved
	if err := unix.MoveMount(mnt, "", unix.AT_FDCWD, dir, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fail("move_mount", err)
	}
	return nil, nil
}

func fsconfig(ctx int, option string) error {
	if key, value, ok := strings.Cut(option, "="); ok {
		return unix.FsconfigSetString(ctx, key, value)
	}
	return unix.FsconfigSetFlag(ctx, option)
}

// fsconfigCreateExcl is FSCONFIG_CMD_CREATE_EXCL of linux/mount.h (Linux 6.6).
const fsconfigCreateExcl = 8

// create makes the superblock, and not one that exists already.
func create(ctx int) error {
	_, _, errno := unix.Syscall6(unix.SYS_FSCONFIG, uintptr(ctx), fsconfigCreateExcl, 0, 0, 0, 0)
	switch errno {
	case 0:
		return nil
	case unix.EOPNOTSUPP:
		return unix.FsconfigCreate(ctx)
	}
	return errno
}

// contextLog reads what the kernel said about a filesystem context, one message a read,
// without the letter that tells errors from warnings.
func contextLog(ctx int) []string {
	var said []string
	buf := make([]byte, 8192)
	for {
		n, err := unix.Read(ctx, buf)
		if err != nil || n == 0 { // ENODATA at the end
			return said
		}
		line := strings.TrimSpace(string(buf[:n]))
		if len(line) > 2 && line[1] == ' ' && strings.IndexByte("ewi", line[0]) >= 0 {
			line = line[2:]
		}
		said = append(said, line)
	}
}

// mountOld mounts by mount(2), for kernels before 5.2.
func mountOld(dev, dir string, f FS) error {
	o := sortOptions(f.Options)
	if err := unix.Mount(dev, dir, f.Type, o.flags, strings.Join(o.data, ",")); err != nil {
		return mountFailed(dev, dir, f, "mount", err)
	}
	return nil
}

func mountFailed(dev, dir string, f FS, step string, err error) error {
	e := &MountError{Device: dev, Dir: dir, FS: f, Step: step}
	if !errors.As(err, &e.Errno) { // an option with a zero byte never reaches the kernel
		e.Errno = unix.EINVAL
	}
	return e
}

// checkMount reads a new mount back and makes sure that it is the device's.
func checkMount(dev, dir string) (*MountInfo, error) {
	m, err := ReadMount(dir)
	if err != nil {
		return nil, err
	}
	var want, got unix.Stat_t
	if err := unix.Stat(dev, &want); err != nil {
		return nil, fmt.Errorf("stat %s: %w", dev, err)
	}
	if want.Rdev == unix.Mkdev(m.Major, m.Minor) {
		return m, nil
	}
	// btrfs numbers its superblocks itself, and names the device it really uses.
	if err := unix.Stat(m.Source, &got); err != nil || got.Rdev != want.Rdev {
		return nil, &MismatchError{Device: dir, What: "mounted device", Asked: dev, Got: m.Source}
	}
	return m, nil
}
