package raid

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"plugpull/internal/hostcheck"
)

// MegaCli are the outputs of one MegaCli. A nil one was not asked for or did not come.
type MegaCli struct {
	Volumes  []byte // -LDInfo -Lall -aALL -NoLog
	Backup   []byte // -AdpBbuCmd -aALL -NoLog
	Disks    []byte // -PDList -aALL -NoLog
	Adapters []byte // -AdpAllInfo -aALL -NoLog
}

// ParseMegaCli reads what MegaCli says of every adapter, in the order of their numbers. The error is
// ErrUnreadable, for the parts that could not be read; the controllers are what the others say.
func ParseMegaCli(m MegaCli) ([]Controller, error) {
	p := megaCli{adapters: map[int]*adapter{}}
	var errs []string
	for _, part := range []struct {
		name string
		out  []byte
		line func(a *adapter, key, value string)
		// also: a failed exit may be of one adapter only, which then lacks the facts.
		also bool
	}{
		{"-AdpAllInfo", m.Adapters, (*adapter).infoField, false},
		{"-LDInfo", m.Volumes, (*adapter).volumeField, false},
		{"-AdpBbuCmd", m.Backup, (*adapter).backupField, true},
		{"-PDList", m.Disks, (*adapter).diskField, false},
	} {
		if part.out == nil {
			continue
		}
		if why := p.part(part.name, part.out, part.line, part.also); why != "" {
			errs = append(errs, why)
		}
	}
	if m.Volumes == nil {
		errs = append(errs, "-LDInfo is missing")
	}
	list := p.controllers(strings.Join(errs, "; "))
	if len(errs) > 0 && len(list) == 0 {
		return nil, fmt.Errorf("megacli: %s: %w", strings.Join(errs, "; "), ErrUnreadable)
	}
	return list, nil
}

type megaCli struct{ adapters map[int]*adapter }

type adapter struct {
	c      Controller
	backup *backupReader
	disk   *Disk
	sata   bool
}

var adapterNumber = regexp.MustCompile(`^(?:Adapter:? #?(\d+)|BBU status for Adapter: (\d+)|BBU [A-Za-z ]+ for Adapter: (\d+))\b`)

// part reads one output and says why it may not be whole, "" when it is.
func (p *megaCli) part(name string, out []byte, field func(*adapter, string, string), also bool) string {
	var now *adapter
	exit := ""
	for _, line := range lines(out) {
		text := strings.TrimSpace(line)
		if m := adapterNumber.FindStringSubmatch(text); m != nil {
			if n, err := strconv.Atoi(m[1] + m[2] + m[3]); err == nil {
				now = p.adapter(n)
				now.failed(text)
			}
			continue
		}
		key, value, ok := keyValue(line)
		switch {
		case !ok:
		case key == "exit code":
			exit = strings.TrimSpace(value)
		case now != nil:
			field(now, key, value)
		}
	}
	switch {
	case exit == "":
		return name + " ended without an exit code"
	case exit != "0x00" && !also:
		return name + " ended with exit code " + exit
	}
	return ""
}

func (p *megaCli) adapter(n int) *adapter {
	if p.adapters[n] == nil {
		p.adapters[n] = &adapter{c: Controller{Tool: "megacli", Number: n}, backup: newBackup("megacli -AdpBbuCmd")}
		p.adapters[n].backup.needs = true
	}
	return p.adapters[n]
}

// failed notes "Adapter 0: Get BBU Status Failed.", which is no proof that there is no backup.
func (a *adapter) failed(text string) {
	if strings.Contains(text, "Failed") {
		a.backup.doubt = true
		a.backup.words = append(a.backup.words, text)
	}
}

func (p *megaCli) controllers(incomplete string) []Controller {
	var list []Controller
	for _, a := range p.adapters {
		a.endDisk()
		if len(a.backup.told) > 0 || len(a.backup.words) > 0 {
			a.c.Backup = a.backup.settle()
			a.c.Rejected = a.backup.rejected
		}
		a.c.Incomplete = incomplete
		list = append(list, a.c)
	}
	slices.SortFunc(list, func(a, b Controller) int { return a.Number - b.Number })
	return list
}

