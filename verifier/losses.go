package verifier

import (
	"plugpull/internal/clock"
	"plugpull/internal/ledger"
	"plugpull/internal/workload"
)

// run is neighbouring commits of one session with the same charge.
type run struct {
	class    Class
	sess     *session
	from, to workload.Seq
	acked    bool // each was acknowledged; otherwise each had been pinned present
	// first and last are the acknowledgements of from and to.
	first, last clock.Instant
}

func (r *run) extends(class Class, s *session, n workload.Seq, ack bool) bool {
	return r.class == class && r.sess == s && r.to+1 == n && r.acked == ack
}

// losses holds what is gone from a stream until it is known whether something later survived.
type losses struct {
	j        *judge
	trailing []run
}

// missing notes a commit that is gone (LostHole), or whose update or delete is (Stale,
// Resurrected): each a lost tail unless something later survived.
func (l *losses) missing(n workload.Seq, class Class, s *session, answered clock.Instant, wasAcked bool) {
	if k := len(l.trailing); k > 0 && l.trailing[k-1].extends(class, s, n, wasAcked) {
		l.trailing[k-1].to, l.trailing[k-1].last = n, answered
		return
	}
	l.trailing = append(l.trailing, run{class, s, n, n, wasAcked, answered, answered})
}

// survived notes that commit n is there: nothing before it is a tail.
func (l *losses) survived(sent clock.Instant) {
	if s := l.j.sess; s != nil && sent > s.lastSurvivor {
		s.lastSurvivor = sent
	}
	if len(l.trailing) > 0 {
		l.settle()
	}
}

// settle makes the trailing losses final, something later having survived.
func (l *losses) settle() {
	for _, r := range l.trailing {
		l.j.v.charge(l.j.ix.stream, r)
	}
	l.trailing = l.trailing[:0]
}

// charge counts a final run of findings.
func (v *verification) charge(s workload.Stream, r run) {
	v.res.Counts.Add(r.class.pin(), uint64(r.to-r.from+1))
	v.pin(s, r.from, r.to, r.class.pin())
	k := pinKey{s, r.class.pin()}
	session := uint32(0)
	if r.sess != nil {
		session = r.sess.id
	}
	if i, ok := v.found[k]; ok {
		if f := &v.res.Findings[i]; f.To+1 == r.from && f.Session == session {
			f.To = r.to
			return
		}
	}
	if v.examples[r.class] >= v.in.MaxExamples {
		delete(v.found, k)
		return
	}
	v.examples[r.class]++
	f := Finding{Class: r.class, Stream: s, From: r.from, To: r.to, Session: session}
	if r.acked {
		f.Acked = r.first
		f.At = r.sess.wall.Add(r.first.Sub(r.sess.began))
		f.BeforeLast = r.sess.lastAck.Sub(r.first)
	}
	v.found[k] = len(v.res.Findings)
	v.res.Findings = append(v.res.Findings, f)
}

// now charges one commit with a class that does not depend on what survived.
func (j *judge) now(n workload.Seq, class Class, t times, f fate) {
	j.chargeRange(n, n, class, t, f)
}

func (j *judge) chargeRange(from, to workload.Seq, class Class, t times, f fate) {
	j.v.charge(j.ix.stream, run{class, j.sess, from, to, f == acked, t.answered, t.answered})
}

// pin records a range, joined to the stream's last one of the class where it continues that.
func (v *verification) pin(s workload.Stream, from, to workload.Seq, class ledger.PinClass) {
	k := pinKey{s, class}
	if i, ok := v.growing[k]; ok && v.res.Pins[i].To+1 == from {
		v.res.Pins[i].To = to
		return
	}
	v.growing[k] = len(v.res.Pins)
	v.res.Pins = append(v.res.Pins, Pin{class, s, from, to})
}

// settleTrailing decides what of the trailing losses is a tail: that of which no
// commit survived that any stream of the session sent after its acknowledgement.
func (v *verification) settleTrailing() error {
	cut, err := v.cutPoints()
	if err != nil {
		return err
	}
	for _, j := range v.judges {
		if j == nil {
			continue
		}
		for _, r := range j.losses.trailing {
			hole, tail := r, r
			hole.class, tail.class = LostHole, LostTail
			switch p := cut[key{j.ix.stream, r.from}]; {
			case !r.acked || r.first >= r.sess.lastSurvivor:
				v.tail(j, tail)
			case p.from == 0:
				v.charge(j.ix.stream, hole)
			default:
				hole.to, hole.last = p.from-1, 0
				tail.from, tail.first = p.from, p.answered
				v.charge(j.ix.stream, hole)
				v.tail(j, tail)
			}
		}
	}
	return nil
}

// tail charges a lost tail and widens the loss window to it.
func (v *verification) tail(j *judge, r run) {
	v.charge(j.ix.stream, r)
	if !r.acked {
		return
	}
	v.res.LossWindow = max(v.res.LossWindow, r.sess.lastAck.Sub(r.first))
	if v.ix.cutObserved > 0 && r.sess == v.ix.sessions[len(v.ix.sessions)-1] {
		v.res.LossWindowBound = max(v.res.LossWindowBound, v.ix.cutObserved.Sub(r.first))
	}
}

type key struct {
	stream workload.Stream
	from   workload.Seq
}

// point is the first commit of a trailing run that is a tail.
type point struct {
	to       workload.Seq // of the run
	limit    clock.Instant
	from     workload.Seq
	answered clock.Instant
}

// cutPoints finds, for each trailing run that a survivor's send time splits, where its tail
// begins: a third pass over the ledger, and only where there is such a run.
func (v *verification) cutPoints() (map[key]point, error) {
	points := map[key]point{}
	byStream := map[workload.Stream][]key{}
	for _, j := range v.judges {
		if j == nil {
			continue
		}
		for _, r := range j.losses.trailing {
			if r.acked && r.first < r.sess.lastSurvivor && r.last >= r.sess.lastSurvivor {
				k := key{j.ix.stream, r.from}
				points[k] = point{to: r.to, limit: r.sess.lastSurvivor}
				byStream[k.stream] = append(byStream[k.stream], k)
			}
		}
	}
	if len(points) == 0 {
		return points, nil
	}
	return points, v.each(func(r *ledger.Record) error {
		if r.Kind != ledger.KindOutcome || v.judgeOf(r) == nil {
			return nil
		}
		keys := byStream[r.Stream]
		for len(keys) > 0 && r.From > points[keys[0]].to {
			keys = keys[1:]
			byStream[r.Stream] = keys
		}
		if len(keys) == 0 || r.From < keys[0].from {
			return nil
		}
		if p := points[keys[0]]; p.from == 0 && r.Answered >= p.limit {
			p.from, p.answered = r.From, r.Answered
			points[keys[0]] = p
		}
		return nil
	})
}
