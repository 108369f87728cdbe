package layers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"plugpull/internal/hostcheck"
)

// The kinds of nodes that are asked for elsewhere.
const (
	kindDisk = "disk"
	// factDevice holds the name in /sys/block of a layer that is a block device.
	factDevice = "block device"
)

// base is the name of a device from its path in /sys.
func base(real string) string { return path.Base(real) }

func validName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00\n")
}

// deviceName returns the name in /sys/class/block of /dev/sda, a link to it, or sda. The error matches
// fs.ErrNotExist when the host said that there is none.
func (w *Walker) deviceName(ctx context.Context, dev string) (string, error) {
	if !strings.HasPrefix(dev, "/") {
		dev = "/dev/" + dev
	}
	real, err := w.r.RealPath(ctx, dev)
	if err != nil {
		if real = path.Clean(dev); !strings.HasPrefix(real, "/dev/") {
			return "", err
		} // a container has not all of /dev
	}
	rest, ok := strings.CutPrefix(real, "/dev/")
	if !ok {
		return "", fmt.Errorf("%s is not in /dev: %w", real, fs.ErrNotExist)
	}
	name := strings.ReplaceAll(rest, "/", "!") // cciss!c0d0
	if !validName(name) {
		return "", fmt.Errorf("%q: %w", name, fs.ErrNotExist)
	}
	sys, err := w.r.RealPath(ctx, "/sys/class/block/"+name)
	if err != nil {
		return "", err
	}
	return base(sys), nil
}

// block walks from a block device or partition.
func (w *Walker) block(ctx context.Context, name string) *hostcheck.Node {
	if n := w.blocks[name]; n != nil {
		return n
	}
	n := &hostcheck.Node{Kind: "device", Name: name}
	w.blocks[name] = n
	if !validName(name) {
		fail(n, "device_unreadable", "its name makes no sense")
		return n
	}
	_, err := w.r.ReadFile(ctx, "/sys/class/block/"+name+"/partition")
	switch {
	case err == nil:
		w.partition(ctx, n, name)
	case missing(err):
		w.whole(ctx, n, name)
	default:
		fail(n, "device_unreadable", "whether it is a partition could not be read: %s", reason(err))
	}
	return n
}

func (w *Walker) partition(ctx context.Context, n *hostcheck.Node, name string) {
	n.Kind, n.Cache = "partition", passes()
	real, err := w.r.RealPath(ctx, "/sys/class/block/"+name)
	if err != nil {
		fail(n, "device_unreadable", "its disk could not be found: %s", reason(err))
		return
	}
	w.blockBelow(ctx, n, base(path.Dir(real)))
}

// whole walks from a device that is no partition. What it is, its folder in /sys says.
func (w *Walker) whole(ctx context.Context, n *hostcheck.Node, name string) {
	entries, err := w.r.ReadDir(ctx, "/sys/block/"+name)
	if err != nil {
		fail(n, "device_unreadable", "/sys/block/%s could not be read: %s", name, reason(err))
		return
	}
	fact(n, factDevice, name, "/sys/block")
	has := func(entry string) bool { return slices.Contains(entries, entry) }
	switch {
	case has("dm"):
		w.mapped(ctx, n, name)
	case has("md"):
		w.raid(ctx, n, name)
	case numbered(name, "loop"):
		w.loop(ctx, n, name)
	case numbered(name, "bcache"):
		w.bcache(ctx, n, name)
	case numbered(name, "zram"), numbered(name, "ram"):
		n.Kind = "memory"
		n.Cache = hostcheck.Cache{Volatile: hostcheck.Yes, Protected: hostcheck.No, Flushes: hostcheck.No, Why: "a device in memory alone"}
	case elsewhere(name) != "":
		n.Kind, n.Cache = "volume", hostcheck.Cache{Why: elsewhere(name)}
	default:
		w.single(ctx, n, name, has("slaves"))
	}
}

// single is a disk, unless it says that it lies on others by a driver that this check does not know.
func (w *Walker) single(ctx context.Context, n *hostcheck.Node, name string, mayStack bool) {
	if mayStack {
		slaves, err := w.r.ReadDir(ctx, "/sys/block/"+name+"/slaves")
		if err != nil {
			fail(n, "device_unreadable", "whether it lies on other devices could not be read: %s", reason(err))
			return
		}
		if len(slaves) > 0 {
			n.Cache = hostcheck.Cache{Why: "its driver is not known to this check"}
			for _, s := range slaves {
				w.blockBelow(ctx, n, s)
			}
			n.Add(hostcheck.Unknown, "driver_unknown", "device %s lies on others (%s) by a driver of which this check does not know whether it passes flushes", name, strings.Join(slaves, ", "))
			return
		}
	}
	w.disk(ctx, n, name)
}

// numbered reports whether a name is a prefix and a number.
func numbered(name, prefix string) bool {
	rest, ok := strings.CutPrefix(name, prefix)
	return ok && rest != "" && strings.Trim(rest, "0123456789") == ""
}

// elsewhere says of devices whose data is on another machine why nothing is known of them.
func elsewhere(name string) string {
	switch {
	case numbered(name, "nbd"):
		return "what the NBD server does with a flush is not seen from here; check it there"
	case numbered(name, "rbd"):
		return "what the Ceph cluster does with a flush is not seen from here; check its hosts"
	case numbered(name, "drbd"):
		return "DRBD is not looked into (disk-flushes, md-flushes and protocol decide); check its backing device and its peer"
	case numbered(name, "zd"):
		return "a ZFS volume is not looked into; check its property sync and the pool's devices"
	}
	return ""
}

// slaves goes on at the devices that one lies on.
func (w *Walker) slaves(ctx context.Context, n *hostcheck.Node, name string) {
	slaves, err := w.r.ReadDir(ctx, "/sys/block/"+name+"/slaves")
	if err == nil && len(slaves) == 0 {
		err = errors.New("the list is empty")
	}
	if err != nil {
		fail(n, "members_unreadable", "the devices that it lies on could not be read: %s", reason(err))
		return
	}
	for _, s := range slaves {
		w.blockBelow(ctx, n, s)
	}
}

// stacked sets the cache of a layer between: it keeps nothing, and passes flushes unless its queue is write
// through, or the kernel is older than since, which taught this kind of layer to.
func (w *Walker) stacked(ctx context.Context, n *hostcheck.Node, name string, since version) {
	n.Cache = passes()
	value, err := w.sys(ctx, name, "queue/write_cache")
	fact(n, "write_cache", value, sysPath(name, "queue/write_cache"))
	kernel := version{}
	if missing(err) { // it came with Linux 4.7
		kernel = w.version(ctx)
	}
	switch {
	case err == nil && value == writeBack:
	case err == nil && value == writeThrough:
		n.Cache.Flushes, n.Cache.Why = hostcheck.No, "its queue is write through: the kernel drops the flushes that it gets"
	case missing(err) && kernel.before(since):
		n.Cache.Flushes, n.Cache.Why = hostcheck.No, "Linux "+kernel.String()+" does not pass flushes through it"
	case missing(err) && kernel.before(version{4, 7}):
	case missing(err) || err == nil:
		n.Cache.Flushes, n.Cache.Why = hostcheck.NotKnown, "its queue/write_cache says nothing"
	default:
		n.Cache.Flushes, n.Cache.Why = hostcheck.NotKnown, "its queue/write_cache could not be read: "+reason(err)
	}
}
