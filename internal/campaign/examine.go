package campaign

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"plugpull/internal/clock"
	"plugpull/internal/database"
	"plugpull/internal/ledger"
	"plugpull/internal/usage"
	"plugpull/internal/workload"
	"plugpull/verifier"
)

// Exam is what one verification is asked to do.
type Exam struct {
	// FromSession limits it to this session and later ones; zero is all of the epoch.
	FromSession uint32
	Cycle       uint32
	// Evidence holds what the caller knows of the cut; the rest is filled in
	// from the ledger and the server.
	Evidence verifier.Evidence
	// Unreadable is the bench's own evidence that there is nothing to read; the
	// database is then not asked.
	Unreadable string
	// Revive is asked when something could not be compared: it says how the server ended by
	// itself, empty if it did not, and starts it again; may be nil. A server that ends
	// twice while it is asked is unreadable.
	Revive func() (died string, err error)
	// Keep is called with the outcome before anything of it is recorded in the
	// ledger, to make it durable; may be nil.
	Keep func(*Examination) error
}

// Examination is the outcome of one verification.
type Examination struct {
	// Result is nil when nothing could be compared; ScanErr then says why.
	Result  *verifier.Result
	ScanErr error
	// Witness is what the witness streams lost; nil without any.
	Witness  *verifier.Result
	Before   verifier.Counts // findings of earlier verifications
	Evidence verifier.Evidence
	// Reason is why the cut does not count; empty when it does.
	Reason  verifier.Reason
	Session verifier.SessionFacts
	Took    time.Duration // the comparison alone
}

// Counts are the findings of this verification.
func (x *Examination) Counts() verifier.Counts {
	if x.Result == nil {
		return verifier.Counts{}
	}
	return x.Result.Counts
}

// WitnessCounts are the findings of this verification on the witness streams.
func (x *Examination) WitnessCounts() verifier.Counts {
	if x.Witness == nil {
		return verifier.Counts{}
	}
	return x.Witness.Counts
}

// Verdict judges all cuts that the ledger knows of, this one included. Any finding
// makes it lossy; what this cut proves decides the rest.
func (x *Examination) Verdict() verifier.Verdict {
	switch {
	case x.Before.Total()+x.Counts().Total()+x.WitnessCounts().Total() > 0:
		return verifier.Lossy
	case x.Reason == verifier.ReasonNone:
		return verifier.Durable
	}
	return verifier.Inconclusive
}

// Examine compares the survivors with the ledger, judges the evidence, and
// records findings and unknown commits in the ledger when the server was restarted.
// The server must have greeted. A *usage.Error means that this is not the
// recorded server or schema: nothing is then accused.
func (b *Book) Examine(ctx context.Context, db Database, e Exam) (*Examination, error) {
	if err := b.Refresh(ctx); err != nil {
		return nil, err
	}
	last, ok := b.Index.Last()
	if !ok {
		return nil, usage.Errorf("ledger %s: no session has been streamed into it yet: run plugpull stream first", b.Path)
	}
	x, err := b.judge(ctx, db, e, last)
	for deaths := 1; e.Revive != nil && e.Unreadable == "" && ctx.Err() == nil && (err != nil || x.ScanErr != nil); deaths++ {
		died, rerr := e.Revive()
		var lost *verifier.UnreadableError
		switch {
		case errors.As(rerr, &lost):
			e.Unreadable = lost.Err.Error()
		case rerr != nil:
			return nil, errors.Join(err, rerr)
		case deaths > 1:
			e.Unreadable = died
		}
		if died == "" {
			break
		}
		x, err = b.judge(ctx, db, e, last)
	}
	if err != nil {
		return nil, err
	}
	x.Reason = x.Evidence.Counts()
	if x.ScanErr != nil {
		x.Reason = verifier.ReasonScanBroken
	}
	if e.Keep != nil {
		if err := e.Keep(x); err != nil {
			return nil, err
		}
	}
	return x, b.record(ctx, e, x)
}

// judge compares, and records nothing.
func (b *Book) judge(ctx context.Context, db Database, e Exam, last verifier.SessionFacts) (*Examination, error) {
	x := &Examination{Before: b.Index.Totals().Findings, Session: last, Evidence: e.Evidence}
	if e.Unreadable != "" {
		x.Evidence.Restarted = true
	} else if err := b.inspect(ctx, db, x); err != nil {
		return nil, err
	}
	x.fromLedger()
	if err := b.compare(ctx, db, e, x); err != nil {
		return nil, err
	}
	return x, b.compareWitness(ctx, db, e, x)
}

// inspect makes sure that this is the recorded server and run, and finds out
// whether it was restarted.
func (b *Book) inspect(ctx context.Context, db Database, x *Examination) error {
	facts, err := db.Facts(ctx)
	if err != nil {
		return fmt.Errorf("read the server's settings: %w", err)
	}
	if err := sameServer(b.Server, facts.Identity); err != nil {
		return err
	}
	run, err := db.Run(ctx)
	if err != nil {
		return fmt.Errorf("read which run the schema belongs to: %w", err)
	}
	if run != uuid.Nil && run != b.Config.Run {
		return usage.Errorf("the schema %s holds run %s, the ledger %s is of run %s: give the ledger of that run, or the schema of this one",
			b.Config.Schema, run, b.Path, b.Config.Run)
	}
	token, err := db.Token(ctx, x.Session.Token)
	if err != nil {
		return fmt.Errorf("look for the session's token: %w", err)
	}
	switch token {
	case database.TokenGone:
		x.Evidence.Restarted = true
	case database.TokenUnknown:
		// The token's table is lost. The server counts its uptime in whole seconds.
		x.Evidence.Restarted = x.Session.LastAck > 0 && b.sameBoot() &&
			facts.Uptime+time.Second < clock.Now().Sub(x.Session.LastAck)
	}
	return nil
}

