package nut

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"plugpull/powerctl"
	"plugpull/powerctl/bridge"
	"plugpull/powerctl/bridge/bridgetest"
	"plugpull/powerctl/powertest"
)

func (s *server) harness(t *testing.T) powertest.Harness {
	return powertest.Harness{
		Outlet: powertest.ShortSilence(s.outlet(t, nil), s.device), Device: s.device,
		Policy:   powerctl.Policy{Deadline: time.Minute, Poll: 10 * time.Millisecond},
		Patience: 100 * time.Millisecond,
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	powertest.Run(t, func(t *testing.T) powertest.Harness { return start(t).harness(t) })
}

// TestConformanceOfEveryFailure: what fails does so in every way that the wire has.
func TestConformanceOfEveryFailure(t *testing.T) {
	t.Parallel()
	for _, f := range []failure{refused, reset, half, endless} {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			powertest.Run(t, func(t *testing.T) powertest.Harness {
				s := start(t)
				s.change(func(s *server) { s.failure = f })
				h := s.harness(t)
				h.Faults = []powertest.Fault{powertest.FailedReads, powertest.LostReply, powertest.LostCommand, powertest.UnknownReads}
				return h
			})
		})
	}
}

// TestNonsense: none of it is a state, whatever it looks like.
func TestNonsense(t *testing.T) {
	s := start(t)
	o := s.outlet(t, nil)
	for _, text := range nonsense {
		s.change(func(s *server) { s.instead["GET VAR pdu1 outlet.3.status"] = text + "\n" })
		res, _ := o.State(t.Context())
		require.Equal(t, powerctl.Unknown, res.State, text)
		require.Zero(t, res.Observed)
	}
}

// TestStaleData: what upsd, or the driver, calls stale is no state, and nothing is sent then.
func TestStaleData(t *testing.T) {
	for request, answer := range map[string]string{
		"GET VAR pdu1 ups.status":      "ERR DATA-STALE\n",
		"GET VAR pdu1 outlet.3.status": "ERR DATA-STALE\n",
		"GET VAR pdu1 device.serial":   "ERR DRIVER-NOT-CONNECTED\n",
	} {
		s := start(t)
		s.device.Force(powerctl.Off)
		s.change(func(s *server) { s.instead[request] = answer })
		res, err := s.outlet(t, nil).State(t.Context())
		var re *ReplyError
		require.ErrorAs(t, err, &re)
		require.Equal(t, powerctl.Unknown, res.State)
		require.ErrorContains(t, err, "its driver has lost the device")
	}
	for _, status := range []string{"WAIT", "OL WAIT", "OL stale", "COMMBAD", "NOCOMM"} {
		s := start(t)
		s.device.Force(powerctl.Off)
		s.change(func(s *server) { s.vars["ups.status"] = status })
		res, err := s.outlet(t, nil).State(t.Context())
		require.NoError(t, err)
		require.Equal(t, powerctl.Unknown, res.State, status)
		require.Zero(t, res.Observed)
	}
	s := start(t)
	s.device.Force(powerctl.Off)
	s.change(func(s *server) { delete(s.vars, "ups.status") }) // a PDU need not have it
	res, err := s.outlet(t, nil).State(t.Context())
	require.NoError(t, err)
	require.True(t, res.IsOff())
	require.Equal(t, "ERR VAR-NOT-SUPPORTED\nVAR pdu1 outlet.3.status \"off\"", res.Raw)

	s.change(func(s *server) { s.instead["LIST CMD pdu1"] = "ERR DATA-STALE\n" })
	_, err = s.outlet(t, nil).Off(t.Context())
	require.ErrorIs(t, err, powerctl.ErrNotSent)
	require.Empty(t, s.device.Commands())
}

func TestPins(t *testing.T) {
	for name, c := range map[string]struct {
		change func(map[string]string)
		what   string
		got    string
	}{
		"another serial":       {func(v map[string]string) { v["device.serial"] = "SN 4712" }, "serial number", "SN 4712"},
		"no serial":            {func(v map[string]string) { delete(v, "device.serial") }, "serial number", ""},
		"empty serial":         {func(v map[string]string) { v["device.serial"] = "" }, "serial number", ""},
		"another outlet name":  {func(v map[string]string) { v["outlet.3.desc"] = "mail" }, "outlet name", "mail"},
		"serial in other case": {func(v map[string]string) { v["device.serial"] = "sn 4711" }, "serial number", "sn 4711"},
	} {
		s := start(t)
		s.change(func(s *server) { c.change(s.vars) })
		o := s.outlet(t, nil)
		for _, command := range []func(context.Context) (powerctl.Result, error){o.Off, o.On, o.State} {
			res, err := command(t.Context())
			var ie *powerctl.IdentityError
			require.ErrorAs(t, err, &ie, name)
			require.Equal(t, c.what, ie.What)
			require.Equal(t, c.got, ie.Got)
			require.Equal(t, powerctl.Result{}, res)
		}
		_, err := o.Off(t.Context())
		require.ErrorIs(t, err, powerctl.ErrNotSent)
		require.Empty(t, s.device.Commands())
	}
	s := start(t)
	s.change(func(s *server) { delete(s.vars, "device.serial") })
	s.change(func(s *server) { s.vars["ups.serial"] = "U 1" })
	s.change(func(s *server) { delete(s.vars, "outlet.3.desc") })
	pins, err := s.outlet(t, nil).Pins(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]string{"serial": "U 1"}, pins)
	s.change(func(s *server) { s.vars["outlet.3.name"] = "seven" })
	_, err = s.outlet(t, func(c *Config) { c.Pin = Pin{Serial: "U 1", OutletName: "seven"} }).Off(t.Context())
	require.NoError(t, err)
}

