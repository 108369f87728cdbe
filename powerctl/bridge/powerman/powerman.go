// Package powerman switches a node through powermand, the daemon of PowerMan, and so
// everything that has a device file for it.
//
// It guarantees that nothing but "on" and "off" is sent to switch, never "cycle" or "reset", with
// exactly one node; that the node is one to powermand too, asked in the same conversation
// just before (an alias can have a node's name and stand for others: seen with powermand 2.3.27);
// and that only a whole answer to a query for this node alone, which names it as off, is off.
//
// powermand runs a script of a device file for each request, and answers when it is through. What
// such a script takes for off is that file's: most ask the device, and what a device file
// gets wrong is not seen here. powermand neither asks for a password nor encrypts, and it tells
// no serial number: the device's name in its configuration is all that can be pinned, beside the
// node. Nor does it tell of timers in a device: this driver has no warnings, and there may be some.
package powerman

import (
	"context"
	"errors"
	"fmt"
	"time"

	"plugpull/internal/clock"
	"plugpull/powerctl"
	"plugpull/powerctl/bridge"
)

// Config describes a node.
type Config struct {
	Name string
	// Address is powermand's host:port; the port is 10101 unless its configuration says otherwise.
	Address string
	// Node is the node's name in powermand's configuration: one plain name.
	Node string
	// Class is what loses power with the node; powermand cannot tell a BMC from a PDU.
	Class powerctl.Class
	// Timeout bounds each method. A command is preceded by a query, and both are run on the device.
	Timeout time.Duration
	// Pin, where it is set, is verified before every command and with every reading.
	Pin Pin
}

// Pin is what powermand must say; an empty field is not looked at.
type Pin struct {
	Device string // the device that the node belongs to, by its name in powermand's configuration
}

// Outlet implements powerctl.Outlet and powerctl.Planner.
type Outlet struct{ c Config }

// New checks the configuration; it connects to nothing.
func New(c Config) (*Outlet, error) {
	var errs []error
	check := func(bad bool, text string) {
		if bad {
			errs = append(errs, errors.New(text))
		}
	}
	check(c.Name == "", "the outlet's name is missing")
	check(!bridge.HostPort(c.Address), "the address is not host:port")
	check(!bridge.PlainName(c.Node), "the node is not one plain name of letters, digits, '.', '_' and '-'")
	check(!bridge.ValidClass(c.Class), "the class is none of mains, drive and chassis")
	check(c.Timeout <= 0, "the timeout is missing")
	check(c.Pin.Device != "" && !bridge.PlainName(c.Pin.Device), "the pinned device is not one plain name of letters, digits, '.', '_' and '-'")
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("powerman outlet: %w", err)
	}
	return &Outlet{c: c}, nil
}

// Tried says against what the driver was run.
const Tried = powerctl.TriedPeer

// Capabilities implements powerctl.Outlet. The wire was tried against powermand 2.3.27.
func (o *Outlet) Capabilities() powerctl.Capabilities {
	return powerctl.Capabilities{ReadBack: true, Class: o.c.Class, Tried: Tried}
}

// Off sends "off", after a query that shows which nodes it would reach. It does not read back.
func (o *Outlet) Off(ctx context.Context) (powerctl.Result, error) { return o.command(ctx, "off") }

// On sends "on", after a query that shows which nodes it would reach. It does not read back.
func (o *Outlet) On(ctx context.Context) (powerctl.Result, error) { return o.command(ctx, "on") }

func (o *Outlet) command(ctx context.Context, op string) (powerctl.Result, error) {
	var res powerctl.Result
	err := o.with(ctx, op, func(c *conversation) error {
		if _, _, err := o.read(c, op); err != nil {
			return err
		}
		if err := o.verify(c, op); err != nil {
			return err
		}
		at, answer, err := c.ask(op + " " + o.c.Node)
		res.Commanded = at
		if err == nil {
			err = answer.mustEnd(commandDone)
		}
		if err != nil {
			return o.fail(op, "send "+op+" "+o.c.Node, err)
		}
		res.Acknowledged = clock.Now()
		return nil
	})
	if err != nil && res.Commanded == 0 {
		err = fmt.Errorf("%w: %w", powerctl.ErrNotSent, err)
	}
	return res, err
}

