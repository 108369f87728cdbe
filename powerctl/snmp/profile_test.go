package snmp

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gosnmp/gosnmp"
	"github.com/stretchr/testify/require"

	"plugpull/internal/strictyaml"
	"plugpull/powerctl"
)

// good is a profile that the loader accepts; the tests change one line.
const good = `name: mine
vendor: Somebody
models: [X1]
index: S.1.N
class: mains
command:
  kind: enum
  oid: .1.3.6.1.4.1.99999.1.1.3.{S}.1.{N}
  on: 1
  off: 2
  cancel: 9
  never: [3, 4]
state:
  oid: .1.3.6.1.4.1.99999.1.1.4.{S}.1.{N}
  values: {1: on, 2: off, 3: pending, 4: fault}
pending:
  oid: .1.3.6.1.4.1.99999.1.1.5.{S}.1.{N}
  values: {0: clear, 1: pending}
outlet_name: .1.3.6.1.4.1.99999.1.1.2.{S}.1.{N}
serial: .1.3.6.1.4.1.99999.2.1.{S}
tried: nothing
source:
  command: the manual
  state: the manual
  pending: the manual
  outlet_name: the manual
  serial: the manual
`

func TestUsersOwnProfile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.yaml")
	require.NoError(t, os.WriteFile(file, []byte(good), 0o600))
	p, err := LoadFile(file)
	require.NoError(t, err)
	require.Equal(t, "mine", p.Name)
	require.Equal(t, []command{{p.off.oid, 9}}, p.cancel)
	x, ok := parseIndex(p.Index, "2.1.7")
	require.True(t, ok)
	require.Equal(t, ".1.3.6.1.4.1.99999.1.1.3.2.1.7", p.off.oid.fill(x))
	require.Equal(t, "2.1.7", x.format(p.Index))
	_, err = LoadFile(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestProfileIsStrict(t *testing.T) {
	for name, c := range map[string]struct{ old, now, want string }{
		"unknown key":         {"tried: nothing", "tried: nothing\nreboot: 3", "mine:22: reboot: unknown key"},
		"unknown command key": {"  off: 2", "  off: 2\n  cycle: 3", "command.cycle: unknown key"},
		"duplicate key":       {"class: mains", "class: mains\nclass: mains", "class: given twice"},
		"duplicate value":     {"{1: on, 2: off,", "{1: on, 2: off, 2: on,", "state.values.2: given twice"},
		"forbidden value":     {"  off: 2", "  off: 3", "command.never: 3 is forbidden and used"},
		"forbidden cancel":    {"cancel: 9", "cancel: 4", "command.never: 4 is forbidden and used"},
		"on is off":           {"  off: 2", "  off: 1", "command.off: the same as on"},
		"cancel is off":       {"cancel: 9", "cancel: 2", "command.cancel: the same as on or off"},
		"never not said":      {"  never: [3, 4]\n", "", "command.never: missing"},
		"number as text":      {"  off: 2", "  off: 0x2", `command.off: "0x2", want a whole number`},
		"too large":           {"  off: 2", "  off: 4294967298", `want a whole number`},
		"tagged":              {"  off: 2", "  off: !!str 2", "command.off: want a whole number"},
		"alias":               {"vendor: Somebody", "vendor: &v Somebody", "vendor: want a vendor"},
		"two offs":            {"{1: on, 2: off,", "{1: on, 2: off, 0: off,", "1 values are on and 2 are off"},
		"no off":              {"{1: on, 2: off,", "{1: on,", "1 values are on and 0 are off"},
		"state clear":         {"3: pending, 4", "3: clear, 4", `state.values.3: "clear"`},
		"pending says off":    {"{0: clear, 1: pending}", "{0: clear, 1: off}", `pending.values.1: "off"`},
		"never clear":         {"{0: clear, 1: pending}", "{1: pending}", "no value is clear"},
		"all outlets at once": {"1.1.3.{S}.1.{N}", "1.1.3.{S}.1.0", "{N} is missing: it would not mean one outlet"},
		"state of another":    {"1.1.4.{S}.1.{N}", "1.1.4.1.1.{N}", "state.oid: {S} is missing"},
		"letter of no index":  {"2.1.{S}", "2.1.{T}", "serial: {T} is not in the index S.1.N"},
		"no leading dot":      {"serial: .1.3", "serial: 1.3", "serial: "},
		"no source":           {"  state: the manual\n", "", "source.state: missing"},
		"source of nothing":   {"  state: the manual\n", "  state: the manual\n  model: x\n", "source.model: unknown key"},
		"index":               {"index: S.1.N", "index: S.S", `index: "S.S"`},
		"class":               {"class: mains", "class: power", `class: "power"`},
		"tried":               {"tried: nothing", "tried: hardware", `tried: "hardware"`},
		"two documents":       {"name: mine", "---\nname: mine\n---", "a second document"},
		"delay with a value":  {"kind: enum", "kind: delay", "command.off: 2 is a delay in seconds, want 0"},
		"name auto":           {"name: mine", "name: auto", `name: "auto"`},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, good, c.old)
			_, err := parseProfile("mine", []byte(strings.Replace(good, c.old, c.now, 1)))
			var file *FileError
			require.ErrorAs(t, err, &file)
			require.ErrorContains(t, err, c.want)
		})
	}
	for _, text := range []string{"", "\n", "a: [", "- x", "null", strings.Repeat("#", maxFile+1)} {
		_, err := parseProfile("mine", []byte(text))
		require.Error(t, err)
	}
}

