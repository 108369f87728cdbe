package campaign

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"plugpull/client"
	"plugpull/internal/clock"
	"plugpull/internal/ledger"
	"plugpull/internal/report"
	"plugpull/verifier"
)

// Plan is how often and when the power is cut, and what is verified when.
type Plan struct {
	Scenario  string
	Expected  string
	Seed      uint64
	Cycles    int
	After     Range         // of load before the cut; drawn a cycle from Seed
	AfterAcks uint64        // cut after so many acknowledgements instead; zero for none
	Idle      time.Duration // cut so long after the last acknowledgement; zero: in mid-load
	Last      int           // cycles verified every time
	AllEvery  int           // everything is verified every so many cycles, and at the end
}

// Range is a span of time, both ends included.
type Range struct{ Min, Max time.Duration }

// Progress is shown while a run goes on.
type Progress struct {
	Scenario string
	Cycle    uint32
	Done     int // cycles verified
	Planned  int
	Phase    string
	Load     *client.Stats // in the load phase
	Totals   verifier.Totals
	Elapsed  time.Duration
}

// Runner runs one scenario on one bench.
type Runner struct {
	Folder *Folder
	Book   *Book
	Bench  Bench
	Load   Load
	Plan   Plan
	// Silence is the streams' deadline for a reply.
	Silence time.Duration
	// ServerWait bounds the wait for the server after a restore.
	ServerWait time.Duration
	BenchName  string
	// Stack is what the database lies on, in a few words; empty where the bench did not choose it.
	Stack string
	// Control is what the planted fault showed; its Kind is report.NoControl without one.
	Control report.Control
	// Replay returns the command that replays a cycle alone; nil where none can.
	Replay func(cycle uint32) string
	Log    *slog.Logger
	// Stop is closed when the run is to end in order.
	Stop <-chan struct{}
	// Show is called with each step; may be nil.
	Show func(Progress)
	// StopAtFinding ends the run after the first cycle with a finding, so that somebody can
	// look at the device as it is.
	StopAtFinding bool
	// KeepImages keeps the drive's image of each cycle with a finding, also where
	// findings are expected.
	KeepImages bool

	start   clock.Instant
	results []CycleResult
	looks   []CycleResult // verifications outside of cycles, on a device that ends with its process
	resumed bool          // the next verification is of everything
	pending verifier.Counts
	void    int
	fresh   bool          // the device of a Renewing bench is whole
	refused *RefusedError // that ended the run
}

// now is the time that the streams live in.
func (r *Runner) now() clock.Instant {
	if r.Load.Now != nil {
		return r.Load.Now()
	}
	return clock.Now()
}

func (r *Runner) show(n uint32, phase string, st *client.Stats) {
	if r.Show != nil {
		r.Show(Progress{r.Plan.Scenario, n, len(r.results), r.Plan.Cycles, phase, st, r.Book.Index.Totals(), clock.Now().Sub(r.start)})
	}
}

// Run runs the planned cycles, those of an earlier process included, and
// leaves the power as configured. The report is returned also beside an error,
// as far as things went. ErrInterrupted: the person ended it early, and the power was
// left as configured.
func (r *Runner) Run(ctx context.Context) (*report.Run, error) {
	r.start = clock.Now()
	r.Folder.Simulated = r.ends()
	err := r.recall()
	if err == nil && !r.ends() {
		err = r.carryOn(ctx)
	}
	if err == nil {
		err = r.cycles(ctx)
	}
	if errors.As(err, &r.refused) && len(r.results) == 0 {
		err = nil // a verdict
	}
	if err != nil && ctx.Err() != nil {
		err = ErrInterrupted // what it interrupted only says that it was
	}
	if ferr := r.finish(ctx, err); ferr != nil {
		if errors.Is(err, ErrInterrupted) {
			err = nil // it did not end in order
		}
		err = errors.Join(err, ferr)
	}
	// What an unverified cycle committed counts as well. A ledger that cannot be
	// written has said so already.
	if rerr := r.Book.Refresh(context.WithoutCancel(ctx)); rerr != nil && err == nil {
		err = rerr
	}
	rep := r.report(err)
	if werr := r.Folder.WriteJSON("report.json", rep); werr != nil {
		err = errors.Join(err, werr)
	}
	return rep, err
}

