package layers

import (
	"slices"
	"strings"

	"plugpull/internal/hostcheck"
)

// fsClass says where a filesystem keeps what it is given.
type fsClass int

const (
	onUnknown fsClass = iota // this check does not know it
	onDevice                 // a block device
	onMemory                 // nothing that survives
	onOther                  // another machine, the hypervisor, or a program
	onOverlay                // the folder of another filesystem
	onPool                   // ZFS, which has its devices to itself
)

// flushers are filesystems on a block device whose fsync sends a flush unless an option forbids it.
var flushers = []string{"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "nilfs2", "ocfs2", "hfsplus", "bcachefs", "reiserfs"}

// others are filesystems without a device here, and who is behind them.
var others = map[string]string{
	"nfs": "the server", "nfs4": "the server", "cifs": "the server", "smb3": "the server", "ceph": "the cluster",
	"glusterfs": "the cluster", "lustre": "the cluster", "afs": "the server", "gpfs": "the cluster", "beegfs": "the cluster",
	"9p": "the hypervisor", "virtiofs": "the hypervisor", "vboxsf": "the hypervisor", "vmhgfs": "the hypervisor",
	"prl_fs": "the hypervisor", "fuse": "the program behind it", "fuseblk": "the program behind it",
}

func classOf(fsType string) (fsClass, string) {
	who, other := others[fsType]
	if strings.HasPrefix(fsType, "fuse.") {
		who, other = others["fuse"], true
	}
	switch {
	case slices.Contains([]string{"tmpfs", "ramfs", "rootfs", "hugetlbfs"}, fsType):
		return onMemory, ""
	case fsType == "overlay":
		return onOverlay, ""
	case fsType == "zfs":
		return onPool, ""
	case slices.Contains(flushers, fsType):
		return onDevice, ""
	case other:
		return onOther, who
	}
	return onUnknown, ""
}

// judgeMount says of a mount what its filesystem and its options do with a flush. The options come from
// Documentation/filesystems and the filesystems' own show_options.
func judgeMount(n *hostcheck.Node, m *mountPoint, kernel version) {
	class, who := classOf(m.fsType)
	switch class {
	case onMemory:
		n.Cache = hostcheck.Cache{Volatile: hostcheck.Yes, Protected: hostcheck.No, Flushes: hostcheck.No, Why: m.fsType + " exists in memory alone"}
	case onOther:
		n.Cache.Why = "whether fsync makes anything durable is up to " + who + " of " + m.fsType + "; check it there"
	case onUnknown:
		n.Cache.Why = m.fsType + " is no filesystem of which this check knows what fsync does"
	case onPool: // its settings are asked for
	case onOverlay:
		judgeOverlay(n, m)
	case onDevice:
		n.Cache = passes()
		n.Cache.Flushes, n.Cache.Why = barriers(m, kernel)
		notes(n, m)
	}
}

func judgeOverlay(n *hostcheck.Node, m *mountPoint) {
	n.Cache = passes()
	if m.has("volatile", "fsync=volatile") {
		n.Cache.Flushes, n.Cache.Why = hostcheck.No, "mounted with volatile"
		n.Add(hostcheck.Critical, "overlay_volatile",
			"overlay %s is mounted with volatile: fsync does nothing, and what it was given stays in memory; mount it without", m.dir)
	}
}

// barriers says whether the filesystem sends flushes, and why where it does not or that is not known.
func barriers(m *mountPoint, kernel version) (hostcheck.Tri, string) {
	off := ""
	for _, o := range []string{"nobarrier", "barrier=0", "barrier=none", "barrier=off", "fsync_mode=nobarrier"} {
		if m.has(o) {
			off = o
		}
	}
	switch {
	case off != "" && m.fsType == "xfs":
		return xfsNobarrier(kernel)
	case off != "":
		return hostcheck.No, "mounted with " + off
	case m.fsType == "bcachefs" && m.has("journal_flush_disabled"):
		return hostcheck.No, "mounted with journal_flush_disabled"
	case m.fsType == "reiserfs" && !m.has("barrier=flush"):
		return hostcheck.NotKnown, "reiserfs sends flushes only with barrier=flush, which is not among its options"
	case m.fsType == "ext3" && !m.has("barrier=1") && (!kernel.known() || kernel.before(version{4, 3})):
		// The driver of ext3 itself always shows the option, and had barriers off for long. Since 4.3 it is ext4.
		return hostcheck.NotKnown, "the options of ext3 do not say whether barriers are on"
	}
	return hostcheck.Yes, ""
}

// xfsNobarrier: kernels before 4.10 obey the option, 4.19 removed it.
func xfsNobarrier(kernel version) (hostcheck.Tri, string) {
	switch {
	case !kernel.known():
		return hostcheck.NotKnown, "mounted with nobarrier, and the kernel's version, which decides whether that counts, could not be read"
	case kernel.before(version{4, 10}):
		return hostcheck.No, "mounted with nobarrier"
	case kernel.before(version{4, 19}):
		return hostcheck.Yes, "mounted with nobarrier, which Linux " + kernel.String() + " ignores"
	}
	return hostcheck.NotKnown, "mounted with nobarrier, which xfs in Linux " + kernel.String() + " should not have"
}

// notes are findings on options that are dangerous whatever lies below, or look so and are not.
func notes(n *hostcheck.Node, m *mountPoint) {
	if m.fsType == "bcachefs" && m.has("journal_flush_disabled") {
		n.Add(hostcheck.Critical, "journal_flush_disabled",
			"bcachefs %s is mounted with journal_flush_disabled: fsync does not write the journal, and the last second or so of commits is lost; mount it without", m.dir)
	}
	// Both are shown as they are given, the first also with a number behind a colon (Documentation/filesystems/f2fs.rst).
	if c, _, _ := strings.Cut(m.value("checkpoint"), ":"); m.fsType == "f2fs" && (c == "disable" || m.has("disable_roll_forward")) {
		n.Add(hostcheck.Critical, "f2fs_no_recovery",
			"f2fs %s is mounted with checkpoint=disable or disable_roll_forward: after a power cut it is as it was at its last checkpoint, without what was synced since; mount it without", m.dir)
	}
	if m.has("data=writeback") {
		n.Add(hostcheck.OK, "data_writeback",
			"%s %s is mounted with data=writeback: after a crash, files may show old data where nobody called fsync; a commit that was synced is not lost by it", m.fsType, m.dir)
	}
	if m.has("journal_async_commit") {
		n.Add(hostcheck.OK, "journal_async_commit",
			"%s %s is mounted with journal_async_commit: recovery relies on the journal's checksums; a commit that was synced is not lost by it", m.fsType, m.dir)
	}
	if m.fsType == "xfs" && m.has("nobarrier") {
		n.Add(hostcheck.OK, "xfs_nobarrier", "xfs %s has the option nobarrier (%s)", m.dir, n.Cache.Why)
	}
}
