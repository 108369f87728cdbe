package verifier_test

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"plugpull/internal/clock"
	"plugpull/internal/ledger"
	"plugpull/internal/workload"
	"plugpull/verifier"
)

// window is W of the churn histories.
const window = 8

func params(p workload.Profile) workload.Params {
	q := workload.Params{Run: uuid.MustParse("6f1d0c1e-3b7a-4c55-9a0e-5d2f8b7c4a19"), Profile: p, PayloadMin: 1, PayloadMax: 24}
	if p == workload.Churn {
		q.Window = window
	}
	return q
}

// world is a client, its ledger and the database that it commits to. Its
// methods write the ledger as the client does.
type world struct {
	p       workload.Params
	recs    []ledger.Record
	db      database
	base    database // as it was when the session began
	log     []commit // of the session, in the order of the commits
	now     clock.Instant
	session uint32
	epoch   uint32
	chunk   workload.Seq // numbers reserved at a time
	lanes   map[workload.Stream]*lane
}

type commit struct {
	op workload.Op
	at clock.Instant
}

// lane is a stream of the session.
type lane struct {
	first, next, reserved workload.Seq
	open, pending         bool
	sent                  clock.Instant
}

func newWorld(p workload.Profile) *world {
	return &world{p: params(p), db: database{}, epoch: 1, now: 1000, chunk: 8, lanes: map[workload.Stream]*lane{}}
}

func (w *world) record(r ledger.Record) {
	r.Session = w.session
	w.recs = append(w.recs, r)
}

// tick advances the clock by one.
func (w *world) tick() clock.Instant { w.now++; return w.now }

// begin starts a session of the given streams.
func (w *world) begin(streams ...workload.Stream) {
	w.session++
	w.record(ledger.Record{Kind: ledger.KindSession, Count: uint64(w.epoch), Sent: w.tick()})
	w.record(ledger.Record{Kind: ledger.KindText, Code: uint8(ledger.TextSession), Text: []byte("{}")})
	for _, s := range streams {
		first := workload.Seq(1)
		if l := w.lanes[s]; l != nil {
			first = l.reserved + 1
		}
		w.lanes[s] = &lane{first: first, next: first, reserved: first - 1, open: true}
		w.record(ledger.Record{Kind: ledger.KindStream, Stream: s, From: first, Sent: w.now})
	}
	w.base, w.log = w.db.clone(), nil
}

func (w *world) reserve(s workload.Stream) {
	l := w.lanes[s]
	w.record(ledger.Record{Kind: ledger.KindReserve, Stream: s, From: l.reserved + 1, To: l.reserved + w.chunk, Sent: w.now})
	l.reserved += w.chunk
}

// send sends the next operation of a stream.
func (w *world) send(s workload.Stream) {
	l := w.lanes[s]
	if l.next > l.reserved {
		w.reserve(s)
	}
	l.pending, l.sent = true, w.now
}

func (w *world) op(s workload.Stream) workload.Op {
	l := w.lanes[s]
	return workload.Op{Stream: s, Seq: l.next, First: l.first}
}

// commit lets the server execute what the stream has sent.
func (w *world) commit(s workload.Stream) {
	w.db.apply(w.p, w.op(s))
	w.log = append(w.log, commit{w.op(s), w.now})
}

// answer records what became of the operation that the stream has sent.
func (w *world) answer(s workload.Stream, o ledger.Outcome) {
	l := w.lanes[s]
	w.record(ledger.Record{Kind: ledger.KindOutcome, Code: uint8(o), Stream: s, From: l.next, To: l.next, Sent: l.sent, Answered: w.now})
	l.next++
	l.pending = false
}

// ack commits the next k operations of a stream and has them acknowledged.
func (w *world) ack(s workload.Stream, k int) {
	for range k {
		w.tick()
		w.send(s)
		w.tick()
		w.commit(s)
		w.tick()
		w.answer(s, ledger.Acked)
	}
}

// refuse has the next operation refused.
func (w *world) refuse(s workload.Stream) {
	w.tick()
	w.send(s)
	w.tick()
	w.answer(s, ledger.Refused)
}

// unknown ends a stream with an operation that nobody answered.
func (w *world) unknown(s workload.Stream, happened bool) {
	w.tick()
	w.send(s)
	if happened {
		w.commit(s)
	}
	w.tick()
	w.answer(s, ledger.Unknown)
	w.stop(s, ledger.EndSilence)
}

