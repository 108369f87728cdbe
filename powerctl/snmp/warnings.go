package snmp

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"plugpull/powerctl"
)

// Warnings reads the settings by which power can come back without a command, whether a
// command is pending, and what is missing to tell the outlet from another one.
func (o *Outlet) Warnings(ctx context.Context) ([]powerctl.Warning, error) {
	s, err := open(ctx, &o.c)
	if err != nil {
		return nil, o.opError("warnings", "open a socket", err)
	}
	defer s.finish()
	if err := o.contact(s); err != nil {
		return nil, o.opError("warnings", "check the identity", err)
	}
	list, err := o.pendingWarning(s)
	if err != nil {
		return nil, o.opError("warnings", "read the state", err)
	}
	warn := func(format string, args ...any) {
		list = append(list, powerctl.Warning{Text: fmt.Sprintf(format, args...)})
	}
	for _, set := range o.target.p.restore {
		v, err := o.one(s, set.oid)
		if err != nil {
			return nil, o.opError("warnings", "read "+set.what, err)
		}
		n, ok := v.integer()
		switch {
		case !ok:
			warn("%s cannot be read (%v): what the outlet does after a power cut of the device itself is not known", set.what, v)
		case !slices.Contains(set.stays, n):
			warn("%s is %d: the device may turn the outlet on by itself after a power cut of its own", set.what, n)
		}
	}
	if o.known.Serial == "" {
		warn("the device tells no serial number: a twin at the same address would not be noticed")
	}
	if o.known.OutletName == "" {
		warn("the outlet has no name: a shifted index would not be noticed")
	}
	return list, nil
}

// pendingWarning: a pending command is a timer that runs, unless every command of ours
// cancels it first.
func (o *Outlet) pendingWarning(s *session) ([]powerctl.Warning, error) {
	if !o.target.p.knowsPending() {
		return nil, nil
	}
	_, r, err := o.look(s)
	var status *StatusError
	switch {
	case errors.As(err, &status):
		return []powerctl.Warning{{Text: fmt.Sprintf("the state cannot be read (%v): whether a command is pending is not known", err)}}, nil
	case err != nil:
		return nil, err
	case r.State != powerctl.Pending:
		return nil, nil
	case len(o.target.p.cancel) > 0:
		return []powerctl.Warning{{Text: fmt.Sprintf("a command is pending (%s): it is cancelled before a command of plugpull's", r.Raw)}}, nil
	}
	return []powerctl.Warning{{Text: fmt.Sprintf("a command is pending (%s), and nothing is known that cancels it", r.Raw), Switches: true}}, nil
}

// Pins returns what the device says of itself now, whatever is pinned, by the keys of a
// bench file; what it does not say is left out.
func (o *Outlet) Pins(ctx context.Context) (map[string]string, error) {
	s, err := open(ctx, &o.c)
	if err != nil {
		return nil, o.opError("pins", "open a socket", err)
	}
	defer s.finish()
	_, now, err := o.meet(s, Pin{})
	if err != nil {
		return nil, o.opError("pins", "ask the device who it is", err)
	}
	pins := map[string]string{}
	for key, value := range map[string]string{"sysobjectid": now.SysObjectID, "serial": now.Serial, "outlet_name": now.OutletName} {
		if value != "" {
			pins[key] = value
		}
	}
	return pins, nil
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
