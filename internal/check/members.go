package check

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"plugpull/internal/hostcheck"
	"plugpull/internal/hostcheck/drive"
	"plugpull/internal/hostcheck/raid"
)

// The times that drives behind a controller have. A drive that hangs must not cost the report the others.
const (
	memberTime  = 5 * time.Second  // for one drive
	membersTime = 30 * time.Second // for all of a controller
)

// memberLanes is how many drives of a controller are asked at a time.
const memberLanes = 4

// The causes of an end before the answer.
var (
	errMemberSlow  = fmt.Errorf("no answer within %v", memberTime)
	errMembersSlow = fmt.Errorf("the controller's drives took more than %v in all", membersTime)
)

// answers are what the drives behind a controller say of themselves.
type answers struct {
	drives map[string]*drive.Drive // by the controller's ID
	silent map[string]string       // why a drive has no answer that counts, by the controller's ID
}

// members asks the drives behind a controller, through one of its volumes. Which drive has answered, only its serial
// number says: without it, or where it may be another drive's, the answer does not count.
func members(ctx context.Context, r hostcheck.Runner, c raid.Controller, disks []*hostcheck.Node) answers {
	ctx, cancel := context.WithTimeoutCause(ctx, membersTime, errMembersSlow)
	defer cancel()
	a := answers{map[string]*drive.Drive{}, map[string]string{}}
	a.none(c, "no disk of the host is known to be a volume of its controller")
	for _, d := range through(c, disks) {
		a.ask(ctx, r, c, d)
		if len(a.drives) > 0 {
			break // this volume leads to the controller
		}
	}
	return a
}

// through are the disks by which a controller's drives may be reached: one that is surely a volume of it, or all that
// may be.
func through(c raid.Controller, disks []*hostcheck.Node) (maybe []*hostcheck.Node) {
	for _, d := range disks {
		unnamed := false
		for _, v := range c.Volumes {
			if v.Device != "" && plainName(v.Device) == plainName(d.Name) {
				return []*hostcheck.Node{d}
			}
			unnamed = unnamed || v.Device == ""
		}
		if unnamed && mayProvide(c.Tool, value(d, "driver")) {
			maybe = append(maybe, d)
		}
	}
	return maybe
}

// none says the same of every drive.
func (a answers) none(c raid.Controller, why string) {
	for _, d := range c.Disks {
		a.silent[d.ID] = why
	}
}

// ask asks every drive through a disk, and keeps the answers that count.
func (a answers) ask(ctx context.Context, r hostcheck.Runner, c raid.Controller, disk *hostcheck.Node) {
	driver := value(disk, "driver")
	if driver == "" {
		a.none(c, "the driver of /dev/"+plainName(disk.Name)+" could not be read, which decides how smartctl asks")
	} else {
		a.none(c, "no way of smartctl to it through the driver "+driver+" is known here")
	}
	list := addresses(c, driver)
	said := make([]*drive.Drive, len(list))
	lanes := make(chan struct{}, memberLanes)
	var wg sync.WaitGroup
	for i, to := range list {
		lanes <- struct{}{}
		wg.Go(func() {
			defer func() { <-lanes }()
			limited, cancel := context.WithTimeoutCause(ctx, memberTime, errMemberSlow)
			defer cancel()
			said[i] = drive.ReadBehind(limited, r, disk.Name, to.behind)
		})
	}
	wg.Wait()
	for i, to := range list {
		a.refuse(c, to, "smartctl -d "+to.behind+" /dev/"+plainName(disk.Name), said[i])
	}
	a.keep(c, list, said)
}

// refuse notes what speaks against an answer being that of the drive which was asked. Those that count are told of later.
func (a answers) refuse(c raid.Controller, to address, command string, said *drive.Drive) {
	why := strings.Join(said.Problems, "; ")
	if said.Serial != "" {
		why = "a drive with the serial number " + said.Serial + " answers"
	}
	for i, d := range c.Disks {
		switch {
		case plain(d.Serial) == "":
			a.silent[d.ID] = "the controller lists no serial number, by which its answer could be known"
		case to.own == i && plain(d.Serial) == plain(said.Serial):
			a.silent[d.ID] = command + ": " + why + ", which is not its alone"
		case to.own == i:
			a.silent[d.ID] = command + ": " + why
		case to.own == anyDrive && said.Serial == "" && to.first:
			a.silent[d.ID] = command + " and the numbers after it: " + why
		case to.own == anyDrive && to.first:
			a.silent[d.ID] = command + " and the numbers after it: none answers with its serial number"
		}
	}
}

