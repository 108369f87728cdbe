package quarch

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/serialport"
	"plugpull/powerctl"
	"plugpull/powerctl/powertest"
)

func TestNewReportsEverything(t *testing.T) {
	_, err := New(Config{Module: 29, Signals: []string{"12 V", "A", "a"}, Class: "rack", Pin: Pin{Serial: "PULLED"}})
	for _, text := range []string{"name is missing", "timeout is missing", "exactly one of", "module 29", `signal "12 V"`, `"a" is named twice`, `class "rack"`, "like QTL1743"} {
		require.ErrorContains(t, err, text)
	}
	for name, change := range map[string]func(*Config){
		"two ways":         func(c *Config) { c.Port = "/dev/ttyUSB0" },
		"three ways":       func(c *Config) { c.Port, c.URL = "/dev/ttyUSB0", "http://a" },
		"address with way": func(c *Config) { c.Address = "tcp://a" },
		"no host":          func(c *Config) { c.Address = ":9760" },
		"https":            func(c *Config) { c.Address, c.URL = "", "https://a" },
		"path":             func(c *Config) { c.Address, c.URL = "", "http://a/run" },
		"user":             func(c *Config) { c.Address, c.URL = "", "http://a:b@c" },
		"query":            func(c *Config) { c.Address, c.URL = "", "http://a?b" },
		"negative module":  func(c *Config) { c.Module = -1 },
		"line end":         func(c *Config) { c.Signals = []string{"12V\r\nrun:power up"} },
	} {
		c := Config{Name: "a", Address: "module", Timeout: time.Second}
		_, err := New(c)
		require.NoError(t, err)
		change(&c)
		_, err = New(c)
		require.Error(t, err, name)
	}
}

func TestPlan(t *testing.T) {
	c := Config{Name: "a", Timeout: time.Second, Module: 3, Signals: []string{rail}}
	for name, p := range map[string]struct {
		change func(*Config)
		on     bool
		want   []string
	}{
		"tcp": {func(c *Config) { c.Address, c.Module = "10.0.0.1", 0 }, false,
			[]string{"tcp 10.0.0.1:9760: *serial?", "tcp 10.0.0.1:9760: signal:12V_POWER:source?", "tcp 10.0.0.1:9760: run:power down"}},
		"rest":   {func(c *Config) { c.URL, c.Signals = "http://10.0.0.1:8080/", nil }, true, []string{"GET http://10.0.0.1:8080/*serial?%20<3>", "GET http://10.0.0.1:8080/run:power%20up%20<3>"}},
		"serial": {func(c *Config) { c.Port, c.Signals = "/dev/ttyS1", nil }, true, []string{"/dev/ttyS1: *serial? <3>", "/dev/ttyS1: run:power up <3>"}},
		"v6":     {func(c *Config) { c.Address, c.Module, c.Signals = "[::1]:9", 0, nil }, true, []string{"tcp [::1]:9: *serial?", "tcp [::1]:9: run:power up"}},
	} {
		c := c
		p.change(&c)
		o, err := New(c)
		require.NoError(t, err, name)
		require.Equal(t, p.want, o.Plan(p.on), name)
	}
}

// What is planned is what is sent.
func TestSentAsPlanned(t *testing.T) {
	for way := range ways {
		m := newModule()
		m.array = 12
		o := m.outlet(t, way, nil)
		_, err := o.Off(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"*serial? <12>", "signal:12V_POWER:source? <12>", "run:power down <12>"}, m.seen(), way)
	}
}

func TestIdentify(t *testing.T) {
	m := newModule()
	o := m.outlet(t, "tcp", nil)
	id, err := o.Identify(t.Context())
	require.NoError(t, err)
	require.Equal(t, powerctl.Identity{Driver: "quarch", Name: "drive 3", Device: "serial QTL1743-01-001 name Drive Module part QTL1743-01"}, id)
	pins, err := o.Pins(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]string{"serial": simSerial}, pins)
	m.change(func(m *module) { delete(m.settings, "*idn?") })
	id, err = o.Identify(t.Context())
	require.NoError(t, err)
	require.Equal(t, "serial "+simSerial, id.Device)
	require.Equal(t, powerctl.Capabilities{ReadBack: true, Class: powerctl.Drive, Tried: powerctl.TriedSimulator}, o.Capabilities())
}

