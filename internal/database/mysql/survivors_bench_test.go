package mysql

import (
	"bufio"
	"context"
	sqldriver "database/sql/driver"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"plugpull/internal/clock"
	"plugpull/internal/ledger"
	"plugpull/internal/workload"
	"plugpull/verifier"
)

// The size of what BenchmarkVerify verifies.
const (
	benchStreams = 8
	benchCommits = 50_000 // a stream
)

// BenchmarkVerify compares a verification of everything with the driver's bare
// streamed SELECT of the same columns, a stream after another on one connection;
// the figures are medians.
func BenchmarkVerify(b *testing.B) {
	for _, size := range [][2]int{{0, 16}, {100, 400}} {
		b.Run(sprintf("payload=%d..%d", size[0], size[1]), func(b *testing.B) {
			s := ownServer(b, "--innodb-log-file-size=256M", "--innodb-buffer-pool-size=512M")
			d, err := Open(testDSN(uint16(s.Port())), Options{})
			require.NoError(b, err)
			p := workload.Params{Run: [16]byte{1}, Profile: workload.Append, PayloadMin: size[0], PayloadMax: size[1]}
			require.NoError(b, d.Prepare(ctx(b), p, 1))
			loadStreams(b, d, p)
			ix := verifier.NewIndex()
			require.NoError(b, ix.Read(&ledgerPass{}))
			in := verifier.Input{Params: p, Index: ix, Survivors: survivors(b, d), Open: func(at ledger.LSN) (verifier.Records, error) {
				return &ledgerPass{int(at)}, nil
			}}
			require.Equal(b, benchStreams*benchCommits, bareStreams(b, d)) // into the server's memory
			var verify, bare, ratio []float64                              // of each round, since a busy machine is so in turns
			b.ReportAllocs()
			for b.Loop() {
				start := time.Now()
				res, err := verifier.Verify(context.Background(), in)
				verify = append(verify, time.Since(start).Seconds())
				require.NoError(b, err)
				require.Zero(b, res.Counts)
				require.EqualValues(b, benchStreams*benchCommits, res.Rows)
				b.StopTimer()
				start = time.Now()
				require.Equal(b, benchStreams*benchCommits, bareStreams(b, d))
				bare = append(bare, time.Since(start).Seconds())
				ratio = append(ratio, bare[len(bare)-1]/verify[len(verify)-1])
				b.StartTimer()
			}
			b.ReportMetric(benchStreams*benchCommits/median(verify), "rows/s")
			b.ReportMetric(benchStreams*benchCommits/median(bare), "bare-rows/s")
			b.ReportMetric(median(ratio), "of-bare")
		})
	}
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}

// loadStreams puts benchCommits whole rows of each stream into the table.
func loadStreams(b *testing.B, d *DB, p workload.Params) {
	const handler = "verify-bench"
	r, w := io.Pipe()
	driver.RegisterReaderHandler(handler, func() io.Reader { return r })
	defer driver.DeregisterReaderHandler(handler)
	written := make(chan error, 1)
	go func() {
		out := bufio.NewWriterSize(w, 64<<10)
		var payload []byte
		for s := workload.Stream(1); s <= benchStreams; s++ {
			for n := workload.Seq(1); n <= benchCommits; n++ {
				payload = p.AppendPayload(payload[:0], workload.TableAppend, s, n, 1)
				fmt.Fprintf(out, "%d\t%d\t%x\t1\t%x\n", s, n, p.Run[:], payload)
			}
		}
		err := out.Flush()
		_ = w.CloseWithError(err)
		written <- err
	}()
	do(b, d, "LOAD DATA LOCAL INFILE 'Reader::"+handler+"' INTO TABLE "+d.table(workload.TableAppend, 1)+
		" CHARACTER SET binary (stream, seq, @run, version, @payload) SET run = UNHEX(@run), payload = UNHEX(@payload)")
	require.NoError(b, <-written)
}

// ledgerPass makes up a session in which every commit was acknowledged, the
// streams in turn; at is the number of the next record.
type ledgerPass struct{ at int }

func (p *ledgerPass) Next(r *ledger.Record) (bool, error) {
	const first = 1 + 2*benchStreams // outcome
	stream := workload.Stream(1 + (p.at+benchStreams-1)%benchStreams)
	*r = ledger.Record{Session: 1, Stream: stream}
	switch i := p.at - first; {
	case p.at == 0:
		*r = ledger.Record{Kind: ledger.KindSession, Session: 1, Count: 1}
	case p.at <= benchStreams:
		r.Kind, r.From = ledger.KindStream, 1
	case i < 0:
		r.Kind, r.To = ledger.KindReserve, benchCommits
	default:
		r.Kind, r.Code, r.From = ledger.KindOutcome, uint8(ledger.Acked), workload.Seq(1+i/benchStreams)
		r.To, r.Sent, r.Answered = r.From, clock.Instant(i+1), clock.Instant(i+benchStreams)
	}
	p.at++
	return p.at <= first+benchStreams*benchCommits, nil
}

func (p *ledgerPass) Index() ledger.LSN { return ledger.LSN(p.at) }
func (p *ledgerPass) Close() error      { return nil }

// bareStreams reads every stream with the driver alone and returns the number of rows.
func bareStreams(b *testing.B, d *DB) (n int) {
	connector, err := d.connector(d.dsn.Schema, dialControl)
	require.NoError(b, err)
	dc, err := connector.Connect(context.Background())
	require.NoError(b, err)
	defer dc.Close()
	stmt, err := prepare(context.Background(), dc, scanQuery(d, workload.TableAppend, 1))
	require.NoError(b, err)
	dest := make([]sqldriver.Value, 4)
	for s := 1; s <= benchStreams; s++ {
		rows, err := stmt.(sqldriver.StmtQueryContext).QueryContext(context.Background(),
			[]sqldriver.NamedValue{{Ordinal: 1, Value: int64(s)}, {Ordinal: 2, Value: int64(0)}})
		require.NoError(b, err)
		for err = rows.Next(dest); err == nil; err = rows.Next(dest) {
			n++
		}
		require.ErrorIs(b, err, io.EOF)
		require.NoError(b, rows.Close())
	}
	return n
}
