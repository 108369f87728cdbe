package layers

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strings"

	"plugpull/internal/hostcheck"
)

// The values of queue/write_cache.
const (
	writeBack    = "write back"
	writeThrough = "write through"
)

// identity is what tells a disk from a volume that something else provides.
type identity struct {
	name, vendor, model string
	driver              string // of the device, or of its SCSI host
	transport           string // of an NVMe controller
	channel             string // of a SCSI device's address
	raidLevel           string // where a RAID driver says it of each device
	err                 error  // why some of it could not be read; what is not there is no error
}

func (id *identity) failed(err error) {
	if err != nil && !missing(err) && id.err == nil {
		id.err = err
	}
}

// disk fills in the node of a device with nothing below it.
func (w *Walker) disk(ctx context.Context, n *hostcheck.Node, name string) {
	n.Kind = kindDisk
	id := w.identify(ctx, n, name)
	queue, err := w.sys(ctx, name, "queue/write_cache")
	fact(n, "write_cache", queue, sysPath(name, "queue/write_cache"))
	if err != nil && !missing(err) {
		queue = "unreadable"
	}
	n.Cache = kernelCache(queue, w.cacheType(ctx, n, name))
	if err != nil && !missing(err) {
		n.Cache.Why += ": " + reason(err)
	}
	sent := n.Cache.Flushes
	if id.driver != "" && id.err == nil {
		fact(n, RaidVolume, hostcheck.Is(id.volume() && !id.virtual() && !id.remote()).String(), "")
	}
	switch {
	case id.virtual():
		n.Cache = provided(n.Cache, "a hypervisor provides it: what it caches, and whether it carries flushes out, is not seen from inside")
	case id.remote():
		n.Cache = provided(n.Cache, "another machine or an array provides it: what that caches is not seen from here; check it there")
	case id.err != nil:
		n.Cache = provided(n.Cache, "what provides it could not be read: "+reason(id.err))
	case id.volume():
		n.Cache = provided(n.Cache, "a RAID controller ("+cmp.Or(id.driver, "its driver is not known")+") provides it: only the controller's own tool knows its cache and battery, and those of the disks behind it")
		w.drive(ctx, n, name, sent)
	default:
		w.drive(ctx, n, name, sent)
	}
}

// kernelCache is what the kernel's view alone says. queue is queue/write_cache, "" where there is none;
// device is what the driver was told by the device, in the words of cache_type, or "".
//
// The kernel may have been told otherwise than the device: writing queue/write_cache changes the flushes and
// not the cache, and a cache that a tool turned on later is not seen by the kernel.
func kernelCache(queue, device string) hostcheck.Cache {
	deviceOn := strings.HasPrefix(device, writeBack)
	deviceOff := device == writeThrough || device == "none"
	switch {
	case queue == writeThrough && deviceOn:
		return hostcheck.Cache{Volatile: hostcheck.Yes, Flushes: hostcheck.No,
			Why: "the device said it has a cache, but the kernel's queue/write_cache was set to write through, so that no flush is sent"}
	case queue == writeThrough, queue == "" && deviceOff:
		return hostcheck.Cache{Flushes: hostcheck.No, Why: "the kernel takes it for write through and sends it no flush"}
	case queue == writeBack && deviceOff:
		return hostcheck.Cache{Flushes: hostcheck.Yes, Why: "the kernel sends it flushes"}
	case queue == writeBack, queue == "" && deviceOn:
		return hostcheck.Cache{Volatile: hostcheck.Yes, Flushes: hostcheck.Yes, Why: "the kernel takes it for write back and sends it flushes"}
	}
	return hostcheck.Cache{Why: "its queue/write_cache could not be read"}
}

// provided keeps what of the kernel's view counts for a disk that something else provides: a flush that is
// not sent does not arrive, but one that is sent may not be carried out.
func provided(k hostcheck.Cache, why string) hostcheck.Cache {
	c := hostcheck.Cache{Why: why}
	if k.Flushes == hostcheck.No {
		c.Flushes, c.Volatile = hostcheck.No, k.Volatile
		c.Why += "; " + k.Why
		if k.Volatile == hostcheck.Yes {
			c.Why = k.Why
		}
	}
	return c
}

