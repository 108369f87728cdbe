package raid

import (
	"strings"

	"plugpull/internal/hostcheck"
)

// smartCache is how Smart Array and SmartRAID controllers divide what decides over a volume's write cache:
// the cache's state and ratio and the rule for a bad battery belong to the controller, "Caching" to the
// volume. arcconf and ssacli print the same facts in different words.
type smartCache struct {
	status       string // of the cache, in small letters
	writePercent *float64
	noBattery    hostcheck.Tri // No-Battery Write Cache: cache writes without a good backup
	board        hostcheck.Tri // Cache Board Present
	disks        hostcheck.Tri // the policy for the write caches of configured drives
	caching      hostcheck.Tri // of the volume
}

func (s *smartCache) field(key, value string) {
	switch key {
	case "cache status":
		s.status = squeeze(value)
	case "no-battery write cache":
		s.noBattery = onOff(value)
	case "cache board present":
		s.board = yesNo(value)
	case "write cache percentage":
		s.percent(value)
	case "cache ratio", "accelerator ratio":
		for part := range strings.SplitSeq(value, "/") {
			if strings.HasSuffix(squeeze(part), "write") {
				s.percent(part)
			}
		}
	case "drive write cache", "configured drive write cache policy":
		s.disks = onOff(value)
	}
}

func (s *smartCache) percent(value string) {
	if n, ok := leadingNumber(value); ok && n >= 0 && n <= 100 {
		s.writePercent = new(n)
	}
}

// on reports whether the cache works now.
func (s *smartCache) on() hostcheck.Tri {
	switch {
	case s.board == hostcheck.No:
		return hostcheck.No
	case s.status == "ok":
		return hostcheck.Yes
	case strings.Contains(s.status, "disabled"), s.status == "not configured":
		return hostcheck.No
	}
	return hostcheck.NotKnown
}

// policies works out what was asked for and what is done now.
func (s *smartCache) policies() (asked, now Policy) {
	back := WriteBack
	if s.noBattery == hostcheck.Yes {
		back = ForcedWriteBack
	}
	switch {
	case s.board == hostcheck.No, s.caching == hostcheck.No, s.writePercent != nil && *s.writePercent == 0:
		return WriteThrough, WriteThrough
	case s.caching == hostcheck.Yes:
		asked = back
	}
	switch s.on() {
	case hostcheck.No:
		return asked, WriteThrough
	case hostcheck.Yes:
		// The ratio may leave nothing to writes.
		if s.writePercent != nil {
			return asked, asked
		}
	}
	return asked, PolicyNotKnown
}
