package campaign

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"plugpull/client"
	"plugpull/internal/clock"
	"plugpull/internal/ledger"
	"plugpull/internal/workload"
	"plugpull/verifier"
)

// CycleResult is what cycles/NNNN/cycle.json holds. It is durable before the
// cycle's findings are recorded in the ledger.
type CycleResult struct {
	Cycle        uint32              `json:"cycle"`
	Session      uint32              `json:"session"`
	Reason       verifier.Reason     `json:"reason,omitempty"` // why it does not count
	Error        string              `json:"error,omitempty"`  // of the cut or the comparison
	Acked        uint64              `json:"acked"`
	Counts       verifier.Counts     `json:"findings"`
	Findings     []verifier.Finding  `json:"examples,omitempty"`
	Unreadable   []string            `json:"unreadable,omitempty"`
	Recorded     bool                `json:"recorded"` // the findings are in the ledger
	LossWindow   time.Duration       `json:"loss_window_ns"`
	WindowBound  time.Duration       `json:"loss_window_bound_ns"`
	Cut          Cut                 `json:"cut"`
	Ends         map[string]int      `json:"ends"`
	LastAckToCut time.Duration       `json:"last_ack_to_cut_ns"`
	Rows         uint64              `json:"rows"`
	WitnessAcked uint64              `json:"witness_acked,omitempty"`
	Witness      verifier.Counts     `json:"witness_findings"`
	Replay       string              `json:"replay,omitempty"` // the command that replays this cycle alone
	Whole        bool                `json:"whole"`            // everything was verified, not the last cycles alone
	Split        map[string]duration `json:"split"`
}

type duration = time.Duration

// cycle runs one cycle. ErrInterrupted: it was ended in order before its cut.
type cycle struct {
	r     *Runner
	n     uint32
	res   CycleResult
	sess  *client.Session
	phase clock.Instant
	alive bool // a stream went on after the cut until it was stopped
	kept  bool // its file is written
	// renewed: the device was made anew for it.
	renewed bool
	// unreadable is the bench's evidence that nothing can be read.
	unreadable string
}

// What ends a run, for errors.Is.
var (
	// ErrInterrupted: the person asked to stop.
	ErrInterrupted = errors.New("interrupted")
	// ErrLeave: the power is not known to be in the state that it was to be left in.
	ErrLeave = errors.New("the outlet could not be left as configured: look after it")
)

// run is prepare → load → cut → restore → recover → verify.
func (c *cycle) run(ctx context.Context) error {
	c.res = CycleResult{Cycle: c.n, Split: map[string]duration{}, Ends: map[string]int{}}
	c.phase = clock.Now()
	if b, ok := c.r.Bench.(Stepping); ok {
		return c.play(ctx, b)
	}
	if b, ok := c.r.Bench.(Renewing); ok {
		if err := c.renew(ctx, b); err != nil {
			return err
		}
	}
	if err := c.prepare(ctx); err != nil {
		return err
	}
	if err := c.settle(ctx); err != nil {
		return errors.Join(err, c.endStreams(ctx, 0), c.void())
	}
	c.sess.Start()
	if err := c.load(ctx); err != nil {
		if failed := errors.Join(c.endStreams(ctx, 0), c.void()); failed != nil {
			return fmt.Errorf("cycle %d: end it before its cut: %w", c.n, failed)
		}
		return err
	}
	if err := c.cut(ctx); err != nil {
		return err
	}
	if err := c.restore(ctx); err != nil {
		return err
	}
	return c.verify(ctx)
}

