// Package quarch cuts the power of one drive with a Quarch module between host
// and drive: a hot-plug module (a breaker) or a power module, over TCP, REST or a
// serial line.
//
// It guarantees that only an answer that is exactly PULLED or OFF, to the question asked
// in the same conversation and from the module that was pinned, is off; that
// signals which run:power does not switch make it no off; that a command goes
// out once; and that a glitch is never called an off.
//
// The wire is that of Quarch's own client, quarchpy; the words PLUGGED, PULLED and OFF
// are from Quarch's application notes, ON from scripts. None was tried on a module. A
// module asks for no password: whoever reaches its address can switch it.
package quarch

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"plugpull/internal/clock"
	"plugpull/powerctl"
)

// Config describes a module, or one of those behind an array controller.
type Config struct {
	Name string
	// Exactly one of the three. Address is host or host:port for TCP, 9760 without
	// a port. URL is http://host or http://host:port for REST. Port is the path of a serial
	// port; prefer /dev/serial/by-id.
	Address, URL, Port string
	// Module is the number of the module on an array controller, from 1 on; zero is a
	// module of its own. Modules of one controller on TCP are not used concurrently: it
	// takes one connection.
	Module int
	// Signals are those that carry the drive's power on a hot-plug module, by its own
	// names: 12V_POWER, 12V_CHARGE, 3V3_AUX … Each must hang on a source that run:power
	// switches (1 to 7), which is read with every state and before every command. Without
	// them PULLED is taken at its word. A power module has none.
	Signals []string
	// Class is powerctl.Drive when empty.
	Class powerctl.Class
	// Timeout bounds each method.
	Timeout time.Duration
	// Pin, where it is set, is verified in every conversation before anything else. Without
	// it, the first module that answers is pinned for the life of the Outlet.
	Pin Pin
}

// Pin is what the module must say of itself.
type Pin struct {
	// Serial is the answer to *serial?, of the module, not of its controller. QTL in
	// front of it and case do not matter. The label of some power modules has
	// another number on it, that of the enclosure.
	Serial string
}

// Outlet implements powerctl.Outlet, powerctl.Planner, powerctl.Warner and powerctl.Pinner.
type Outlet struct {
	c    Config
	open func(context.Context) (wire, error)
	seen string // the serial number that answered first
}

const (
	defaultPort = "9760"
	maxModule   = 28 // of the larger array controller, QTL1079
)

var signalName = regexp.MustCompile(`^[A-Za-z0-9_+-]{1,32}$`)

// New checks the configuration; it connects to nothing.
func New(c Config) (*Outlet, error) {
	var errs []error
	check := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	if c.Class == "" {
		c.Class = powerctl.Drive
	}
	check(c.Name == "", "the outlet's name is missing")
	check(c.Timeout <= 0, "the timeout is missing")
	check(!slices.Contains(powerctl.Classes(), c.Class), "the class %q is unknown", c.Class)
	check(c.Module < 0 || c.Module > maxModule, "module %d: an array controller has 1 to %d", c.Module, maxModule)
	check(c.Pin.Serial != "" && !isSerial(c.Pin.Serial), "the pinned serial number %q is not like QTL1743-01-001", c.Pin.Serial)
	for i, s := range c.Signals {
		check(!signalName.MatchString(s), "the signal %q is not a name such as 12V_POWER", s)
		check(slices.ContainsFunc(c.Signals[:i], func(o string) bool { return strings.EqualFold(o, s) }), "the signal %q is named twice", s)
	}
	o := &Outlet{c: c}
	switch {
	case c.Address != "" && c.URL == "" && c.Port == "":
		address, err := hostPort(c.Address)
		check(err != nil, "the address is not host or host:port")
		o.c.Address, o.open = address, newDialer(address).open
	case c.URL != "" && c.Address == "" && c.Port == "":
		u, err := url.Parse(c.URL)
		check(err != nil || u.Scheme != "http" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "",
			"the URL is not http://host or http://host:port")
		if err == nil {
			o.c.URL, o.open = "http://"+u.Host, newREST(u.Host).open
		}
	case c.Port != "" && c.Address == "" && c.URL == "":
		o.open = serialPort{path: c.Port, quiet: adapterLatency}.open
	default:
		check(true, "exactly one of address, URL and serial port is wanted")
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("quarch outlet: %w", err)
	}
	return o, nil
}

// Tried says against what the driver was run.
const Tried = powerctl.TriedSimulator

// Capabilities implements powerctl.Outlet.
func (o *Outlet) Capabilities() powerctl.Capabilities {
	return powerctl.Capabilities{ReadBack: true, Class: o.c.Class, Tried: Tried}
}

const (
	down = "run:power down"
	up   = "run:power up"
)

// Off pulls the drive, or switches the outputs of a power module off. It does not read
// back. Acknowledged is when the module said OK, which may be before the last of a
// hot-plug module's timed sources has switched: see Warnings.
func (o *Outlet) Off(ctx context.Context) (powerctl.Result, error) {
	return o.command(ctx, "off", down)
}

