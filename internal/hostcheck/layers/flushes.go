package layers

import (
	"context"
	"regexp"
	"strconv"
	"strings"

	"plugpull/internal/hostcheck"
)

// Counter is what a block device has counted, and what the kernel believes of its cache.
type Counter struct {
	// Flushes are the flush requests that the device has completed since it was made. A write with FUA is none.
	Flushes uint64
	// WriteCache is queue/write_cache, "" where it could not be read. With "write through" no flush is sent,
	// so that the count stands still by design.
	WriteCache string
}

// Flushes reads the counters of the block devices at and below n, by name as in /sys/block. Only devices with
// a request queue of their own (folder mq) are counted by the kernel: device mapper, md and other layers that
// pass single bios on always show 0, and are left out, as is what has no counter (Linux before 5.5) or could
// not be read. Of an NVMe disk with native multipath the paths are added up.
func Flushes(ctx context.Context, r hostcheck.Runner, n *hostcheck.Node) map[string]Counter {
	counters := map[string]Counter{}
	n.Walk(func(n *hostcheck.Node) {
		for _, f := range n.Facts {
			if f.Key != factDevice {
				continue
			}
			if c, ok := counter(ctx, r, f.Value); ok {
				counters[f.Value] = c
			}
		}
	})
	return counters
}

var nvmeHead = regexp.MustCompile(`^nvme(\d+)(n\d+)$`)

func counter(ctx context.Context, r hostcheck.Runner, name string) (c Counter, ok bool) {
	if !validName(name) {
		return c, false
	}
	if b, err := r.ReadFile(ctx, sysPath(name, "queue/write_cache")); err == nil {
		c.WriteCache = clean(string(b))
	}
	if _, err := r.ReadDir(ctx, sysPath(name, "mq")); err == nil {
		c.Flushes, ok = statFlushes(ctx, r, name)
		return c, ok
	}
	head := nvmeHead.FindStringSubmatch(name)
	if head == nil {
		return c, false
	}
	all, _ := r.ReadDir(ctx, "/sys/block")
	for _, path := range all {
		controller, found := strings.CutSuffix(path, head[2])
		if !found || !numbered(controller, "nvme"+head[1]+"c") {
			continue
		}
		flushes, read := statFlushes(ctx, r, path)
		if !read {
			return c, false
		}
		c.Flushes, ok = c.Flushes+flushes, true
	}
	return c, ok
}

// statFlushes is field 16 of stat: Documentation/block/stat.rst, "flush I/Os".
func statFlushes(ctx context.Context, r hostcheck.Runner, name string) (uint64, bool) {
	b, err := r.ReadFile(ctx, sysPath(name, "stat"))
	fields := strings.Fields(string(b))
	if err != nil || len(fields) < 17 {
		return 0, false
	}
	flushes, err := strconv.ParseUint(fields[15], 10, 64)
	return flushes, err == nil
}