// play is run for a bench that steps through load and cut by itself.
func (c *cycle) play(ctx context.Context, b Stepping) error {
	if err := b.Renew(ctx, c.n); err != nil {
		return fmt.Errorf("cycle %d: renew the device: %w", c.n, err)
	}
	// The older sessions' tables went with the older device. Epoch and numbers follow from
	// the cycle's, so that it can be replayed alone.
	if err := c.markCount(ledger.MarkEpoch, b.Now(), uint64(c.n)); err != nil {
		return err
	}
	c.r.Load.First = workload.Seq(c.n)<<32 + 1
	if err := c.prepare(ctx); err != nil {
		return err
	}
	cut, err := b.Play(ctx, c.sess)
	c.res.Cut = cut
	if err != nil {
		return errors.Join(fmt.Errorf("cycle %d: play: %w", c.n, err), c.endStreams(ctx, 0))
	}
	if err := errors.Join(c.mark(ledger.MarkCutCommanded, cut.Commanded), c.mark(ledger.MarkCutObserved, cut.Observed)); err != nil {
		return err
	}
	c.took("load")
	if err := c.restore(ctx); err != nil {
		return err
	}
	return c.verify(ctx)
}

// took closes a phase of the cycle's split.
func (c *cycle) took(phase string) {
	now := clock.Now()
	c.res.Split[phase] += now.Sub(c.phase) // a part of the same name may be there from the bench
	c.phase = now
}

func (c *cycle) mark(m ledger.Mark, at clock.Instant) error { return c.markCount(m, at, 0) }

func (c *cycle) markCount(m ledger.Mark, at clock.Instant, count uint64) error {
	_, err := c.r.Book.Append(ledger.Record{Kind: ledger.KindMark, Code: uint8(m), Cycle: c.n,
		Session: c.res.Session, Answered: at, Count: count})
	if err != nil {
		return fmt.Errorf("mark %q in the ledger: %w", m, err)
	}
	return nil
}

func (c *cycle) prepare(ctx context.Context) error {
	c.r.show(c.n, "prepare", nil)
	if err := errors.Join(c.r.Folder.Note(c.n, "prepare", ""), c.mark(ledger.MarkCycle, c.r.now())); err != nil {
		return err
	}
	sess, err := c.r.Book.Begin(ctx, c.r.Bench.Database(), c.r.Load, c.n)
	if err != nil {
		return fmt.Errorf("cycle %d: begin the session: %w", c.n, err)
	}
	c.sess, c.res.Session = sess, c.r.Book.Index.LastSession()+1
	c.took("prepare")
	return nil
}