// On is Off's counterpart.
func (o *Outlet) On(ctx context.Context) (powerctl.Result, error) { return o.command(ctx, "on", up) }

func (o *Outlet) command(ctx context.Context, op, text string) (powerctl.Result, error) {
	var res powerctl.Result
	err := o.with(ctx, op, func(ctx context.Context, c *conversation) error {
		if err := c.requireSwitched(ctx, o.c.Signals); err != nil {
			return o.fail(op, "check the sources of the signals", err)
		}
		var err error
		if res.Commanded, err = c.order(ctx, text); err != nil {
			return o.fail(op, "send "+text, err)
		}
		res.Acknowledged = clock.Now()
		return nil
	})
	return res, sentAt(res.Commanded, err)
}

// sentAt marks the error of a command of which nothing left.
func sentAt(at clock.Instant, err error) error {
	if err != nil && at == 0 && !errors.Is(err, powerctl.ErrNotSent) {
		return fmt.Errorf("%w: %w", powerctl.ErrNotSent, err)
	}
	return err
}

// State asks the module, and for the source of each signal. PULLED while a signal
// hangs on a source that is always on is Fault, as PLUGGED is on one that is
// always off. Raw has all the answers.
func (o *Outlet) State(ctx context.Context) (powerctl.Result, error) {
	var res powerctl.Result
	err := o.with(ctx, "state", func(ctx context.Context, c *conversation) error {
		var said string
		var err error
		if res.State, said, err = c.power(ctx); err != nil {
			return o.fail("state", "read the state", err)
		}
		res.Raw = raw(said)
		for _, s := range o.c.Signals {
			source, err := c.source(ctx, s)
			if err != nil {
				res.State = powerctl.Unknown
				return o.fail("state", "read the source of "+s, err)
			}
			res.Raw = raw(fmt.Sprintf("%s; %s on source %d", res.Raw, s, source))
			if stuck := stateOf(source); stuck != powerctl.Unknown && stuck != res.State && res.State != powerctl.Unknown {
				res.State = powerctl.Fault
			}
		}
		if err := c.still(ctx); err != nil {
			res.State = powerctl.Unknown
			return o.fail("state", "make sure that the answers are to their questions", err)
		}
		if res.State == powerctl.On || res.State == powerctl.Off {
			res.Observed = clock.Now()
		}
		return nil
	})
	return res, err
}

// Identify asks for the serial number, and for name and part number where the module
// has them.
func (o *Outlet) Identify(ctx context.Context) (powerctl.Identity, error) {
	id := powerctl.Identity{Driver: "quarch", Name: o.c.Name}
	err := o.with(ctx, "identify", func(ctx context.Context, c *conversation) error {
		more, err := c.idn(ctx)
		if err != nil {
			return o.fail("identify", "send *idn?", err)
		}
		id.Device = "serial " + c.serial + more
		return nil
	})
	if err != nil {
		return powerctl.Identity{}, err
	}
	return id, nil
}

// Pins returns what can be pinned, as the module that answers now says it, by the
// key that the configuration has for it. It changes nothing.
func (o *Outlet) Pins(ctx context.Context) (map[string]string, error) {
	pins := map[string]string{}
	err := o.with(ctx, "pins", func(_ context.Context, c *conversation) error {
		pins["serial"] = c.serial
		return nil
	})
	if err != nil {
		return nil, err
	}
	return pins, nil
}

// Plan implements powerctl.Planner.
func (o *Outlet) Plan(on bool) []string {
	texts := []string{askSerial}
	for _, s := range o.c.Signals {
		texts = append(texts, askSource(s))
	}
	if on {
		texts = append(texts, up)
	} else {
		texts = append(texts, down)
	}
	way := "tcp " + o.c.Address + ": "
	switch {
	case o.c.URL != "":
		way = "GET " + o.c.URL
	case o.c.Port != "":
		way = o.c.Port + ": "
	}
	for i, t := range texts {
		t = addressed(t, o.c.Module)
		if o.c.URL != "" {
			t = target(t)
		}
		texts[i] = way + t
	}
	return texts
}

// with opens a conversation and makes sure that the pinned module answers.
func (o *Outlet) with(ctx context.Context, op string, do func(context.Context, *conversation) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, o.c.Timeout)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return o.fail(op, "begin", err)
	}
	w, err := o.open(ctx)
	if err != nil {
		return o.fail(op, "reach the module", err)
	}
	// What closing says is nothing that the answers depend on.
	defer func() { _ = w.close() }()
	c := &conversation{w: w, module: o.c.Module}
	if err := c.meet(ctx, o.c.Pin.Serial, o.seen); err != nil {
		return o.fail(op, "verify which module answers", err)
	}
	o.seen = c.serial
	return do(ctx, c)
}

func (o *Outlet) fail(op, step string, err error) error {
	return &powerctl.OpError{Op: op, Outlet: o.c.Name, Step: step, Err: err}
}
