package layers

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"plugpull/internal/hostcheck"
)

var nonWord = regexp.MustCompile(`[^a-z0-9]+`)

var update = flag.Bool("update", false, "write the expected trees in testdata anew")

// says is a hook that knows of every drive the same.
func says(volatile, protected hostcheck.Tri) Options {
	return Options{Drive: func(_ context.Context, _ hostcheck.Runner, _ string, n *hostcheck.Node) {
		n.Cache = hostcheck.Cache{Volatile: volatile, Protected: protected, Flushes: hostcheck.Yes, Why: "the drive says so"}
	}}
}

var (
	asked     = Options{}
	cacheOn   = says(hostcheck.Yes, hostcheck.No)
	cacheOff  = says(hostcheck.No, hostcheck.NotKnown)
	protected = says(hostcheck.Yes, hostcheck.Yes)
)

func plain(cache, rest string) *fake {
	return newFake().sata("sda", "8", cache).mount("8:1", "/data", rest)
}

// megaraid is a SAS disk on a channel of a MegaRAID controller: drives are on 0 and 1, volumes on 2 and 3.
func megaraid(channel string) *fake {
	address := "target0:" + channel + ":0/0:" + channel + ":0:0"
	return newFake().block("sda", "8:0", "/sys/devices/pci0000:00/0000:03:00.0/host0/"+address+"/block/sda", writeBack).
		set("sda", "device/vendor", "BROADCOM", "device/model", "MR1234").file("/sys/class/scsi_host/host0/proc_name", "megaraid_sas").
		part("sda", "sda1", "8:1").mount("8:1", "/data", ext4)
}

const (
	btrfsID = "11111111-2222-3333-4444-555555555555"
	ext4    = "ext4 /dev/sda1 rw"
)

