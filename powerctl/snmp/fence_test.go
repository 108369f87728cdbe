package snmp

import (
	"context"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gosnmp/gosnmp"
	"github.com/stretchr/testify/require"

	"plugpull/internal/testskip"
	"plugpull/powerctl"
	"plugpull/powerctl/powertest"
)

// Exit codes of the fence agents (fencing.py).
const (
	fenceOK  = 0
	fenceOff = 2 // of the action status
)

// fenceAgents skips unless it is asked for: fence-agents brings a hundred other packages with
// it, 190 MB.
// PLUGPULL_LONG=1 go test -run TestLong ./powerctl/snmp
func fenceAgents(t *testing.T) {
	t.Helper()
	if os.Getenv("PLUGPULL_LONG") == "" {
		t.Skip("needs the packages fence-agents and snmp: make test-long")
	}
	program(t, "snmpset") // which it calls
	testskip.Program(t, "fence_apc_snmp", "fence-agents")
}

// fence runs fence_apc_snmp, which sends its requests with Net-SNMP.
func fence(t *testing.T, a *agent, v Version, plug, action string) (said string, code int) {
	t.Helper()
	host, port, err := net.SplitHostPort(a.address())
	require.NoError(t, err)
	login := []string{"--snmp-version", string(v), "--community", community}
	if v == V3 {
		login = []string{"--snmp-version", "3", "--snmp-sec-level", "authPriv", "--username", "tester",
			"--snmp-auth-prot", "SHA", "--password", authPass, "--snmp-priv-prot", "AES", "--snmp-priv-passwd", privPass}
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "fence_apc_snmp", slices.Concat(login, []string{"--ip", host, "--ipport", port, "--plug", plug, "--action", action})...)
	cmd.Env = append(os.Environ(), "SNMP_PERSISTENT_DIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	require.True(t, cmd.ProcessState != nil && cmd.ProcessState.Exited(), "%v: %s", err, out)
	return strings.TrimSpace(string(out)), cmd.ProcessState.ExitCode()
}

// specOf returns the simulated outlet of a profile.
func specOf(profile string) spec {
	list := specs()
	return list[slices.IndexFunc(list, func(s spec) bool { return s.profile == profile })]
}

// TestLongFenceAPCAgrees lets the driver and fence_apc_snmp switch in turn and look at each
// other's work, on every device that it knows.
func TestLongFenceAPCAgrees(t *testing.T) {
	fenceAgents(t)
	for _, c := range []struct {
		profile, plug, listed string
		versions              []Version
	}{
		{"apc-rpdu", "5", "5,db1 psu a", versions()},
		{"apc-masterswitch", "2", "2,db1 psu a", []Version{V1}},
		{"apc-msp", "4:8", "4:8,db1 psu a", []Version{V2c}},
	} {
		for _, v := range c.versions {
			t.Run(c.profile+"/v"+string(v), func(t *testing.T) {
				t.Parallel()
				a, o := startOne(t, specOf(c.profile), v, true, nil)
				// As on every device there is more behind the last outlet: in version 2c the agent
				// lists the end of everything as an outlet.
				a.put(".1.3.6.1.6.3.1.1.6.1.0", gosnmp.Integer, 1)
				says := func(action, want string, wantCode int) {
					t.Helper()
					said, code := fence(t, a, v, c.plug, action)
					require.Equal(t, want, said)
					require.Equal(t, wantCode, code)
				}
				says("list", c.listed, fenceOK)
				says("status", "Status: ON", fenceOK)
				_, err := powerctl.SwitchOff(t.Context(), o, patient)
				require.NoError(t, err)
				says("status", "Status: OFF", fenceOff)
				says("on", "Success: Powered ON", fenceOK)
				res, err := o.State(t.Context())
				require.NoError(t, err)
				require.True(t, res.IsOn())
				says("off", "Success: Powered OFF", fenceOK)
				res, err = o.State(t.Context())
				require.NoError(t, err)
				require.True(t, res.IsOff())
				_, err = powerctl.SwitchOn(t.Context(), o, patient)
				require.NoError(t, err)
				says("status", "Status: ON", fenceOK)
				require.Equal(t, []powerctl.State{powerctl.Off, powerctl.On, powerctl.Off, powerctl.On}, a.d.Commands())
			})
		}
	}
}

// TestLongFenceAPCCallsAnythingButOnOff writes down what fence_apc_snmp 4.12.1 does, and what
// the driver must not: it calls each state off that is not exactly on. Asked for off it then
// says "Success: Already OFF", sends nothing, and the machine runs on.
func TestLongFenceAPCCallsAnythingButOnOff(t *testing.T) {
	fenceAgents(t)
	for name, c := range map[string]struct {
		profile, plug string
		ail           func(*agent)
		state         powerctl.State // that the driver tells
	}{
		"a value that no MIB has": {"apc-rpdu", "5", func(a *agent) { a.d.Plant(powertest.UnknownReads) }, powerctl.Unknown},
		"sPDUOutletUnknown":       {"apc-masterswitch", "2", func(a *agent) { a.d.Plant(powertest.UnknownReads) }, powerctl.Unknown},
		"off, about to change":    {"apc-rpdu", "5", func(a *agent) { a.d.Plant(powertest.PendingReads) }, powerctl.Pending},
		"no such instance": {"apc-rpdu", "5", func(a *agent) {
			a.onReply(func(req, reply *gosnmp.SnmpPacket) bool {
				for i, pdu := range reply.Variables {
					if pdu.Name == a.spec.state {
						reply.Variables[i] = gosnmp.SnmpPDU{Name: pdu.Name, Type: gosnmp.NoSuchInstance}
					}
				}
				return true
			})
		}, powerctl.Unknown},
		// It reads the newer rack PDU in the table of the oldest one, which this one does not
		// have. The driver reads it in its own: it is on.
		"a table that the device lacks": {"apc-rpdu2", "17", func(*agent) {}, powerctl.On},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, o := startOne(t, specOf(c.profile), V2c, true, nil)
			c.ail(a)
			said, code := fence(t, a, V2c, c.plug, "status")
			require.Equal(t, "Status: OFF", said)
			require.Equal(t, fenceOff, code)
			said, code = fence(t, a, V2c, c.plug, "off")
			require.Equal(t, "Success: Already OFF", said)
			require.Equal(t, fenceOK, code)
			require.Empty(t, a.writes(), "it sent something")
			require.Equal(t, powerctl.On, a.d.Contacts())

			res, err := o.State(t.Context())
			require.NoError(t, err)
			require.Equal(t, c.state, res.State)
			if c.state == powerctl.On {
				res, err = powerctl.SwitchOff(t.Context(), o, patient)
				require.NoError(t, err)
				require.True(t, res.IsOff())
			} else {
				res, err = powerctl.SwitchOff(t.Context(), o, powerctl.Policy{Deadline: 50 * time.Millisecond, Poll: 5 * time.Millisecond})
				require.ErrorIs(t, err, powerctl.ErrNotReached)
				require.False(t, res.IsOff())
			}
			require.NotEmpty(t, a.d.Commands(), "the driver switches, whatever was read before")
		})
	}
}
