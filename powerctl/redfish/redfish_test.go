package redfish

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/powerctl"
	"plugpull/powerctl/powertest"
)

func (s *service) outlet(t testing.TB, change func(*Config)) *Outlet {
	c := Config{
		Name: "server 7", URL: s.URL, User: simUser, Password: powerctl.NewSecret(simPassword), System: systemPath,
		Fingerprint: s.fingerprint(), Timeout: time.Minute, Pin: Pin{UUID: simUUID, Serial: simSerial},
	}
	if change != nil {
		change(&c)
	}
	o, err := New(c)
	require.NoError(t, err)
	return o
}

func onPDU(c *Config) {
	c.System, c.Outlet, c.Pin.Label = "", outletPath, simLabel
}

func (s *service) harness(o *Outlet) powertest.Harness {
	return powertest.Harness{
		Outlet: powertest.ShortSilence(o, s.device), Device: s.device,
		Policy:   powerctl.Policy{Deadline: time.Minute, Poll: 20 * time.Millisecond},
		Patience: 100 * time.Millisecond,
		// An answer comes over the connection of its request, and a request says GET.
		Faults: slices.DeleteFunc(powertest.Faults(), func(f powertest.Fault) bool {
			return f == powertest.LateAnswer || f == powertest.Echo
		}),
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Config)
		faults []powertest.Fault
	}{
		"system":          {},
		"outlet of a PDU": {change: onPDU},
		// The faults of the device are the same: these are those that a session must outlive.
		"system, by sessions": {
			func(c *Config) { c.Auth = Session },
			[]powertest.Fault{powertest.None, powertest.StaleReads, powertest.StuckOn, powertest.LostReply, powertest.NoAnswer, powertest.WrongDevice},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			powertest.Run(t, func(t *testing.T) powertest.Harness {
				s := startService(t)
				h := s.harness(s.outlet(t, c.change))
				if c.faults != nil {
					h.Faults = c.faults
				}
				return h
			})
		})
	}
}

// TestConformanceOfEveryFailure: what fails does so in every way that HTTP has.
func TestConformanceOfEveryFailure(t *testing.T) {
	t.Parallel()
	for _, f := range []failure{reset, short, redirect, moved, truncated, page, endless} {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			powertest.Run(t, func(t *testing.T) powertest.Harness {
				s := startService(t)
				s.failure = f
				h := s.harness(s.outlet(t, nil))
				h.Faults = []powertest.Fault{powertest.FailedReads}
				switch f {
				case reset, short, redirect, moved: // else a command's 200 counts, whatever comes with it
					h.Faults = append(h.Faults, powertest.LostReply, powertest.LostCommand)
				}
				return h
			})
		})
	}
}

func policy() powerctl.Policy {
	return powerctl.Policy{Deadline: 300 * time.Millisecond, Poll: 5 * time.Millisecond}
}

func TestChangedBehindOurBack(t *testing.T) {
	s := startService(t)
	o := s.outlet(t, nil)
	s.device.Force(powerctl.Off)
	res, err := powerctl.SwitchOff(t.Context(), o, policy())
	require.NoError(t, err)
	require.Equal(t, powerctl.Off, res.Before, "it shows that nothing was cut")
	s.device.Force(powerctl.On)
	res, err = o.State(t.Context())
	require.NoError(t, err)
	require.True(t, res.IsOn())
	s.change(func(s *service) { s.patch["UUID"] = "2" + simUUID[1:] }) // swapped for one that is off
	s.device.Force(powerctl.Off)
	_, err = o.State(t.Context())
	var ie *powerctl.IdentityError
	require.ErrorAs(t, err, &ie)
}

func TestAcceptedStatuses(t *testing.T) {
	for code, ok := range map[int]bool{200: true, 202: true, 204: true, 201: false, 206: false, 400: false, 401: false, 403: false, 404: false, 405: false, 409: false, 500: false, 501: false} {
		s := startService(t)
		s.accepts = code
		res, err := s.outlet(t, nil).Off(t.Context())
		require.NotZero(t, res.Commanded)
		if ok {
			require.NoError(t, err, code)
			require.NotZero(t, res.Acknowledged)
			continue
		}
		if code == http.StatusConflict { // and off when it was read back
			require.NoError(t, err)
			require.True(t, res.IsOff())
		} else {
			var se *StatusError
			require.ErrorAs(t, err, &se)
			require.Equal(t, code, se.Code)
			require.NotErrorIs(t, err, powerctl.ErrNotSent)
		}
		require.Zero(t, res.Acknowledged)
	}
}

