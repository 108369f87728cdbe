package httprelay

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"plugpull/powerctl"
)

// embeddedFile returns the text of one of plugpull's profiles.
func embeddedFile(t testing.TB, name string) string {
	b, err := embedded.ReadFile("profiles/" + name + ".yaml")
	require.NoError(t, err)
	return string(b)
}

// TestGuard: each of these is one slip away from a profile of plugpull's, and must not load.
func TestGuard(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, profile, old, new, want string }{
		{"gen1: toggle", "shelly-gen1", "body: turn=off", "body: turn=toggle", `"toggle" is forbidden`},
		{"gen1: timer", "shelly-gen1", "body: turn=off", "body: turn=off&timer=5", `"timer" is forbidden`},
		{"gen1: another parameter", "shelly-gen1", "body: turn=off", "body: turn=off&brightness=5", "not the plain off of Shelly"},
		{"gen1: the wrong way", "shelly-gen1", "body: turn=off", "body: turn=on", "not the plain off of Shelly"},
		{"gen1: twice", "shelly-gen1", "path: /relay/{outlet0}\n  body: turn=off", "path: /relay/{outlet0}?turn=on\n  body: turn=off", "not the plain off of Shelly"},
		{"gen1: escaped", "shelly-gen1", "body: turn=off", "body: turn=off&%74imer=5", `"timer" is forbidden`},
		{"gen1: twice escaped", "shelly-gen1", "body: turn=off", "body: turn=off&%2574imer=5", `"timer" is forbidden`},
		{"gen1: reading that switches", "shelly-gen1", "get: /relay/{outlet0}\n  value: ison", "get: /relay/{outlet0}?turn=off\n  value: ison", "may change something"},
		{"gen2: toggle_after", "shelly-gen2", `"on":false}`, `"on":false,"toggle_after":5}`, `"toggle" is forbidden`},
		{"gen2: toggle_after, spelt otherwise", "shelly-gen2", `"on":false}`, `"on":false,"t\u006fggle_after":5}`, "not the plain off of Shelly"},
		{"gen2: another method", "shelly-gen2", "Switch.Set", "Cover.Open", "not the plain off of Shelly"},
		{"gen2: the wrong way", "shelly-gen2", `"on":false`, `"on":true`, "not the plain off of Shelly"},
		{"gen2: text for a truth value", "shelly-gen2", `"on":false`, `"on":"false"`, "not the plain off of Shelly"},
		{"gen2: key twice", "shelly-gen2", `"on":false`, `"on":true,"on":false`, "not the plain off of Shelly"},
		{"gen2: reading that switches", "shelly-gen2", "get: /rpc/Switch.GetStatus?id={outlet0}\n  value: output", "get: /rpc/Switch.Set?id={outlet0}&on=false\n  value: output", "may change something"},
		{"tasmota: TOGGLE", "tasmota", "%20OFF", "%20TOGGLE", `"toggle" is forbidden`},
		{"tasmota: 2 is toggle", "tasmota", "%20OFF", "%202", "not the plain off of Tasmota"},
		{"tasmota: 3 is blink", "tasmota", "%20OFF", "%203", "not the plain off of Tasmota"},
		{"tasmota: all relays", "tasmota", "cmnd=Power{outlet}%20OFF", "cmnd=Power0%20OFF&x={outlet}", "not the plain off of Tasmota"},
		{"tasmota: Backlog", "tasmota", "cmnd=Power{outlet}%20OFF", "cmnd=Backlog%20Power{outlet}%20OFF", `"backlog" is forbidden`},
		{"tasmota: PulseTime", "tasmota", "cmnd=Power{outlet}%20OFF", "cmnd=PulseTime{outlet}%2010", `"pulse" is forbidden`},
		{"tasmota: another parameter", "tasmota", "%20OFF", "%20OFF&cmnd2=x", "not the plain off of Tasmota"},
		{"tasmota: the wrong way", "tasmota", "%20OFF", "%20ON", "not the plain off of Tasmota"},
		{"tasmota: reading that switches", "tasmota", "get: /cm?cmnd=Status%2011", "get: /cm?cmnd=Power1%20OFF", "may change something"},
		{"tasmota: reading that sets", "tasmota", "get: /cm?cmnd=PowerOnState", "get: /cm?cmnd=PowerOnState%200", "may change something"},
		{"netio: short off", "netio", `"Action":0`, `"Action":2`, "is forbidden"},
		{"netio: short off, spelt otherwise", "netio", `"Action":0`, `"Action": 2`, "not the plain off of NETIO"},
		{"netio: toggle", "netio", `"Action":0`, `"Action":4`, "is forbidden"},
		{"netio: nothing", "netio", `"Action":0`, `"Action":5`, "not the plain off of NETIO"},
		{"netio: the wrong way", "netio", `"Action":0`, `"Action":1`, "not the plain off of NETIO"},
		{"netio: with a delay", "netio", `"Action":0`, `"Action":0,"Delay":5`, `"delay" is forbidden`},
		{"netio: another attribute", "netio", `"Action":0`, `"Action":0,"State":1`, "not the plain off of NETIO"},
		{"netio: two outputs", "netio", `[{"ID":{outlet},"Action":0}]`, `[{"ID":{outlet},"Action":0},{"ID":3,"Action":0}]`, "not the plain off of NETIO"},
		{"loggers: cycle", "digital-loggers", "{outlet0}/state/\n  body: value=false", "{outlet0}/cycle/\n  body: value=false", `"cycle" is forbidden`},
		{"loggers: all", "digital-loggers", "{outlet0}/state/\n  body: value=false", "all;/state/\n  body: value=false", `"all" is forbidden`},
		{"loggers: several", "digital-loggers", "{outlet0}/state/\n  body: value=false", "={outlet0},4/state/\n  body: value=false", "not the plain off of Digital Loggers"},
		{"loggers: the wrong way", "digital-loggers", "value=false", "value=true", "not the plain off of Digital Loggers"},
		{"gude: batch", "gude", "cmd=1&p={outlet}&s=0", "cmd=5&p={outlet}&a1=0&a2=1&s=5", "is forbidden"},
		{"gude: reset", "gude", "cmd=1&p={outlet}&s=0", "cmd=12&p={outlet}", "is forbidden"},
		{"gude: two commands", "gude", "cmd=1&p={outlet}&s=0", "cmd=1&p={outlet}&s=0&cmd=12", "is forbidden"},
		{"gude: the wrong way", "gude", "&s=0", "&s=1", "not the plain off of Gude"},
		{"gude: reading that switches", "gude", "get: /status.json?components=1\n  value: outputs[{outlet0}].state", "get: /status.json?components=1&cmd=1&p=1&s=0\n  value: outputs[{outlet0}].state", "may change something"},
		{"every outlet", "gude", "p={outlet}&s=0", "p=1&s=0", "it would not mean one outlet"},
		{"on and off are one", "acme", `{"power":"off"}`, `{"power":"on"}`, "the same request as on"},
		{"unknown device: toggle", "acme", `{"power":"off"}`, `{"power":"toggle"}`, `"toggle" is forbidden`},
		{"unknown device: its own word", "acme", `{"power":"off"}`, `{"power":"off","wait":1}`, `"wait" is forbidden`},
		{"unknown device: reading", "acme", "get: /api/schedules", "get: /api/reset", `"reset" is forbidden in a reading`},
		{"a reading that is a command", "acme", "method: PUT               # GET, POST or PUT\n  path: /api/outlets/{outlet0}\n  body: '{\"power\":\"off\"}'   # with its content_type; none with GET\n  content_type: application/json\n", "method: GET\n  path: /api/outlets/{outlet0}\n", "is a command"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := ""
			if c.profile == "acme" {
				text = sample(t)
			} else {
				text = embeddedFile(t, c.profile)
			}
			require.Contains(t, text, c.old, "the slip is none")
			_, err := parseProfile("x.yaml", []byte(strings.Replace(text, c.old, c.new, 1)))
			var fe *FileError
			require.ErrorAs(t, err, &fe)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestProfilesAreReadStrictly(t *testing.T) {
	for _, c := range []struct{ name, old, new, want string }{
		{"unknown key", "vendor: Acme", "vendor: Acme\ncycle: true", "unknown key"},
		{"no states", "  off: [open]               # exactly these values\n", "", "state.off: missing"},
		{"one value twice", "on: [closed]", "on: [open]", "has a meaning already"},
		{"a placeholder as state", "off: [open]", `off: ["{outlet}"]`, "without a placeholder"},
		{"a slip in a placeholder", "path: /api/outlets/{outlet0}\n  body: '{\"power\":\"off\"}'", "path: /api/outlets/{outlet0}/{outlets}\n  body: '{\"power\":\"off\"}'", "is no placeholder"},
		{"not a truth value", "safe: [false]", "safe: [off]", `"off" is no boolean`},
		{"not a number", `is: ["{outlet}"]`, "is: [two]", `"two" is no number`},
		{"another host", "get: /api/device", "get: //elsewhere/api/device", "want a path"},
		{"another scheme", "get: /api/device", "get: http://elsewhere/api/device", "want a path"},
		{"up", "get: /api/device", "get: /api/../device", "want a path"},
		{"a space", "get: /api/device", "get: /api/the device", "want a path"},
		{"a bad path in the answer", "value: relay.position", "value: relay..position", "want a JSON path"},
		{"everything as state", "value: relay.position", "value: relays[*].position", "want a path to one value"},
		{"a header of our own", "headers: {Accept: application/json}", "headers: {Authorization: x}", "not a header"},
		{"a redirect as success", "statuses: [200, 202]", "statuses: [302]", "want a status of success"},
		{"query without auth", "auth: basic ", "query: {user: u, password: p}\nauth: basic ", "only with auth: query"},
		{"a body with GET", "method: PUT", "method: GET", "none with GET"},
		{"no never", "never: [mode=2, wait]", "", "never: missing"},
		{"no source", "  auth: Acme Strip manual, page 12\n", "", "sources.auth: missing"},
		{"a source too many", "  command: Acme", "  cycle: x\n  command: Acme", "unknown key"},
		{"no missing", "    missing: safe           #", "    #", "missing: missing"},
		{"too many outlets", "outlets: 8 ", "outlets: 9999 ", "want a whole number"},
		{"a truth value as serial", "value: serial}", "value: serial, type: boolean}", "want text or number"},
		{"cookies", "headers: {Accept: application/json}", "headers: {cookie: x}", "not a header"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := sample(t)
			require.Contains(t, text, c.old, "the slip is none")
			_, err := parseProfile("x.yaml", []byte(strings.Replace(text, c.old, c.new, 1)))
			var fe *FileError
			require.ErrorAs(t, err, &fe)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// sample is the profile in the documentation.
func sample(t testing.TB) string {
	b, err := os.ReadFile("profiles/README.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(b), "```yaml\n")
	require.True(t, found)
	text, _, found := strings.Cut(rest, "```")
	require.True(t, found)
	return text
}

// acme is the imaginary strip of the documentation.
func acme(s *sim, r *http.Request, body string) reaction {
	render := telling(`{"number":2,"label":"%s","relay":{"position":STATE}}`, simName)
	switch {
	case r.URL.Path == "/api/device":
		return plain(map[string]any{"serial": s.serial()})
	case r.URL.Path == "/api/schedules":
		return plain(map[string]any{"list": s.is("list", []any{})})
	case r.URL.Path == "/api/outlets/1" && r.Method == http.MethodGet:
		return reaction{render: render}
	case r.URL.Path == "/api/outlets/1":
		return reaction{ordered(r.Method+" "+body, `PUT {"power":"off"}`, `PUT {"power":"on"}`), render}
	}
	return reaction{}
}

// TestDocumentedProfile: what the documentation shows loads as a user's own, and works.
func TestDocumentedProfile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "acme.yaml")
	require.NoError(t, os.WriteFile(file, []byte(sample(t)), 0o600))
	p, err := LoadFile(file)
	require.NoError(t, err)
	s := start(t, model{"acme-strip", 2, Basic, "", `"open"`, `"closed"`, acme}, nil)
	o := s.driver(t, func(c *Config) { c.Profiles = append(c.Profiles, p) })
	policy := powerctl.Policy{Deadline: limit, Poll: time.Millisecond}
	_, err = powerctl.SwitchOff(t.Context(), o, policy)
	require.NoError(t, err)
	_, err = powerctl.SwitchOn(t.Context(), o, policy)
	require.NoError(t, err)
	require.True(t, o.Capabilities().Tried.Experimental())
	for word, want := range map[string]powerctl.State{"moving": powerctl.Pending, "welded": powerctl.Fault, "Open": powerctl.Unknown} {
		s.change(func(s *sim) { s.garbage = `{"number":2,"relay":{"position":"` + word + `"},"label":"` + simName + `"}` })
		res, err := o.State(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, res.State)
		require.Zero(t, res.Observed)
		require.Equal(t, "relay.position="+word+" number=2", res.Raw)
	}
	s.change(func(s *sim) { s.garbage, s.patch["list"] = "", []any{map[string]any{"active": true}} })
	warnings, err := o.Warnings(t.Context())
	require.NoError(t, err)
	require.True(t, warnings[1].Switches)

	own := strings.Replace(sample(t), "acme-strip", "netio", 1) // a user's own goes before plugpull's
	mine, err := parseProfile("own.yaml", []byte(own))
	require.NoError(t, err)
	got, err := Named(append(profiles(t), mine), "netio")
	require.NoError(t, err)
	require.Same(t, mine, got)
	_, err = LoadFile(filepath.Join(t.TempDir(), "none.yaml"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestKinds: a value means something in one type alone.
func TestKinds(t *testing.T) {
	for _, c := range []struct {
		kind kind
		off  string
		text string
		want powerctl.State
	}{
		{textKind, "0", `{"v":"0"}`, powerctl.Off}, {textKind, "0", `{"v":0}`, powerctl.Unknown},
		{textKind, "false", `{"v":"false"}`, powerctl.Off}, {textKind, "false", `{"v":false}`, powerctl.Unknown},
		{numberKind, "0", `{"v":0}`, powerctl.Off}, {numberKind, "0", `{"v":"0"}`, powerctl.Unknown}, {numberKind, "0", `{"v":0.0}`, powerctl.Unknown},
		{booleanKind, "false", `{"v":false}`, powerctl.Off}, {booleanKind, "false", `{"v":"false"}`, powerctl.Unknown}, {booleanKind, "false", `{"v":null}`, powerctl.Unknown},
		{textKind, "", `{}`, powerctl.Unknown}, {textKind, "0", `["0"]`, powerctl.Unknown},
	} {
		v, err := parseJSON([]byte(c.text))
		require.NoError(t, err)
		s := stateRule{reading: reading{rule: rule{path: "v", kind: c.kind}}, meaning: map[string]powerctl.State{c.off: powerctl.Off}}
		got, _ := s.read(v, 1)
		require.Equal(t, c.want, got, "%s %s", c.kind, c.text)
	}
	_, err := parseJSON([]byte(strings.Repeat("[", 40) + strings.Repeat("]", 40)))
	require.ErrorContains(t, err, "nested")
}
