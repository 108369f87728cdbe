package verifier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"plugpull/internal/clock"
	"plugpull/internal/ledger"
	"plugpull/internal/workload"
)

// Input is what one verification compares.
type Input struct {
	Params workload.Params
	// Index has read the whole ledger.
	Index *Index
	// Open starts a pass over the ledger at the given position.
	Open func(ledger.LSN) (Records, error)
	// Survivors reads what is left; it is not used when Unreadable is set.
	Survivors Survivors
	// FromSession limits the judgement to the numbers of this session and
	// later ones; zero judges all of the epoch.
	FromSession uint32
	// Unreadable is the bench's own evidence that nothing could be read
	// (the mount or the server's start failed); empty for none.
	Unreadable string
	// MaxExamples bounds Result.Findings a class; zero means 10.
	MaxExamples int
}

// Result is what one verification found.
type Result struct {
	Counts   Counts
	Findings []Finding // examples, by class, stream and number
	// Pins are all findings and all unknown commits as ranges. They may be recorded
	// only when the server was restarted since the commits were sent.
	Pins []Pin
	// Acked is the number of acknowledged commits that were judged.
	Acked uint64
	// Rows is the number of surviving rows read.
	Rows uint64
	// LossWindow is the time from the oldest lost tail acknowledgement to the last
	// acknowledgement of its session; zero without a lost tail.
	LossWindow time.Duration
	// LossWindowBound is the same up to the observed off; zero when that is not known.
	LossWindowBound time.Duration
	// Unreadable is the evidence behind that class.
	Unreadable []string
}

// Verify compares the survivors with the ledger. It blocks on both. An error
// means that there is no result, and so no verdict: a *ScanError when the
// survivors could not be read, else the ledger could not. What the database
// itself declares unreadable is a finding, not an error.
func Verify(ctx context.Context, in Input) (*Result, error) {
	if in.MaxExamples == 0 {
		in.MaxExamples = 10
	}
	v := &verification{ctx: ctx, in: in, ix: in.Index, examples: map[Class]int{},
		growing: map[pinKey]int{}, found: map[pinKey]int{}}
	defer v.closeRows()
	for _, s := range v.ix.sessions {
		s.lastSurvivor = 0
	}
	if err := v.openStreams(); err != nil {
		return nil, err
	}
	if err := v.walk(); err != nil {
		return nil, err
	}
	if err := v.settleTrailing(); err != nil {
		return nil, err
	}
	slices.SortFunc(v.res.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Class, b.Class), cmp.Compare(a.Stream, b.Stream), cmp.Compare(a.From, b.From))
	})
	// Of two pins on a number the one that is recorded later stands, and a finding
	// says more than the sighting that it may rest on.
	slices.SortStableFunc(v.res.Pins, func(a, b Pin) int { return cmp.Compare(a.rank(), b.rank()) })
	return &v.res, nil
}

// fate is what is known of a commit before the rows are looked at.
type fate uint8

const (
	unsent  fate = iota // certainly never sent
	refused             // sent or not: certainly did not happen
	unknown
	acked
)

// verification is one run of Verify.
type verification struct {
	ctx      context.Context
	in       Input
	ix       *Index
	judges   []*judge // by stream number
	opened   []*cursor
	examples map[Class]int
	// growing finds the pin and the finding that the next number may continue.
	growing map[pinKey]int
	found   map[pinKey]int
	res     Result
}

type pinKey struct {
	stream workload.Stream
	class  ledger.PinClass
}

// judge walks one stream's numbers in ascending order.
type judge struct {
	v       *verification
	ix      *streamIndex
	pins    []pinRange
	spans   []span
	next    workload.Seq
	sess    *session // of the numbers being judged; nil between sessions
	profile profileJudge
	losses  losses
}

// profileJudge knows the tables of one profile.
type profileJudge interface {
	// judge settles from..to, which share a fate and a pin class (zero for
	// none). Ranges arrive in ascending order without a gap.
	judge(from, to workload.Seq, f fate, pin ledger.PinClass, t times) error
	// endSession is called after the last number that a session could have sent.
	endSession() error
	// end is called when every number has been judged.
	end() error
}

