package raid

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"plugpull/internal/hostcheck"
)

// ParseArcconf reads `arcconf GETCONFIG n AL` in its three layouts: "Write-cache mode" with a battery (series
// 2 to 5), "Write-cache status" with a backup unit (6 to 8), and "Caching" with a green backup (SmartRAID).
// The number is the one that was asked for; the output does not repeat it. The error is ErrUnreadable.
func ParseArcconf(out []byte, number int) (Controller, error) {
	p := arcconf{c: Controller{Tool: "arcconf", Number: number}, backup: newBackup("arcconf getconfig"), volumes: -1}
	for _, line := range lines(out) {
		p.line(line)
	}
	p.endDisk()
	p.c.Backup = p.backup.settle()
	p.c.Rejected = p.backup.rejected
	p.finish()
	switch {
	case !p.known:
		return p.c, fmt.Errorf("arcconf getconfig: %w", ErrUnreadable)
	case !p.ended:
		p.c.Incomplete = "arcconf did not say at its end that the command was completed"
	case !p.listed:
		p.c.Incomplete = "arcconf lists no logical devices, not even none"
	case p.volumes > len(p.c.Volumes):
		p.c.Incomplete = fmt.Sprintf("arcconf counts %d logical devices and describes %d", p.volumes, len(p.c.Volumes))
	}
	return p.c, nil
}

// arcconfCount reads how many controllers there are, which every GETCONFIG says.
func arcconfCount(out []byte) (int, bool) {
	for _, line := range lines(out) {
		if key, value, ok := keyValue(line); ok && key == "controllers found" {
			n, err := strconv.Atoi(strings.TrimSpace(value))
			return n, err == nil && n >= 0
		}
	}
	return 0, false
}

type arcconf struct {
	c       Controller
	backup  *backupReader
	smart   smartCache
	members []arcconfMember
	volumes int  // how many the controller counts, -1 where it does not say
	known   bool // a section of a controller was there
	listed  bool // and one of volumes
	ended   bool

	section string // the last heading without indentation
	part    string // the last heading within it
	dashes  bool   // the last line was a ruler: a heading may follow
	disk    *Disk
	place   string
	isDrive bool
	places  []string // of c.Disks
}

// arcconfMember is a segment's text, until the drives are known.
type arcconfMember struct {
	volume        int
	place, serial string
}

func (p *arcconf) line(line string) {
	text := strings.TrimSpace(line)
	switch {
	case text == "":
		return
	case strings.Trim(text, "-") == "":
		p.dashes = true
		return
	case strings.HasPrefix(text, "Command completed successfully"):
		p.ended = true
		return
	}
	ruled := p.dashes
	p.dashes = false
	key, value, isKey := keyValue(line)
	switch {
	case isKey:
		p.field(key, value)
	case !ruled || logicalDevice.MatchString(text) || deviceNumber.MatchString(text):
		p.begin(text)
	case indent(line) == 0:
		p.endDisk()
		p.section, p.part = squeeze(text), ""
		p.known = p.known || p.section == "controller information"
		p.listed = p.listed || p.section == "logical device information"
	default:
		p.part = squeeze(text)
	}
}

var (
	logicalDevice = regexp.MustCompile(`(?i)^logical device number (\d+)$`)
	deviceNumber  = regexp.MustCompile(`(?i)^device #\d+$`)
)

// begin takes a line that begins a volume or a drive.
func (p *arcconf) begin(text string) {
	if m := logicalDevice.FindStringSubmatch(text); m != nil && p.section == "logical device information" {
		p.part = ""
		p.c.Volumes = append(p.c.Volumes, Volume{ID: m[1]})
		return
	}
	if p.section != "physical device information" {
		return
	}
	switch {
	case deviceNumber.MatchString(text):
		p.endDisk()
		p.disk = &Disk{}
	case strings.HasPrefix(text, "Device is a"):
		p.isDrive = !strings.Contains(squeeze(text), "enclosure")
	}
}

func (p *arcconf) endDisk() {
	if p.disk != nil && p.isDrive {
		if p.disk.ID == "" {
			p.disk.ID = p.disk.Serial
		}
		p.c.Disks = append(p.c.Disks, *p.disk)
		p.places = append(p.places, p.place)
	}
	p.disk, p.place, p.isDrive = nil, "", false
}

func (p *arcconf) field(key, value string) {
	switch p.section {
	case "controller information":
		p.controllerField(key, value)
	case "logical device information":
		if n := len(p.c.Volumes); n > 0 {
			p.volumeField(&p.c.Volumes[n-1], key, value)
		}
	case "physical device information":
		if p.disk != nil {
			p.diskField(key, value)
		}
	}
}

func (p *arcconf) controllerField(key, value string) {
	switch p.part {
	case "controller battery information":
		p.backup.Kind = Battery
		p.backupField(key, value)
	case "controller zmm information", "controller cache backup unit information", "supercap information":
		p.backup.Kind = FlashModule
		p.backupField(key, value)
	case "green backup information":
		p.backup.Kind = Capacitor
		p.backupField(key, value)
	case "cache properties":
		p.smart.field(key, value)
	case "physical drive write cache policy information":
		if key == "configured drives" {
			p.smart.disks = onOff(value)
		}
	case "controller version information":
		if key == "firmware" {
			p.c.Firmware = value
		}
	}
	switch key {
	case "controller model":
		p.c.Model = value
	case "controller serial number":
		p.c.Serial = value
	case "logical devices/failed/degraded":
		if n, err := strconv.Atoi(strings.SplitN(value, "/", 2)[0]); err == nil {
			p.volumes = n
		}
	}
}

