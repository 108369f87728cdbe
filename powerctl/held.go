package powerctl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"plugpull/internal/clock"
)

// Safety is what keeps an outlet from being switched wrongly. The zero value of a time
// means that there is no such limit.
type Safety struct {
	// MinOff is the least time between off and the command to go on: supplies hold up,
	// and rails decay. MinOn is its counterpart.
	MinOff, MinOn time.Duration
	// Owner names the holder to others; empty is the user and this process.
	Owner string
	// Lease is how long others respect a holder that has gone silent: one of another
	// machine, since of this one it is seen whether its process lives. Must be positive.
	Lease time.Duration
	// Dir holds the outlets' records; empty is RecordDir. Control hosts that share
	// outlets share a folder, and have clocks that agree.
	Dir string
	// Leave is the state that is to be left behind, on or off, for the record.
	Leave string
	// Guard: see Record.
	Guard bool
	// Confirm is the pause between readings that must agree before a state is
	// called changed by somebody else; zero is one second.
	Confirm time.Duration
}

// ChangedError: the outlet is not as it was left by this process: somebody or something else
// switched it. Nothing was sent.
type ChangedError struct {
	Outlet    Identity
	Left, Got State
	Since     time.Time
}

func (e *ChangedError) Error() string {
	return fmt.Sprintf("%v was left %s at %s and now reads %s: somebody else switches it, or it switches by itself", e.Outlet, e.Left,
		e.Since.Local().Format(time.DateTime), e.Got)
}

// Holder is an outlet, or a group of them, that this process alone switches. Each command waits
// for the least time, checks that the lease is still ours and that nobody else has switched
// the outlet, and is written down before it is sent. One goroutine at a time uses it.
type Holder interface {
	Outlet
	// Found is what the last holders left behind, a record an outlet: an open Intent in it
	// means that nobody knows whether that command took effect.
	Found() []Record
	// Prove writes down that the wiring was proven.
	Prove(w Wiring) error
	// Close ends the leases and gives the locks back. It leaves the outlets alone; an intent that
	// is open stays written down.
	Close() error
}

// held is a Holder of one outlet.
type held struct {
	o     Outlet
	s     Safety
	id    Identity
	lock  *Lock
	store store
	found Record

	mu      sync.Mutex // the renewal runs beside
	lost    error
	left    State         // as last observed by this process; Unknown before that and after a failed command
	leftAt  clock.Instant // of left
	moved   clock.Instant // the last command, or the last reading that showed a change
	stop    chan struct{}
	ended   sync.Once
	renewed sync.WaitGroup
}

// Take identifies the outlet, locks it on this machine and leases it; of a Group each feed. It
// switches nothing. A *LockedError or a *LeasedError says who has it.
func Take(ctx context.Context, o Outlet, s Safety) (Holder, error) {
	g, is := o.(*Group)
	if !is {
		return take(ctx, o, s)
	}
	if _, err := g.Identify(ctx); err != nil { // two feeds that are one outlet
		return nil, err
	}
	all := &heldGroup{}
	var feeds []Feed
	for _, f := range g.feeds {
		h, err := take(ctx, f.Outlet, s)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("feed %q: %w", f.Name, err), all.Close())
		}
		all.held = append(all.held, h)
		feeds = append(feeds, Feed{f.Name, h})
	}
	all.Group = &Group{name: g.name, feeds: feeds}
	return all, nil
}

// heldGroup is a Holder of a group.
type heldGroup struct {
	*Group
	held []*held
}

// Found implements Holder.
func (g *heldGroup) Found() (all []Record) {
	for _, h := range g.held {
		all = append(all, h.found)
	}
	return all
}

// Prove implements Holder.
func (g *heldGroup) Prove(w Wiring) error {
	var errs []error
	for _, h := range g.held {
		errs = append(errs, h.Prove(w))
	}
	return errors.Join(errs...)
}

