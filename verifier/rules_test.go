package verifier_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/ledger"
	"plugpull/internal/workload"
	"plugpull/verifier"
)

// Short names of what histories are made of.
const (
	app, tra, chu = workload.Append, workload.Transfer, workload.Churn
	tApp, tA, tB  = workload.TableAppend, workload.TableA, workload.TableB
	tHead, tChurn = workload.TableHead, workload.TableChurn
)

type (
	counts = verifier.Counts
	seq    = workload.Seq
)

// TestRules has one history a sentence of the rules, and the count that it must come to.
func TestRules(t *testing.T) {
	for _, c := range []struct {
		name    string
		profile workload.Profile
		do      func(w *world)
		want    counts
	}{
		// Outcomes and reservations.
		{"an acknowledged commit that is there", app, func(w *world) { w.ack(1, 3) }, counts{}},
		{"a row inside the reservation without an outcome is unknown: there", app, func(w *world) { w.ack(1, 3); w.unrecorded(1, true) }, counts{}},
		{"a row inside the reservation without an outcome is unknown: not there", app, func(w *world) { w.ack(1, 3); w.unrecorded(1, false) }, counts{}},
		{"the last reserved number may be there", app, func(w *world) { w.ack(1, 3); w.put(tApp, 1, w.chunk) }, counts{}},
		{"a row beyond the reservation is a phantom", app, func(w *world) { w.ack(1, 3); w.put(tApp, 1, w.chunk+1) }, counts{Phantom: 1}},
		{"a row at the greatest number is a phantom", app, func(w *world) { w.ack(1, 3); w.put(tApp, 1, math.MaxUint64) }, counts{Phantom: 1}},
		{"a row of number zero is a phantom", app, func(w *world) { w.ack(1, 3); w.put(tApp, 1, 0) }, counts{Phantom: 1}},
		{"a row at a skipped number is a phantom", app, func(w *world) { w.ack(1, 3); w.stop(1, ledger.EndStopped); w.put(tApp, 1, 5) }, counts{Phantom: 1}},
		{"a refused row that is there is a phantom", app, func(w *world) { w.ack(1, 3); w.refuse(1); w.ack(1, 1); w.put(tApp, 1, 4) }, counts{Phantom: 1}},
		{"a stream that was never named is all phantoms", app, func(w *world) { w.ack(1, 3); w.put(tApp, 9, 1); w.put(tApp, 9, 2) }, counts{Phantom: 2}},
		{"stream zero was never named either", app, func(w *world) { w.ack(1, 3); w.put(tApp, 0, 1) }, counts{Phantom: 1}},
		{"the greatest stream was never named either", app, func(w *world) { w.ack(1, 3); w.put(tApp, math.MaxUint16, 1) }, counts{Phantom: 1}},
		{"a witness is no stream of the database", app, func(w *world) { w.ack(1, 3); w.witness(9); w.put(tApp, 9, 1) }, counts{Phantom: 1}},

		// Tail and hole.
		{"nothing later of its stream survived: tail", app, func(w *world) { w.ack(1, 5); w.dropFrom(1, 3) }, counts{LostTail: 3}},
		{"a later commit of its stream survived: hole", app, func(w *world) { w.ack(1, 5); w.dropOne(1, 3) }, counts{LostHole: 1}},
		{"a later unknown commit of its stream survived: hole", app, func(w *world) { w.ack(1, 5); w.unrecorded(1, true); w.dropOne(1, 5) }, counts{LostHole: 1}},
		{"a later commit of its stream survived in the next session: hole", app, func(w *world) {
			w.ack(1, 3)
			w.begin(1, 2)
			w.ack(1, 1)
			w.lose(tApp, 1, 3)
		}, counts{LostHole: 1}},
		{"another stream's commit survived that was sent after: hole", app, func(w *world) { w.ack(1, 3); w.ack(2, 1); w.dropFrom(1, 3) }, counts{LostHole: 1}},
		{"the others' survivors split a tail", app, func(w *world) { w.ack(1, 3); w.ack(2, 1); w.ack(1, 2); w.dropFrom(1, 2) }, counts{LostHole: 2, LostTail: 2}},
		{"another stream's commit was sent before the acknowledgement: tail", app, func(w *world) {
			w.tick()
			w.send(2)
			w.ack(1, 3)
			w.commit(2)
			w.answer(2, ledger.Acked)
			w.dropFrom(1, 3)
		}, counts{LostTail: 1}},
		{"sent in the instant of the acknowledgement is not after it", app, func(w *world) {
			w.ack(1, 3)
			w.send(2)
			w.commit(2)
			w.answer(2, ledger.Acked)
			w.dropFrom(1, 3)
		}, counts{LostTail: 1}},
		{"another stream survived in the next session alone: tail", app, func(w *world) { w.ack(1, 3); w.begin(2); w.ack(2, 3); w.lose(tApp, 1, 3) }, counts{LostTail: 1}},
		{"the witness's later record: tail", app, func(w *world) { w.ack(1, 3); w.witness(9); w.dropFrom(1, 3) }, counts{LostTail: 1}},
		{"a later phantom is no survivor", app, func(w *world) { w.ack(1, 3); w.refuse(1); w.dropFrom(1, 3); w.put(tApp, 1, 4) }, counts{LostTail: 1, Phantom: 1}},
		{"a torn commit is a survivor", tra, func(w *world) { w.ack(1, 3); w.dropOne(1, 2); w.lose(tA, 1, 3); w.head(1, 3) }, counts{LostHole: 1, Torn: 1}},
		{"a corrupt commit is a survivor", app, func(w *world) { w.ack(1, 3); w.dropOne(1, 2); w.harm(tApp, 1, 3) }, counts{LostHole: 1, Corrupt: 1}},

		// Corrupt and torn.
		{"a changed byte", app, func(w *world) { w.ack(1, 3); w.harm(tApp, 1, 2) }, counts{Corrupt: 1}},
		{"a row of another run", app, func(w *world) { w.ack(1, 3); w.rows(tApp, 1)[2] = row{1, foreignRun} }, counts{Corrupt: 1}},
		{"a changed byte of an unknown commit", app, func(w *world) { w.ack(1, 3); w.unknown(1, true); w.harm(tApp, 1, 4) }, counts{Corrupt: 1}},
		{"half of an acknowledged transfer", tra, func(w *world) { w.ack(1, 3); w.lose(tB, 1, 2) }, counts{Torn: 1}},
		{"half of an unknown transfer", tra, func(w *world) { w.ack(1, 3); w.unknown(1, true); w.lose(tB, 1, 4) }, counts{Torn: 1}},
		{"half of a refused transfer", tra, func(w *world) { w.ack(1, 3); w.refuse(1); w.put(tB, 1, 4) }, counts{Torn: 1}},
		{"both halves of a refused transfer", tra, func(w *world) { w.ack(1, 3); w.refuse(1); w.put(tA, 1, 4); w.put(tB, 1, 4) }, counts{Phantom: 1}},
		{"half of a transfer that was never sent", tra, func(w *world) { w.ack(1, 3); w.put(tB, 1, 50) }, counts{Phantom: 1}},
		{"corrupt is before torn", tra, func(w *world) { w.ack(1, 3); w.lose(tB, 1, 2); w.harm(tA, 1, 2) }, counts{Corrupt: 1}},
		{"both halves are gone: lost, not torn", tra, func(w *world) { w.ack(1, 3); w.lose(tA, 1, 2); w.lose(tB, 1, 2) }, counts{LostHole: 1}},

		// The head row.
		{"a head behind its rows is stale", tra, func(w *world) { w.ack(1, 3); w.head(1, 2) }, counts{Stale: 1}},
		{"a missing head is stale", tra, func(w *world) { w.ack(1, 3); clear(w.rows(tHead, 1)) }, counts{Stale: 1}},
		{"a head with foreign bytes is corrupt", tra, func(w *world) { w.ack(1, 3); w.harm(tHead, 1, 3) }, counts{Corrupt: 1}},
		{"a head ahead of its rows tears nothing", tra, func(w *world) { w.ack(1, 3); w.dropFrom(1, 3); w.head(1, 3) }, counts{LostTail: 1}},
		{"a head at an unknown commit that is absent tears nothing", tra, func(w *world) { w.ack(1, 3); w.unknown(1, false); w.head(1, 4) }, counts{}},
		{"a head beyond the reservation is a phantom", tra, func(w *world) { w.ack(1, 3); w.head(1, 50) }, counts{Phantom: 1}},
		{"a head at the greatest number is a phantom", tra, func(w *world) { w.ack(1, 3); w.head(1, math.MaxUint64) }, counts{Phantom: 1}},
		{"a whole transfer that was never sent is one phantom", tra, func(w *world) { w.ack(1, 3); w.put(tA, 1, 50); w.put(tB, 1, 50); w.head(1, 50) }, counts{Phantom: 1}},
		{"a head of an older session is stale", tra, func(w *world) { w.ack(1, 3); w.begin(1); w.ack(1, 2); w.head(1, 3) }, counts{Stale: 1}},

		// Churn.
		{"churn that lost nothing", chu, func(w *world) { w.ack(1, 5*window) }, counts{}},
		{"only keys of the same session are touched", chu, func(w *world) { w.ack(1, window+3); w.begin(1); w.ack(1, 3*window) }, counts{}},
		{"a lost insert", chu, func(w *world) { w.ack(1, 5*window); w.lose(tChurn, 1, 5*window-2) }, counts{LostHole: 1}},
		{"the last insert lost", chu, func(w *world) { w.ack(1, 5*window); w.lose(tChurn, 1, 5*window) }, counts{LostTail: 1}},
		{"an old version put back", chu, func(w *world) { w.ack(1, 5*window); w.old(3*window + 2) }, counts{Stale: 1}},
		{"a deleted row restored", chu, func(w *world) { w.ack(1, 5*window); w.rows(tChurn, 1)[3*window-2] = row{version: 2} }, counts{Resurrected: 1}},
		{"a lost update of the last operation is a tail", chu, func(w *world) { w.ack(1, 5*window); w.lose(tChurn, 1, 5*window); w.old(4 * window) }, counts{LostTail: 1}},
		{"a lost delete of the last operation is a tail", chu, func(w *world) {
			w.ack(1, 5*window)
			w.lose(tChurn, 1, 5*window)
			w.rows(tChurn, 1)[3*window] = row{version: 2}
		}, counts{LostTail: 1}},
		{"an operation that vanished whole is charged once", chu, func(w *world) { w.ack(1, 5*window); w.dropOne(1, 5*window-2) }, counts{LostHole: 1}},
		{"a tail of operations, each once", chu, func(w *world) { w.ack(1, 5*window); w.dropFrom(1, 5*window-3) }, counts{LostTail: 4}},
		{"corrupt is before resurrected", chu, func(w *world) { w.ack(1, 5*window); w.rows(tChurn, 1)[3*window-2] = row{2, flipped} }, counts{Corrupt: 1}},
		{"lost is before stale and resurrected", chu, func(w *world) {
			w.ack(1, 5*window)
			w.lose(tChurn, 1, 5*window-2)
			w.old(4*window - 2)
			w.rows(tChurn, 1)[3*window-2] = row{version: 2}
		}, counts{LostHole: 1}},
		{"stale is before resurrected", chu, func(w *world) {
			w.ack(1, 5*window)
			w.old(4*window - 2)
			w.rows(tChurn, 1)[3*window-2] = row{version: 2}
		}, counts{Stale: 1}},
		{"an update that was refused and is there", chu, func(w *world) {
			w.ack(1, 5*window)
			w.refuse(1)
			w.ack(1, 2)
			w.rows(tChurn, 1)[4*window+1] = row{version: 2}
		}, counts{Phantom: 1}},
		{"an update that was never sent is there", chu, func(w *world) { w.ack(1, 3); w.rows(tChurn, 1)[2] = row{version: 2} }, counts{Phantom: 1}},
		{"a row far beyond, one at the end of all numbers", chu, func(w *world) {
			w.ack(1, 3)
			w.put(tChurn, 1, 1<<40)
			w.put(tChurn, 1, math.MaxUint64)
		}, counts{Phantom: 2}},
		{"unknown operations that deleted each other's neighbours", chu, func(w *world) {
			w.ack(1, 3*window)
			for range window {
				w.unrecorded(1, true)
			}
		}, counts{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(c.profile)
			w.begin(1, 2)
			c.do(w)
			res := w.check(t)
			assert.Equal(t, c.want, res.Counts, "%+v", res.Findings)
			again := w.verify(t, w.scan(), 0)
			assert.Zero(t, again.Counts, "the same rows are accused again: %+v", again.Findings)
			assert.Empty(t, again.Pins)
		})
	}
}