// cases are hosts, what is asked of /data/db (or dev), and the verdict. The trees are in testdata.
var cases = map[string]struct {
	host  *fake
	o     Options
	dev   string
	level hostcheck.Level
	says  string
}{
	"ext4 on sata":            {plain(writeBack, ext4), asked, "", hostcheck.OK, "flushes reach disk sda"},
	"ext4 on sata, protected": {plain(writeBack, ext4), protected, "", hostcheck.OK, "is protected"},
	"ext4 without barriers, cache on": {plain(writeBack, "ext4 /dev/sda1 rw,barrier=0"), asked, "", hostcheck.Critical,
		"does not pass them on"},
	"ext4 without barriers, no cache":  {plain(writeBack, "ext4 /dev/sda1 rw,nobarrier"), cacheOff, "", hostcheck.OK, "no volatile cache"},
	"ext4 without barriers, protected": {plain(writeBack, "ext4 /dev/sda1 rw,nobarrier"), protected, "", hostcheck.OK, "protected"},
	"ext4 data=writeback":              {plain(writeBack, "ext4 /dev/sda1 rw,data=writeback,journal_async_commit"), asked, "", hostcheck.OK, "flushes reach"},
	"write through, nothing known":     {plain(writeThrough, ext4), asked, "", hostcheck.Unknown, "sends it no flush"},
	"write through, cache on":          {plain(writeThrough, ext4), cacheOn, "", hostcheck.Critical, "has a volatile cache"},
	"write through, cache off":         {plain(writeThrough, ext4), cacheOff, "", hostcheck.OK, "no volatile cache"},
	"write through by hand": {plain(writeThrough, ext4).set("sda", "device/scsi_disk/0:0:0:0/cache_type", writeBack), asked, "", hostcheck.Critical,
		"was set to write through"},
	"old kernel, cache_type": {oldKernel(), asked, "", hostcheck.OK, "flushes reach disk sda"},
	"xfs on lvm on raid1":    {lvmOnRaid(writeBack), asked, "", hostcheck.OK, "flushes reach disk nvme0n1"},
	"xfs on lvm on raid1, one member write through": {lvmOnRaid(writeThrough), cacheOn, "", hostcheck.Critical,
		"disk nvme1n1 has a volatile cache"},
	"crypt":               {crypt(writeBack), cacheOn, "", hostcheck.OK, "flushes reach disk sda"},
	"crypt write through": {crypt(writeThrough), cacheOn, "", hostcheck.Critical, "crypt data_crypt (its queue is write through: the kernel drops the flushes that it gets) does not pass them on"},
	"btrfs":               {btrfs("rw,ssd"), asked, "", hostcheck.OK, "flushes reach disk sda"},
	"btrfs nobarrier":     {btrfs("rw,nobarrier"), asked, "", hostcheck.Critical, "does not pass them on"},
	"btrfs, members unreadable": {deny(btrfs("rw"), "/sys/fs/btrfs"), asked, "", hostcheck.Unknown,
		"whether it has more devices"},
	"btrfs, in none of the lists": {btrfs("rw").drop("/sys/fs/btrfs/" + btrfsID + "/devices/sda1/."), cacheOff, "", hostcheck.Unknown,
		"with none of the filesystems"},
	"xfs with a journal elsewhere": {plain(writeBack, "xfs /dev/sda1 rw,logdev=/dev/sdb1").sata("sdb", "65", writeThrough), cacheOn, "", hostcheck.Critical,
		"disk sdb has a volatile cache"},
	"ext4 with its own journal": {plain(writeBack, ext4).file("/proc/fs/jbd2/sda1-8/info", ""), asked, "", hostcheck.OK, "flushes reach disk sda"},
	"ext4 with a journal elsewhere": {plain(writeBack, ext4).file("/proc/fs/jbd2/sda10-8/info", "").file("/proc/fs/jbd2/sdb1/info", ""), asked, "", hostcheck.Unknown,
		"it has no journal on sda1"},
	"vdo": {newFake().sata("sda", "8", writeBack).mapped("dm-0", "252:0", "vg-pool", "LVM-abc-vpool", writeBack, "sda1").mount("252:0", "/data", "xfs /dev/dm-0 rw"), cacheOn, "", hostcheck.Unknown,
		"write policy of VDO"},
	"dm of an unknown kind": {deny(lvmOnRaid(writeBack), "/sys/block/dm-0/dm/uuid"), cacheOn, "", hostcheck.Unknown, "kind of device"},
	"old smart array":       {newFake().block("cciss!c0d0", "104:0", "/sys/devices/x/block/cciss!c0d0", writeThrough).file("/dev/cciss/c0d0", ""), asked, "/dev/cciss/c0d0", hostcheck.Unknown, "RAID controller"},
	"overlay":               {plain(writeBack, ext4).mount("0:44", "/merged", "overlay overlay rw,lowerdir=/l,upperdir=/data/db,workdir=/data/w"), asked, "folder:/merged", hostcheck.OK, "flushes reach"},
	"overlay volatile": {plain(writeBack, ext4).mount("0:44", "/merged", "overlay overlay rw,lowerdir=/l,upperdir=/data/db,workdir=/data/w,volatile"), asked, "folder:/merged", hostcheck.Critical,
		"mounted with volatile"},
	"overlay volatile, no cache below": {plain(writeBack, ext4).mount("0:44", "/merged", "overlay overlay rw,upperdir=/data/db,workdir=/data/w,volatile"), cacheOff, "folder:/merged", hostcheck.Critical,
		"fsync does nothing"},
	"overlay in a container": {newFake().mount("0:44", "/data", "overlay overlay rw,lowerdir=/l,upperdir=/data/db,workdir=/w"), asked, "", hostcheck.Unknown,
		"check that folder on the host"},
	"memory below the folder": {plain(writeBack, ext4).mount("0:46", "/data/db/shop", "tmpfs tmpfs rw").inside(22), asked, "folder:/data/db", hostcheck.Critical,
		"tmpfs exists in memory alone"},
	"memory beside the folder": {plain(writeBack, ext4).mount("0:46", "/data/db2", "tmpfs tmpfs rw").inside(22).mount("0:5", "/data/db/proc", "proc proc rw").inside(22), asked, "folder:/data/db", hostcheck.OK,
		"flushes reach disk sda"},
	"f2fs without recovery":   {plain(writeBack, "f2fs /dev/sda1 rw,disable_roll_forward"), asked, "", hostcheck.Critical, "without what was synced since"},
	"f2fs without checkpoint": {plain(writeBack, "f2fs /dev/sda1 rw,checkpoint=disable:10%"), asked, "", hostcheck.Critical, "without what was synced since"},
	"jfs":                     {plain(writeBack, "jfs /dev/sda1 rw"), asked, "", hostcheck.Unknown, "no filesystem of which"},
	"a boot controller behind ahci": {plain(writeBack, ext4).set("sda", "device/vendor", "ATA", "device/model", "DELLBOSS VD"), asked, "", hostcheck.Unknown,
		"a RAID controller (ahci) provides it"},
	"tmpfs":         {newFake().mount("0:40", "/data", "tmpfs tmpfs rw"), asked, "", hostcheck.Critical, "tmpfs exists in memory alone"},
	"nfs":           {newFake().mount("0:41", "/data", "nfs4 server:/x rw"), asked, "", hostcheck.Unknown, "up to the server"},
	"not known":     {plain(writeBack, "vfat /dev/sda1 rw"), asked, "", hostcheck.Unknown, "no filesystem of which"},
	"loop":          {onLoop(writeBack, "0"), asked, "", hostcheck.OK, "flushes reach disk sda"},
	"loop bare":     {onLoop(writeThrough, "0"), asked, "", hostcheck.Critical, "loop loop0 has a volatile cache"},
	"loop dio bare": {onLoop(writeThrough, "1"), cacheOff, "", hostcheck.Critical, "what its filesystem knows of the file"},
	"loop on a device": {newFake().sata("sda", "8", writeBack).virtual("loop0", "7:0", writeBack).set("loop0", "loop/backing_file", "/dev/sda1", "loop/dio", "1").
		mount("7:0", "/data", "ext4 /dev/loop0 rw"), asked, "", hostcheck.OK, "flushes reach disk sda"},
	"virtio":                               {virtio(writeBack, writeBack), cacheOff, "", hostcheck.Unknown, "a hypervisor provides it"},
	"virtio write through":                 {virtio(writeThrough, writeThrough), cacheOff, "", hostcheck.Unknown, "a hypervisor provides it"},
	"raid controller":                      {megaraid("2"), asked, "", hostcheck.Unknown, "a RAID controller (megaraid_sas) provides it"},
	"raid controller that hands through":   {megaraid("0"), asked, "", hostcheck.OK, "flushes reach disk sda"},
	"raid controller, handed through, off": {megaraid("1"), cacheOff, "", hostcheck.OK, "no volatile cache"},
	"nvme over tcp": {newFake().nvme("nvme0n1", "259:0", writeBack).set("nvme0n1", "device/transport", "tcp").mount("259:0", "/data", "xfs /dev/nvme0n1 rw"), cacheOff, "", hostcheck.Unknown,
		"another machine"},
	"bcache":  {bcache(), asked, "", hostcheck.OK, "flushes reach disk nvme0n1"},
	"zram":    {newFake().virtual("zram0", "253:0", writeThrough).mount("253:0", "/data", "ext4 /dev/zram0 rw"), asked, "", hostcheck.Critical, "in memory alone"},
	"nbd":     {newFake().virtual("nbd0", "43:0", writeBack).mount("43:0", "/data", "ext4 /dev/nbd0 rw"), asked, "", hostcheck.Unknown, "NBD server"},
	"zfs":     {zfs("standard"), asked, "", hostcheck.Unknown, "ZFS pool are not looked at"},
	"zfs off": {zfs("disabled"), asked, "", hostcheck.Critical, "sync=disabled"},
	"bcachefs": {newFake().sata("sda", "8", writeBack).mount("0:50", "/data", "bcachefs /dev/sda1:/dev/sda rw,journal_flush_disabled"), cacheOff, "", hostcheck.Critical,
		"journal_flush_disabled"},
	"driver not known":    {newFake().sata("sda", "8", writeBack).virtual("foo0", "250:0", writeBack, "sda1").mount("250:0", "/data", "ext4 /dev/foo0 rw"), cacheOff, "", hostcheck.Unknown, "by a driver of which"},
	"sysfs unreadable":    {deny(plain(writeBack, ext4), "/sys"), cacheOff, "", hostcheck.Unknown, "permission denied"},
	"disk unreadable":     {deny(plain(writeBack, ext4), "/sys/block/sda"), cacheOff, "", hostcheck.Unknown, "could not be read"},
	"slaves unreadable":   {deny(lvmOnRaid(writeBack), "/sys/block/md0/slaves"), cacheOff, "", hostcheck.Unknown, "could not be read"},
	"mountinfo garbage":   {plain(writeBack, ext4).file(mountInfo, "26 1 8:1 / / rw\n"), cacheOff, "", hostcheck.Unknown, "could not be read"},
	"mountinfo cut short": {plain(writeBack, ext4).file(mountInfo, plain(writeBack, ext4).files[mountInfo]+"27 21 8:1 / /da"), cacheOff, "", hostcheck.Unknown, "could not be read"},
	"no such folder":      {plain(writeBack, ext4), cacheOff, "folder:/nowhere", hostcheck.Unknown, "not found"},
	"circle":              {newFake().mapped("dm-0", "252:0", "a", "LVM-a", writeBack, "dm-1").mapped("dm-1", "252:1", "b", "LVM-b", writeBack, "dm-0"), cacheOff, "/dev/mapper/a", hostcheck.Unknown, "below itself"},
	"no device":           {newFake(), cacheOff, "/dev/sdz", hostcheck.Unknown, "not found"},
	"a device":            {lvmOnRaid(writeBack), asked, "/dev/mapper/vg-data", hostcheck.OK, "flushes reach"},
	"a partition by name": {plain(writeBack, ext4), asked, "sda1", hostcheck.OK, "flushes reach disk sda"},
}

