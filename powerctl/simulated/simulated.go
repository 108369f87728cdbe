// Package simulated is the outlet of a simulated drive.
//
// It guarantees what every driver does: off is reported only when the device says that
// it has no power.
package simulated

import (
	"context"
	"errors"
	"fmt"

	"plugpull/internal/clock"
	"plugpull/powerctl"
)

// Device is what the outlet feeds.
type Device interface {
	// PowerOff takes the power away; it is idempotent.
	PowerOff()
	// PowerOn gives it back; it is idempotent.
	PowerOn() error
	// Powered reports whether the device has power.
	Powered() bool
}

// Config of an Outlet.
type Config struct {
	Name   string
	Device Device
	Now    func() clock.Instant // the time that the device lives in; nil is the control host's
}

// Outlet implements powerctl.Outlet and Planner.
type Outlet struct{ c Config }

// New returns an outlet.
func New(c Config) (*Outlet, error) {
	if c.Name == "" || c.Device == nil {
		return nil, errors.New("simulated outlet: the name or the device is missing")
	}
	if c.Now == nil {
		c.Now = clock.Now
	}
	return &Outlet{c}, nil
}

// Off implements powerctl.Outlet.
func (o *Outlet) Off(ctx context.Context) (powerctl.Result, error) {
	return o.act(ctx, "off", func() error { o.c.Device.PowerOff(); return nil })
}

// On implements powerctl.Outlet.
func (o *Outlet) On(ctx context.Context) (powerctl.Result, error) {
	return o.act(ctx, "on", o.c.Device.PowerOn)
}

func (o *Outlet) act(ctx context.Context, op string, do func() error) (powerctl.Result, error) {
	if err := ctx.Err(); err != nil {
		return powerctl.Result{}, &powerctl.OpError{Op: op, Outlet: o.c.Name, Step: "begin", Err: errors.Join(powerctl.ErrNotSent, err)}
	}
	r := powerctl.Result{Commanded: o.c.Now()}
	if err := do(); err != nil {
		return r, &powerctl.OpError{Op: op, Outlet: o.c.Name, Step: "switch", Err: err}
	}
	r.Acknowledged = o.c.Now()
	read := o.read()
	r.State, r.Raw = read.State, read.Raw
	if op == "off" && r.State == powerctl.Off || op == "on" && r.State == powerctl.On {
		r.Observed = read.Observed
	}
	return r, nil
}

func (o *Outlet) read() powerctl.Result {
	r := powerctl.Result{State: powerctl.Off, Raw: "unpowered"}
	if o.c.Device.Powered() {
		r.State, r.Raw = powerctl.On, "powered"
	}
	r.Observed = o.c.Now()
	return r
}

// State implements powerctl.Outlet.
func (o *Outlet) State(ctx context.Context) (powerctl.Result, error) {
	if err := ctx.Err(); err != nil {
		return powerctl.Result{}, &powerctl.OpError{Op: "state", Outlet: o.c.Name, Step: "begin", Err: err}
	}
	return o.read(), nil
}

// Identify implements powerctl.Outlet.
func (o *Outlet) Identify(context.Context) (powerctl.Identity, error) {
	return powerctl.Identity{Driver: "simulated", Device: "simulated drive", Part: o.c.Name, Name: o.c.Name}, nil
}

// Capabilities implements powerctl.Outlet.
func (o *Outlet) Capabilities() powerctl.Capabilities {
	return powerctl.Capabilities{ReadBack: true, Class: powerctl.Drive, Tried: powerctl.TriedOwn}
}

// Plan implements powerctl.Planner.
func (o *Outlet) Plan(on bool) []string {
	if on {
		return []string{fmt.Sprintf("give power to the simulated drive %q, within plugpull", o.c.Name)}
	}
	return []string{fmt.Sprintf("take power from the simulated drive %q, within plugpull", o.c.Name)}
}
