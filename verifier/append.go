package verifier

import (
	"plugpull/internal/ledger"
	"plugpull/internal/workload"
)

// need is what a commit's fate and pin ask of its rows.
type need uint8

const (
	mustNot need = iota // no row may be there
	may                 // a whole commit or none
	must                // the whole commit
	free                // charged before: anything goes
)

// needOf combines a fate with what an earlier verification pinned.
func needOf(f fate, pin ledger.PinClass) need {
	switch pin {
	case ledger.PinPresent:
		return must
	case ledger.PinAbsent:
		return mustNot
	case 0:
		switch f {
		case acked:
			return must
		case unknown:
			return may
		}
		return mustNot
	}
	return free
}

// appendJudge judges streams of single rows.
type appendJudge struct {
	j    *judge
	rows *cursor
}

func (a *appendJudge) endSession() error { return nil }
func (a *appendJudge) end() error        { return nil }

func (a *appendJudge) judge(from, to workload.Seq, f fate, pin ledger.PinClass, t times) error {
	n := needOf(f, pin)
	for at := from; ; {
		if a.rows.unreadable {
			a.j.unreadable(at, to, n, t, f)
			return nil
		}
		here := a.rows.seq()
		if !a.rows.ok || here > to {
			a.j.absent(at, to, n, t, f)
			return nil
		}
		if here > at {
			a.j.absent(at, here-1, n, t, f)
		}
		a.present(here, n, t, f)
		if err := a.rows.advance(); err != nil {
			return err
		}
		if here == to {
			return nil
		}
		at = here + 1
	}
}

func (a *appendJudge) present(seq workload.Seq, n need, t times, f fate) {
	intact := a.rows.intact()
	switch {
	case n == free:
	case n == mustNot:
		a.j.now(seq, Phantom, t, f)
	case !intact:
		a.j.losses.survived(t.sent)
		a.j.now(seq, Corrupt, t, f)
	default:
		a.j.present(seq, n, t)
	}
}

// unreadable charges what is needed of a range that cannot be read.
func (j *judge) unreadable(from, to workload.Seq, n need, t times, f fate) {
	if n == must {
		j.chargeRange(from, to, Unreadable, t, f)
	}
}

// absent settles a range of which no row is there.
func (j *judge) absent(from, to workload.Seq, n need, t times, f fate) {
	switch n {
	case must:
		for at := from; at <= to; at++ {
			j.losses.missing(at, LostHole, j.sess, t.answered, f == acked)
		}
	case may:
		j.v.pin(j.ix.stream, from, to, ledger.PinAbsent)
	}
}

// present settles a commit that is there, whole and unharmed.
func (j *judge) present(seq workload.Seq, n need, t times) {
	if n == may {
		j.v.pin(j.ix.stream, seq, seq, ledger.PinPresent)
	}
	j.losses.survived(t.sent)
}
