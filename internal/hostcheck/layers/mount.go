package layers

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"plugpull/internal/hostcheck"
)

// mount walks from a mount to what its filesystem lies on.
func (w *Walker) mount(ctx context.Context, m *mountPoint) *hostcheck.Node {
	if n := w.mounts[m.id]; n != nil {
		return n
	}
	n := &hostcheck.Node{Kind: "mount", Name: m.dir}
	w.mounts[m.id] = n
	fact(n, "filesystem", m.fsType, mountInfo)
	fact(n, "source", m.source, mountInfo)
	fact(n, "options", strings.Join(m.options, ","), mountInfo)
	fact(n, "filesystem options", strings.Join(m.fsOptions, ","), mountInfo)
	kernel := version{}
	if m.fsType == "xfs" || m.fsType == "ext3" {
		kernel = w.version(ctx)
	}
	judgeMount(n, m, kernel)
	switch class, _ := classOf(m.fsType); class {
	case onPool:
		w.pool(ctx, n, m)
	case onOverlay:
		w.overlay(ctx, n, m)
	case onDevice:
		w.devices(ctx, n, m)
	case onUnknown:
		if m.major != 0 {
			w.superblock(ctx, n, m)
		}
	}
	return n
}

// devices finds the devices of a filesystem.
func (w *Walker) devices(ctx context.Context, n *hostcheck.Node, m *mountPoint) {
	switch {
	case m.fsType == "btrfs":
		w.btrfs(ctx, n, m)
	case m.fsType == "bcachefs":
		for _, source := range strings.Split(m.source, ":") {
			w.source(ctx, n, source)
		}
	case m.major != 0:
		w.superblock(ctx, n, m)
	default:
		fail(n, "device_unreadable", "%s has no device number here", m.fsType)
	}
	for _, key := range []string{"logdev", "rtdev"} { // of xfs: its journal, or its data, elsewhere
		if dev := m.value(key); dev != "" {
			w.source(ctx, n, dev)
		}
	}
}

// journal sees that ext3 or ext4 has its journal on its own device, which is then listed with the journal's inode, as in
// sda1-8 (fs/jbd2/journal.c). One on a device of its own is listed by that alone, and not said whose it is.
func (w *Walker) journal(ctx context.Context, n *hostcheck.Node, name string) {
	const dir = "/proc/fs/jbd2"
	names, err := w.r.ReadDir(ctx, dir)
	switch {
	case missing(err):
		return // not said, as by a kernel without it: its own device is the rule
	case err != nil:
		fail(n, "journal_unread", "where its journal is could not be read from %s: %s", dir, reason(err))
		return
	}
	if !slices.ContainsFunc(names, func(s string) bool { return strings.HasPrefix(s, name+"-") }) {
		fail(n, "journal_elsewhere", "it has no journal on %s: there is none, or it is on a device whose cache was not looked at; dumpe2fs -h /dev/%s says which", name, name)
	}
}

// superblock goes on at the device that has the filesystem's number.
func (w *Walker) superblock(ctx context.Context, n *hostcheck.Node, m *mountPoint) {
	link := fmt.Sprintf("/sys/dev/block/%d:%d", m.major, m.minor)
	real, err := w.r.RealPath(ctx, link)
	if err != nil {
		fail(n, "device_unreadable", "its device %d:%d could not be found in %s: %s", m.major, m.minor, link, reason(err))
		return
	}
	name := base(real)
	w.blockBelow(ctx, n, name)
	if m.fsType == "ext3" || m.fsType == "ext4" {
		w.journal(ctx, n, name)
	}
}

// source goes on at a device by its path.
func (w *Walker) source(ctx context.Context, n *hostcheck.Node, dev string) {
	name, err := w.deviceName(ctx, dev)
	if err != nil {
		fail(n, "device_unreadable", "its device %s could not be found: %s", clean(dev), reason(err))
		return
	}
	w.blockBelow(ctx, n, name)
}

func (w *Walker) blockBelow(ctx context.Context, n *hostcheck.Node, name string) {
	w.down(n, "device "+name, func() *hostcheck.Node { return w.block(ctx, name) })
}

// btrfs goes on at every device of the filesystem; mountinfo names only one.
func (w *Walker) btrfs(ctx context.Context, n *hostcheck.Node, m *mountPoint) {
	name, err := w.deviceName(ctx, m.source)
	if err != nil {
		fail(n, "device_unreadable", "its device %s could not be found: %s", clean(m.source), reason(err))
		return
	}
	const dir = "/sys/fs/btrfs"
	ids, err := w.r.ReadDir(ctx, dir)
	for _, id := range ids {
		if len(id) != len("01234567-89ab-cdef-0123-456789abcdef") {
			continue // "features"
		}
		members, failed := w.r.ReadDir(ctx, dir+"/"+id+"/devices")
		if failed != nil && !missing(failed) {
			err = failed
		}
		if slices.Contains(members, name) {
			fact(n, "uuid", id, dir)
			for _, member := range members {
				w.blockBelow(ctx, n, member)
			}
			return
		}
	}
	if err == nil {
		err = fmt.Errorf("%s is with none of the filesystems in %s", name, dir)
	}
	w.blockBelow(ctx, n, name)
	fail(n, "members_unreadable", "whether it has more devices than %s could not be read: %s", name, reason(err))
}