// State queries the node. Raw is the whole answer.
func (o *Outlet) State(ctx context.Context) (powerctl.Result, error) {
	var res powerctl.Result
	err := o.with(ctx, "state", func(c *conversation) error {
		if o.c.Pin.Device != "" {
			if err := o.verify(c, "state"); err != nil {
				return err
			}
		}
		state, answer, err := o.read(c, "state")
		res.Raw = bridge.Raw(answer.lines)
		if err == nil {
			err = o.failIf("state", "query the node", answer.mustEnd(queryDone))
		}
		if err == nil {
			err = o.failIf("state", "end the conversation", c.quit())
		}
		if err != nil {
			return err
		}
		if res.State = state; state == powerctl.On || state == powerctl.Off {
			res.Observed = clock.Now()
		}
		return nil
	})
	return res, err
}

// read asks for the node's state. A device that cannot be read ends the answer with another
// number and is no error here: it may well be cut.
func (o *Outlet) read(c *conversation, op string) (powerctl.State, reply, error) {
	_, answer, err := c.ask("status " + o.c.Node)
	if err != nil {
		return powerctl.Unknown, answer, o.fail(op, "query the node", err)
	}
	state, err := answer.state(o.c.Node)
	return state, answer, o.failIf(op, "query the node", err)
}

// verify makes sure that this is the pinned device, and that answers are in step with requests:
// none but the answer to this one has its form.
func (o *Outlet) verify(c *conversation, op string) error {
	d, err := c.device(o.c.Node)
	if err == nil && o.c.Pin.Device != "" && d.name != o.c.Pin.Device {
		err = &powerctl.IdentityError{What: "device", Want: o.c.Pin.Device, Got: d.name}
	}
	return o.failIf(op, "ask for the node's device", err)
}

// Identify asks for the device that the node belongs to.
func (o *Outlet) Identify(ctx context.Context) (powerctl.Identity, error) {
	d, err := o.device(ctx)
	if err != nil {
		return powerctl.Identity{}, err
	}
	return powerctl.Identity{
		Driver: "powerman", Name: o.c.Name,
		Device: fmt.Sprintf("device %s type %s node %s at %s", d.name, d.kind, o.c.Node, o.c.Address),
	}, nil
}

// Pins returns what can be pinned, as powermand says it now, by the key that the bench
// file has for it. It changes nothing and does not look at what is pinned already.
func (o *Outlet) Pins(ctx context.Context) (map[string]string, error) {
	d, err := o.device(ctx)
	if err != nil {
		return nil, err
	}
	return map[string]string{"device": d.name}, nil
}

func (o *Outlet) device(ctx context.Context) (d device, err error) {
	err = o.with(ctx, "identify", func(c *conversation) error {
		var err error
		d, err = c.device(o.c.Node)
		return o.failIf("identify", "ask for the node's device", err)
	})
	return d, err
}

// Plan implements powerctl.Planner.
func (o *Outlet) Plan(on bool) []string {
	lines := []string{"status " + o.c.Node, "device " + o.c.Node, "off " + o.c.Node}
	if on {
		lines[2] = "on " + o.c.Node
	}
	for i, l := range lines {
		lines[i] = "tcp " + o.c.Address + ": " + l
	}
	return lines
}

// with runs one conversation within the timeout.
func (o *Outlet) with(ctx context.Context, op string, do func(*conversation) error) error {
	limited, cancel := context.WithTimeout(ctx, o.c.Timeout)
	defer cancel()
	if err := limited.Err(); err != nil {
		return o.fail(op, "begin", err)
	}
	conn, err := bridge.Dial(limited, o.c.Address)
	if err != nil {
		return o.fail(op, "connect to "+o.c.Address, err)
	}
	defer conn.Close()
	c := &conversation{conn}
	if err := c.greeting(); err != nil {
		return o.fail(op, "read the greeting of "+o.c.Address, err)
	}
	return do(c)
}

func (o *Outlet) fail(op, step string, err error) error {
	return &powerctl.OpError{Op: op, Outlet: o.c.Name, Step: step, Err: err}
}

func (o *Outlet) failIf(op, step string, err error) error {
	if err == nil {
		return nil
	}
	return o.fail(op, step, err)
}