// put plants a row with the bytes that it would have.
func (w *world) put(t workload.Table, s workload.Stream, n seq) { w.rows(t, s)[n] = row{version: 1} }

func (w *world) lose(t workload.Table, s workload.Stream, n seq) { delete(w.rows(t, s), n) }

// harm changes a byte of a row.
func (w *world) harm(t workload.Table, s workload.Stream, n seq) {
	r := w.rows(t, s)[n]
	r.damage = flipped
	w.rows(t, s)[n] = r
}

// head sets the head row of a stream.
func (w *world) head(s workload.Stream, n seq) {
	clear(w.rows(tHead, s))
	w.put(tHead, s, n)
}

// old puts back the row of a key of stream 1 as it was inserted.
func (w *world) old(n seq) { w.put(tChurn, 1, n) }

// TestPins has histories over two verifications, the first of which is recorded.
func TestPins(t *testing.T) {
	for _, c := range []struct {
		name          string
		profile       workload.Profile
		before        func(w *world)
		first         counts
		between       func(w *world)
		second        counts
		pins, pinsTwo []verifier.Pin
	}{
		{name: "pinned present and later gone: lost", profile: app,
			before:  func(w *world) { w.ack(1, 3); w.unknown(1, true) },
			pins:    []verifier.Pin{{Class: ledger.PinPresent, Stream: 1, From: 4, To: 4}},
			between: func(w *world) { w.lose(tApp, 1, 4) }, second: counts{LostTail: 1},
			pinsTwo: []verifier.Pin{{Class: ledger.PinLostTail, Stream: 1, From: 4, To: 4}}},
		{name: "pinned absent and later there: phantom", profile: app,
			before:  func(w *world) { w.ack(1, 3); w.unknown(1, false) },
			pins:    []verifier.Pin{{Class: ledger.PinAbsent, Stream: 1, From: 4, To: 4}},
			between: func(w *world) { w.put(tApp, 1, 4) }, second: counts{Phantom: 1},
			pinsTwo: []verifier.Pin{{Class: ledger.PinPhantom, Stream: 1, From: 4, To: 4}}},
		{name: "half of a transfer that was pinned absent: phantom", profile: tra,
			before:  func(w *world) { w.ack(1, 3); w.unknown(1, false) },
			between: func(w *world) { w.put(tA, 1, 4) }, second: counts{Phantom: 1}},
		{name: "half of a transfer that was pinned present: torn", profile: tra,
			before:  func(w *world) { w.ack(1, 3); w.unknown(1, true) },
			between: func(w *world) { w.lose(tA, 1, 4) }, second: counts{Torn: 1}},
		{name: "a churn operation pinned present and later gone", profile: chu,
			before:  func(w *world) { w.ack(1, 3); w.unknown(1, true) },
			between: func(w *world) { w.lose(tChurn, 1, 4) }, second: counts{LostTail: 1}},
		{name: "a churn operation pinned absent and later there", profile: chu,
			before:  func(w *world) { w.ack(1, 3); w.unknown(1, false) },
			between: func(w *world) { w.put(tChurn, 1, 4) }, second: counts{Phantom: 1}},
		{name: "unknowns are pinned as ranges", profile: app,
			before:  func(w *world) { w.ack(1, 3); w.unrecorded(1, true); w.unrecorded(1, true); w.unrecorded(1, false) },
			pins:    []verifier.Pin{{Class: ledger.PinPresent, Stream: 1, From: 4, To: 5}, {Class: ledger.PinAbsent, Stream: 1, From: 6, To: 8}},
			between: func(*world) {}},
		{name: "losses are pinned as ranges and counted once", profile: app,
			before: func(w *world) { w.ack(1, 9); w.stop(1, ledger.EndStopped); w.dropFrom(1, 7) }, first: counts{LostTail: 3},
			pins:    []verifier.Pin{{Class: ledger.PinLostTail, Stream: 1, From: 7, To: 9}},
			between: func(w *world) { w.begin(1); w.ack(1, 4) }},
		{name: "more is lost: only that is counted", profile: app,
			before: func(w *world) { w.ack(1, 9); w.dropFrom(1, 7) }, first: counts{LostTail: 3},
			between: func(w *world) { w.lose(tApp, 1, 6); w.lose(tApp, 1, 2) }, second: counts{LostTail: 1, LostHole: 1}},
		{name: "a lost commit that comes back is not charged again", profile: app,
			before: func(w *world) { w.ack(1, 9); w.dropFrom(1, 7) }, first: counts{LostTail: 3},
			between: func(w *world) { w.put(tApp, 1, 8) }},
		{name: "a corrupt row that is lost is not charged again", profile: app,
			before: func(w *world) { w.ack(1, 9); w.harm(tApp, 1, 3) }, first: counts{Corrupt: 1},
			between: func(w *world) { w.lose(tApp, 1, 3) }},
		{name: "a torn commit whose other half goes is not charged again", profile: tra,
			before: func(w *world) { w.ack(1, 9); w.lose(tA, 1, 3) }, first: counts{Torn: 1},
			between: func(w *world) { w.lose(tB, 1, 3) }},
		{name: "a stale head that is as it was is not charged again", profile: tra,
			before: func(w *world) { w.ack(1, 9); w.head(1, 5) }, first: counts{Stale: 1},
			between: func(*world) {}},
		{name: "a head that falls behind later commits is charged to them", profile: tra,
			before: func(w *world) { w.ack(1, 9); w.head(1, 5) }, first: counts{Stale: 1},
			between: func(w *world) { w.begin(1); w.ack(1, 3); w.head(1, 5) }, second: counts{Stale: 1}},
		{name: "a phantom far ahead hides no stale head", profile: tra,
			before: func(w *world) { w.ack(1, 9); w.put(tA, 1, 500) }, first: counts{Phantom: 1},
			between: func(w *world) { w.head(1, 5) }, second: counts{Stale: 1}},
		{name: "a churn operation charged before leaves its keys alone", profile: chu,
			before: func(w *world) { w.ack(1, 5*window); w.lose(tChurn, 1, 5*window-2) }, first: counts{LostHole: 1},
			between: func(w *world) { w.old(4*window - 2) }},
		{name: "an unknown operation that is charged stays charged beside its neighbour", profile: chu,
			before: func(w *world) {
				for range w.chunk {
					w.ack(1, 1)
				}
				w.harm(tChurn, 1, w.chunk)
				w.begin(1)
				w.unrecorded(1, true)
				w.harm(tChurn, 1, w.chunk+1)
			}, first: counts{Corrupt: 2},
			between: func(*world) {}},
		{name: "a new epoch forgets what was pinned in the old tables", profile: app,
			before:  func(w *world) { w.ack(1, 3); w.unknown(1, true) },
			between: func(w *world) { w.nextEpoch(); w.begin(1); w.ack(1, 3) }},
		{name: "an old number in the tables of a new epoch is a phantom", profile: app,
			before:  func(w *world) { w.ack(1, 3); w.unknown(1, true) },
			between: func(w *world) { w.nextEpoch(); w.begin(1); w.ack(1, 3); w.put(tApp, 1, 2) }, second: counts{Phantom: 1}},
		{name: "a stream of an older epoch alone is not judged again", profile: app,
			before: func(w *world) { w.ack(1, 3); w.ack(2, 3); w.dropFrom(1, 3); w.unknown(1, true) }, first: counts{LostHole: 1},
			between: func(w *world) { w.nextEpoch(); w.begin(2); w.ack(2, 3) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(c.profile)
			w.begin(1, 2)
			c.before(w)
			res := w.check(t)
			require.Equal(t, c.first, res.Counts, "%+v", res.Findings)
			if c.pins != nil {
				assert.Equal(t, c.pins, res.Pins)
			}
			c.between(w)
			res = w.check(t)
			assert.Equal(t, c.second, res.Counts, "%+v", res.Findings)
			if c.pinsTwo != nil {
				assert.Equal(t, c.pinsTwo, res.Pins)
			}
		})
	}
}