// sameBoot reports whether the ledger's instants can be compared with the clock.
func (b *Book) sameBoot() bool {
	boot, err := clock.BootID()
	return err == nil && b.Boot == boot.String()
}

// holdUp is how long a host or drive may go on after its outlet reads off: supplies were
// measured to hold for 10 to 21 ms, and their rails decay later.
const holdUp = time.Second

// fromLedger fills in what the ledger knows of the cut.
func (x *Examination) fromLedger() {
	s, ev := &x.Session, &x.Evidence
	ev.Ends, ev.Streams = s.Ends, s.Streams
	if s.CutCommanded > 0 {
		ev.Commanded, ev.LastAck = true, s.CutCommanded.Sub(s.LastAck)
	}
	ev.AckedAfterOff = ev.AckedAfterOff || s.CutSeen > 0 && s.LastAckedSent > s.CutSeen.Add(holdUp)
}

func (b *Book) compare(ctx context.Context, db Database, e Exam, x *Examination) error {
	if x.Session.Epoch != b.Index.Epoch() {
		// The epoch ended in something unreadable, which was counted then.
		x.Result = &verifier.Result{}
		return nil
	}
	in := verifier.Input{Params: b.Config.Params, Index: b.Index, Open: b.read,
		FromSession: e.FromSession, Unreadable: e.Unreadable}
	if e.Unreadable == "" {
		rows, release, err := db.Survivors(b.Index.Epoch())
		if err != nil {
			return err
		}
		defer release()
		in.Survivors = rows
	}
	begin := clock.Now()
	res, err := verifier.Verify(ctx, in)
	if err == nil && res.Counts.Unreadable > 0 && in.FromSession > 0 {
		// The epoch ends with this, and what older sessions lose with it must be counted now.
		in.FromSession = 0
		res, err = verifier.Verify(ctx, in)
	}
	x.Took = clock.Now().Sub(begin)
	var scan *verifier.ScanError
	switch {
	case errors.As(err, &scan) && ctx.Err() == nil:
		x.ScanErr = err
		return nil
	case err == nil && len(res.Unreadable) > 0 && res.Counts.Unreadable == 0:
		// Nothing acknowledged lies on it, but it cannot speak for durability.
		x.ScanErr = fmt.Errorf("a part without acknowledged commits cannot be read: %s", res.Unreadable[0])
	}
	x.Result = res
	return err
}

// compareWitness does the same for the witness streams, whose records lie in a file.
func (b *Book) compareWitness(ctx context.Context, db Database, e Exam, x *Examination) error {
	w, ok := db.(Witnessing)
	if b.Witness == nil || !ok || x.Session.Epoch != b.Index.Epoch() {
		return nil
	}
	p := b.Config.ForWitness()
	in := verifier.Input{Params: p, Index: b.Witness, Open: b.read, FromSession: e.FromSession}
	var err error
	in.Survivors, err = w.WitnessSurvivors(p)
	if lost := (*verifier.UnreadableError)(nil); errors.As(err, &lost) {
		in.Unreadable = lost.Err.Error()
	} else if err != nil {
		return fmt.Errorf("read the witness file: %w", err)
	}
	x.Witness, err = verifier.Verify(ctx, in)
	if scan := (*verifier.ScanError)(nil); errors.As(err, &scan) && ctx.Err() == nil {
		x.ScanErr = err
		return nil
	}
	return err
}

// record appends the pins, and the mark that says that they are complete. A crash in
// between leaves some findings to be found again: each is counted once either way.
func (b *Book) record(ctx context.Context, e Exam, x *Examination) error {
	now := clock.Now()
	var rs []ledger.Record
	if x.Result != nil && x.Evidence.Restarted {
		rs = pinRecords(rs, x, x.Result.Pins, ledger.DatabaseStream, e.Cycle, now)
		if x.Witness != nil {
			rs = pinRecords(rs, x, x.Witness.Pins, ledger.WitnessStream, e.Cycle, now)
		}
		if x.Result.Counts.Unreadable > 0 {
			rs = append(rs, ledger.Record{Kind: ledger.KindMark, Code: uint8(ledger.MarkEpoch), Cycle: e.Cycle,
				Count: uint64(b.Index.Epoch() + 1), Answered: now})
		}
	}
	rs = append(rs, ledger.Record{Kind: ledger.KindMark, Code: uint8(ledger.MarkVerified), Session: x.Session.Session,
		Cycle: e.Cycle, Answered: now})
	for _, r := range rs {
		if _, err := b.Append(r); err != nil {
			return fmt.Errorf("record the findings in the ledger: %w", err)
		}
	}
	return b.Refresh(ctx)
}

func pinRecords(rs []ledger.Record, x *Examination, pins []verifier.Pin, kind ledger.StreamKind, cycle uint32, now clock.Instant) []ledger.Record {
	for _, p := range pins {
		rs = append(rs, ledger.Record{Kind: ledger.KindPin, Code: uint8(p.Class), Session: x.Session.Session, Cycle: cycle,
			Stream: p.Stream, From: p.From, To: p.To, Count: charged(p.Class, p.From, p.To), Errno: uint32(kind), Answered: now})
	}
	return rs
}

func charged(c ledger.PinClass, from, to workload.Seq) uint64 {
	if c == ledger.PinPresent || c == ledger.PinAbsent {
		return 0
	}
	return uint64(to - from + 1)
}