// Close implements Holder.
func (g *heldGroup) Close() error {
	var errs []error
	for _, h := range g.held {
		errs = append(errs, h.Close())
	}
	return errors.Join(errs...)
}

func take(ctx context.Context, o Outlet, s Safety) (*held, error) {
	if s.Lease <= 0 {
		return nil, errors.New("take the outlet: the time of the lease is missing")
	}
	if s.Dir == "" {
		s.Dir = RecordDir()
	}
	if s.Owner == "" {
		s.Owner = fmt.Sprintf("user %d", os.Getuid())
	}
	if s.Confirm == 0 {
		s.Confirm = time.Second
	}
	id, err := o.Identify(ctx)
	if err != nil {
		return nil, fmt.Errorf("identify the outlet: %w", err)
	}
	lock, err := Acquire(id)
	if err != nil {
		return nil, err
	}
	h := &held{o: o, s: s, id: id, lock: lock, stop: make(chan struct{})}
	if h.store, err = newStore(s.Dir, id); err == nil {
		err = h.lease()
	}
	if err != nil {
		return nil, errors.Join(err, lock.Release())
	}
	h.renewed.Go(h.renew)
	return h, nil
}

// Prove implements Holder.
func (h *held) Prove(w Wiring) error { return h.update(func(r *Record) { r.Wiring = &w }) }

// Found implements Holder.
func (h *held) Found() []Record { return []Record{h.found} }

func (h *held) lease() error {
	host := thisMachine()
	return h.store.change(func(r *Record) error {
		now := time.Now()
		// The machine's own lock is ours: a holder of this machine is dead.
		if r.Owner != "" && r.Host != host && now.Before(r.Expires) {
			return &LeasedError{Record: *r, File: h.store.path}
		}
		h.found = *r
		r.Outlet, r.Owner, r.Host, r.PID, r.Since, r.Expires, r.Leave = h.id, h.s.Owner, host, os.Getpid(), now, now.Add(h.s.Lease), h.s.Leave
		r.Guard = h.s.Guard
		return nil
	})
}

// thisMachine is the host's name and, since names are not unique, the beginning of its
// machine id (machine-id(5)) where it has one.
func thisMachine() string {
	name, err := os.Hostname()
	if err != nil {
		name = "unknown host"
	}
	if id, err := os.ReadFile("/etc/machine-id"); err == nil && len(id) >= 8 {
		name += " " + string(id[:8])
	}
	return name
}

// update changes our record, or finds that it is not ours any more.
func (h *held) update(f func(*Record)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost != nil {
		return h.lost
	}
	host := thisMachine()
	return h.store.change(func(r *Record) error {
		if r.Owner != h.s.Owner || r.Host != host || r.PID != os.Getpid() {
			h.lost = fmt.Errorf("%w: %s on %s (record %s)", ErrLeaseLost, r.Owner, r.Host, h.store.path)
			return h.lost
		}
		r.Expires = time.Now().Add(h.s.Lease)
		f(r)
		return nil
	})
}

func (h *held) renew() {
	t := time.NewTicker(max(h.s.Lease/3, time.Second))
	defer t.Stop()
	for {
		select {
		case <-h.stop:
			return
		case <-t.C:
			// An error shows itself at the next command, which writes the record first.
			_ = h.update(func(*Record) {})
		}
	}
}

// Close implements Holder.
func (h *held) Close() error {
	h.ended.Do(func() { close(h.stop) })
	h.renewed.Wait()
	err := h.update(func(r *Record) {
		r.Owner, r.Host, r.PID, r.Since, r.Expires, r.Guard = "", "", 0, time.Time{}, time.Time{}, false
	})
	if errors.Is(err, ErrLeaseLost) {
		err = nil // it is somebody else's, who will say so
	}
	return errors.Join(err, h.lock.Release())
}

// Capabilities implements Outlet.
func (h *held) Capabilities() Capabilities { return h.o.Capabilities() }

// Identify implements Outlet.
func (h *held) Identify(ctx context.Context) (Identity, error) { return h.o.Identify(ctx) }

