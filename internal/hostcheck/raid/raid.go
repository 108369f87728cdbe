// Package raid reads what the tools of RAID controllers say of a controller, its cache, the unit that keeps
// the cache alive without power, its volumes and their drives, and judges whether a commit that a volume
// acknowledged outlives a power cut.
//
// It guarantees that what a tool did not say stays unknown and is never judged OK, that values which cannot
// be are set aside and reported, and that it changes nothing: only commands that list are run.
//
// Tools: arcconf, MegaCli, storcli and perccli (version 7 and, as storcli2 and perccli2, version 8), and
// ssacli with its older names hpssacli and hpacucli. The parsers follow outputs of these tools; where a
// meaning rests on anything else, the code that uses it says so.
package raid

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"plugpull/internal/hostcheck"
)

// ErrUnreadable: the text is not an output that the parser knows. Controllers that come with such an error
// are what could be read of it, and say in Incomplete that there may be more.
var ErrUnreadable = errors.New("not the output that was expected")

// Controller is what one tool says of one controller.
type Controller struct {
	Tool     string   `json:"tool"`   // the family: arcconf, megacli, storcli, storcli2, ssacli
	Number   int      `json:"number"` // as the tool counts; the slot for ssacli
	Model    string   `json:"model,omitempty"`
	Serial   string   `json:"serial,omitempty"`
	Firmware string   `json:"firmware,omitempty"`
	Backup   Backup   `json:"backup"`
	Volumes  []Volume `json:"volumes,omitempty"`
	Disks    []Disk   `json:"disks,omitempty"` // without enclosures
	// Incomplete says why there may be more than was read; empty where the tool said to its end.
	Incomplete string `json:"incomplete,omitempty"`
	// Rejected are values that cannot be, such as a charge of 5158 %. They are not used.
	Rejected []hostcheck.Fact `json:"rejected,omitempty"`
}

// Name is how a person finds the controller: the tool and its number there.
func (c Controller) Name() string {
	if c.Model == "" {
		return fmt.Sprintf("%s controller %d", c.Tool, c.Number)
	}
	return fmt.Sprintf("%s controller %d (%s)", c.Tool, c.Number, c.Model)
}

// The kinds of a Backup.
const (
	Battery     = "battery"
	Capacitor   = "capacitor"
	FlashModule = "flash module" // capacitors that feed a copy of the cache into flash
)

// Backup is the unit that keeps the controller's cache when power is lost. Nil, the empty string and
// NotKnown are what the tool did not say, or said in words that are not known here.
type Backup struct {
	Kind    string        `json:"kind,omitempty"` // one of the kinds above
	Present hostcheck.Tri `json:"present"`
	Status  string        `json:"status,omitempty"` // the tool's own words
	// Good: it can save the cache now. Yes only where the tool's own word for the whole unit says so and no
	// detail speaks against it.
	Good                hostcheck.Tri  `json:"good"`
	ReplacementRequired hostcheck.Tri  `json:"replacement_required"`
	AboutToFail         hostcheck.Tri  `json:"about_to_fail"`
	CapacityLow         hostcheck.Tri  `json:"capacity_low"`
	Hot                 hostcheck.Tri  `json:"hot"` // above the temperature that it is made for
	Learning            hostcheck.Tri  `json:"learning"`
	NextLearn           string         `json:"next_learn,omitempty"`          // as the tool writes it: formats and time zones differ
	ChargePercent       *float64       `json:"charge_percent,omitempty"`      // of what a full charge holds today
	CapacityPercent     *float64       `json:"capacity_percent,omitempty"`    // what a full charge holds today, of the design
	Remaining           *time.Duration `json:"remaining,omitempty"`           // how long a charge keeps the cache
	TemperatureCelsius  *float64       `json:"temperature_celsius,omitempty"` // of the unit, not of the controller
	CycleCount          *float64       `json:"cycle_count,omitempty"`         // charge cycles in its life
}

// Policy is what a controller does with writes to a volume.
type Policy uint8

// The policies. The zero value is not known.
const (
	PolicyNotKnown Policy = iota
	WriteThrough
	WriteBack       // in the cache while the backup is good
	ForcedWriteBack // in the cache whatever the backup's state
)

var policyNames = [...]string{"unknown", "write-through", "write-back", "forced write-back"}

func (p Policy) String() string {
	if int(p) < len(policyNames) {
		return policyNames[p]
	}
	return fmt.Sprintf("policy(%d)", uint8(p))
}

// MarshalText writes the policy's name.
func (p Policy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText accepts exactly the names that MarshalText writes.
func (p *Policy) UnmarshalText(b []byte) error {
	i := slices.Index(policyNames[:], string(b))
	if i < 0 {
		return fmt.Errorf("unknown policy %q", b)
	}
	*p = Policy(i)
	return nil
}

// caches reports whether writes are acknowledged from the controller's cache.
func (p Policy) caches() bool { return p == WriteBack || p == ForcedWriteBack }

// Volume is a logical drive.
type Volume struct {
	ID     string `json:"id"` // the tool's number
	Name   string `json:"name,omitempty"`
	Device string `json:"device,omitempty"` // the system's path, such as /dev/sda, where the tool says it
	Level  string `json:"level,omitempty"`  // as the tool writes it
	Size   string `json:"size,omitempty"`   // as the tool writes it
	// DefaultPolicy is what was asked for, CurrentPolicy what the controller does now. Where a tool has one word
	// for both kinds of caching now, that is WriteBack, and DefaultPolicy tells them apart.
	DefaultPolicy Policy `json:"default_policy"`
	CurrentPolicy Policy `json:"current_policy"`
	PolicyWords   string `json:"policy_words,omitempty"` // the tool's own, where they are not known here
	// DiskCache: the policy for the write caches of the member drives; "Disk's Default" is NotKnown.
	DiskCache hostcheck.Tri `json:"disk_cache"`
	// Members are the IDs of the drives, or, where no such drive is listed, what the tool calls the member.
	Members []string `json:"members,omitempty"`
}

// Label is how a person finds the volume.
func (v Volume) Label() string {
	s := "volume " + v.ID
	for _, more := range []string{v.Name, v.Device} {
		if more != "" {
			s += " (" + more + ")"
		}
	}
	return s
}

// Disk is a drive behind the controller.
type Disk struct {
	ID         string        `json:"id"`
	Model      string        `json:"model,omitempty"`
	Serial     string        `json:"serial,omitempty"`
	Firmware   string        `json:"firmware,omitempty"`
	WriteCache hostcheck.Tri `json:"write_cache"` // the drive's own
	// DeviceID is the controller's number for the drive ("Device Id" of MegaCli, "DID" of storcli), by which
	// smartctl -d megaraid asks for it; empty where the tool has none.
	DeviceID string `json:"device_id,omitempty"`
	State    string `json:"state,omitempty"`
}
