package ledger

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"plugpull/internal/clock"
	"plugpull/internal/workload"
)

var update = flag.Bool("update", false, "write the golden files anew")

var (
	testRun  = uuid.MustParse("00112233-4455-6677-8899-aabbccddeeff")
	testBoot = uuid.MustParse("b0070000-0000-4000-8000-000000000001")
)

func testConfig() Config {
	return Config{
		Params:   workload.Params{Run: testRun, Profile: workload.Append, PayloadMin: 100, PayloadMax: 400},
		Database: "mysql",
		Schema:   "plugpull",
	}
}

func text(key TextKey, session uint32, s string) Record {
	return Record{Kind: KindText, Code: uint8(key), Session: session, Text: []byte(s)}
}

func sessionText(t testing.TB, session uint32, boot uuid.UUID) Record {
	b, err := json.Marshal(SessionInfo{BootID: boot.String(), Wall: "2026-01-02T03:04:05.6Z", Plugpull: "v0", Server: map[string]string{"version": "11.8"}})
	require.NoError(t, err)
	return text(TextSession, session, string(b))
}

const second = clock.Instant(1e9)

// sample is one session of two streams with every kind of record.
func sample(t testing.TB) []Record {
	const wall = 1767323045_123456789
	return []Record{
		{Kind: KindSession, Session: 1, From: wall, To: 77, Sent: 1000 * second, Cycle: 1, Count: 1},
		sessionText(t, 1, testBoot),
		{Kind: KindMark, Code: uint8(MarkCycle), Session: 1, Cycle: 1, Answered: 1000*second + 5},
		{Kind: KindStream, Session: 1, Stream: 1, From: 1, To: 42, Sent: 1000*second + 1_000_000},
		{Kind: KindStream, Session: 1, Stream: 2, Code: uint8(WitnessStream), From: 1, Sent: 1000*second + 1_100_000},
		{Kind: KindReserve, Session: 1, Stream: 1, From: 1, To: 4096, Sent: 1000*second + 1_200_000},
		{Kind: KindReserve, Session: 1, Stream: 2, From: 1, To: 64, Sent: 1000*second + 1_300_000},
		{Kind: KindOutcome, Code: uint8(Acked), Session: 1, Stream: 1, From: 1, To: 1, Sent: 1001 * second, Answered: 1001*second + 812_345},
		{Kind: KindOutcome, Code: uint8(Refused), Session: 1, Stream: 1, From: 2, To: 2, Sent: 1002 * second, Answered: 1002*second + 50_000_000, Errno: 1205},
		{Kind: KindOutcome, Code: uint8(Acked), Session: 1, Stream: 2, From: 1, To: 1, Sent: 1002 * second, Answered: 1002*second + 4_000_000},
		{Kind: KindMark, Code: uint8(MarkCutCommanded), Session: 1, Cycle: 1, Answered: 1012 * second},
		{Kind: KindOutcome, Code: uint8(Unknown), Session: 1, Stream: 1, From: 3, To: 3, Sent: 1012*second + 345_678_901, Answered: 1017 * second, Errno: 2013},
		{Kind: KindEnd, Code: uint8(EndSilence), Session: 1, Stream: 1, From: 3, Answered: 1017 * second, Errno: 2013},
		{Kind: KindOutcome, Code: uint8(Refused), Session: 1, Stream: 2, From: 2, To: 2, Answered: 1017 * second},
		{Kind: KindSkip, Session: 1, Stream: 2, From: 3, To: 64},
		{Kind: KindMark, Code: uint8(MarkCutObserved), Session: 1, Cycle: 1, Answered: 1013 * second},
		text(TextNote, 1, "outlet 3 read back off\x1b[2J"),
		{Kind: KindPin, Code: uint8(PinPresent), Session: 1, Cycle: 1, Stream: 1, From: 3, To: 3, Answered: 1100 * second},
		{Kind: KindPin, Code: uint8(PinLostTail), Session: 1, Cycle: 1, Stream: 2, From: 1, To: 1, Count: 1, Answered: 1100 * second},
		{Kind: KindMark, Code: uint8(MarkVerified), Session: 1, Cycle: 1, Answered: 1100 * second, Count: 2},
		{Kind: KindMark, Code: uint8(MarkEpoch), Session: 1, Cycle: 1, Answered: 1101 * second, Count: 2},
	}
}

// encoded is a ledger in memory that holds rs.
func encoded(t testing.TB, rs ...Record) []byte {
	h := Header{Run: testRun, Boot: testBoot}
	b, err := beginning(h, testConfig())
	require.NoError(t, err)
	c := newCodec(testRun)
	for i := range rs {
		require.NoError(t, rs[i].check())
		b = c.append(b, LSN((len(b)-headerSize)/recordSize), &rs[i])
	}
	return b
}

// smallBuffer makes the reader fill its buffer often.
const smallBuffer = 4 * recordSize

func readerOf(t testing.TB, b []byte) *Reader {
	r, err := newReader(bytes.NewReader(b), "mem", smallBuffer)
	require.NoError(t, err)
	return r
}

// readAll returns copies of the records and the error that ended them.
func readAll(r *Reader) ([]Record, error) {
	var all []Record
	var rec Record
	for {
		ok, err := r.Next(&rec)
		if !ok || err != nil {
			return all, err
		}
		all = append(all, rec)
		all[len(all)-1].Text = bytes.Clone(rec.Text)
	}
}

func create(t testing.TB) (*Writer, string) {
	path := filepath.Join(t.TempDir(), "ledger")
	w, err := Create(path, testRun, testBoot, testConfig())
	require.NoError(t, err)
	t.Cleanup(func() { w.Close() }) //nolint:errcheck // the test has judged it
	return w, path
}

func readFile(t testing.TB, path string) []Record {
	r, err := OpenReader(path)
	require.NoError(t, err)
	defer r.Close() //nolint:errcheck // opened for reading
	all, err := readAll(r)
	require.NoError(t, err)
	return all
}

// memFile is a disk with faults. It is what a crash would leave: durable
// counts only what a sync has covered.
type memFile struct {
	mu       sync.Mutex
	data     []byte
	durable  int
	writes   int
	syncs    int
	writeErr error         // after half of the bytes
	syncErr  error         // the data is written all the same
	gate     chan struct{} // a sync receives from it first, unless nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes++
	n := len(p)
	if f.writeErr != nil {
		n /= 2
	}
	if need := int(off) + n; need > len(f.data) {
		f.data = append(f.data, make([]byte, need-len(f.data))...)
	}
	copy(f.data[off:], p[:n])
	return n, f.writeErr
}

func (f *memFile) Datasync() error {
	if f.gate != nil {
		<-f.gate
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.syncs++
	if f.syncErr == nil {
		f.durable = len(f.data)
	}
	return f.syncErr
}

func (f *memFile) Close() error { return nil }

func (f *memFile) bytes() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return bytes.Clone(f.data)
}

// memWriter is a writer on f, which it makes a new ledger.
func memWriter(t testing.TB, f *memFile, limit int) *Writer {
	f.data = encoded(t)
	f.durable = len(f.data)
	return startWriter(f, "mem", Header{Run: testRun, Boot: testBoot}, LSN((len(f.data)-headerSize)/recordSize), limit)
}

func acked(n workload.Seq) Record {
	return Record{Kind: KindOutcome, Code: uint8(Acked), Session: 1, Stream: 1, From: n, To: n, Sent: 1, Answered: 2}
}

// golden compares got with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "go test ./internal/ledger -update writes it")
	require.Equal(t, string(want), got)
}
