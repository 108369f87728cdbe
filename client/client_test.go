package client

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/ledger"
	"plugpull/internal/workload"
)

// stopAfter answers acked, and the other reply for commit n and all later ones.
func stopAfter(n workload.Seq, r Reply) func(context.Context, workload.Seq) Reply {
	return func(ctx context.Context, at workload.Seq) Reply {
		if at < n {
			return acked(ctx, at)
		}
		return r
	}
}

func TestAStreamEndsAtWhatItsReplySays(t *testing.T) {
	boom := errors.New("boom")
	for name, tc := range map[string]struct {
		reply   Reply
		end     ledger.End
		last    workload.Seq // sent
		outcome ledger.Outcome
	}{
		"unknown by silence":                      {Reply{Outcome: ledger.Unknown, Ended: ledger.EndSilence, Err: boom}, ledger.EndSilence, 5, ledger.Unknown},
		"unknown on a connection that lives on":   {Reply{Outcome: ledger.Unknown, Errno: 1317, Err: boom}, ledger.EndError, 5, ledger.Unknown},
		"refused, and the connection is gone":     {Reply{Outcome: ledger.Refused, Ended: ledger.EndRST, Err: boom}, ledger.EndRST, 5, ledger.Refused},
		"acked, and the connection ended with it": {Reply{Outcome: ledger.Acked, Ended: ledger.EndFIN}, ledger.EndFIN, 5, ledger.Acked},
		"refused for ever":                        {Reply{Outcome: ledger.Refused, Errno: 1290, Err: boom}, ledger.EndRefusals, 104, ledger.Refused},
	} {
		t.Run(name, func(t *testing.T) {
			l := newFakeLedger()
			s, conns := session(t, l, params(workload.Append), 1, same(stopAfter(5, tc.reply)))
			s.Start()
			<-s.Ended()

			outcomes := l.of(ledger.KindOutcome, 1)
			require.Len(t, outcomes, int(tc.last))
			for i, r := range outcomes {
				assert.Equal(t, workload.Seq(i+1), r.From, "outcomes follow in order, each number once")
			}
			assert.Equal(t, tc.outcome, ledger.Outcome(outcomes[4].Code))
			end := l.of(ledger.KindEnd, 1)
			require.Len(t, end, 1)
			assert.Equal(t, tc.end, ledger.End(end[0].Code))
			assert.Equal(t, tc.last, end[0].From)
			skip := l.of(ledger.KindSkip, 1)
			require.Len(t, skip, 1)
			assert.Equal(t, tc.last+1, skip[0].From, "what was reserved and never sent is said to be so")
			assert.Equal(t, workload.Seq(4096), skip[0].To)
			assert.True(t, conns[1].closed)
			assert.Len(t, conns[1].sent, int(tc.last), "nothing was sent twice")
		})
	}
}

func TestReservationsAreDurableBeforeTheirNumbersAreSent(t *testing.T) {
	for _, p := range workload.Profiles() {
		t.Run(string(p), func(t *testing.T) {
			l := newFakeLedger()
			l.lazy = true // durable only for those who wait: fakeConn checks each commit
			s, conns := session(t, l, params(p), 3, same(stopAfter(10_000, Reply{Outcome: ledger.Unknown, Ended: ledger.EndSilence})))
			s.Start()
			<-s.Ended()
			for id, c := range conns {
				assert.Len(t, c.sent, 10_000, "stream %d", id)
			}
		})
	}
}

// The verifier relies on it: an unknown operation never deletes the key of another unknown one.
func TestChurnNeverReservesTwoWindowsAhead(t *testing.T) {
	p := params(workload.Churn)
	var most, sent atomic.Uint64
	l := newFakeLedger()
	s, _ := session(t, l, p, 1, same(func(ctx context.Context, n workload.Seq) Reply {
		var reserved workload.Seq
		for _, r := range l.of(ledger.KindReserve, 1) {
			reserved = max(reserved, r.To)
		}
		most.Store(max(most.Load(), uint64(reserved-n)))
		sent.Store(uint64(n))
		if n == 500 {
			return Reply{Outcome: ledger.Unknown, Ended: ledger.EndSilence}
		}
		return acked(ctx, n)
	}))
	s.Start()
	<-s.Ended()
	assert.EqualValues(t, 500, sent.Load())
	assert.Less(t, most.Load(), uint64(2*p.Window))
}

func TestStopEndsBetweenTwoCommits(t *testing.T) {
	l := newFakeLedger()
	release := make(chan struct{})
	reached := make(chan struct{}, 1)
	s, conns := session(t, l, params(workload.Append), 1, same(func(ctx context.Context, n workload.Seq) Reply {
		if n == 3 {
			reached <- struct{}{}
			<-release
		}
		return acked(ctx, n)
	}))
	s.Start()
	<-reached
	s.Stop()
	select {
	case <-s.Ended():
		t.Fatal("ended before the commit under way was answered")
	default:
	}
	close(release)
	<-s.Ended()
	assert.Len(t, conns[1].sent, 3)
	out := l.of(ledger.KindOutcome, 1)
	assert.Equal(t, ledger.Acked, ledger.Outcome(out[len(out)-1].Code))
	assert.Equal(t, ledger.EndStopped, ledger.End(l.of(ledger.KindEnd, 1)[0].Code))
}

