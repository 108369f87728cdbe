package drive

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	"plugpull/internal/hostcheck"
)

// reader asks for one drive.
type reader struct {
	ctx context.Context
	r   hostcheck.Runner
	d   *Drive
	// behind is smartctl's -d for a drive behind a controller, with whose device the drive is asked for.
	behind string
}

// driveTime is how long one drive may take for all that it is asked: one that hangs must not cost the others.
const driveTime = 15 * time.Second

// Read asks the host for one of its drives, by the kernel's name ("sda", "nvme0n1"). What cannot be read is
// not known, and d.Problems says why. It blocks until the host has answered or ctx is done.
func Read(ctx context.Context, r hostcheck.Runner, device string) *Drive {
	ctx, cancel := context.WithTimeout(ctx, driveTime)
	defer cancel()
	rd := &reader{ctx: ctx, r: r, d: &Drive{Device: device}}
	rd.sysfs()
	rd.smartctl()
	switch {
	case rd.d.Protocol == NVMe:
		rd.nvme()
	case rd.d.WriteCache != hostcheck.NotKnown:
	case rd.d.Protocol == ATA:
		rd.ask(ParseHdparm, "hdparm", "-W", rd.path())
	default:
		rd.ask(ParseSmartctlText, "smartctl", rd.with("-g", "wcache")...)
		rd.ask(ParseSdparm, "sdparm", "--get=WCE", rd.path())
	}
	return rd.d
}

// ReadBehind asks for a drive that hides behind a RAID controller: device is a volume of the controller, by the
// kernel's name, and behind what smartctl calls the drive with -d, such as "megaraid,8". Nothing but smartctl is asked.
// Whether the answer is of the drive that was meant, only its serial number can tell. It blocks like Read.
func ReadBehind(ctx context.Context, r hostcheck.Runner, device, behind string) *Drive {
	rd := &reader{ctx: ctx, r: r, d: &Drive{Device: device}, behind: behind}
	rd.smartctl()
	if d := rd.d; d.Serial != "" && d.Protocol == SCSI {
		rd.ask(ParseSmartctlText, "smartctl", rd.with("-g", "wcache")...)
	}
	return rd.d
}

// with are smartctl's arguments for the drive.
func (rd *reader) with(args ...string) []string {
	if rd.behind != "" {
		args = append(args, "-d", rd.behind)
	}
	return append(args, rd.path())
}

// path is the device's file; the kernel writes ! for / in names.
func (rd *reader) path() string { return "/dev/" + strings.ReplaceAll(rd.d.Device, "!", "/") }

func (rd *reader) fact(key, value, from string) {
	if value != "" {
		rd.d.Facts = append(rd.d.Facts, hostcheck.Fact{Key: key, Value: value, From: from})
	}
}

func (rd *reader) problem(text string) {
	for _, p := range rd.d.Problems {
		if p == text {
			return
		}
	}
	rd.d.Problems = append(rd.d.Problems, text)
}

func (rd *reader) sysfs() {
	base := "/sys/class/block/" + rd.d.Device + "/"
	text := func(name string) string {
		b, err := rd.r.ReadFile(rd.ctx, base+name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			rd.problem(err.Error())
		}
		value := clean(string(b))
		rd.fact(name, value, base+name)
		return value
	}
	d := rd.d
	d.Vendor, d.Model, d.Serial = text("device/vendor"), text("device/model"), text("device/serial")
	d.Firmware = first(text("device/rev"), text("device/firmware_rev"))
	switch {
	case strings.HasPrefix(d.Device, "nvme"):
		d.Protocol = NVMe
	case d.Vendor == "ATA": // which is what libata and SAS controllers say for every ATA drive
		d.Protocol = ATA
	case d.Vendor != "":
		d.Protocol = SCSI
	}
	if view := text("queue/write_cache"); view == WriteBack || view == WriteThrough {
		d.KernelCache = view
	}
	d.FUA = word(text("queue/fua"), "1", "0")
	d.Rotational = word(text("queue/rotational"), "1", "0")
}

// run runs a tool. It returns false, and keeps why, where there is no output to read.
func (rd *reader) run(name string, args ...string) (hostcheck.Output, string, bool) {
	line := hostcheck.CommandLine(name, args...)
	out, err := rd.r.Run(rd.ctx, name, args...)
	packages := map[string]string{"smartctl": "smartmontools", "nvme": "nvme-cli"}
	switch {
	case errors.Is(err, hostcheck.ErrNotInstalled):
		rd.problem(name + " is not installed (package " + first(packages[name], name) + ")")
		return out, line, false
	case err != nil:
		rd.problem(err.Error())
		return out, line, false
	case denied(string(out.Stderr)):
		rd.deny(name)
		return out, line, false
	}
	return out, line, true
}

