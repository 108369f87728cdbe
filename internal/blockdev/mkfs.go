package blockdev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

// FS is a filesystem's type with options: those of its mkfs for Make (one argument each),
// those of its mount for Mount.
type FS struct {
	Type    string // "ext4", "xfs", "btrfs"
	Options []string
}

// NotInstalledError says which program is missing and where it comes from.
type NotInstalledError struct {
	Program string
	Package string // of Debian
}

func (e *NotInstalledError) Error() string {
	return fmt.Sprintf("%s is not installed (Debian package %s)", e.Program, e.Package)
}

// maker is how a kind of filesystem is made.
//
// None of them discards the device first: what a discarded sector holds after a power cut is
// the drive's to choose, and a filesystem reads no block that it has not written.
// Each is told to overwrite what is there.
type maker struct {
	pkg  string
	args []string
}

var makers = map[string]maker{
	// Without the lazy_ options a kernel thread goes on to write inode tables for minutes after
	// the first mount, in the middle of what is being measured.
	"ext4":  {"e2fsprogs", []string{"-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"}},
	"xfs":   {"xfsprogs", []string{"-q", "-f", "-K"}},
	"btrfs": {"btrfs-progs", []string{"-q", "-f", "-K"}},
}

// Make makes a filesystem on a device that is not mounted. The error holds what the program
// said; it is a *NotInstalledError when there is no such program. When ctx ends the
// program is killed, and then what is on the device is undefined.
func Make(ctx context.Context, f FS, dev string) error {
	m, ok := makers[f.Type]
	if !ok {
		return fmt.Errorf("make a filesystem of type %q: want ext4, xfs or btrfs", f.Type)
	}
	program, err := FindProgram("mkfs."+f.Type, m.pkg)
	if err != nil {
		return fmt.Errorf("make a filesystem: %w", err)
	}
	// Pdeathsig is sent when the thread that forked ends, not the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c := exec.CommandContext(ctx, program, append(m.merge(f.Options), dev)...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.Env = append(os.Environ(), "LC_ALL=C")
	out, err := c.CombinedOutput()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	return fmt.Errorf("%s: %w: %s", strings.Join(c.Args, " "), err, strings.TrimSpace(string(out)))
}

// merge adds options to the arguments. mke2fs heeds only the last -E, so that those of the
// caller are appended to ours.
func (m maker) merge(options []string) []string {
	args := slices.Clone(m.args)
	at := slices.Index(args, "-E") + 1
	for i := 0; i < len(options); i++ {
		if at > 0 && options[i] == "-E" && i+1 < len(options) {
			i++
			args[at] += "," + options[i]
			continue
		}
		args = append(args, options[i])
	}
	return args
}

// FindProgram looks in PATH and where distributions put what is for root. The error is a
// *NotInstalledError, which names pkg.
func FindProgram(name, pkg string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/local/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", &NotInstalledError{Program: name, Package: pkg}
}
