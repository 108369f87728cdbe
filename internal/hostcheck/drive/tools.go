package drive

import (
	"fmt"
	"strconv"
	"strings"

	"plugpull/internal/hostcheck"
)

// NVMeID is what an NVMe controller says of itself.
type NVMeID struct {
	Model, Serial, Firmware string
	VolatileCache           hostcheck.Tri // one is present; whether it is on is for the feature
}

// ParseNVMeID reads nvme id-ctrl -o json. The error says that it is no JSON.
func ParseNVMeID(b []byte) (*NVMeID, error) {
	var j struct {
		MN, SN, FR string
		VWC        number
	}
	if err := decode(b, &j); err != nil {
		return nil, fmt.Errorf("JSON of nvme id-ctrl: %w", err)
	}
	id := &NVMeID{Model: clean(j.MN), Serial: clean(j.SN), Firmware: clean(j.FR)}
	if j.VWC.known && j.VWC.value < 256 { // a byte: bit 0, and two on how flushes take namespaces
		id.VolatileCache = hostcheck.Is(j.VWC.value&1 != 0)
	}
	return id, nil
}

// ParseNVMeHealth reads nvme smart-log -o json, of which it takes what Smartctl has. The error says that it
// is no JSON.
func ParseNVMeHealth(b []byte) (*Smartctl, error) {
	var j struct {
		Warning number `json:"critical_warning"` // an object since nvme-cli 2.11
		Unsafe  number `json:"unsafe_shutdowns"`
		Cycles  number `json:"power_cycles"`
	}
	if err := decode(b, &j); err != nil {
		return nil, fmt.Errorf("JSON of nvme smart-log: %w", err)
	}
	s := &Smartctl{Protocol: NVMe}
	s.nvme(j.Warning, j.Unsafe, j.Cycles)
	return s, nil
}

// ParseNVMeFeature reads the text of nvme get-feature -f 6, with or without -H: whether the volatile write
// cache is on.
func ParseNVMeFeature(b []byte) hostcheck.Tri {
	return only(b, func(line string) hostcheck.Tri {
		line = strings.ToLower(line)
		if !strings.HasPrefix(line, "get-feature:") || !strings.Contains(line, "volatile write cache") {
			return hostcheck.NotKnown
		}
		_, value, ok := strings.Cut(line, "current value:")
		if !ok {
			return hostcheck.NotKnown
		}
		// Versions print 0x00000001, 0x000001 or 00000001; the bits above the first are reserved.
		v, err := strconv.ParseUint(strings.TrimPrefix(strings.TrimSpace(value), "0x"), 16, 32)
		if err != nil || v > 1 {
			return hostcheck.NotKnown
		}
		return hostcheck.Is(v == 1)
	})
}

// ParseHdparm reads the text of hdparm -W.
func ParseHdparm(b []byte) hostcheck.Tri {
	return only(b, func(line string) hostcheck.Tri {
		key, value, _ := strings.Cut(line, "=")
		if strings.TrimSpace(key) != "write-caching" {
			return hostcheck.NotKnown
		}
		return word(strings.Join(strings.Fields(value), " "), "1 (on)", "0 (off)")
	})
}

// ParseSdparm reads the text of sdparm --get=WCE, of which the current value is the first.
func ParseSdparm(b []byte) hostcheck.Tri {
	return only(b, func(line string) hostcheck.Tri {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "WCE" {
			return hostcheck.NotKnown
		}
		return word(f[1], "1", "0")
	})
}
