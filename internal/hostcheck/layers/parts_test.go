package layers

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"plugpull/internal/hostcheck"
	"plugpull/internal/hostcheck/runner"
)

func TestFindMount(t *testing.T) {
	const text = `1 1 0:1 / / rw - rootfs rootfs rw
21 1 8:2 / / rw shared:1 - ext4 /dev/sda2 rw
22 21 8:3 / /a/b rw - ext4 /dev/sda3 rw
23 21 8:4 / /a rw - ext4 /dev/sda4 rw
24 21 8:5 / /data rw master:2 propagate_from:3 - xfs /dev/sda5 rw
25 24 8:6 /sub /data rw - xfs /dev/sda6 rw,logdev=/dev/x
26 25 8:7 / /data/with\040blank rw - ext4 /dev/sda7 rw
27 21 8:8 / /datax rw - ext4 /dev/sda8 rw
`
	all, err := parseMounts(text)
	require.NoError(t, err)
	for path, id := range map[string]int{
		"/":                   21, // rootfs lies below it
		"/etc":                21,
		"/a/b/c":              23, // /a was mounted over what /a/b is on
		"/data/x":             25, // two mounts on one point: the last
		"/data":               25,
		"/data/with blank/db": 26,
		"/dataxy":             21,
		"/datax/y":            27,
	} {
		m, err := find(all, path)
		require.NoError(t, err, path)
		require.Equal(t, id, m.id, path)
	}
	require.Equal(t, "/dev/x", all[5].value("logdev"))

	slices.Reverse(all)
	m, err := find(all, "/a/b/c")
	require.NoError(t, err)
	require.Equal(t, 23, m.id, "what is hidden stays so in any order")

	inChroot, err := parseMounts("30 9 8:1 / /data rw - ext4 /dev/sda1 rw\n")
	require.NoError(t, err)
	m, err = find(inChroot, "/data/x")
	require.NoError(t, err)
	require.Equal(t, 30, m.id)
	_, err = find(inChroot, "/etc")
	require.ErrorIs(t, err, errNoMount)
}

func TestMountInfoIsReadWholeOrNotAtAll(t *testing.T) {
	const good = "21 1 8:2 / / rw - ext4 /dev/sda2 rw\n"
	for _, bad := range []string{"x", "22 21 8:3 / /a rw ext4 /dev/sda3 rw", "22 21 8 / /a rw - ext4 /dev/sda3 rw",
		"22 21 8:-3 / /a rw - ext4 /dev/sda3 rw", "22 q 8:3 / /a rw - ext4 d rw", "22 21 8:3 / a rw - ext4 d rw", "22 21 8:3 / /a rw -  d rw"} {
		_, err := parseMounts(good + bad + "\n")
		require.Error(t, err, bad)
	}
	_, err := parseMounts("\n")
	require.Error(t, err)
}

func TestUnescape(t *testing.T) {
	require.Equal(t, `a b,\9`, unescape(`a\040b\054\9`))
	require.Equal(t, []string{"upperdir=/a,b", "rw"}, split(`upperdir=/a\054b,rw`))
}

func TestMounts(t *testing.T) {
	f := newFake().mount("8:1", "/data", "ext4 /dev/sda1 rw").mount("8:1", "/bind", "ext4 /dev/sda1 rw").mount("0:5", "/tmp", "tmpfs tmpfs rw").
		mount("0:31", "/b1", "btrfs /dev/sdb rw,subvol=/1").mount("0:32", "/b2", "btrfs /dev/sdb rw,subvol=/2").
		mount("7:1", "/snap/x", "squashfs /dev/loop1 ro").mount("0:60", "/tank", "zfs tank rw").mount("0:61", "/net", "nfs4 s:/x rw")
	dirs, err := Mounts(t.Context(), f)
	require.NoError(t, err)
	require.Equal(t, []string{"/", "/data", "/b1", "/tank"}, dirs)
	_, err = Mounts(t.Context(), f.file(mountInfo, "rubbish"))
	require.Error(t, err)
}

