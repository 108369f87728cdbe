package raid

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/hostcheck"
)

// needed is what an OK rests on.
func needed(list []Controller) (facts []any) {
	for _, c := range list {
		j := Judge(c, Options{})
		facts = append(facts, c.Tool, c.Number, c.Backup.Present, c.Backup.Good, c.Backup.ReplacementRequired, c.Backup.CapacityLow)
		for i, v := range j.Volumes {
			facts = append(facts, c.Volumes[i].ID, v.Cache.Volatile, v.Cache.Protected, v.Members.Volatile)
		}
	}
	return facts
}

// However an output of a healthy host is cut, it is not OK, unless nothing that the OK rests on is gone.
func TestTruncatedIsNotOK(t *testing.T) {
	healthy := 0
	for _, want := range expected {
		// The oldest ssacli does not list the drives first, so that a whole array can be cut off unnoticed.
		if want.level != ok || want.fixture == "hpacucli-old" {
			continue
		}
		whole := load(t, want.fixture)
		list, _ := Collect(t.Context(), whole)
		if len(list) == 0 {
			continue
		}
		healthy++
		t.Run(want.fixture, func(t *testing.T) {
			facts := needed(list)
			for _, command := range whole.commands() {
				text := strings.SplitAfter(whole.outputs[command], "\n")
				for n := range text {
					cut := load(t, want.fixture)
					cut.outputs[command] = strings.Join(text[:n], "")
					found, trouble := Collect(t.Context(), cut)
					level, _ := verdict(found, trouble, Options{})
					if level == ok && !assert.ObjectsAreEqual(facts, needed(found)) {
						require.Fail(t, "OK with fewer facts", "%s cut after line %d: %v, whole: %v", command, n, needed(found), facts)
					}
				}
			}
		})
	}
	assert.GreaterOrEqual(t, healthy, 8)
}

// sound checks what has to hold for whatever a parser makes of whatever it is given.
func sound(t *testing.T, list []Controller) {
	for _, c := range list {
		b := c.Backup
		for _, p := range []*float64{b.ChargePercent, b.CapacityPercent} {
			assert.True(t, p == nil || *p >= 0 && *p <= maxCapacity, "a percentage that cannot be")
		}
		assert.True(t, b.Remaining == nil || *b.Remaining >= 0 && *b.Remaining <= longest, "a time that cannot be")
		j := Judge(c, Options{})
		require.Len(t, j.Volumes, len(c.Volumes))
		require.NotEmpty(t, c.Tool)
		if j.Worst() != ok {
			continue
		}
		assert.Empty(t, c.Incomplete)
		backup := b.Good == hostcheck.Yes && b.Present != hostcheck.No || b.Present == hostcheck.No
		for i, v := range c.Volumes {
			assert.NotEqual(t, PolicyNotKnown, v.CurrentPolicy, "OK without a policy")
			assert.True(t, !v.CurrentPolicy.caches() || b.Good == hostcheck.Yes, "OK without a backup")
			assert.Equal(t, hostcheck.No, j.Volumes[i].Members.Volatile, "OK without the members")
			backup = backup || v.CurrentPolicy == WriteThrough
		}
		assert.True(t, backup, "OK without anything known")
	}
}

// seeds adds the outputs of a tool's fixtures.
func seeds(f *testing.F, prefixes []string, add func(*fixture)) {
	for _, want := range expected {
		for _, p := range prefixes {
			if strings.HasPrefix(want.fixture, p) {
				add(load(f, want.fixture))
			}
		}
	}
}

func FuzzArcconf(f *testing.F) {
	seeds(f, []string{"arcconf-"}, func(x *fixture) { f.Add([]byte(x.outputs["arcconf GETCONFIG 1 AL"])) })
	f.Fuzz(func(t *testing.T, out []byte) {
		if c, err := ParseArcconf(out, 1); err == nil {
			sound(t, []Controller{c})
		}
	})
}

func FuzzMegaCli(f *testing.F) {
	seeds(f, []string{"megacli-"}, func(x *fixture) {
		m := x.megaCli()
		f.Add(m.Volumes, m.Backup, m.Disks, m.Adapters)
	})
	f.Fuzz(func(t *testing.T, volumes, backup, disks, adapters []byte) {
		list, _ := ParseMegaCli(MegaCli{volumes, backup, disks, adapters})
		sound(t, list)
	})
}

func (f *fixture) megaCli() MegaCli {
	return MegaCli{Volumes: []byte(f.outputs["MegaCli64 -LDInfo -Lall -aALL -NoLog"]), Backup: []byte(f.outputs["MegaCli64 -AdpBbuCmd -aALL -NoLog"]),
		Disks: []byte(f.outputs["MegaCli64 -PDList -aALL -NoLog"]), Adapters: []byte(f.outputs["MegaCli64 -AdpAllInfo -aALL -NoLog"])}
}

func FuzzStorCLI(f *testing.F) {
	seeds(f, []string{"storcli-", "perccli-", "storcli2-", "perccli2-"}, func(x *fixture) {
		var all [][]byte
		for _, c := range x.commands() {
			all = append(all, []byte(x.outputs[c]))
		}
		for len(all) < 5 {
			all = append(all, []byte(`{"Controllers":[{"Command Status":{"Controller":0,"Status":"Success"}}]}`))
		}
		f.Add(all[0], all[1], all[2], all[3], all[4])
	})
	f.Fuzz(func(t *testing.T, a, b, c, d, e []byte) {
		list, _ := ParseStorCLI("storcli", a, b, c, d, e)
		sound(t, list)
	})
}

func FuzzSSA(f *testing.F) {
	seeds(f, []string{"ssacli-", "hpssacli-", "hpacucli-"}, func(x *fixture) {
		for _, c := range x.commands() {
			f.Add([]byte(x.outputs[c]))
		}
	})
	f.Fuzz(func(t *testing.T, out []byte) {
		list, _ := ParseSSA(out)
		sound(t, list)
	})
}
