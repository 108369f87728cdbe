package client

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"plugpull/internal/clock"
	"plugpull/internal/ledger"
)

// Stats is a session's state at one moment.
type Stats struct {
	Elapsed                 time.Duration // since Start
	Acked, Refused, Unknown uint64
	Running                 int // streams that have not ended
	LastAck                 clock.Instant
	LastAckedSent           clock.Instant
	Ends                    map[ledger.End]int
	Streams                 []StreamStats
	// Latency of acknowledged commits, from the send to the reply.
	P50, P99, Max time.Duration
}

// PerSecond is the rate of acknowledged commits since Start.
func (s Stats) PerSecond() float64 {
	if s.Elapsed <= 0 {
		return 0
	}
	return float64(s.Acked) / s.Elapsed.Seconds()
}

// Acked is how many commits were acknowledged, and how many streams still run. Unlike
// Stats it copies no latencies, so that it can be asked often.
func (s *Session) Acked() (acked uint64, running int) {
	for _, st := range s.streams {
		st.mu.Lock()
		acked += st.stats.Acked
		if st.stats.End == 0 {
			running++
		}
		st.mu.Unlock()
	}
	return acked, running
}

// Stats reads the session's counters and latencies, about 200 KiB a stream.
func (s *Session) Stats() Stats {
	out := Stats{Ends: map[ledger.End]int{}}
	if s.start > 0 {
		out.Elapsed = s.cfg.Now().Sub(s.start)
	}
	var all *hdrhistogram.Histogram
	for _, st := range s.streams {
		st.mu.Lock()
		v := st.stats
		if all == nil {
			all = hdrhistogram.Import(st.hist.Export())
		} else {
			all.Merge(st.hist)
		}
		st.mu.Unlock()
		out.Streams = append(out.Streams, v)
		out.Acked += v.Acked
		out.Refused += v.Refused
		out.Unknown += v.Unknown
		out.LastAck = max(out.LastAck, v.LastAck)
		out.LastAckedSent = max(out.LastAckedSent, v.LastAckedSent)
		if v.End == 0 {
			out.Running++
		} else {
			out.Ends[v.End]++
		}
	}
	if all != nil && all.TotalCount() > 0 {
		us := func(v int64) time.Duration { return time.Duration(v) * time.Microsecond }
		out.P50, out.P99, out.Max = us(all.ValueAtQuantile(50)), us(all.ValueAtQuantile(99)), us(all.Max())
	}
	return out
}