func TestBarriers(t *testing.T) {
	for _, c := range []struct {
		fs, options, kernel string
		want                hostcheck.Tri
	}{
		{"ext4", "rw", "6.1", hostcheck.Yes},
		{"ext4", "rw,barrier=1", "3.10", hostcheck.Yes},
		{"ext4", "rw,barrier=0", "6.1", hostcheck.No},
		{"ext3", "rw", "6.1", hostcheck.Yes},
		{"ext3", "rw", "2.6.32", hostcheck.NotKnown},
		{"ext3", "rw", "", hostcheck.NotKnown},
		{"ext3", "rw,barrier=1", "2.6.32", hostcheck.Yes},
		{"ext3", "rw,barrier=0", "2.6.32", hostcheck.No},
		{"xfs", "rw", "", hostcheck.Yes},
		{"xfs", "rw,nobarrier", "3.10.0-1160.el7", hostcheck.No},
		{"xfs", "rw,nobarrier", "4.9.99", hostcheck.No},
		{"xfs", "rw,nobarrier", "4.10.0", hostcheck.Yes},
		{"xfs", "rw,nobarrier", "4.18.0-553.el8", hostcheck.Yes},
		{"xfs", "rw,nobarrier", "4.19.0", hostcheck.NotKnown},
		{"xfs", "rw,nobarrier", "", hostcheck.NotKnown},
		{"btrfs", "rw,nobarrier", "6.1", hostcheck.No},
		{"f2fs", "rw,fsync_mode=nobarrier", "6.1", hostcheck.No},
		{"f2fs", "rw,fsync_mode=posix", "6.1", hostcheck.Yes},
		{"nilfs2", "rw,nobarrier", "6.1", hostcheck.No},
		{"gfs2", "rw,nobarrier", "6.1", hostcheck.No},
		{"hfsplus", "rw,nobarrier", "6.1", hostcheck.No},
		{"reiserfs", "rw", "5.10", hostcheck.NotKnown},
		{"reiserfs", "rw,barrier=none", "5.10", hostcheck.No},
		{"bcachefs", "rw,journal_flush_disabled", "6.7", hostcheck.No},
	} {
		got, why := barriers(&mountPoint{fsType: c.fs, fsOptions: split(c.options)}, parseVersion(c.kernel))
		require.Equal(t, c.want, got, "%v: %s", c, why)
		require.True(t, got == hostcheck.Yes || why != "", "%v", c)
	}
}

func TestVersion(t *testing.T) {
	require.Equal(t, version{2, 6, 18}, parseVersion("2.6.18-8.el5\n"))
	require.Equal(t, version{6, 18, 0}, parseVersion("6.18-rc1"))
	require.False(t, parseVersion("Linux").known())
	require.True(t, version{2, 6, 30}.before(version{2, 6, 31}))
	require.False(t, version{2, 6, 31}.before(version{2, 6, 31}))
	require.False(t, version{}.before(version{2, 6, 31}), "what is not known is not old")
}