func TestIdentify(t *testing.T) {
	s := start(t)
	id, err := s.outlet(t, nil).Identify(t.Context())
	require.NoError(t, err)
	require.Equal(t, powerctl.Identity{Driver: "nut", Name: "server 7", Device: `serial SN 4711 Maker PDU "24" outlet 3`}, id)
	s.change(func(s *server) { delete(s.vars, "device.serial") })
	id, err = s.outlet(t, nil).Identify(t.Context())
	require.NoError(t, err)
	require.Equal(t, "ups pdu1 at "+s.Address+` Maker PDU "24" outlet 3`, id.Device)
}

// TestNotSwitchable: it is known before anything is sent, so that nobody waits for a reading.
func TestNotSwitchable(t *testing.T) {
	for name, change := range map[string]func(*server){
		"not switchable": func(s *server) { s.vars["outlet.3.switchable"] = "no" },
		"no command":     func(s *server) { s.commands = []string{"outlet.3.load.off.delay", "outlet.33.load.off", "load.off"} },
	} {
		s := start(t)
		s.change(change)
		res, err := s.outlet(t, nil).Off(t.Context())
		require.ErrorIs(t, err, ErrNotSwitchable, name)
		require.ErrorIs(t, err, powerctl.ErrNotSent)
		require.Zero(t, res.Commanded)
		require.Empty(t, s.device.Commands())
	}
	s := start(t)
	s.change(func(s *server) { delete(s.vars, "outlet.3.switchable") })
	_, err := s.outlet(t, nil).Off(t.Context())
	require.NoError(t, err)
}

func TestBrokenLists(t *testing.T) {
	for _, list := range []string{
		"BEGIN LIST CMD pdu2\nCMD pdu2 outlet.3.load.off\nEND LIST CMD pdu2\n", "OK\n", "BEGIN LIST CMD pdu1\nVAR pdu1 outlet.3.load.off\nEND LIST CMD pdu1\n",
		"BEGIN LIST CMD pdu1\nCMD pdu1 outlet.3.load.off\nEND LIST VAR pdu1\n", "BEGIN LIST CMD pdu1\n" + strings.Repeat("CMD pdu1 outlet.3.load.off\n", maxList+1),
		"BEGIN LIST CMD pdu1\nERR DATA-STALE\n", "BEGIN LIST CMD pdu1\nCMD pdu1 outlet.3.load.off\nEND LIST CMD pdu1\nOK\n",
	} {
		s := start(t)
		s.change(func(s *server) { s.instead["LIST CMD pdu1"] = list })
		_, err := s.outlet(t, nil).Off(t.Context())
		require.ErrorIs(t, err, powerctl.ErrNotSent, "%.80s", list)
		require.Empty(t, s.device.Commands())
	}
}

// TestAnswersToSomethingElse: with an answer too many, all are answers to something else.
func TestAnswersToSomethingElse(t *testing.T) {
	s := start(t)
	s.change(func(s *server) {
		s.instead["GET VAR pdu1 outlet.3.status"] = "VAR pdu1 outlet.3.status \"off\"\nVAR pdu1 outlet.3.status \"on\"\n"
	})
	res, err := s.outlet(t, nil).State(t.Context())
	require.ErrorIs(t, err, bridge.ErrUnasked)
	require.Equal(t, powerctl.Unknown, res.State)
	require.Zero(t, res.Observed)
}

func TestDeadline(t *testing.T) {
	slow := bridgetest.Serve(t, func(c *bridgetest.Conn) {
		if _, ok := c.Line(); ok {
			c.Drip("VAR pdu1 ups.status \"OL\"\n", 10*time.Millisecond)
		}
	})
	s := start(t)
	o := s.outlet(t, func(c *Config) { c.Address, c.Timeout, c.Pin = slow.Address, 50*time.Millisecond, Pin{} })
	res, err := o.State(t.Context())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, powerctl.Unknown, res.State)
	_, err = o.Off(t.Context())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, powerctl.ErrNotSent)
}

