package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"plugpull/internal/clock"
	"plugpull/internal/ledger"
	"plugpull/internal/workload"
)

// maxRefusals ends a stream that is refused again and again: the disk is
// full, or the server read-only.
const maxRefusals = 100

// refusalPause keeps a stream that is refused from spinning.
const refusalPause = 10 * time.Millisecond

// stream is one connection and its numbers. All but the fields below mu belong to the goroutine
// that runs it.
type stream struct {
	s     *Session
	id    workload.Stream
	conn  Conn
	first workload.Seq
	next  workload.Seq
	chunk workload.Seq
	// Numbers up to sendable may be sent; up to reserved, once lsn is durable.
	sendable workload.Seq
	reserved workload.Seq
	lsn      ledger.LSN
	refusals int
	over     bool // of a stream that takes turns
	done     chan struct{}

	mu    sync.Mutex
	stats StreamStats
	hist  *hdrhistogram.Histogram
	end   ledger.End
	err   error
}

// StreamStats is how far a stream has come.
type StreamStats struct {
	Stream                  workload.Stream
	LastAcked               workload.Seq
	Acked, Refused, Unknown uint64
	LastAck                 clock.Instant // when the latest acknowledgement came
	LastAckedSent           clock.Instant // when the commit acknowledged last was sent
	End                     ledger.End    // zero while it runs
}

// reservation is how many numbers are reserved at a time. For churn it keeps the
// numbers that may be unknown below 2W, on which the verifier relies.
func reservation(p workload.Params) workload.Seq {
	if p.Profile == workload.Churn {
		return p.Window
	}
	return 4096
}

func newStream(s *Session, id workload.Stream, first workload.Seq) *stream {
	return &stream{s: s, id: id, first: first, next: first, sendable: first - 1, reserved: first - 1,
		chunk: reservation(s.cfg.Params), done: make(chan struct{}),
		stats: StreamStats{Stream: id},
		// 1 µs to 10 min at three digits.
		hist: hdrhistogram.New(1, (10 * time.Minute).Microseconds(), 3)}
}

// reserve appends a reservation for the next chunk; it is not durable yet.
func (st *stream) reserve() error {
	to := st.reserved + st.chunk
	lsn, err := st.s.cfg.Ledger.Append(ledger.Record{Kind: ledger.KindReserve, Session: st.s.cfg.Session,
		Stream: st.id, From: st.reserved + 1, To: to, Sent: st.s.cfg.Now()})
	if err != nil {
		return err
	}
	st.reserved, st.lsn = to, lsn
	return nil
}

// awaitReserved blocks until the latest reservation is durable.
func (st *stream) awaitReserved(ctx context.Context) error {
	if err := st.s.cfg.Ledger.SyncTo(ctx, st.lsn); err != nil {
		return err
	}
	st.sendable = st.reserved
	return nil
}

// mayNext makes sure that the next number may be sent. It reserves half a chunk ahead,
// so that it seldom has to wait for the ledger's disk.
func (st *stream) mayNext(ctx context.Context) error {
	if st.sendable < st.reserved && st.s.cfg.Ledger.Durable() >= st.lsn {
		st.sendable = st.reserved
	}
	if st.reserved-st.next < st.chunk/2 {
		if err := st.reserve(); err != nil {
			return err
		}
	}
	if st.next > st.sendable {
		return st.awaitReserved(ctx)
	}
	return nil
}

// run commits until something ends the stream.
func (st *stream) run(ctx context.Context) {
	defer close(st.done)
	for st.turn(ctx) {
	}
}

// turn commits one number unless the session was stopped; false when the stream has ended.
func (st *stream) turn(ctx context.Context) bool {
	select {
	case <-st.s.stop:
		st.finish(ledger.EndStopped, 0, nil)
		return false
	default:
		return st.step(ctx)
	}
}

// step commits one number; false when the stream has ended.
func (st *stream) step(ctx context.Context) bool {
	if err := st.mayNext(ctx); err != nil {
		st.finish(ledger.EndLedger, 0, fmt.Errorf("reserve numbers in the ledger: %w", err))
		return false
	}
	rep := st.conn.Commit(ctx, workload.Op{Stream: st.id, Seq: st.next, First: st.first})
	if _, err := st.s.cfg.Ledger.Append(ledger.Record{Kind: ledger.KindOutcome, Code: uint8(rep.Outcome),
		Session: st.s.cfg.Session, Stream: st.id, From: st.next, To: st.next,
		Sent: rep.Sent, Answered: rep.Answered, Errno: rep.Errno}); err != nil {
		// The number stays reserved without an outcome, and so unknown.
		st.next++
		st.finish(ledger.EndLedger, 0, fmt.Errorf("write an outcome into the ledger: %w", err))
		return false
	}
	st.count(&rep)
	st.next++
	if rep.Outcome != ledger.Refused {
		st.refusals = 0
	}
	switch {
	case rep.Ended != 0:
		st.finish(rep.Ended, rep.Errno, rep.Err)
		return false
	case rep.Outcome == ledger.Unknown:
		st.finish(ledger.EndError, rep.Errno, rep.Err)
		return false
	case rep.Outcome == ledger.Refused:
		return st.refused(ctx, &rep)
	}
	return true
}

// refused pauses after a refusal, and ends the stream after too many in a row.
func (st *stream) refused(ctx context.Context, rep *Reply) bool {
	st.refusals++
	if st.refusals >= maxRefusals {
		st.finish(ledger.EndRefusals, rep.Errno, fmt.Errorf("%d refusals in a row: %w", st.refusals, rep.Err))
		return false
	}
	t := time.NewTimer(refusalPause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-st.s.stop:
	}
	return true
}

func (st *stream) count(rep *Reply) {
	st.mu.Lock()
	defer st.mu.Unlock()
	switch rep.Outcome {
	case ledger.Acked:
		st.stats.Acked++
		st.stats.LastAcked = st.next
		st.stats.LastAck, st.stats.LastAckedSent = rep.Answered, rep.Sent
		// A value beyond the histogram's range is counted as the slowest it knows.
		us := rep.Answered.Sub(rep.Sent).Microseconds()
		_ = st.hist.RecordValue(min(max(us, 1), st.hist.HighestTrackableValue()))
	case ledger.Refused:
		st.stats.Refused++
	default:
		st.stats.Unknown++
	}
}

// finish ends the stream: the numbers left over were certainly not sent.
func (st *stream) finish(end ledger.End, errno uint32, err error) {
	cfg := &st.s.cfg
	if st.next <= st.reserved {
		_, e := cfg.Ledger.Append(ledger.Record{Kind: ledger.KindSkip, Session: cfg.Session, Stream: st.id,
			From: st.next, To: st.reserved})
		err = errors.Join(err, e)
	}
	last := st.next - 1
	if st.next == st.first {
		last = 0
	}
	if _, e := cfg.Ledger.Append(ledger.Record{Kind: ledger.KindEnd, Code: uint8(end), Session: cfg.Session,
		Stream: st.id, From: last, Answered: cfg.Now(), Errno: errno}); e != nil && err == nil {
		err = e
	}
	if e := st.conn.Close(); e != nil && err == nil && end == ledger.EndStopped {
		err = fmt.Errorf("close the connection: %w", e)
	}
	st.mu.Lock()
	st.stats.End, st.end, st.err = end, end, err
	st.mu.Unlock()
}
