package check

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"plugpull/internal/hostcheck"
	"plugpull/internal/hostcheck/drive"
	"plugpull/internal/hostcheck/raid"
)

// memberTime is how long one drive behind a controller may take to answer. A drive that hangs must not cost the
// report the others.
const memberTime = 5 * time.Second

// members asks the drives behind a controller, through one of its volumes, and returns their answers by the
// controller's ID. Which drive has answered, only its serial number says: without it, or where it is of more than one
// drive, the answer does not count.
func members(ctx context.Context, r hostcheck.Runner, c raid.Controller, disks []*hostcheck.Node) map[string]*drive.Drive {
	found := map[string]*drive.Drive{}
	volume := slices.IndexFunc(disks, func(d *hostcheck.Node) bool {
		return slices.ContainsFunc(c.Volumes, func(v raid.Volume) bool {
			return plainName(v.Device) == plainName(d.Name) || v.Device == "" && mayProvide(c.Tool, value(d, "driver"))
		})
	})
	if volume < 0 {
		return found
	}
	var twice []string
	for _, behind := range addresses(c, value(disks[volume], "driver")) {
		limited, cancel := context.WithTimeout(ctx, memberTime)
		d := drive.ReadBehind(limited, r, disks[volume].Name, behind)
		cancel()
		id, ok := memberOf(c, d.Serial)
		if !ok {
			continue
		}
		if found[id] != nil {
			twice = append(twice, id)
		}
		d.Device = "drive " + id + " of " + c.Name()
		found[id] = d
	}
	for _, id := range twice {
		delete(found, id)
	}
	return found
}

// addresses are what smartctl calls the drives with -d (smartctl(8)): megaraid,N with the controller's own number;
// cciss,N counts them; aacraid,H,L,ID has the controller from 0, the channel and the drive. Where it is not sure
// which of them a drive has, its serial number tells.
func addresses(c raid.Controller, driver string) (all []string) {
	for i, d := range c.Disks {
		channel, id, pair := strings.Cut(d.ID, ",")
		_, notNumber := strconv.ParseUint(d.DeviceID, 10, 16)
		switch {
		case strings.HasPrefix(driver, "megaraid") && notNumber == nil:
			all = append(all, "megaraid,"+d.DeviceID)
		case driver == "hpsa" || driver == "smartpqi" || driver == "cciss":
			all = append(all, fmt.Sprintf("cciss,%d", i))
		case driver == "aacraid" && c.Number > 0 && pair && digits(channel) && digits(id):
			all = append(all, fmt.Sprintf("aacraid,%d,%s,%s", c.Number-1, channel, id))
		}
	}
	return all
}

func digits(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}

// shortSerial is how much of a serial number has to be there where a controller cuts it, as some do after the 8
// characters that the field of a SCSI INQUIRY has.
const shortSerial = 8

// memberOf finds the drive that a serial number is of, by the whole of it or by what the controller has of it; false
// where none, or more than one, fits.
func memberOf(c raid.Controller, serial string) (id string, ok bool) {
	serial = plain(serial)
	for _, d := range c.Disks {
		listed := plain(d.Serial)
		if listed == "" || serial == "" || listed != serial && (len(listed) < shortSerial || !strings.HasPrefix(serial, listed)) {
			continue
		}
		if ok {
			return "", false
		}
		id, ok = d.ID, true
	}
	return id, ok
}

func plain(serial string) string { return strings.ToUpper(strings.Join(strings.Fields(serial), "")) }

// show adds what the drives of a volume have said to their node.
func show(n *hostcheck.Node, v raid.Volume, answers map[string]*drive.Drive) {
	for _, id := range v.Members {
		d := answers[id]
		if d == nil {
			continue
		}
		n.Facts = append(n.Facts, hostcheck.Fact{Key: "drive " + id, Value: summary(d), From: "smartctl"})
		for _, c := range d.UnsafeShutdowns {
			n.Perf = append(n.Perf, hostcheck.Perf{Name: "unsafe_shutdowns_total", Label: d.Device + " " + c.Name, Value: float64(c.Value)})
		}
		_, findings := d.Judge()
		for _, f := range findings {
			if f.Code == drive.CodeProtectionFailed {
				n.Findings = append(n.Findings, f)
			}
		}
	}
}

func summary(d *drive.Drive) string {
	parts := []string{d.Model, "serial " + d.Serial, "firmware " + d.Firmware, "write cache on: " + d.WriteCache.String()}
	if d.Evidence != "" {
		parts = append(parts, "power-loss protection: "+d.Protection.String()+" ("+d.Evidence+")")
	}
	return strings.Join(parts, ", ")
}
