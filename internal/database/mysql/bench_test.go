package mysql

import (
	"context"
	sqldriver "database/sql/driver"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"plugpull/client"
	"plugpull/internal/ledger"
	"plugpull/internal/workload"
)

func BenchmarkCommit(b *testing.B) {
	s := ownServer(b, "--innodb-log-file-size=256M", "--innodb-buffer-pool-size=256M")
	for _, profile := range workload.Profiles() {
		for _, conns := range []int{1, 16} {
			b.Run(sprintf("%s/conns=%d", profile, conns), func(b *testing.B) {
				d, p := prepared(b, s.Port(), profile, Options{})
				var all []client.Conn
				for range conns {
					all = append(all, dial(b, d, p))
				}
				b.ReportAllocs()
				b.ResetTimer()
				var wg sync.WaitGroup
				for i, c := range all {
					wg.Go(func() {
						for n := workload.Seq(1); n <= workload.Seq((b.N+conns-1)/conns); n++ {
							if r := c.Commit(context.Background(), workload.Op{Stream: workload.Stream(i + 1), Seq: n, First: 1}); r.Outcome != ledger.Acked {
								b.Error(r.Err)
								return
							}
						}
					})
				}
				wg.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
			})
		}
	}
}

// BenchmarkSurvivors compares a cursor with the driver's bare streamed SELECT
// of the same columns over the binary protocol.
func BenchmarkSurvivors(b *testing.B) {
	s := ownServer(b, "--innodb-log-file-size=256M", "--innodb-buffer-pool-size=512M")
	d, p := prepared(b, s.Port(), workload.Append, Options{})
	const rows = 500_000
	do(b, d, "ALTER TABLE "+d.quoted("append_1")+" MODIFY payload VARBINARY(400) NOT NULL",
		"INSERT INTO "+d.quoted("append_1")+" SELECT 1, seq, '', 1, REPEAT('x', 100) FROM "+d.quoted(sprintf("seq_1_to_%d", rows)))
	sv := survivors(b, d)
	var cursor, bare time.Duration
	read := 0
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		n, err := drain(b, sv)
		require.NoError(b, err)
		require.Equal(b, rows, n)
		cursor += time.Since(start)
		b.StopTimer()
		start = time.Now()
		require.Equal(b, rows, bareSelect(b, d))
		bare += time.Since(start)
		read += n
		b.StartTimer()
	}
	b.ReportMetric(float64(read)/cursor.Seconds(), "rows/s")
	b.ReportMetric(float64(read)/bare.Seconds(), "bare-rows/s")
	b.ReportMetric(bare.Seconds()/cursor.Seconds(), "of-bare")
	_ = p
}

func drain(b *testing.B, sv *Survivors) (n int, err error) {
	rows, err := sv.Rows(ctx(b), workload.TableAppend, 1, 0)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var r workload.Row
	for {
		more, err := rows.Next(&r)
		if err != nil || !more {
			return n, err
		}
		n++
	}
}

func bareSelect(b *testing.B, d *DB) (n int) {
	connector, err := d.connector(d.dsn.Schema, dialControl)
	require.NoError(b, err)
	dc, err := connector.Connect(context.Background())
	require.NoError(b, err)
	defer dc.Close()
	stmt, err := prepare(context.Background(), dc, scanQuery(d, workload.TableAppend, 1))
	require.NoError(b, err)
	rows, err := stmt.(sqldriver.StmtQueryContext).QueryContext(context.Background(), []sqldriver.NamedValue{{Ordinal: 1, Value: int64(1)}, {Ordinal: 2, Value: int64(0)}})
	require.NoError(b, err)
	defer rows.Close()
	dest := make([]sqldriver.Value, 4)
	for {
		err := rows.Next(dest)
		if err == io.EOF {
			return n
		}
		require.NoError(b, err)
		n++
	}
}
