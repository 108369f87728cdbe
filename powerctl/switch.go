package powerctl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"plugpull/internal/clock"
)

// Policy says how long to look for the commanded state.
type Policy struct {
	// Deadline bounds the reading back, counted from the end of the command,
	// which the driver's own timeout bounds. Devices have been seen to
	// report stale states for 2.5 s, some for 20 s. Must be positive.
	Deadline time.Duration
	// Poll is the pause between two readings; zero is 200 ms.
	Poll time.Duration
}

// SwitchOff sends one off command and reads the state back until it is exactly
// Off. Stale readings and reading errors are tolerated until the policy's
// deadline.
//
// After an error of the command nothing is sent again: unless it matches
// ErrNotSent, the state is read back, and an Off that is found is a success
// with a zero Acknowledged. A nil error means Result.IsOff. ErrNoReadBack means
// that the command was acknowledged by an outlet that cannot report; a
// failed command on such an outlet is not ErrNoReadBack. ErrNotReached: the
// deadline passed; the Result and the error hold the last reading.
//
// It blocks for one reading, the command (both bounded by the driver's timeout)
// and then at most Deadline. When ctx ends after the command was sent the outcome is unknown.
func SwitchOff(ctx context.Context, o Outlet, p Policy) (Result, error) {
	return switchTo(ctx, o, p, "off", Off, o.Off)
}

// SwitchOn is SwitchOff's counterpart.
func SwitchOn(ctx context.Context, o Outlet, p Policy) (Result, error) {
	return switchTo(ctx, o, p, "on", On, o.On)
}

func switchTo(ctx context.Context, o Outlet, p Policy, op string, want State, command func(context.Context) (Result, error)) (Result, error) {
	if p.Deadline <= 0 {
		return Result{}, fmt.Errorf("switch %s: the deadline is missing: %w", op, ErrNotSent)
	}
	before := stateBefore(ctx, o)
	if err := ctx.Err(); err != nil {
		return Result{Before: before}, fmt.Errorf("switch %s: %w: %w", op, ErrNotSent, err)
	}
	res, cmdErr := command(ctx)
	res.Before = before
	seen := res.State == want && res.Commanded != 0 && res.Observed >= res.Commanded
	switch {
	case cmdErr == nil && seen:
		return res, nil
	case cmdErr != nil && errors.Is(cmdErr, ErrNotSent):
		return unobserved(res), cmdErr
	case !o.Capabilities().ReadBack && cmdErr != nil:
		return unobserved(res), cmdErr
	case !o.Capabilities().ReadBack:
		return unobserved(res), fmt.Errorf("switch %s: acknowledged, but %w", op, ErrNoReadBack)
	}
	return readBack(ctx, o, p, op, want, unobserved(res), cmdErr)
}

// stateBefore is best effort: a device that cannot be read now may well be cut.
func stateBefore(ctx context.Context, o Outlet) State {
	if !o.Capabilities().ReadBack {
		return Unknown
	}
	r, err := o.State(ctx)
	if err != nil {
		return Unknown
	}
	return r.State
}

func readBack(ctx context.Context, o Outlet, p Policy, op string, want State, res Result, cmdErr error) (Result, error) {
	limited, cancel := context.WithTimeout(ctx, p.Deadline)
	defer cancel()
	pause := time.NewTimer(0)
	defer pause.Stop()
	var readErr error
	for {
		select {
		case <-limited.Done():
			return res, notReached(ctx, op, res, cmdErr, readErr)
		case <-pause.C:
		}
		r, err := o.State(limited)
		// A reading that was cut short by the deadline says nothing new.
		if limited.Err() == nil || err == nil {
			res.State, res.Raw, readErr = r.State, r.Raw, err
		}
		if err == nil && r.State == want {
			if res.Observed = r.Observed; res.Observed < res.Commanded || res.Observed == 0 {
				res.Observed = clock.Now() // a driver that stamps no readings
			}
			return res, nil
		}
		if errors.Is(err, ErrNoReadBack) {
			return unobserved(res), fmt.Errorf("switch %s: the driver claims to read back: %w", op, errors.Join(cmdErr, ErrNotReached))
		}
		pause.Reset(p.poll())
	}
}

func (p Policy) poll() time.Duration {
	if p.Poll > 0 {
		return p.Poll
	}
	return 200 * time.Millisecond
}

// unobserved takes back what a failed command may have claimed.
func unobserved(r Result) Result {
	r.Observed = 0
	r.State = Unknown
	return r
}

// notReached says which state was last seen and everything that went wrong.
func notReached(ctx context.Context, op string, res Result, cmdErr, readErr error) error {
	err := fmt.Errorf("%w: last read as %s (%q)", ErrNotReached, res.State, res.Raw)
	if cmdErr != nil {
		err = fmt.Errorf("%w; the command had failed: %w", err, cmdErr)
	}
	if readErr != nil {
		err = fmt.Errorf("%w; the last reading failed: %w", err, &readFailure{readErr})
	}
	if ctxErr := ctx.Err(); ctxErr != nil {
		err = fmt.Errorf("%w; interrupted: %w", err, ctxErr)
	}
	return fmt.Errorf("switch %s: %w", op, err)
}

// readFailure is an error of a reading beside a command that was sent: that the reading itself was
// not sent must not read as if the command were not.
type readFailure struct{ err error }

func (e *readFailure) Error() string { return e.err.Error() }

func (e *readFailure) Is(target error) bool { return target != ErrNotSent && errors.Is(e.err, target) }

func (e *readFailure) As(target any) bool { return errors.As(e.err, target) }
