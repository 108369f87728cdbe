package blockdev

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// inNamespace runs a test's body in a namespace of its own, with a folder to mount on.
func inNamespace(t *testing.T, body func(dir string)) {
	t.Helper()
	dir, n := t.TempDir(), namespace(t)
	err := n.Do(func() error { body(dir); return nil })
	require.NoError(t, errors.Join(err, n.Close()))
}

// findmnt is what findmnt(8) says of a mount.
func findmnt(t testing.TB, column, dir string) []string {
	t.Helper()
	out, err := exec.Command("findmnt", "--noheadings", "--output", column, "--mountpoint", dir).Output()
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(out)), ",")
}

func TestMountBarriers(t *testing.T) {
	needRoot(t)
	device := devices(t)
	for _, test := range []struct {
		kind, option string
		shown        string // in the options read back
		refused      string // the kernel's reason
	}{
		{kind: "ext4"},
		{kind: "ext4", option: "barrier=1"},
		{kind: "ext4", option: "barrier=0", shown: "nobarrier"},
		{kind: "ext4", option: "nobarrier", shown: "nobarrier"},
		{kind: "btrfs"},
		{kind: "btrfs", option: "nobarrier", shown: "nobarrier"},
		{kind: "xfs"},
		{kind: "xfs", option: "nobarrier", refused: "xfs: Unknown parameter 'nobarrier'"},
	} {
		t.Run(test.kind+" "+test.option, func(t *testing.T) {
			l := device(test.kind)
			f := FS{Type: test.kind, Options: []string{test.option}}
			inNamespace(t, func(dir string) {
				m, err := Mount(l.Path(), dir, f)
				if test.refused != "" {
					var e *MountError
					require.ErrorAs(t, err, &e)
					require.Equal(t, unix.EINVAL, e.Errno)
					require.Equal(t, []string{test.refused}, e.Reasons)
					require.ErrorIs(t, err, unix.EINVAL)
					_, err = ReadMount(dir)
					require.ErrorIs(t, err, ErrNotMounted)
					return
				}
				require.NoError(t, err)
				require.Equal(t, findmnt(t, "FS-OPTIONS", dir), m.FSOptions)
				require.Equal(t, findmnt(t, "VFS-OPTIONS", dir), m.Options)
				require.Equal(t, test.kind, m.Type)
				require.Equal(t, l.Path(), m.Source)
				require.Equal(t, test.shown == "nobarrier", strings.Contains(strings.Join(m.FSOptions, ","), "nobarrier"))
				require.NoError(t, Unmount(testContext(t), dir))
			})
		})
	}
}

func TestMountSaysWhy(t *testing.T) {
	needRoot(t)
	device := devices(t)
	type damage struct{ offset, length int64 } // of zeroes
	for _, test := range []struct {
		name, kind string
		options    []string
		damage     damage // each comes on top of those before
		errno      unix.Errno
		reason     string // in Reasons or Log
	}{
		{"ext4 unknown option", "ext4", []string{"noatime", "wibble"}, damage{}, unix.EINVAL, "wibble"},
		{"ext4 bad value", "ext4", []string{"barrier=maybe"}, damage{}, unix.EINVAL, "barrier"},
		{"btrfs unknown option", "btrfs", []string{"wibble=1"}, damage{}, unix.EINVAL, "wibble"},
		{"xfs bad value", "xfs", []string{"logbufs=1000"}, damage{}, unix.EINVAL, "logbufs"},
		{"ext4 without group descriptors", "ext4", nil, damage{2048, 2048}, unix.EUCLEAN, "group descriptors corrupted"},
		{"xfs superblock cut short", "xfs", nil, damage{128, 64}, unix.EUCLEAN, "SB validate failed"},
		{"ext4 without superblock", "ext4", nil, damage{0, 1 << 17}, unix.EINVAL, "VFS: Can't find ext4 filesystem"},
		{"xfs without superblock", "xfs", nil, damage{0, 1 << 17}, unix.EINVAL, "Invalid superblock magic number"},
		{"btrfs without superblock", "btrfs", nil, damage{0, 1 << 17}, unix.EINVAL, ""},
		{"unknown type", "nosuchfs", nil, damage{}, unix.ENODEV, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var l *Loop
			if test.kind == "nosuchfs" {
				l = attached(t, image(t, 1), Options{})
			} else {
				l = device(test.kind)
			}
			if test.damage.length > 0 {
				f, err := os.OpenFile(l.Path(), os.O_WRONLY, 0)
				require.NoError(t, err)
				_, err = f.WriteAt(make([]byte, test.damage.length), test.damage.offset)
				require.NoError(t, errors.Join(err, f.Close()))
			}
			inNamespace(t, func(dir string) {
				_, err := Mount(l.Path(), dir, FS{Type: test.kind, Options: test.options})
				t.Log(err)
				var e *MountError
				require.ErrorAs(t, err, &e)
				require.Equal(t, test.errno, e.Errno)
				require.Contains(t, strings.Join(append(e.Reasons, e.Log...), "\n"), test.reason)
				for _, line := range e.Log {
					require.Contains(t, line, l.Name())
				}
				_, err = ReadMount(dir)
				require.ErrorIs(t, err, ErrNotMounted)
			})
		})
	}
	inNamespace(t, func(dir string) {
		_, err := Mount("/dev/loop0", filepath.Join(dir, "missing"), FS{Type: "ext4"})
		require.ErrorIs(t, err, fs.ErrNotExist)
		_, err = Mount(filepath.Join(dir, "missing"), dir, FS{Type: "ext4"})
		require.ErrorIs(t, err, fs.ErrNotExist)
		_, err = ReadMount(filepath.Join(dir, "missing", "folder"))
		require.ErrorIs(t, err, fs.ErrNotExist)
	})
}

