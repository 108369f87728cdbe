package ledger

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"plugpull/internal/workload"
)

// BenchmarkAppend appends to a file on a disk, its syncs included.
func BenchmarkAppend(b *testing.B) {
	w, _ := create(b)
	b.SetBytes(recordSize)
	b.ReportAllocs()
	n := workload.Seq(0)
	for b.Loop() {
		n++
		if _, err := w.Append(acked(n)); err != nil {
			b.Fatal(err)
		}
	}
	require.NoError(b, w.Close())
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "appends/s")
}

// BenchmarkAppendStreams lets 16 streams append at once.
func BenchmarkAppendStreams(b *testing.B) {
	const streams = 16
	w, _ := create(b)
	b.SetBytes(recordSize)
	var wg sync.WaitGroup
	for s := range streams {
		wg.Go(func() {
			r := acked(1)
			r.Stream = workload.Stream(s + 1)
			for range b.N / streams {
				r.From++
				r.To++
				if _, err := w.Append(r); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	require.NoError(b, w.Close())
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
}

// BenchmarkRead reads a ledger of a million records from the page cache.
func BenchmarkRead(b *testing.B) {
	const records = 1_000_000
	w, path := create(b)
	for n := range workload.Seq(records) {
		_, err := w.Append(acked(n + 1))
		require.NoError(b, err)
	}
	require.NoError(b, w.Close())
	b.SetBytes(records * recordSize)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		r, err := OpenReader(path)
		require.NoError(b, err)
		var rec Record
		for {
			ok, err := r.Next(&rec)
			if err != nil {
				b.Fatal(err)
			}
			if !ok {
				break
			}
			n++
		}
		require.NoError(b, r.Close())
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
}
