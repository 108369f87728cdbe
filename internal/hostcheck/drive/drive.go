// Package drive reads what a drive says of its write cache and of power losses, and judges it.
//
// It guarantees that a drive's own word (Drive.WriteCache) and the kernel's view of it (KernelCache) are
// kept apart, that counters and attributes count by id and name together, and that a missing field, an
// impossible value or garbage is Unknown and never OK. It only asks; smartctl, nvme, hdparm and sdparm are
// called in ways that change nothing.
//
// Sources: smartctl(8) and its JSON of version 1.0; smartmontools' drivedb.h for the names of attributes;
// nvme-id-ctrl(1), nvme-get-feature(1), hdparm(8), sdparm(8); the kernel's Documentation/ABI/stable/sysfs-block.
package drive

import (
	"fmt"
	"strconv"
	"strings"

	"plugpull/internal/hostcheck"
)

// Protocol is how the drive is spoken to, in smartctl's words.
type Protocol string

// The protocols. The zero value is not known.
const (
	ATA  Protocol = "ATA"
	SCSI Protocol = "SCSI"
	NVMe Protocol = "NVMe"
)

// The kernel's two views of a device's cache, in the words of queue/write_cache. It sends flushes to
// "write back" only.
const (
	WriteBack    = "write back"
	WriteThrough = "write through"
)

// Counter is one of a drive's counters of power that went away.
type Counter struct {
	ID    int    `json:"id,omitempty"` // of an ATA attribute
	Name  string `json:"name"`
	Value uint64 `json:"value"`
}

// Drive is what is known of one drive. A zero field is not known.
type Drive struct {
	Device   string // the kernel's name, without /dev/
	Vendor   string
	Model    string
	Serial   string
	Firmware string
	Protocol Protocol

	// WriteCache: the drive says that a volatile write cache is on. An NVMe drive that says it has none: No.
	WriteCache     hostcheck.Tri
	WriteCacheFrom string // the command or document that says so

	KernelCache string // WriteBack, WriteThrough, or "" where not known
	FUA         hostcheck.Tri

	Rotational hostcheck.Tri // it has turning disks, as the drive says or else the kernel
	RPM        int           // how fast they turn, 0 where not known

	// Protection: what is in the cache is saved when power is lost. Yes only where the drive tests it and the
	// test passes; No only where the drive says that it failed.
	Protection hostcheck.Tri
	Evidence   string // what Protection rests on

	// UnsafeShutdowns may count every reboot on some drives: compare before and after before using them.
	UnsafeShutdowns []Counter
	PowerCycles     *uint64

	// Problems are why something could not be read, for a person.
	Problems []string
	// Facts are what was read, in the order in which it was asked for.
	Facts []hostcheck.Fact
}

// The codes of Judge's findings.
const (
	CodeCacheOff         = "drive_cache_off"
	CodeCacheProtected   = "drive_cache_protected"
	CodeCacheFlushed     = "drive_cache_flushed"
	CodeCacheNotFlushed  = "drive_cache_not_flushed"
	CodeCacheUnknown     = "drive_cache_unknown"
	CodeProtectionFailed = "drive_protection_failed"
)

// Judge says what the drive risks by itself: whether flushes reach it is for the layers above.
func (d *Drive) Judge() (hostcheck.Cache, []hostcheck.Finding) {
	c := hostcheck.Cache{Volatile: d.WriteCache, Protected: d.Protection}
	switch d.KernelCache {
	case WriteBack:
		c.Flushes = hostcheck.Yes
	case WriteThrough:
		c.Flushes = hostcheck.No
	}
	if d.Protection == hostcheck.No && d.Protocol == NVMe && c.Volatile == hostcheck.No {
		c.Volatile = hostcheck.NotKnown // "no volatile cache" of such a drive meant one that is saved
	}
	c.Why = d.why()
	level, code, text := d.judge()
	return c, []hostcheck.Finding{{Level: level, Code: code, Text: text}}
}

