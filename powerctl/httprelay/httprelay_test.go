package httprelay

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"plugpull/powerctl"
	"plugpull/powerctl/powertest"
)

// limit bounds whatever a test waits for: a test that reaches it has failed.
const limit = time.Minute

func profiles(t testing.TB) []*Profile {
	list, err := Load()
	require.NoError(t, err)
	return list
}

func (s *sim) config(t testing.TB) Config {
	c := Config{
		Name: "server 7", URL: s.URL, Profiles: profiles(t), Profile: s.profile, Outlet: s.outlet, Timeout: limit,
		Pin: Pin{Serial: simSerial, OutletName: simName},
	}
	if s.auth != NoAuth {
		c.User, c.Password = simUser, powerctl.NewSecret(simPassword)
	}
	return c
}

func (s *sim) driver(t testing.TB, change func(*Config)) *Outlet {
	c := s.config(t)
	if change != nil {
		change(&c)
	}
	o, err := New(c)
	require.NoError(t, err)
	return o
}

func (s *sim) harness(o *Outlet) powertest.Harness {
	return powertest.Harness{
		Outlet: powertest.ShortSilence(o, s.device), Device: s.device,
		Policy:   powerctl.Policy{Deadline: limit, Poll: 5 * time.Millisecond},
		Patience: 25 * time.Millisecond,
	}
}

func eachModel(t *testing.T, do func(t *testing.T, m model)) {
	t.Helper()
	for _, m := range models() {
		t.Run(m.profile, func(t *testing.T) { do(t, m) })
	}
}

// TestConformance: one family of each login with all faults, every other one with those
// that its answers take part in.
func TestConformance(t *testing.T) {
	t.Parallel()
	eachModel(t, func(t *testing.T, m model) {
		t.Parallel()
		powertest.Run(t, func(t *testing.T) powertest.Harness {
			s := start(t, m, nil)
			h := s.harness(s.driver(t, nil))
			switch m.profile {
			case "tasmota-single", "digital-loggers", "netio", "gude":
				h.Faults = []powertest.Fault{
					powertest.None, powertest.StaleReads, powertest.UnknownReads, powertest.GarbageReads, powertest.FailedReads,
					powertest.LostReply, powertest.LateAnswer, powertest.Echo, powertest.WrongDevice,
				}
			}
			return h
		})
	})
}

// TestConformanceOfEveryFailure: what fails does so in every way that HTTP has.
func TestConformanceOfEveryFailure(t *testing.T) {
	t.Parallel()
	for f, profile := range map[failure]string{
		reset: "shelly-gen1", short: "shelly-gen2", redirect: "tasmota", moved: "digital-loggers", truncated: "netio",
		page: "tasmota-single", mislabel: "shelly-gen1", endless: "gude", refused: "digital-loggers",
	} {
		m := named(profile)
		t.Run(string(f)+"/"+m.profile, func(t *testing.T) {
			t.Parallel()
			powertest.Run(t, func(t *testing.T) powertest.Harness {
				s := start(t, m, func(s *sim) { s.failure = f })
				h := s.harness(s.driver(t, nil))
				h.Faults = []powertest.Fault{powertest.FailedReads, powertest.LostReply, powertest.LostCommand}
				return h
			})
		})
	}
}

func TestEveryProfileIsSimulated(t *testing.T) {
	simulated := map[string]bool{}
	for _, m := range models() {
		simulated[m.profile] = true
	}
	for _, p := range profiles(t) {
		require.True(t, simulated[p.Name], p.Name)
		require.Equal(t, powerctl.TriedSimulator, p.Tried, p.Name)
		for key, source := range p.Sources {
			require.NotEmpty(t, source, key)
		}
	}
	require.Len(t, profiles(t), len(simulated))
}

// requireNotSent switches off and on, and nothing of it may reach the device.
func requireNotSent(t *testing.T, s *sim, o *Outlet, check func(error)) {
	t.Helper()
	for _, do := range []func(context.Context) (powerctl.Result, error){o.Off, o.On} {
		res, err := do(t.Context())
		require.ErrorIs(t, err, powerctl.ErrNotSent)
		var op *powerctl.OpError
		require.ErrorAs(t, err, &op)
		require.Equal(t, powerctl.Result{}, res)
		requireNoSecret(t, err)
		check(err)
	}
	require.Empty(t, s.device.Commands())
}