// overlay goes on at the folder that takes what is written.
func (w *Walker) overlay(ctx context.Context, n *hostcheck.Node, m *mountPoint) {
	upper := m.value("upperdir")
	if !strings.HasPrefix(upper, "/") {
		fail(n, "upper_unreadable", "where it puts what is written could not be read: its options have no absolute upperdir")
		return
	}
	fact(n, "upperdir", upper, mountInfo)
	real, err := w.r.RealPath(ctx, upper)
	var below *mountPoint
	if err == nil {
		below, err = w.mountOf(ctx, real)
	}
	switch {
	case err != nil:
		fail(n, "upper_unreadable", "its upper folder %s cannot be seen from here (%s); in a container, check that folder on the host", clean(upper), reason(err))
	case below == m:
		// The path is one of the host's and means something else in here.
		fail(n, "upper_unreadable", "its upper folder %s is not of this mount namespace; check that folder on the host", clean(upper))
	default:
		w.down(n, "mount "+below.dir, func() *hostcheck.Node { return w.mount(ctx, below) })
	}
}

// pool asks ZFS about a dataset. Its devices are not looked at, so what is below stays unknown.
func (w *Walker) pool(ctx context.Context, n *hostcheck.Node, m *mountPoint) {
	pool, _, _ := strings.Cut(m.source, "/")
	n.Cache = hostcheck.Cache{Volatile: hostcheck.No, Flushes: hostcheck.Yes}
	below := &hostcheck.Node{Kind: "pool", Name: pool, Cache: hostcheck.Cache{
		Why: "the devices of a ZFS pool are not looked at; see zpool status -P and check each"}}
	n.Below = append(n.Below, below)

	const parameter = "/sys/module/zfs/parameters/zfs_nocacheflush"
	b, err := w.r.ReadFile(ctx, parameter)
	value := strings.TrimSpace(string(b))
	fact(below, "zfs_nocacheflush", value, parameter)
	switch {
	case err == nil && value == "0":
		below.Cache.Flushes = hostcheck.NotKnown
	case err == nil && value != "":
		below.Cache.Flushes = hostcheck.No
		below.Cache.Why = "zfs_nocacheflush is " + clean(value) + ": ZFS sends no flush to its devices, and they are not looked at"
	}
	if m.source == "" || strings.HasPrefix(m.source, "-") {
		fail(n, "zfs_unreadable", "the name of its dataset could not be read")
		return
	}
	args := []string{"get", "-H", "-o", "value", "sync", m.source}
	out, err := w.r.Run(ctx, "zfs", args...)
	sync := clean(string(out.Stdout))
	from := hostcheck.CommandLine("zfs", args...)
	switch {
	case err != nil:
		n.Cache.Flushes, n.Cache.Why = hostcheck.NotKnown, from+": "+reason(err)
	case out.Code == 0 && (sync == "standard" || sync == "always"):
		fact(n, "sync", sync, from)
	case out.Code == 0 && sync == "disabled":
		fact(n, "sync", sync, from)
		n.Cache.Flushes, n.Cache.Why = hostcheck.No, "sync=disabled"
		n.Add(hostcheck.Critical, "zfs_sync_disabled",
			"ZFS dataset %s has sync=disabled: fsync does nothing and the last seconds of commits are lost; zfs set sync=standard %s", m.source, m.source)
	default:
		n.Cache.Flushes, n.Cache.Why = hostcheck.NotKnown, "the output of "+from+" was not understood"
	}
	w.recordSize(ctx, n, m.source)
}

// RecordSize is the key of a fact of a ZFS mount: the bytes that it writes as a whole or not at all, for files that
// were made since it was set so (zfsprops(7)).
const RecordSize = "recordsize"

func (w *Walker) recordSize(ctx context.Context, n *hostcheck.Node, dataset string) {
	args := []string{"get", "-H", "-p", "-o", "value", RecordSize, dataset}
	out, err := w.r.Run(ctx, "zfs", args...)
	value := strings.TrimSpace(string(out.Stdout))
	if size, bad := strconv.ParseUint(value, 10, 32); err == nil && out.Code == 0 && bad == nil && size >= 512 {
		fact(n, RecordSize, value, hostcheck.CommandLine("zfs", args...))
	}
}
