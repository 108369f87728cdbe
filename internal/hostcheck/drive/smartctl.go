package drive

import (
	"fmt"
	"slices"
	"strings"

	"plugpull/internal/hostcheck"
)

// Attribute is one of an ATA drive's attributes.
type Attribute struct {
	ID        int
	Name      string
	Value     uint64 // normalised, 0 where not known
	Threshold uint64 // 0 where not known
	Raw       *uint64
}

// Smartctl is what smartctl -j says; every kind of drive and of options is read, what is not there is not known.
type Smartctl struct {
	Vendor, Model, Serial, Firmware string
	Protocol                        Protocol
	WriteCache                      hostcheck.Tri
	Rotational                      hostcheck.Tri
	RPM                             int // 0 where not known
	Attributes                      []Attribute
	UnsafeShutdowns                 []Counter
	PowerCycles                     *uint64
	Protection                      hostcheck.Tri
	Evidence                        string
	Messages                        []string // what went wrong, in smartctl's words
	Denied                          bool     // it was not allowed to ask the drive
}

type smartctlJSON struct {
	Smartctl struct {
		Messages []struct{ String string }
	}
	Device struct{ Protocol string }

	Model    string `json:"model_name"`
	Serial   string `json:"serial_number"`
	Firmware string `json:"firmware_version"`
	Vendor   string `json:"scsi_vendor"`
	Product  string `json:"scsi_product"`
	Product2 string `json:"product"`
	Revision string `json:"scsi_revision"`

	WriteCache struct{ Enabled truth } `json:"write_cache"`
	Rotation   number                  `json:"rotation_rate"` // 0: nothing turns
	Cycles     number                  `json:"power_cycle_count"`
	Attributes struct {
		Table []struct {
			ID            number
			Name          string
			Value, Thresh number
			Raw           struct{ Value number }
		}
	} `json:"ata_smart_attributes"`
	Health struct {
		Warning number `json:"critical_warning"`
		Unsafe  number `json:"unsafe_shutdowns"`
		Cycles  number `json:"power_cycles"`
	} `json:"nvme_smart_health_information_log"`
}

// ParseSmartctl reads the JSON of smartctl -j with -x, -a, or -i -A -g wcache. smartctl has no write cache of
// SCSI drives in its JSON: see ParseSmartctlText. The error says that it is no JSON.
func ParseSmartctl(b []byte) (*Smartctl, error) {
	var j smartctlJSON
	if err := decode(b, &j); err != nil {
		return nil, fmt.Errorf("smartctl's JSON: %w", err)
	}
	s := &Smartctl{Vendor: clean(j.Vendor), Model: clean(first(j.Model, j.Product, j.Product2)), Serial: clean(j.Serial),
		Firmware: clean(first(j.Firmware, j.Revision)), PowerCycles: j.Cycles.count()}
	if p := Protocol(j.Device.Protocol); slices.Contains([]Protocol{ATA, SCSI, NVMe}, p) {
		s.Protocol = p
	}
	s.WriteCache = hostcheck.Tri(j.WriteCache.Enabled)
	s.rotation(j.Rotation)
	for _, m := range j.Smartctl.Messages {
		s.Messages = append(s.Messages, clean(m.String))
		s.Denied = s.Denied || denied(m.String)
	}
	for _, a := range j.Attributes.Table {
		if a.ID.known && a.ID.value < 256 {
			s.Attributes = append(s.Attributes, Attribute{int(a.ID.value), a.Name, a.Value.value, a.Thresh.value, a.Raw.Value.count()})
		}
	}
	s.attributes()
	s.nvme(j.Health.Warning, j.Health.Unsafe, j.Health.Cycles)
	return s, nil
}

// rotation takes a nominal rate as ACS has it: 0 (smartctl's for "nothing turns"), or 1025 to 65534 a minute.
func (s *Smartctl) rotation(n number) {
	switch {
	case !n.known:
	case n.value == 0:
		s.Rotational = hostcheck.No
	case n.value > 1024 && n.value < 65535:
		s.Rotational, s.RPM = hostcheck.Yes, int(n.value)
	}
}