func (p *arcconf) backupField(key, value string) {
	b := p.backup
	switch key {
	case "status", "overall backup unit status", "non-volatile storage status", "supercap status", "backup power status":
		b.word(value)
	case "power type":
		if strings.Contains(squeeze(value), "batter") {
			b.Kind = Battery
		}
	case "battery/capacitor pack count":
		if n, ok := leadingNumber(value); ok && n == 0 {
			b.Present = hostcheck.No
		}
	case "hardware error":
		b.doubt = b.doubt || !silent(value) && squeeze(value) != "no error"
	case "over temperature":
		b.Hot = yesNo(value)
	case "current temperature":
		b.number(&b.TemperatureCelsius, key, value, -50, 150)
	case "capacity remaining", "charge level", "relative charge":
		b.number(&b.ChargePercent, key, value, 0, maxCharge)
	case "health", "health status":
		b.number(&b.CapacityPercent, key, value, 0, maxCapacity)
	case "time remaining (at current draw)":
		if d, ok := duration(value); ok {
			b.Remaining = new(d)
		}
	}
}

var segment = regexp.MustCompile(`^(?:group \d+, )?(?:segment|device) \d+$`)

func (p *arcconf) volumeField(v *Volume, key, value string) {
	switch key {
	case "logical device name":
		v.Name = value
	case "disk name":
		v.Device = devicePath(value)
	case "raid level":
		v.Level = value
	case "size":
		v.Size = value
	case "write-cache setting":
		v.DefaultPolicy = arcconfSetting(value)
	case "write-cache mode", "write-cache status":
		v.CurrentPolicy = arcconfCurrent(value)
		v.PolicyWords = value
	case "caching":
		p.smart.caching = onOff(value)
		v.DefaultPolicy, v.CurrentPolicy = p.smart.policies()
		v.PolicyWords = value + ", cache " + p.smart.status
		v.DiskCache = p.smart.disks
	default:
		if !segment.MatchString(key) || strings.HasPrefix(squeeze(value), "missing") {
			return
		}
		place, serial := value, ""
		if open, end := strings.IndexByte(value, '('), strings.LastIndexByte(value, ')'); open >= 0 && open < end {
			place, serial = value[open+1:end], strings.TrimSpace(value[end+1:])
		}
		p.members = append(p.members, arcconfMember{len(p.c.Volumes) - 1, place, serial})
	}
}

func (p *arcconf) diskField(key, value string) {
	switch key {
	case "state":
		p.disk.State = value
	case "reported channel,device(t:l)", "reported channel,device":
		p.disk.ID, _, _ = strings.Cut(value, "(")
	case "reported location":
		p.place, _, _ = strings.Cut(value, "(")
	case "model":
		p.disk.Model = value
	case "firmware":
		p.disk.Firmware = value
	case "serial number":
		p.disk.Serial = value
	case "write cache":
		p.disk.WriteCache = onOff(value)
	}
}

// finish joins members and drives.
func (p *arcconf) finish() {
	for _, m := range p.members {
		v := &p.c.Volumes[m.volume]
		v.Members = append(v.Members, p.member(m))
	}
}

var placeParts = regexp.MustCompile(`(?i)(enclosure|slot|connector|device|backplane)[: ]+(\w+)`)

// member finds the drive of a segment by its serial number, or else by its place, where only one fits.
func (p *arcconf) member(m arcconfMember) string {
	var bySerial, byPlace []string
	where := squeeze(m.place)
	parts := map[string]string{}
	for _, part := range placeParts.FindAllStringSubmatch(where, -1) {
		parts[part[1]] = part[2]
	}
	for i, d := range p.c.Disks {
		if m.serial != "" && d.Serial == m.serial {
			bySerial = append(bySerial, d.ID)
		}
		own := placeParts.FindAllStringSubmatch(squeeze(p.places[i]), -1)
		same := len(own) > 0
		for _, part := range own {
			same = same && parts[part[1]] == part[2]
		}
		if same || d.ID != "" && d.ID == where {
			byPlace = append(byPlace, d.ID)
		}
	}
	switch {
	case len(bySerial) == 1 && bySerial[0] != "":
		return bySerial[0]
	case len(byPlace) == 1 && byPlace[0] != "":
		return byPlace[0]
	case m.serial != "":
		return m.serial
	}
	return m.place
}

// arcconfSetting reads what was asked for. "Enabled" alone is write-back without regard to the backup; with
// it the tool writes "when protected by battery".
func arcconfSetting(value string) Policy {
	if strings.Contains(squeeze(value), "when protected") {
		return WriteBack
	}
	switch onOff(value) {
	case hostcheck.Yes:
		return ForcedWriteBack
	case hostcheck.No:
		return WriteThrough
	}
	return PolicyNotKnown
}

func arcconfCurrent(value string) Policy {
	switch onOff(value) {
	case hostcheck.Yes:
		return WriteBack
	case hostcheck.No:
		return WriteThrough
	}
	return PolicyNotKnown
}

// noArcconfController reports whether the output is of a machine without a controller.
func noArcconfController(out []byte) bool {
	n, ok := arcconfCount(out)
	return ok && n == 0 && bytes.Contains(out, []byte("Command completed"))
}
