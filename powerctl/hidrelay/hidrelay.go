// Package hidrelay switches outlets with USB relay boards that are HID devices:
// "USBRelay1" to "USBRelay8" (16c0:05df) and the Ucreatefun clone "HIDRelay"
// (0519:2018), which cannot report a state.
//
// It guarantees that a state is reported only from a report that carries the pinned
// serial; that a command is sent once, and only to the one board that had that serial
// when it was plugged in; and that the clone is an outlet without read-back.
package hidrelay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"plugpull/internal/clock"
	"plugpull/powerctl"
)

// Model is the kind of board.
type Model string

// The models.
const (
	USBRelay Model = "usbrelay" // 16c0:05df
	HIDRelay Model = "hidrelay" // 0519:2018, no read-back
)

// power is the state behind a relay as it was read.
func power(c powerctl.Contact, r reading) powerctl.State {
	switch r {
	case energised, released:
		return c.State(r == energised)
	}
	return powerctl.Unknown
}

// Config describes an outlet.
type Config struct {
	Name  string
	Model Model
	// Serial is the board's: what "usbrelay" shows (at most five signs), for the
	// clone the USB serial number. It is the pin: no other board is touched.
	Serial string
	// Relay from 1.
	Relay   int
	Contact powerctl.Contact
	Class   powerctl.Class
	// Report is the number of the feature report that is asked for the state, 0
	// or 1; usbrelay asks for 1.
	Report int
	// Timeout bounds each call.
	Timeout time.Duration
}

// Errors, for errors.Is.
var (
	// ErrNotFound: no board has the serial. Where others are plugged in it comes with a
	// *powerctl.IdentityError that says theirs.
	ErrNotFound = errors.New("no relay board has this serial")
	// ErrAmbiguous: two boards have the same serial.
	ErrAmbiguous = errors.New("two relay boards have this serial")
	// ErrNoSuchRelay: the board has fewer relays.
	ErrNoSuchRelay = errors.New("the board has no such relay")
	// ErrShort: the kernel took or gave a report of another length.
	ErrShort = errors.New("a report of another length")
)

// Outlet implements powerctl.Outlet and Planner.
type Outlet struct {
	c    Config
	sys  system
	turn chan struct{} // holds one token; a call that the kernel has not given back keeps it
	node node          // nil: not open
}

// New checks the configuration; it opens nothing.
func New(c Config) (*Outlet, error) { return newOutlet(c, linux{"/sys", "/dev"}) }

func newOutlet(c Config, sys system) (*Outlet, error) {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Name != "", "the outlet's name is missing")
	check(c.Model == USBRelay || c.Model == HIDRelay, "the model %q is unknown", c.Model)
	check(printable(c.Serial), "the serial %q is no pin: it has signs that do not print, or none", c.Serial)
	check(c.Model != USBRelay || len(c.Serial) <= serialSize, "the serial %q is longer than %d signs", c.Serial, serialSize)
	check(c.Relay >= 1 && c.Relay <= map[Model]int{USBRelay: 8, HIDRelay: 9}[c.Model], "relay %d: want 1 to 8, of a clone 9", c.Relay)
	check(c.Contact.Valid(), "the contact %q is neither %s nor %s", c.Contact, powerctl.NormallyOpen, powerctl.NormallyClosed)
	check(c.Report == 0 || c.Report == 1, "report %d: want 0 or 1", c.Report)
	check(c.Timeout > 0, "the timeout is missing")
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("hid relay outlet: %w", err)
	}
	o := &Outlet{c: c, sys: sys, turn: make(chan struct{}, 1)}
	o.turn <- struct{}{}
	return o, nil
}

// Tried says against what the driver was run.
const Tried = powerctl.TriedSimulator

// Capabilities implements powerctl.Outlet.
func (o *Outlet) Capabilities() powerctl.Capabilities {
	return powerctl.Capabilities{ReadBack: o.c.Model == USBRelay, Class: o.c.Class, Tried: Tried}
}

// Close gives the board back. It waits for a call that ended before the kernel
// let go of it, at most some five seconds. Another call opens the board again.
func (o *Outlet) Close() error {
	<-o.turn
	defer func() { o.turn <- struct{}{} }()
	o.drop()
	return nil
}

// Off takes the power away. Acknowledged is when the board took the report.
func (o *Outlet) Off(ctx context.Context) (powerctl.Result, error) {
	return o.command(ctx, "off", o.c.Contact.Energised(false))
}

// On is Off's counterpart.
func (o *Outlet) On(ctx context.Context) (powerctl.Result, error) {
	return o.command(ctx, "on", o.c.Contact.Energised(true))
}

func (o *Outlet) command(ctx context.Context, op string, energise bool) (powerctl.Result, error) {
	report := command(o.c.Model, o.c.Relay, energise)
	var acknowledged clock.Instant
	commanded, err := o.call(ctx, func(commit func() bool) error {
		n, err := o.reach()
		if err != nil {
			return fmt.Errorf("%w: %w", powerctl.ErrNotSent, err)
		}
		if !commit() {
			return powerctl.ErrNotSent
		}
		if err := send(o.c.Model, n, report); err != nil {
			return err
		}
		acknowledged = clock.Now()
		return nil
	})
	res := powerctl.Result{Commanded: commanded}
	if err != nil {
		return res, o.fail(op, "command the relay", err)
	}
	res.Acknowledged = acknowledged
	return res, nil
}

// send: a feature report to the one, an output report to the clone, as usbrelay does.
func send(m Model, n node, report []byte) error {
	set := n.setFeature
	if m == HIDRelay {
		set = n.write
	}
	taken, err := set(report)
	if err == nil && taken != len(report) {
		err = fmt.Errorf("%w: %d of %d bytes", ErrShort, taken, len(report))
	}
	return err
}

// State asks the board. A report that is not exactly one, or has another serial, is Unknown.
func (o *Outlet) State(ctx context.Context) (powerctl.Result, error) {
	if o.c.Model == HIDRelay {
		return powerctl.Result{}, o.fail("state", "read the state", powerctl.ErrNoReadBack)
	}
	var answer []byte
	var have int
	_, err := o.call(ctx, func(func() bool) error {
		n, err := o.reach()
		if err != nil {
			return err
		}
		i, err := n.info()
		if err != nil {
			return err
		}
		have = relays(i)
		answer, err = ask(n, o.c.Report)
		return err
	})
	if err != nil {
		return powerctl.Result{}, o.fail("state", "read the state", err)
	}
	res := powerctl.Result{Raw: fmt.Sprintf("% x", answer)}
	if s, ok := parseStatus(o.c.Report, answer); ok {
		res.State = power(o.c.Contact, s.read(o.c.Serial, have, o.c.Relay))
	}
	if res.State == powerctl.On || res.State == powerctl.Off {
		res.Observed = clock.Now()
	}
	return res, nil
}

func (o *Outlet) fail(op, step string, err error) error {
	return &powerctl.OpError{Op: op, Outlet: o.c.Name, Step: step, Err: err}
}
