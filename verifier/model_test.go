package verifier_test

import (
	"maps"
	"slices"
	"time"

	"plugpull/internal/clock"
	"plugpull/internal/ledger"
	"plugpull/internal/workload"
	"plugpull/verifier"
)

// model says what Verify must find. It is written from the rules and not from
// the verifier: it keeps every commit and row in maps, asks each number by
// itself, compares sets of survivors with sets of losses, and judges churn by
// executing the operations that are known to have happened.
type model struct {
	p        workload.Params
	scan     *scan
	evidence string
	from     uint32

	epoch     uint32
	epochOf   map[uint32]uint32 // of a session
	latest    uint32            // session
	off       clock.Instant     // observed
	databases map[workload.Stream]bool
	spans     map[workload.Stream][]modelSpan
	facts     map[id]fact
	pins      map[id]ledger.PinClass
	lastAck   map[uint32]clock.Instant

	gone map[id]verifier.Class // charged Lost, Stale or Resurrected, to be settled
	live map[id]bool           // commits that survived
	want expectation
}

type id struct {
	stream workload.Stream
	seq    workload.Seq
}

// fact is what the ledger says of a number that may have been sent.
type fact struct {
	outcome        ledger.Outcome // zero: certainly not sent
	sent, answered clock.Instant
	session        uint32
}

type modelSpan struct {
	session     uint32
	first, last workload.Seq
}

// expectation is what a verification must find.
type expectation struct {
	charges       map[id]verifier.Class
	sightings     map[id]ledger.PinClass // present or absent
	acked         uint64
	window, bound time.Duration
}

const lost = verifier.LostHole // until it is settled

// expect judges what the scan can see of w's database.
func expect(w *world, sc *scan, from uint32, evidence string) *model {
	m := &model{p: w.p, scan: sc, evidence: evidence, from: from, epoch: 1, epochOf: map[uint32]uint32{},
		databases: map[workload.Stream]bool{}, spans: map[workload.Stream][]modelSpan{}, facts: map[id]fact{},
		pins: map[id]ledger.PinClass{}, lastAck: map[uint32]clock.Instant{},
		gone: map[id]verifier.Class{}, live: map[id]bool{}}
	m.want.charges, m.want.sightings = map[id]verifier.Class{}, map[id]ledger.PinClass{}
	for _, r := range w.recs {
		m.read(r)
	}
	for _, s := range m.streams() {
		if low, judged := m.low(s); judged {
			switch w.p.Profile {
			case workload.Churn:
				m.churn(s, low)
			default:
				m.inserts(s, low)
			}
		}
	}
	for k, f := range m.facts {
		if m.inScope(f.session) && f.outcome == ledger.Acked {
			m.want.acked++
		}
		_ = k
	}
	m.settle()
	return m
}

func (m *model) read(r ledger.Record) {
	switch r.Kind {
	case ledger.KindSession:
		m.latest, m.off, m.epochOf[r.Session] = r.Session, 0, uint32(r.Count)
	case ledger.KindStream:
		if ledger.StreamKind(r.Code) == ledger.DatabaseStream {
			m.databases[r.Stream] = true
			m.spans[r.Stream] = append(m.spans[r.Stream], modelSpan{r.Session, r.From, r.From - 1})
		}
	case ledger.KindReserve:
		if m.databases[r.Stream] {
			m.spans[r.Stream][len(m.spans[r.Stream])-1].last = r.To
			m.put(r, ledger.Unknown)
		}
	case ledger.KindOutcome:
		if m.databases[r.Stream] {
			m.put(r, ledger.Outcome(r.Code))
			if ledger.Outcome(r.Code) == ledger.Acked {
				m.lastAck[r.Session] = max(m.lastAck[r.Session], r.Answered)
			}
		}
	case ledger.KindSkip:
		m.put(r, 0)
	case ledger.KindPin:
		for n := r.From; ; n++ {
			m.pins[id{r.Stream, n}] = ledger.PinClass(r.Code)
			if n == r.To {
				break
			}
		}
	case ledger.KindMark:
		switch ledger.Mark(r.Code) {
		case ledger.MarkEpoch:
			m.epoch = uint32(r.Count)
			clear(m.pins)
		case ledger.MarkCutObserved:
			m.off = r.Answered
		}
	}
}

func (m *model) put(r ledger.Record, o ledger.Outcome) {
	for n := r.From; n <= r.To; n++ {
		f := fact{outcome: o, session: r.Session}
		if r.Kind == ledger.KindOutcome {
			f.sent, f.answered = r.Sent, r.Answered
		}
		m.facts[id{r.Stream, n}] = f
	}
}

func (m *model) inScope(session uint32) bool {
	return m.epochOf[session] == m.epoch && session >= m.from
}