// carryOn finds the device as an earlier process, or nobody, has left it.
func (r *Runner) carryOn(ctx context.Context) error {
	if err := r.Bench.Ready(ctx); err != nil {
		return err
	}
	if err := r.await(ctx); err != nil {
		return err
	}
	return r.afterCrash(ctx)
}

func (r *Runner) cycles(ctx context.Context) error {
	for len(r.results) < r.Plan.Cycles {
		select {
		case <-r.Stop:
			return ErrInterrupted
		default:
		}
		r.Book.Cycle++
		c := &cycle{r: r, n: r.Book.Cycle}
		err := c.run(ctx)
		err = errors.Join(err, c.keepEvidence(ctx, err))
		if err != nil {
			if c.kept && r.ends() {
				r.keep(c.res)
			} else {
				r.void++
			}
			return err
		}
		r.keep(c.res)
		r.resumed = false
		if r.StopAtFinding && !(c.res.clean() && r.looksClean()) {
			return nil
		}
	}
	return nil
}

// keep notes a verified cycle.
func (r *Runner) keep(res CycleResult) {
	r.results = append(r.results, res)
	r.pending = verifier.Counts{}
	if !res.Recorded {
		r.pending = res.Counts
	}
}

// await waits for the server's greeting.
func (r *Runner) await(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, r.ServerWait)
	defer cancel()
	err := r.Bench.Database().Await(limited)
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// window is the first session that cycle n verifies; zero for all. Sessions
// whose unknown commits were not pinned yet are always within it.
func (r *Runner) window(n uint32) uint32 {
	done := len(r.results) + 1
	if r.stepping() {
		return 0 // a cycle's epoch is all there is
	}
	if r.resumed || done >= r.Plan.Cycles || r.Plan.AllEvery > 0 && done%r.Plan.AllEvery == 0 || done <= r.Plan.Last {
		return 0
	}
	first := n
	if r.Plan.Last > 1 {
		first = r.results[done-r.Plan.Last].Cycle
	}
	for _, res := range r.results {
		if !res.Recorded {
			first = min(first, res.Cycle)
		}
	}
	return r.Book.Index.SessionOf(first)
}

// recall reads the cycles that an earlier process completed: those whose
// findings are complete in the ledger. Those of a bench that steps are complete with their
// file: no later cycle finds again what was not recorded.
func (r *Runner) recall() error {
	verified, err := r.verified()
	if err != nil {
		return err
	}
	for n := uint32(1); n <= r.Book.Cycle; n++ {
		done, begun := verified[n]
		if !begun { // a replay begins with the cycle that it replays
			continue
		}
		var res CycleResult
		there := false
		if done || r.ends() {
			if there, err = r.Folder.ReadJSON(cycleFile(n), &res); err != nil {
				return err
			}
		}
		switch {
		case there:
			r.keep(res)
		case done:
			return fmt.Errorf("the ledger says that cycle %d was verified, but %s is missing", n, cycleFile(n))
		default:
			r.void++
		}
		if r.ends() {
			if err := r.recallLook(n); err != nil {
				return err
			}
		}
	}
	return nil
}

// recallLook reads what an earlier process has found after cycle n.
func (r *Runner) recallLook(n uint32) error {
	for _, why := range []string{"full", "end"} {
		var look CycleResult
		there, err := r.Folder.ReadJSON(lookFile(n, why), &look)
		if err != nil {
			return err
		}
		if there {
			r.looks = append(r.looks, look)
		}
	}
	return nil
}

func (r *Runner) looksClean() bool {
	return !slices.ContainsFunc(r.looks, func(res CycleResult) bool { return !res.clean() })
}

