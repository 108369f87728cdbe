package quarch

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"plugpull/powerctl"
)

func TestWarnings(t *testing.T) {
	t.Parallel()
	source := "signal:" + rail + ":source?"
	for name, c := range map[string]struct {
		set      map[string]string // what differs from a module with nothing to warn of
		signals  bool
		power    bool // a power module
		want     []string
		switches bool
	}{
		"nothing":                {nil, true, false, nil, false},
		"power module":           {nil, false, true, []string{"voltage pattern"}, false},
		"no signals":             {nil, false, false, []string{"no signals are configured"}, false},
		"always on":              {map[string]string{source: "8"}, true, false, []string{"source 8, which run:power does not switch"}, true},
		"always off":             {map[string]string{source: "0"}, true, false, []string{"it is always off"}, true},
		"at once":                {map[string]string{source: "7", "source:3:delay?": "50"}, true, false, nil, false},
		"another's source":       {map[string]string{"source:4:delay?": "50mS"}, true, false, nil, false},
		"delay":                  {map[string]string{"source:3:delay?": "50mS"}, true, false, []string{"switches 50ms after the command"}, false},
		"any source":             {map[string]string{"source:4:boun:len?": "10"}, false, false, []string{"no signals", "source 4 bounces for 10ms"}, true},
		"bounce":                 {map[string]string{"source:3:boun:len?": "10000uS"}, true, false, []string{"bounces for 10ms"}, true},
		"source off":             {map[string]string{"source:3:state?": "OFF"}, true, false, []string{"its signals stay cut"}, false},
		"glitch cycle":           {map[string]string{"run:glitch?": "CYCLE"}, true, false, []string{"glitch engine is CYCLE"}, true},
		"glitch prbs":            {map[string]string{"run:glitch?": "Prbs"}, true, false, []string{"glitch engine is Prbs"}, true},
		"glitch of another word": {map[string]string{"run:glitch?": "READY"}, true, false, []string{`glitch engine is "READY"`}, false},
		"glitch not to be read":  {map[string]string{"run:glitch?": "FAIL: 0x20"}, true, false, []string{"run:glitch? cannot be read"}, false},
		"delay not to be read":   {map[string]string{"source:3:delay?": "soon"}, true, false, []string{"which is no time"}, false},
		"delay on two lines":     {map[string]string{"source:3:delay?": "0\r\n0"}, true, false, []string{"cannot be read"}, false},
	} {
		for way := range ways {
			m := newModule()
			for k, v := range c.set {
				m.settings[k] = v
			}
			if c.power {
				m.words[powerctl.On] = "ON"
			}
			o := m.outlet(t, way, func(conf *Config) {
				if !c.signals {
					conf.Signals = nil
				}
			})
			got, err := o.Warnings(t.Context())
			require.NoError(t, err, name)
			require.Len(t, got, len(c.want), "%s: %v", name, got)
			switches := false
			for i, w := range got {
				require.Contains(t, w.Text, c.want[i], name)
				switches = switches || w.Switches
			}
			require.Equal(t, c.switches, switches, name)
			require.Empty(t, m.device.Commands())
			for _, s := range m.seen() {
				require.True(t, strings.HasSuffix(s, "?"), "%s changes something", s)
			}
		}
	}
}

func TestWarningsOfAModuleThatDoesNotAnswer(t *testing.T) {
	m := newModule()
	m.words[powerctl.On] = "PLUGGING"
	got, err := m.outlet(t, "tcp", nil).Warnings(t.Context())
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Contains(t, got[0].Text, `"PLUGGING"`)
	m.settings["signal:"+rail+":source?"], m.words[powerctl.On] = "none", plugged
	_, err = m.outlet(t, "tcp", nil).Warnings(t.Context())
	require.ErrorIs(t, err, ErrNotAnAnswer)
}

func TestGlitch(t *testing.T) {
	for way := range ways {
		m := newModule()
		m.array = 5
		o := m.outlet(t, way, nil)
		res, err := o.Glitch(t.Context(), 100*time.Millisecond)
		require.NoError(t, err)
		require.NotZero(t, res.Commanded)
		require.GreaterOrEqual(t, res.Acknowledged, res.Commanded)
		require.Equal(t, "PLUGGED; 12V_POWER glitch ON; glitch:setup 500us 200: OK; run:glitch once: OK", res.Raw)
		require.Equal(t, []string{"*serial? <5>", "run:power? <5>", "signal:12V_POWER:glitch:enable? <5>", "glitch:setup 500us 200 <5>", "run:glitch once <5>"}, m.seen())
		require.Equal(t, powerctl.Unknown, res.State)
		require.Zero(t, res.Observed)
		require.False(t, res.IsOff() || res.IsOn())
		require.Empty(t, m.device.Commands())
	}
}

func TestGlitchThatIsNone(t *testing.T) {
	enable := "signal:" + rail + ":glitch:enable?"
	for name, c := range map[string]struct {
		change  func(*module)
		length  time.Duration
		signals bool
		sent    bool // the glitch itself
		is      error
	}{
		"length":          {nil, 3, true, false, ErrLength},
		"no signals":      {nil, 50, false, false, ErrNotGlitched},
		"pulled":          {func(m *module) { m.device.Force(powerctl.Off) }, 50, true, false, ErrNotGlitched},
		"power module":    {func(m *module) { m.words[powerctl.On] = "ON" }, 50, true, false, ErrNotGlitched},
		"not enabled":     {func(m *module) { m.settings[enable] = "OFF" }, 50, true, false, ErrNotGlitched},
		"enable unread":   {func(m *module) { delete(m.settings, enable) }, 50, true, false, nil},
		"another module":  {func(m *module) { m.serial = "QTL1743-01-002" }, 50, true, false, nil},
		"setup refused":   {func(m *module) { delete(m.settings, "glitch:setup 50ns 1") }, 50, true, false, nil},
		"glitch refused":  {func(m *module) { m.settings["run:glitch once"] = "FAIL: 0x22" }, 50, true, true, nil},
		"glitch answered": {func(m *module) { m.settings["run:glitch once"] = "PULLED" }, 50, true, true, ErrNotAnAnswer},
	} {
		m := newModule()
		m.settings["glitch:setup 50ns 1"] = "OK"
		if c.change != nil {
			c.change(m)
		}
		o := m.outlet(t, "tcp", func(conf *Config) {
			if !c.signals {
				conf.Signals = nil
			}
		})
		res, err := o.Glitch(t.Context(), c.length)
		require.Error(t, err, name)
		if c.is != nil {
			require.ErrorIs(t, err, c.is, name)
		}
		require.Equal(t, !c.sent, errors.Is(err, powerctl.ErrNotSent), name)
		require.Equal(t, c.sent, res.Commanded != 0, name)
		require.Zero(t, res.Acknowledged, name)
		require.Equal(t, c.sent, strings.Contains(strings.Join(m.seen(), "\n"), "run:glitch once"), name)
		require.False(t, res.IsOff() || res.IsOn())
	}
}
