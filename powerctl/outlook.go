package powerctl

import (
	"context"
	"fmt"
	"time"
)

// Tried says against what a driver was run. Nothing but Hardware and Peer backs a
// claim about devices; a driver with less is experimental.
type Tried string

// The grounds, weakest first.
const (
	TriedNothing   Tried = "nothing"
	TriedSimulator Tried = "simulator" // a simulator of plugpull's own: its author's idea of the wire, twice
	TriedPeer      Tried = "peer"      // somebody else's implementation of the wire
	TriedHardware  Tried = "hardware"
	TriedOwn       Tried = "" // not applicable: the user's own command, or a person
)

// Experimental reports whether nothing independent backs the driver.
func (t Tried) Experimental() bool { return t == TriedNothing || t == TriedSimulator }

// String says it in words for a person.
func (t Tried) String() string {
	switch t {
	case TriedOwn:
		return "the user's own"
	case TriedHardware:
		return "tried on hardware"
	case TriedPeer:
		return "never tried on hardware; agrees with an independent implementation of its wire"
	case TriedSimulator:
		return "experimental: never tried on hardware, only against plugpull's own simulator"
	}
	return "experimental: never tried on anything"
}

// Warning is something about a device that its user should know.
type Warning struct {
	Text string
	// Switches: a setting by which the device can switch this outlet by itself
	// while plugpull holds it off or on: a timer, a schedule, a pulse. No cut can
	// be trusted then, and a run refuses the outlet. What a device does only when
	// it is itself restarted is no such thing.
	Switches bool
}

func (w Warning) String() string { return w.Text }

// Warner is an outlet that can read such settings from its device.
type Warner interface {
	// Warnings changes nothing and blocks as Outlet.State does. What cannot be read
	// that should be readable is a Warning, not silence.
	Warnings(ctx context.Context) ([]Warning, error)
}

// Planner is an outlet that can say what it would send.
type Planner interface {
	// Plan returns the requests of one command in the order in which they are sent,
	// a line each, and holds no secret. It does not block and contacts nothing.
	Plan(on bool) []string
}

// PlanOf returns an outlet's plan, or a line that says that its driver has none.
func PlanOf(o Outlet, on bool) []string {
	if p, can := o.(Planner); can {
		return p.Plan(on)
	}
	return []string{"this driver cannot say what it would send"}
}

// WarningsOf returns an outlet's warnings, none where its driver cannot read any.
func WarningsOf(ctx context.Context, o Outlet) ([]Warning, error) {
	if w, can := o.(Warner); can {
		return w.Warnings(ctx)
	}
	return nil, nil
}

// Pinner is an outlet that can say to what it may be pinned.
type Pinner interface {
	// Pins returns what the device says of itself now, by the keys of a bench file's pin. It
	// changes nothing and blocks as Outlet.State does.
	Pins(ctx context.Context) (map[string]string, error)
}

// Glitcher is an outlet that can take power away for a moment too short to read back.
type Glitcher interface {
	// Glitch takes power away for length, once. It claims no Off: the Result holds when the device took the
	// command, and what it said. An error that does not match ErrNotSent leaves open whether it happened.
	Glitch(ctx context.Context, length time.Duration) (Result, error)
}

// IdentityError: the device or the outlet that answers is not the one that was
// pinned, or not the one that this driver first spoke to. Nothing was sent to switch it.
type IdentityError struct {
	What string // serial, sysObjectID, uuid, outlet name …
	Want string
	Got  string // empty when the device does not say
}

func (e *IdentityError) Error() string {
	if e.Got == "" {
		return fmt.Sprintf("wrong device: the pinned %s is %q, and this one does not tell its own", e.What, e.Want)
	}
	return fmt.Sprintf("wrong device: the pinned %s is %q, this one says %q", e.What, e.Want, e.Got)
}