// Off implements Outlet.
func (h *held) Off(ctx context.Context) (Result, error) { return h.command(ctx, "off", Off, h.o.Off) }

// On implements Outlet.
func (h *held) On(ctx context.Context) (Result, error) { return h.command(ctx, "on", On, h.o.On) }

// State implements Outlet.
func (h *held) State(ctx context.Context) (Result, error) {
	r, err := h.o.State(ctx)
	if err == nil {
		h.observed(r)
	}
	return r, err
}

// Plan implements Planner where the driver does.
func (h *held) Plan(on bool) []string { return PlanOf(h.o, on) }

// Warnings implements Warner where the driver does.
func (h *held) Warnings(ctx context.Context) ([]Warning, error) { return WarningsOf(ctx, h.o) }

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
	if err := h.update(func(r *Record) { r.Intent = &Intent{Op: op, At: time.Now()} }); err != nil {
		return notSent("write the intent down", err)
	}
	h.left = Unknown
	r, err := send(ctx)
	if errors.Is(err, ErrNotSent) {
		return r, errors.Join(err, h.update(func(r *Record) { r.Intent = nil }))
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

// observed keeps what was read, in the record when it is the end of an intent.
func (h *held) observed(r Result) {
	if r.Observed == 0 || r.State != On && r.State != Off || h.left != Unknown {
		// A reading that differs from how we left it is for the next command to judge.
		return
	}
	h.left, h.leftAt = r.State, r.Observed
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
	var wait time.Duration
	switch {
	case h.left == want: // nothing moves
	case since != 0:
		wait = since.Add(least).Sub(clock.Now())
	case h.found.Intent.Open():
		wait = least // somebody was killed while he switched: it may have moved just now
	case h.found.State != want && !h.found.StateAt.IsZero():
		// By the wall clock, which may have been set meanwhile.
		if gone := time.Since(h.found.StateAt); gone >= 0 && gone < least {
			wait = least - gone
		}
	}
	return pause(ctx, wait)
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

// Release ends somebody else's lease of an outlet: for a holder that is gone for good. It
// takes the machine's lock for the moment, so that a holder of this machine is never robbed. owner must be
// that of the record, else ErrOwner.
func Release(id Identity, dir, owner string) (Record, error) {
	if dir == "" {
		dir = RecordDir()
	}
	lock, err := Acquire(id)
	if err != nil {
		return Record{}, err
	}
	st, err := newStore(dir, id)
	var was Record
	if err == nil {
		err = st.change(func(r *Record) error {
			was = *r
			if r.Owner == "" {
				return errNothing
			}
			if r.Owner != owner {
				return fmt.Errorf("%w: it is %s", ErrOwner, r.Owner)
			}
			r.Owner, r.Host, r.PID, r.Since, r.Expires = "", "", 0, time.Time{}, time.Time{}
			return nil
		})
	}
	if errors.Is(err, errNothing) {
		err = nil
	}
	return was, errors.Join(err, lock.Release())
}

// Gone reports whether the holder was a process of this machine that is no more: its lease
// keeps nobody away.
func (r Record) Gone() bool {
	return r.PID != 0 && r.Host == thisMachine() && errors.Is(syscall.Kill(r.PID, 0), syscall.ESRCH)
}

// ErrOwner: the outlet is held by another owner than the named one.
var ErrOwner = errors.New("the outlet has another holder")

var errNothing = errors.New("nothing to do")

// ReadRecord returns what is written down about an outlet, the zero Record where nothing is.
func ReadRecord(id Identity, dir string) (r Record, err error) {
	if dir == "" {
		dir = RecordDir()
	}
	st, err := newStore(dir, id)
	if err != nil {
		return r, err
	}
	err = st.change(func(now *Record) error { r = *now; return errNothing })
	if errors.Is(err, errNothing) || errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EROFS) {
		err = nil
	}
	return r, err
}
