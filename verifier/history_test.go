package verifier_test

import (
	"math"
	"math/rand/v2"
	"slices"

	"plugpull/internal/clock"
	"plugpull/internal/ledger"
	"plugpull/internal/workload"
)

// history makes random sessions, cuts and faults; its generator is seeded by the test.
type history struct {
	*world
	r *rand.Rand
}

func newHistory(p workload.Profile, r *rand.Rand) *history {
	h := &history{newWorld(p), r}
	h.chunk = workload.Seq(1 + r.IntN(window))
	return h
}

// chance is true once in n times.
func (h *history) chance(n int) bool { return h.r.IntN(n) == 0 }

// wait advances the clock by at most two; instants may be equal.
func (h *history) wait() { h.now += clock.Instant(h.r.IntN(3)) }

// run lets one to four streams commit until they are cut off or stopped.
func (h *history) run() {
	var streams []workload.Stream
	for s := range workload.Stream(4) {
		if h.chance(2) || s == 0 {
			streams = append(streams, s+1)
		}
	}
	h.begin(streams...)
	if h.chance(3) {
		h.witness(100)
	}
	longest := 1 + h.r.IntN(20)
	if h.p.Profile == workload.Churn {
		longest = 1 + h.r.IntN(6*window)
	}
	for range h.r.IntN(longest * len(streams) * 2) {
		s := streams[h.r.IntN(len(streams))]
		if h.lanes[s].open {
			h.step(s)
		}
	}
	h.end(streams)
	if h.chance(2) {
		h.wait()
		h.mark(ledger.MarkCutObserved, 0)
	}
}

// step sends a stream's next operation, or answers the one it has sent.
func (h *history) step(s workload.Stream) {
	l := h.lanes[s]
	h.wait()
	if !l.pending {
		if l.reserved-l.next < h.chunk/2 && h.chance(2) {
			h.reserve(s)
		}
		h.send(s)
		return
	}
	taken := h.db.taken(h.p, h.op(s))
	switch {
	case h.chance(40):
		if !taken && h.chance(2) {
			h.commit(s)
			h.wait()
		}
		h.answer(s, ledger.Unknown)
		h.stop(s, ledger.EndError)
	case taken || h.chance(15):
		h.answer(s, ledger.Refused)
	default:
		h.commit(s)
		h.wait()
		h.answer(s, ledger.Acked)
	}
}

// end cuts the streams off, stops them in order, or kills the client.
func (h *history) end(streams []workload.Stream) {
	killed := h.chance(3)
	for _, s := range streams {
		l := h.lanes[s]
		if !l.open {
			continue
		}
		h.wait()
		if l.pending && h.chance(2) && !h.db.taken(h.p, h.op(s)) {
			h.commit(s)
		}
		switch {
		case killed:
			l.open = false
		case l.pending:
			h.answer(s, ledger.Unknown)
			h.stop(s, ledger.EndSilence)
		case h.chance(2):
			h.stop(s, ledger.EndStopped)
		default: // cut off between two commits, the end unrecorded
			l.open = false
		}
	}
	if killed {
		h.loseRecords()
	}
}

// loseRecords drops outcomes that did not reach the ledger's disk: none of those
// before the last reservation, which was durable before anything was sent under it.
func (h *history) loseRecords() {
	last := len(h.recs)
	for last > 0 && h.recs[last-1].Kind == ledger.KindOutcome {
		last--
	}
	h.recs = h.recs[:len(h.recs)-h.r.IntN(len(h.recs)-last+1)]
}

// suffer plants one fault in the database.
func (h *history) suffer() {
	switch h.r.IntN(12) {
	case 0:
		h.loseTail()
	case 1:
		n := 1 + h.r.IntN(8)
		h.drop(func(commit) bool { return h.chance(n) })
	case 2, 3, 4:
		h.loseRows()
	case 5:
		h.changeRows(func(r row) row { r.damage = 1 + damage(h.r.IntN(int(damages)-1)); return r })
	case 6:
		if h.p.Profile == workload.Churn {
			h.changeRows(func(r row) row { r.version = 3 - r.version; return r })
		}
	case 7:
		h.restoreRows()
	case 8, 9:
		h.plantRows()
	case 10:
		h.plantRow(h.table(), []workload.Stream{0, 9, 100, 300}[h.r.IntN(4)], workload.Seq(h.r.IntN(5)))
	case 11:
		if h.p.Profile == workload.Transfer {
			h.moveHead()
		}
	}
}

