package fuse

import "sync/atomic"

// Counts are numbers of requests by kind. A write with O_DSYNC counts as a write and,
// if that succeeds, a flush.
type Counts struct{ Reads, Writes, Flushes, Discards uint64 }

// Sum returns the number of all.
func (c Counts) Sum() uint64 { return c.Reads + c.Writes + c.Flushes + c.Discards }

// Stats counts since Mount. The drive has its own counts: it cannot see what was
// refused here, and the kernel may split one of its requests.
type Stats struct {
	Requests Counts // that arrived, whatever became of them
	NoPower  Counts // of these, refused because there was no power
	Stale    Counts // of these, refused because the file was opened in an older power-on
	Failed   Counts // of these, refused for any other reason
	Opens    uint64 // of the drive's file
	InFlight int64  // requests that are being served now
}

type kind int

const (
	read kind = iota
	write
	flush
	discard
	kinds
)

type counters [kinds]atomic.Uint64

func (c *counters) counts() Counts {
	return Counts{Reads: c[read].Load(), Writes: c[write].Load(), Flushes: c[flush].Load(), Discards: c[discard].Load()}
}

// Stats returns the counts so far.
func (s *Server) Stats() Stats {
	f := s.files
	return Stats{
		Requests: f.requests.counts(),
		NoPower:  f.noPower.counts(),
		Stale:    f.stale.counts(),
		Failed:   f.failed.counts(),
		Opens:    f.opens.Load(),
		InFlight: f.inFlight.Load(),
	}
}