// load lets the streams commit until the cut is due. Streams that end earlier do not bring it forward.
func (c *cycle) load(ctx context.Context) error {
	p := c.r.Plan
	rng := rand.New(rand.NewPCG(p.Seed, uint64(c.n)))
	span := p.After.Max - p.After.Min
	due := time.NewTimer(p.After.Min + time.Duration(rng.Int64N(int64(span)+1)))
	defer due.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	if p.AfterAcks > 0 {
		tick.Reset(2 * time.Millisecond)
		due.Stop()
	}
	defer tick.Stop()
	for shown := clock.Now(); ; {
		select {
		case <-due.C:
			return c.idle(ctx)
		case <-tick.C:
			if acked, running := c.sess.Acked(); p.AfterAcks > 0 && (acked >= p.AfterAcks || running == 0) {
				return c.idle(ctx)
			}
			if now := clock.Now(); now.Sub(shown) > 100*time.Millisecond {
				st := c.sess.Stats()
				c.r.show(c.n, "load", &st)
				shown = now
			}
		case <-c.r.Stop:
			return ErrInterrupted
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// idle is the pause before a cut that is to meet no commit under way.
func (c *cycle) idle(ctx context.Context) error {
	c.took("load")
	if c.r.Plan.Idle == 0 {
		return nil
	}
	if err := c.endStreams(ctx, 0); err != nil {
		return err
	}
	t := time.NewTimer(c.r.Plan.Idle)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-c.r.Stop:
		return ErrInterrupted
	case <-ctx.Done():
		return ctx.Err()
	}
}

// endStreams waits for the streams to end by themselves, then stops them, then abandons them.
func (c *cycle) endStreams(ctx context.Context, patience time.Duration) error {
	for _, end := range []func(){func() {}, c.sess.Stop, c.sess.Abandon} {
		end()
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		err := c.sess.Wait(limited)
		cancel()
		if err == nil {
			return nil
		}
		patience = c.r.Silence + 2*time.Second
	}
	return errors.New("a stream does not end")
}

// void marks that the cycle counts for nothing but its findings.
func (c *cycle) void() error {
	return errors.Join(c.r.Folder.Note(c.n, "void", ""), c.mark(ledger.MarkVoid, clock.Now()))
}

// cut has the power cut while the streams run, and waits until they have noticed.
func (c *cycle) cut(ctx context.Context) error {
	c.r.show(c.n, "cut", nil)
	if err := c.r.Folder.Note(c.n, "off", "about to cut the power"); err != nil {
		return errors.Join(err, c.endStreams(ctx, 0))
	}
	cut, err := c.r.Bench.Cut(ctx)
	c.res.Cut = cut
	if err != nil {
		c.res.Error = err.Error()
		c.r.Log.Warn("the cut failed", "cycle", c.n, "err", err)
	}
	if ctx.Err() != nil {
		return errors.Join(ctx.Err(), c.endStreams(ctx, 0))
	}
	err = c.r.Folder.Note(c.n, "off done", fmt.Sprintf("observed: %t", cut.Observed > 0))
	if cut.Commanded > 0 {
		err = errors.Join(err, c.mark(ledger.MarkCutCommanded, cut.Commanded))
	}
	if cut.Observed > 0 {
		err = errors.Join(err, c.mark(ledger.MarkCutObserved, cut.Observed))
	}
	c.took("cut")
	err = errors.Join(err, c.endStreams(ctx, c.r.Silence+2*time.Second))
	// An outlet that cannot report may say nothing of it, so that this is the only sign.
	c.alive = c.r.Plan.Idle == 0 && cut.Commanded > 0 && c.sess.Stats().Ends[ledger.EndStopped] > 0
	return err
}

// restore gives the power back and waits for the server.
func (c *cycle) restore(ctx context.Context) error {
	c.took("silence")
	c.r.show(c.n, "restore", nil)
	if err := c.r.Folder.Note(c.n, "on", "about to restore the power"); err != nil {
		return err
	}
	err := c.r.Bench.Restore(ctx)
	c.restoreSplit()
	if lost := (*verifier.UnreadableError)(nil); errors.As(err, &lost) {
		c.unreadable = lost.Err.Error()
	} else if err != nil {
		return fmt.Errorf("cycle %d: restore the power: %w", c.n, err)
	}
	if err := errors.Join(c.r.Folder.Note(c.n, "on done", ""), c.mark(ledger.MarkRestored, c.r.now())); err != nil {
		return err
	}
	if c.unreadable != "" {
		return nil
	}
	c.r.show(c.n, "recover", nil)
	if err := c.r.await(ctx); err != nil {
		return err
	}
	c.took("recover")
	return c.mark(ledger.MarkRecovered, c.r.now())
}

func (c *cycle) verify(ctx context.Context) error {
	if err := c.r.Book.Refresh(ctx); err != nil {
		return err
	}
	c.r.show(c.n, "verify", nil)
	e := Exam{Cycle: c.n, FromSession: c.r.window(c.n), Evidence: c.evidence(), Unreadable: c.unreadable, Keep: c.keep}
	c.res.Whole = e.FromSession == 0
	if b, ok := c.r.Bench.(Mortal); ok {
		e.Revive = func() (string, error) { return b.Revive(ctx) }
	}
	_, err := c.r.Book.Examine(ctx, c.r.Bench.Database(), e)
	if err != nil {
		return fmt.Errorf("cycle %d: verify: %w", c.n, err)
	}
	// A damaged device would be blamed again for what follows from its damage.
	c.r.fresh = c.res.clean()
	return nil
}

// clean: every survivor could be read, and nothing was found.
func (res *CycleResult) clean() bool {
	return res.Counts.Total()+res.Witness.Total() == 0 && len(res.Unreadable) == 0 && res.Error == ""
}

// renew has the device made anew where it must be. The sessions of the older one are judged
// no more: they went with it.
func (c *cycle) renew(ctx context.Context, b Renewing) error {
	if err := c.outgrown(ctx); err != nil || c.r.fresh {
		return err
	}
	c.r.show(c.n, "renew", nil)
	if err := b.Renew(ctx, c.n); err != nil {
		return fmt.Errorf("cycle %d: renew the device: %w", c.n, err)
	}
	if last, ok := c.r.Book.Index.Last(); ok && last.Epoch == c.r.Book.Index.Epoch() {
		if err := c.markCount(ledger.MarkEpoch, c.r.now(), uint64(last.Epoch)+1); err != nil {
			return err
		}
	}
	c.r.Book.Server, c.r.fresh, c.renewed = nil, true, true
	c.took("renew")
	return nil
}

// outgrown gives a device up that is nearly full, once everything on it has been verified.
func (c *cycle) outgrown(ctx context.Context) error {
	b, ok := c.r.Bench.(Filling)
	if !ok || !c.r.fresh {
		return nil
	}
	full, err := b.Full(ctx)
	if err != nil || !full {
		return err
	}
	if n := len(c.r.results); n > 0 && !c.r.results[n-1].Whole {
		if err := c.r.look(ctx, "full"); err != nil {
			return fmt.Errorf("cycle %d: verify everything before the device is renewed: %w", c.n, err)
		}
		c.r.results[n-1].Whole = true
	}
	c.r.fresh = false
	return nil
}

// settle lets a renewed device come to rest.
func (c *cycle) settle(ctx context.Context) error {
	b, ok := c.r.Bench.(Settling)
	if !ok || !c.renewed {
		return nil
	}
	if err := b.Settle(ctx); err != nil {
		return fmt.Errorf("cycle %d: settle the device: %w", c.n, err)
	}
	c.took("settle")
	return nil
}

// restoreSplit closes the phase of Bench.Restore, in parts where the bench knows them.
func (c *cycle) restoreSplit() {
	c.took("restore")
	b, ok := c.r.Bench.(Splitting)
	if !ok {
		return
	}
	for part, took := range b.RestoreSplit() {
		c.res.Split[part] = took
		c.res.Split["restore"] -= took
	}
}

// keepEvidence keeps what the cut of a cycle left that was surprising, or that failed after it.
func (c *cycle) keepEvidence(ctx context.Context, failed error) error {
	if c.res.Cut.Commanded == 0 || c.res.clean() && c.unreadable == "" && (failed == nil || ctx.Err() != nil) {
		return nil
	}
	return c.r.keepEvidence(ctx, c.n)
}

func (c *cycle) evidence() verifier.Evidence {
	return verifier.Evidence{Proven: c.res.Cut.Proven, Attest: c.res.Cut.Attest,
		OutletFailed: c.res.Cut.Failed, AckedAfterOff: c.alive, IdleByDesign: c.r.Plan.Idle > 0,
		NoFarewell: c.res.Cut.Attest == verifier.AttestMains && c.r.Plan.Idle == 0}
}

// keep makes the cycle's result durable.
func (c *cycle) keep(x *Examination) error {
	c.took("verify")
	c.res.take(x)
	if c.r.Replay != nil && c.res.Counts.Total()+c.res.Witness.Total() > 0 {
		c.res.Replay = c.r.Replay(c.n)
	}
	if x.ScanErr != nil {
		c.r.Log.Warn("the survivors could not be read", "cycle", c.n, "err", x.ScanErr)
	}
	err := c.r.Folder.WriteJSON(cycleFile(c.n), &c.res)
	c.kept = err == nil
	return err
}

func (res *CycleResult) take(x *Examination) {
	res.Session = x.Session.Session
	res.Reason = x.Reason
	res.Acked = x.Session.Acked
	res.LastAckToCut = x.Evidence.LastAck
	res.Recorded = x.Evidence.Restarted
	for end, n := range x.Evidence.Ends {
		res.Ends[end.String()] = n
	}
	if x.ScanErr != nil {
		res.Error = x.ScanErr.Error()
	}
	if v := x.Result; v != nil {
		res.Counts, res.Findings, res.Unreadable, res.Rows = v.Counts, v.Findings, v.Unreadable, v.Rows
		res.LossWindow, res.WindowBound = v.LossWindow, v.LossWindowBound
	}
	if w := x.Witness; w != nil {
		res.WitnessAcked, res.Witness = w.Acked, w.Counts
	}
}
