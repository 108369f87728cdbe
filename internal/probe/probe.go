package probe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"plugpull/internal/usage"
)

// DefaultFor is how long a probe commits when nothing else is asked for.
const DefaultFor = 10 * time.Second

// Bounds of the options.
const (
	MaxFor     = time.Hour
	MaxCommits = 10_000_000
)

// Options of a Run. It ends with whichever of For and Commits is reached first; both zero: DefaultFor.
type Options struct {
	For     time.Duration
	Commits uint64
	// Tick is called about once a second of measured time, by the goroutine of Run; nil: not at all.
	Tick func(Tick)
	// Around is called by the goroutine of Run just before the first commit (true) and just after the last
	// (false), so that counters can be read for the commits alone; nil: not at all.
	Around func(begin bool)
}

// Tick is how far a probe is.
type Tick struct {
	Took    time.Duration
	Commits uint64
	Rate    float64 // commits a second since the tick before
}

func (o Options) validate() (Options, error) {
	switch {
	case o.For < 0 || o.For > MaxFor:
		return o, usage.Errorf("a probe lasts at most %v", MaxFor)
	case o.Commits > MaxCommits:
		return o, usage.Errorf("a probe makes at most %d commits", MaxCommits)
	case o.For == 0 && o.Commits == 0:
		o.For = DefaultFor
	case o.For == 0:
		o.For = MaxFor
	}
	return o, nil
}

// Target is where a probe commits: a Server or a Folder.
type Target interface {
	// measure commits until the goal is reached or ctx is done, and removes what it made. Its error is ctx's
	// where that ended it.
	measure(ctx context.Context, r *Result, g *goal) error
}

// goal says when to stop, and collects what was measured until then.
type goal struct {
	*meter
	limit  time.Duration
	most   uint64
	around func(bool)
	began  time.Time
}

// run times loop, which commits until the goal is reached.
func (g *goal) run(loop func() error) error {
	if g.around != nil {
		g.around(true)
		defer g.around(false)
	}
	g.began = time.Now()
	return loop()
}

// reached reports whether it is enough. The time is the wall clock's, so that a server that answers slowly
// between its chunks does not make a probe endless.
func (g *goal) reached() bool {
	return g.most > 0 && g.commits >= g.most || time.Since(g.began) >= g.limit
}

// Run commits to the target with one client, and removes what it made. It blocks until that is done; ctx
// interrupts it, and then the result holds what was measured before, Result.Interrupted is set and the
// error is ctx's. Whatever the error is, the result holds what was measured. Errors of the caller are *usage.Error.
// What the probe made is removed in the same way then, for up to half a minute. A flush that hangs in the kernel cannot be interrupted in a Folder.
func Run(ctx context.Context, t Target, o Options) (Result, error) {
	o, err := o.validate()
	if err != nil {
		return Result{}, err
	}
	g := &goal{meter: newMeter(o.Tick), limit: o.For, most: o.Commits, around: o.Around}
	r := Result{Began: time.Now().UTC().Truncate(time.Second)}
	err = t.measure(ctx, &r, g)
	g.fill(&r)
	if err == nil {
		return r, nil
	}
	if cause := ctx.Err(); cause != nil {
		r.Interrupted = true
		if !errors.Is(err, cause) { // the driver has its own words for it
			err = errors.Join(cause, err)
		}
	}
	return r, fmt.Errorf("probe: %w", err)
}
