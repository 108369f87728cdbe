package doctor

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"golang.org/x/sys/unix"
	"plugpull/internal/blockdev"
)

// tree writes files into a folder of the test.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return dir
}

func TestCapability(t *testing.T) {
	tests := []struct {
		name, status string
		want, fails  bool
	}{
		{"root", "Name:\tx\nCapPrm:\t000001ffffffffff\nCapEff:\t000001ffffffffff\n", true, false},
		{"a container's root", "CapPrm:\t000001ffffffffff\nCapEff:\t00000000a80425fb\n", false, false},
		{"that one alone", "CapEff:\t0000000000200000\n", true, false},
		{"no line", "CapPrm:\t000001ffffffffff\n", false, true},
		{"no number", "CapEff:\tall\n", false, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := sysAdmin(filepath.Join(tree(t, map[string]string{"status": tt.status}), "status"))
			assert.Equal(t, tt.want, got)
			assert.Equal(t, tt.fails, err != nil, err)
		})
	}
	_, err := sysAdmin("/nosuch")
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestUserNamespace(t *testing.T) {
	dir := tree(t, map[string]string{"host": "         0          0 4294967295\n", "in": "         0       1000          1\n",
		"podman": "0 1000 1\n1 100000 65536\n", "empty": ""})
	for name, want := range map[string]bool{"host": false, "in": true, "podman": true, "empty": false, "nosuch": false} {
		assert.Equal(t, want, userNamespace(filepath.Join(dir, name)), name)
	}
}

func TestKernelSupport(t *testing.T) {
	dir := tree(t, map[string]string{
		"proc/filesystems":        "nodev\tproc\n\text4\n",
		"proc/misc":               "229 fuse\n",
		"modules/modules.builtin": "kernel/fs/btrfs/btrfs.ko\n",
		"modules/modules.dep":     "kernel/fs/xfs/xfs.ko.xz: kernel/lib/libcrc32c.ko.xz\nkernel/drivers/block/loop.ko.zst:\n",
	})
	k := readKernel(dir+"/proc", dir+"/modules")
	assert.Equal(t, Present, k.filesystem("ext4"))
	assert.Equal(t, Loadable, k.filesystem("xfs"))
	assert.Equal(t, Loadable, k.filesystem("btrfs"))
	assert.Equal(t, Absent, k.filesystem("f2fs"))
	assert.Equal(t, Present, k.driver("fuse", "fuse"))
	assert.Equal(t, Loadable, k.driver("loop-control", "loop"))
	k = readKernel(dir+"/proc", dir+"/nosuch")
	assert.Equal(t, Present, k.filesystem("ext4"))
	assert.Equal(t, Unknown, k.filesystem("xfs"))
}

func TestMemory(t *testing.T) {
	const v1 = "4:memory:/a/b\n0::/\n"
	dir := tree(t, map[string]string{
		"meminfo": "MemTotal:  9000000 kB\nMemAvailable:    2048 kB\n", "none": "MemTotal: 9 kB\n", "odd": "MemAvailable: much kB\n",
		"v1": v1, "v2": "0::/a/b\n", "open": "0::/open\n",
		"groups/memory/a/b/memory.limit_in_bytes": "9223372036854771712\n", "groups/memory/a/memory.limit_in_bytes": "65536\n",
		"groups/a/b/memory.max": "131072\n", "groups/a/memory.max": "1048576\n", "groups/open/memory.max": "max\n",
	})
	for self, want := range map[string]int64{"v1": 65536, "v2": 131072, "open": 2 << 20, "nosuch": 2 << 20} {
		got, err := available(dir+"/meminfo", filepath.Join(dir, self), dir+"/groups")
		require.NoError(t, err, self)
		assert.Equal(t, want, got, self)
	}
	for _, name := range []string{"none", "odd", "nosuch"} {
		_, err := available(filepath.Join(dir, name), dir+"/v2", dir+"/groups")
		assert.Error(t, err, name)
	}
}

// TestDevices uses a device that everyone may open, and that says when it was.
func TestDevices(t *testing.T) {
	null := Device{Path: "/dev/null", Major: 1, Minor: 3, Driver: Present}
	d := lookDevice(null)
	assert.NoError(t, d.Err)
	assert.False(t, d.other())
	assert.True(t, d.There)

	wrong := null
	wrong.Minor = 5
	assert.True(t, lookDevice(wrong).other())
	file := null
	file.Path = filepath.Join(tree(t, map[string]string{"file": ""}), "file")
	assert.True(t, lookDevice(file).other())
	file.Path += ".nosuch"
	assert.ErrorIs(t, lookDevice(file).Err, os.ErrNotExist)

	// A node without its driver: to open it fails, or loads the driver.
	if os.Geteuid() == 0 {
		node := Device{Path: filepath.Join(t.TempDir(), "node"), Major: 10, Minor: 191, Driver: Unknown}
		require.NoError(t, unix.Mknod(node.Path, unix.S_IFCHR|0o600, int(unix.Mkdev(10, 191))))
		assert.NoError(t, lookDevice(node).Err, "was opened")
		node.Driver = Present
		assert.ErrorIs(t, lookDevice(node).Err, unix.ENODEV)
	}
}

func TestLook(t *testing.T) {
	work := t.TempDir()
	m := Look(context.Background(), work)
	assert.Regexp(t, `^\d+\.\d+`, m.Kernel)
	assert.Equal(t, os.Geteuid(), m.UID)
	assert.NoError(t, m.AdminErr)
	assert.Positive(t, m.Work.Free)
	assert.Positive(t, m.Memory)
	assert.Equal(t, filesystems(), []string{"ext4", "xfs", "btrfs"})
	left, err := os.ReadDir(work)
	require.NoError(t, err)
	assert.Empty(t, left)
	assert.Equal(t, unix.ENOENT, Look(context.Background(), filepath.Join(work, "nosuch")).Work.Err)
}

func TestProgramsOffThePath(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mkfs.plugpull"), []byte("#!/bin/sh\n"), 0o700))
	t.Setenv("PATH", "")
	_, err := blockdev.FindProgram("mkfs.plugpull", "")
	assert.Error(t, err)
	m := Look(context.Background(), dir)
	if m.ServerErr != nil {
		t.Log("without a server: its tools are not looked for")
	} else {
		assert.Contains(t, m.OffPath, "sed")
		assert.Empty(t, m.NoTools)
	}
	t.Setenv("PATH", dir)
	path, err := blockdev.FindProgram("mkfs.plugpull", "")
	assert.NoError(t, err)
	assert.Equal(t, filepath.Join(dir, "mkfs.plugpull"), path)
}
