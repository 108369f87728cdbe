package snmp

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Plan implements powerctl.Planner. What the device can still decide is named: which profile
// of auto, which row has the outlet's name, whether anything is pending.
func (o *Outlet) Plan(on bool) []string {
	to := fmt.Sprintf("to %s (SNMP v%s", o.address(), o.c.Version)
	lines := o.planContact(to + ")")
	t := o.planned()
	if t == nil {
		return append(lines, "the SNMP profile is chosen on contact, by the sysObjectID: it says how to go on")
	}
	p := t.p
	to += ", profile " + p.Name + ")"
	cond := ""
	if len(p.cancel) > 0 && p.knowsPending() {
		var oids []string
		for _, c := range p.columns() {
			oids = append(oids, t.plain(c.oid)+" ("+c.what+")")
		}
		lines = append(lines, "GET "+strings.Join(oids, ", ")+", and the identity again, "+to)
		cond = ", when a command is pending or may be"
	}
	for _, c := range p.cancel {
		lines = append(lines, t.set(c)+" "+to+": cancel"+cond)
	}
	c := p.off
	if on {
		c = p.on
	}
	return append(lines, t.set(c)+" "+to)
}

// planContact are the requests that make sure which device and outlet this is.
func (o *Outlet) planContact(to string) []string {
	var lines []string
	if o.c.Version == V3 {
		lines = append(lines, "GET of nothing, for the SNMPv3 engine, "+to)
	}
	if t := o.target; t != nil {
		var oids []string
		for _, oid := range t.identity(o.known) {
			oids = append(oids, strings.TrimPrefix(oid, "."))
		}
		return append(lines, "GET "+strings.Join(oids, ", ")+" (identity) "+to)
	}
	lines = append(lines, "GET "+strings.TrimPrefix(sysObjectID, ".")+" (sysObjectID) "+to)
	t := o.planned()
	if t == nil {
		return lines
	}
	if t.x == nil {
		lines = append(lines, fmt.Sprintf("GETNEXT from %s, until the outlet %q is found, %s", strings.TrimPrefix(t.p.name.column(), "."), o.c.Name, to))
	}
	if t.p.serial != "" {
		lines = append(lines, "GET "+t.plain(t.p.serial)+" (serial) "+to)
	}
	return append(lines, "GET "+t.plain(t.p.name)+" (outlet name) "+to)
}

// planned is the target as far as it is known without contact; nil where the profile is not.
func (o *Outlet) planned() *target {
	if o.target != nil {
		return o.target
	}
	p, err := Named(o.c.Profiles, o.c.Profile)
	if err != nil {
		return nil
	}
	t, err := newTarget(p, &o.c)
	if err != nil { // New has checked it
		return nil
	}
	return t
}

// plain is an OID as people write it; letters stand for an index that is not known yet.
func (t *target) plain(oid template) string {
	if t.x != nil {
		oid = template(t.fill(oid))
	}
	return strings.TrimPrefix(string(oid), ".")
}

func (t *target) set(c command) string {
	return fmt.Sprintf("SET %s = INTEGER %d", t.plain(c.oid), c.value)
}

// address has the port in any case.
func (o *Outlet) address() string {
	host, port, err := splitAddress(o.c.Address)
	if err != nil { // New has checked it
		return o.c.Address
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}
