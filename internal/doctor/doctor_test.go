package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"plugpull/internal/mysqld"
)

var update = flag.Bool("update", false, "write the golden files")

// good is a machine that lacks nothing.
func good() *Machine {
	return &Machine{
		Kernel: "6.1.0-38-amd64", Admin: true,
		Fuse: Device{Path: "/dev/fuse", Module: "fuse", Major: 10, Minor: 229, There: true, GotMajor: 10, GotMinor: 229, Driver: Present},
		Loop: Device{Path: "/dev/loop-control", Module: "loop", Major: 10, Minor: 237, There: true, GotMajor: 10, GotMinor: 237, Driver: Loadable},
		Filesystems: map[string]Support{
			"ext4": Present, "xfs": Loadable, "btrfs": Present},
		Mkfs:   map[string]string{"ext4": "/usr/sbin/mkfs.ext4", "xfs": "/usr/sbin/mkfs.xfs", "btrfs": "/usr/sbin/mkfs.btrfs"},
		Server: mysqld.Install{Binary: "/usr/sbin/mariadbd", Flavour: mysqld.MariaDB, Version: mysqld.Version{Major: 10, Minor: 11, Patch: 6}},
		Work:   Room{Path: "/dev/shm", Free: 4 << 30, Tmpfs: true}, Temp: Room{Path: "/tmp", Free: 9 << 30}, Memory: 8 << 30,
	}
}

// bare is a small container in which nothing is installed.
func bare(m *Machine) {
	m.Kernel, m.Admin, m.SysReadOnly = "5.4.0-216-generic", false, true
	m.Fuse.There, m.Fuse.Err = false, unix.ENOENT
	m.Loop = Device{Path: "/dev/loop-control", Module: "loop", Major: 10, Minor: 237, Err: unix.ENOENT, Driver: Unknown}
	m.Filesystems["xfs"], m.Filesystems["btrfs"] = Unknown, Absent
	clear(m.Mkfs)
	m.Server, m.ServerErr = mysqld.Install{}, fmt.Errorf("%w: mariadbd or mysqld not found", mysqld.ErrNotInstalled)
	m.Work.Free, m.Memory = 64<<20, 300<<20
}

func noXFS(m *Machine) { m.Mkfs["xfs"] = "" }

func user(m *Machine) {
	m.UID, m.Admin = 1000, false
	m.Fuse.Err = unix.EACCES
}