func TestConflictIsReadBack(t *testing.T) {
	s := startService(t)
	s.conflict = true
	s.device.Force(powerctl.Off)
	o := s.outlet(t, nil)
	res, err := o.Off(t.Context())
	require.NoError(t, err)
	require.True(t, res.IsOff())
	require.Zero(t, res.Acknowledged)

	s.change(func(s *service) { s.accepts = http.StatusConflict })
	s.device.Force(powerctl.On)
	s.device.Plant(powertest.StuckOn) // the conflict is another one
	res, err = powerctl.SwitchOff(t.Context(), o, policy())
	require.ErrorIs(t, err, powerctl.ErrNotReached)
	var se *StatusError
	require.ErrorAs(t, err, &se)
	require.Equal(t, http.StatusConflict, se.Code)
	require.False(t, res.IsOff())
}

func TestPoweringOffIsPending(t *testing.T) {
	s := startService(t)
	for _, word := range []string{"PoweringOff", "PoweringOn"} {
		s.change(func(s *service) { s.patch["PowerState"] = word })
		res, err := s.outlet(t, nil).State(t.Context())
		require.NoError(t, err)
		require.Equal(t, powerctl.Pending, res.State)
		require.Zero(t, res.Observed)
		require.Contains(t, res.Raw, word)
	}
	for _, text := range nonsense {
		s.change(func(s *service) { s.garbage = strings.ReplaceAll(text, "%s", "#ComputerSystem.") + " " })
		res, _ := s.outlet(t, func(c *Config) { c.Pin = Pin{} }).State(t.Context())
		require.NotEqual(t, powerctl.Off, res.State, text)
		require.NotEqual(t, powerctl.On, res.State, text)
	}
}

func TestIdentify(t *testing.T) {
	s := startService(t)
	for name, c := range map[string]struct {
		change func(*Config)
		patch  map[string]any
		want   string
	}{
		"system":  {nil, nil, "^uuid " + simUUID + " serial SN-4711 manufacturer Maker model Server " + systemPath + "$"},
		"outlet":  {onPDU, nil, "^uuid " + simUUID + " serial SN-4711 model PDU 24 " + outletPath + "$"},
		"nothing": {nil, map[string]any{"UUID": nil, "SerialNumber": nil, "Model": "two\nlines"}, "^manufacturer Maker model twolines address [0-9a-f]{8} " + systemPath + "$"},
	} {
		s.change(func(s *service) { s.patch = c.patch })
		id, err := s.outlet(t, func(conf *Config) {
			if c.change != nil {
				c.change(conf)
			}
			conf.Pin = Pin{}
		}).Identify(t.Context())
		require.NoError(t, err, name)
		assert.Regexp(t, c.want, id.Device)
		assert.Equal(t, "redfish", id.Driver)
		assert.Equal(t, "server 7", id.Name)
	}
}

func TestWarnings(t *testing.T) {
	s := startService(t)
	watchdog := func(enabled any, action any) map[string]any {
		return map[string]any{"HostWatchdogTimer": map[string]any{"FunctionEnabled": enabled, "TimeoutAction": action}}
	}
	for _, c := range []struct {
		patch    map[string]any
		text     string // empty: no warning
		switches bool
	}{
		{nil, "", false},
		{map[string]any{"PowerRestorePolicy": "AlwaysOn"}, "when mains returns (restore policy AlwaysOn)", false},
		{map[string]any{"PowerRestorePolicy": "LastState"}, "and it was on (restore policy LastState)", false},
		{map[string]any{"PowerRestorePolicy": nil}, "does not say whether it switches on", false},
		{map[string]any{"PowerOffDelaySeconds": 5, "PowerOnDelaySeconds": 0}, "PowerOffDelaySeconds is 5", false},
		{map[string]any{"PowerOnDelaySeconds": "soon"}, `PowerOnDelaySeconds is "soon"`, false},
		{watchdog(false, "PowerCycle"), "", false},
		{watchdog(true, "None"), "", false},
		{watchdog(true, "ResetSystem"), `its action is "ResetSystem"`, false},
		{watchdog(true, "PowerCycle"), `its action is "PowerCycle"`, true},
		{watchdog("yes", "PowerDown"), `its action is "PowerDown"`, true},
		{watchdog(true, "OEM"), `its action is "OEM"`, true},
	} {
		s.change(func(s *service) { s.patch = c.patch })
		got, err := s.outlet(t, onPDU).Warnings(t.Context())
		require.NoError(t, err)
		if c.text == "" {
			require.Empty(t, got, "%v", c.patch)
			continue
		}
		require.Len(t, got, 1, "%v", c.patch)
		require.Contains(t, got[0].Text, c.text)
		require.Equal(t, c.switches, got[0].Switches, "%v", c.patch)
	}
	require.Empty(t, s.device.Commands())
}

