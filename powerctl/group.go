package powerctl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"plugpull/internal/clock"
)

// Group is one host behind several feeds, such as two power supplies. It is off when
// every feed was read off after the command, and on when every feed is on. Off goes to all feeds
// at once; On goes to none unless all are off, or on already.
type Group struct {
	name  string
	feeds []Feed
}

// Feed is a member of a Group.
type Feed struct {
	Name   string
	Outlet Outlet
}

// ErrFeedsDiffer: some feeds of a group are on and some are not, so that power never
// went away from the host. Group.Settle brings them together.
var ErrFeedsDiffer = errors.New("some feeds of the group are on and some are not: switch the group off first, so that power really goes away")

// NewGroup returns the feeds as one outlet. They need different names and one class, and all can
// report their state or none.
func NewGroup(name string, feeds []Feed) (*Group, error) {
	if len(feeds) < 2 {
		return nil, fmt.Errorf("group %q: %d feeds, want at least 2", name, len(feeds))
	}
	first := feeds[0].Outlet.Capabilities()
	seen := map[string]bool{}
	for _, f := range feeds {
		c := f.Outlet.Capabilities()
		if c.Class != first.Class {
			return nil, fmt.Errorf("group %q: feed %q is of class %s, want %s as the first", name, f.Name, c.Class, first.Class)
		}
		if c.ReadBack != first.ReadBack {
			// As blind as its blindest feed, it would send on while another feed reads on.
			return nil, fmt.Errorf("group %q: of the feeds %q and %q one can report its state and the other cannot, which no cut can be trusted to", name, feeds[0].Name, f.Name)
		}
		if seen[f.Name] {
			return nil, fmt.Errorf("group %q: two feeds are named %q", name, f.Name)
		}
		seen[f.Name] = true
	}
	return &Group{name: name, feeds: slices.Clone(feeds)}, nil
}

// Capabilities implements Outlet: a group is tried as little as the least tried feed.
func (g *Group) Capabilities() Capabilities {
	order := []Tried{TriedNothing, TriedSimulator, TriedPeer, TriedHardware, TriedOwn}
	all := g.feeds[0].Outlet.Capabilities()
	for _, f := range g.feeds[1:] {
		c := f.Outlet.Capabilities()
		if slices.Index(order, c.Tried) < slices.Index(order, all.Tried) {
			all.Tried = c.Tried
		}
	}
	return all
}

// Identify implements Outlet. Two feeds that are one outlet are an error.
func (g *Group) Identify(ctx context.Context) (Identity, error) {
	var all []string
	seen := map[Identity]string{}
	for _, f := range g.feeds {
		id, err := f.Outlet.Identify(ctx)
		if err != nil {
			return Identity{}, fmt.Errorf("feed %q: %w", f.Name, err)
		}
		if other, twice := seen[id]; twice {
			return Identity{}, fmt.Errorf("group %q: the feeds %q and %q are the same outlet", g.name, other, f.Name)
		}
		seen[id] = f.Name
		all = append(all, id.Driver+" "+id.Device)
	}
	return Identity{Driver: "group", Device: strings.Join(all, " + "), Name: g.name}, nil
}

// Plan implements Planner.
func (g *Group) Plan(on bool) []string {
	var all []string
	for _, f := range g.feeds {
		for _, line := range PlanOf(f.Outlet, on) {
			all = append(all, "feed "+f.Name+": "+line)
		}
	}
	return all
}

// Warnings implements Warner.
func (g *Group) Warnings(ctx context.Context) ([]Warning, error) {
	var all []Warning
	for _, f := range g.feeds {
		list, err := WarningsOf(ctx, f.Outlet)
		if err != nil {
			return all, fmt.Errorf("feed %q: %w", f.Name, err)
		}
		for _, x := range list {
			x.Text = "feed " + f.Name + ": " + x.Text
			all = append(all, x)
		}
	}
	return all, nil
}

// Off implements Outlet: it goes to every feed at once, also when one of them fails.
func (g *Group) Off(ctx context.Context) (Result, error) {
	return g.every(ctx, Outlet.Off)
}

// On implements Outlet. It reads every feed first: unless all of them are off, or
// all are on, it sends nothing and returns ErrFeedsDiffer. Feeds that cannot report are
// taken for off.
func (g *Group) On(ctx context.Context) (Result, error) {
	if g.Capabilities().ReadBack {
		r, err := g.State(ctx)
		if err != nil {
			return r, &OpError{Op: "on", Outlet: g.name, Step: "read the feeds first", Err: fmt.Errorf("%w: %w", ErrNotSent, err)}
		}
		if r.State != Off && r.State != On {
			err := fmt.Errorf("%w: %w: %s", ErrNotSent, ErrFeedsDiffer, r.Raw)
			return r, &OpError{Op: "on", Outlet: g.name, Step: "compare the feeds", Err: err}
		}
	}
	return g.every(ctx, Outlet.On)
}