func TestOutput(t *testing.T) {
	for name, change := range map[string]func(*Machine){"good": func(*Machine) {}, "bare": bare, "noxfs": noXFS, "user": user} {
		t.Run(name, func(t *testing.T) {
			m := good()
			change(m)
			var text bytes.Buffer
			require.NoError(t, WriteText(&text, Examine(m)))
			golden := filepath.Join("testdata", name+".golden")
			if *update {
				require.NoError(t, os.WriteFile(golden, text.Bytes(), 0o600))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			assert.Equal(t, string(want), text.String())
		})
	}
}

func TestJSON(t *testing.T) {
	m := good()
	noXFS(m)
	var text bytes.Buffer
	require.NoError(t, WriteJSON(&text, Examine(m)))
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	require.Len(t, lines, len(Names()))
	var b Bench
	require.NoError(t, json.Unmarshal([]byte(lines[2]), &b))
	assert.Equal(t, []string{noFlushes, "ext4", "btrfs"}, b.Runs)
	assert.Equal(t, []string{"xfs"}, b.Fails)
	assert.Contains(t, lines[2], `{"what":"mkfs.xfs","state":"missing","found":"not there","why":"each cycle may begin on a new filesystem","fix":"apt-get install xfsprogs","only":"xfs"}`)
}

// TestEachThing takes one thing away from a good machine: it alone is named, with its fix.
func TestEachThing(t *testing.T) {
	tests := []struct {
		name    string
		change  func(*Machine)
		ability Ability
		what    string
		state   State
		fix     string
	}{
		{"old kernel", func(m *Machine) { m.Kernel = "5.7.19" }, CannotRun, "Linux 5.8", Missing, "Linux 5.8 or later"},
		{"older kernel", func(m *Machine) { m.Kernel = "4.19.0-27" }, CannotRun, "Linux 5.8", Missing, "Linux 5.8 or later"},
		{"strange kernel", func(m *Machine) { m.Kernel = "next" }, Uncertain, "Linux 5.8", CannotTell, "uname -r"},
		{"not root", func(m *Machine) { m.UID = 1000 }, CannotRun, "root", Missing, "sudo plugpull"},
		{"no capability", func(m *Machine) { m.Admin = false }, CannotRun, "root", Missing, "--privileged"},
		{"capability of a namespace", func(m *Machine) { m.UserNamespace = true }, CannotRun, "root", Missing, "root of the machine"},
		{"no /proc", func(m *Machine) { m.AdminErr = unix.ENOENT }, Uncertain, "root", CannotTell, "mount -t proc"},
		{"no fuse node", func(m *Machine) { m.Fuse.There, m.Fuse.Err = false, unix.ENOENT }, CannotRun, "/dev/fuse", Missing, "mknod -m 600 /dev/fuse c 10 229"},
		{"fuse not loaded", func(m *Machine) {
			m.Fuse = Device{Path: "/dev/fuse", Module: "fuse", Err: unix.ENOENT, Driver: Loadable}
		},
			CannotRun, "/dev/fuse", Missing, "modprobe fuse"},
		{"fuse's node without a driver that can be seen", func(m *Machine) { m.Fuse.Driver = Unknown }, Uncertain, "/dev/fuse", CannotTell, "modprobe fuse"},
		{"fuse hidden", func(m *Machine) { m.Fuse.GotMajor, m.Fuse.GotMinor = 1, 3 }, CannotRun, "/dev/fuse", Missing, "umount /dev/fuse"},
		{"fuse forbidden", func(m *Machine) { m.Fuse.Err = unix.EPERM }, CannotRun, "/dev/fuse", Missing, "--privileged"},
		{"fuse fails", func(m *Machine) { m.Fuse.Err = unix.EIO }, Uncertain, "/dev/fuse", CannotTell, "ls -l /dev/fuse"},
		{"a kernel without loop", func(m *Machine) { m.Loop.Driver = Absent }, CannotRun, "/dev/loop-control", Missing, "linux-image"},
		{"loop without its driver", func(m *Machine) { m.Loop.Driver, m.Loop.Err = Present, unix.ENXIO }, CannotRun, "/dev/loop-control", Missing, "modprobe loop"},
		{"/sys", func(m *Machine) { m.SysReadOnly = true }, CanRunPart, "/sys writable", Missing, "remount,rw /sys"},
		{"no server", func(m *Machine) { m.ServerErr = mysqld.ErrNotInstalled }, CannotRun, "server", Missing, "apt-get install mariadb-server-core mariadb-client"},
		{"another server", func(m *Machine) { m.ServerErr = mysqld.ErrUnknownServer }, CannotRun, "server", Missing, "apt-get install mariadb-server-core"},
		{"silent server", func(m *Machine) { m.ServerErr = context.DeadlineExceeded }, Uncertain, "server", CannotTell, "--version"},
		{"no my_print_defaults", func(m *Machine) { m.NoTools = []string{printDefaults} }, CannotRun, "server's tools", Missing, "apt-get install mariadb-client"},
		{"no awk", func(m *Machine) { m.NoTools = []string{"awk", "cat", "chmod", "sed"} }, CannotRun, "server's tools", Missing, "apt-get install mawk coreutils sed"},
		{"PATH", func(m *Machine) { m.OffPath = []string{"sed"} }, CannotRun, "server's tools", Missing, "export PATH="},
		{"no room in memory", func(m *Machine) { m.Work.Free = 47 << 20 }, CannotRun, "room to work", Missing, "remount,size=512M /dev/shm"},
		{"little room in memory", func(m *Machine) { m.Work.Free = 64 << 20 }, Uncertain, "room to work", CannotTell, "--shm-size"},
		{"no room on disk", func(m *Machine) { m.Work = Room{Path: "/var/tmp"} }, CannotRun, "room to work", Missing, "export TMPDIR="},
		{"no folder", func(m *Machine) { m.Temp.Err = unix.EROFS }, CannotRun, "room for temporary files", Missing, "export TMPDIR="},
		{"no memory", func(m *Machine) { m.Memory = 383 << 20 }, CannotRun, "memory", Missing, "--memory"},
		{"little memory", func(m *Machine) { m.Memory = 767 << 20 }, Uncertain, "memory", CannotTell, "image: file"},
		{"unknown memory", func(m *Machine) { m.MemoryErr = errors.New("no") }, Uncertain, "memory", CannotTell, "free"},
		{"no xfs", func(m *Machine) { m.Filesystems["xfs"] = Absent }, CanRunPart, "xfs", Missing, "linux-image"},
		{"perhaps xfs", func(m *Machine) { m.Filesystems["xfs"] = Unknown }, CanRunPart, "xfs", CannotTell, "modprobe xfs"},
		{"no mkfs.btrfs", func(m *Machine) { m.Mkfs["btrfs"] = "" }, CanRunPart, "mkfs.btrfs", Missing, "apt-get install btrfs-progs"},
		{"no mkfs.ext4", func(m *Machine) { m.Mkfs["ext4"] = "" }, CanRunPart, "mkfs.ext4", Missing, "apt-get install e2fsprogs"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := good()
			tt.change(m)
			b := Select(Examine(m), "loop")[0]
			assert.Equal(t, tt.ability, b.Ability)
			named := false
			for _, c := range b.Checks {
				if c.What != tt.what {
					assert.Equal(t, OK, c.State, c.What)
					assert.Empty(t, c.Fix, c.What)
					continue
				}
				named = true
				assert.Equal(t, tt.state, c.State)
				assert.Contains(t, c.Fix, tt.fix)
			}
			assert.True(t, named)
			assert.Equal(t, tt.ability == CanRunPart, AllAble(Examine(m)))
		})
	}
}

func TestNoFilesystemAtAll(t *testing.T) {
	m := good()
	clear(m.Mkfs)
	b := Select(Examine(m), "loop")[0]
	assert.Equal(t, CannotRun, b.Ability)
	assert.Equal(t, "missing: mkfs.ext4, mkfs.xfs, mkfs.btrfs", b.Text)

	m = good()
	noXFS(m)
	m.Filesystems["ext4"], m.Filesystems["btrfs"] = Unknown, Unknown
	assert.Equal(t, Uncertain, Select(Examine(m), "loop")[0].Ability)
}

func TestSelection(t *testing.T) {
	all := Examine(good())
	assert.True(t, AllAble(all))
	for i, name := range Names() {
		assert.Equal(t, all[i:i+1], Select(all, name))
		assert.Equal(t, name != "vm", AllAble(Select(all, name)), name)
	}
}
