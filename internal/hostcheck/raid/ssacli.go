package raid

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"plugpull/internal/hostcheck"
)

// ParseSSA reads `ctrl all show config detail` of ssacli, hpssacli or hpacucli. `ctrl all show detail` reads
// as well and has no volumes. The output has no mark at its end. A drive that is mentioned and not described
// shows that it was cut; the oldest versions do not list the drives first, and look whole when they are cut
// between two arrays. The error is ErrUnreadable.
func ParseSSA(out []byte) ([]Controller, error) {
	p := ssa{}
	for _, line := range lines(out) {
		p.line(line)
	}
	p.end()
	if len(p.list) == 0 && !noSSAController(out) {
		return nil, fmt.Errorf("ssacli: %w", ErrUnreadable)
	}
	return p.list, nil
}

func noSSAController(out []byte) bool { return bytes.Contains(out, []byte("No controllers detected")) }

type ssa struct {
	list    []Controller
	c       *Controller
	backup  *backupReader
	smart   smartCache
	caching []hostcheck.Tri // of each volume
	arrays  []string        // of each volume
	diskIn  []string        // the array of each drive
	spare   []bool          // of each drive
	array   string
	named   []string // drives that were mentioned
	where   string   // "volume", "disk", or ""
}

var (
	ssaController = regexp.MustCompile(`^(\S.*\S) in Slot (\d+)\b`)
	ssaArray      = regexp.MustCompile(`^[Aa]rray:? ([A-Z]+)\b`)
	ssaDisk       = regexp.MustCompile(`^physicaldrive (\S+)( \(.*)?$`)
)

func (p *ssa) line(line string) {
	text := strings.TrimSpace(line)
	if m := ssaController.FindStringSubmatch(line); m != nil {
		p.end()
		slot, _ := strconv.Atoi(m[2])
		p.c = &Controller{Tool: "ssacli", Number: slot, Model: m[1]}
		p.backup = newBackup("ssacli ctrl all show config detail")
		return
	}
	if p.c == nil || text == "" {
		return
	}
	if m := ssaDisk.FindStringSubmatch(text); m != nil {
		p.drive(m[1], m[2] != "")
		return
	}
	key, value, isKey := keyValue(line)
	value = strings.TrimSpace(value)
	if indent(line) <= 4 {
		p.where, p.array = "", ""
		if m := ssaArray.FindStringSubmatch(text); m != nil {
			p.array = m[1]
		} else if isKey {
			p.controllerField(key, value)
		}
		return
	}
	switch {
	case !isKey:
	case key == "logical drive" && p.array != "":
		p.c.Volumes = append(p.c.Volumes, Volume{ID: value})
		p.caching, p.arrays, p.where = append(p.caching, hostcheck.NotKnown), append(p.arrays, p.array), "volume"
	case p.where == "volume":
		p.volumeField(key, value)
	case p.where == "disk":
		p.diskField(key, value)
	}
}

// drive takes "physicaldrive 1I:1:1", which begins a drive, and the same with more in brackets, which is a
// mention: of a member where it stands within a volume.
func (p *ssa) drive(id string, mention bool) {
	if !mention {
		p.where = "disk"
		p.c.Disks = append(p.c.Disks, Disk{ID: id})
		p.diskIn, p.spare = append(p.diskIn, p.array), append(p.spare, false)
		return
	}
	p.named = append(p.named, id)
	if p.where == "volume" {
		v := &p.c.Volumes[len(p.c.Volumes)-1]
		v.Members = append(v.Members, id)
	}
}

func (p *ssa) controllerField(key, value string) {
	b := p.backup
	switch key {
	case "serial number":
		p.c.Serial = value
	case "firmware version":
		p.c.Firmware = value
	case "cache backup power source":
		b.Kind = map[string]string{"batteries": Battery, "capacitors": Capacitor}[squeeze(value)]
	case "battery/capacitor count", "battery pack count":
		if n, ok := leadingNumber(value); ok && n == 0 {
			b.Present = hostcheck.No
		} else if ok {
			b.present()
		}
	case "battery/capacitor status", "battery status":
		b.word(value)
	case "capacitor temperature (c)":
		b.number(&b.TemperatureCelsius, key, value, -50, 150)
	default:
		p.smart.field(key, value)
	}
}

func (p *ssa) volumeField(key, value string) {
	v := &p.c.Volumes[len(p.c.Volumes)-1]
	switch key {
	case "size":
		v.Size = value
	case "fault tolerance":
		v.Level = value
	case "logical drive label":
		v.Name = value
	case "disk name":
		v.Device = devicePath(value)
	case "caching":
		p.caching[len(p.caching)-1] = onOff(value)
		v.PolicyWords = "Caching: " + value + ", Cache Status: " + p.smart.status
	}
}

func (p *ssa) diskField(key, value string) {
	d := &p.c.Disks[len(p.c.Disks)-1]
	switch key {
	case "status":
		d.State = value
	case "model":
		d.Model = strings.Join(strings.Fields(value), " ")
	case "serial number":
		d.Serial = value
	case "firmware revision":
		d.Firmware = value
	case "drive type":
		p.spare[len(p.spare)-1] = strings.HasPrefix(squeeze(value), "spare")
	}
}

// end joins what the controller and its volumes say.
func (p *ssa) end() {
	if p.c == nil {
		return
	}
	p.c.Backup, p.c.Rejected = p.backup.settle(), p.backup.rejected
	for i := range p.c.Volumes {
		v := &p.c.Volumes[i]
		p.smart.caching = p.caching[i]
		v.DefaultPolicy, v.CurrentPolicy = p.smart.policies()
		v.DiskCache = p.smart.disks
		if len(v.Members) > 0 {
			continue
		}
		for j, d := range p.c.Disks {
			if p.diskIn[j] == p.arrays[i] && !p.spare[j] {
				v.Members = append(v.Members, d.ID)
			}
		}
	}
	for _, id := range p.named {
		if !slices.ContainsFunc(p.c.Disks, func(d Disk) bool { return d.ID == id }) {
			p.c.Incomplete = "ssacli mentions drive " + id + " and does not describe it"
		}
	}
	p.list = append(p.list, *p.c)
	*p = ssa{list: p.list}
}