func TestWarnings(t *testing.T) {
	base := map[string]string{"device.serial": "SN 4711", "outlet.3.desc": "server 7", "ups.status": "OL CHRG"}
	for name, c := range map[string]struct {
		vars     map[string]string
		texts    []string
		switches bool
	}{
		"nothing":   {map[string]string{"outlet.3.timer.shutdown": "-1", "ups.timer.start": "0", "outlet.2.timer.shutdown": "9", "outlet.3.delay.start": "-1"}, nil, false},
		"countdown": {map[string]string{"outlet.3.timer.start": "20"}, []string{"a countdown is running: outlet.3.timer.start is 20 s"}, true},
		"of all":    {map[string]string{"ups.timer.shutdown": "5"}, []string{"ups.timer.shutdown is 5 s"}, true},
		"no number": {map[string]string{"outlet.3.timer.shutdown": "soon"}, []string{"no number"}, false},
		"battery":   {map[string]string{"ups.status": "OB DISCHRG"}, []string{"on battery"}, true},
		"delays":    {map[string]string{"outlet.3.delay.shutdown": "20", "outlet.3.delay.start": "30"}, []string{"delay.shutdown is 20", "delay.start is 30"}, false},
		"charge":    {map[string]string{"outlet.3.autoswitch.charge.low": "30"}, []string{"at 30% of charge"}, false},
		"slow":      {map[string]string{"driver.parameter.pollinterval": "15", "driver.parameter.pollfreq": "30"}, []string{"can be 15 s old", "can be 30 s old"}, false},
	} {
		s := start(t)
		s.change(func(s *server) {
			s.vars = maps.Clone(base)
			maps.Copy(s.vars, c.vars)
		})
		got, err := s.outlet(t, nil).Warnings(t.Context())
		require.NoError(t, err)
		require.Len(t, got, len(c.texts), "%s: %v", name, got)
		for i, w := range got {
			require.Contains(t, w.Text, c.texts[i], name)
			require.Equal(t, c.switches, w.Switches, name)
		}
		require.Empty(t, s.device.Commands())
	}
}

func TestPlanIsWhatIsSent(t *testing.T) {
	s := start(t)
	o := s.outlet(t, nil)
	plan := o.Plan(false)
	_, err := o.Off(t.Context())
	require.NoError(t, err)
	var want []string
	for _, l := range plan {
		if !strings.Contains(l, "(where there is no") {
			want = append(want, strings.ReplaceAll(strings.TrimPrefix(l, "tcp "+s.Address+": "), "(secret)", quote(simPassword)))
		}
	}
	require.Equal(t, want, s.seen())
	require.Contains(t, strings.Join(o.Plan(true), "\n"), "INSTCMD pdu1 outlet.3.load.on")
	require.Contains(t, strings.Join(s.outlet(t, func(c *Config) { c.TLS = true }).Plan(true), "\n"), "STARTTLS")
}

func TestNewReportsEverything(t *testing.T) {
	_, err := New(Config{UPS: "pdu1@host", CAFile: "/nowhere", Password: powerctl.NewSecret("hunter2\nINSTCMD")})
	for _, text := range []string{"name is missing", "not host:port", "without @host", "number is missing", "user is missing", "password is missing or has control", "class is none of", "timeout is missing", "no TLS is wanted"} {
		require.ErrorContains(t, err, text)
	}
	require.NotContains(t, err.Error(), "hunter2")
	good := Config{Name: "a", Address: "nut:3493", UPS: "p", Outlet: 1, User: "u", Password: powerctl.NewSecret("p"), Class: powerctl.Mains, Timeout: time.Second, TLS: true}
	_, err = New(good)
	require.NoError(t, err)
	for name, change := range map[string]func(*Config){
		"no CA file":          func(c *Config) { c.CAFile = "/nowhere" },
		"two kinds":           func(c *Config) { c.CAFile, c.Fingerprint = "/nowhere", strings.Repeat("ab", 32) },
		"a short fingerprint": func(c *Config) { c.Fingerprint = "ab" },
		"two words":           func(c *Config) { c.UPS = "p outlet.2.load.off" },
		"a line in the user":  func(c *Config) { c.User = "u\nFSD p" },
	} {
		bad := good
		change(&bad)
		_, err := New(bad)
		require.Error(t, err, name)
	}
}

func FuzzValue(f *testing.F) {
	f.Add(`VAR pdu1 outlet.3.status "off"`)
	for _, s := range nonsense {
		f.Add(s[:min(len(s), 80)])
	}
	f.Fuzz(func(t *testing.T, line string) {
		v, err := value(line, "pdu1", "outlet.3.status")
		if err != nil {
			require.Empty(t, v)
			return
		}
		rest, ok := strings.CutPrefix(line, "VAR pdu1 outlet.3.status ")
		if !ok { // names in quotes are the same names
			require.Contains(t, line, `"`)
			return
		}
		require.Contains(t, []string{strings.ReplaceAll(v, "#", `\#`), quote(v)}, strings.ReplaceAll(strings.ReplaceAll(rest, `\#`, "#"), "#", `\#`), "no other text has this value")
	})
}

// FuzzQuote: what is quoted is read back as one word, the same.
func FuzzQuote(f *testing.F) {
	f.Add(simPassword)
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		words, err := split("PASSWORD " + quote(text))
		require.NoError(t, err)
		require.Equal(t, []string{"PASSWORD", text}, words)
	})
}