// unrecorded sends the next operation of a stream, whose outcome never reaches the ledger.
func (w *world) unrecorded(s workload.Stream, happened bool) {
	w.tick()
	w.send(s)
	if happened {
		w.commit(s)
	}
	w.lanes[s].next++
	w.lanes[s].pending = false
}

// stop ends a stream in order.
func (w *world) stop(s workload.Stream, e ledger.End) {
	l := w.lanes[s]
	if l.next <= l.reserved {
		w.record(ledger.Record{Kind: ledger.KindSkip, Stream: s, From: l.next, To: l.reserved})
	}
	w.record(ledger.Record{Kind: ledger.KindEnd, Code: uint8(e), Stream: s, From: l.next - 1, Answered: w.now})
	l.open = false
}

// witness records a stream that appends to a file, with one acknowledged commit.
func (w *world) witness(s workload.Stream) {
	n := workload.Seq(w.session)
	w.record(ledger.Record{Kind: ledger.KindStream, Code: uint8(ledger.WitnessStream), Stream: s, From: n, Sent: w.now})
	w.record(ledger.Record{Kind: ledger.KindReserve, Stream: s, From: n, To: n, Sent: w.now})
	w.record(ledger.Record{Kind: ledger.KindOutcome, Code: uint8(ledger.Acked), Stream: s, From: n, To: n, Sent: w.now + 1e6, Answered: w.now + 1e6})
	w.record(ledger.Record{Kind: ledger.KindEnd, Code: uint8(ledger.EndSilence), Stream: s, From: n, Answered: w.now})
}

func (w *world) mark(m ledger.Mark, count uint64) {
	w.record(ledger.Record{Kind: ledger.KindMark, Code: uint8(m), Answered: w.tick(), Count: count})
}

// nextEpoch begins an epoch with empty tables.
func (w *world) nextEpoch() {
	w.epoch++
	w.mark(ledger.MarkEpoch, uint64(w.epoch))
	w.db = database{}
	w.base, w.log = database{}, nil
}

// drop undoes commits of the session.
func (w *world) drop(lost func(commit) bool) {
	w.db = w.base.clone()
	kept := w.log[:0]
	for _, c := range w.log {
		if !lost(c) {
			w.db.apply(w.p, c.op)
			kept = append(kept, c)
		}
	}
	w.log = kept
}

// dropFrom undoes the commits of a stream from number n on.
func (w *world) dropFrom(s workload.Stream, n workload.Seq) {
	w.drop(func(c commit) bool { return c.op.Stream == s && c.op.Seq >= n })
}

// dropOne undoes one commit.
func (w *world) dropOne(s workload.Stream, n workload.Seq) {
	w.drop(func(c commit) bool { return c.op.Stream == s && c.op.Seq == n })
}

func (w *world) rows(t workload.Table, s workload.Stream) rows { return w.db.rows(t, s) }

func (w *world) scan() *scan {
	return &scan{p: w.p, db: w.db, tables: map[workload.Table]bool{}, breaks: map[place]scanBreak{}}
}

// input makes what Verify compares. The index is built in two steps, as a campaign builds it.
func (w *world) input(sc *scan, from uint32, evidence string) (verifier.Input, error) {
	ix := verifier.NewIndex()
	if err := ix.Read(&pass{recs: w.recs[:len(w.recs)/2]}); err != nil {
		return verifier.Input{}, err
	}
	if err := ix.Read(passAt(w.recs, ix.Next())); err != nil {
		return verifier.Input{}, err
	}
	return verifier.Input{
		Params: w.p, Index: ix, Survivors: sc, FromSession: from, Unreadable: evidence, MaxExamples: 1 << 30,
		Open: func(at ledger.LSN) (verifier.Records, error) { return passAt(w.recs, at), nil },
	}, nil
}

// pin records what a verification found.
func (w *world) pin(res *verifier.Result) {
	for _, p := range res.Pins {
		w.record(ledger.Record{Kind: ledger.KindPin, Code: uint8(p.Class), Stream: p.Stream, From: p.From, To: p.To,
			Count: uint64(p.To - p.From + 1), Answered: w.now})
	}
	w.mark(ledger.MarkVerified, 0)
}

// verify compares and records nothing.
func (w *world) verify(t *testing.T, sc *scan, from uint32) *verifier.Result {
	t.Helper()
	in, err := w.input(sc, from, "")
	require.NoError(t, err)
	res, err := verifier.Verify(context.Background(), in)
	require.NoError(t, err)
	return res
}

// check verifies all that the database holds and records the pins.
func (w *world) check(t *testing.T) *verifier.Result {
	t.Helper()
	res := w.verify(t, w.scan(), 0)
	w.pin(res)
	return res
}
