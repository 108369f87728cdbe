package campaign_test

import (
	"bytes"
	"context"
	"database/sql/driver"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	sqldriver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"plugpull/client"
	"plugpull/internal/campaign"
	"plugpull/internal/clock"
	"plugpull/internal/database/mysql"
	"plugpull/internal/ledger"
	"plugpull/internal/testserver"
	"plugpull/internal/workload"
	"plugpull/verifier"
)

func benchServer(b *testing.B, args ...string) *testserver.Server {
	b.Helper()
	s, err := testserver.Start(b.Context(), testserver.Options{Args: append([]string{
		"--innodb-buffer-pool-size=1G", "--innodb-log-file-size=1G", "--max-allowed-packet=64M"}, args...)})
	if err != nil {
		b.Skipf("no throw-away server: %v (make deps installs mariadbd)", err)
	}
	b.Cleanup(func() { require.NoError(b, s.Close()) })
	return s
}

func benchTarget(b *testing.B, s *testserver.Server) mysql.Target {
	b.Helper()
	dsn, err := mysql.ParseDSN(fmt.Sprintf("mysql://root@127.0.0.1:%d/plugpull", s.Port()))
	require.NoError(b, err)
	db, err := mysql.Open(dsn, mysql.Options{})
	require.NoError(b, err)
	return mysql.Target{DB: db}
}

func benchBook(b *testing.B, lo, hi int) *campaign.Book { return benchBookIn(b, b.TempDir(), lo, hi) }

func benchBookIn(b *testing.B, dir string, lo, hi int) *campaign.Book {
	b.Helper()
	run, err := campaign.NewRun()
	require.NoError(b, err)
	book, err := campaign.CreateBook(filepath.Join(dir, "ledger"), ledger.Config{Database: "mysql", Schema: "plugpull",
		Params: workload.Params{Run: run, Profile: workload.Append, PayloadMin: lo, PayloadMax: hi}})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, book.Close()) })
	return book
}

// memoryLedger takes every record and keeps none: what the ledger's disk costs is the
// difference to a real one.
type memoryLedger struct {
	mu sync.Mutex
	n  ledger.LSN
}

func (l *memoryLedger) Append(ledger.Record) (ledger.LSN, error) {
	return l.AppendAll(make([]ledger.Record, 1))
}
func (l *memoryLedger) AppendAll(rs []ledger.Record) (ledger.LSN, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n += ledger.LSN(len(rs))
	return l.n, nil
}
func (l *memoryLedger) Sync(context.Context) error               { return nil }
func (l *memoryLedger) SyncTo(context.Context, ledger.LSN) error { return nil }
func (l *memoryLedger) Durable() ledger.LSN                      { l.mu.Lock(); defer l.mu.Unlock(); return l.n }
func (l *memoryLedger) Failed() <-chan struct{}                  { return nil }

const (
	// round is how long each side of a comparison commits before the next has its turn.
	round  = 2 * time.Second
	rounds = 7
)