func (f *fake) file(path, text string) *fake {
	f.files[path] = text
	return f
}

// inside makes the last mount one in that of this number.
func (f *fake) inside(parent int) *fake {
	last := 20 + f.mounts
	f.files[mountInfo] = strings.Replace(f.files[mountInfo], fmt.Sprintf("%d 21 ", last), fmt.Sprintf("%d %d ", last, parent), 1)
	return f
}

func (f *fake) drop(path string) *fake {
	delete(f.files, path)
	return f
}

func deny(f *fake, beginning string) *fake {
	f.denied = append(f.denied, beginning)
	return f
}

func oldKernel() *fake {
	f := plain("", ext4).file("/proc/sys/kernel/osrelease", "3.10.0-1160.el7.x86_64").set("sda", "device/scsi_disk/0:0:0:0/cache_type", writeBack)
	delete(f.files, sysPath("sda", "queue/write_cache"))
	return f
}

func lvmOnRaid(second string) *fake {
	return newFake().nvme("nvme0n1", "259:0", writeBack).nvme("nvme1n1", "259:1", second).
		virtual("md0", "9:0", writeBack, "nvme0n1", "nvme1n1").set("md0", "md/level", "raid1", "md/degraded", "0").
		mapped("dm-0", "252:0", "vg-data", "LVM-abc", writeBack, "md0").
		mount("252:0", "/data", "xfs /dev/mapper/vg-data rw,attr2")
}

