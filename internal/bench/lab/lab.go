// Package lab is the bench of real hardware: a database that is reached by its
// DSN, and an outlet that feeds the device under test.
//
// It guarantees that a cut is called observed only when the outlet read back off
// (or the person at a manual outlet said so), that power stays off for the least
// time, and that the outlet is left as configured. It proves nothing of its own:
// what was cut is the person's to attest.
package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"plugpull/internal/campaign"
	"plugpull/internal/clock"
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
	Outlet   powerctl.Outlet
	Policy   powerctl.Policy
	// MinOff is the least time between the observed off and the command to go
	// on: hold-up times and decaying rails make shorter cuts ambiguous.
	MinOff time.Duration
	Attest verifier.Attestation // empty for none
	Leave  Leave
	// Found is the outlet's state before the run, where an earlier process has read
	// it; Unknown has New read it.
	Found powerctl.State
	// Unsettled: an earlier process was killed while it switched, so that its
	// command may still take effect. Ready then switches on whatever the outlet
	// reads, after MinOff where that is not on.
	Unsettled bool
}

// Bench implements campaign.Bench.
type Bench struct {
	c     Config
	id    powerctl.Identity
	lock  *powerctl.Lock
	found powerctl.State
	off   clock.Instant // when the power went off, as far as is known; zero while it is on
	known powerctl.State
}

// New locks the outlet on this machine and changes nothing. Close releases it.
func New(ctx context.Context, c Config) (*Bench, error) {
	id, err := c.Outlet.Identify(ctx)
	if err != nil {
		return nil, fmt.Errorf("identify the outlet: %w", err)
	}
	lock, err := powerctl.Acquire(id)
	if err != nil {
		return nil, err
	}
	b := &Bench{c: c, id: id, lock: lock, found: c.Found}
	if b.found == powerctl.Unknown && c.Outlet.Capabilities().ReadBack {
		r, err := c.Outlet.State(ctx)
		if err != nil {
			return nil, errors.Join(b.failed("read its state", err), lock.Release())
		}
		b.found = r.State
	}
	return b, nil
}

// Found is the outlet's state before the run, Unknown where that was not readable.
func (b *Bench) Found() powerctl.State { return b.found }

// Close releases the outlet's lock and leaves the outlet alone.
func (b *Bench) Close() error { return b.lock.Release() }

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
	if b.c.Unsettled && b.known != powerctl.On {
		b.off = clock.Now() // it went off no later than this
	}
	if err := b.Restore(ctx); err != nil {
		return err
	}
	b.c.Unsettled = false
	return nil
}

func (b *Bench) on(ctx context.Context) error {
	b.known = powerctl.Unknown
	_, err := powerctl.SwitchOn(ctx, b.c.Outlet, b.c.Policy)
	if err != nil && !errors.Is(err, powerctl.ErrNoReadBack) {
		return b.failed("switch it on", err)
	}
	b.known, b.off = powerctl.On, 0
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
	cut.Detail, _ = json.Marshal(r) // plain fields: cannot fail
	b.off = r.Commanded
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
	cut.Observed, b.off, b.known = r.Observed, r.Observed, powerctl.Off
	return cut, nil
}

// Restore waits for the least time off and switches the outlet on.
func (b *Bench) Restore(ctx context.Context) error {
	if b.off > 0 {
		t := time.NewTimer(b.off.Add(b.c.MinOff).Sub(clock.Now()))
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return b.on(ctx)
}

// Leave puts the outlet into the configured state.
func (b *Bench) Leave(ctx context.Context) error {
	want := b.c.Leave
	if want == LeaveAsFound {
		want = LeaveOn
		if b.found == powerctl.Off {
			want = LeaveOff
		}
	}
	if want == LeaveOff {
		if b.known == powerctl.Off {
			return nil
		}
		_, err := powerctl.SwitchOff(ctx, b.c.Outlet, b.c.Policy)
		if err == nil || errors.Is(err, powerctl.ErrNoReadBack) {
			return nil
		}
		return b.failed("switch it off", err)
	}
	if b.known == powerctl.On {
		return nil
	}
	return b.Restore(ctx)
}
