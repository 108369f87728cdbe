package quarch

import (
	"slices"
	"testing"
	"time"

	"plugpull/powerctl"
	"plugpull/powerctl/powertest"
)

func (m *module) harness(t testing.TB, way string, change func(*Config), faults ...powertest.Fault) powertest.Harness {
	return powertest.Harness{
		Outlet: powertest.ShortSilence(m.outlet(t, way, change), m.device), Device: m.device, Faults: faults,
		Policy:   powerctl.Policy{Deadline: time.Minute, Poll: 2 * time.Millisecond},
		Patience: 40 * time.Millisecond,
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for way := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			powertest.Run(t, func(t *testing.T) powertest.Harness {
				h := newModule().harness(t, way, nil)
				if way == "rest" { // nothing goes ahead of an answer of HTTP
					h.Faults = slices.DeleteFunc(powertest.Faults(), func(f powertest.Fault) bool { return f == powertest.LateAnswer || f == powertest.Echo })
				}
				return h
			})
		})
	}
}

// A power module has other words and no signals; a module of an array has its
// number in each command and each line.
func TestConformanceOfOtherModules(t *testing.T) {
	t.Parallel()
	for way := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			powertest.Run(t, func(t *testing.T) powertest.Harness {
				m := newModule()
				m.array = 12
				m.words[powerctl.On], m.words[powerctl.Off] = "ON", "OFF"
				h := m.harness(t, way, func(c *Config) { c.Signals = nil },
					powertest.None, powertest.StaleReads, powertest.GarbageReads, powertest.FailedReads, powertest.LostReply, powertest.NoAnswer)
				if way != "rest" {
					h.Faults = append(h.Faults, powertest.LateAnswer, powertest.Echo)
				}
				return h
			})
		})
	}
}

// What fails does so in every way that its wire has.
func TestConformanceOfEveryFailure(t *testing.T) {
	t.Parallel()
	for way, failures := range map[string][]failure{
		"tcp":    {hangsUp, other, empty, twice, halved},
		"rest":   {hangsUp, other, empty, twice, redirect, page, short},
		"serial": {other, empty, twice, noEcho, badEcho},
	} {
		for _, f := range failures {
			t.Run(way+"/"+string(f), func(t *testing.T) {
				t.Parallel()
				powertest.Run(t, func(t *testing.T) powertest.Harness {
					m := newModule()
					m.failure = f
					return m.harness(t, way, nil, powertest.FailedReads, powertest.LostReply)
				})
			})
		}
	}
}

var (
	_ powerctl.Planner = (*Outlet)(nil)
	_ powerctl.Warner  = (*Outlet)(nil)
	_ powerctl.Pinner  = (*Outlet)(nil)
)