func crypt(cache string) *fake {
	return newFake().sata("sda", "8", writeBack).mapped("dm-0", "252:0", "data_crypt", "CRYPT-LUKS2-0-x", cache, "sda1").
		mount("252:0", "/data", "ext4 /dev/mapper/data_crypt rw")
}

func btrfs(options string) *fake {
	f := newFake().sata("sda", "8", writeBack).sata("sdb", "65", writeBack).mount("0:33", "/data", "btrfs /dev/sda1 "+options)
	return f.file("/sys/fs/btrfs/"+btrfsID+"/devices/sda1/.", "").file("/sys/fs/btrfs/"+btrfsID+"/devices/sdb1/.", "").file("/sys/fs/btrfs/features/x", "")
}

func onLoop(cache, dio string) *fake {
	return newFake().sata("sda", "8", writeBack).mount("8:1", "/images", ext4).file("/images/a b.img", "").
		virtual("loop0", "7:0", cache).set("loop0", "loop/backing_file", "/images/a b.img", "loop/dio", dio).
		mount("7:0", "/data", "ext4 /dev/loop0 rw")
}

func virtio(queue, device string) *fake {
	f := newFake().block("vda", "254:0", "/sys/devices/pci0000:00/0000:00:02.0/virtio1/block/vda", queue).set("vda", "cache_type", device)
	f.links["/sys/block/vda/device/driver"] = "/sys/bus/virtio/drivers/virtio_blk"
	return f.mount("254:0", "/data", "ext4 /dev/vda rw")
}