// Both ways to mount do the same with what people write.
func TestMountOptions(t *testing.T) {
	needRoot(t)
	l, _ := device(t, "ext4")
	for _, test := range []struct {
		options string
		mount   string // VFS options read back
		fs      []string
	}{
		{"", "rw,relatime", []string{"rw"}},
		{"defaults", "rw,relatime", []string{"rw"}},
		{"ro", "ro,relatime", []string{"ro"}},
		{"ro,rw", "rw,relatime", []string{"rw"}},
		{"noatime, nodev,nosuid ,noexec", "rw,nosuid,nodev,noexec,noatime", []string{"rw"}},
		{"noatime,relatime,nodev,dev", "rw,relatime", []string{"rw"}},
		{"strictatime,nodiratime", "rw,nodiratime", []string{"rw"}},
		{"nosymfollow", "rw,relatime,nosymfollow", []string{"rw"}},
		{"sync,dirsync,lazytime", "rw,relatime", []string{"rw", "sync", "dirsync", "lazytime"}},
		{"sync,async,barrier=0,commit=30", "rw,relatime", []string{"rw", "nobarrier", "commit=30"}},
	} {
		t.Run(test.options, func(t *testing.T) {
			f := FS{Type: "ext4", Options: []string{test.options}}
			for name, mount := range map[string]func(dir string) error{
				"new": func(dir string) error { _, err := Mount(l.Path(), dir, f); return err },
				"old": func(dir string) error { return mountOld(l.Path(), dir, f) },
			} {
				inNamespace(t, func(dir string) {
					require.NoError(t, mount(dir), name)
					m, err := ReadMount(dir)
					require.NoError(t, err)
					require.Equal(t, strings.Split(test.mount, ","), m.Options, name)
					require.Equal(t, findmnt(t, "VFS-OPTIONS", dir), m.Options, name)
					require.Equal(t, test.fs, m.FSOptions, name)
				})
			}
		})
	}
	inNamespace(t, func(dir string) {
		err := mountOld(l.Path(), dir, FS{Type: "ext4", Options: []string{"wibble"}})
		var e *MountError
		require.ErrorAs(t, err, &e)
		require.Equal(t, unix.EINVAL, e.Errno)
	})
}

// A superblock that is mounted elsewhere keeps its own options, barriers too.
func TestMountRefusesToShare(t *testing.T) {
	needRoot(t)
	l, _ := device(t, "ext4")
	inNamespace(t, func(dir string) {
		_, err := Mount(l.Path(), dir, FS{Type: "ext4"})
		require.NoError(t, err)
		inNamespace(t, func(dir string) {
			_, err := Mount(l.Path(), dir, FS{Type: "ext4", Options: []string{"barrier=0"}})
			t.Log(err)
			require.ErrorIs(t, err, unix.EBUSY)
		})
	})
}

