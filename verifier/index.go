package verifier

import (
	"cmp"
	"container/heap"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"plugpull/internal/clock"
	"plugpull/internal/ledger"
	"plugpull/internal/workload"
)

// Records is one pass over a ledger.
type Records interface {
	// Next reads the next record into r; false at the end.
	Next(r *ledger.Record) (bool, error)
	// Index is the position of the record that Next will read: what
	// Input.Open is asked for.
	Index() ledger.LSN
	Close() error
}

// session is what one session of streams did.
type session struct {
	id, epoch uint32
	position  ledger.LSN // of its record
	acked     uint64
	firstSent clock.Instant
	lastAck   clock.Instant
	// lastAckedSent is the latest send time of an acknowledged commit.
	lastAckedSent clock.Instant
	cycle         uint32
	token         uint64
	// began and wall are the same moment on both clocks.
	began clock.Instant
	wall  time.Time
	// lastSurvivor is the latest send time of a commit that survived: what
	// was acknowledged before it and is gone is a hole.
	lastSurvivor clock.Instant
	ends         map[ledger.End]int
	streams      int
}

// span is the numbers that one session reserved for a stream.
type span struct {
	session  *session
	first    workload.Seq
	reserved workload.Seq // first−1: none
}

// pinRange is a resolved pin: ranges of a stream do not overlap.
type pinRange struct {
	from, to workload.Seq
	class    ledger.PinClass
	epoch    uint32 // in which it was recorded
}

type streamIndex struct {
	stream workload.Stream
	known  bool // a session opened it; otherwise only pins name it
	spans  []span
	raw    []pinRange // in the order in which they were recorded
}

// Index is what the first pass over a ledger collects. A campaign keeps it and
// reads on where it stopped. It is not safe for concurrent use.
type Index struct {
	kind     ledger.StreamKind // streams of the other kind are passed over
	epoch    uint32
	next     ledger.LSN // the position to read on from
	sessions []*session
	byID     map[uint32]*session
	streams  []*streamIndex // by stream number; nil where the ledger names none
	totals   Totals
	// The last marks of their kind; zero if a session began after them.
	cutCommanded, cutObserved clock.Instant
}

// NewWitnessIndex returns an empty index of the witness streams alone.
func NewWitnessIndex() *Index {
	ix := NewIndex()
	ix.kind = ledger.WitnessStream
	return ix
}

// NewIndex returns an empty index of the database streams.
func NewIndex() *Index { return &Index{epoch: 1, byID: map[uint32]*session{}} }

// Totals is what the ledger says of the whole run, whatever was verified.
type Totals struct {
	Acked, Refused, Unknown uint64
	// Load is the time from the first send to the last acknowledgement, summed over sessions.
	Load time.Duration
	// Findings are those that earlier verifications recorded.
	Findings Counts
}

// PerSecond is the rate of acknowledged commits; zero when nothing was.
func (t Totals) PerSecond() float64 {
	if t.Load <= 0 {
		return 0
	}
	return float64(t.Acked) / t.Load.Seconds()
}

// Read adds every record that recs still has. The records must follow those read before.
func (ix *Index) Read(recs Records) error {
	var r ledger.Record
	for {
		ix.next = recs.Index()
		ok, err := recs.Next(&r)
		if err != nil {
			return fmt.Errorf("read the ledger: %w", err)
		}
		if !ok {
			return nil
		}
		if err := ix.add(&r); err != nil {
			return err
		}
	}
}

// Next is the position in the ledger to read on from.
func (ix *Index) Next() ledger.LSN { return ix.next }

// Epoch is the epoch that new sessions belong to; the first is 1.
func (ix *Index) Epoch() uint32 { return ix.epoch }

// LastSession is the number of the last session, zero for none.
func (ix *Index) LastSession() uint32 {
	if len(ix.sessions) == 0 {
		return 0
	}
	return ix.sessions[len(ix.sessions)-1].id
}