// loseTail undoes what one stream, or all of them, committed after some instant.
func (h *history) loseTail() {
	if len(h.log) == 0 {
		return
	}
	at := h.log[h.r.IntN(len(h.log))].at
	one := h.chance(2)
	s := h.log[h.r.IntN(len(h.log))].op.Stream
	h.drop(func(c commit) bool { return c.at >= at && (!one || c.op.Stream == s) })
}

// table is a random one of those that hold rows of commits.
func (h *history) table() workload.Table {
	var tables []workload.Table
	for _, t := range h.p.Profile.Tables() {
		if t != workload.TableHead {
			tables = append(tables, t)
		}
	}
	return tables[h.r.IntN(len(tables))]
}

func (h *history) stream() workload.Stream {
	var known []workload.Stream
	for s := range h.lanes {
		known = append(known, s)
	}
	slices.Sort(known)
	return known[h.r.IntN(len(known))]
}

// some calls do for a few rows of a table; mostly neighbours.
func (h *history) some(do func(rows, workload.Seq)) {
	in := h.rows(h.table(), h.stream())
	var keys []workload.Seq
	for n := range in {
		keys = append(keys, n)
	}
	slices.Sort(keys)
	if len(keys) == 0 {
		return
	}
	at := h.r.IntN(len(keys))
	for _, n := range keys[at:min(at+1+h.r.IntN(4), len(keys))] {
		do(in, n)
	}
}

// loseRows deletes rows: of a transfer one half.
func (h *history) loseRows() {
	h.some(func(in rows, n workload.Seq) { delete(in, n) })
}

func (h *history) changeRows(to func(row) row) {
	h.some(func(in rows, n workload.Seq) { in[n] = to(in[n]) })
}

// restoreRows puts back rows that the session had deleted.
func (h *history) restoreRows() {
	for _, c := range h.log {
		if in := h.rows(h.table(), c.op.Stream); h.chance(6) {
			if _, there := in[c.op.Seq]; !there {
				in[c.op.Seq] = row{version: 2}
			}
		}
	}
}

// plantRows puts rows where none may be: refused, skipped, unknown, never sent.
func (h *history) plantRows() {
	s := h.stream()
	l := h.lanes[s]
	for range 1 + h.r.IntN(3) {
		n := workload.Seq(h.r.Uint64())
		switch h.r.IntN(8) {
		case 0:
		case 1:
			n = math.MaxUint64 - n%3
		case 2:
			n = 0
		case 3:
			n = l.reserved + 1 + n%40
		default:
			n = 1 + n%(l.reserved+1)
		}
		if n > 0 && h.chance(2) {
			for _, t := range h.p.Profile.Tables() {
				h.plantRow(t, s, n)
			}
			continue
		}
		h.plantRow(h.table(), s, n)
	}
}

func (h *history) plantRow(t workload.Table, s workload.Stream, n workload.Seq) {
	in := h.rows(t, s)
	if t == workload.TableHead {
		clear(in)
	}
	if _, there := in[n]; !there {
		in[n] = row{version: 1, damage: damage(h.r.IntN(2))}
	}
}

func (h *history) moveHead() {
	s := h.stream()
	head := h.rows(workload.TableHead, s)
	n := 1 + workload.Seq(h.r.Uint64N(uint64(h.lanes[s].reserved)+6))
	for at := range head {
		if h.chance(3) {
			n = at
		}
	}
	clear(head)
	switch h.r.IntN(8) {
	case 0:
	case 1:
		head[math.MaxUint64] = row{version: 1}
	default:
		head[n] = row{version: 1, damage: damage(h.r.IntN(int(damages)))}
	}
}

// breakScan makes tables or parts of them unreadable; it returns the bench's evidence, if any.
func (h *history) breakScan(sc *scan) string {
	if h.chance(10) {
		return "the file system could not be mounted"
	}
	tables := h.p.Profile.Tables()
	t := tables[h.r.IntN(len(tables))]
	if h.chance(6) {
		sc.tables[t] = true
		return ""
	}
	for range 1 + h.r.IntN(2) {
		s := h.stream()
		b := scanBreak{after: workload.Seq(h.r.Uint64N(uint64(h.lanes[s].reserved) + 2)), opening: h.chance(6), disorder: h.chance(3)}
		if t == workload.TableHead {
			b.after = 0 // of a head row nothing but the first is read
		}
		sc.breaks[place{t, s}] = b
	}
	return ""
}