func TestAbandonDoesNotWaitForTheReply(t *testing.T) {
	l := newFakeLedger()
	s, _ := session(t, l, params(workload.Append), 1, same(func(ctx context.Context, n workload.Seq) Reply {
		if n < 3 {
			return acked(ctx, n)
		}
		<-ctx.Done()
		return Reply{Outcome: ledger.Unknown, Ended: ledger.EndError, Err: ctx.Err()}
	}))
	s.Start()
	s.Abandon()
	<-s.Ended()
	for _, r := range l.of(ledger.KindOutcome, 1) {
		if r.From == 3 {
			assert.Equal(t, ledger.Unknown, ledger.Outcome(r.Code))
		}
	}
}

func TestAFailedLedgerStopsEveryStream(t *testing.T) {
	l := newFakeLedger()
	l.failAt = 200
	s, conns := session(t, l, params(workload.Append), 4, func(id workload.Stream) func(context.Context, workload.Seq) Reply {
		return func(ctx context.Context, n workload.Seq) Reply {
			if id == 4 { // waits for a reply that does not come: the failure must reach it
				<-ctx.Done()
				return Reply{Outcome: ledger.Unknown, Ended: ledger.EndError, Err: ctx.Err()}
			}
			return acked(ctx, n)
		}
	})
	s.Start()
	select {
	case <-s.Ended():
	case <-time.After(20 * time.Second):
		t.Fatal("the streams go on although nothing can be recorded")
	}
	require.ErrorIs(t, s.Errors(), errDisk)
	for id, c := range conns {
		assert.True(t, c.closed, "stream %d", id)
		out := l.of(ledger.KindOutcome, id)
		// At most the commit that was under way has no outcome: it is unknown.
		assert.LessOrEqual(t, len(c.sent), len(out)+1, "stream %d", id)
	}
}

func TestOpenWritesTheSessionBeforeAnyCommit(t *testing.T) {
	p := params(workload.Transfer)
	w, path := realLedger(t, p)
	s, err := Open(t.Context(), Config{Params: p, Streams: 2, Session: 3, Cycle: 4, Epoch: 2, Token: 99, Ledger: w, Wall: time.Unix(1700000000, 5),
		First: func(s workload.Stream) workload.Seq { return workload.Seq(100 * uint64(s)) },
		Dial: func(context.Context, workload.Stream) (Conn, error) {
			return &fakeConn{t: t, ledger: newFakeLedger(), reply: acked}, nil
		}})
	require.NoError(t, err)
	r, err := ledger.OpenReader(path) // while the session is open: all of it must be durable
	require.NoError(t, err)
	defer r.Close()
	st, err := ledger.Scan(r)
	require.NoError(t, err)
	assert.EqualValues(t, 3, st.Session)
	assert.EqualValues(t, 2, st.Epoch)
	assert.EqualValues(t, 4, st.Cycle)
	assert.Equal(t, map[workload.Stream]workload.Seq{1: 99 + 4096, 2: 199 + 4096}, st.Reserved)
	s.closeAll()
	require.NoError(t, w.Close())
}

func TestOpenReportsAConnectionThatFails(t *testing.T) {
	l := newFakeLedger()
	refused := errors.New("too many connections")
	_, err := Open(t.Context(), Config{Params: params(workload.Append), Streams: 8, Ledger: l, Wall: time.Now(),
		First: func(workload.Stream) workload.Seq { return 1 },
		Dial: func(_ context.Context, s workload.Stream) (Conn, error) {
			if s == 5 {
				return nil, refused
			}
			return &fakeConn{t: t, ledger: l, reply: acked}, nil
		}})
	require.ErrorIs(t, err, refused)
	assert.ErrorContains(t, err, "stream 5")
	assert.Empty(t, l.records, "a session that never began leaves nothing in the ledger")
}

func TestStatsCountAndTime(t *testing.T) {
	l := newFakeLedger()
	s, _ := session(t, l, params(workload.Append), 2, same(stopAfter(50, Reply{Outcome: ledger.Unknown, Ended: ledger.EndRST})))
	s.Start()
	<-s.Ended()
	st := s.Stats()
	assert.EqualValues(t, 98, st.Acked)
	assert.EqualValues(t, 2, st.Unknown)
	assert.Zero(t, st.Running)
	assert.Equal(t, map[ledger.End]int{ledger.EndRST: 2}, st.Ends)
	assert.Positive(t, st.P50)
	assert.GreaterOrEqual(t, st.Max, st.P99)
	for _, x := range st.Streams {
		assert.EqualValues(t, 49, x.LastAcked)
	}
}
