package quarch

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"plugpull/powerctl"
	"plugpull/powerctl/powertest"
)

const (
	simSerial = "QTL1743-01-001"
	rail      = "12V_POWER"
)

// failure is a way in which an answer fails. Some need no wire of their own.
type failure string

const (
	refuses  failure = "FAIL"
	hangsUp  failure = "hangs up"
	other    failure = "answers another command"
	empty    failure = "prompt alone"
	twice    failure = "two answers at once"
	halved   failure = "half an answer, then hangs up"
	redirect failure = "redirect"
	page     failure = "404 with the answer"
	short    failure = "shorter than announced"
	noEcho   failure = "no echo"
	badEcho  failure = "echo of another command"
)

// module is a simulated module: a hot-plug module unless words says otherwise.
type module struct {
	device *powertest.Device

	mu       sync.Mutex
	array    int // its number on an array controller; zero: it is on none
	words    map[powerctl.State]string
	serial   string
	settings map[string]string // answers to other commands
	failure  failure
	// rawly, when set, replaces the bytes of the answer on the wire. nil: silence.
	rawly    func(command, answer string) ([]byte, bool)
	chunk    int  // bytes in a frame of TCP; zero is all
	pieces   bool // packets of one byte
	commands []string
}

func newModule() *module {
	m := &module{
		device: powertest.NewDevice(), serial: simSerial, failure: refuses,
		words: map[powerctl.State]string{
			powerctl.On: "PLUGGED", powerctl.Off: "PULLED", powerctl.Unknown: "UNKNOWN", powerctl.Pending: "PLUGGING", powerctl.Fault: "FAULT",
		},
		settings: map[string]string{
			"run:glitch?": "STOP", "signal:" + rail + ":source?": "3", "signal:" + rail + ":glitch:enable?": "ON",
			"glitch:setup 500us 200": "OK", "run:glitch once": "OK",
			"*idn?": "Family: Torridon System\r\nName: Drive Module\r\nPart#: QTL1743-01\r\nProcessor: QTL1743-01,4.000\r\nBootloader: QTL1743-01,1.0\r\nFPGA 1: 1.0",
		},
	}
	for n := 1; n <= lastTimed; n++ {
		s := fmt.Sprintf("source:%d:", n)
		m.settings[s+"delay?"], m.settings[s+"boun:len?"], m.settings[s+"state?"] = "0", "0", "ON"
	}
	return m
}

// change changes what the module is while it runs.
func (m *module) change(f func(*module)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m)
}

func (m *module) seen() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.commands...)
}

// reply is an answer; how it fails is the wire's.
type reply struct {
	text     string
	switches bool // to run:power, which has faults of its own
	silent   bool
	failing  failure
}

// nonsense must never be taken for a state.
var nonsense = []string{
	"pulled", "PULLED ", "  PULLED", "PULLED\r\nPULLED", "PLUGGED\r\nPULLED", "PULLE", "OFFLINE", "OFF OFF", "PULLED>", "PULLED\x00", "0",
	"OK", "OK\r\nOFF", "", ">", "FAIL: 0x16 -OFF", "run:power?", "run:power?\r\nPULLED", "9:PULLED", "<html>OFF</html>", strings.Repeat("OFF\r\n", 200),
	strings.Repeat("O", 2*maxAnswer), simSerial, "Off", "ÖFF",
}

func (m *module) handle(command string) reply {
	m.mu.Lock()
	m.commands = append(m.commands, command)
	suffix := fmt.Sprintf(" <%d>", m.array)
	array := m.array
	m.mu.Unlock()
	if array > 0 {
		if !strings.HasSuffix(command, suffix) {
			return reply{text: "FAIL: 0x23 -Not an addressed command"}
		}
		command = strings.TrimSuffix(command, suffix)
	}
	r := m.answer(command)
	if array > 0 && r.text != "" {
		r.text = fmt.Sprintf("%d:", array) + strings.ReplaceAll(r.text, "\r\n", fmt.Sprintf("\r\n%d:", array))
	}
	return r
}

func (m *module) answer(command string) reply {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch command {
	case askSerial:
		if m.device.Other() {
			return reply{text: "QTL1743-01-002"}
		}
		return reply{text: m.serial}
	case down, up:
		a := m.device.Switch(map[string]powerctl.State{down: powerctl.Off, up: powerctl.On}[command])
		switch {
		case a.Reset:
			return reply{text: "FAIL: 0x33 -Reset", failing: hangsUp}
		case a.Busy:
			return reply{text: "FAIL: 0x32 -Busy"}
		case a.Failed:
			return m.failed("OK")
		}
		return reply{text: "OK", silent: a.Silent, switches: true}
	case "run:power?":
		switch a := m.device.Read(); {
		case a.Failed:
			return m.failed(m.words[powerctl.Off])
		case a.Garbage > 0:
			return reply{text: nonsense[a.Garbage%len(nonsense)]}
		default:
			return reply{text: m.words[a.State], switches: true}
		}
	}
	if text, ok := m.settings[command]; ok {
		return reply{text: text}
	}
	return reply{text: "FAIL: 0x20 -Unrecognised command"}
}

// failed is what would have been good, spoilt.
func (m *module) failed(good string) reply {
	switch m.failure {
	case refuses:
		return reply{text: "FAIL: 0x41 -" + good}
	case other:
		return reply{text: simSerial}
	case empty:
		return reply{}
	}
	return reply{text: good, failing: m.failure}
}

// ways are the three ways in.
var ways = map[string]func(*module, testing.TB) Config{
	"tcp":    func(m *module, t testing.TB) Config { return Config{Address: m.serveTCP(t)} },
	"rest":   func(m *module, t testing.TB) Config { return Config{URL: m.serveREST(t)} },
	"serial": func(m *module, t testing.TB) Config { return Config{Port: m.serveTTY(t)} },
}

// outlet is the driver without the waits that real modules and adapters need.
func (m *module) outlet(t testing.TB, way string, change func(*Config)) *Outlet {
	c := ways[way](m, t)
	c.Name, c.Timeout, c.Module = "drive 3", time.Minute, m.array
	c.Signals, c.Pin.Serial = []string{rail}, "1743-01-001"
	if change != nil {
		change(&c)
	}
	o, err := New(c)
	require.NoError(t, err)
	switch {
	case c.Address != "":
		o.open = (&dialer{address: o.c.Address}).open
	case c.Port != "":
		o.open = serialPort{path: c.Port, quiet: 2 * time.Millisecond}.open
	}
	return o
}