// guarded returns what guard reports for a file without keys.
func guarded(guard func(*section)) error {
	return strictyaml.Decode("mine", []byte("{}"), maxFile, guard)
}

// A user's profile for a known device cannot hold anything but its immediate on and off.
func TestGuardRefusesEveryOtherValueOfAKnownColumn(t *testing.T) {
	for _, f := range families() {
		for _, purpose := range []string{"on", "off", "cancel"} {
			allowed := map[string][]int{"on": f.on, "off": f.off, "cancel": f.cancel}[purpose]
			for n := -3; n <= 12; n++ {
				c := command{template(f.column + ".{N}"), n}
				p := &Profile{}
				switch purpose {
				case "on":
					p.on = c
				case "off":
					p.off = c
				case "cancel":
					p.cancel = []command{c}
				}
				err := guarded(func(s *section) { guardCommands(s, p) })
				require.Equal(t, slices.Contains(allowed, n), err == nil, "%s %s %d: %v", f.name, purpose, n, err)
			}
		}
	}
	text := strings.ReplaceAll(strings.Replace(good, "  off: 2", "  off: 4", 1), "never: [3, 4]", "never: none")
	_, err := parseProfile("mine", []byte(strings.Replace(text, ".99999.1.1.3.{S}.1.{N}", ".318.1.1.12.3.3.1.1.4.{N}.{S}", 1)))
	require.ErrorContains(t, err, "command.off: 4 to .1.3.6.1.4.1.318.1.1.12.3.3.1.1.4.{N}.{S} is not the off of APC rPDU, want [2]")
}

// Nor can it hide the column behind a letter of the index.
func TestGuardSeesThroughLetters(t *testing.T) {
	text := strings.ReplaceAll(good, "index: S.1.N", "index: S.N")
	text = strings.ReplaceAll(text, "{S}.1.{N}", "{S}.{N}")
	_, err := parseProfile("mine", []byte(text))
	require.NoError(t, err)
	_, err = parseProfile("mine", []byte(strings.Replace(text, ".99999.1.1.3.{S}.{N}", ".534.6.6.7.6.6.1.{S}.0.{N}", 1)))
	require.ErrorContains(t, err, "is not the off of Eaton ePDU reboot, want none at all")
	_, err = parseProfile("mine", []byte(strings.Replace(text, ".99999.1.1.4.{S}.{N}", ".318.1.1.26.9.2.3.1.{S}.{N}", 1)))
	require.ErrorContains(t, err, "is on with 2 and off with 1")
}

func TestGuardRefusesASwappedState(t *testing.T) {
	for _, k := range knownStates() {
		for _, swapped := range []bool{false, true} {
			c := column{what: "state", oid: template(k.column + ".{N}"), values: map[int]reading{k.on: on, k.off: off}}
			if swapped {
				c.values = map[int]reading{k.on: off, k.off: on}
			}
			err := guarded(func(s *section) { guardColumn(s, c) })
			require.Equal(t, swapped, err != nil, k.column)
		}
	}
}