func (a *adapter) infoField(key, value string) {
	switch key {
	case "product name":
		a.c.Model = value
	case "serial no":
		a.c.Serial = value
	case "fw package build":
		a.c.Firmware = value
	}
}

var virtualDrive = regexp.MustCompile(`^(\d+) ?\(target id: ?\d+\)`)

func (a *adapter) volumeField(key, value string) {
	value = strings.TrimSpace(value)
	if key == "virtual drive" || key == "virtual disk" {
		id := value
		if m := virtualDrive.FindStringSubmatch(squeeze(value)); m != nil {
			id = m[1]
		}
		a.c.Volumes = append(a.c.Volumes, Volume{ID: id})
		return
	}
	if len(a.c.Volumes) == 0 {
		return
	}
	v := &a.c.Volumes[len(a.c.Volumes)-1]
	switch key {
	case "name":
		v.Name = value
	case "raid level":
		v.Level = value
	case "size":
		v.Size = value
	case "default cache policy":
		v.DefaultPolicy = megaPolicy(value)
	case "current cache policy":
		v.CurrentPolicy = megaPolicy(value)
		v.PolicyWords = value
	case "disk cache policy":
		v.DiskCache = onOff(value)
	}
}

// megaPolicy reads "WriteBack, ReadAhead, Direct, No Write Cache if Bad BBU".
func megaPolicy(value string) Policy {
	words := squeeze(value)
	switch {
	case strings.HasPrefix(words, "writethrough"):
		return WriteThrough
	case strings.HasPrefix(words, "writeback") && strings.Contains(words, "no write cache if bad bbu"):
		return WriteBack
	case strings.HasPrefix(words, "writeback") && strings.Contains(words, "write cache ok if bad bbu"):
		return ForcedWriteBack
	}
	return PolicyNotKnown
}

func (a *adapter) backupField(key, value string) {
	switch key {
	case "batterytype", "battery type":
		a.backup.Kind = backupKind(value)
		if squeeze(value) == "no battery" {
			a.backup.Present = hostcheck.No
		}
	default:
		a.backup.flag(key, value)
	}
}

// backupKind reads a unit's type: "iBBU", "BBU", "CVPM02", "TMM-C", "Supercap".
func backupKind(value string) string {
	t := squeeze(value)
	switch {
	case silent(t):
		return ""
	case strings.Contains(t, "bbu"), strings.Contains(t, "batter"):
		return Battery
	case strings.HasPrefix(t, "cv"), strings.HasPrefix(t, "tmm"), strings.Contains(t, "flash"):
		return FlashModule
	case strings.Contains(t, "cap"):
		return Capacitor
	}
	return ""
}

func (a *adapter) endDisk() {
	if a.disk != nil {
		a.c.Disks = append(a.c.Disks, *a.disk)
	}
	a.disk = nil
}

func (a *adapter) diskField(key, value string) {
	if key == "enclosure device id" {
		a.endDisk()
		a.disk, a.sata = &Disk{ID: strings.TrimSpace(value)}, false
		return
	}
	if a.disk == nil {
		return
	}
	switch key {
	case "slot number":
		a.disk.ID += ":" + strings.TrimSpace(value)
	case "device id":
		a.disk.DeviceID = strings.TrimSpace(value)
	case "pd type":
		a.sata = strings.HasPrefix(squeeze(value), "sata")
	case "firmware state":
		a.disk.State = strings.TrimSpace(value)
	case "drive's write cache":
		a.disk.WriteCache = onOff(value)
	case "inquiry data":
		a.disk.inquiry(value, a.sata)
	}
}

// inquiry splits fields of fixed width: 20 for the serial number, 40 for the model and 8 for the firmware of
// an ATA drive; vendor 8, model 16, firmware 4 and the serial number of a SCSI drive.
func (d *Disk) inquiry(value string, sata bool) {
	cut := func(from, to int) string {
		from, to = min(from, len(value)), min(to, len(value))
		return strings.Join(strings.Fields(value[from:to]), " ")
	}
	if sata {
		d.Serial, d.Model, d.Firmware = cut(0, 20), cut(20, 60), cut(60, 68)
		return
	}
	d.Model, d.Firmware, d.Serial = cut(0, 24), cut(24, 28), cut(28, len(value))
}