func TestIdentity(t *testing.T) {
	for _, c := range []struct {
		id                      identity
		virtual, remote, volume bool
	}{
		{id: identity{name: "sda", vendor: "ATA", model: "EXAMPLE SSD", driver: "ahci"}},
		{id: identity{name: "sda", vendor: "ATA", model: "QEMU HARDDISK", driver: "ata_piix"}, virtual: true},
		{id: identity{name: "sda", vendor: "VMware", model: "Virtual disk", driver: "mptspi"}, virtual: true},
		{id: identity{name: "sda", vendor: "Msft", model: "Disk", driver: "storvsc_host"}, virtual: true},
		{id: identity{name: "xvda"}, virtual: true},
		{id: identity{name: "nvme0n1", model: "QEMU NVMe Ctrl", transport: "pcie"}, virtual: true},
		{id: identity{name: "nvme0n1", model: "EXAMPLE", transport: "pcie"}},
		{id: identity{name: "nvme0n1", model: "EXAMPLE", transport: "rdma"}, remote: true},
		{id: identity{name: "sdb", vendor: "ACME", driver: "iscsi_tcp"}, remote: true},
		{id: identity{name: "sdb", vendor: "ACME", driver: "hpsa"}, volume: true},
		{id: identity{name: "sdb", vendor: "ACME", driver: "hpsa", raidLevel: "N/A"}},
		{id: identity{name: "sdb", vendor: "ATA", driver: "megaraid_sas"}},
		{id: identity{name: "sdb", vendor: "ACME", driver: "megaraid_sas", channel: "0"}},
		{id: identity{name: "sdb", vendor: "ACME", driver: "megaraid_sas", channel: "1"}},
		{id: identity{name: "sdb", vendor: "ACME", driver: "megaraid_sas", channel: "2"}, volume: true},
		{id: identity{name: "sdb", vendor: "ACME", driver: "megaraid_sas"}, volume: true},
		{id: identity{name: "sdb", vendor: "ACME", driver: "hpsa", channel: "0"}, volume: true},
		{id: identity{name: "sdb", vendor: "ACME", driver: "mpt3sas"}},
		{id: identity{name: "sdb", vendor: "LSI", model: "Logical Volume", driver: "mpt3sas"}, volume: true},
		{id: identity{name: "cciss!c0d0", driver: "cciss"}, volume: true},
	} {
		require.Equal(t, []bool{c.virtual, c.remote, c.volume}, []bool{c.id.virtual(), c.id.remote(), c.id.volume()}, "%v", c.id)
	}
}

func TestKernelTooOldToPassFlushes(t *testing.T) {
	for kernel, want := range map[string]hostcheck.Tri{"2.6.30": hostcheck.No, "2.6.31": hostcheck.Yes, "4.6.0": hostcheck.Yes, "4.7.0": hostcheck.NotKnown, "?": hostcheck.NotKnown} {
		f := lvmOnRaid(writeBack).file("/proc/sys/kernel/osrelease", kernel)
		delete(f.files, sysPath("dm-0", "queue/write_cache"))
		n := Device(t.Context(), f, "dm-0", cacheOn)
		require.Equal(t, "lvm", n.Kind)
		require.Equal(t, want, n.Cache.Flushes, kernel)
	}
}

func TestASharedDiskIsOneNodeAndAskedOnce(t *testing.T) {
	calls := map[string]int{}
	o := Options{Drive: func(_ context.Context, _ hostcheck.Runner, name string, n *hostcheck.Node) {
		calls[name]++
		require.Equal(t, "disk", n.Kind)
		require.Equal(t, hostcheck.Yes, n.Cache.Flushes, "the kernel's view is there already")
	}}
	f := newFake().sata("sda", "8", writeBack).part("sda", "sda3", "8:3").virtual("md0", "9:0", writeBack, "sda1", "sda3").
		set("md0", "md/level", "raid0").mount("9:0", "/data", "ext4 /dev/md0 rw").mount("8:3", "/other", "ext4 /dev/sda3 rw")
	w := New(f, o)
	md := w.Folder(t.Context(), "/data/db").Below[0].Below[0]
	require.Len(t, md.Below, 2)
	require.Same(t, md.Below[0].Below[0], md.Below[1].Below[0])
	require.Same(t, md.Below[0].Below[0], w.Device(t.Context(), "/dev/sda"), "also over several calls")
	require.Equal(t, map[string]int{"sda": 1}, calls)
	require.Equal(t, hostcheck.Yes, md.Below[0].Below[0].Cache.Volatile, "what the hook leaves open stays as the kernel said")
}

