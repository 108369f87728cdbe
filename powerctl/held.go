package powerctl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
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
	o             Outlet
	s             Safety
	id            Identity
	host, machine string // as they were when it was taken: a name may change meanwhile
	lock          *Lock
	store         store
	found         Record

	mu      sync.Mutex // the renewal runs beside
	lost    error
	pending State         // what a command is to bring about that was not seen yet; Unknown where there is none
	left    State         // as last observed by this process; Unknown before that and while a command is pending
	leftAt  clock.Instant // of left
	moved   clock.Instant // the last command
	stop    chan struct{}
	ended   sync.Once
	renewed sync.WaitGroup
}

// Take identifies the outlet, locks it on this machine and leases it; of a Group each feed. It
// switches nothing. A *LockedError or a *LeasedError says who has it.
func Take(ctx context.Context, o Outlet, s Safety) (Holder, error) {
	g, is := o.(*Group)
	if !is {
		all, err := takeAll(ctx, []Feed{{Outlet: o}}, s)
		if err != nil {
			return nil, err
		}
		return all[0], nil
	}
	if _, err := g.Identify(ctx); err != nil { // two feeds that are one outlet
		return nil, err
	}
	all, err := takeAll(ctx, g.feeds, s)
	if err != nil {
		return nil, err
	}
	feeds := make([]Feed, len(all))
	for i, h := range all {
		feeds[i] = Feed{g.feeds[i].Name, h}
	}
	return &heldGroup{&Group{name: g.name, feeds: feeds}, all}, nil
}

// takeAll locks every outlet before it writes to the record of any: who cannot have all of
// them leaves no trace.
func takeAll(ctx context.Context, feeds []Feed, s Safety) (all []*held, err error) {
	named := func(f Feed, err error) error {
		if f.Name == "" {
			return err
		}
		return fmt.Errorf("feed %q: %w", f.Name, err)
	}
	defer func() {
		if err == nil {
			return
		}
		for _, h := range all {
			err = errors.Join(err, h.giveUp())
		}
		all = nil
	}()
	for _, f := range feeds {
		h, err := lockOutlet(ctx, f.Outlet, s)
		if err != nil {
			return all, named(f, err)
		}
		all = append(all, h)
	}
	for i, h := range all {
		if err := h.lease(); err != nil {
			return all, named(feeds[i], err)
		}
	}
	for _, h := range all {
		h.renewed.Go(h.renew)
	}
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

func lockOutlet(ctx context.Context, o Outlet, s Safety) (*held, error) {
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
	h := &held{o: o, s: s, id: id, lock: lock, store: newStore(s.Dir, id), stop: make(chan struct{})}
	h.host, h.machine = thisMachine()
	return h, nil
}

// Prove implements Holder.
func (h *held) Prove(w Wiring) error { return h.update(func(r *Record) { r.Wiring = &w }) }

// Found implements Holder.
func (h *held) Found() []Record { return []Record{h.found} }

func (h *held) lease() error {
	return h.store.change(func(r *Record) error {
		now := time.Now()
		// The machine's own lock is ours: a holder of this machine is dead.
		if r.Owner != "" && r.Machine != h.machine && now.Before(r.Expires) {
			return &LeasedError{Record: *r, File: h.store.path}
		}
		h.found = *r
		r.Outlet, r.Owner, r.Host, r.Machine, r.PID, r.Since, r.Expires = h.id, h.s.Owner, h.host, h.machine, os.Getpid(), now, now.Add(h.s.Lease)
		r.Guard = h.s.Guard
		if h.s.Leave != "" {
			r.Leave = h.s.Leave
		}
		return nil
	})
}

// thisMachine is the host's name, for people, and what tells machines apart: machine-id(5), since
// names are not unique and change; the name where there is none.
func thisMachine() (host, machine string) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	if id, err := os.ReadFile("/etc/machine-id"); err == nil && len(strings.TrimSpace(string(id))) >= 8 {
		return host, strings.TrimSpace(string(id))
	}
	return host, host
}

// update changes our record, or finds that it is not ours any more.
func (h *held) update(f func(*Record)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost != nil {
		return h.lost
	}
	return h.store.change(func(r *Record) error {
		if r.Owner != h.s.Owner || r.Machine != h.machine || r.PID != os.Getpid() {
			by := "it was released (record " + h.store.path + ")"
			if r.Owner != "" {
				by = fmt.Sprintf("by %s on %s (record %s)", r.Owner, r.Host, h.store.path)
			}
			h.lost = fmt.Errorf("%w: %s", ErrLeaseLost, by)
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

// free takes the holder out of a record.
func (r *Record) free() {
	r.Owner, r.Host, r.Machine, r.PID, r.Since, r.Expires, r.Guard = "", "", "", 0, time.Time{}, time.Time{}, false
}

// Close implements Holder.
func (h *held) Close() error {
	h.ended.Do(func() { close(h.stop) })
	h.renewed.Wait()
	err := h.update((*Record).free)
	if errors.Is(err, ErrLeaseLost) {
		err = nil // it is somebody else's, who will say so
	}
	return errors.Join(err, h.lock.Release())
}

// giveUp gives the lock back, and the record to whom it belonged.
func (h *held) giveUp() error {
	err := h.update(func(r *Record) {
		if r.free(); h.found.Outlet != (Identity{}) {
			*r = h.found
		}
	})
	if errors.Is(err, ErrLeaseLost) { // it was only locked
		err = nil
	}
	return errors.Join(err, h.lock.Release())
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
	var was Record
	err = newStore(dir, id).change(func(r *Record) error {
		was = *r
		if r.Owner == "" {
			return errNothing
		}
		if r.Owner != owner {
			return fmt.Errorf("%w: it is %s", ErrOwner, r.Owner)
		}
		r.free()
		return nil
	})
	if errors.Is(err, errNothing) {
		err = nil
	}
	return was, errors.Join(err, lock.Release())
}

// Gone reports whether the holder was a process of this machine that is no more: its lease
// keeps nobody away.
func (r Record) Gone() bool {
	_, machine := thisMachine()
	return r.PID != 0 && r.Machine == machine && errors.Is(syscall.Kill(r.PID, 0), syscall.ESRCH)
}

// ErrOwner: the outlet is held by another owner than the named one.
var ErrOwner = errors.New("the outlet has another holder")

var errNothing = errors.New("nothing to do")

// ReadRecord returns what is written down about an outlet, the zero Record where nothing is.
func ReadRecord(id Identity, dir string) (Record, error) {
	if dir == "" {
		dir = RecordDir()
	}
	return newStore(dir, id).read()
}
