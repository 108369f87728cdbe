package ledger

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"plugpull/internal/clock"
	"plugpull/internal/workload"
)

// The package comment's table, byte by byte, put together by hand.
func TestByteTable(t *testing.T) {
	le := binary.LittleEndian
	table := crc32.MakeTable(crc32.Castagnoli)
	b := encoded(t, Record{
		Kind: KindOutcome, Code: uint8(Refused), Stream: 0x0201, Session: 0x06050403,
		From: 0x0e0d0c0b0a090807, To: 0x0e0d0c0b0a090807, Sent: 0x161514131211100f, Answered: 0x1e1d1c1b1a191817,
		Errno: 0x2221201f, Cycle: 0x26252423, Count: 0x2e2d2c2b2a292827,
	})

	header := []byte("plugpull ledger\n")
	header = append(header, 1, 0, 0, 0, 64, 0, 0, 0)
	header = append(header, testRun[:]...)
	header = append(header, testBoot[:]...)
	header = append(header, 0, 0, 0, 0)
	header = le.AppendUint32(header, crc32.Checksum(header, table))
	require.Equal(t, header, b[:64])

	rest := b[64:]
	index := len(rest)/64 - 1
	want := []byte{4, 2, 1, 2, 3, 4, 5, 6}
	want = append(want, 7, 8, 9, 10, 11, 12, 13, 14, 7, 8, 9, 10, 11, 12, 13, 14)
	for x := byte(15); x <= 46; x++ {
		want = append(want, x)
	}
	want = append(want, 0, 0, 0, 0)
	covered := le.AppendUint64(bytes.Clone(testRun[:]), uint64(index))
	want = le.AppendUint32(want, crc32.Checksum(append(covered, want...), table))
	require.Equal(t, want, rest[index*64:])

	// The configuration before it: whole chunks of 51 bytes, then the last.
	var cfg []byte
	for i := range index {
		c := rest[i*64 : i*64+64]
		require.Equal(t, []byte{9, 1, byte(i), 0, 0, 0, 0, 0}, c[:8])
		n := int(c[8] & 0x7f)
		require.Equal(t, i == index-1, c[8]&0x80 != 0)
		require.True(t, n == 51 || i == index-1)
		require.Equal(t, make([]byte, 51-n), c[9+n:60])
		cfg = append(cfg, c[9:9+n]...)
	}
	require.JSONEq(t, `{"run":"00112233-4455-6677-8899-aabbccddeeff","profile":"append","payload_min":100,"payload_max":400,"window":0,"database":"mysql","schema":"plugpull"}`, string(cfg))
}

// A ledger of today must be readable for ever: this dump may only be added to.
func TestGoldenFile(t *testing.T) {
	dump := hex.Dump(encoded(t, sample(t)...))
	golden(t, "small.hexdump", dump)

	r := readerOf(t, unhex(t, dump))
	assert.Equal(t, Header{Run: testRun, Boot: testBoot}, r.Header())
	assert.Equal(t, testConfig(), r.Config())
	got, err := readAll(r)
	require.NoError(t, err)
	assert.Equal(t, sample(t), got)
	assert.Zero(t, r.Dropped())
}

// unhex reads the form of hexdump -C.
func unhex(t *testing.T, dump string) []byte {
	var b []byte
	for line := range strings.Lines(dump) {
		x, err := hex.DecodeString(strings.ReplaceAll(line[9:59], " ", ""))
		require.NoError(t, err)
		b = append(b, x...)
	}
	return b
}

// records draws any valid records.
func records() *rapid.Generator[[]Record] {
	record := rapid.Custom(func(t *rapid.T) Record {
		kind := Kind(rapid.IntRange(int(KindSession), int(KindText)).Draw(t, "kind"))
		r := Record{
			Kind:    kind,
			Code:    rapid.Uint8Range(codes[kind].min, codes[kind].max).Draw(t, "code"),
			Session: rapid.Uint32().Draw(t, "session"),
		}
		if kind == KindText {
			r.Code = rapid.Uint8Range(uint8(TextSession), uint8(TextNote)).Draw(t, "key")
			r.Text = rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "text")
			return r
		}
		r.Stream = workload.Stream(rapid.Uint16().Draw(t, "stream"))
		r.From = workload.Seq(rapid.Uint64Min(1).Draw(t, "from"))
		r.To = workload.Seq(rapid.Uint64Min(uint64(r.From)).Draw(t, "to"))
		if kind == KindOutcome {
			r.To = r.From
		}
		r.Sent = clock.Instant(rapid.Int64().Draw(t, "sent"))
		r.Answered = clock.Instant(rapid.Int64().Draw(t, "answered"))
		r.Errno = rapid.Uint32().Draw(t, "errno")
		r.Cycle = rapid.Uint32().Draw(t, "cycle")
		r.Count = rapid.Uint64().Draw(t, "count")
		return r
	})
	return rapid.SliceOfN(record, 0, 60)
}

