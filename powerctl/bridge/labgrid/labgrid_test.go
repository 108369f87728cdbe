package labgrid

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"plugpull/internal/testskip"
	"plugpull/powerctl"
	"plugpull/powerctl/bridge/bridgetest"
	"plugpull/powerctl/powertest"
)

// script is labgrid-client: it asks the test at this port what to print.
const script = `#!/bin/bash
exec 3<>/dev/tcp/127.0.0.1/%s && echo "$*" >&3 && read -r code <&3 || exit 99
cat <&3
[ "$code" = 0 ] || echo "labgrid.driver.exception.ExecutionError: failed to get SNMP value" >&2
exit "$code"
`

type output struct {
	text string
	code int
}

// client is a simulated labgrid-client with the powertest device behind the place rack7.
type client struct {
	device  *powertest.Device
	program string

	mu      sync.Mutex
	instead map[string]string // what is printed, by arguments
	runs    []string
}

func start(t testing.TB) *client {
	c := &client{device: powertest.NewDevice(), instead: map[string]string{}, program: filepath.Join(t.TempDir(), "labgrid-client")}
	s := bridgetest.Serve(t, func(conn *bridgetest.Conn) {
		if args, ok := conn.Line(); ok {
			if o := c.answer(conn, args); o != nil {
				conn.Say(fmt.Sprintf("%d\n%s", o.code, o.text))
			}
		}
	})
	_, port, _ := net.SplitHostPort(s.Address)
	testskip.Script(t, c.program, fmt.Sprintf(script, port))
	return c
}

func (c *client) say(args, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.instead[args] = text
}

func (c *client) seen() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.runs)
}

// nonsense must never be taken for off.
var nonsense = []string{
	"power for place rack77 is off\n", "power for place rack is off\n", "power for place rack7 is off", "power for place rack7 is OFF\n", "off\n", "",
	"Selected role main from configuration file\npower for place rack7 is off\n", "power for place rack7 is off\nwarning\n", "power psu for place rack7 is off\n",
	"power for place rack7 is off or on\n", "power for place rack7 is None\n", "power for place rack7 is on is off\n", "digital IO for place rack7 is low\n",
	"power for place rack7 is off \n", "\npower for place rack7 is off\n", strings.Repeat("power for place rack7 is off\n", 1000),
}

func (c *client) answer(conn *bridgetest.Conn, args string) *output {
	c.mu.Lock()
	c.runs = append(c.runs, args)
	printed, planned := c.instead[args]
	c.mu.Unlock()
	if planned {
		return &output{text: printed}
	}
	switch args {
	case "-p rack7 show":
		return &output{text: "Place '" + c.place() + "':\n  matches:\n    exporter/rack7/NetworkPowerPort\n  acquired: host/user\n" + strings.Repeat("  more\n", 200)}
	case "-p rack7 power off":
		return c.switched(conn, c.device.Switch(powerctl.Off))
	case "-p rack7 power on":
		return c.switched(conn, c.device.Switch(powerctl.On))
	case "-p rack7 power get":
		return c.get(c.device.Read())
	}
	c.device.Switch(powerctl.Fault) // a command that the suite does not count is worth a failure
	return &output{code: 2}
}

// place is the one that labgrid finds for "rack7".
func (c *client) place() string {
	if c.device.Other() {
		return "rack77"
	}
	return "rack7"
}

func (c *client) switched(conn *bridgetest.Conn, a powertest.Answer) *output {
	switch {
	case a.Silent:
		conn.Hang()
		return nil
	case a.Failed:
		return &output{code: 2}
	}
	return &output{}
}

func (c *client) get(a powertest.Answer) *output {
	word := map[powerctl.State]string{powerctl.On: "on", powerctl.Off: "off"}[a.State]
	switch {
	case a.Garbage > 0:
		return &output{text: nonsense[a.Garbage%len(nonsense)]}
	case a.Failed, word == "": // the readers fail on what is neither
		return &output{"power for place rack7 is off\n", 2}
	}
	return &output{text: "power for place " + c.place() + " is " + word + "\n"}
}

func (c *client) outlet(t testing.TB, change func(*Config)) *Outlet {
	conf := Config{Name: "server 7", Program: c.program, Place: "rack7", Reads: "NetworkPowerDriver/apc", Class: powerctl.Mains, Timeout: time.Minute}
	if change != nil {
		change(&conf)
	}
	o, err := New(conf)
	require.NoError(t, err)
	return o
}

// faults are those that a program can show: it has no connection that strays or is cut, and fails
// in one way only.
func faults() []powertest.Fault {
	same := []powertest.Fault{powertest.PendingReads, powertest.FaultReads, powertest.Busy}
	none := []powertest.Fault{powertest.LateAnswer, powertest.Echo, powertest.Reset}
	return slices.DeleteFunc(powertest.Faults(), func(f powertest.Fault) bool {
		return slices.Contains(none, f) || slices.Contains(same, f)
	})
}

func TestConformance(t *testing.T) {
	t.Parallel()
	powertest.Run(t, func(t *testing.T) powertest.Harness {
		c := start(t)
		return powertest.Harness{
			Outlet: powertest.ShortSilence(c.outlet(t, nil), c.device), Device: c.device, Faults: faults(),
			Policy: powerctl.Policy{Deadline: time.Minute, Poll: 10 * time.Millisecond}, Patience: 100 * time.Millisecond,
		}
	})
}