// TestUnreadable shows that what cannot be read counts only what was acknowledged or seen.
func TestUnreadable(t *testing.T) {
	for _, c := range []struct {
		name     string
		profile  workload.Profile
		plant    func(sc *scan)
		evidence string
		want     counts
	}{
		{"the mount failed", app, func(*scan) {}, "mount: bad superblock", counts{Unreadable: 20}},
		{"the table is unreadable", app, func(sc *scan) { sc.tables[tApp] = true }, "", counts{Unreadable: 20}},
		{"one of two tables is unreadable", tra, func(sc *scan) { sc.tables[tB] = true }, "", counts{Unreadable: 20}},
		{"one stream is unreadable", app, func(sc *scan) { sc.breaks[place{tApp, 1}] = scanBreak{opening: true} }, "", counts{Unreadable: 10}},
		{"from number 6 on", app, func(sc *scan) { sc.breaks[place{tApp, 1}] = scanBreak{after: 6} }, "", counts{Unreadable: 4}},
		{"a key twice says nothing of the rows behind", app, func(sc *scan) { sc.breaks[place{tApp, 1}] = scanBreak{after: 6, disorder: true} }, "", counts{Unreadable: 4}},
		{"one half from number 6 on", tra, func(sc *scan) { sc.breaks[place{tA, 1}] = scanBreak{after: 6} }, "", counts{Unreadable: 4}},
		{"unreadable is before corrupt", tra, func(sc *scan) {
			sc.db[tB][1][8] = row{1, flipped}
			sc.breaks[place{tA, 1}] = scanBreak{after: 6}
		}, "", counts{Unreadable: 4}},
		{"churn from number 6 on", chu, func(sc *scan) { sc.breaks[place{tChurn, 1}] = scanBreak{after: 6} }, "", counts{Unreadable: 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(c.profile)
			w.begin(1, 2)
			w.ack(1, 10)
			w.ack(2, 10)
			w.refuse(1)
			w.unknown(1, true)
			sc := w.scan()
			c.plant(sc)
			in, err := w.input(sc, 0, c.evidence)
			require.NoError(t, err)
			res, err := verifier.Verify(context.Background(), in)
			require.NoError(t, err)
			assert.Equal(t, c.want, res.Counts, "%+v", res.Findings)
			assert.NotEmpty(t, res.Unreadable, "the evidence")
			for _, p := range res.Pins {
				assert.False(t, p.Stream == 1 && p.From > 10, "an unknown commit that cannot be read is pinned: %v", p)
			}
		})
	}

	t.Run("an unknown delete behind the break accuses nobody", func(t *testing.T) {
		w := newWorld(chu)
		w.begin(1)
		w.ack(1, 2*window+1)
		w.unknown(1, true) // deletes 2
		sc := w.scan()
		sc.breaks[place{tChurn, 1}] = scanBreak{after: 2 * window}
		assert.Equal(t, counts{Unreadable: 1}, w.verify(t, sc, 0).Counts)
	})
	t.Run("a lost connection proves nothing", func(t *testing.T) {
		w := newWorld(app)
		w.begin(1)
		w.ack(1, 3)
		sc := w.scan()
		sc.lost = true
		in, err := w.input(sc, 0, "")
		require.NoError(t, err)
		res, err := verifier.Verify(context.Background(), in)
		assert.Nil(t, res)
		var scanErr *verifier.ScanError
		assert.True(t, errors.As(err, &scanErr), "%v", err)
		assert.ErrorIs(t, err, errConnection)
	})
}

