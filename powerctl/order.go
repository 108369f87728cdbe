package powerctl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"plugpull/internal/clock"
)

// Capabilities implements Outlet.
func (h *held) Capabilities() Capabilities { return h.o.Capabilities() }

// Identify implements Outlet.
func (h *held) Identify(ctx context.Context) (Identity, error) { return h.o.Identify(ctx) }

// Plan implements Planner where the driver does.
func (h *held) Plan(on bool) []string { return PlanOf(h.o, on) }

// Warnings implements Warner where the driver does.
func (h *held) Warnings(ctx context.Context) ([]Warning, error) { return WarningsOf(ctx, h.o) }

// Off implements Outlet. What ctx ends is the wait before the command, and never the command itself, which the
// driver's own timeout bounds: one that is cut short half way leaves nothing but questions.
func (h *held) Off(ctx context.Context) (Result, error) { return h.command(ctx, "off", Off, h.o.Off) }

// On is Off's counterpart.
func (h *held) On(ctx context.Context) (Result, error) { return h.command(ctx, "on", On, h.o.On) }

// State implements Outlet.
func (h *held) State(ctx context.Context) (Result, error) {
	r, err := h.o.State(ctx)
	if err == nil {
		h.observed(r)
	}
	return r, err
}

func (h *held) command(ctx context.Context, op string, want State, send func(context.Context) (Result, error)) (Result, error) {
	notSent := func(step string, err error) (Result, error) {
		return Result{}, &OpError{Op: op, Outlet: h.id.Name, Step: step, Err: fmt.Errorf("%w: %w", ErrNotSent, err)}
	}
	if err := h.least(ctx, want); err != nil {
		return notSent("wait for the least time in its state", err)
	}
	if err := h.unchanged(ctx); err != nil {
		return notSent("see whether it is as it was left", err)
	}
	var before *Intent
	err := h.update(func(r *Record) {
		before, r.Intent = r.Intent, &Intent{Op: op, At: time.Now(), PID: os.Getpid()}
	})
	// What we have switched off is switched on again also when that cannot be written down: nobody is helped by an
	// outlet that stays off because a disk is full.
	if err != nil && (want != On || h.moved == 0 || errors.Is(err, ErrLeaseLost)) {
		return notSent("write the intent down", err)
	}
	h.left, h.pending = Unknown, want
	r, err := send(context.WithoutCancel(ctx))
	if errors.Is(err, ErrNotSent) {
		h.pending = Unknown
		return r, errors.Join(err, h.update(func(r *Record) { r.Intent = before }))
	}
	h.moved = clock.Now()
	switch {
	case err == nil && r.State == want:
		h.observed(r)
	case err == nil && !h.o.Capabilities().ReadBack:
		_ = h.update(func(r *Record) { r.Intent.Done = time.Now() })
	}
	return r, err
}

// observed keeps how the outlet was left: what the pending command was to bring about, once that is read, and nothing
// that is read before, since devices show old states for a while. Without a command it is the first reading. A reading
// that differs later is for the next command to judge.
func (h *held) observed(r Result) {
	switch {
	case r.Observed == 0 || r.State != On && r.State != Off || h.left != Unknown:
		return
	case h.pending != Unknown && r.State != h.pending:
		return
	}
	h.left, h.leftAt = r.State, r.Observed
	if was := h.found; h.pending == Unknown && h.moved == 0 && was.State == r.State && !was.StateAt.IsZero() && !was.Intent.Open() {
		// As the last holder left it, and since then, as far as the wall clock can tell.
		if since := time.Since(was.StateAt); since > 0 {
			h.leftAt = clock.Now().Add(-since)
		}
		return
	}
	h.pending = Unknown
	// Best effort: the next command needs the record on disk, and fails without it.
	_ = h.update(func(rec *Record) {
		rec.State, rec.StateAt = r.State, time.Now()
		if rec.Intent.Open() && rec.Intent.Op == r.State.String() {
			rec.Intent.Done = rec.StateAt
		}
	})
}

// unchanged is an error when the outlet reads as the opposite of what this process saw last, and
// goes on doing so. What cannot be read now is no evidence of a change.
func (h *held) unchanged(ctx context.Context) error {
	if h.left == Unknown || !h.o.Capabilities().ReadBack {
		return nil
	}
	var got State
	for try := range 3 { // some devices show an old state for a moment
		if try > 0 {
			if err := pause(ctx, h.s.Confirm); err != nil {
				return err
			}
		}
		r, err := h.o.State(ctx)
		if err != nil || r.State == h.left || r.State != On && r.State != Off {
			return nil
		}
		got = r.State
	}
	return &ChangedError{Outlet: h.id, Left: h.left, Got: got, Since: time.Now().Add(-clock.Now().Sub(h.leftAt))}
}

// least waits until the outlet was long enough in the state that it is to leave.
func (h *held) least(ctx context.Context, want State) error {
	least := h.s.MinOn
	if want == On {
		least = h.s.MinOff
	}
	since := h.moved
	if h.left != Unknown && h.left != want && h.leftAt > since {
		since = h.leftAt
	}
	if h.left == want { // nothing moves
		return ctx.Err()
	}
	if since != 0 {
		return pause(ctx, since.Add(least).Sub(clock.Now()))
	}
	return pause(ctx, h.found.rest(want, least))
}

// rest is how much of a least time is left after what earlier holders did, by the wall clock. One that was set
// back, and a command that nobody saw take effect, leave all of it.
func (r Record) rest(want State, least time.Duration) time.Duration {
	last := r.StateAt
	if r.State == want {
		last = time.Time{} // it is there already
	}
	if r.Intent != nil && r.Intent.Op != want.String() {
		if r.Intent.Open() {
			return least
		}
		if r.Intent.Done.After(last) {
			last = r.Intent.Done
		}
	}
	if last.IsZero() {
		return 0
	}
	gone := time.Since(last)
	if gone < 0 {
		return least
	}
	return least - gone
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
