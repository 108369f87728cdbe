package check

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/hostcheck"
	"plugpull/internal/hostcheck/raid"
)

// Which controller a disk's volume is of decides what it is judged by: one that is not sure counts with all others.
func TestAttach(t *testing.T) {
	good := hostcheck.Cache{Volatile: hostcheck.Yes, Protected: hostcheck.Yes, Flushes: hostcheck.No}
	bad := hostcheck.Cache{Volatile: hostcheck.Yes, Protected: hostcheck.No, Flushes: hostcheck.No}
	// controller has volumes on these devices, "" where its tool does not say.
	controller := func(tool string, number int, cache hostcheck.Cache, devices ...string) unit {
		u := unit{raid.Controller{Tool: tool, Number: number}, &hostcheck.Node{Kind: "controller", Name: tool, Cache: hostcheck.Cache{Volatile: hostcheck.No, Flushes: hostcheck.Yes}}}
		for _, d := range devices {
			u.c.Volumes = append(u.c.Volumes, raid.Volume{Device: d})
			u.top.Below = append(u.top.Below, &hostcheck.Node{Kind: "volume", Name: d, Cache: cache})
		}
		return u
	}
	const ok, critical, unread = hostcheck.OK, hostcheck.Critical, hostcheck.Unknown
	for name, c := range map[string]struct {
		disk, driver string
		units        []unit
		want         hostcheck.Level
	}{
		"by its name":                        {"sda", "megaraid_sas", []unit{controller("storcli", 0, good, "/dev/sda"), controller("storcli", 1, bad, "/dev/sdb")}, ok},
		"by its name, the bad one":           {"sdb", "megaraid_sas", []unit{controller("storcli", 0, good, "/dev/sda"), controller("storcli", 1, bad, "/dev/sdb")}, critical},
		"by its name, before one without":    {"sda", "megaraid_sas", []unit{controller("storcli", 0, good, "/dev/sda"), controller("megacli", 1, bad, "")}, ok},
		"of two controllers, not said which": {"sda", "megaraid_sas", []unit{controller("megacli", 0, good, ""), controller("megacli", 1, bad, "")}, critical},
		"of two volumes, not said which":     {"sda", "megaraid_sas", []unit{controller("megacli", 0, good, "", ""), controller("megacli", 1, good, "")}, ok},
		"another maker's controller":         {"sda", "hpsa", []unit{controller("megacli", 0, good, "")}, unread},
		"another maker's beside its own":     {"sda", "hpsa", []unit{controller("megacli", 0, bad, ""), controller("ssacli", 0, good, "/dev/sda")}, ok},
		"the driver is not known":            {"sda", "", []unit{controller("megacli", 0, bad, "")}, critical},
		"no volume is left for it":           {"sdb", "megaraid_sas", []unit{controller("storcli", 0, good, "/dev/sda")}, unread},
		"a name with a folder":               {"cciss!c0d0", "cciss", []unit{controller("ssacli", 0, bad, "/dev/cciss/c0d0")}, critical},
	} {
		t.Run(name, func(t *testing.T) {
			d := &hostcheck.Node{Kind: "disk", Name: c.disk, Facts: []hostcheck.Fact{{Key: "driver", Value: c.driver}}}
			d.Add(hostcheck.Unknown, "x", "the disk does not know")
			used := map[*hostcheck.Node]bool{}
			done := attach(d, c.units, used)
			assert.Equal(t, c.want != unread, done)
			assert.Equal(t, done, len(used) > 0)
			r := hostcheck.Report{Tops: []*hostcheck.Node{d}}
			r.Judge()
			require.Equal(t, c.want, r.Level, r.Verdict)
		})
	}
}
