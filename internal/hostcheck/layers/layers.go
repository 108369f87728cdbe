// Package layers walks from a folder or a device down to the disks: mount, filesystem, device mapper, md,
// loop, partition, disk. Of each layer it says what the kernel says: whether a flush passes, and what is
// known of a cache.
//
// It guarantees that nothing is called safe because it could not be read: a layer below which nothing was
// found is unknown unless it is a disk that says of itself that it has no cache; and that a tree is finite
// and has no circles, whatever the host answers. It only reads.
package layers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"plugpull/internal/hostcheck"
)

// Options of a walk.
type Options struct {
	// Drive fills in a disk's node beyond what the kernel says; name is as in /sys/block. It finds the node
	// with the kernel's facts and Cache. What it leaves NotKnown stays as the kernel said; its Flushes says
	// what the drive does with one, and counts only where the kernel is known to send them. It is called once
	// a disk, and not for disks that a hypervisor or another machine provides, or of which the provider could
	// not be read. For a volume of a RAID controller it is, with the fact "driver". Nil: the kernel's view alone.
	Drive func(ctx context.Context, r hostcheck.Runner, name string, n *hostcheck.Node)
}

// maxDepth bounds a walk. Real stacks have fewer than ten layers.
const maxDepth = 24

// Walker walks one host. What two paths share is one node, also over several calls. The mounts are read
// once. It is for one goroutine.
type Walker struct {
	r hostcheck.Runner
	o Options

	table  *mountTable
	kernel *version
	mounts map[int]*hostcheck.Node    // by mount ID
	blocks map[string]*hostcheck.Node // by name as in /sys/block
	active map[*hostcheck.Node]bool   // those being walked: one that is met again is a circle
}

// New makes a Walker.
func New(r hostcheck.Runner, o Options) *Walker {
	return &Walker{r: r, o: o, mounts: map[int]*hostcheck.Node{}, blocks: map[string]*hostcheck.Node{}, active: map[*hostcheck.Node]bool{}}
}

// Folder walks from a folder, or a file, down to the disks. What fails is an Unknown finding on the node
// where it failed.
func Folder(ctx context.Context, r hostcheck.Runner, path string, o Options) *hostcheck.Node {
	return New(r, o).Folder(ctx, path)
}

// Device walks from a block device: /dev/sda, /dev/mapper/x, or sda.
func Device(ctx context.Context, r hostcheck.Runner, dev string, o Options) *hostcheck.Node {
	return New(r, o).Device(ctx, dev)
}

// Folder is the function Folder on this walker: what is mounted in the folder, or below it, is what it lies on.
func (w *Walker) Folder(ctx context.Context, path string) *hostcheck.Node {
	n := &hostcheck.Node{Kind: "folder", Name: path}
	if real := w.path(ctx, n, path); real != "/" {
		for _, m := range w.mountsBelow(real) {
			w.down(n, "mount "+m.dir, func() *hostcheck.Node { return w.mount(ctx, m) })
		}
	}
	seal(n)
	return n
}

// Mount is Folder without what is mounted below.
func (w *Walker) Mount(ctx context.Context, path string) *hostcheck.Node {
	n := &hostcheck.Node{Kind: "folder", Name: path}
	w.path(ctx, n, path)
	seal(n)
	return n
}

// mountsBelow are the mounts that are seen below a folder. The kernel's own filesystems keep nothing for anybody.
func (w *Walker) mountsBelow(dir string) (below []*mountPoint) {
	if dir == "" || w.table == nil || w.table.err != nil {
		return nil // the folder itself says so
	}
	for _, m := range w.table.all {
		top, err := find(w.table.all, m.dir)
		if err == nil && top == m && strings.HasPrefix(m.dir, dir+"/") && !slices.Contains([]string{"proc", "sysfs", "cgroup", "cgroup2", "devpts", "mqueue", "debugfs", "tracefs", "securityfs", "bpf", "pstore", "configfs", "efivarfs", "autofs", "binfmt_misc", "nsfs", "fusectl"}, m.fsType) {
			below = append(below, m)
		}
	}
	return below
}