// times are those of a single commit's outcome; zero for ranges.
type times struct{ sent, answered clock.Instant }

// openStreams makes a judge for every stream that the ledger or a table names.
func (v *verification) openStreams() error {
	var whole *UnreadableError
	if v.in.Unreadable != "" {
		whole = &UnreadableError{Err: errors.New(v.in.Unreadable)}
		v.res.Unreadable = append(v.res.Unreadable, v.in.Unreadable)
	} else if err := v.findStreams(&whole); err != nil {
		return err
	}
	v.judges = make([]*judge, len(v.ix.streams))
	for n, st := range v.ix.streams {
		if st == nil {
			continue
		}
		j := &judge{v: v, ix: st, pins: resolvePins(st.raw, v.ix.epoch)}
		j.losses.j = j
		for _, sp := range st.spans {
			if sp.session.epoch == v.ix.epoch && sp.session.id >= v.in.FromSession {
				j.spans = append(j.spans, sp)
			}
		}
		if v.in.FromSession > 0 {
			if len(j.spans) == 0 {
				continue
			}
			j.next = j.spans[0].first
		}
		if err := j.open(whole); err != nil {
			return err
		}
		v.judges[n] = j
	}
	return nil
}

// findStreams adds the streams that only a table names, and finds tables that
// cannot be read at all.
func (v *verification) findStreams(whole **UnreadableError) error {
	for _, t := range v.in.Params.Profile.Tables() {
		found, err := v.in.Survivors.Streams(v.ctx, t)
		if u := (*UnreadableError)(nil); errors.As(err, &u) {
			v.noteUnreadable(u)
			*whole = u
			continue
		}
		if err != nil {
			return &ScanError{fmt.Sprintf("list the streams in table %s", t), err}
		}
		for _, s := range found {
			v.ix.stream(s)
		}
	}
	return nil
}

func (v *verification) noteUnreadable(u *UnreadableError) {
	if len(v.res.Unreadable) < v.in.MaxExamples {
		v.res.Unreadable = append(v.res.Unreadable, u.Error())
	}
}

// open makes the profile's judge and its cursors.
func (j *judge) open(whole *UnreadableError) error {
	switch j.v.in.Params.Profile {
	case workload.Append, workload.Witness:
		c, err := j.cursor(j.v.in.Params.Profile.Tables()[0], whole, j.next)
		j.profile = &appendJudge{j: j, rows: c}
		return err
	case workload.Transfer:
		return j.openTransfer(whole)
	case workload.Churn:
		c, err := j.cursor(workload.TableChurn, whole, j.next)
		j.profile = newChurnJudge(j, c)
		return err
	}
	return fmt.Errorf("unknown profile %q", j.v.in.Params.Profile)
}

// start is where the second pass begins: the first session that is judged.
func (v *verification) start() ledger.LSN {
	for _, s := range v.ix.sessions {
		if s.epoch == v.ix.epoch && s.id >= v.in.FromSession {
			return s.position
		}
	}
	return v.ix.next
}

// walk is the second pass.
func (v *verification) walk() error {
	err := v.each(func(r *ledger.Record) error {
		j := v.judgeOf(r)
		if j == nil {
			return nil
		}
		if r.Kind == ledger.KindSkip {
			return j.advance(r.From, r.To, unsent, times{})
		}
		f := unknown
		switch ledger.Outcome(r.Code) {
		case ledger.Acked:
			f = acked
			v.res.Acked++
		case ledger.Refused:
			f = refused
		}
		return j.advance(r.From, r.To, f, times{r.Sent, r.Answered})
	})
	if err != nil {
		return err
	}
	for _, j := range v.judges {
		if j != nil {
			if err := j.finish(); err != nil {
				return err
			}
		}
	}
	return nil
}

