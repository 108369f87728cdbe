package verifier

import (
	"math"

	"plugpull/internal/ledger"
	"plugpull/internal/workload"
)

// churnJudge judges streams whose operation n inserts key n, updates key n−W and
// deletes key n−2W in one transaction.
//
// Key k is judged once the outcomes of k, k+W and k+2W are known, and with
// them whether key k+2W is there: so the judge lags 2W behind the rows, and an
// unknown operation n counts as done exactly when key n is there. That is
// sound because a reservation never reaches over 2W unknown numbers, so no
// unknown operation deletes the key of another one.
//
// An operation charged before leaves its three keys in a state that is nobody's
// business any more: they are not judged again.
type churnJudge struct {
	j     *judge
	rows  *cursor
	w     workload.Seq
	ring  []op         // by number modulo its length
	first workload.Seq // of the session
	next  workload.Seq // the number after the last that was read
	// survivor is the latest key that is there, of a commit that had to be or might be.
	survivor workload.Seq
}

// state is what was read of a key.
type state uint8

const (
	gone state = iota
	v1
	v2
	bad     // bytes differ
	blocked // cannot be read
)

type op struct {
	need    need
	fate    fate
	state   state // of the key that it inserts
	charge  Class
	answers times
	sess    *session
}

func newChurnJudge(j *judge, rows *cursor) *churnJudge {
	w := j.v.in.Params.Window
	return &churnJudge{j: j, rows: rows, w: w, ring: make([]op, 2*w+1), first: j.next, next: j.next}
}

func (c *churnJudge) at(n workload.Seq) *op { return &c.ring[n%workload.Seq(len(c.ring))] }

func (c *churnJudge) end() error { return nil }

func (c *churnJudge) judge(from, to workload.Seq, f fate, pin ledger.PinClass, t times) error {
	// A range up to the last number there is has no number after it to count on to.
	if f == unsent && (to-from >= workload.Seq(len(c.ring)) || to == math.MaxUint64) {
		return c.never(from, to, pin)
	}
	if from != c.next {
		c.first = from
	}
	n := needOf(f, pin)
	for at := from; at <= to; at++ {
		if err := c.read(at, n, f, t); err != nil {
			return err
		}
		if at-c.first >= 2*c.w {
			c.judgeKey(at - 2*c.w)
			c.flush(at - 2*c.w)
		}
	}
	return nil
}

// read takes the row of key n and settles what operation n is.
func (c *churnJudge) read(n workload.Seq, need need, f fate, t times) error {
	o := op{need: need, fate: f, answers: t, sess: c.j.sess}
	switch {
	case c.rows.unreadable:
		o.state = blocked
		if o.need == must {
			o.charge = Unreadable
		}
	case c.rows.at(n):
		o.state = c.stateOfRow()
		if err := c.rows.advance(); err != nil {
			return err
		}
	}
	if o.need == may && o.state != blocked {
		class := ledger.PinAbsent
		o.need = mustNot
		if o.state != gone {
			class, o.need = ledger.PinPresent, must
		}
		c.j.v.pin(c.j.ix.stream, n, n, class)
	}
	if o.need == must && o.state != gone && o.state != blocked {
		c.survivor = n
		c.j.losses.survived(t.sent)
	}
	*c.at(n) = o
	c.next = n + 1
	return nil
}

func (c *churnJudge) stateOfRow() state {
	switch {
	case !c.rows.intact():
		return bad
	case c.rows.row.Version == 1:
		return v1
	}
	return v2
}

// ifSent returns the operation k+d of this session, nil if it was certainly not sent.
func (c *churnJudge) ifSent(k, d workload.Seq) *op {
	if c.next-k <= d {
		return nil
	}
	if o := c.at(k + d); o.fate != unsent {
		return o
	}
	return nil
}

// judgeKey compares key k with what its operations left; a deviation is charged to the
// last acknowledged operation that touched it.
func (c *churnJudge) judgeKey(k workload.Seq) {
	ins, upd, del := c.at(k), c.ifSent(k, c.w), c.ifSent(k, 2*c.w)
	if ins.state == blocked || ins.need == free || upd.is(free) || del.is(free) {
		return
	}
	if ins.need == mustNot {
		if ins.state != gone {
			ins.charged(Phantom)
		}
		return
	}
	last := ins
	switch {
	case del.is(must):
		last = del
	case upd.is(must):
		last = upd
	}
	switch {
	case ins.state == bad:
		last.charged(Corrupt)
	case del.is(must):
		if ins.state != gone {
			del.charged(Resurrected)
		}
	case ins.state == gone:
		if !del.is(may) { // else nobody can say whether it was deleted
			last.charged(LostHole)
		}
	case ins.state == v1 && upd.is(must):
		upd.charged(Stale)
	case ins.state == v2 && upd == nil:
		ins.charged(Phantom)
	case ins.state == v2 && upd.need == mustNot:
		upd.charged(Phantom)
	}
}

func (o *op) is(n need) bool { return o != nil && o.need == n }

// charged notes a class; of several the first in precedence stands.
func (o *op) charged(class Class) {
	if o.charge == 0 || class < o.charge {
		o.charge = class
	}
}

// flush makes the charge of operation n final: all its keys have been judged.
func (c *churnJudge) flush(n workload.Seq) {
	o := c.at(n)
	r := run{o.charge, o.sess, n, n, o.fate == acked, o.answers.answered, o.answers.answered}
	switch o.charge {
	case 0:
	case LostHole, Stale, Resurrected:
		if c.survivor > n {
			c.j.v.charge(c.j.ix.stream, r)
		} else {
			c.j.losses.missing(n, o.charge, o.sess, r.first, r.acked)
		}
	default:
		c.j.v.charge(c.j.ix.stream, r)
	}
}

// endSession judges the last 2W keys, which no later operation touches.
func (c *churnJudge) endSession() error {
	start := c.first
	if c.next-c.first >= 2*c.w {
		start = c.next - 2*c.w
	}
	for k := start; k < c.next; k++ {
		c.judgeKey(k)
	}
	for k := start; k < c.next; k++ {
		c.flush(k)
	}
	c.first = c.next
	return nil
}

// never charges every row in a long range of numbers that were never sent.
func (c *churnJudge) never(from, to workload.Seq, pin ledger.PinClass) error {
	if err := c.endSession(); err != nil {
		return err
	}
	for !c.rows.unreadable && c.rows.ok && c.rows.row.Seq <= to {
		if needOf(unsent, pin) != free {
			c.j.now(c.rows.row.Seq, Phantom, times{}, unsent)
		}
		if err := c.rows.advance(); err != nil {
			return err
		}
	}
	c.first, c.next = to+1, to+1
	return nil
}
