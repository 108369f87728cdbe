package raid

import (
	"strings"

	"plugpull/internal/hostcheck"
)

// backupReader gathers what a tool says of a backup unit, line by line, and settles at the end what that
// makes of it: details that speak against the unit outrank a good word for the whole.
type backupReader struct {
	Backup
	rejected []hostcheck.Fact
	words    []string
	good     bool // a word for the whole unit says so
	bad      bool // a word or a detail says that it cannot save the cache
	degraded bool // bad, unless a learn cycle explains it
	doubt    bool // a detail says that the unit cannot be read or trusted now
	needs    bool // the word for the whole is not enough: the details have to be told too
	told     map[string]string
	from     string
}

func newBackup(from string) *backupReader {
	return &backupReader{told: map[string]string{}, from: from}
}

// word takes a tool's word for the state of the unit or of a part without which it is no good. A word that is
// not known here proves nothing.
func (b *backupReader) word(value string) {
	w := strings.TrimPrefix(squeeze(value), "zmm ")
	if silent(w) {
		return
	}
	b.words = append(b.words, strings.TrimSpace(value))
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(w, p) {
				return true
			}
		}
		return false
	}
	switch {
	case has("not installed", "not present", "missing", "absent"):
		b.Present = hostcheck.No
		return
	case has("learn"):
		if has("active", "learning", "progress") {
			b.Learning = hostcheck.Yes
		}
		b.doubt = true
	case has("replace"):
		b.ReplacementRequired = hostcheck.Yes
		b.bad = true
	case has("capacity low"):
		b.CapacityLow = hostcheck.Yes
	case has("fail", "fatal", "not ready", "voltage low", "not fully charged", "recharging", "bad"):
		b.bad = true
	case has("charging", "i2c"):
		b.doubt = true
	case has("degraded", "dgd"):
		b.degraded = true
	case w == "optimal", w == "ok", w == "operational", w == "ready", w == "good", w == "charged", w == "fully charged":
		b.good = true
	default:
		b.doubt = true
	}
	b.present()
}

// present notes that there is a unit, unless something said that there is none.
func (b *backupReader) present() {
	if b.Present == hostcheck.NotKnown {
		b.Present = hostcheck.Yes
	}
}

// number stores a value within [low, high]. N/A and words are not known; a number outside cannot be.
func (b *backupReader) number(dst **float64, key, value string, low, high float64) {
	n, ok := leadingNumber(value)
	switch {
	case !ok:
	case n < low || n > high:
		b.rejected = append(b.rejected, hostcheck.Fact{Key: key, Value: strings.TrimSpace(value), From: b.from})
	default:
		*dst = new(n)
	}
}

// A full charge of a new pack can hold a little more than its design.
const (
	maxCharge   = 100
	maxCapacity = 200
)

// flag takes a line that MegaCli and storcli share; MegaCli's key is "Battery Replacement required" where
// storcli's has no "Battery". Lines that are not known are nothing.
func (b *backupReader) flag(key, value string) {
	key = squeeze(key)
	if _, isNumber := leadingNumber(value); b.told[key] == "" || !isNumber {
		b.told[key] = strings.TrimSpace(value)
	}
	answer := yesNo(value)
	switch strings.TrimPrefix(key, "battery ") {
	case "state", "energy pack status":
		b.word(value)
	case "pack missing":
		if answer == hostcheck.Yes {
			b.Present = hostcheck.No
		} else if answer == hostcheck.No {
			b.present()
		}
	case "replacement required":
		b.ReplacementRequired = answer
	case "remaining capacity low":
		b.CapacityLow = answer
	case "pack is about to fail & should be replaced":
		b.AboutToFail = answer
	case "learn cycle active":
		b.Learning = answer
	case "learn cycle status":
		b.doubt = b.doubt || !silent(value) && squeeze(value) != "ok"
	case "i2c errors detected", "learn cycle timeout":
		b.doubt = b.doubt || answer == hostcheck.Yes
	case "no space to cache offload":
		b.bad = b.bad || answer == hostcheck.Yes
	case "is soh good":
		b.bad = b.bad || answer == hostcheck.No
	case "nvcache state":
		b.doubt = b.doubt || !silent(value) && squeeze(value) != "ok"
	default:
		b.gauge(key, value)
	}
}

// gauge takes a line with a number. Voltage and Temperature are both a number and, elsewhere in the same
// output, a word.
func (b *backupReader) gauge(key, value string) {
	_, isNumber := leadingNumber(value)
	word := squeeze(value)
	switch key {
	case "voltage":
		b.bad = b.bad || !isNumber && word == "low"
	case "temperature", "temp":
		if isNumber {
			b.number(&b.TemperatureCelsius, key, value, -50, 150)
		} else if word == "ok" || word == "high" {
			b.Hot = hostcheck.Is(word == "high")
		}
	case "relative state of charge":
		b.number(&b.ChargePercent, key, value, 0, maxCharge)
	case "capacitance":
		b.number(&b.CapacityPercent, key, value, 0, maxCapacity)
	case "cycle count":
		b.number(&b.CycleCount, key, value, 0, 1e6)
	case "next learn time":
		if !silent(value) {
			b.NextLearn = strings.Join(strings.Fields(value), " ")
		}
	case "battery backup charge time":
		// 0 is written by units that copy the cache to flash and have no such time.
		if d, ok := duration(value); ok && d > 0 {
			b.Remaining = new(d)
		}
	}
}

// settle works out what the lines together make of the unit.
func (b *backupReader) settle() Backup {
	b.capacity()
	b.Status = strings.Join(b.words, ", ")
	learning := b.Learning == hostcheck.Yes
	worn := b.ReplacementRequired == hostcheck.Yes || b.CapacityLow == hostcheck.Yes && !learning
	vague := b.doubt || learning && (b.degraded || b.CapacityLow == hostcheck.Yes) || b.needs && !b.detailed()
	switch {
	case b.Present == hostcheck.No, b.bad, worn, b.degraded && !learning:
		b.Good = hostcheck.No
	case vague:
		b.Good = hostcheck.NotKnown
	case b.good, b.needs && len(b.words) == 0:
		b.Good = hostcheck.Yes
	}
	return b.Backup
}

// detailed reports whether the four details that a battery is judged by were told.
func (b *backupReader) detailed() bool {
	return b.ReplacementRequired != hostcheck.NotKnown && b.CapacityLow != hostcheck.NotKnown &&
		yesNo(b.told["battery pack missing"]) != hostcheck.NotKnown && squeeze(b.told["voltage"]) == "ok"
}

// capacity derives what a full charge holds of the design where no line says it: from the two capacities, or
// from the charge relative to each. Zeros are written by units that do not measure.
func (b *backupReader) capacity() {
	if b.CapacityPercent != nil {
		return
	}
	ratio := func(part, whole string) {
		p, _ := leadingNumber(b.told[part])
		w, _ := leadingNumber(b.told[whole])
		if p > 0 && w > 0 && p/w*100 <= maxCapacity {
			b.CapacityPercent = new(p / w * 100)
		}
	}
	ratio("full charge capacity", "design capacity")
	if b.CapacityPercent == nil {
		ratio("pack energy", "design capacity")
	}
	if b.CapacityPercent == nil && b.ChargePercent != nil && *b.ChargePercent >= 50 {
		ratio("absolute state of charge", "relative state of charge")
	}
}