// powerLoss are the attributes that count a loss of power without a warning, by id and name as drivedb.h of
// smartmontools 7.3 gives them. Not among them is 192 Power-Off_Retract_Count: disks count every stop in it.
var powerLoss = map[int][]string{
	174: {"Unexpect_Power_Loss_Ct", "Unexpect_Power_Loss", "Unexpect_PwrLoss_Ct", "Unexpected_Power_Loss", "Unexpected_Pwr_Loss_Ct",
		"Unexpected_Pwr_Loss_Cnt", "Unexpected_Power_Cycle", "Unsafe_Shutdown_Count", "Pwr_Cycle_Ct_Unplanned"},
	192: {"Unsafe_Shutdown_Count", "Unexpect_Power_Loss_Ct", "Unclean_Shutdown_Ct"},
	235: {"POR_Recovery_Count"},
}

// attributes reads the ATA attributes that tell of power.
func (s *Smartctl) attributes() {
	for _, a := range s.Attributes {
		if slices.Contains(powerLoss[a.ID], a.Name) && a.Raw != nil {
			s.UnsafeShutdowns = append(s.UnsafeShutdowns, Counter{a.ID, a.Name, *a.Raw})
		}
		// The data sheets of the drives with it (Intel DC S3500 and others): the normalised value is 100 after
		// a passed test, 1 after a failed one, 11 where it was too hot to tell; the threshold is 10.
		if a.Name != "Power_Loss_Cap_Test" || !slices.Contains([]int{175, 201, 235}, a.ID) {
			continue
		}
		what := fmt.Sprintf("attribute %d %s is %d, threshold %d", a.ID, a.Name, a.Value, a.Threshold)
		switch {
		case a.Value == 100 && s.Protection != hostcheck.No:
			s.Protection, s.Evidence = hostcheck.Yes, what+": the test of its capacitors passes"
		case a.Value > 0 && a.Value <= max(a.Threshold, 1):
			s.Protection, s.Evidence = hostcheck.No, what+": the test of its capacitors fails"
		}
	}
}

// backupFailed is the bit of NVMe's critical warning "volatile memory backup device has failed".
const backupFailed = 1 << 4

func (s *Smartctl) nvme(warning, unsafe, cycles number) {
	if warning.known && warning.value < 256 && warning.value&backupFailed != 0 {
		s.Protection, s.Evidence = hostcheck.No, fmt.Sprintf("critical warning %#02x: the backup of its volatile memory has failed", warning.value)
	}
	if n := unsafe.count(); n != nil {
		s.UnsafeShutdowns = append(s.UnsafeShutdowns, Counter{Name: "unsafe_shutdowns", Value: *n})
	}
	if n := cycles.count(); n != nil && s.PowerCycles == nil {
		s.PowerCycles = n
	}
}

// ParseSmartctlText reads the write cache from the text of smartctl -x or -g wcache.
func ParseSmartctlText(b []byte) hostcheck.Tri {
	return only(b, func(line string) hostcheck.Tri {
		key, value, _ := strings.Cut(line, ":")
		if key != "Writeback Cache is" && key != "Write cache is" {
			return hostcheck.NotKnown
		}
		return word(value, "Enabled", "Disabled")
	})
}

// only returns what the lines say, which is not known where two say the opposite.
func only(b []byte, read func(line string) hostcheck.Tri) hostcheck.Tri {
	said := hostcheck.NotKnown
	for line := range strings.Lines(string(b)) {
		switch t := read(strings.TrimSpace(line)); {
		case t == hostcheck.NotKnown:
		case said != hostcheck.NotKnown && said != t:
			return hostcheck.NotKnown
		default:
			said = t
		}
	}
	return said
}

func word(value, yes, no string) hostcheck.Tri {
	switch strings.TrimSpace(value) {
	case yes:
		return hostcheck.Yes
	case no:
		return hostcheck.No
	}
	return hostcheck.NotKnown
}

// denied reports whether a tool says that it may not ask the drive, in the words of strerror(3).
func denied(text string) bool {
	return strings.Contains(text, "Permission denied") || strings.Contains(text, "Operation not permitted")
}

func first(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// clean makes one short line of what a drive says of itself.
func clean(text string) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\uFFFD' }), " ")
	if len(text) > 200 {
		text = text[:200]
	}
	return strings.ToValidUTF8(text, "")
}