func TestAnotherModule(t *testing.T) {
	t.Parallel()
	for way := range ways {
		for name, c := range map[string]struct {
			pin, answers string
			first        bool // it answers from the beginning
		}{
			"pinned":                     {"QTL1743-01-001", "1743-01-002", true},
			"pinned, and no serial":      {"QTL1743-01-001", "PULLED", true},
			"not the one it first spoke": {"", "QTL1743-01-002", false},
		} {
			t.Run(way+"/"+name, func(t *testing.T) {
				m := newModule()
				o := m.outlet(t, way, func(conf *Config) { conf.Pin.Serial = c.pin })
				if !c.first {
					_, err := o.State(t.Context())
					require.NoError(t, err)
				}
				m.change(func(m *module) { m.serial = c.answers })
				m.device.Force(powerctl.Off)
				res, err := o.Off(t.Context())
				require.ErrorIs(t, err, powerctl.ErrNotSent)
				require.Zero(t, res)
				if isSerial(c.answers) {
					var ie *powerctl.IdentityError
					require.ErrorAs(t, err, &ie)
					require.Equal(t, powerctl.IdentityError{What: "serial", Want: simSerial, Got: c.answers}, *ie)
				}
				res, err = o.State(t.Context())
				require.Error(t, err)
				require.Zero(t, res)
				require.Empty(t, m.device.Commands())
			})
		}
	}
}

// A rail that run:power does not switch makes PULLED a lie.
func TestSourcesOfTheSignals(t *testing.T) {
	for source, want := range map[string]struct {
		whenPulled, whenPlugged powerctl.State
		commands                bool
	}{
		"1": {powerctl.Off, powerctl.On, true}, "7": {powerctl.Off, powerctl.On, true},
		"8": {powerctl.Fault, powerctl.On, false}, "0": {powerctl.Off, powerctl.Fault, false},
		"9": {}, "": {}, "3 8": {}, "3\r\n8": {}, "ON": {}, "FAIL: 0x17": {}, "03": {}, "-1": {},
	} {
		t.Run(source, func(t *testing.T) {
			m := newModule()
			m.settings["signal:"+rail+":source?"] = source
			o := m.outlet(t, "tcp", nil)
			for contacts, expected := range map[powerctl.State]powerctl.State{powerctl.Off: want.whenPulled, powerctl.On: want.whenPlugged} {
				m.device.Force(contacts)
				res, err := o.State(t.Context())
				require.Equal(t, expected == powerctl.Unknown, err != nil, "%v", err)
				require.Equal(t, expected, res.State)
				require.Equal(t, expected == contacts, res.Observed != 0)
			}
			_, err := o.Off(t.Context())
			if want.commands {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, powerctl.ErrNotSent)
			require.Empty(t, m.device.Commands())
			var se *SourceError
			require.Equal(t, source == "0" || source == "8", errors.As(err, &se))
		})
	}
}

// Frames split over packets, several frames, and everything a byte at a time.
func TestAnswersInPieces(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		way   string
		chunk int
	}{"tcp": {"tcp", 0}, "tcp, frames of 1": {"tcp", 1}, "tcp, frames of 2": {"tcp", 2}, "tcp, frames of 7": {"tcp", 7}, "rest": {"rest", 0}, "serial": {"serial", 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newModule()
			m.pieces, m.chunk = true, c.chunk
			m.settings["*idn?"] = "Name: a\r\nPart#: b"
			o := m.outlet(t, c.way, func(c *Config) { c.Signals = nil })
			_, err := o.Off(t.Context())
			require.NoError(t, err)
			res, err := o.State(t.Context())
			require.NoError(t, err)
			require.True(t, res.IsOff())
			id, err := o.Identify(t.Context())
			require.NoError(t, err)
			require.Equal(t, "serial "+simSerial+" name a part b", id.Device)
		})
	}
}

// What comes is no whole answer, and then nothing: the deadline decides.
func TestSilence(t *testing.T) {
	for way, starts := range map[string][]string{
		"tcp":    {"", "\x09", "\x09\x00", "\x09\x00PULLED\r\n", "\x08\x00PULLED\r\n", "\x06\x00PULLED", "\x09\x00PULLED\r\n>"[:10]},
		"serial": {"", "run:p", "run:power?", "run:power?\r\n", "run:power?\r\nPULLED\r\n", "run:power?\r\nPULLED>", "run:power?\r\nPULLED"},
	} {
		for _, start := range starts {
			t.Run(way+"/"+start, func(t *testing.T) {
				t.Parallel()
				m := newModule()
				m.device.Force(powerctl.Off)
				m.rawly = func(command, _ string) ([]byte, bool) { return []byte(start), command == "run:power?" }
				o := m.outlet(t, way, nil)
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				res, err := o.State(ctx)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, powerctl.Unknown, res.State)
				require.Zero(t, res.Observed)
			})
		}
	}
}