func TestFlushes(t *testing.T) {
	f := lvmOnRaid(writeThrough).set("nvme1n1", "stat", "1 2 3")
	require.Equal(t, map[string]Counter{"nvme0n1": {7, writeBack}}, Flushes(t.Context(), f, Device(t.Context(), f, "dm-0", Options{})),
		"no counters of layers that count nothing, none of an old kernel")

	head := newFake().nvme("nvme0n1", "259:0", writeBack).nvme("nvme0c0n1", "259:1", writeBack).nvme("nvme0c1n1", "259:2", writeBack).nvme("nvme1c1n1", "259:3", writeBack)
	delete(head.files, sysPath("nvme0n1", "mq/0/cpu_list"))
	require.Equal(t, map[string]Counter{"nvme0n1": {14, writeBack}}, Flushes(t.Context(), head, Device(t.Context(), head, "nvme0n1", Options{})))
}

// broken answers every question with an error, after some.
type broken struct {
	*fake
	good int
}

var errBroken = errors.New("connection lost")

func (b *broken) ok() bool { b.good--; return b.good >= 0 }

func (b *broken) ReadFile(ctx context.Context, p string) ([]byte, error) {
	if !b.ok() {
		return nil, errBroken
	}
	return b.fake.ReadFile(ctx, p)
}

func (b *broken) ReadDir(ctx context.Context, p string) ([]string, error) {
	if !b.ok() {
		return nil, errBroken
	}
	return b.fake.ReadDir(ctx, p)
}

func (b *broken) RealPath(ctx context.Context, p string) (string, error) {
	if !b.ok() {
		return "", errBroken
	}
	return b.fake.RealPath(ctx, p)
}

// Whatever cannot be read any more, a host that can lose something is never called safe by it.
func TestALostConnectionMakesNothingSafe(t *testing.T) {
	for name, c := range cases {
		if c.level == hostcheck.OK {
			continue
		}
		for good := range 60 {
			r := report(t, &broken{c.host, good}, c.dev, c.o)
			require.NotEqual(t, hostcheck.OK, r.Level, "%s after %d answers: %s", name, good, r.Verdict)
		}
	}
}

func TestDepthIsBounded(t *testing.T) {
	f := newFake().sata("sda", "8", writeBack)
	below := "sda1"
	for i := range 2 * maxDepth {
		name := fmt.Sprintf("dm-%d", i)
		f.mapped(name, fmt.Sprintf("252:%d", i), name, "LVM-x", writeBack, below)
		below = name
	}
	r := report(t, f, below, cacheOff)
	require.Equal(t, hostcheck.Unknown, r.Level)
	require.Contains(t, r.Verdict, "layers")
}

// The saved answers of a host give the tree that the host gave.
func TestSavedAnswersGiveTheSameTree(t *testing.T) {
	for name, c := range cases {
		dir := filepath.Join(t.TempDir(), "saved")
		rec, err := runner.NewRecorder(c.host, dir)
		require.NoError(t, err)
		live := report(t, rec, c.dev, c.o)
		require.NoError(t, rec.Err())
		saved, err := runner.OpenSaved(dir)
		require.NoError(t, err)
		require.Equal(t, live, report(t, saved, c.dev, c.o), name)
	}
}

func FuzzMountInfo(f *testing.F) {
	f.Add("21 1 8:2 / / rw - ext4 /dev/sda2 rw\n22 21 0:44 / /data rw - overlay o rw,upperdir=/data/db,volatile\n")
	f.Add(btrfs("rw").files[mountInfo])
	f.Add("1 1 0:1 / / rw - zfs tank/a rw")
	f.Add("1 2 0:1 / / rw - bcachefs /dev/a:/dev/b rw\n2 1 0:2 / / rw - xfs x rw,nobarrier,logdev=/dev/q")
	f.Fuzz(func(t *testing.T, text string) {
		if all, err := parseMounts(text); err == nil {
			for _, path := range []string{"/", "/data/db"} {
				if m, err := find(all, path); err == nil {
					require.True(t, within(m.dir, path), "%s is not on %s", path, m.dir)
				}
			}
		}
		host := newFake().file(mountInfo, text) // it has no devices at all
		_, _ = Mounts(t.Context(), host)
		r := report(t, host, "", cacheOff)
		require.NotEqual(t, hostcheck.OK, r.Level, r.Verdict)
		require.False(t, strings.Contains(r.Verdict, "safe because"), r.Verdict)
	})
}