// Clones that are mounted at the same time are either mounted each from its own device or refused.
func TestMountClones(t *testing.T) {
	needRoot(t)
	for _, test := range []struct {
		kind    string
		options []string
		refused string
	}{
		{"ext4", nil, ""},
		{"xfs", nil, "duplicate UUID"},
		{"xfs", []string{"nouuid"}, ""},
		{"btrfs", nil, "*"}, // from Linux 6.7 on they are told apart
	} {
		t.Run(test.kind+strings.Join(test.options, ","), func(t *testing.T) {
			first, path := device(t, test.kind)
			require.NoError(t, first.Detach(testContext(t)))
			clone := path + ".clone"
			require.NoError(t, exec.Command("cp", "--sparse=always", path, clone).Run())
			first, second := attached(t, path, Options{}), attached(t, clone, Options{})
			inNamespace(t, func(dir string) {
				one, two := filepath.Join(dir, "1"), filepath.Join(dir, "2")
				require.NoError(t, errors.Join(os.Mkdir(one, 0o700), os.Mkdir(two, 0o700)))
				_, err := Mount(first.Path(), one, FS{Type: test.kind, Options: test.options})
				require.NoError(t, err)
				_, err = Mount(second.Path(), two, FS{Type: test.kind, Options: test.options})
				if test.refused == "*" && err != nil {
					return
				}
				if test.refused != "" && test.refused != "*" {
					require.ErrorContains(t, err, test.refused)
					return
				}
				require.NoError(t, err)
				_, err = checkMount(first.Path(), two)
				var mismatch *MismatchError
				require.ErrorAs(t, err, &mismatch, "the other's device")
			})
		})
	}
}

func TestUnmount(t *testing.T) {
	needRoot(t)
	l, _ := device(t, "ext4")
	inNamespace(t, func(dir string) {
		require.ErrorIs(t, Unmount(testContext(t), dir), ErrNotMounted)
		_, err := Mount(l.Path(), dir, FS{Type: "ext4"})
		require.NoError(t, err)
		f, err := os.Create(filepath.Join(dir, "file"))
		require.NoError(t, err)
		defer f.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		err = Unmount(ctx, dir)
		require.ErrorIs(t, err, ErrBusy)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, f.Close())
		require.NoError(t, Unmount(ctx, dir), "it is tried once, also when ctx has ended")

		_, err = Mount(l.Path(), dir, FS{Type: "ext4"})
		require.NoError(t, err)
		f, err = os.Create(filepath.Join(dir, "file"))
		require.NoError(t, err)
		defer f.Close()
		require.NoError(t, UnmountLazily(dir))
		require.ErrorIs(t, UnmountLazily(dir), ErrNotMounted)
		_, err = f.WriteString("the filesystem is still there")
		require.NoError(t, err)
	})
}

func TestReadMountStacked(t *testing.T) {
	needRoot(t)
	l, _ := device(t, "ext4")
	inNamespace(t, func(dir string) {
		dir = filepath.Join(dir, `a b\040#`+"\t")
		require.NoError(t, os.Mkdir(dir, 0o700))
		link := filepath.Join(filepath.Dir(dir), "link")
		require.NoError(t, os.Symlink(dir, link))
		require.NoError(t, tmpfs(dir))
		_, err := Mount(l.Path(), link, FS{Type: "ext4"})
		require.NoError(t, err)
		for _, want := range []string{"ext4", "tmpfs"} {
			m, err := ReadMount(link)
			require.NoError(t, err)
			require.Equal(t, want, m.Type, "the topmost")
			require.NoError(t, Unmount(testContext(t), dir))
		}
	})
}

func TestShutdown(t *testing.T) {
	needRoot(t)
	for _, kind := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(kind, func(t *testing.T) {
			l, _ := device(t, kind)
			inNamespace(t, func(dir string) {
				f := FS{Type: kind}
				if kind != "xfs" {
					f.Options = []string{"commit=300"} // nothing is written by itself
				}
				_, err := Mount(l.Path(), dir, f)
				require.NoError(t, err)
				early := filepath.Join(dir, "early")
				require.NoError(t, os.WriteFile(early, []byte("x"), 0o600))
				err = Shutdown(dir)
				if kind == "btrfs" && err != nil { // before Linux 6.19
					require.ErrorIs(t, err, errors.ErrUnsupported)
					require.NoError(t, Unmount(testContext(t), dir))
					return
				}
				require.NoError(t, err)
				err = os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600)
				require.ErrorIs(t, err, unix.EIO)
				m, err := ReadMount(dir)
				require.NoError(t, err, "its root cannot be looked at")
				require.Equal(t, kind, m.Type)
				require.NoError(t, Unmount(testContext(t), dir))
				_, err = Mount(l.Path(), dir, FS{Type: kind})
				require.NoError(t, err, "the journal is replayed")
				require.NoFileExists(t, filepath.Join(dir, "file"))
				require.NoFileExists(t, early, "the journal was not written")
			})
		})
	}
	inNamespace(t, func(dir string) {
		require.NoError(t, tmpfs(dir))
		require.ErrorIs(t, Shutdown(dir), errors.ErrUnsupported)
	})
}