// TestConformanceWithoutReadBack: with a driver of labgrid that is not known, nothing is claimed.
func TestConformanceWithoutReadBack(t *testing.T) {
	t.Parallel()
	powertest.Run(t, func(t *testing.T) powertest.Harness {
		c := start(t)
		o := c.outlet(t, func(conf *Config) { conf.Reads = "" })
		require.False(t, o.Capabilities().ReadBack)
		return powertest.Harness{
			Outlet: powertest.ShortSilence(o, c.device), Device: c.device,
			Faults: []powertest.Fault{powertest.None, powertest.LostReply, powertest.WrongDevice},
			Policy: powerctl.Policy{Deadline: time.Minute}, Patience: time.Millisecond,
		}
	})
}

func TestNonsense(t *testing.T) {
	c := start(t)
	o := c.outlet(t, nil)
	for _, text := range nonsense {
		c.say("-p rack7 power get", text)
		res, err := o.State(t.Context())
		require.Equal(t, powerctl.Unknown, res.State, text)
		require.Zero(t, res.Observed)
		if strings.HasPrefix(text, "power for place rack77") {
			var ie *powerctl.IdentityError
			require.ErrorAs(t, err, &ie)
		}
	}
}

// TestPartOfAName: labgrid finds the place rack77 for "rack7" where there is no rack7.
func TestPartOfAName(t *testing.T) {
	c := start(t)
	c.device.Plant(powertest.WrongDevice)
	o := c.outlet(t, nil)
	for _, command := range []func(context.Context) (powerctl.Result, error){o.Off, o.On} {
		res, err := command(t.Context())
		var ie *powerctl.IdentityError
		require.ErrorAs(t, err, &ie)
		require.Equal(t, powerctl.IdentityError{What: "place", Want: "rack7", Got: "rack77"}, *ie)
		require.ErrorIs(t, err, powerctl.ErrNotSent)
		require.Zero(t, res.Commanded)
	}
	c.say("-p rack7 show", "Selected role main from configuration file\nPlace 'rack7':\n")
	_, err := o.Off(t.Context())
	require.ErrorIs(t, err, powerctl.ErrNotSent)
	require.ErrorContains(t, err, "LG_ENV")
	require.Empty(t, c.device.Commands())
}

// TestNoProgram: a reading that could not be begun says nothing about a command.
func TestNoProgram(t *testing.T) {
	c := start(t)
	o := c.outlet(t, func(conf *Config) { conf.Program = "/nowhere/labgrid-client" })
	_, err := o.State(t.Context())
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NotErrorIs(t, err, powerctl.ErrNotSent)
	_, err = o.Off(t.Context())
	require.ErrorIs(t, err, powerctl.ErrNotSent)
	var op *powerctl.OpError
	require.ErrorAs(t, err, &op)
}

func TestArguments(t *testing.T) {
	c := start(t)
	o := c.outlet(t, func(conf *Config) { conf.Coordinator, conf.Resource = "lab:20408", "psu" })
	require.Equal(t, []string{c.program + " -x lab:20408 -p rack7 show", c.program + " -x lab:20408 -p rack7 power --name psu off"}, o.Plan(false))
	require.Equal(t, c.program+" -x lab:20408 -p rack7 power --name psu on", o.Plan(true)[1])
	c.say("-x lab:20408 -p rack7 show", "Place 'rack7':\n")
	c.say("-x lab:20408 -p rack7 power --name psu off", "")
	c.say("-x lab:20408 -p rack7 power --name psu get", "power psu for place rack7 is off\n")
	_, err := o.Off(t.Context())
	require.NoError(t, err)
	res, err := o.State(t.Context())
	require.NoError(t, err)
	require.True(t, res.IsOff())
	id, err := o.Identify(t.Context())
	require.NoError(t, err)
	require.Equal(t, powerctl.Identity{Driver: "labgrid", Name: "server 7", Device: "place rack7 resource psu at lab:20408"}, id)
	require.Equal(t, o.Plan(false), []string{c.program + " " + c.seen()[0], c.program + " " + c.seen()[1]})
	pins, err := o.Pins(t.Context())
	require.NoError(t, err)
	require.Empty(t, pins)
}

func TestNewReportsEverything(t *testing.T) {
	_, err := New(Config{Place: "+token", Resource: "a b", Coordinator: "--proxy", Reads: "PDUDaemonDriver"})
	for _, text := range []string{"name is missing", "place is not", "resource is not", "coordinator is not", `"PDUDaemonDriver" is no driver`, "SiSPMPowerDriver", "class is none of", "timeout is missing"} {
		require.ErrorContains(t, err, text)
	}
	for _, bad := range []string{"PDUDaemonDriver", "ManualPowerDriver", "ExternalPowerDriver", "NetworkPowerDriver", "NetworkPowerDriver/sentry", "NetworkPowerDriver/rest", "NetworkPowerDriver/eaton", "apc"} {
		require.NotContains(t, Readers(), bad)
	}
	for _, good := range append(Readers(), "") {
		o, err := New(Config{Name: "a", Place: "p", Reads: good, Class: powerctl.Mains, Timeout: time.Second})
		require.NoError(t, err)
		require.Equal(t, good != "", o.Capabilities().ReadBack)
		require.Equal(t, "labgrid-client -p p power off", o.Plan(false)[1])
	}
}

func FuzzParse(f *testing.F) {
	f.Add("power for place rack7 is off\n", "")
	f.Add("power psu for place rack7 is on\n", "psu")
	for _, s := range nonsense[:14] {
		f.Add(s, "")
	}
	f.Fuzz(func(t *testing.T, printed, resource string) {
		state, err := parse(printed, "rack7", resource)
		if err != nil {
			require.Equal(t, powerctl.Unknown, state)
		}
		if state == powerctl.Unknown {
			return
		}
		name := ""
		if resource != "" {
			name = resource + " "
		}
		require.Equal(t, fmt.Sprintf("power %sfor place rack7 is %s\n", name, state), printed)
	})
}