func requireNoSecret(t *testing.T, v any) {
	t.Helper()
	for _, text := range []string{fmt.Sprint(v), fmt.Sprintf("%+v", v), fmt.Sprintf("%#v", v)} {
		for _, secret := range []string{"hunter2", simPassword, url.QueryEscape(simPassword), url.PathEscape(simPassword)} {
			require.NotContains(t, text, secret)
		}
	}
}

func TestWrongDeviceIsSentNothing(t *testing.T) {
	t.Parallel()
	eachModel(t, func(t *testing.T, m model) {
		for name, c := range map[string]struct {
			patch map[string]any
			want  powerctl.IdentityError
		}{
			"serial":      {map[string]any{"serial": "E09806A9E104"}, powerctl.IdentityError{What: "serial", Want: simSerial, Got: "E09806A9E104"}},
			"no serial":   {map[string]any{"serial": ""}, powerctl.IdentityError{What: "serial", Want: simSerial}},
			"outlet name": {map[string]any{"name": "rack 3 server 8"}, powerctl.IdentityError{What: "outlet name", Want: simName, Got: "rack 3 server 8"}},
			"no name":     {map[string]any{"name": ""}, powerctl.IdentityError{What: "outlet name", Want: simName}},
		} {
			t.Run(name, func(t *testing.T) {
				s := start(t, m, func(s *sim) { s.patch = c.patch })
				o := s.driver(t, nil)
				requireNotSent(t, s, o, func(err error) {
					var ie *powerctl.IdentityError
					require.ErrorAs(t, err, &ie)
					require.Equal(t, c.want, *ie)
				})
				require.Zero(t, s.orders)
				s.device.Force(powerctl.Off) // the off of another device is no off either
				res, err := o.State(t.Context())
				require.Error(t, err)
				require.Equal(t, powerctl.Unknown, res.State)
				_, err = o.Identify(t.Context())
				require.Error(t, err)
			})
		}
	})
}

// TestSwappedDevice: without pins, whatever answered first is what must go on answering.
func TestSwappedDevice(t *testing.T) {
	eachModel(t, func(t *testing.T, m model) {
		for _, name := range []string{"serial", "name"} {
			s := start(t, m, nil)
			o := s.driver(t, func(c *Config) { c.Pin = Pin{} })
			res, err := o.State(t.Context())
			require.NoError(t, err)
			require.True(t, res.IsOn())
			s.device.Force(powerctl.Off)
			s.change(func(s *sim) { s.patch[name] = "another" })
			_, err = o.State(t.Context())
			var ie *powerctl.IdentityError
			require.ErrorAs(t, err, &ie)
			requireNotSent(t, s, o, func(err error) { require.ErrorAs(t, err, &ie) })
		}
	})
}

func TestNonsenseIsNeitherOnNorOff(t *testing.T) {
	t.Parallel()
	eachModel(t, func(t *testing.T, m model) {
		s := start(t, m, nil)
		o := s.driver(t, func(c *Config) { c.Pin = Pin{} })
		req, err := http.NewRequest(http.MethodGet, s.URL+o.p.state.get.fill(m.outlet), nil)
		require.NoError(t, err)
		for name, value := range o.p.headers {
			req.Header.Set(name, string(value))
		}
		list := nonsense(m, m.handle(s, req, ""))
		require.Greater(t, len(list), 20)
		for _, text := range list {
			s.change(func(s *sim) { s.garbage = text + " " })
			res, err := o.State(t.Context())
			require.Equal(t, powerctl.Unknown, res.State, text)
			require.Zero(t, res.Observed)
			require.LessOrEqual(t, len(res.Raw), powerctl.MaxRaw)
			if err == nil {
				require.NotEmpty(t, res.Raw, text)
			}
		}
	})
}

// TestAnotherOutletsAnswer: an answer about a neighbour is no answer.
func TestAnotherOutletsAnswer(t *testing.T) {
	for profile, patch := range map[string]map[string]any{
		"shelly-gen2": {"id": 0}, "netio": {"id": 3}, "tasmota": {"key": "POWER1"}, "tasmota-single": {"key": "POWER1"},
	} {
		t.Run(profile, func(t *testing.T) {
			s := start(t, named(profile), func(s *sim) { s.patch = patch })
			s.device.Force(powerctl.Off)
			res, err := s.driver(t, nil).State(t.Context())
			require.NoError(t, err)
			require.Equal(t, powerctl.Unknown, res.State)
			require.NotEmpty(t, res.Raw)
		})
	}
}

