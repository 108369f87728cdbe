package snmp

import (
	"regexp"
	"slices"
	"strings"

	"plugpull/powerctl"
)

// A profile, key by key:
//
//	name            lower case, digits and -
//	vendor, models  for people
//	sys_object_id   prefixes that "auto" goes by; may be missing
//	index           the form of an outlet's index: N, S.N, S.1.N, T.F.N …
//	class           mains, drive or chassis
//	command         kind: enum (a value is an order) or delay (a value is a number of seconds)
//	                oid, or on_oid and off_oid; on, off, cancel (optional);
//	                never: with enum, every other value that the device acts on, or "none"
//	state           oid; values: number to on, off, pending, fault or unknown
//	pending, fault  optional: oid; values: number to clear, pending, fault or unknown
//	outlet_name, serial, model
//	                oid; the last two are optional
//	restore         optional: settings that can bring power back; each has what, oid, stays
//	tried           peer, simulator or nothing
//	source          for each of command, state, pending, fault, outlet_name, serial, model and
//	                restore that is given, the document it comes from
type reader struct {
	top *section
	p   *Profile
}

func parseProfile(file string, data []byte) (*Profile, error) {
	d := &decoder{err: FileError{File: file}}
	r := &reader{p: &Profile{}}
	if root := d.parse(data); root != nil {
		r.top = d.section(root, "")
		r.read()
		r.top.done()
	}
	if err := d.result(); err != nil {
		return nil, err
	}
	return r.p, nil
}

var (
	nameForm  = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	indexForm = regexp.MustCompile(`^([A-Z]|[0-9]+)(\.([A-Z]|[0-9]+))*$`)
)

func (r *reader) read() {
	s, p := r.top, r.p
	p.Name = s.text("name", "a name", true)
	if p.Name != "" && (!nameForm.MatchString(p.Name) || p.Name == "auto") {
		s.problem("name", "%q, want lower case letters, digits and single -, not auto", p.Name)
	}
	p.Vendor = s.text("vendor", "a vendor", true)
	p.Models = s.list("models", "a list of models")
	for _, oid := range s.list("sys_object_id", "a list of OIDs") {
		if t := template(oid); !t.valid() || len(t.letters()) > 0 {
			s.problem("sys_object_id", "%q, want an OID with a leading dot", oid)
		}
		p.SysObjectID = append(p.SysObjectID, oid)
	}
	p.Index = s.text("index", "a form such as N or S.1.N", true)
	if p.Index != "" && !validIndex(p.Index) {
		s.problem("index", "%q, want a form such as N or S.1.N", p.Index)
	}
	class := powerctl.Class(s.text("class", "a class", true))
	if class != "" && !slices.Contains(powerctl.Classes(), class) {
		s.problem("class", "%q, want one of %v", class, powerctl.Classes())
	}
	p.Class = class
	p.Tried = s.text("tried", "peer, simulator or nothing", true)
	if p.Tried != "" && !slices.Contains([]string{"peer", "simulator", "nothing"}, p.Tried) {
		s.problem("tried", "%q, want peer, simulator or nothing", p.Tried)
	}
	r.command()
	r.columns()
	p.name = r.oid(s, "outlet_name", true, true)
	p.serial = r.oid(s, "serial", false, false)
	p.model = r.oid(s, "model", false, false)
	r.restore()
	r.sources()
}

// validIndex wants each letter once, and one at all.
func validIndex(form string) bool {
	if !indexForm.MatchString(form) {
		return false
	}
	var seen []string
	for _, part := range strings.Split(form, ".") {
		if !isNumber(part) {
			if part[0] < 'A' || slices.Contains(seen, part) {
				return false
			}
			seen = append(seen, part)
		}
	}
	return len(seen) > 0
}

// oid reads a template. perOutlet: it must hold every letter of the index, so
// that it cannot mean another outlet, or all of them.
func (r *reader) oid(s *section, key string, required, perOutlet bool) template {
	t := template(s.text(key, "an OID", required))
	if t == "" {
		return ""
	}
	if !t.valid() {
		s.problem(key, "%q, want an OID such as .1.3.6.1.4.1.318.1.1.12.3.5.1.1.2.{N}", string(t))
		return ""
	}
	parts := strings.Split(r.p.Index, ".")
	for _, l := range t.letters() {
		if !slices.Contains(parts, l) {
			s.problem(key, "{%s} is not in the index %s", l, r.p.Index)
		}
	}
	for _, l := range parts {
		if perOutlet && !isNumber(l) && !slices.Contains(t.letters(), l) {
			s.problem(key, "{%s} is missing: it would not mean one outlet", l)
		}
	}
	return t
}