// BenchmarkCommits prints commits/s of plugpull with three ledgers and of
// mariadb-slap, in turn on the same server. The ledgers: on the server's own disk,
// whose flushes then disturb the commits; in memory with everything else as it is,
// which is nearest to the control host's own disk; and none. The ratios are
// medians of those of each round, since a shared machine drifts.
func BenchmarkCommits(b *testing.B) {
	slap, err := exec.LookPath("mariadb-slap")
	if err != nil {
		b.Skip("no mariadb-slap (make deps installs it)")
	}
	s := benchServer(b)
	db := benchTarget(b, s)
	for _, conns := range []int{1, 16} {
		b.Run(fmt.Sprintf("conns=%d", conns), func(b *testing.B) {
			require.NoError(b, db.Drop(b.Context()))
			book, apart := benchBook(b, 250, 250), benchBookIn(b, memoryFolder(b), 250, 250)
			p := book.Config.Params
			require.NoError(b, db.Prepare(b.Context(), p, 1))
			slapTable(b, s)
			next := workload.Seq(1)
			rate := streamFor(b, db, p, &memoryLedger{}, conns, &next) // warms the server up, too
			sides := []struct {
				name string
				run  func() float64
			}{
				{"slap", func() float64 { return slapFor(b, slap, s.Port(), conns, int(rate*round.Seconds())) }},
				{"ledger-on-its-disk", func() float64 { return streamFor(b, db, p, book.Writer, conns, &next) }},
				{"ledger-apart", func() float64 { return streamFor(b, db, p, apart.Writer, conns, &next) }},
				{"no-ledger", func() float64 { return streamFor(b, db, p, &memoryLedger{}, conns, &next) }},
			}
			v := make([][]float64, len(sides))
			for range b.N {
				for r := range rounds {
					for i := range sides { // another one begins each round
						side := (i + r) % len(sides)
						rate = sides[side].run()
						v[side] = append(v[side], rate)
					}
				}
			}
			for i, side := range sides {
				b.ReportMetric(median(v[i]), side.name+"/s")
				if i > 0 {
					b.ReportMetric(median(ratios(v[i], v[0])), side.name+"-of-slap")
				}
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// memoryFolder returns a folder on a file system in memory.
func memoryFolder(b *testing.B) string {
	dir, err := os.MkdirTemp("/dev/shm", "plugpull-bench-")
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, os.RemoveAll(dir)) })
	return dir
}

func ratios(a, b []float64) (r []float64) {
	for i := range a {
		r = append(r, a[i]/b[i])
	}
	return r
}

// streamFor streams for a round and returns commits/s.
func streamFor(b *testing.B, db mysql.Target, p workload.Params, l client.Ledger, conns int, next *workload.Seq) float64 {
	b.Helper()
	s, err := client.Open(b.Context(), client.Config{Params: p, Streams: conns, Session: 1, Epoch: 1, Ledger: l, Wall: time.Now(),
		First: func(workload.Stream) workload.Seq { return *next },
		Dial:  func(ctx context.Context, _ workload.Stream) (client.Conn, error) { return db.Dial(ctx, p, 1) }})
	require.NoError(b, err)
	s.Start()
	select {
	case <-time.After(round):
	case <-s.Ended():
	}
	s.Stop()
	<-s.Ended()
	require.NoError(b, s.Errors())
	st := s.Stats()
	for _, x := range st.Streams {
		*next = max(*next, x.LastAcked+8192)
	}
	return st.PerSecond()
}

// slapTable makes the table that mariadb-slap inserts into, once as plugpull's own is:
// a new one for each round would charge it for growing files.
func slapTable(b *testing.B, s *testserver.Server) {
	b.Helper()
	c := bareConn(b, s)
	defer c.Close()
	for _, q := range []string{
		"CREATE OR REPLACE SCHEMA slap",
		"CREATE TABLE slap.t (seq BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, stream SMALLINT UNSIGNED NOT NULL, run BINARY(16) NOT NULL, " +
			"version TINYINT UNSIGNED NOT NULL, payload VARBINARY(250) NOT NULL) ENGINE=InnoDB",
	} {
		_, err := c.(driver.ExecerContext).ExecContext(b.Context(), q, nil)
		require.NoError(b, err)
	}
}

// slapFor lets mariadb-slap commit rows of the same size over TCP and returns commits/s.
func slapFor(b *testing.B, slap string, port, conns, queries int) float64 {
	b.Helper()
	queries = max(queries/conns, 1) * conns
	cmd := exec.CommandContext(b.Context(), slap, "--no-defaults", "--host=127.0.0.1", "--protocol=tcp", "--port="+strconv.Itoa(port), "--user=root",
		"--concurrency="+strconv.Itoa(conns), "--iterations=1", "--number-of-queries="+strconv.Itoa(queries), "--csv", "--no-drop", "--create-schema=slap",
		"--query=INSERT INTO t (stream, run, version, payload) VALUES (1, 0x00112233445566778899aabbccddeeff, 1, '"+strings.Repeat("x", 250)+"')")
	out, err := cmd.CombinedOutput()
	require.NoError(b, err, string(out))
	// engine,type,average seconds,least,most,clients,queries a client
	f := strings.Split(strings.TrimSpace(string(out)), ",")
	seconds, err := strconv.ParseFloat(f[2], 64)
	require.NoError(b, err, string(out))
	return float64(queries) / seconds
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// BenchmarkVerify prints verified rows/s against a bare streamed SELECT of the
// same rows over the binary protocol, in turn, and the peak of the memory in
// use. PLUGPULL_ROWS sets how many rows; 1 million if unset.
func BenchmarkVerify(b *testing.B) {
	rows := 1_000_000
	if v := os.Getenv("PLUGPULL_ROWS"); v != "" {
		var err error
		rows, err = strconv.Atoi(v)
		require.NoError(b, err)
	}
	s := benchServer(b)
	db := benchTarget(b, s)
	for _, size := range []struct{ lo, hi int }{{16, 16}, {100, 400}} {
		b.Run(fmt.Sprintf("payload=%d..%d", size.lo, size.hi), func(b *testing.B) {
			require.NoError(b, db.Drop(b.Context()))
			book := benchBook(b, size.lo, size.hi)
			const streams = 8
			require.NoError(b, db.Prepare(b.Context(), book.Config.Params, 1))
			fill(b, s, book, streams, rows/streams)
			var ours, bare []float64
			for range b.N {
				for range 3 {
					start := time.Now()
					require.Equal(b, rows/streams*streams, selectAll(b, s, streams))
					bare = append(bare, float64(rows)/time.Since(start).Seconds())
					start = time.Now()
					verifyAll(b, db, book, rows/streams*streams)
					ours = append(ours, float64(rows)/time.Since(start).Seconds())
				}
			}
			b.ReportMetric(median(ours), "rows/s")
			b.ReportMetric(median(bare), "bare-rows/s")
			b.ReportMetric(median(ours)/median(bare), "of-bare")
			b.ReportMetric(peakHeap(b, func() { verifyAll(b, db, book, rows/streams*streams) }), "peak-heap-MB")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func verifyAll(b *testing.B, db mysql.Target, book *campaign.Book, want int) {
	b.Helper()
	ix := verifier.NewIndex()
	open := func(at ledger.LSN) (verifier.Records, error) {
		r, err := ledger.OpenReader(book.Path)
		if err != nil {
			return nil, err
		}
		return r, r.Seek(at)
	}
	recs, err := open(0)
	require.NoError(b, err)
	require.NoError(b, ix.Read(recs))
	require.NoError(b, recs.Close())
	sv, release, err := db.Survivors(1)
	require.NoError(b, err)
	res, err := verifier.Verify(b.Context(), verifier.Input{Params: book.Config.Params, Index: ix, Survivors: sv, Open: open})
	require.NoError(b, err)
	require.NoError(b, release())
	require.Zero(b, res.Counts.Total())
	require.EqualValues(b, want, res.Rows)
	require.EqualValues(b, want, res.Acked)
}

// peakHeap samples the heap in use while do runs, in MB.
func peakHeap(b *testing.B, do func()) float64 {
	b.Helper()
	runtime.GC()
	stop := make(chan struct{})
	var peak uint64
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		var m runtime.MemStats
		for {
			select {
			case <-tick.C:
				runtime.ReadMemStats(&m)
				peak = max(peak, m.HeapInuse+m.StackInuse)
			case <-stop:
				return
			}
		}
	})
	do()
	close(stop)
	wg.Wait()
	return float64(peak) / 1e6
}

// bareConn opens a connection of the driver's own.
func bareConn(b *testing.B, s *testserver.Server) driver.Conn {
	b.Helper()
	cfg := sqldriver.NewConfig()
	cfg.Net, cfg.Addr, cfg.User, cfg.DBName = "tcp", s.Addr(), "root", "plugpull"
	connector, err := sqldriver.NewConnector(cfg)
	require.NoError(b, err)
	c, err := connector.Connect(b.Context())
	require.NoError(b, err)
	return c
}

// selectAll reads every row as a bare prepared SELECT does, and looks at nothing.
func selectAll(b *testing.B, s *testserver.Server, streams int) (n int) {
	b.Helper()
	c := bareConn(b, s)
	defer c.Close()
	stmt, err := c.(driver.ConnPrepareContext).PrepareContext(b.Context(), "SELECT seq, version, run, payload FROM append_1 WHERE stream = ? AND seq >= ? ORDER BY seq")
	require.NoError(b, err)
	dest := make([]driver.Value, 4)
	for st := range streams {
		rows, err := stmt.(driver.StmtQueryContext).QueryContext(b.Context(), []driver.NamedValue{{Ordinal: 1, Value: int64(st + 1)}, {Ordinal: 2, Value: int64(0)}})
		require.NoError(b, err)
		for {
			if err := rows.Next(dest); err == io.EOF {
				break
			} else if err != nil {
				b.Fatal(err)
			}
			n++
		}
		require.NoError(b, rows.Close())
	}
	return n
}

// fill writes a ledger and the rows that it tells of, as streams that took turns would have.
func fill(b *testing.B, s *testserver.Server, book *campaign.Book, streams, each int) {
	b.Helper()
	now := clock.Now()
	add := func(r ledger.Record) {
		r.Session = 1
		_, err := book.Append(r)
		require.NoError(b, err)
	}
	add(ledger.Record{Kind: ledger.KindSession, Count: 1, From: 1, To: 1, Sent: now})
	for st := range streams {
		id := workload.Stream(st + 1)
		add(ledger.Record{Kind: ledger.KindStream, Stream: id, From: 1, Sent: now})
		add(ledger.Record{Kind: ledger.KindReserve, Stream: id, From: 1, To: workload.Seq(each), Sent: now})
	}
	for n := range each {
		for st := range streams {
			now += 1000
			add(ledger.Record{Kind: ledger.KindOutcome, Code: uint8(ledger.Acked), Stream: workload.Stream(st + 1),
				From: workload.Seq(n + 1), To: workload.Seq(n + 1), Sent: now, Answered: now + 500})
		}
	}
	require.NoError(b, book.Sync(b.Context()))
	c := bareConn(b, s)
	defer c.Close()
	p := book.Config.Params
	var q bytes.Buffer
	var payload []byte
	for st := range streams {
		for n := 1; n <= each; n++ {
			if q.Len() == 0 {
				q.WriteString("INSERT INTO append_1 (stream, seq, run, version, payload) VALUES ")
			} else {
				q.WriteByte(',')
			}
			payload = p.AppendPayload(payload[:0], workload.TableAppend, workload.Stream(st+1), workload.Seq(n), 1)
			fmt.Fprintf(&q, "(%d,%d,0x%x,1,0x%x)", st+1, n, p.Run[:], payload)
			if q.Len() > 4<<20 || n == each {
				_, err := c.(driver.ExecerContext).ExecContext(b.Context(), q.String(), nil)
				require.NoError(b, err)
				q.Reset()
			}
		}
	}
}