func (d *Drive) judge() (hostcheck.Level, string, string) {
	n := d.name()
	switch {
	case d.Protection == hostcheck.No && d.WriteCache == hostcheck.No && d.Protocol != NVMe:
		return hostcheck.Warning, CodeProtectionFailed, fmt.Sprintf("the power-loss protection of %s has failed (%s); its write cache is off, "+
			"so commits do not depend on it, but replace the drive and do not turn the cache on", n, d.Evidence)
	case d.Protection == hostcheck.No:
		return hostcheck.Critical, CodeProtectionFailed, fmt.Sprintf("the power-loss protection of %s has failed (%s), and a drive that was built with one "+
			"may answer a flush before the data is safe: replace the drive", n, d.Evidence)
	case d.WriteCache == hostcheck.No:
		return hostcheck.OK, CodeCacheOff, fmt.Sprintf("%s keeps nothing in a volatile write cache (%s)", n, d.WriteCacheFrom)
	case d.Protection == hostcheck.Yes:
		return hostcheck.OK, CodeCacheProtected, fmt.Sprintf("the write cache of %s is protected against power loss (%s)", n, d.Evidence)
	case d.WriteCache == hostcheck.NotKnown:
		return hostcheck.Unknown, CodeCacheUnknown, fmt.Sprintf("whether %s has its write cache on could not be read%s", n, d.because())
	case d.KernelCache == WriteBack:
		return hostcheck.OK, CodeCacheFlushed, fmt.Sprintf("%s has its write cache on without known protection, and the kernel flushes it at each commit "+
			"that is flushed down to it: safe as long as the drive carries flushes out, which only a pulled plug shows", n)
	case d.KernelCache == WriteThrough:
		return hostcheck.Critical, CodeCacheNotFlushed, fmt.Sprintf("%[1]s has its write cache on, without known protection, and the kernel takes it for "+
			"\"write through\" and never flushes it: a power cut loses acknowledged commits; turn the drive's cache off "+
			"(%[2]s), or write \"write back\" to /sys/block/%[3]s/queue/write_cache, and see that this is done at every boot", n, d.turnOff(), d.Device)
	}
	return hostcheck.Unknown, CodeCacheUnknown, fmt.Sprintf("%s has its write cache on, and whether the kernel flushes it could not be read "+
		"from /sys/block/%s/queue/write_cache", n, d.Device)
}

func (d *Drive) name() string {
	if d.Model == "" {
		return d.Device
	}
	return d.Device + " (" + d.Model + ")"
}

func (d *Drive) because() string {
	if len(d.Problems) == 0 {
		return ": the drive does not say"
	}
	return ": " + strings.Join(d.Problems, "; ")
}

func (d *Drive) turnOff() string {
	switch d.Protocol {
	case ATA:
		return "hdparm -W 0 /dev/" + d.Device
	case NVMe:
		return "nvme set-feature /dev/" + d.Device + " -f 6 -v 0"
	}
	return "sdparm --clear=WCE --save /dev/" + d.Device
}

func (d *Drive) why() string {
	parts := []string{"write cache " + map[hostcheck.Tri]string{hostcheck.Yes: "on", hostcheck.No: "off", hostcheck.NotKnown: "not known"}[d.WriteCache]}
	if d.WriteCacheFrom != "" {
		parts[0] += " (" + d.WriteCacheFrom + ")"
	}
	if d.Evidence != "" {
		parts = append(parts, d.Evidence)
	}
	kernel := d.KernelCache
	if kernel == "" {
		kernel = "not known"
	}
	return strings.Join(append(parts, "the kernel's view: "+kernel), ", ")
}

// The names of a drive's numbers, as hostcheck exports them.
const (
	PerfUnsafeShutdowns = "drive_unsafe_shutdowns_total"
	PerfPowerCycles     = "drive_power_cycles_total"
)

// Label tells one of the drive's counters from the others of the host.
func (d *Drive) Label(c Counter) string {
	label := d.Device + " " + c.Name
	if c.ID != 0 {
		label += " " + strconv.Itoa(c.ID)
	}
	return label
}

// Fill writes all of it into the node of the drive.
func (d *Drive) Fill(n *hostcheck.Node) {
	n.Facts = append(n.Facts, d.Facts...)
	if d.Evidence != "" {
		n.Facts = append(n.Facts, hostcheck.Fact{Key: "power-loss protection", Value: d.Protection.String() + ": " + d.Evidence})
	}
	for _, c := range d.UnsafeShutdowns {
		n.Perf = append(n.Perf, hostcheck.Perf{Name: PerfUnsafeShutdowns, Label: d.Label(c), Value: float64(c.Value)})
	}
	if d.PowerCycles != nil {
		n.Perf = append(n.Perf, hostcheck.Perf{Name: PerfPowerCycles, Label: d.Device, Value: float64(*d.PowerCycles)})
	}
	cache, findings := d.Judge()
	n.Cache = cache
	n.Findings = append(n.Findings, findings...)
}