// keep takes the answers of which it is sure whose they are.
func (a answers) keep(c raid.Controller, list []address, said []*drive.Drive) {
	twice := map[string]bool{}
	for i, d := range said {
		id, ok := whose(c, d.Serial, list[i].own)
		if !ok {
			continue
		}
		twice[id] = a.drives[id] != nil || twice[id]
		d.Device = "drive " + id + " of " + c.Name()
		a.drives[id] = d
	}
	for id, more := range twice {
		if more {
			delete(a.drives, id)
			a.silent[id] = "more than one drive answers with its serial number"
		}
	}
}

// member is what counts of a drive in the controller's judgement.
func (a answers) member(d raid.Disk) hostcheck.Cache {
	said := a.drives[d.ID]
	if said == nil {
		return hostcheck.Cache{Why: a.silent[d.ID]}
	}
	c, _ := said.Judge()
	c.Why = "says that its write cache is " + map[hostcheck.Tri]string{hostcheck.Yes: "on", hostcheck.No: "off"}[c.Volatile]
	switch {
	case c.Protected != hostcheck.NotKnown:
		c.Why = said.Evidence
	case c.Volatile == hostcheck.NotKnown:
		c.Why = "does not say whether its write cache is on"
	case c.Volatile == hostcheck.Yes:
		c.Why += ", and shows no test of power-loss protection"
	}
	return c
}

// address is what smartctl calls a drive with -d.
type address struct {
	behind string
	own    int  // of the controller's disks; anyDrive where only the serial number tells
	first  bool // of those for anyDrive
}

const anyDrive = -1

// moreLUNs is how many more physical units a Smart Array may count than it has drives: enclosures are among them.
const moreLUNs = 4

// addresses are those of a controller's drives (smartctl(8), and its os_linux.cpp and cciss.cpp): megaraid,N has the
// controller's own number; cciss,N counts all physical units as the controller reports them, in an order that the tool
// does not tell; aacraid,H,L,ID has the controller from 0, the LUN, and the drive, always on channel 0.
func addresses(c raid.Controller, driver string) (all []address) {
	if slices.Contains([]string{"hpsa", "smartpqi", "cciss"}, driver) && len(c.Disks) > 0 {
		for i := range len(c.Disks) + moreLUNs {
			all = append(all, address{fmt.Sprintf("cciss,%d", i), anyDrive, i == 0})
		}
		return all
	}
	for i, d := range c.Disks {
		channel, id, _ := strings.Cut(d.ID, ",")
		switch {
		case strings.HasPrefix(driver, "megaraid") && digits(d.DeviceID):
			all = append(all, address{"megaraid," + d.DeviceID, i, false})
		case driver == "aacraid" && c.Number > 0 && channel == "0" && digits(id):
			all = append(all, address{fmt.Sprintf("aacraid,%d,0,%s", c.Number-1, id), i, false})
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

// whose finds the drive that an answer is of by its serial number; false where none, or more than one, fits. Drives of
// one batch begin alike: where the controller lists the beginning alone, the answer has to come from the drive's own
// address too. own is whose that was.
func whose(c raid.Controller, serial string, own int) (id string, ok bool) {
	serial = plain(serial)
	fit, ids := anyDrive, map[string]int{}
	for i, d := range c.Disks {
		ids[d.ID]++
		listed := plain(d.Serial)
		if serial == "" || listed == "" || listed != serial && (len(listed) < shortSerial || !strings.HasPrefix(serial, listed)) {
			continue
		}
		if fit != anyDrive {
			return "", false
		}
		fit = i
	}
	if fit == anyDrive || plain(c.Disks[fit].Serial) != serial && fit != own || ids[c.Disks[fit].ID] > 1 {
		return "", false
	}
	return c.Disks[fit].ID, true
}

func plain(serial string) string { return strings.ToUpper(strings.Join(strings.Fields(serial), "")) }

// show adds what the drives of a volume have said to their node.
func (a answers) show(n *hostcheck.Node, v raid.Volume) {
	for _, id := range v.Members {
		d := a.drives[id]
		if d == nil {
			if why := a.silent[id]; why != "" {
				n.Facts = append(n.Facts, hostcheck.Fact{Key: "drive " + id, Value: "not asked: " + why})
			}
			continue
		}
		n.Facts = append(n.Facts, hostcheck.Fact{Key: "drive " + id, Value: summary(d), From: "smartctl"})
		for _, c := range d.UnsafeShutdowns {
			n.Perf = append(n.Perf, hostcheck.Perf{Name: drive.PerfUnsafeShutdowns, Label: d.Label(c), Value: float64(c.Value)})
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