// drive lets the hook say what the drive says, and keeps the kernel's view where that is not known. Whatever
// the drive does with flushes, it is the kernel that sends them or not.
func (w *Walker) drive(ctx context.Context, n *hostcheck.Node, name string, sent hostcheck.Tri) {
	kernel := n.Cache
	if w.o.Drive == nil {
		n.Cache.Why += "; the drive itself was not asked"
		return
	}
	w.o.Drive(ctx, w.r, name, n)
	n.Kind = kindDisk
	c := &n.Cache
	if c.Volatile == hostcheck.NotKnown {
		c.Volatile = kernel.Volatile
	}
	if c.Protected == hostcheck.NotKnown {
		c.Protected = kernel.Protected
	}
	if c.Flushes == hostcheck.NotKnown {
		c.Flushes = kernel.Flushes
	}
	if sent == hostcheck.No || sent == hostcheck.NotKnown && c.Flushes == hostcheck.Yes {
		c.Flushes = sent
	}
	switch {
	case c.Why == "":
		c.Why = kernel.Why
	case sent != hostcheck.Yes && !strings.Contains(c.Why, kernel.Why):
		c.Why += "; " + kernel.Why
	}
}

var (
	scsiHost    = regexp.MustCompile(`/(host\d+)/`)
	scsiAddress = regexp.MustCompile(`/\d+:(\d+):\d+:\d+/block/`)
)

// identify reads what a disk is. What is missing is left out: it is different for every kind of device.
func (w *Walker) identify(ctx context.Context, n *hostcheck.Node, name string) identity {
	id := identity{name: name}
	read := func(key, file string) string {
		b, err := w.r.ReadFile(ctx, file)
		id.failed(err)
		if err != nil {
			return ""
		}
		fact(n, key, string(b), file)
		return strings.TrimSpace(string(b))
	}
	device := "/sys/block/" + name + "/device"
	id.vendor, id.model = read("vendor", device+"/vendor"), read("model", device+"/model")
	if strings.HasPrefix(name, "nvme") {
		w.transport(ctx, n, &id, device)
		return id
	}
	real, err := w.r.RealPath(ctx, "/sys/block/"+name)
	id.failed(err)
	if host := scsiHost.FindStringSubmatch(real); host != nil {
		id.driver = read("driver", "/sys/class/scsi_host/"+host[1]+"/proc_name")
	}
	if address := scsiAddress.FindStringSubmatch(real); address != nil {
		id.channel = address[1]
	}
	if id.driver == "" {
		real, err := w.r.RealPath(ctx, device+"/driver")
		id.failed(err)
		if err == nil {
			id.driver = base(real)
			fact(n, "driver", id.driver, device+"/driver")
		}
	}
	if id.driver == "" && strings.HasPrefix(name, "cciss!") {
		id.driver = "cciss"
	}
	if slices.Contains(raidDrivers, id.driver) {
		id.raidLevel = read("raid_level", device+"/raid_level")
	}
	return id
}

// transport is that of an NVMe controller: pcie, or over a network. With native multipath the device of a
// disk is a subsystem with controllers in it.
func (w *Walker) transport(ctx context.Context, n *hostcheck.Node, id *identity, device string) {
	files := []string{device + "/transport"}
	entries, err := w.r.ReadDir(ctx, device)
	id.failed(err)
	for _, e := range entries {
		if numbered(e, "nvme") {
			files = append(files, device+"/"+e+"/transport")
		}
	}
	for _, f := range files {
		b, err := w.r.ReadFile(ctx, f)
		id.failed(err)
		if value := clean(string(b)); err == nil && value != "" {
			fact(n, "transport", value, f)
			if id.transport == "" || value != "pcie" {
				id.transport = value
			}
		}
	}
}

// cacheType is what the device told its driver when that last asked: sd's scsi_disk/*/cache_type, or
// virtio's cache_type.
func (w *Walker) cacheType(ctx context.Context, n *hostcheck.Node, name string) string {
	file := sysPath(name, "cache_type")
	dir := sysPath(name, "device/scsi_disk")
	if names, err := w.r.ReadDir(ctx, dir); err == nil && len(names) == 1 {
		file = dir + "/" + names[0] + "/cache_type"
	}
	b, err := w.r.ReadFile(ctx, file)
	if err != nil {
		return ""
	}
	fact(n, "cache_type", string(b), file)
	return strings.TrimSpace(string(b))
}