// path walks from a folder or file, whose node n is, and returns what its links lead to, "" where that is not known.
func (w *Walker) path(ctx context.Context, n *hostcheck.Node, path string) (real string) {
	n.Cache = passes()
	real, err := w.r.RealPath(ctx, path)
	if err != nil {
		fail(n, "path_unreadable", "the path could not be resolved: %s", reason(err))
		return ""
	}
	if real != path {
		fact(n, "real path", real, "")
	}
	m, err := w.mountOf(ctx, real)
	if err != nil {
		fail(n, "mount_unreadable", "it could not be read what is mounted there: %s", reason(err))
		return ""
	}
	w.down(n, "mount "+m.dir, func() *hostcheck.Node { return w.mount(ctx, m) })
	return real
}

// Device is the function Device on this walker.
func (w *Walker) Device(ctx context.Context, dev string) *hostcheck.Node {
	name, err := w.deviceName(ctx, dev)
	if err != nil {
		n := &hostcheck.Node{Kind: "device", Name: dev}
		fail(n, "device_unreadable", "no such block device could be read: %s", reason(err))
		return n
	}
	n := w.block(ctx, name)
	seal(n)
	return n
}

// down walks to the next layer and appends it below n; what says what it is, for a finding.
func (w *Walker) down(n *hostcheck.Node, what string, next func() *hostcheck.Node) {
	if len(w.active) >= maxDepth {
		fail(n, "too_deep", "more than %d layers: the walk stopped before %s", maxDepth, what)
		return
	}
	w.active[n] = true
	defer delete(w.active, n)
	below := next()
	if w.active[below] {
		fail(n, "circle", "%s lies below itself, which cannot be: the walk stopped", what)
		return
	}
	n.Below = append(n.Below, below)
}

// passes is the cache of a layer that keeps nothing and passes flushes.
func passes() hostcheck.Cache {
	return hostcheck.Cache{Volatile: hostcheck.No, Flushes: hostcheck.Yes}
}

// seal makes unknown what has nothing below it and is no disk: a layer alone is no ground for safety.
func seal(top *hostcheck.Node) {
	top.Walk(func(n *hostcheck.Node) {
		if len(n.Below) > 0 || n.Kind == kindDisk || n.Cache.Volatile == hostcheck.Yes {
			return
		}
		why := n.Cache.Why
		if why == "" {
			why = "what lies below it is not known"
		}
		n.Cache = hostcheck.Cache{Flushes: n.Cache.Flushes, Why: why}
		if n.Cache.Flushes == hostcheck.Yes {
			n.Cache.Flushes = hostcheck.NotKnown
		}
	})
}

// fail adds an Unknown finding. The layer keeps what is known of it, for there may be others below it; what
// stays without any is sealed.
func fail(n *hostcheck.Node, code, format string, args ...any) {
	why := fmt.Sprintf(format, args...)
	n.Add(hostcheck.Unknown, code, "%s %s: %s", n.Kind, n.Name, why)
	if n.Cache.Why == "" {
		n.Cache.Why = why
	}
}

// reason is an error for a person.
func reason(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "not found"
	case errors.Is(err, fs.ErrPermission):
		return "permission denied; run it as root"
	}
	return clean(err.Error())
}

// fact adds what was read, if there is anything.
func fact(n *hostcheck.Node, key, value, from string) {
	if value = clean(value); value != "" {
		n.Facts = append(n.Facts, hostcheck.Fact{Key: key, Value: value, From: from})
	}
}

// clean makes one short printable line of what a host said.
func clean(s string) string {
	s = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(strings.TrimSpace(s), "?"))
	if len(s) > 1000 {
		s = strings.ToValidUTF8(s[:1000], "") + "…"
	}
	return s
}
