package check

import (
	"slices"
	"strings"

	"plugpull/internal/hostcheck"
	"plugpull/internal/hostcheck/raid"
)

// unit is a controller and its node, whose lower ones are its volumes.
type unit struct {
	c   raid.Controller
	top *hostcheck.Node
}

// attach hangs below a disk the volumes that it is: by the system's name where a tool tells it; else every volume
// without one, of every controller that may provide the disk, so that the worst of them counts. False: there is none.
func attach(d *hostcheck.Node, units []unit, used map[*hostcheck.Node]bool) bool {
	below := under(d, units, used, func(v raid.Volume, _ unit) bool { return v.Device != "" && plainName(v.Device) == plainName(d.Name) })
	if len(below) == 0 {
		below = under(d, units, used, func(v raid.Volume, u unit) bool { return v.Device == "" && mayProvide(u.c.Tool, value(d, "driver")) })
	}
	if len(below) == 0 {
		return false
	}
	var names []string
	for _, b := range below {
		names = append(names, b.Name)
	}
	d.Below = below
	// What the volume is, its controller says; the disk's own answers were the controller's too.
	d.Cache = hostcheck.Cache{Volatile: hostcheck.No, Flushes: hostcheck.Yes, Why: "a volume of " + strings.Join(names, " or ")}
	d.Findings = slices.DeleteFunc(d.Findings, func(f hostcheck.Finding) bool { return f.Level == hostcheck.Unknown })
	return true
}

// under are copies of the controllers with those volumes that fit.
func under(d *hostcheck.Node, units []unit, used map[*hostcheck.Node]bool, fits func(raid.Volume, unit) bool) (below []*hostcheck.Node) {
	for _, u := range units {
		var mine []*hostcheck.Node
		for i, v := range u.c.Volumes {
			if fits(v, u) {
				mine = append(mine, u.top.Below[i])
			}
		}
		if len(mine) > 0 {
			used[u.top] = true
			copied := *u.top
			copied.Below = mine
			below = append(below, &copied)
		}
	}
	return below
}

// plainName takes a path, or the kernel's name, which has ! for /.
func plainName(device string) string {
	return strings.ReplaceAll(strings.TrimPrefix(device, "/dev/"), "!", "/")
}

// drivers are the kernel's for the controllers that a tool tells of.
var drivers = map[string][]string{
	"arcconf":  {"aacraid", "smartpqi"},
	"storcli":  {"megaraid_sas", "megaraid", "megaraid_mbox", "megaraid_legacy"},
	"perccli":  {"megaraid_sas", "megaraid", "megaraid_mbox", "megaraid_legacy"},
	"megacli":  {"megaraid_sas", "megaraid", "megaraid_mbox", "megaraid_legacy"},
	"storcli2": {"mpi3mr"},
	"ssacli":   {"hpsa", "smartpqi", "cciss"},
}

// mayProvide reports whether a tool's controllers provide disks of a driver; one that is not known may be any's.
func mayProvide(tool, driver string) bool {
	return driver == "" || drivers[tool] == nil || slices.Contains(drivers[tool], driver)
}
