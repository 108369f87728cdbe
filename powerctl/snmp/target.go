package snmp

import (
	"errors"
	"fmt"

	"plugpull/powerctl"
)

const sysObjectID = ".1.3.6.1.2.1.1.2.0" // SNMPv2-MIB

// target is one outlet of a device with a profile.
type target struct {
	p     *Profile
	x     outletIndex // nil until a name was looked up
	index string
}

// newTarget holds what the configuration says of the outlet against the profile.
func newTarget(p *Profile, c *Config) (*target, error) {
	if c.Pin.Serial != "" && p.serial == "" {
		return nil, fmt.Errorf("the profile %s knows no serial number: it cannot be pinned", p.Name)
	}
	t := &target{p: p}
	if c.Name != "" {
		return t, nil
	}
	x, ok := parseIndex(p.Index, c.Index)
	if !ok {
		return nil, fmt.Errorf("the outlet's index is %q, want the form %s", c.Index, p.Index)
	}
	t.x, t.index = x, c.Index
	return t, nil
}

func (t *target) fill(oid template) string { return oid.fill(t.x) }

// identity lists the variables that are compared with known.
func (t *target) identity(known Pin) []string {
	oids := []string{sysObjectID}
	if known.Serial != "" {
		oids = append(oids, t.fill(t.p.serial))
	}
	if known.OutletName != "" {
		oids = append(oids, t.fill(t.p.name))
	}
	return oids
}

// compare holds the values of identity's variables against known.
func (t *target) compare(known Pin, values []value) error {
	i := 0
	check := func(what, want string, read func(value) (string, bool)) error {
		v := values[i]
		i++
		if got, ok := read(v); !ok || got != want {
			return &powerctl.IdentityError{What: what, Want: want, Got: v.said()}
		}
		return nil
	}
	if err := check("sysObjectID", known.SysObjectID, value.oid); err != nil {
		return err
	}
	if known.Serial != "" {
		if err := check("serial", known.Serial, value.text); err != nil {
			return err
		}
	}
	if known.OutletName != "" {
		return check("outlet name", known.OutletName, value.text)
	}
	return nil
}

// contact makes sure that the session speaks with the device and about the
// outlet that it should: against the pin, and after the first contact against
// everything that the device said then.
func (o *Outlet) contact(s *session) error {
	if o.target != nil {
		values, err := s.get(o.target.identity(o.known)...)
		if err != nil {
			return err
		}
		return o.target.compare(o.known, values)
	}
	known := Pin{SysObjectID: dotted(o.c.Pin.SysObjectID), Serial: o.c.Pin.Serial, OutletName: o.c.Pin.OutletName}
	if o.c.Name != "" {
		known.OutletName = o.c.Name
	}
	t, known, err := o.meet(s, known)
	if err == nil {
		o.target, o.known = t, known
	}
	return err
}

// meet finds the outlet, compares what is known of it and learns the rest.
func (o *Outlet) meet(s *session, known Pin) (*target, Pin, error) {
	values, err := s.get(sysObjectID)
	if err != nil {
		return nil, known, err
	}
	object, ok := values[0].oid()
	if !ok {
		return nil, known, fmt.Errorf("%w: the sysObjectID is %v", ErrBadReply, values[0])
	}
	if known.SysObjectID == "" {
		known.SysObjectID = object
	}
	if known.SysObjectID != object {
		return nil, known, &powerctl.IdentityError{What: "sysObjectID", Want: known.SysObjectID, Got: object}
	}
	t, err := o.choose(object)
	if err != nil {
		return nil, known, err
	}
	if t.x == nil {
		if err := t.lookUp(s, o.c.Name); err != nil {
			return nil, known, err
		}
	}
	known, err = t.meet(s, known)
	return t, known, err
}

func (o *Outlet) choose(object string) (*target, error) {
	if o.c.Profile != Auto {
		p, err := Named(o.c.Profiles, o.c.Profile)
		if err != nil {
			return nil, err
		}
		return newTarget(p, &o.c)
	}
	p, err := detect(o.c.Profiles, object)
	if err != nil {
		return nil, err
	}
	if p.Class != o.Capabilities().Class {
		return nil, fmt.Errorf("the profile %s is of class %s: name it", p.Name, p.Class)
	}
	return newTarget(p, &o.c)
}

// lookUp finds the one outlet of that name.
func (t *target) lookUp(s *session, name string) error {
	var found []outletIndex
	err := s.walk(t.p.name.column(), func(oid string, v value) {
		x, ok := t.p.name.match(oid)
		if got, isText := v.text(); ok && isText && got == name {
			found = append(found, x)
		}
	})
	if err != nil {
		return fmt.Errorf("look up the outlet: %w", err)
	}
	if len(found) != 1 {
		return fmt.Errorf("look up the outlet: %d outlets are named %q, want one", len(found), name)
	}
	t.x, t.index = found[0], found[0].format(t.p.Index)
	return nil
}

// meet compares what is pinned and learns the rest.
func (t *target) meet(s *session, known Pin) (Pin, error) {
	learn := func(want *string, what string, oid template) error {
		if oid == "" {
			return nil
		}
		values, err := s.get(t.fill(oid))
		var status *StatusError
		if err != nil && (*want != "" || !errors.As(err, &status)) {
			return fmt.Errorf("read the %s: %w", what, err)
		}
		if err != nil {
			return nil // the device has its reasons; nothing is pinned
		}
		got, ok := values[0].text()
		switch {
		case *want == "" && ok:
			*want = got
		case *want != got:
			return &powerctl.IdentityError{What: what, Want: *want, Got: values[0].said()}
		}
		return nil
	}
	if err := learn(&known.Serial, "serial", t.p.serial); err != nil {
		return known, err
	}
	return known, learn(&known.OutletName, "outlet name", t.p.name)
}

var (
	_ powerctl.Outlet  = (*Outlet)(nil)
	_ powerctl.Planner = (*Outlet)(nil)
	_ powerctl.Warner  = (*Outlet)(nil)
)
