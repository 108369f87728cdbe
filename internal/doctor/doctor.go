// Package doctor says which benches can run on a machine, what is missing for the others, and
// the command that mends it.
//
// Looking and judging are apart: Look reads the machine into a Machine, Examine is a pure
// function of one. Looking changes nothing: it opens a device only when its driver is
// loaded already, mounts nothing, and asks no program for more than its version. What cannot be found out is said to be so; it
// counts neither as there nor as missing.
package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// State is what is known of one thing that a bench needs.
type State string

// The states. What would be missing as things are, and may not be for another user or on
// the host of a container, cannot be told.
const (
	OK         State = "ok"
	Missing    State = "missing"
	CannotTell State = "cannot tell"
)

// Check is one thing that a bench needs.
type Check struct {
	What  string `json:"what"`
	State State  `json:"state"`
	Found string `json:"found"`
	Why   string `json:"why"`            // it matters
	Fix   string `json:"fix,omitempty"`  // a command, or advice where no command does it; empty when the state is OK
	Only  string `json:"only,omitempty"` // the only kind of scenario that needs it; empty: all do

	packages []string // of Debian, that the fix installs
}

// Ability says whether a bench can run.
type Ability string

// The abilities.
const (
	CanRun     Ability = "can run"
	CanRunPart Ability = "can run in part" // some kinds of scenarios cannot
	CannotRun  Ability = "cannot run"
	Uncertain  Ability = "cannot tell"
	NotYet     Ability = "not in this version"
)

// Bench is what was found for one bench.
type Bench struct {
	Name    string  `json:"bench"`
	Ability Ability `json:"ability"`
	Text    string  `json:"text"`
	// Runs and Fails are the kinds of scenarios: Runs those for which nothing is missing, which
	// says little while the bench cannot run.
	Runs   []string `json:"runs,omitempty"`
	Fails  []string `json:"fails,omitempty"`
	Checks []Check  `json:"checks,omitempty"`
}

// Able reports whether the bench can run at least a part of its scenarios.
func (b Bench) Able() bool { return b.Ability == CanRun || b.Ability == CanRunPart }

// The benches.
const (
	embedded = "embedded"
	lab      = "lab"
	loop     = "loop"
	vm       = "vm"
)

// Names are the names of the benches, in the order of Examine.
func Names() []string { return []string{embedded, lab, loop, vm} }

// Examine judges a machine, a Bench for each of Names.
func Examine(m *Machine) []Bench {
	return []Bench{
		{Name: embedded, Ability: CanRun, Text: "it needs nothing: SQLite on the simulated drive, in one process"},
		{Name: lab, Ability: CanRun,
			Text: "it needs nothing here but a bench file (plugpull scenarios show sample-bench) and a way to its server and its outlet"},
		judge(loop, loopChecks(m)),
		{Name: vm, Ability: NotYet, Text: "whole machines are not cut yet"},
	}
}

// Select keeps the bench of that name, or all of them when it is empty.
func Select(all []Bench, name string) []Bench {
	return slices.DeleteFunc(slices.Clone(all), func(b Bench) bool { return name != "" && b.Name != name })
}

// AllAble reports whether each bench is Able. Among others one that this version does not have
// does not count; alone it was asked for.
func AllAble(benches []Bench) bool {
	return !slices.ContainsFunc(benches, func(b Bench) bool { return !b.Able() && (len(benches) == 1 || b.Ability != NotYet) })
}

// judge finds what a bench can do from its checks.
func judge(name string, checks []Check) Bench {
	b := Bench{Name: name, Checks: checks}
	whole := worst(checks, "")
	sure := 0
	for _, kind := range kinds(checks) {
		switch worst(checks, kind) {
		case Missing:
			b.Fails = append(b.Fails, kind)
			continue
		case OK:
			if kind != noFlushes {
				sure++
			}
		}
		b.Runs = append(b.Runs, kind)
	}
	all := !slices.ContainsFunc(checks, func(c Check) bool { return c.State != OK })
	filesystem := slices.ContainsFunc(b.Runs, func(kind string) bool { return kind != noFlushes })
	switch {
	case whole == Missing || !filesystem:
		b.Ability, b.Text = CannotRun, "missing: "+in(checks, Missing, !filesystem)
	case whole == CannotTell || sure == 0:
		b.Ability, b.Text = Uncertain, "not known: "+in(checks, CannotTell, sure == 0)
	case all:
		b.Ability, b.Text = CanRun, "everything that it needs is there"
	default:
		b.Ability, b.Text = CanRunPart, part(b, checks)
	}
	return b
}

// part says which kinds of scenarios can run, which cannot, and which perhaps.
func part(b Bench, checks []Check) string {
	var sure, perhaps []string
	for _, kind := range b.Runs {
		switch {
		case worst(checks, kind) != OK:
			perhaps = append(perhaps, kind)
		case kind != noFlushes:
			sure = append(sure, kind)
		}
	}
	text := "scenarios with " + strings.Join(sure, ", ")
	if len(b.Fails) > 0 {
		text += "; none with " + strings.Join(b.Fails, ", ")
	}
	if len(perhaps) > 0 {
		text += "; perhaps with " + strings.Join(perhaps, ", ")
	}
	return text
}

// kinds are the kinds of scenarios that the checks tell apart, in their order.
func kinds(checks []Check) (list []string) {
	for _, c := range checks {
		if c.Only != "" && !slices.Contains(list, c.Only) {
			list = append(list, c.Only)
		}
	}
	return list
}

// worst is the state of all that one kind of scenario needs for itself.
func worst(checks []Check, only string) State {
	state := OK
	for _, c := range checks {
		switch {
		case c.Only != only || c.State == OK:
		case c.State == Missing:
			return Missing
		default:
			state = CannotTell
		}
	}
	return state
}

// in lists the checks in a state that keep the whole bench from running: those of one kind of
// scenario only when every filesystem is concerned.
func in(checks []Check, s State, filesystems bool) string {
	var list []string
	for _, c := range checks {
		if c.State == s && (c.Only == "" || filesystems && c.Only != noFlushes) {
			list = append(list, c.What)
		}
	}
	return strings.Join(list, ", ")
}

// install is the fix that installs packages of Debian.
func (c *Check) install(packages ...string) {
	c.packages = packages
	c.Fix = fmt.Sprintf("apt-get install %s", strings.Join(packages, " "))
}
