package snmp

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"plugpull/internal/strictyaml"
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
	r := &reader{p: &Profile{}}
	err := strictyaml.Decode(file, data, maxFile, func(top *section) {
		r.top = top
		r.read()
	})
	if err != nil {
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
	p.Name = text(s, "name", "a name", true)
	if p.Name != "" && (!nameForm.MatchString(p.Name) || p.Name == "auto") {
		s.Problem("name", "%q, want lower case letters, digits and single -, not auto", p.Name)
	}
	p.Vendor = text(s, "vendor", "a vendor", true)
	p.Models = s.Words("models", "a list of models")
	for _, oid := range s.Words("sys_object_id", "a list of OIDs") {
		if t := template(oid); !t.valid() || len(t.letters()) > 0 {
			s.Problem("sys_object_id", "%q, want an OID with a leading dot", oid)
		}
		p.SysObjectID = append(p.SysObjectID, oid)
	}
	p.Index = text(s, "index", "a form such as N or S.1.N", true)
	if p.Index != "" && !validIndex(p.Index) {
		s.Problem("index", "%q, want a form such as N or S.1.N", p.Index)
	}
	s.Require("class", "a class")
	p.Class = strictyaml.Choice(s, "class", "", powerctl.Classes()...)
	s.Require("tried", "peer, simulator or nothing")
	p.Tried = strictyaml.Choice(s, "tried", "", powerctl.TriedPeer, powerctl.TriedSimulator, powerctl.TriedNothing)
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
	t := template(text(s, key, "an OID", required))
	if t == "" {
		return ""
	}
	if !t.valid() {
		s.Problem(key, "%q, want an OID such as .1.3.6.1.4.1.318.1.1.12.3.5.1.1.2.{N}", string(t))
		return ""
	}
	parts := strings.Split(r.p.Index, ".")
	for _, l := range t.letters() {
		if !slices.Contains(parts, l) {
			s.Problem(key, "{%s} is not in the index %s", l, r.p.Index)
		}
	}
	for _, l := range parts {
		if perOutlet && !isNumber(l) && !slices.Contains(t.letters(), l) {
			s.Problem(key, "{%s} is missing: it would not mean one outlet", l)
		}
	}
	return t
}

func (r *reader) command() {
	s, p := r.top.Sub("command"), r.p
	s.Require("kind", "enum or delay")
	kind := strictyaml.Choice(s, "kind", "", "enum", "delay")
	if s.Has("oid") {
		p.on.oid = r.oid(s, "oid", true, true)
		p.off.oid = p.on.oid
	} else {
		p.on.oid, p.off.oid = r.oid(s, "on_oid", true, true), r.oid(s, "off_oid", true, true)
	}
	s.Know("oid")
	p.on.value = integer(s, "on", true)
	p.off.value = integer(s, "off", true)
	if v := integer(s, "cancel", false); s.Has("cancel") {
		p.cancel = []command{{p.off.oid, v}}
		if p.on.oid != p.off.oid {
			p.cancel = append(p.cancel, command{p.on.oid, v})
		}
	}
	switch kind {
	case "enum":
		r.never(s)
	case "delay":
		r.delay(s)
	}
	s.Done()
	guardCommands(s, p)
}

// never refuses an order that the same file calls forbidden. The list must be
// there: whoever writes a profile has to look at what the other values do.
func (r *reader) never(s *section) {
	var never []int
	s.Require("never", "every other value that the device acts on, or none")
	if word, _ := s.Plain("never"); word == "none" {
		s.Know("never")
	} else {
		never = integers(s, "never")
	}
	p := r.p
	if p.on == p.off {
		s.Problem("off", "the same as on")
	}
	for _, c := range append([]command{p.on, p.off}, p.cancel...) {
		if slices.Contains(never, c.value) {
			s.Problem("never", "%d is forbidden and used", c.value)
		}
	}
	for _, c := range p.cancel {
		if c == p.on || c == p.off {
			s.Problem("cancel", "the same as on or off")
		}
	}
}

