package snmp

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Report is what a device says of itself and of one outlet, for a person to
// read and to pin.
type Report struct {
	Profile string
	Tried   string // against what the profile was tried
	Index   string // of the outlet
	Pin     Pin
	Model   string
	// Warnings name what can bring power back without a command, and what
	// could not be told apart.
	Warnings []string
}

// Inspect reads everything that the profile knows of and changes nothing.
func (o *Outlet) Inspect(ctx context.Context) (Report, error) {
	s, err := open(ctx, &o.c)
	if err != nil {
		return Report{}, o.opError("inspect", "open a socket", err)
	}
	defer s.finish()
	if err := o.contact(s); err != nil {
		return Report{}, o.opError("inspect", "check the identity", err)
	}
	p := o.target.p
	r := Report{Profile: p.Name, Tried: p.Tried, Index: o.target.index, Pin: o.known}
	if p.model != "" {
		v, err := o.one(s, p.model)
		if err != nil {
			return r, o.opError("inspect", "read the model", err)
		}
		r.Model, _ = v.text()
	}
	for _, set := range p.restore {
		v, err := o.one(s, set.oid)
		if err != nil {
			return r, o.opError("inspect", "read "+set.what, err)
		}
		n, ok := v.integer()
		switch {
		case !ok:
			r.Warnings = append(r.Warnings, fmt.Sprintf("%s cannot be read (%v): what the outlet does after a power cut of the device itself is not known", set.what, v))
		case !slices.Contains(set.stays, n):
			r.Warnings = append(r.Warnings, fmt.Sprintf("%s is %d: the device may turn the outlet on by itself", set.what, n))
		}
	}
	if r.Pin.Serial == "" {
		r.Warnings = append(r.Warnings, "the device tells no serial number: a twin at the same address would not be noticed")
	}
	if r.Pin.OutletName == "" {
		r.Warnings = append(r.Warnings, "the outlet has no name: a shifted index would not be noticed")
	}
	return r, nil
}

// one reads a variable; an error that the device answers with makes it absent.
func (o *Outlet) one(s *session, oid template) (value, error) {
	values, err := s.get(o.target.fill(oid))
	var status *StatusError
	switch {
	case errors.As(err, &status):
		return value{absent: err.Error()}, nil
	case err != nil:
		return value{}, err
	}
	return values[0], nil
}
