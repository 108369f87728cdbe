package httprelay

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"plugpull/powerctl"
)

func TestWarnings(t *testing.T) {
	t.Parallel()
	job := func(enable bool) map[string]any { return map[string]any{"id": 1, "enable": enable} }
	script := func(running bool) map[string]any { return map[string]any{"id": 1, "running": running} }
	for profile, cases := range map[string]map[string]struct {
		patch    map[string]any
		text     string // empty for none
		switches bool
	}{
		"shelly-gen1": {
			"a timer":       {map[string]any{"has_timer": true}, "a timer is running", true},
			"auto on":       {map[string]any{"auto_on": 0.5}, "goes on by itself", true},
			"auto off":      {map[string]any{"auto_off": 60}, "goes off by itself", true},
			"a schedule":    {map[string]any{"schedule": true}, "weekly schedule", true},
			"default state": {map[string]any{"default_state": "last"}, "can come on when", false},
			"unread":        {map[string]any{"auto_on": "?"}, "auto_on could not be read", false},
		},
		"shelly-gen2": {
			"a timer":         {map[string]any{"timer_duration": 60}, "a timer is running", true},
			"auto on":         {map[string]any{"auto_on": true}, "goes on by itself", true},
			"auto off":        {map[string]any{"auto_off": true}, "goes off by itself", true},
			"a schedule":      {map[string]any{"jobs": []any{job(false), job(true)}}, "a schedule is enabled", true},
			"no schedule":     {map[string]any{"jobs": []any{job(false), job(false)}}, "", false},
			"unread schedule": {map[string]any{"jobs": []any{job(false), map[string]any{}}}, "schedule could not be read", false},
			"no jobs":         {map[string]any{"jobs": nil}, "schedule could not be read", false},
			"a script":        {map[string]any{"scripts": []any{script(true)}}, "a script is running", true},
			"initial state":   {map[string]any{"initial_state": "restore_last"}, "can come on when", false},
		},
		"tasmota": {
			"PulseTime":    {map[string]any{"PulseTime": 100}, "switches back by itself", true},
			"timers":       {map[string]any{"Timers": "ON"}, "timers are enabled", true},
			"a rule":       {map[string]any{"Rule2": "ON"}, "a rule is enabled", true},
			"PowerOnState": {map[string]any{"PowerOnState": 3}, "can come on when", false},
			"unread":       {map[string]any{"PulseTime": "OFF"}, "PulseTime could not be read", false},
		},
		"tasmota-single":  {"PulseTime": {map[string]any{"PulseTime": 1}, "switches back by itself", true}},
		"netio":           {"nothing": {nil, "", false}},
		"digital-loggers": {"locked": {map[string]any{"locked": true}, "the outlet is locked", false}},
		"gude": {
			"a batch":    {map[string]any{"batch": 1}, "a batch is running", true},
			"a watchdog": {map[string]any{"wdog": 1}, "a watchdog is enabled", true},
		},
	} {
		for _, name := range slices.Sorted(maps.Keys(cases)) {
			c := cases[name]
			t.Run(profile+"/"+name, func(t *testing.T) {
				s := start(t, named(profile), nil)
				o := s.driver(t, nil)
				usual, err := o.Warnings(t.Context())
				require.NoError(t, err)
				require.Contains(t, usual[0].Text, "plain HTTP")
				require.Equal(t, s.auth != Digest, strings.Contains(usual[0].Text, "password"))
				for _, w := range usual {
					require.False(t, w.Switches, w.Text)
				}
				require.Len(t, usual, 1+len(o.p.Notes), "the settings are safe: %v", usual)
				s.change(func(s *sim) { maps.Copy(s.patch, c.patch) })
				got, err := o.Warnings(t.Context())
				require.NoError(t, err)
				got = slices.DeleteFunc(got, func(w powerctl.Warning) bool { return slices.Contains(usual, w) })
				if c.text == "" {
					require.Empty(t, got)
					return
				}
				require.Len(t, got, 1)
				require.Contains(t, got[0].Text, c.text)
				require.Equal(t, c.switches, got[0].Switches)
				require.Empty(t, s.device.Commands())
				require.Zero(t, s.orders)
			})
		}
	}
}

// TestWarningsOfOldFirmware: what a device does not know is a warning, and the rest is read.
func TestWarningsOfOldFirmware(t *testing.T) {
	s := start(t, named("shelly-gen2"), nil)
	handle := s.handle
	s.handle = func(s *sim, r *http.Request, body string) reaction {
		if r.URL.Path == "/rpc/Script.List" {
			return reaction{}
		}
		return handle(s, r, body)
	}
	s.patch["auto_on"] = true
	got, err := s.driver(t, nil).Warnings(t.Context())
	require.NoError(t, err)
	var texts []string
	for _, w := range got {
		texts = append(texts, w.Text)
	}
	all := strings.Join(texts, "\n")
	require.Contains(t, all, "script could not be read: HTTP status 404")
	require.Contains(t, all, "goes on by itself")
}