// keepEvidence keeps what the cut of cycle n left.
func (r *Runner) keepEvidence(ctx context.Context, n uint32) error {
	b, ok := r.Bench.(Keeping)
	if !ok {
		return nil
	}
	surprise := r.Plan.Expected != verifier.Lossy.String()
	text, err := b.Keep(ctx, filepath.Join(r.Folder.Path, filepath.Dir(cycleFile(n))), surprise || r.KeepImages)
	if err != nil {
		return fmt.Errorf("cycle %d: keep the evidence: %w", n, err)
	}
	if surprise {
		r.Log.Warn("kept the state that the cut left", "cycle", n, "look", text)
	}
	return nil
}

func (r *Runner) stepping() bool {
	_, ok := r.Bench.(Stepping)
	return ok
}

// ends reports whether the device ends with this process.
func (r *Runner) ends() bool {
	_, ok := r.Bench.(Renewing)
	return ok
}

// verified has every cycle of the ledger, true for those that were verified.
func (r *Runner) verified() (map[uint32]bool, error) {
	recs, err := r.Book.read(0)
	if err != nil {
		return nil, err
	}
	defer recs.Close()
	done := map[uint32]bool{}
	var rec ledger.Record
	for {
		ok, err := recs.Next(&rec)
		if !ok || err != nil {
			return done, err
		}
		if rec.Cycle > 0 {
			done[rec.Cycle] = done[rec.Cycle] || rec.Kind == ledger.KindMark && ledger.Mark(rec.Code) == ledger.MarkVerified
		}
	}
}

// afterCrash verifies what a killed process has left behind: a cycle that
// counts for nothing but its findings.
func (r *Runner) afterCrash(ctx context.Context) error {
	last, ok := r.Book.Index.Last()
	if !ok {
		return nil
	}
	if n := len(r.results); n > 0 && r.results[n-1].Session == last.Session {
		return nil
	}
	r.resumed = true
	r.show(last.Cycle, "look at the interrupted cycle", nil)
	if err := r.Folder.Note(last.Cycle, "void", "interrupted"); err != nil {
		return err
	}
	return r.look(ctx, "interrupted")
}

// look verifies everything outside of a cycle and keeps what it finds, in the folder of the
// last cycle that was verified, or begun.
func (r *Runner) look(ctx context.Context, why string) error {
	n := r.Book.Cycle
	if last := len(r.results) - 1; r.ends() && last >= 0 {
		n = r.results[last].Cycle
	}
	res := CycleResult{Cycle: n, Whole: true, Ends: map[string]int{}}
	_, err := r.Book.Examine(ctx, r.Bench.Database(), Exam{Keep: func(x *Examination) error {
		res.take(x)
		res.Reason = verifier.ReasonInterrupted
		r.pending = verifier.Counts{}
		if !res.Recorded {
			r.pending = res.Counts
		}
		return r.Folder.WriteJSON(lookFile(n, why), &res)
	}})
	if err == nil {
		r.looks = append(r.looks, res)
		if !res.clean() {
			err = r.keepEvidence(ctx, n)
		}
	}
	return err
}

func lookFile(cycle uint32, why string) string { return fmt.Sprintf("cycles/%04d/%s.json", cycle, why) }

// finish verifies everything once more when the last verification was of a
// part, and leaves the power as configured.
func (r *Runner) finish(ctx context.Context, failed error) error {
	var err error
	if n := len(r.results); n > 0 && !r.results[n-1].Whole && (r.fresh || !r.ends()) && ctx.Err() == nil && (failed == nil || errors.Is(failed, ErrInterrupted)) {
		err = r.look(ctx, "end")
	}
	if nerr := r.Folder.Note(r.Book.Cycle, "leave", ""); nerr != nil {
		err = errors.Join(err, nerr)
	}
	// Also after a second interrupt the outlet is left as configured.
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if lerr := r.Bench.Leave(limited); lerr != nil {
		return errors.Join(err, fmt.Errorf("%w: %w", ErrLeave, lerr))
	}
	return errors.Join(err, r.Folder.Note(r.Book.Cycle, "left", ""))
}