func (rd *reader) deny(name string) {
	rd.problem(name + " may not ask " + rd.path() + ": run as root")
}

// cache keeps what a tool says of the write cache, unless one before has said it.
func (rd *reader) cache(t hostcheck.Tri, from string) {
	if t == hostcheck.NotKnown || rd.d.WriteCache != hostcheck.NotKnown {
		return
	}
	rd.d.WriteCache, rd.d.WriteCacheFrom = t, from
	rd.fact("write cache on", t.String(), from)
}

// ask asks a tool for the write cache, while it is not known.
func (rd *reader) ask(parse func([]byte) hostcheck.Tri, name string, args ...string) {
	if rd.d.WriteCache != hostcheck.NotKnown {
		return
	}
	out, line, ok := rd.run(name, args...)
	if !ok {
		return
	}
	t := parse(out.Stdout)
	if t == hostcheck.NotKnown {
		rd.problem(line + " does not say")
	}
	rd.cache(t, line)
}

func (rd *reader) smartctl() {
	// Not -x: its logs are long, tell nothing here, and some old drives stumble over them.
	out, line, ok := rd.run("smartctl", rd.with("-j", "-i", "-H", "-A", "-g", "wcache")...)
	if !ok {
		return
	}
	s, err := ParseSmartctl(out.Stdout)
	if err != nil {
		rd.problem(line + ": " + err.Error())
		return
	}
	if s.Denied {
		rd.deny("smartctl")
		return
	}
	// The exit status is a mask: 1 the command line, 2 the drive was not opened; the others judge its health.
	if out.Code&3 != 0 {
		rd.problem(line + ": " + first(strings.Join(s.Messages, ", "), "it failed"))
		return
	}
	d := rd.d
	d.Vendor, d.Model, d.Serial = first(s.Vendor, d.Vendor), first(s.Model, d.Model), first(s.Serial, d.Serial)
	d.Firmware = first(s.Firmware, d.Firmware)
	if s.Protocol != "" {
		d.Protocol = s.Protocol
	}
	if s.Rotational != hostcheck.NotKnown {
		d.Rotational, d.RPM = s.Rotational, s.RPM
	}
	rd.fact("model", s.Model, line)
	rd.fact("serial", s.Serial, line)
	rd.fact("firmware", s.Firmware, line)
	rd.cache(s.WriteCache, line)
	rd.health(s)
}

func (rd *reader) health(s *Smartctl) {
	d := rd.d
	if s.Protection != hostcheck.NotKnown {
		d.Protection, d.Evidence = s.Protection, s.Evidence
	}
	if len(d.UnsafeShutdowns) == 0 {
		d.UnsafeShutdowns = s.UnsafeShutdowns
	}
	if d.PowerCycles == nil {
		d.PowerCycles = s.PowerCycles
	}
}

func (rd *reader) nvme() {
	out, line, ok := rd.run("nvme", "id-ctrl", rd.path(), "-o", "json")
	if !ok {
		return
	}
	id, err := ParseNVMeID(out.Stdout)
	if err != nil {
		rd.problem(line + ": " + err.Error())
		return
	}
	d := rd.d
	d.Model, d.Serial, d.Firmware = first(d.Model, id.Model), first(d.Serial, id.Serial), first(d.Firmware, id.Firmware)
	switch id.VolatileCache {
	case hostcheck.NotKnown:
		rd.problem(line + " does not say whether there is a volatile write cache")
	case hostcheck.No:
		rd.cache(hostcheck.No, line+": vwc is 0, the drive has no volatile write cache")
	case hostcheck.Yes:
		rd.ask(ParseNVMeFeature, "nvme", "get-feature", rd.path(), "-f", "6")
	}
	if d.Protection == hostcheck.NotKnown && len(d.UnsafeShutdowns) == 0 {
		if out, line, ok := rd.run("nvme", "smart-log", rd.path(), "-o", "json"); ok {
			if s, err := ParseNVMeHealth(out.Stdout); err != nil {
				rd.problem(line + ": " + err.Error())
			} else {
				rd.health(s)
			}
		}
	}
}