// TestLossWindow measures from the oldest lost tail acknowledgement to the last
// acknowledgement of any stream, and leaves holes out.
func TestLossWindow(t *testing.T) {
	w := newWorld(app)
	w.begin(1, 2)
	w.ack(2, 1)
	w.ack(1, 10) // an acknowledgement every three
	w.ack(2, 1)
	// Two streams may be recorded in another order than they were answered in.
	last := len(w.recs) - 1
	w.recs[last], w.recs[last-1] = w.recs[last-1], w.recs[last]
	w.drop(func(c commit) bool { return c.op.Stream == 1 && (c.op.Seq >= 9 || c.op.Seq == 2) || c.op.Stream == 2 })
	w.witness(9)
	res := w.verify(t, w.scan(), 0)
	assert.Equal(t, counts{LostTail: 3, LostHole: 2}, res.Counts)
	assert.Equal(t, time.Duration(6), res.LossWindow, "commit 9 of stream 1 was acknowledged two commits before the last")
	assert.Zero(t, res.LossWindowBound, "off was never observed")

	w.now += 100
	w.mark(ledger.MarkCutObserved, 0)
	assert.Equal(t, time.Duration(6+101), w.verify(t, w.scan(), 0).LossWindowBound)
}

// TestFromSession leaves older sessions alone.
func TestFromSession(t *testing.T) {
	for _, p := range workload.Profiles() {
		t.Run(string(p), func(t *testing.T) {
			w := newWorld(p)
			w.begin(1, 2)
			w.ack(1, 5)
			w.begin(1)
			w.ack(1, 5)
			for _, t := range p.Tables() {
				w.lose(t, 1, 3)
				w.lose(t, 2, 1)
			}
			res := w.verify(t, w.scan(), 2)
			assert.Zero(t, res.Counts)
			assert.Equal(t, uint64(5), res.Acked)
			assert.Equal(t, uint64(1), w.verify(t, w.scan(), 0).Counts.Total())
		})
	}
}