func bcache() *fake {
	f := newFake().sata("sda", "8", writeBack).nvme("nvme0n1", "259:0", writeBack).virtual("bcache0", "251:0", writeBack, "sda1").
		set("bcache0", "bcache/cache_mode", "writethrough [writeback] writearound none").mount("251:0", "/data", "ext4 /dev/bcache0 rw")
	f.links["/sys/block/bcache0/bcache/cache/cache0"] = f.links["/sys/block/nvme0n1"] + "/bcache"
	return f
}

func zfs(sync string) *fake {
	f := newFake().mount("0:45", "/data", "zfs tank/db rw")
	f.commands["zfs get -H -o value sync tank/db"] = hostcheck.Output{Stdout: []byte(sync + "\n")}
	f.commands["zfs get -H -p -o value recordsize tank/db"] = hostcheck.Output{Stdout: []byte("131072\n")}
	return f.file("/sys/module/zfs/parameters/zfs_nocacheflush", "0\n")
}

func TestVerdictsAndTrees(t *testing.T) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := report(t, c.host, c.dev, c.o)
			require.Equal(t, c.level, r.Level, r.Verdict)
			var b bytes.Buffer
			require.NoError(t, r.WriteText(&b, true))
			whys := ""
			r.Tops[0].Walk(func(n *hostcheck.Node) { whys += n.Cache.Why + "\n" })
			require.Contains(t, b.String()+whys, c.says)
			golden(t, name, b.Bytes())
		})
	}
}

// report asks about a device, "folder:" and a path, or /data/db.
func report(t testing.TB, host hostcheck.Runner, what string, o Options) *hostcheck.Report {
	t.Helper()
	path, isFolder := "/data/db", true
	if what != "" {
		path, isFolder = cutFolder(what)
	}
	r := &hostcheck.Report{}
	if isFolder {
		r.Tops = []*hostcheck.Node{Folder(t.Context(), host, path, o)}
	} else {
		r.Tops = []*hostcheck.Node{Device(t.Context(), host, path, o)}
	}
	r.Judge()
	return r
}

func cutFolder(what string) (string, bool) {
	const prefix = "folder:"
	if len(what) > len(prefix) && what[:len(prefix)] == prefix {
		return what[len(prefix):], true
	}
	return what, false
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", strings.Trim(nonWord.ReplaceAllString(name, "-"), "-")+".txt")
	if *update {
		require.NoError(t, os.WriteFile(file, got, 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err, "%s: go test -update writes it", name)
	require.Equal(t, string(want), string(got))
}
