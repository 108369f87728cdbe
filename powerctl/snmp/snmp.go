// Package snmp switches the outlets of power distribution units, and the ports
// of PoE switches, over SNMP v1, v2c and v3. What a device understands is data:
// a Profile.
//
// It guarantees that only an INTEGER which the profile lists as off, in a reply
// to this very request, from the device and for the outlet that were pinned, with
// no command pending and no fault reported, is off; that a SET leaves at most once;
// that identity is checked in the session that switches, and a mismatch sends
// nothing; and that no reboot and no delayed command is ever sent to a device
// whose command column is known (guard.go), or that a profile calls forbidden.
//
// SNMP v1 and v2c are not authenticated: whoever can answer in the device's
// name can lie. A PDU's off says what its relay was told or senses, which is less
// than what the host saw.
package snmp

import (
	"context"
	"errors"
	"fmt"

	"plugpull/internal/clock"
	"plugpull/powerctl"
)

// Outlet implements powerctl.Outlet.
type Outlet struct {
	c      Config
	target *target // nil until the first contact
	known  Pin     // pinned, or from the first contact; empty fields are not compared
}

// New checks the configuration; it sends nothing.
func New(c Config) (*Outlet, error) {
	if err := c.problems(); err != nil {
		return nil, fmt.Errorf("snmp outlet: %w", err)
	}
	return &Outlet{c: c}, nil
}

// label names the outlet in errors.
func (o *Outlet) label() string {
	switch {
	case o.c.Name != "":
		return o.c.Name
	case o.known.OutletName != "":
		return o.known.OutletName
	}
	return o.c.Index
}

// Capabilities returns the profile's class and what it was tried against. With auto the
// class is mains, and a device of another class is refused on contact; it is tried as
// little as the least tried profile that can be chosen.
func (o *Outlet) Capabilities() powerctl.Capabilities {
	if p, err := Named(o.c.Profiles, o.c.Profile); err == nil {
		return powerctl.Capabilities{ReadBack: true, Class: p.Class, Tried: p.Tried}
	}
	c := powerctl.Capabilities{ReadBack: true, Class: powerctl.Mains, Tried: powerctl.TriedPeer}
	for _, p := range o.c.Profiles {
		if len(p.SysObjectID) > 0 && (p.Tried == powerctl.TriedNothing || c.Tried == powerctl.TriedPeer) {
			c.Tried = p.Tried
		}
	}
	return c
}

// Off cancels what is pending, where the profile knows how, and sends one off.
// It does not read back. A *powerctl.IdentityError sent nothing, not even a cancel.
func (o *Outlet) Off(ctx context.Context) (powerctl.Result, error) {
	return o.command(ctx, "off", func(t *target) command { return t.p.off })
}

// On is Off's counterpart.
func (o *Outlet) On(ctx context.Context) (powerctl.Result, error) {
	return o.command(ctx, "on", func(t *target) command { return t.p.on })
}

func (o *Outlet) command(ctx context.Context, op string, which func(*target) command) (powerctl.Result, error) {
	var res powerctl.Result
	s, err := open(ctx, &o.c)
	if err != nil {
		return res, o.notSent(op, "open a socket", err)
	}
	defer s.finish()
	if err := o.contact(s); err != nil {
		return res, o.notSent(op, "check the identity", err)
	}
	if err := o.cancelPending(s); err != nil {
		return res, o.notSent(op, "cancel what is pending", err)
	}
	c := which(o.target)
	res.Commanded, err = s.set(o.target.fill(c.oid), c.value)
	switch {
	case err != nil && res.Commanded == 0:
		return res, o.notSent(op, "send the command", err)
	case err != nil:
		return res, o.opError(op, "have the command acknowledged", err)
	}
	res.Acknowledged = clock.Now()
	return res, nil
}

// cancelPending sends the profile's cancel when a command is pending, or may
// be. Refusals are tolerated unless a command is known to be pending: with
// nothing to cancel, devices differ in what they answer.
func (o *Outlet) cancelPending(s *session) error {
	p := o.target.p
	if len(p.cancel) == 0 {
		return nil
	}
	state := powerctl.Unknown
	if p.knowsPending() {
		_, r, err := o.look(s)
		var status *StatusError
		if err != nil && !errors.As(err, &status) {
			return err
		}
		state = r.State
	}
	if state == powerctl.On || state == powerctl.Off {
		return nil
	}
	var refused error
	accepted := 0
	for _, c := range p.cancel {
		_, err := s.set(o.target.fill(c.oid), c.value)
		var status *StatusError
		switch {
		case err == nil:
			accepted++
		case errors.As(err, &status):
			refused = err
		default:
			return err
		}
	}
	if state == powerctl.Pending && accepted == 0 {
		return refused
	}
	return nil
}

// State reads identity, state and everything that can object to it in one
// packet. Raw holds each variable with its type.
func (o *Outlet) State(ctx context.Context) (powerctl.Result, error) {
	s, err := open(ctx, &o.c)
	if err != nil {
		return powerctl.Result{}, o.opError("state", "open a socket", err)
	}
	defer s.finish()
	if o.target == nil {
		if err := o.contact(s); err != nil {
			return powerctl.Result{}, o.opError("state", "check the identity", err)
		}
	}
	at, r, err := o.look(s)
	if err != nil {
		return r, o.opError("state", "read the state", err)
	}
	if r.State == powerctl.On || r.State == powerctl.Off {
		r.Observed = at
	}
	return r, nil
}

// look reads the state beside the identity, and when the answer was there.
func (o *Outlet) look(s *session) (clock.Instant, powerctl.Result, error) {
	columns := o.target.p.columns()
	oids := o.target.identity(o.known)
	first := len(oids)
	for _, c := range columns {
		oids = append(oids, o.target.fill(c.oid))
	}
	values, err := s.get(oids...)
	at := clock.Now()
	if err != nil {
		return at, powerctl.Result{}, err
	}
	if err := o.target.compare(o.known, values[:first]); err != nil {
		return at, powerctl.Result{Raw: raw(columns, values[first:])}, err
	}
	return at, powerctl.Result{State: combine(columns, values[first:]), Raw: raw(columns, values[first:])}, nil
}

// Identify asks the device who it is. Its serial number stands for it, or its
// sysObjectID and address where it has none; the model is told where the profile knows it.
func (o *Outlet) Identify(ctx context.Context) (powerctl.Identity, error) {
	s, err := open(ctx, &o.c)
	if err != nil {
		return powerctl.Identity{}, o.opError("identify", "open a socket", err)
	}
	defer s.finish()
	if err := o.contact(s); err != nil {
		return powerctl.Identity{}, o.opError("identify", "check the identity", err)
	}
	id := powerctl.Identity{Driver: "snmp", Device: "serial " + o.known.Serial, Part: o.target.index, Name: o.target.index}
	if o.known.Serial == "" {
		id.Device = fmt.Sprintf("sysObjectID %s at %s", o.known.SysObjectID, o.c.Address)
	}
	if o.known.OutletName != "" {
		id.Name += " " + o.known.OutletName
	}
	if o.target.p.model == "" {
		return id, nil
	}
	v, err := o.one(s, o.target.p.model)
	if err != nil {
		return powerctl.Identity{}, o.opError("identify", "read the model", err)
	}
	if model, ok := v.text(); ok {
		id.Device += " model " + model
	}
	return id, nil
}
