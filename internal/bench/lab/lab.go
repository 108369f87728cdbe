// Package lab is the bench of real hardware: a database that is reached by its
// DSN, and an outlet that feeds the device under test.
//
// It guarantees that a cut is called observed only when the outlet read back off
// (or the person at a manual outlet said so), and that the outlet is left as
// configured. It proves nothing of its own: what was cut is the person's to attest.
package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"plugpull/internal/campaign"
	"plugpull/powerctl"
	"plugpull/verifier"
)

// Leave says in which state the outlet is left at the end.
type Leave string

// The states to leave an outlet in.
const (
	LeaveOn      Leave = "on"
	LeaveOff     Leave = "off"
	LeaveAsFound Leave = "as_found"
)

// Config of a Bench.
type Config struct {
	Database campaign.Database
	Outlet   powerctl.Holder // the caller closes it, after the bench's last use
	Policy   powerctl.Policy
	Attest   verifier.Attestation // empty for none
	Leave    Leave
	// Found is the outlet's state before the run, where an earlier process has read
	// it; Unknown has New read it.
	Found powerctl.State
	// Unsettled: an earlier process was killed while it switched, so that its
	// command may still take effect. Ready then switches on whatever the outlet
	// reads.
	Unsettled bool
}

// Bench implements campaign.Bench.
type Bench struct {
	c     Config
	id    powerctl.Identity
	found powerctl.State
	known powerctl.State // Unknown while it is switched
}

// New reads the outlet and changes nothing.
func New(ctx context.Context, c Config) (*Bench, error) {
	id, err := c.Outlet.Identify(ctx)
	if err != nil {
		return nil, fmt.Errorf("identify the outlet: %w", err)
	}
	b := &Bench{c: c, id: id, found: c.Found}
	if b.found == powerctl.Unknown && c.Outlet.Capabilities().ReadBack {
		r, err := c.Outlet.State(ctx)
		if err != nil {
			return nil, b.failed("read its state", err)
		}
		b.found = r.State
	}
	return b, nil
}

// Found is the outlet's state before the run, Unknown where that was not readable.
func (b *Bench) Found() powerctl.State { return b.found }

// Database implements campaign.Bench.
func (b *Bench) Database() campaign.Database { return b.c.Database }

// Ready makes sure that the outlet is on.
func (b *Bench) Ready(ctx context.Context) error {
	if b.c.Outlet.Capabilities().ReadBack {
		r, err := b.c.Outlet.State(ctx)
		if err != nil {
			return b.failed("read its state", err)
		}
		b.known = r.State
		if r.State == powerctl.On && !b.c.Unsettled {
			return nil
		}
	}
	if err := b.settle(ctx, true); err != nil {
		return err
	}
	b.c.Unsettled = false
	return nil
}

// settle switches it to the state, whatever state that is found in.
func (b *Bench) settle(ctx context.Context, on bool) error {
	b.known = powerctl.Unknown
	step, known := "switch it off", powerctl.Off
	if on {
		step, known = "switch it on", powerctl.On
	}
	if err := powerctl.Settle(ctx, b.c.Outlet, b.c.Policy, on); err != nil {
		return b.failed(step, err)
	}
	b.known = known
	return nil
}

func (b *Bench) failed(step string, err error) error {
	return fmt.Errorf("%v: %s: %w", b.id, step, err)
}

// Cut switches the outlet off.
func (b *Bench) Cut(ctx context.Context) (campaign.Cut, error) {
	b.known = powerctl.Unknown
	r, err := powerctl.SwitchOff(ctx, b.c.Outlet, b.c.Policy)
	cut := campaign.Cut{Commanded: r.Commanded, Attest: b.c.Attest}
	cut.Detail, _ = json.Marshal(evidence{b.id, b.c.Outlet.Capabilities().Class, r}) // plain fields: cannot fail
	switch {
	case errors.Is(err, powerctl.ErrNoReadBack):
		// Acknowledged, and this outlet can say no more.
		return cut, nil
	case err != nil:
		cut.Failed = true
		return cut, b.failed("switch it off", err)
	case r.Before == powerctl.Off:
		cut.Failed = true
		return cut, fmt.Errorf("%v read off before it was switched off: it does not feed the device under test", b.id)
	}
	cut.Observed, b.known = r.Observed, powerctl.Off
	return cut, nil
}

// evidence is what is kept of a cut: which outlet, what lost power, and when.
type evidence struct {
	Outlet powerctl.Identity `json:"outlet"`
	Class  powerctl.Class    `json:"class"`
	powerctl.Result
}

// Restore switches the outlet on; of a group only when all of it was off. It blocks for the least time off.
func (b *Bench) Restore(ctx context.Context) error {
	_, err := powerctl.SwitchOn(ctx, b.c.Outlet, b.c.Policy)
	if err != nil && !errors.Is(err, powerctl.ErrNoReadBack) {
		return b.failed("switch it on", err)
	}
	b.known = powerctl.On
	return nil
}

// Leave puts the outlet into the configured state.
func (b *Bench) Leave(ctx context.Context) error {
	on := b.c.Leave == LeaveOn || b.c.Leave == LeaveAsFound && b.found != powerctl.Off
	if on && b.known == powerctl.On || !on && b.known == powerctl.Off {
		return nil
	}
	return b.settle(ctx, on)
}