// TestExamples bounds the examples, never the counts.
func TestExamples(t *testing.T) {
	w := newWorld(app)
	w.begin(1)
	w.ack(1, 100)
	w.drop(func(c commit) bool { return c.op.Seq%2 == 0 && c.op.Seq < 100 })
	in, err := w.input(w.scan(), 0, "")
	require.NoError(t, err)
	in.MaxExamples = 3
	res, err := verifier.Verify(context.Background(), in)
	require.NoError(t, err)
	assert.Equal(t, counts{LostHole: 49}, res.Counts)
	require.Len(t, res.Findings, 3)
	assert.Equal(t, seq(2), res.Findings[0].From)
	assert.Len(t, res.Pins, 50, "each loss, and the numbers that were reserved and never came")
}

// TestBadLedger refuses records that would accuse somebody wrongly.
func TestBadLedger(t *testing.T) {
	outcome := ledger.Record{Kind: ledger.KindOutcome, Code: uint8(ledger.Acked), Session: 1, Stream: 1, From: 9, To: 9}
	for _, c := range []struct {
		name string
		rec  ledger.Record
	}{
		{"an outcome beyond the reservation", outcome},
		{"an outcome of a session that never began", ledger.Record{Kind: ledger.KindOutcome, Code: 1, Session: 7, Stream: 1, From: 1, To: 1}},
		{"a stream of a session that never began", ledger.Record{Kind: ledger.KindStream, Session: 7, Stream: 1, From: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(app)
			w.begin(1)
			w.ack(1, 3)
			w.recs = append(w.recs, c.rec)
			_, err := w.input(w.scan(), 0, "")
			assert.Error(t, err)
		})
	}
	t.Run("two outcomes of one commit", func(t *testing.T) {
		w := newWorld(app)
		w.begin(1)
		w.ack(1, 3)
		outcome.From, outcome.To = 2, 2
		w.recs = append(w.recs, outcome)
		in, err := w.input(w.scan(), 0, "")
		require.NoError(t, err)
		_, err = verifier.Verify(context.Background(), in)
		assert.Error(t, err)
	})
}