// Reserved is the highest number that a database stream ever reserved.
func (ix *Index) Reserved(s workload.Stream) workload.Seq {
	if int(s) >= len(ix.streams) || ix.streams[s] == nil {
		return 0
	}
	return ix.streams[s].lastReserved()
}

// SessionFacts is what the ledger says of one session.
type SessionFacts struct {
	Session, Cycle, Epoch uint32
	Token                 uint64
	Streams               int
	Ends                  map[ledger.End]int // streams without a recorded end are in none
	Acked                 uint64
	FirstSent, LastAck    clock.Instant
	LastAckedSent         clock.Instant
	CutCommanded, CutSeen clock.Instant // zero when the ledger has no mark
}

// Last returns the facts of the last session; false when there is none.
func (ix *Index) Last() (SessionFacts, bool) {
	if len(ix.sessions) == 0 {
		return SessionFacts{}, false
	}
	s := ix.sessions[len(ix.sessions)-1]
	return SessionFacts{Session: s.id, Cycle: s.cycle, Epoch: s.epoch, Token: s.token, Streams: s.streams, Ends: maps.Clone(s.ends),
		Acked: s.acked, FirstSent: s.firstSent, LastAck: s.lastAck, LastAckedSent: s.lastAckedSent,
		CutCommanded: ix.cutCommanded, CutSeen: ix.cutObserved}, true
}

// SessionOf returns the first session of a cycle, zero for none.
func (ix *Index) SessionOf(cycle uint32) uint32 {
	for _, s := range ix.sessions {
		if s.cycle == cycle {
			return s.id
		}
	}
	return 0
}

// Totals sums up what was read so far.
func (ix *Index) Totals() Totals {
	t := ix.totals
	for _, s := range ix.sessions {
		if s.lastAck > s.firstSent && s.firstSent > 0 {
			t.Load += s.lastAck.Sub(s.firstSent)
		}
	}
	return t
}

// stream returns the index of a stream, made on first use.
func (ix *Index) stream(s workload.Stream) *streamIndex {
	for int(s) >= len(ix.streams) {
		ix.streams = append(ix.streams, nil)
	}
	if ix.streams[s] == nil {
		ix.streams[s] = &streamIndex{stream: s}
	}
	return ix.streams[s]
}

func (ix *Index) add(r *ledger.Record) error {
	switch r.Kind {
	case ledger.KindPin:
		// A table may hold rows of any stream number: the pin itself says what it is of.
		if ledger.StreamKind(r.Errno) != ix.kind {
			return nil
		}
	case ledger.KindStream, ledger.KindReserve, ledger.KindOutcome, ledger.KindSkip, ledger.KindEnd:
		if r.Stream.IsWitness() != (ix.kind == ledger.WitnessStream) {
			return nil
		}
	}
	switch r.Kind {
	case ledger.KindSession:
		s := &session{id: r.Session, epoch: uint32(r.Count), position: ix.next,
			cycle: r.Cycle, token: uint64(r.To),
			began: r.Sent, wall: time.Unix(0, int64(r.From)), ends: map[ledger.End]int{}}
		ix.cutCommanded, ix.cutObserved = 0, 0
		ix.sessions = append(ix.sessions, s)
		ix.byID[s.id] = s
		ix.epoch = max(ix.epoch, s.epoch)
	case ledger.KindStream:
		s, st, err := ix.at(r)
		if err != nil || ledger.StreamKind(r.Code) != ix.kind {
			return err
		}
		st.known = true
		s.streams++
		st.spans = append(st.spans, span{session: s, first: r.From, reserved: r.From - 1})
	case ledger.KindReserve:
		_, st, err := ix.at(r)
		if err != nil {
			return err
		}
		if n := len(st.spans); n > 0 {
			st.spans[n-1].reserved = max(st.spans[n-1].reserved, r.To)
		}
	case ledger.KindOutcome:
		return ix.addOutcome(r)
	case ledger.KindEnd:
		s, st, err := ix.at(r)
		if err != nil {
			return err
		}
		if st.known { // a witness that falls silent says nothing of the database
			s.ends[ledger.End(r.Code)]++
		}
	case ledger.KindPin:
		st := ix.stream(r.Stream)
		st.raw = append(st.raw, pinRange{r.From, r.To, ledger.PinClass(r.Code), ix.epoch})
		ix.totals.Findings.Add(ledger.PinClass(r.Code), uint64(r.To-r.From+1))
	case ledger.KindMark:
		switch ledger.Mark(r.Code) {
		case ledger.MarkCutCommanded:
			ix.cutCommanded = r.Answered
		case ledger.MarkCutObserved:
			ix.cutObserved = r.Answered
		case ledger.MarkEpoch:
			ix.epoch = max(ix.epoch, uint32(r.Count))
		}
	}
	return nil
}