// each calls do for every outcome and skip record of the second pass.
func (v *verification) each(do func(*ledger.Record) error) error {
	recs, err := v.in.Open(v.start())
	if err != nil {
		return fmt.Errorf("read the ledger again: %w", err)
	}
	defer recs.Close()
	var r ledger.Record
	for n := 0; ; n++ {
		if n&0xffff == 0 && v.ctx.Err() != nil {
			return v.ctx.Err()
		}
		ok, err := recs.Next(&r)
		if err != nil {
			return fmt.Errorf("read the ledger again: %w", err)
		}
		if !ok {
			return nil
		}
		if r.Kind == ledger.KindOutcome || r.Kind == ledger.KindSkip {
			if err := do(&r); err != nil {
				return err
			}
		}
	}
}

// judgeOf finds who judges a record; nil for witnesses, older epochs and older sessions.
func (v *verification) judgeOf(r *ledger.Record) *judge {
	if int(r.Stream) >= len(v.judges) {
		return nil
	}
	j := v.judges[r.Stream]
	if j == nil || !j.ix.known || r.Session < v.in.FromSession {
		return nil
	}
	if s := v.ix.byID[r.Session]; s == nil || s.epoch != v.ix.epoch {
		return nil
	}
	return j
}

// advance settles the numbers up to from, of which nothing is recorded, and then from..to.
func (j *judge) advance(from, to workload.Seq, f fate, t times) error {
	if from < j.next {
		return fmt.Errorf("the ledger has commit %d of stream %d after commit %d", from, j.ix.stream, j.next-1)
	}
	if from > j.next {
		if err := j.gap(from - 1); err != nil {
			return err
		}
	}
	if err := j.enter(from); err != nil {
		return err
	}
	return j.settle(from, to, f, t)
}

// enter notes in which session number n lies.
func (j *judge) enter(n workload.Seq) error {
	for len(j.spans) > 0 && n >= j.spans[0].first {
		if err := j.profile.endSession(); err != nil {
			return err
		}
		j.sess = j.spans[0].session
		j.spans = j.spans[1:]
	}
	return nil
}

// gap settles next..to, of which the ledger has no outcome: unknown where it
// was reserved, never sent elsewhere.
func (j *judge) gap(to workload.Seq) error {
	for j.next <= to {
		if err := j.enter(j.next); err != nil {
			return err
		}
		reserved, limit := j.reserved(), to
		if len(j.spans) > 0 {
			limit = min(limit, j.spans[0].first-1)
		}
		f := unsent
		if j.sess != nil && j.next <= reserved {
			f, limit = unknown, min(limit, reserved)
		} else {
			j.sess = nil // these numbers belong to no session
		}
		if err := j.settle(j.next, limit, f, times{}); err != nil {
			return err
		}
		if limit == math.MaxUint64 {
			return nil
		}
	}
	return nil
}

// reserved is the end of the reservation of the session being judged.
func (j *judge) reserved() workload.Seq {
	for i := range j.ix.spans {
		if j.ix.spans[i].session == j.sess {
			return j.ix.spans[i].reserved
		}
	}
	return 0
}

// settle splits from..to by pins and has each part judged.
func (j *judge) settle(from, to workload.Seq, f fate, t times) error {
	j.next = to + 1
	for {
		for len(j.pins) > 0 && j.pins[0].to < from {
			j.pins = j.pins[1:]
		}
		end, class := to, ledger.PinClass(0)
		if len(j.pins) > 0 && j.pins[0].from <= to {
			if p := j.pins[0]; p.from <= from {
				end, class = min(to, p.to), p.class
			} else {
				end = p.from - 1
			}
		}
		if err := j.profile.judge(from, end, f, class, t); err != nil {
			return err
		}
		if end == to {
			return nil
		}
		from = end + 1
	}
}

// finish settles everything after the last record: what was reserved is unknown, what
// is beyond was never sent.
func (j *judge) finish() error {
	if err := j.gap(math.MaxUint64); err != nil {
		return err
	}
	if err := j.profile.endSession(); err != nil {
		return err
	}
	return j.profile.end()
}
