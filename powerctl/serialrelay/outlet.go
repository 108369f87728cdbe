package serialrelay

import (
	"context"
	"errors"
	"fmt"

	"plugpull/internal/clock"
	"plugpull/powerctl"
)

// Outlet implements powerctl.Outlet and Planner with one relay of a board. Contact decides
// what off means: the relay released (normally open) or energised (normally closed).
type Outlet struct {
	b *Board
	c OutletConfig
}

// Outlet returns one relay of the board. It sends nothing.
func (b *Board) Outlet(c OutletConfig) (*Outlet, error) {
	if err := c.validate(b.c); err != nil {
		return nil, fmt.Errorf("serial relay outlet: %w", err)
	}
	return &Outlet{b, c}, nil
}

// Tried says against what the driver was run.
const Tried = powerctl.TriedSimulator

// Capabilities implements powerctl.Outlet. The zero Outlet may be asked too, for a list of
// drivers; it has no board to read back from.
func (o *Outlet) Capabilities() powerctl.Capabilities {
	c := powerctl.Capabilities{Class: o.c.Class, Tried: Tried}
	if o.b != nil {
		request, _ := o.b.wire.query(o.c.Channel)
		c.ReadBack = request != nil
	}
	return c
}

// Plan implements powerctl.Planner. A port that has gone away is opened again first, and the
// board is asked who it is.
func (o *Outlet) Plan(on bool) []string {
	frame, _ := o.b.wire.command(o.c.Channel, o.c.Contact.Energised(on))
	text := ""
	if o.b.c.Protocol == Numato {
		text = fmt.Sprintf(" (%q)", frame)
	}
	return []string{fmt.Sprintf("write % x%s to %s (%s, %d baud)", frame, text, o.b.c.Path, o.b.c.Protocol, o.b.c.Baud)}
}

// Off takes the power away. Acknowledged is when the board echoed the command
// (Numato), or when the command had left for a board that answers none (LCUS, KMTronic).
func (o *Outlet) Off(ctx context.Context) (powerctl.Result, error) {
	return o.command(ctx, "off", o.c.Contact.Energised(false))
}

// On is Off's counterpart.
func (o *Outlet) On(ctx context.Context) (powerctl.Result, error) {
	return o.command(ctx, "on", o.c.Contact.Energised(true))
}

func (o *Outlet) command(ctx context.Context, op string, energise bool) (powerctl.Result, error) {
	var res powerctl.Result
	frame, j := o.b.wire.command(o.c.Channel, energise)
	err := o.b.with(ctx, func(ctx context.Context) error {
		ambiguous := j != nil && o.b.owes(frame)
		res.Commanded = clock.Now()
		if err := o.b.order(ctx, frame, j); err != nil {
			return err
		}
		if ambiguous {
			return fmt.Errorf("%w: an earlier command of the kind was not answered", ErrNotAnAnswer)
		}
		res.Acknowledged = clock.Now()
		return nil
	})
	if err == nil {
		return res, nil
	}
	if errors.Is(err, powerctl.ErrNotSent) {
		res.Commanded = 0
	}
	return res, o.fail(op, "command the relay", err)
}

// order sends a command, and waits for the answer where there is one. Where there
// is none the frame counts as owed: a line that echoes may bring it back, and
// KMTronic's looks like a status.
func (b *Board) order(ctx context.Context, frame []byte, j judge) error {
	if j == nil {
		b.owe(frame)
		return b.port.send(ctx, frame)
	}
	got, r, err := b.exchange(ctx, frame, j, 0)
	if err == nil && r != accepted {
		return fmt.Errorf("%w: %q", ErrNotAnAnswer, printable(got))
	}
	return err
}

// State asks the board. Anything but an exact answer is Unknown.
func (o *Outlet) State(ctx context.Context) (powerctl.Result, error) {
	request, j := o.b.wire.query(o.c.Channel)
	if request == nil {
		return powerctl.Result{}, o.fail("state", "ask for the relay", powerctl.ErrNoReadBack)
	}
	var said []byte
	var r reading
	err := o.b.with(ctx, func(ctx context.Context) (err error) {
		said, r, err = o.b.relay(ctx, request, j)
		return err
	})
	res := powerctl.Result{Raw: printable(said)}
	if err != nil {
		return res, o.fail("state", "ask for the relay", err)
	}
	res.State = power(o.c.Contact, r)
	if res.State == powerctl.On || res.State == powerctl.Off {
		res.Observed = clock.Now()
	}
	return res, nil
}

func (o *Outlet) fail(op, step string, err error) error {
	return &powerctl.OpError{Op: op, Outlet: o.c.Name, Step: step, Err: err}
}
