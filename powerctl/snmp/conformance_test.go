package snmp

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"plugpull/powerctl"
	"plugpull/powerctl/powertest"
)

func profiles(t testing.TB) []*Profile {
	list, err := Load()
	require.NoError(t, err)
	return list
}

// limit bounds whatever a test waits for: a test that reaches it has failed.
const limit = time.Minute

func config(t testing.TB, sp spec, address string, v Version) Config {
	return Config{
		Address: address, Version: v, Community: powerctl.NewSecret(community), User: testUser(),
		Profiles: profiles(t), Profile: sp.profile, Index: sp.index, Timeout: limit,
	}
}

func outlet(t testing.TB, c Config) *Outlet {
	o, err := New(c)
	require.NoError(t, err)
	return o
}

func harness(t *testing.T, sp spec, v Version) powertest.Harness {
	a := startAgent(t, sp)
	return powertest.Harness{
		Outlet: powertest.ShortSilence(outlet(t, config(t, sp, a.address(), v)), a.d), Device: a.d,
		Policy:   powerctl.Policy{Deadline: limit, Poll: 2 * time.Millisecond},
		Patience: 25 * time.Millisecond,
	}
}

// datagrams: a datagram has no connection that could be cut.
func datagrams() []powertest.Fault {
	return slices.DeleteFunc(powertest.Faults(), func(f powertest.Fault) bool { return f == powertest.Reset })
}

// TestConformance: three kinds of device over all versions with all faults,
// every other one over one version with those that its values take part in.
func TestConformance(t *testing.T) {
	for i, sp := range specs() {
		versions := []Version{V1, V2c, V3}
		faults := datagrams()
		if i >= 3 {
			versions = versions[i%3 : i%3+1]
			faults = []powertest.Fault{
				powertest.None, powertest.StaleReads, powertest.UnknownReads, powertest.PendingReads, powertest.FaultReads,
				powertest.GarbageReads, powertest.FailedReads, powertest.LostReply, powertest.WrongDevice,
			}
		}
		for _, v := range versions {
			t.Run(sp.profile+"/v"+string(v), func(t *testing.T) {
				t.Parallel()
				powertest.Run(t, func(t *testing.T) powertest.Harness {
					h := harness(t, sp, v)
					h.Faults = faults
					return h
				})
			})
		}
	}
}

func TestEveryProfileIsSimulated(t *testing.T) {
	simulated := map[string]bool{}
	for _, sp := range specs() {
		simulated[sp.profile] = true
	}
	for _, p := range profiles(t) {
		require.True(t, simulated[p.Name], p.Name)
		require.NotEqual(t, powerctl.TriedNothing, p.Tried, p.Name)
	}
	require.Len(t, profiles(t), len(simulated))
}