func TestEveryProfileIsGuarded(t *testing.T) {
	for _, p := range profiles(t) {
		for _, c := range []command{p.on, p.off} {
			require.True(t, slices.ContainsFunc(families(), func(f family) bool { return c.oid.mayBe(f.column) }), p.Name)
		}
		require.True(t, slices.ContainsFunc(knownStates(), func(k states) bool { return p.state.oid.mayBe(k.column) }), p.Name)
		require.Equal(t, powerctl.Mains, p.Class)
	}
}

// states of the profiles, value by value, from the MIBs.
func TestEveryValueOfEveryState(t *testing.T) {
	want := map[string]string{
		"apc-masterswitch": "1 on, 2 off, rest unknown", "apc-msp": "1 on, 2 off, rest unknown",
		"apc-rpdu": "1 on, 2 off, rest unknown", "apc-rpdu2": "1 off, 2 on, rest unknown",
		"raritan-px1": "-1 fault, 0 off, 1 on, 2 pending, rest unknown", "raritan-px2": "7 on, 8 off, rest unknown",
		"servertech-sentry3": "0 off, 1 on, 2 pending, 3 pending, 4 fault, 5 fault, 8 fault, 9 fault, rest unknown",
		"servertech-sentry4": "1 on, 2 off, rest unknown", "eaton-epdu": "0 off, 1 on, 2 pending, 3 pending, rest unknown",
		"cyberpower-epdu": "1 on, 2 off, rest unknown", "cyberpower-epdu2": "1 on, 2 off, rest unknown",
		"geist-v5":    "1 on, 2 off, 3 pending, 4 pending, 5 pending, 6 pending, rest unknown",
		"poe-rfc3621": "1 off, 2 pending, 3 on, 4 fault, 5 pending, 6 fault, rest unknown",
	}
	for _, p := range profiles(t) {
		var parts []string
		clear := make([]value, len(p.extra)+1)
		for i, c := range p.extra {
			for n, r := range c.values {
				if r == noObjection {
					clear[i+1] = value{kind: gosnmp.Integer, v: n}
				}
			}
		}
		for n := -300; n <= 300; n++ {
			clear[0] = value{kind: gosnmp.Integer, v: n}
			if s := combine(p.columns(), clear); s != powerctl.Unknown {
				parts = append(parts, clear[0].String()[len("Integer "):]+" "+s.String())
			}
		}
		require.Equal(t, want[p.Name], strings.Join(append(parts, "rest unknown"), ", "), p.Name)
	}
}

func TestAnyObjectionWins(t *testing.T) {
	state := column{what: "state", values: map[int]reading{1: on, 2: off, 4: fault}}
	extra := column{what: "pending", values: map[int]reading{1: pending, 2: noObjection, 5: fault}}
	integer := func(n int) value { return value{kind: gosnmp.Integer, v: n} }
	for name, c := range map[string]struct {
		state, extra value
		want         powerctl.State
	}{
		"off":                {integer(2), integer(2), powerctl.Off},
		"on":                 {integer(1), integer(2), powerctl.On},
		"off and pending":    {integer(2), integer(1), powerctl.Pending},
		"off and failed":     {integer(2), integer(5), powerctl.Fault},
		"off and who knows":  {integer(2), integer(3), powerctl.Unknown},
		"off and absent":     {integer(2), value{absent: "noSuchName"}, powerctl.Unknown},
		"fault and pending":  {integer(4), integer(1), powerctl.Fault},
		"unknown and a word": {value{kind: gosnmp.OctetString, v: []byte("off")}, integer(2), powerctl.Unknown},
	} {
		require.Equal(t, c.want, combine([]column{state, extra}, []value{c.state, c.extra}), name)
	}
	wrong := column{what: "pending", values: map[int]reading{2: off}}
	require.Equal(t, powerctl.Unknown, combine([]column{state, wrong}, []value{integer(2), integer(2)}), "only the state says off")
	require.Equal(t, powerctl.Unknown, combine([]column{state, extra}, []value{integer(2)}))
	require.Equal(t, powerctl.Unknown, combine(nil, nil))
}
