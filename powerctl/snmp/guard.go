package snmp

import (
	"fmt"
	"slices"
)

// family is what is known of a command column, beside any profile: the only
// values that may ever be written to it. All others reboot, delay or queue.
type family struct {
	name   string
	column string // the OID before the outlet's index
	on     []int
	off    []int
	cancel []int
}

// states is what is known of a state column.
type states struct {
	column  string
	on, off int
}

// Enterprise numbers: 318 APC (PowerNet-MIB), 13742 Raritan (PDU-MIB, PDU2-MIB),
// 1718 Server Technology (Sentry3-MIB, Sentry4-MIB), 534 Eaton (EATON-EPDU-MIB),
// 3808 CyberPower (CPS-MIB), 21239 Geist and Vertiv (GEIST-V5-MIB); POWER-ETHERNET-MIB
// is RFC 3621. It repeats what the profiles say on purpose: a slip in a profile,
// ours or a user's, must not become a reboot in place of an off.
func families() []family {
	const e = ".1.3.6.1.4.1."
	return []family{
		{"APC MasterSwitch", e + "318.1.1.4.4.2.1.3", []int{1}, []int{2}, nil},
		{"APC MasterSwitch Plus", e + "318.1.1.6.5.1.1.5", []int{1}, []int{3}, nil},
		{"APC rPDU", e + "318.1.1.12.3.3.1.1.4", []int{1}, []int{2}, []int{7}},
		{"APC rPDU2", e + "318.1.1.26.9.2.4.1.5", []int{1}, []int{2}, []int{8}},
		{"Raritan PX2", e + "13742.6.4.1.2.1.2", []int{1}, []int{0}, nil},
		{"Raritan PX1", e + "13742.4.1.2.2.1.3", []int{1}, []int{0}, nil},
		{"Sentry3", e + "1718.3.2.3.1.11", []int{1}, []int{2}, nil},
		{"Sentry4", e + "1718.4.1.8.5.1.2", []int{1}, []int{2}, nil},
		{"Eaton ePDU off", e + "534.6.6.7.6.6.1.3", nil, []int{0}, []int{-1}},
		{"Eaton ePDU on", e + "534.6.6.7.6.6.1.4", []int{0}, nil, []int{-1}},
		{"Eaton ePDU reboot", e + "534.6.6.7.6.6.1.5", nil, nil, nil},
		{"CyberPower ePDU", e + "3808.1.1.3.3.3.1.1.4", []int{1}, []int{2}, []int{7}},
		{"CyberPower ePDU2", e + "3808.1.1.6.6.1.5.1.5", []int{1}, []int{2}, []int{7}},
		{"Geist V5", e + "21239.5.2.3.5.1.6", []int{2}, []int{4}, []int{1}},
		{"RFC 3621", ".1.3.6.1.2.1.105.1.1.1.3", []int{1}, []int{2}, nil},
	}
}

func knownStates() []states {
	const e = ".1.3.6.1.4.1."
	return []states{
		{e + "318.1.1.4.4.2.1.3", 1, 2},
		{e + "318.1.1.6.7.1.1.5", 1, 2},
		{e + "318.1.1.12.3.5.1.1.4", 1, 2},
		{e + "318.1.1.26.9.2.3.1.5", 2, 1}, // the other way round than its command
		{e + "13742.6.4.1.2.1.3", 7, 8},
		{e + "13742.4.1.2.2.1.3", 1, 0},
		{e + "1718.3.2.3.1.5", 1, 0},
		{e + "1718.4.1.8.3.1.1", 1, 2},
		{e + "534.6.6.7.6.6.1.2", 1, 0},
		{e + "3808.1.1.3.3.5.1.1.4", 1, 2},
		{e + "3808.1.1.6.6.1.4.1.5", 1, 2},
		{e + "21239.5.2.3.5.1.4", 1, 2},
		{".1.3.6.1.2.1.105.1.1.1.6", 3, 1},
	}
}

// guardCommands refuses every value that a known column is not known to take
// for that purpose.
func guardCommands(s *section, p *Profile) {
	check := func(key string, c command, allowed func(family) []int) {
		for _, f := range families() {
			if c.oid.mayBe(f.column) && !slices.Contains(allowed(f), c.value) {
				s.Problem(key, "%d to %s is not the %s of %s, want %s", c.value, c.oid, key, f.name, oneOf(allowed(f)))
			}
		}
	}
	check("on", p.on, func(f family) []int { return f.on })
	check("off", p.off, func(f family) []int { return f.off })
	for _, c := range p.cancel {
		check("cancel", c, func(f family) []int { return f.cancel })
	}
}

// guardColumn refuses a state column whose on and off are known to be others.
func guardColumn(s *section, c column) {
	if c.what != "state" {
		return
	}
	for _, k := range knownStates() {
		if !c.oid.mayBe(k.column) {
			continue
		}
		if c.values[k.on] != on || c.values[k.off] != off {
			s.Problem("values", "%s is on with %d and off with %d", c.oid, k.on, k.off)
		}
	}
}

func oneOf(list []int) string {
	if len(list) == 0 {
		return "none at all"
	}
	return fmt.Sprint(list)
}
