package layers

import (
	"context"
	"path"
	"strings"

	"plugpull/internal/hostcheck"
)

// dmKinds are what the prefixes of a device mapper UUID say of who made it.
var dmKinds = []struct{ prefix, kind string }{
	{"LVM-", "lvm"}, {"CRYPT-", "crypt"}, {"mpath-", "multipath"}, {"part", "partition"},
	{"DMRAID-", "raid"}, {"VDO-", "vdo"}, {"stratis-", "stratis"},
}

// mapped walks from a device of the device mapper. Every target passes flushes since 2.6.31.
func (w *Walker) mapped(ctx context.Context, n *hostcheck.Node, name string) {
	n.Kind = "dm"
	label, _ := w.sys(ctx, name, "dm/name")
	if label = clean(label); label != "" {
		n.Name = label
	}
	uuid, err := w.sys(ctx, name, "dm/uuid")
	fact(n, "uuid", uuid, sysPath(name, "dm/uuid"))
	for _, k := range dmKinds {
		if strings.HasPrefix(uuid, k.prefix) {
			n.Kind = k.kind
		}
	}
	w.stacked(ctx, n, name, version{2, 6, 31})
	vdo := n.Kind == "vdo" || strings.HasSuffix(uuid, "-vpool")
	if n.Cache.Flushes == hostcheck.Yes && (vdo || err != nil) {
		n.Cache.Flushes, n.Cache.Why = hostcheck.NotKnown, "the write policy of VDO, which decides, is not read"
		if err != nil {
			n.Cache.Why = "what kind of device it is could not be read: " + reason(err)
		}
	}
	w.slaves(ctx, n, name)
}

// raid walks from an md array. Every level passes flushes since 2.6.33. What a journal device holds has been
// flushed there before it is acknowledged, and the journal is among the slaves. Write-behind acknowledges
// before the slow members have written, and leaves the flushed copy on the others.
func (w *Walker) raid(ctx context.Context, n *hostcheck.Node, name string) {
	n.Kind = "raid"
	for _, a := range []string{"level", "array_state", "degraded", "consistency_policy", "journal_mode", "bitmap/backlog"} {
		value, err := w.sys(ctx, name, "md/"+a)
		if err != nil {
			continue
		}
		fact(n, a, value, sysPath(name, "md/"+a))
		if a == "bitmap/backlog" && value != "0" && value != "" {
			n.Add(hostcheck.OK, "write_behind", "raid %s writes behind: after a power cut its write-mostly members may be older, and are made the same from the others", name)
		}
	}
	w.stacked(ctx, n, name, version{2, 6, 33})
	w.slaves(ctx, n, name)
}

// loop walks from a loop device to its file. A flush becomes an fsync of the file. Without direct I/O what
// was written stays in the page cache until then; with it, a file that was not written whole before may still
// need its metadata made durable.
func (w *Walker) loop(ctx context.Context, n *hostcheck.Node, name string) {
	n.Kind = "loop"
	w.stacked(ctx, n, name, version{2, 6, 37})
	dio, err := w.sys(ctx, name, "loop/dio")
	fact(n, "direct i/o", dio, sysPath(name, "loop/dio"))
	why := "whether it has direct I/O could not be read"
	n.Cache.Volatile = hostcheck.NotKnown
	switch {
	case err == nil && dio == "0", missing(err):
		n.Cache.Volatile, n.Cache.Protected = hostcheck.Yes, hostcheck.No
		why = "without direct I/O, writes stay in the page cache until a flush"
	case err == nil && dio == "1":
		why = "with direct I/O, what its filesystem knows of the file, and the drive's cache, need a flush"
	}
	n.Cache.Why = strings.TrimPrefix(n.Cache.Why+"; "+why, "; ")

	file, err := w.sys(ctx, name, "loop/backing_file")
	if err != nil {
		n.Cache = hostcheck.Cache{Why: "the file below it is not known"}
		fail(n, "backing_unreadable", "its file could not be read: %s", reason(err))
		return
	}
	fact(n, "backing file", file, sysPath(name, "loop/backing_file"))
	if strings.HasPrefix(file, "/dev/") {
		if dev, err := w.deviceName(ctx, file); err == nil {
			w.blockBelow(ctx, n, dev)
			return
		}
	}
	if dio == "1" {
		// The driver itself announces a cache for every file that can be synced (drivers/block/loop.c): a filesystem
		// promises nothing of a file, whatever way it was written, before that.
		n.Cache.Volatile = hostcheck.Yes
	}
	w.down(n, "file "+file, func() *hostcheck.Node {
		below := &hostcheck.Node{Kind: "file", Name: clean(file)}
		w.path(ctx, below, file)
		return below
	})
}

// bcache walks from a cached device to the device behind it and to the caches. It flushes both.
func (w *Walker) bcache(ctx context.Context, n *hostcheck.Node, name string) {
	n.Kind = "bcache"
	w.stacked(ctx, n, name, version{3, 10})
	mode, _ := w.sys(ctx, name, "bcache/cache_mode")
	fact(n, "cache_mode", mode, sysPath(name, "bcache/cache_mode"))
	w.slaves(ctx, n, name)

	dir := "/sys/block/" + name + "/bcache/cache"
	entries, err := w.r.ReadDir(ctx, dir)
	switch {
	case missing(err):
		return // no cache is attached
	case err != nil:
		fail(n, "members_unreadable", "its cache devices could not be read: %s", reason(err))
		return
	}
	for _, e := range entries {
		if !numbered(e, "cache") {
			continue
		}
		real, err := w.r.RealPath(ctx, dir+"/"+e)
		if err != nil {
			fail(n, "members_unreadable", "its cache device %s could not be read: %s", e, reason(err))
			continue
		}
		w.blockBelow(ctx, n, base(path.Dir(real)))
	}
}