func TestPinsAreWhatTheDeviceSaysNow(t *testing.T) {
	s := startService(t)
	o := s.outlet(t, func(c *Config) { onPDU(c); c.Pin = Pin{UUID: "another", Serial: "another", Label: "another"} })
	got, err := o.Pins(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]string{"uuid": simUUID, "serial": simSerial, "label": simLabel}, got)
	_, err = o.Identify(t.Context())
	require.Error(t, err, "the pins still hold")
	got, err = s.outlet(t, nil).Pins(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]string{"uuid": simUUID, "serial": simSerial}, got)
	s.change(func(s *service) { s.patch = map[string]any{"UUID": nil, "SerialNumber": nil} })
	got, err = s.outlet(t, nil).Pins(t.Context())
	require.NoError(t, err)
	require.Empty(t, got)
}

// What was planned is what arrives.
func TestPlan(t *testing.T) {
	s := startService(t)
	for name, c := range map[string]struct {
		change func(*Config)
		on     bool
		want   []string
	}{
		"system": {nil, false, []string{"GET " + systemPath, "POST " + systemPath + `/Actions/ComputerSystem.Reset {"ResetType":"ForceOff"}`}},
		"outlet, by sessions": {func(c *Config) { onPDU(c); c.Auth = Session }, true, []string{
			"GET /redfish/v1/", "POST " + sessions + " ", "GET " + outletPath, "GET /redfish/v1/PowerEquipment/RackPDUs/1",
			"POST " + outletPath + `/Actions/Outlet.PowerControl {"PowerState":"On"}`, "DELETE of the session",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s.change(func(s *service) { s.requests = nil })
			o := s.outlet(t, c.change)
			plan := o.Plan(c.on)
			requireNoSecret(t, plan)
			do := o.Off
			if c.on {
				do = o.On
			}
			_, err := do(t.Context())
			require.NoError(t, err)
			require.Len(t, s.requests, len(c.want))
			var sure []string // without what is asked only sometimes
			for _, line := range plan {
				if !strings.Contains(line, "only when") && !strings.Contains(line, "where the resource has it") {
					sure = append(sure, strings.Replace(line, s.URL, "", 1))
				}
			}
			require.Len(t, sure, len(c.want))
			for i, want := range c.want {
				require.Contains(t, sure[i], want)
				method, path, _ := strings.Cut(want, " ")
				path, _, _ = strings.Cut(path, " ")
				require.Contains(t, s.requests[i], method+" "+strings.TrimSuffix(path, "of"))
			}
		})
	}
}

func TestCapabilities(t *testing.T) {
	s := startService(t)
	require.Equal(t, powerctl.Chassis, s.outlet(t, nil).Capabilities().Class)
	require.Equal(t, powerctl.Mains, s.outlet(t, onPDU).Capabilities().Class)
	for _, o := range []*Outlet{s.outlet(t, nil), {}} {
		require.True(t, o.Capabilities().Tried.Experimental())
	}
}

func TestNewReportsEverything(t *testing.T) {
	_, err := New(Config{URL: "http://plug:hunter2@bmc/", Auth: "digest", Fingerprint: "12"})
	for _, text := range []string{"name is missing", "timeout is missing", "exactly one of", "not a path", "URL is not", "neither basic nor", "64 hexadecimal"} {
		require.ErrorContains(t, err, text)
	}
	requireNoSecret(t, err)
	for name, change := range map[string]func(*Config){
		"both":            func(c *Config) { c.Outlet = outletPath },
		"a URL":           func(c *Config) { c.System = "https://elsewhere/redfish/v1/Systems/1" },
		"another host":    func(c *Config) { c.System = "//elsewhere/1" },
		"label":           func(c *Config) { c.Pin.Label = "x" },
		"no CA file":      func(c *Config) { c.Fingerprint, c.CAFile = "", "/nowhere" },
		"two kinds of CA": func(c *Config) { c.CAFile = "/nowhere" },
	} {
		c := Config{Name: "a", URL: "https://bmc", System: systemPath, Timeout: time.Second, Fingerprint: strings.Repeat("ab", 32)}
		_, err := New(c)
		require.NoError(t, err)
		change(&c)
		_, err = New(c)
		require.Error(t, err, name)
	}
}
