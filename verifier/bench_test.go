package verifier_test

import (
	"context"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/clock"
	"plugpull/internal/ledger"
	"plugpull/internal/workload"
	"plugpull/verifier"
)

// bigLedger makes up the records of one session of n acknowledged commits on
// each stream, in turn; it holds none of them.
type bigLedger struct {
	streams, n int
	at         int
}

func (b *bigLedger) Next(r *ledger.Record) (bool, error) {
	i := b.at
	b.at++
	*r = ledger.Record{Session: 1}
	if i == 0 {
		r.Kind, r.Count = ledger.KindSession, 1
		return true, nil
	}
	i--
	if i < 2*b.streams {
		r.Stream = workload.Stream(1 + i%b.streams)
		r.Kind, r.From = ledger.KindStream, 1
		if i >= b.streams {
			r.Kind, r.To = ledger.KindReserve, workload.Seq(b.n)
		}
		return true, nil
	}
	i -= 2 * b.streams
	n := workload.Seq(1 + i/b.streams)
	r.Kind, r.Code, r.Stream = ledger.KindOutcome, uint8(ledger.Acked), workload.Stream(1+i%b.streams)
	r.From, r.To, r.Sent, r.Answered = n, n, clock.Instant(i+1), clock.Instant(i+b.streams)
	return i < b.streams*b.n, nil
}

func (b *bigLedger) Index() ledger.LSN { return ledger.LSN(b.at) }
func (b *bigLedger) Close() error      { return nil }

// bigScan makes up the rows of the same session; it leaves out those after last.
type bigScan struct {
	p          workload.Params
	streams, n int
	last       workload.Seq
	read       func() // is called every 4 Ki rows
}

func (b *bigScan) Streams(context.Context, workload.Table) ([]workload.Stream, error) {
	var out []workload.Stream
	for s := range b.streams {
		out = append(out, workload.Stream(s+1))
	}
	return out, nil
}

func (b *bigScan) Rows(_ context.Context, t workload.Table, s workload.Stream, from workload.Seq) (verifier.Rows, error) {
	r := &bigRows{bigScan: b, row: workload.Row{Table: t, Stream: s, Version: 1, Run: b.p.Run}, next: max(from, 1)}
	if t == workload.TableHead {
		r.next = b.last
	}
	if t == workload.TableChurn {
		r.next = workload.Seq(b.n) - 2*b.p.Window + 1
	}
	return r, nil
}

type bigRows struct {
	*bigScan
	row     workload.Row
	next    workload.Seq
	payload []byte
}

func (b *bigRows) Next(r *workload.Row) (bool, error) {
	if b.next > b.last {
		return false, nil
	}
	b.row.Seq = b.next
	b.next++
	if b.row.Table == workload.TableChurn {
		b.row.Version = 1
		if b.row.Seq <= workload.Seq(b.n)-b.p.Window {
			b.row.Version = 2
		}
	}
	b.payload = b.p.AppendPayload(b.payload[:0], b.row.Table, b.row.Stream, b.row.Seq, b.row.Version)
	b.row.Payload = b.payload
	*r = b.row
	if b.read != nil && b.next&0xfff == 0 {
		b.read()
	}
	return true, nil
}

func (b *bigRows) Close() error { return nil }

func bigInput(tb testing.TB, p workload.Profile, streams, n int) (verifier.Input, *bigScan) {
	q := params(p)
	q.PayloadMin, q.PayloadMax = 100, 400
	if p == workload.Churn {
		q.Window = workload.DefaultWindow
	}
	sc := &bigScan{p: q, streams: streams, n: n, last: workload.Seq(n)}
	ix := verifier.NewIndex()
	require.NoError(tb, ix.Read(&bigLedger{streams: streams, n: n}))
	return verifier.Input{Params: q, Index: ix, Survivors: sc, Open: func(at ledger.LSN) (verifier.Records, error) {
		return &bigLedger{streams: streams, n: n, at: int(at)}, nil
	}}, sc
}

// TestBoundedMemory verifies 400,000 commits of eight streams (with PLUGPULL_LONG
// two million) of which the second half is lost: neither rows nor losses may be held.
func TestBoundedMemory(t *testing.T) {
	const streams = 8
	n := 50_000
	if os.Getenv("PLUGPULL_LONG") != "" {
		n = 250_000
	}
	for _, p := range workload.Profiles() {
		t.Run(string(p), func(t *testing.T) {
			in, sc := bigInput(t, p, streams, n)
			if p != workload.Churn {
				sc.last = workload.Seq(n / 2)
			}
			var peak atomic.Uint64
			look := func() {
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				peak.Store(max(peak.Load(), m.HeapAlloc))
			}
			sc.read = look
			runtime.GC()
			res, err := verifier.Verify(context.Background(), in)
			require.NoError(t, err)
			look()
			assert.Equal(t, uint64(streams*n), res.Acked)
			if p != workload.Churn {
				assert.Equal(t, uint64(streams*n/2), res.Counts.LostTail)
				assert.Equal(t, uint64(0), res.Counts.Other())
				assert.Len(t, res.Pins, streams)
				assert.Equal(t, time.Duration(streams*n/2-1), res.LossWindow)
			} else {
				assert.Zero(t, res.Counts)
			}
			t.Logf("peak of the heap: %d KiB", peak.Load()>>10)
			assert.Less(t, peak.Load(), uint64(2<<20), "peak of the heap, in bytes")
		})
	}
}

// BenchmarkVerify measures rows a second, the making of rows and records included.
func BenchmarkVerify(b *testing.B) {
	for _, p := range workload.Profiles() {
		b.Run(string(p), func(b *testing.B) {
			const streams, n = 8, 20_000
			in, _ := bigInput(b, p, streams, n)
			b.ReportAllocs()
			var rows uint64
			for b.Loop() {
				res, err := verifier.Verify(context.Background(), in)
				if err != nil || res.Counts.Total() != 0 {
					b.Fatal(err, res.Counts)
				}
				rows += res.Rows
			}
			b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
			b.ReportMetric(float64(streams*n*b.N)/b.Elapsed().Seconds(), "commits/s")
		})
	}
}

// TestAllocations shows that a row costs no allocation.
func TestAllocations(t *testing.T) {
	const streams, n = 8, 5_000
	for _, p := range workload.Profiles() {
		in, _ := bigInput(t, p, streams, n)
		allocs := testing.AllocsPerRun(1, func() {
			_, err := verifier.Verify(context.Background(), in)
			require.NoError(t, err)
		})
		assert.Less(t, allocs, 1000.0, "allocations of %d commits of profile %s", streams*n, p)
	}
}