// State implements Outlet: On or Off when every feed is, Fault or Unknown when one is,
// Pending where they differ.
func (g *Group) State(ctx context.Context) (Result, error) {
	return g.every(ctx, Outlet.State)
}

// Settle switches every feed to on, or off, whatever the others are: for the state that
// is left behind, when no cut is to be measured any more.
func (g *Group) Settle(ctx context.Context, p Policy, on bool) error {
	errs := make([]error, len(g.feeds))
	g.concurrently(func(i int, f Feed) {
		if err := Settle(ctx, f.Outlet, p, on); err != nil {
			errs[i] = fmt.Errorf("feed %q: %w", f.Name, err)
		}
	})
	return errors.Join(errs...)
}

// Settle leaves an outlet on, or off, when no cut is to be measured any more: of a group also where its
// feeds differ. An outlet that cannot report has taken the command.
func Settle(ctx context.Context, o Outlet, p Policy, on bool) error {
	if g, is := o.(interface {
		Settle(context.Context, Policy, bool) error
	}); is {
		return g.Settle(ctx, p, on)
	}
	do := SwitchOff
	if on {
		do = SwitchOn
	}
	_, err := do(ctx, o, p)
	if errors.Is(err, ErrNoReadBack) {
		return nil
	}
	return err
}

func (g *Group) concurrently(f func(i int, feed Feed)) {
	var wg sync.WaitGroup
	for i, feed := range g.feeds {
		wg.Go(func() { f(i, feed) })
	}
	wg.Wait()
}

// every asks all feeds and puts their evidence together: commanded when the first was,
// acknowledged and observed when the last was.
func (g *Group) every(ctx context.Context, do func(Outlet, context.Context) (Result, error)) (Result, error) {
	results, errs := make([]Result, len(g.feeds)), make([]error, len(g.feeds))
	g.concurrently(func(i int, f Feed) { results[i], errs[i] = do(f.Outlet, ctx) })
	all := Result{State: results[0].State, Acknowledged: 1, Observed: 1}
	var raw []string
	for i, r := range results {
		if r.Commanded != 0 && (all.Commanded == 0 || r.Commanded < all.Commanded) {
			all.Commanded = r.Commanded
		}
		all.Acknowledged, all.Observed = last(all.Acknowledged, r.Acknowledged), last(all.Observed, r.Observed)
		all.State = together(all.State, r.State)
		raw = append(raw, fmt.Sprintf("%s: %s %s", g.feeds[i].Name, r.State, r.Raw))
	}
	if all.State != On && all.State != Off {
		all.Observed = 0
	}
	all.Raw = strings.Join(raw, "; ")
	all.Raw = all.Raw[:min(len(all.Raw), MaxRaw)]
	return all, g.failure(errs)
}

// last is the later of two instants, and zero where one did not happen.
func last(a, b clock.Instant) clock.Instant {
	if a == 0 || b == 0 {
		return 0
	}
	return max(a, b)
}

// together is the state of two feeds seen as one.
func together(a, b State) State {
	worst := []State{Fault, Unknown, Pending}
	for _, w := range worst {
		if a == w || b == w {
			return w
		}
	}
	if a != b {
		return Pending
	}
	return a
}

// failure is nil when nothing failed.
func (g *Group) failure(errs []error) error {
	all := &groupError{group: g.name}
	for i, err := range errs {
		if err != nil {
			all.failed = append(all.failed, fmt.Errorf("feed %q: %w", g.feeds[i].Name, err))
		}
	}
	if len(all.failed) == 0 {
		return nil
	}
	all.whole = len(all.failed) == len(errs)
	return all
}

// groupError: a command that reached one feed was sent, so that ErrNotSent and
// ErrNoReadBack hold of a group only when they hold of every feed.
type groupError struct {
	group  string
	failed []error
	whole  bool // every feed failed
}

func (e *groupError) Error() string { return errors.Join(e.failed...).Error() }

func (e *groupError) Is(target error) bool {
	is := func(err error) bool { return errors.Is(err, target) }
	if target == ErrNotSent || target == ErrNoReadBack {
		return e.whole && !slices.ContainsFunc(e.failed, func(err error) bool { return !is(err) })
	}
	return slices.ContainsFunc(e.failed, is)
}

func (e *groupError) As(target any) bool {
	return slices.ContainsFunc(e.failed, func(err error) bool { return errors.As(err, target) })
}

// Feeds returns the members.
func (g *Group) Feeds() []Feed { return slices.Clone(g.feeds) }