func (r *reader) command() {
	s := r.top.sub("command")
	if s == nil {
		r.top.problem("command", "missing, want a section")
		return
	}
	p := r.p
	kind := s.text("kind", "enum or delay", true)
	if s.has("oid") {
		p.on.oid = r.oid(s, "oid", true, true)
		p.off.oid = p.on.oid
	} else {
		p.on.oid, p.off.oid = r.oid(s, "on_oid", true, true), r.oid(s, "off_oid", true, true)
	}
	s.known = append(s.known, "oid")
	p.on.value, _ = s.integer("on", true)
	p.off.value, _ = s.integer("off", true)
	if v, ok := s.integer("cancel", false); ok {
		p.cancel = []command{{p.off.oid, v}}
		if p.on.oid != p.off.oid {
			p.cancel = append(p.cancel, command{p.on.oid, v})
		}
	}
	switch kind {
	case "":
	case "enum":
		r.never(s)
	case "delay":
		r.delay(s)
	default:
		s.problem("kind", "%q, want enum or delay", kind)
	}
	s.done()
	guardCommands(s, p)
}

// never refuses an order that the same file calls forbidden. The list must be
// there: whoever writes a profile has to look at what the other values do.
func (r *reader) never(s *section) {
	var never []int
	if n := s.values["never"]; n != nil && n.Value == "none" {
		s.text("never", "none", false)
	} else {
		never = s.integers("never")
	}
	if !s.has("never") {
		s.problem("never", "missing, want every other value that the device acts on, or none")
	}
	p := r.p
	if p.on == p.off {
		s.problem("off", "the same as on")
	}
	for _, c := range append([]command{p.on, p.off}, p.cancel...) {
		if slices.Contains(never, c.value) {
			s.problem("never", "%d is forbidden and used", c.value)
		}
	}
	for _, c := range p.cancel {
		if c == p.on || c == p.off {
			s.problem("cancel", "the same as on or off")
		}
	}
}

// delay: a value is a number of seconds, so that only 0 is now.
func (r *reader) delay(s *section) {
	p := r.p
	if p.on.value != 0 {
		s.problem("on", "%d is a delay in seconds, want 0", p.on.value)
	}
	if p.off.value != 0 {
		s.problem("off", "%d is a delay in seconds, want 0", p.off.value)
	}
	if p.on.oid == p.off.oid {
		s.problem("on_oid", "the same as off_oid")
	}
	for _, c := range p.cancel {
		if c.value >= 0 {
			s.problem("cancel", "%d is a delay in seconds, want a negative value", c.value)
		}
	}
}

func (r *reader) columns() {
	if c := r.column("state", []reading{unknown, on, off, pending, fault}); c != nil {
		r.p.state = *c
	} else {
		r.top.problem("state", "missing or wrong, want a section")
	}
	for _, key := range []string{"pending", "fault"} {
		if c := r.column(key, []reading{unknown, pending, fault, noObjection}); c != nil {
			r.p.extra = append(r.p.extra, *c)
		}
	}
}

func (r *reader) column(key string, allowed []reading) *column {
	s := r.top.sub(key)
	if s == nil {
		return nil
	}
	c := &column{what: key, oid: r.oid(s, "oid", true, true), values: map[int]reading{}}
	values := s.sub("values")
	if values == nil {
		s.problem("values", "missing, want what each value means")
		s.done()
		return c
	}
	count := map[reading]int{}
	for _, k := range values.keys {
		word := values.text(k.Value, "a meaning", true)
		n, ok := integer(k.Value)
		m, known := readingNames[word]
		if !ok || !known || !slices.Contains(allowed, m) {
			values.problem(k.Value, "%q, want a number and its meaning: on, off, pending, fault, unknown or (not for state) clear", word)
		}
		c.values[n] = m
		count[m]++
	}
	switch {
	case key == "state" && (count[on] != 1 || count[off] != 1):
		s.problem("values", "%d values are on and %d are off, want one of each", count[on], count[off])
	case key != "state" && count[noObjection] == 0:
		s.problem("values", "no value is clear: the outlet would never be on or off")
	}
	s.done()
	guardColumn(s, *c)
	return c
}

func (r *reader) restore() {
	s := r.top.sub("restore")
	if s == nil {
		return
	}
	for _, k := range s.keys {
		one := s.sub(k.Value)
		if one == nil {
			continue
		}
		set := restore{what: k.Value, oid: r.oid(one, "oid", true, false)}
		if one.has("stays") {
			set.stays = one.integers("stays")
		}
		one.known = append(one.known, "stays")
		one.done()
		r.p.restore = append(r.p.restore, set)
	}
}

// sources wants a document for every fact that is given, and for no other.
func (r *reader) sources() {
	s := r.top.sub("source")
	if s == nil {
		r.top.problem("source", "missing, want the document behind each fact")
		return
	}
	r.p.Sources = map[string]string{}
	for _, key := range []string{"command", "state", "pending", "fault", "outlet_name", "serial", "model", "restore"} {
		if r.top.has(key) {
			r.p.Sources[key] = s.text(key, "the name of a document", true)
		}
	}
	s.done()
}
