package client

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"plugpull/internal/clock"
	"plugpull/internal/ledger"
	"plugpull/internal/workload"
)

var testRun = uuid.MustParse("6ba7b810-9dad-11d1-80b4-00c04fd430c8")

func params(p workload.Profile) workload.Params {
	w := workload.Params{Run: testRun, Profile: p, PayloadMin: 10, PayloadMax: 20}
	if p == workload.Churn {
		w.Window = 8
	}
	return w
}

// fakeConn answers as its script says, and checks on each commit that the number may be sent.
type fakeConn struct {
	t      *testing.T
	ledger *fakeLedger
	reply  func(ctx context.Context, n workload.Seq) Reply
	mu     sync.Mutex
	sent   []workload.Seq
	closed bool
}

func (c *fakeConn) ID() uint64 { return 7 }

func (c *fakeConn) Commit(ctx context.Context, op workload.Op) Reply {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		c.t.Error("a commit after Close")
	}
	if !c.ledger.covers(op.Stream, op.Seq) {
		c.t.Errorf("stream %d: commit %d was sent without a durable reservation", op.Stream, op.Seq)
	}
	c.sent = append(c.sent, op.Seq)
	r := c.reply(ctx, op.Seq)
	if r.Sent == 0 && r.Outcome != ledger.Refused {
		r.Sent = clock.Now()
	}
	r.Answered = clock.Now()
	return r
}

func (c *fakeConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return nil
}

func acked(context.Context, workload.Seq) Reply { return Reply{Outcome: ledger.Acked} }

// fakeLedger keeps records in memory; they become durable only through SyncTo or when lazy is false.
type fakeLedger struct {
	mu       sync.Mutex
	records  []ledger.Record
	reserves []reserve
	durable  ledger.LSN
	lazy     bool // nothing is durable before somebody waits for it
	failAt   int  // appends before the disk fails; zero: never
	failed   chan struct{}
	broken   bool
}

// reserve is a reservation and the position after it.
type reserve struct {
	ledger.Record
	at ledger.LSN
}

var errDisk = errors.New("disk full")

func newFakeLedger() *fakeLedger { return &fakeLedger{failed: make(chan struct{})} }

func (l *fakeLedger) Append(r ledger.Record) (ledger.LSN, error) {
	return l.AppendAll([]ledger.Record{r})
}

func (l *fakeLedger) AppendAll(rs []ledger.Record) (ledger.LSN, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failAt > 0 && len(l.records)+len(rs) > l.failAt {
		if !l.broken {
			l.broken = true
			close(l.failed)
		}
		return 0, errDisk
	}
	for _, r := range rs {
		l.records = append(l.records, r)
		if r.Kind == ledger.KindReserve {
			l.reserves = append(l.reserves, reserve{r, ledger.LSN(len(l.records))})
		}
	}
	if !l.lazy {
		l.durable = ledger.LSN(len(l.records))
	}
	return ledger.LSN(len(l.records)), nil
}

func (l *fakeLedger) Sync(ctx context.Context) error {
	l.mu.Lock()
	to := ledger.LSN(len(l.records))
	l.mu.Unlock()
	return l.SyncTo(ctx, to)
}

func (l *fakeLedger) SyncTo(ctx context.Context, to ledger.LSN) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken {
		return errDisk
	}
	l.durable = max(l.durable, to)
	return ctx.Err()
}

func (l *fakeLedger) Durable() ledger.LSN {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.durable
}

func (l *fakeLedger) Failed() <-chan struct{} { return l.failed }

// covers reports whether a durable reservation holds the number.
func (l *fakeLedger) covers(s workload.Stream, n workload.Seq) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.reserves {
		if r.at <= l.durable && r.Stream == s && r.From <= n && n <= r.To {
			return true
		}
	}
	return false
}

// of returns the records of a kind and stream.
func (l *fakeLedger) of(k ledger.Kind, s workload.Stream) []ledger.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []ledger.Record
	for _, r := range l.records {
		if r.Kind == k && r.Stream == s {
			out = append(out, r)
		}
	}
	return out
}

// session opens streams whose connections answer as reply says.
func session(t *testing.T, l *fakeLedger, p workload.Params, streams int, reply func(s workload.Stream) func(context.Context, workload.Seq) Reply) (*Session, map[workload.Stream]*fakeConn) {
	t.Helper()
	conns := map[workload.Stream]*fakeConn{}
	var mu sync.Mutex
	s, err := Open(t.Context(), Config{Params: p, Streams: streams, Session: 1, Epoch: 1, Token: 9, Ledger: l, Wall: time.Now(),
		First: func(workload.Stream) workload.Seq { return 1 },
		Dial: func(_ context.Context, id workload.Stream) (Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			conns[id] = &fakeConn{t: t, ledger: l, reply: reply(id)}
			return conns[id], nil
		}})
	require.NoError(t, err)
	return s, conns
}

func same(f func(context.Context, workload.Seq) Reply) func(workload.Stream) func(context.Context, workload.Seq) Reply {
	return func(workload.Stream) func(context.Context, workload.Seq) Reply { return f }
}

// realLedger is a ledger on disk.
func realLedger(t *testing.T, p workload.Params) (*ledger.Writer, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ledger")
	w, err := ledger.Create(path, p.Run, uuid.New(), ledger.Config{Params: p, Database: "mysql", Schema: "plugpull"})
	require.NoError(t, err)
	return w, path
}