// at finds the session and stream that a record belongs to.
func (ix *Index) at(r *ledger.Record) (*session, *streamIndex, error) {
	s := ix.byID[r.Session]
	if s == nil {
		return nil, nil, fmt.Errorf("the ledger's %s record of stream %d names session %d, which never began", r.Kind, r.Stream, r.Session)
	}
	return s, ix.stream(r.Stream), nil
}

func (ix *Index) addOutcome(r *ledger.Record) error {
	s, st, err := ix.at(r)
	if err != nil {
		return err
	}
	if n := len(st.spans); n == 0 || r.From < st.spans[n-1].first || r.From > st.spans[n-1].reserved {
		if st.known {
			return fmt.Errorf("the ledger has an outcome for commit %d of stream %d, which was not reserved", r.From, r.Stream)
		}
		return nil // a witness
	}
	switch ledger.Outcome(r.Code) {
	case ledger.Acked:
		ix.totals.Acked++
		s.acked++
		s.lastAck = max(s.lastAck, r.Answered)
		s.lastAckedSent = max(s.lastAckedSent, r.Sent)
	case ledger.Refused:
		ix.totals.Refused++
	default:
		ix.totals.Unknown++
	}
	if r.Sent > 0 && (s.firstSent == 0 || r.Sent < s.firstSent) {
		s.firstSent = r.Sent
	}
	return nil
}

// resolvePins turns the pins of an epoch, in the order in which they were recorded,
// into ascending ranges that do not overlap; where two did, the later one stands.
// Pins of older epochs speak of other tables.
func resolvePins(all []pinRange, epoch uint32) []pinRange {
	raw := make([]pinRange, 0, len(all))
	for _, p := range all {
		if p.epoch == epoch {
			raw = append(raw, p)
		}
	}
	if len(raw) == 0 {
		return nil
	}
	order := make([]int, len(raw))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(raw[a].from, raw[b].from) })
	bounds := make([]workload.Seq, 0, 2*len(raw))
	for _, p := range raw {
		bounds = append(bounds, p.from)
		if p.to < math.MaxUint64 {
			bounds = append(bounds, p.to+1)
		}
	}
	slices.Sort(bounds)
	bounds = slices.Compact(bounds)
	var active pinHeap // indices into raw, the latest on top
	var out []pinRange
	for i, at := range bounds {
		end := workload.Seq(math.MaxUint64)
		if i+1 < len(bounds) {
			end = bounds[i+1] - 1
		}
		for len(order) > 0 && raw[order[0]].from <= at {
			heap.Push(&active, order[0])
			order = order[1:]
		}
		for len(active) > 0 && raw[active[0]].to < at {
			heap.Pop(&active)
		}
		if len(active) == 0 {
			continue
		}
		p := pinRange{at, end, raw[active[0]].class, epoch}
		if n := len(out); n > 0 && out[n-1].class == p.class && out[n-1].to+1 == p.from {
			out[n-1].to = p.to
		} else {
			out = append(out, p)
		}
	}
	return out
}

type pinHeap []int

func (h pinHeap) Len() int           { return len(h) }
func (h pinHeap) Less(i, j int) bool { return h[i] > h[j] }
func (h pinHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *pinHeap) Push(x any)        { *h = append(*h, x.(int)) }
func (h *pinHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