// TestEcho: a device that answers with what it was sent has accepted nothing.
func TestEcho(t *testing.T) {
	for _, profile := range []string{"shelly-gen1", "shelly-gen2", "netio"} {
		s := start(t, named(profile), nil)
		o := s.driver(t, nil)
		s.change(func(s *sim) { s.echo = true })
		res, err := o.Off(t.Context())
		require.ErrorIs(t, err, errReply)
		require.NotErrorIs(t, err, powerctl.ErrNotSent)
		require.Zero(t, res.Acknowledged)
		require.NotZero(t, res.Commanded)
		require.False(t, res.IsOff())
	}
}

// TestSlowDrip: a reading that the deadline cuts short is an error.
func TestSlowDrip(t *testing.T) {
	s := start(t, named("gude"), nil)
	o := s.driver(t, func(c *Config) { c.Timeout, c.Pin = 100*time.Millisecond, Pin{} })
	s.device.Force(powerctl.Off)
	s.change(func(s *sim) { s.drip = 20 * time.Millisecond })
	res, err := o.State(t.Context())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, powerctl.Result{}, res)
}

// TestAnswersAreBounded: one that has no end is an error, of a command as well.
func TestAnswersAreBounded(t *testing.T) {
	s := start(t, named("digital-loggers"), func(s *sim) { s.failure = endless })
	o := s.driver(t, nil)
	s.device.Plant(powertest.LostReply)
	res, err := o.Off(t.Context())
	require.ErrorContains(t, err, "more than")
	require.NotErrorIs(t, err, powerctl.ErrNotSent)
	require.Zero(t, res.Acknowledged)
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	elsewhere := start(t, named("netio"), nil)
	for _, code := range []int{301, 302, 303, 307, 308} {
		front := start(t, named("netio"), nil)
		front.Config.Handler = http.RedirectHandler(elsewhere.URL+"/netio.json", code)
		o := front.driver(t, nil)
		_, err := o.Off(t.Context())
		var se *StatusError
		require.ErrorAs(t, err, &se)
		require.Equal(t, code, se.Code)
		require.ErrorIs(t, err, powerctl.ErrNotSent, "the identity could not be read")
	}
	require.Empty(t, elsewhere.requests)
}

func TestUnreachable(t *testing.T) {
	s := start(t, named("shelly-gen2"), nil)
	o := s.driver(t, nil)
	s.Close()
	requireNotSent(t, s, o, func(error) {})
	_, err := o.Warnings(t.Context())
	require.Error(t, err)
	_, err = o.Pins(t.Context())
	require.Error(t, err)
}

func TestIdentifyAndPins(t *testing.T) {
	eachModel(t, func(t *testing.T, m model) {
		s := start(t, m, nil)
		id, err := s.driver(t, nil).Identify(t.Context())
		require.NoError(t, err)
		require.Equal(t, powerctl.Identity{Driver: "httprelay", Name: "server 7", Device: fmt.Sprintf("%s serial %s outlet %d", m.profile, simSerial, m.outlet)}, id)
		o := s.driver(t, func(c *Config) { c.Pin = Pin{Serial: "wrong"} })
		pins, err := o.Pins(t.Context())
		require.NoError(t, err, "to learn what to pin, nothing need be pinned rightly")
		require.Equal(t, map[string]string{"serial": simSerial, "outlet_name": simName}, pins)
		s.change(func(s *sim) { s.patch["serial"], s.patch["name"] = "", "two\nlines" })
		o = s.driver(t, func(c *Config) { c.Pin = Pin{} })
		if m.profile != "netio" && m.profile != "gude" { // whose simulation does not quote
			pins, err = o.Pins(t.Context())
			require.NoError(t, err)
			require.Equal(t, map[string]string{"outlet_name": "twolines"}, pins)
			id, err = o.Identify(t.Context())
			require.NoError(t, err)
			require.Regexp(t, `^\S+ address [0-9a-f]{8} outlet \d$`, id.Device)
		}
		require.Empty(t, s.device.Commands())
		require.Zero(t, s.orders)
	})
}

func TestCapabilities(t *testing.T) {
	s := start(t, named("gude"), nil)
	require.Equal(t, powerctl.Capabilities{ReadBack: true, Class: powerctl.Mains, Tried: powerctl.TriedSimulator}, s.driver(t, nil).Capabilities())
	require.Equal(t, powerctl.Drive, s.driver(t, func(c *Config) { c.Class = powerctl.Drive }).Capabilities().Class)
}