// Whatever is appended, in whatever groups and over whatever restarts, is
// read back, in order.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		want := records().Draw(rt, "records")
		f := &memFile{}
		w := memWriter(t, f, rapid.IntRange(1, 5000).Draw(rt, "limit"))
		for left := want; len(left) > 0; {
			n := rapid.IntRange(1, len(left)).Draw(rt, "n")
			end, err := w.AppendAll(left[:n])
			require.NoError(rt, err)
			left = left[n:]
			switch rapid.IntRange(0, 2).Draw(rt, "then") {
			case 0:
				require.NoError(rt, w.Sync(t.Context()))
				require.Equal(rt, end, w.Durable())
			case 1:
				require.NoError(rt, w.Close())
				w = startWriter(f, "mem", Header{Run: testRun}, end, 1000)
			}
		}
		require.NoError(rt, w.Close())

		r, err := newReader(bytes.NewReader(f.bytes()), "mem", recordSize*rapid.IntRange(1, 8).Draw(rt, "buffer"))
		require.NoError(rt, err)
		got, err := readAll(r)
		require.NoError(rt, err)
		require.Len(rt, got, len(want))
		for i := range want {
			if len(want[i].Text) == 0 {
				want[i].Text, got[i].Text = nil, nil
			}
			require.Equal(rt, want[i], got[i])
		}
		require.Equal(rt, w.Durable(), r.Index())
	})
}

func TestTextOfGreatestLength(t *testing.T) {
	long := text(TextNote, 1, strings.Repeat("x", MaxText))
	got, err := readAll(readerOf(t, encoded(t, long, acked(1))))
	require.NoError(t, err)
	require.Equal(t, []Record{long, acked(1)}, got)
}

func TestInvalidRecordIsNotAppended(t *testing.T) {
	for name, r := range map[string]Record{
		"no kind":                    {},
		"a kind of the future":       {Kind: KindText + 1},
		"no outcome":                 {Kind: KindOutcome, From: 1, To: 1},
		"outcome of a range":         {Kind: KindOutcome, Code: uint8(Acked), From: 1, To: 2},
		"outcome of number zero":     {Kind: KindOutcome, Code: uint8(Acked)},
		"reservation backwards":      {Kind: KindReserve, From: 2, To: 1},
		"pin backwards":              {Kind: KindPin, Code: uint8(PinAbsent), From: 2, To: 1},
		"mark of the future":         {Kind: KindMark, Code: uint8(MarkVoid) + 1},
		"text on another kind":       {Kind: KindSession, Text: []byte("x")},
		"text too long":              text(TextNote, 0, strings.Repeat("x", MaxText+1)),
		"text with a lost field":     {Kind: KindText, Code: uint8(TextNote), Cycle: 1},
		"another configuration":      text(TextConfig, 0, "{}"),
		"a text without a known key": text(0, 0, "x"),
	} {
		t.Run(name, func(t *testing.T) {
			f := &memFile{}
			w := memWriter(t, f, bufferLimit)
			_, err := w.Append(r)
			require.ErrorIs(t, err, ErrRecord)
			_, err = w.AppendAll([]Record{acked(1), r})
			require.ErrorIs(t, err, ErrRecord)
			_, err = w.Append(acked(2)) // the writer goes on
			require.NoError(t, err)
			require.NoError(t, w.Close())
			got, err := readAll(readerOf(t, f.bytes()))
			require.NoError(t, err)
			require.Equal(t, []Record{acked(2)}, got)
		})
	}
}

func TestConfigIsChecked(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Config)
		text   string
	}{
		"of another run":   {change: func(c *Config) { c.Run[0]++ }},
		"unknown profile":  {change: func(c *Config) { c.Profile = "x" }},
		"unknown key":      {text: `{"run":"00112233-4455-6677-8899-aabbccddeeff","profile":"append","payload_max":1,"colour":1}`},
		"something behind": {text: `{"run":"00112233-4455-6677-8899-aabbccddeeff","profile":"append","payload_max":1} {}`},
		"no JSON":          {text: `x`},
	} {
		t.Run(name, func(t *testing.T) {
			h := Header{Run: testRun, Boot: testBoot}
			if tc.change != nil {
				cfg := testConfig()
				tc.change(&cfg)
				_, err := Create(t.TempDir()+"/ledger", testRun, testBoot, cfg)
				require.ErrorIs(t, err, ErrConfig)
				return
			}
			r := text(TextConfig, 0, tc.text)
			c := newCodec(testRun)
			_, err := newReader(bytes.NewReader(c.append(h.append(nil), 0, &r)), "mem", smallBuffer)
			require.ErrorIs(t, err, ErrConfig)
		})
	}
}
