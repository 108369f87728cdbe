package probe

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Bounds of the latencies that are kept, in nanoseconds, and how exactly.
const (
	leastLatency = int64(1)
	mostLatency  = int64(time.Hour)
	digits       = 3
)

const (
	// firstStep is how finely the rate is followed at first.
	firstStep = 100 * time.Millisecond
	// mostIntervals bounds the intervals of a result: when there would be more, neighbours are joined.
	mostIntervals = 240
)

// Interval is a part of a probe.
type Interval struct {
	Seconds float64 `json:"seconds"`
	Commits uint64  `json:"commits"`
}

// Rate is the interval's commits a second.
func (i Interval) Rate() float64 {
	if i.Seconds <= 0 {
		return 0
	}
	return float64(i.Commits) / i.Seconds
}

// meter collects what is measured. It belongs to one goroutine.
type meter struct {
	hist      *hdrhistogram.Histogram
	step      time.Duration
	intervals []Interval
	open      Interval
	commits   uint64
	took      time.Duration
	tick      func(Tick)
	told      time.Duration // of took, at the last tick
	toldAt    uint64        // commits then
}

func newMeter(tick func(Tick)) *meter {
	return &meter{hist: hdrhistogram.New(leastLatency, mostLatency, digits), step: firstStep, tick: tick}
}

// add counts a commit that was answered after latency, and took the client took until it could send the next.
func (m *meter) add(latency, took time.Duration) {
	// Clamped, so that it cannot fail: no commit takes less, and one that takes more than an hour is as bad.
	_ = m.hist.RecordValue(min(max(int64(latency), leastLatency), mostLatency))
	m.commits++
	m.open.Commits++
	m.pass(took)
}

// pass lets time go by.
func (m *meter) pass(took time.Duration) {
	m.took += took
	m.open.Seconds += took.Seconds()
	if m.open.Seconds >= m.step.Seconds() {
		m.intervals = append(m.intervals, m.open)
		m.open = Interval{}
		if len(m.intervals) > mostIntervals {
			m.intervals = joined(m.intervals)
			m.step *= 2
		}
	}
	if m.tick != nil && m.took-m.told >= time.Second {
		m.tick(Tick{Took: m.took, Commits: m.commits, Rate: float64(m.commits-m.toldAt) / (m.took - m.told).Seconds()})
		m.told, m.toldAt = m.took, m.commits
	}
}

// joined halves the number of intervals.
func joined(in []Interval) []Interval {
	out := make([]Interval, 0, (len(in)+1)/2)
	for i := 0; i < len(in); i += 2 {
		v := in[i]
		if i+1 < len(in) {
			v.Seconds += in[i+1].Seconds
			v.Commits += in[i+1].Commits
		}
		out = append(out, v)
	}
	return out
}

// fill writes what was measured into a result. The last interval is kept where it is not much shorter
// than the others: the rate of a few commits says nothing.
func (m *meter) fill(r *Result) {
	r.Commits, r.Took, r.hist = m.commits, m.took, m.hist
	r.Intervals = m.intervals
	if m.open.Seconds >= m.step.Seconds()/2 || len(m.intervals) == 0 && m.open.Commits > 0 {
		r.Intervals = append(r.Intervals, m.open)
	}
}