// The answer to the conversation before comes in this one. The contacts are on.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	late := map[string]string{"tcp": "\x09\x00PULLED\r\n>", "serial": "run:power?\r\nPULLED\r\n>"}
	for way, text := range late {
		for _, before := range []string{askSerial, "run:power?"} {
			t.Run(way+" before the answer to "+before, func(t *testing.T) {
				m := newModule()
				once := true
				m.rawly = func(command, answer string) ([]byte, bool) {
					if command != before || !once {
						return nil, false
					}
					once = false
					if way == "tcp" {
						return append([]byte(text), frames(answer, 0)...), true
					}
					return []byte(text + command + "\r\n" + answer + prompt), true
				}
				o := m.outlet(t, way, nil)
				res, err := o.State(t.Context())
				require.ErrorIs(t, err, ErrNotAnAnswer)
				require.Equal(t, powerctl.Unknown, res.State)
				res, err = o.State(t.Context())
				require.NoError(t, err)
				require.True(t, res.IsOn(), "%+v", res)
			})
		}
	}
}

// Each answer is the one to the question before, from the state on. The contacts are on.
func TestAnswersOneBehind(t *testing.T) {
	t.Parallel()
	for _, signals := range [][]string{nil, {rail}} {
		m := newModule()
		var held []byte
		m.rawly = func(command, answer string) ([]byte, bool) {
			if command == "run:power?" {
				held = frames("PULLED", 0)
			}
			out := held
			if held != nil {
				held = frames(answer, 0)
			}
			return out, out != nil
		}
		res, err := m.outlet(t, "tcp", func(c *Config) { c.Signals = signals }).State(t.Context())
		require.ErrorIs(t, err, ErrNotAnAnswer)
		require.Equal(t, powerctl.Unknown, res.State)
		require.Zero(t, res.Observed)
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	t.Parallel()
	for way, all := range map[string][]string{
		"tcp": {"\x00\x00", "\xff\xffPULLED", "\x09\x00PULLED\r\n>\x00", "\x09\x00PULLED\r\n>\x0a\x00PLUGGED\r\n>"},
		"serial": {"PULLED\r\n>", "run:power? PULLED\r\n>", "RUN:POWER?\r\nPULLED\r\n>", "\r\nrun:power?\r\nPULLED\r\n>",
			"run:power?\r\nPULLED\r\n>\r\nrun:power?\r\nPLUGGED\r\n>", "run:power?\r\n>\r\nPULLED\r\n>"},
		"rest": {"PULLED\r\n>PLUGGED\r\n>", ">PULLED", "PULLED\r\n>\r\n>", strings.Repeat("PULLED\r\n", maxAnswer)},
	} {
		for _, text := range all {
			m := newModule()
			m.rawly = func(command, _ string) ([]byte, bool) { return []byte(text), command == "run:power?" }
			res, err := m.outlet(t, way, nil).State(t.Context())
			require.NotEqual(t, powerctl.Off, res.State, "%s %q", way, text)
			require.NotEqual(t, powerctl.On, res.State, "%s %q", way, text)
			require.Error(t, err, "%s %q", way, text)
			require.Less(t, len(err.Error()), 2*powerctl.MaxRaw+500)
		}
	}
}

func TestNotReached(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	nobody := l.Addr().String()
	l.Close()
	for name, c := range map[string]Config{"tcp": {Address: nobody}, "rest": {URL: "http://" + nobody}, "serial": {Port: t.TempDir() + "/none"}} {
		c.Name, c.Timeout = "a", time.Minute
		o, err := New(c)
		require.NoError(t, err)
		res, err := o.Off(t.Context())
		require.ErrorIs(t, err, powerctl.ErrNotSent, name)
		require.Zero(t, res)
		var op *powerctl.OpError
		require.ErrorAs(t, err, &op)
	}
}

// The outlets of one array controller on one line wait for each other.
func TestSerialPortIsSharedInTurns(t *testing.T) {
	t.Parallel()
	m := newModule()
	o := m.outlet(t, "serial", nil)
	var all sync.WaitGroup
	for range 3 {
		other := &Outlet{c: o.c, open: o.open}
		all.Go(func() {
			for range 5 {
				res, err := other.State(t.Context())
				assert.NoError(t, err)
				assert.True(t, res.IsOn())
			}
		})
	}
	all.Wait()
	f, err := serialport.Open(o.c.Port, baud)
	require.NoError(t, err)
	defer f.Close()
	ctx, done := powertest.CancelWhen(t.Context(), func() bool { return true })
	defer done()
	_, err = o.Off(ctx)
	require.ErrorIs(t, err, powerctl.ErrNotSent)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
	defer cancel()
	_, err = o.Off(ctx)
	require.ErrorIs(t, err, ErrBusy)
	require.ErrorIs(t, err, powerctl.ErrNotSent)
	require.Empty(t, m.device.Commands())
}

func TestModuleIsLeftAlone(t *testing.T) {
	t.Parallel()
	m := newModule()
	o := m.outlet(t, "tcp", nil)
	d := newDialer(o.c.Address)
	o.open = d.open
	_, err := o.State(t.Context())
	require.NoError(t, err)
	start := d.left
	_, err = o.State(t.Context())
	require.NoError(t, err)
	require.GreaterOrEqual(t, d.left.Sub(start), breather)
}