// delay: a value is a number of seconds, so that only 0 is now.
func (r *reader) delay(s *section) {
	p := r.p
	if p.on.value != 0 {
		s.Problem("on", "%d is a delay in seconds, want 0", p.on.value)
	}
	if p.off.value != 0 {
		s.Problem("off", "%d is a delay in seconds, want 0", p.off.value)
	}
	if p.on.oid == p.off.oid {
		s.Problem("on_oid", "the same as off_oid")
	}
	for _, c := range p.cancel {
		if c.value >= 0 {
			s.Problem("cancel", "%d is a delay in seconds, want a negative value", c.value)
		}
	}
}

func (r *reader) columns() {
	r.p.state = r.column("state", []reading{unknown, on, off, pending, fault})
	for _, key := range []string{"pending", "fault"} {
		if r.top.Has(key) {
			r.p.extra = append(r.p.extra, r.column(key, []reading{unknown, pending, fault, noObjection}))
		}
	}
	r.top.Know("pending", "fault")
}

func (r *reader) column(key string, allowed []reading) column {
	s := r.top.Sub(key)
	defer s.Done()
	c := column{what: key, oid: r.oid(s, "oid", true, true), values: map[int]reading{}}
	values := s.Sub("values")
	if !s.Has("values") {
		s.Problem("values", "missing, want what each value means")
		return c
	}
	count := map[reading]int{}
	for _, k := range values.Keys() {
		word := text(values, k, "a meaning", true)
		n, ok := whole(k)
		m, known := readingNames[word]
		if !ok || !known || !slices.Contains(allowed, m) {
			values.Problem(k, "%q, want a number and its meaning: on, off, pending, fault, unknown or (not for state) clear", word)
		}
		c.values[n] = m
		count[m]++
	}
	switch {
	case key == "state" && (count[on] != 1 || count[off] != 1):
		s.Problem("values", "%d values are on and %d are off, want one of each", count[on], count[off])
	case key != "state" && count[noObjection] == 0:
		s.Problem("values", "no value is clear: the outlet would never be on or off")
	}
	guardColumn(s, c)
	return c
}

func (r *reader) restore() {
	s := r.top.Sub("restore")
	for _, k := range s.Keys() {
		one := s.Sub(k)
		set := restore{what: k, oid: r.oid(one, "oid", true, false)}
		set.stays = integers(one, "stays")
		one.Done()
		r.p.restore = append(r.p.restore, set)
	}
}

// sources wants a document for every fact that is given, and for no other.
func (r *reader) sources() {
	s := r.top.Sub("source")
	r.top.Require("source", "the document behind each fact")
	r.p.Sources = map[string]string{}
	for _, key := range []string{"command", "state", "pending", "fault", "outlet_name", "serial", "model", "restore"} {
		if r.top.Has(key) {
			r.p.Sources[key] = text(s, key, "the name of a document", true)
		}
	}
	s.Done()
}

// text returns a value as it stands in the file, "" for none.
func text(s *section, key, want string, required bool) string {
	if required {
		s.Require(key, want)
	}
	if _, plain := s.Plain(key); s.Has(key) && !plain {
		s.Know(key)
		s.Problem(key, "want %s", want)
		return ""
	}
	return s.Text(key, want)
}

// integer wants a whole number of 32 bits in its shortest form, 0 for none.
func integer(s *section, key string, required bool) int {
	const want = "a whole number"
	v := text(s, key, want, required)
	n, ok := whole(v)
	if v != "" && !ok {
		s.Problem(key, "%q, want %s", v, want)
	}
	return n
}

func whole(text string) (int, bool) {
	n, err := strconv.ParseInt(text, 10, 32)
	return int(n), err == nil && strconv.FormatInt(n, 10) == text
}

// integers is a list of whole numbers.
func integers(s *section, key string) []int {
	const want = "a list of whole numbers"
	var list []int
	for _, item := range s.Words(key, want) {
		n, ok := whole(item)
		if !ok {
			s.Problem(key, "%q, want %s", item, want)
		}
		list = append(list, n)
	}
	return list
}
