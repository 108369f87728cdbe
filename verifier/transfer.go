package verifier

import (
	"plugpull/internal/ledger"
	"plugpull/internal/workload"
)

// transferJudge judges transactions that put a row into each of two tables and move a
// head row. The rows decide what is torn; the head row never does.
type transferJudge struct {
	j    *judge
	a, b *cursor
	head head
	// last is the latest commit that is whole and was not charged before.
	last struct {
		seq  workload.Seq
		t    times
		f    fate
		sess *session
	}
	// free is the latest commit to which an earlier verification may have charged
	// what the head row says.
	free workload.Seq
}

// head is what a stream's head row says.
type head struct {
	seq        workload.Seq // zero: no row
	intact     bool
	unreadable bool
	charged    bool // the commit that it names has a finding
}

func (j *judge) openTransfer(whole *UnreadableError) error {
	t := &transferJudge{j: j}
	j.profile = t
	var err error
	if t.a, err = j.cursor(workload.TableA, whole, j.next); err != nil {
		return err
	}
	if t.b, err = j.cursor(workload.TableB, whole, j.next); err != nil {
		return err
	}
	// The head table is keyed by stream; its row's number may be below any session.
	h, err := j.cursor(workload.TableHead, whole, 0)
	if err != nil {
		return err
	}
	t.head = head{unreadable: h.unreadable}
	if h.ok {
		t.head.seq, t.head.intact = h.row.Seq, h.intact()
	}
	return nil
}

func (t *transferJudge) endSession() error { return nil }

func (t *transferJudge) judge(from, to workload.Seq, f fate, pin ledger.PinClass, tm times) error {
	n := needOf(f, pin)
	if pin == ledger.PinStale || pin == ledger.PinCorrupt {
		t.free = to
	}
	for at := from; ; {
		if t.a.unreadable || t.b.unreadable || t.head.unreadable {
			t.j.unreadable(at, to, n, tm, f)
			return nil
		}
		here := min(t.a.seq(), t.b.seq())
		if !t.a.ok && !t.b.ok || here > to {
			t.j.absent(at, to, n, tm, f)
			return nil
		}
		if here > at {
			t.j.absent(at, here-1, n, tm, f)
		}
		t.present(here, n, f, pin, tm)
		for _, c := range []*cursor{t.a, t.b} {
			if c.at(here) {
				if err := c.advance(); err != nil {
					return err
				}
			}
		}
		if here == to {
			return nil
		}
		at = here + 1
	}
}

// present settles a commit of which at least one row is there.
func (t *transferJudge) present(seq workload.Seq, n need, f fate, pin ledger.PinClass, tm times) {
	a, b := t.a.at(seq), t.b.at(seq)
	intact := (!a || t.a.intact()) && (!b || t.b.intact())
	class := Class(0)
	switch {
	case n == free:
		return
	case n == mustNot && f == refused && pin == 0 && a != b:
		class = Torn
	case n == mustNot:
		class = Phantom
	case !intact:
		class = Corrupt
	case a != b:
		class = Torn
	}
	if class == 0 {
		t.j.present(seq, n, tm)
		t.last.seq, t.last.t, t.last.f, t.last.sess = seq, tm, f, t.j.sess
		return
	}
	if n != mustNot {
		t.j.losses.survived(tm.sent)
	}
	t.head.charged = t.head.charged || seq == t.head.seq
	t.j.now(seq, class, tm, f)
}

// end compares the head row with the rows: behind them it is stale, with
// foreign bytes corrupt, beyond every number that was reserved a phantom.
func (t *transferJudge) end() error {
	m := t.last
	if t.head.unreadable || t.a.unreadable || t.b.unreadable {
		return nil
	}
	j := t.j
	j.sess = m.sess
	switch {
	case t.head.seq > j.sendable():
		if !t.head.charged && !j.pinned(t.head.seq) {
			j.sess = nil
			j.now(t.head.seq, Phantom, times{}, unsent)
		}
	case m.seq == 0 || m.seq <= t.free: // nothing to compare, or charged before
	case t.head.seq != 0 && !t.head.intact:
		j.now(m.seq, Corrupt, m.t, m.f)
	case t.head.seq < m.seq:
		j.now(m.seq, Stale, m.t, m.f)
	}
	return nil
}

// sendable is the highest number that the stream may have sent to the tables of this epoch.
func (j *judge) sendable() workload.Seq {
	if n := len(j.ix.spans); n == 0 || j.ix.spans[n-1].session.epoch != j.v.ix.epoch {
		return 0
	}
	return j.ix.lastReserved()
}

// lastReserved is the highest number that the stream may ever have sent.
func (st *streamIndex) lastReserved() workload.Seq {
	if len(st.spans) == 0 {
		return 0
	}
	return st.spans[len(st.spans)-1].reserved
}

// pinned reports whether an earlier verification recorded something of n.
func (j *judge) pinned(n workload.Seq) bool {
	for _, p := range resolvePins(j.ix.raw, j.v.ix.epoch) {
		if p.from <= n && n <= p.to {
			return true
		}
	}
	return false
}