// streams are those that the ledger or a readable table names.
func (m *model) streams() []workload.Stream {
	set := map[workload.Stream]bool{}
	maps.Copy(set, m.databases)
	if m.evidence == "" {
		for _, t := range m.p.Profile.Tables() {
			if !m.scan.tables[t] {
				for s, r := range m.scan.db[t] {
					if len(r) > 0 {
						set[s] = true
					}
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// low is the first number that is judged.
func (m *model) low(s workload.Stream) (workload.Seq, bool) {
	if m.from == 0 {
		return 0, true
	}
	for _, sp := range m.spans[s] {
		if m.inScope(sp.session) {
			return sp.first, true
		}
	}
	return 0, false
}

// blind reports that a whole table, and with it everything, cannot be read.
func (m *model) blind(s workload.Stream) bool {
	if m.evidence != "" || len(m.scan.tables) > 0 {
		return true
	}
	_, broken := m.scan.breaks[place{workload.TableHead, s}]
	return broken
}

// readable reports whether a scan from low on got as far as n in every table
// that holds rows of s.
func (m *model) readable(s workload.Stream, low, n workload.Seq) bool {
	if m.blind(s) {
		return false
	}
	for _, t := range m.rowTables() {
		b, broken := m.scan.breaks[place{t, s}]
		if !broken {
			continue
		}
		reached := false
		for k := range m.scan.db[t][s] {
			reached = reached || !b.opening && k >= low && k >= n && k <= b.after
		}
		if !reached {
			return false
		}
	}
	return true
}

func (m *model) rowTables() []workload.Table {
	switch m.p.Profile {
	case workload.Append:
		return []workload.Table{workload.TableAppend}
	case workload.Transfer:
		return []workload.Table{workload.TableA, workload.TableB}
	}
	return []workload.Table{workload.TableChurn}
}

// numbers are all that the ledger knows or a table holds, from low on.
func (m *model) numbers(s workload.Stream, low workload.Seq) []workload.Seq {
	set := map[workload.Seq]bool{}
	for k, f := range m.facts {
		if k.stream == s && m.inScope(f.session) {
			set[k.seq] = true
		}
	}
	for _, t := range m.rowTables() {
		for n := range m.scan.db[t][s] {
			if n >= low {
				set[n] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// standing is what is known of a commit before its rows are looked at.
type standing int

const (
	never   standing = iota // not sent, refused, or seen to be absent
	certain                 // acknowledged, or seen to be there
	doubtful
	settled // charged before
)

// fact returns what the ledger says of a number of this verification.
func (m *model) fact(k id) fact {
	if f := m.facts[k]; m.inScope(f.session) {
		return f
	}
	return fact{}
}

func (m *model) standing(k id) standing {
	switch m.pins[k] {
	case ledger.PinPresent:
		return certain
	case ledger.PinAbsent:
		return never
	case 0:
		switch m.fact(k).outcome {
		case ledger.Acked:
			return certain
		case ledger.Unknown:
			return doubtful
		}
		return never
	}
	return settled
}

// inserts judges a stream whose transactions only insert.
func (m *model) inserts(s workload.Stream, low workload.Seq) {
	var top workload.Seq // the latest whole commit
	tables := m.rowTables()
	for _, n := range m.numbers(s, low) {
		k := id{s, n}
		is := m.standing(k)
		there, damaged := 0, false
		for _, t := range tables {
			if r, ok := m.scan.db[t][s][n]; ok {
				there++
				damaged = damaged || r.damage != whole || r.version != 1
			}
		}
		part := there > 0 && there < len(tables)
		switch {
		case is == settled:
		case !m.readable(s, low, n):
			if is == certain {
				m.want.charges[k] = verifier.Unreadable
			}
		case is == never:
			if there > 0 {
				m.want.charges[k] = verifier.Phantom
			}
			if part && m.fact(k).outcome == ledger.Refused && m.pins[k] == 0 {
				m.want.charges[k] = verifier.Torn
			}
		case there == 0 && is == certain:
			m.gone[k] = lost
		case there == 0:
			m.want.sightings[k] = ledger.PinAbsent
		default:
			m.live[k] = true
			switch {
			case damaged:
				m.want.charges[k] = verifier.Corrupt
			case part:
				m.want.charges[k] = verifier.Torn
			default:
				top = max(top, n)
				if is == doubtful {
					m.want.sightings[k] = ledger.PinPresent
				}
			}
		}
	}
	if m.p.Profile == workload.Transfer {
		m.head(s, low, top)
	}
}

// head compares a stream's head row with top, its latest whole commit.
func (m *model) head(s workload.Stream, low, top workload.Seq) {
	for _, t := range m.rowTables() {
		if _, broken := m.scan.breaks[place{t, s}]; broken {
			return
		}
	}
	if m.blind(s) {
		return
	}
	var says workload.Seq
	damaged := false
	for n, r := range m.scan.db[workload.TableHead][s] {
		says, damaged = n, r.damage != whole || r.version != 1
	}
	var sendable, charged workload.Seq
	for _, sp := range m.spans[s] {
		if m.epochOf[sp.session] == m.epoch {
			sendable = max(sendable, sp.last)
		}
	}
	for k, class := range m.pins {
		if k.stream == s && k.seq >= low && (class == ledger.PinStale || class == ledger.PinCorrupt) {
			charged = max(charged, k.seq)
		}
	}
	switch at := (id{s, says}); {
	case says > sendable:
		if m.pins[at] == 0 {
			m.want.charges[at] = verifier.Phantom
		}
	case top == 0 || top <= charged:
	case says > 0 && damaged:
		m.want.charges[id{s, top}] = verifier.Corrupt
	case says < top:
		m.want.charges[id{s, top}] = verifier.Stale
	}
}

// settle decides what of the losses is a tail, and measures the loss window.
func (m *model) settle() {
	for k, class := range m.gone {
		f := m.fact(k)
		own, other := false, false
		for l := range m.live {
			g := m.fact(l)
			own = own || l.stream == k.stream && l.seq > k.seq
			other = other || l.stream != k.stream && g.session == f.session && g.sent > f.answered
		}
		switch {
		case own:
			m.want.charges[k] = class
		case other && f.outcome == ledger.Acked:
			m.want.charges[k] = verifier.LostHole
		default:
			m.want.charges[k] = verifier.LostTail
			if f.outcome != ledger.Acked {
				break
			}
			m.want.window = max(m.want.window, m.lastAck[f.session].Sub(f.answered))
			if m.off > 0 && f.session == m.latest {
				m.want.bound = max(m.want.bound, m.off.Sub(f.answered))
			}
		}
	}
}
