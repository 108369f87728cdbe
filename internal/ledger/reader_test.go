package ledger

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"plugpull/internal/workload"
)

// A crash may leave any part of what was not durable: every prefix of a
// ledger opens and yields a prefix of its records.
func TestEveryTruncation(t *testing.T) {
	want := sample(t)
	whole := encoded(t, want...)
	start := len(encoded(t))
	for n := range len(whole) + 1 {
		r, err := newReader(bytes.NewReader(whole[:n]), "mem", smallBuffer)
		switch {
		case n < headerSize:
			require.ErrorIs(t, err, ErrShortHeader, "%d bytes", n)
			continue
		case n < start:
			require.ErrorIs(t, err, ErrNoConfig, "%d bytes", n)
			continue
		}
		require.NoError(t, err, "%d bytes", n)
		got, err := readAll(r)
		require.NoError(t, err, "%d bytes", n)
		require.Equal(t, want[:len(got)], append([]Record{}, got...), "%d bytes", n)
		kept := len(encoded(t, got...))
		require.Equal(t, int64(n-kept), r.Dropped().Bytes)
		require.Equal(t, offset(r.Index()), int64(kept))
		if len(got) < len(want) {
			require.Less(t, n, len(encoded(t, want[:len(got)+1]...)), "a whole record was dropped")
		}
	}
}

// A tail that is there but wrong is dropped like one that is missing.
func TestTornTail(t *testing.T) {
	whole := encoded(t, acked(1), acked(2))
	at := len(encoded(t, acked(1)))
	foreign := newCodec(testBoot)
	two := acked(2)
	for name, tc := range map[string]struct {
		tail []byte
		want Tail
	}{
		"zeros":                  {make([]byte, 3*64), Tail{192, 3}},
		"zeros, not whole":       {make([]byte, 3*64-1), Tail{191, 3}},
		"one byte":               {whole[at : at+1], Tail{1, 1}},
		"wrong byte, then a bit": {append(append([]byte{9}, whole[at+1:]...), 1, 2), Tail{66, 2}},
		"at another index":       {whole[at-64 : at], Tail{64, 1}},
		"of another run":         {foreign.append(nil, LSN((at-headerSize)/recordSize), &two), Tail{64, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			r := readerOf(t, append(bytes.Clone(whole[:at]), tc.tail...))
			got, err := readAll(r)
			require.NoError(t, err)
			assert.Equal(t, []Record{acked(1)}, got)
			assert.Equal(t, tc.want, r.Dropped())
		})
	}
}

// No flipped bit may change a record unnoticed: the records before it are
// read, then the ledger is damaged or ends.
func TestEveryBitFlip(t *testing.T) {
	want := sample(t)
	whole := encoded(t, want...)
	ends := make([]int, len(want)) // of each record in the file
	for i := range want {
		ends[i] = len(encoded(t, want[:i+1]...))
	}
	for bit := range 8 * len(whole) {
		b := bytes.Clone(whole)
		b[bit/8] ^= 1 << (bit % 8)
		r, err := newReader(bytes.NewReader(b), "mem", smallBuffer)
		if bit/8 < len(encoded(t)) {
			require.Error(t, err, "bit %d", bit)
			continue
		}
		require.NoError(t, err, "bit %d", bit)
		got, err := readAll(r)
		struck := 0 // the record that holds the bit
		for ends[struck] <= bit/8 {
			struck++
		}
		require.Equal(t, want[:struck], append([]Record{}, got...), "bit %d", bit)
		if struck == len(want)-1 {
			require.NoError(t, err, "bit %d", bit)
			require.Equal(t, Tail{64, 1}, r.Dropped())
			continue
		}
		var damaged *DamagedError
		require.ErrorAs(t, err, &damaged, "bit %d", bit)
		require.Equal(t, int64(bit/8/64*64), damaged.Offset)
	}
}

// Damage far before the end is found however much lies between.
func TestDamageIsFoundThroughGarbage(t *testing.T) {
	var rs []Record
	for n := range 100 {
		rs = append(rs, acked(workload.Seq(n+1)))
	}
	b := encoded(t, rs...)
	first := len(encoded(t))
	clear(b[first+64 : len(b)-64])
	r := readerOf(t, b)
	got, err := readAll(r)
	var damaged *DamagedError
	require.ErrorAs(t, err, &damaged)
	assert.Equal(t, rs[:1], got)
	assert.Equal(t, int64(first+64), damaged.Offset)
	assert.Equal(t, LSN(first/64), damaged.Index)
}

// What is valid by its checksum and still no record that this version knows is
// not skipped.
func TestValidButUnknown(t *testing.T) {
	i := LSN(len(encoded(t))/64 - 1)
	seal := func(change func(b []byte)) []byte {
		c := newCodec(testRun)
		r := acked(1)
		b := c.append(nil, i, &r)
		change(b)
		sum := c.sum(b, i)
		b[60], b[61], b[62], b[63] = byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24)
		return b
	}
	for name, change := range map[string]func(b []byte){
		"kind of the future":   func(b []byte) { b[0] = 10 },
		"code of the future":   func(b []byte) { b[1] = 4 },
		"zero bytes used":      func(b []byte) { b[57] = 1 },
		"text without a start": func(b []byte) { clear(b); b[0], b[1], b[2] = 9, 3, 1 },
		"text chunk too long":  func(b []byte) { clear(b); b[0], b[1], b[8] = 9, 3, 52|lastChunk },
		"second configuration": func(b []byte) { clear(b); b[0], b[1], b[8], b[9] = 9, 1, 1|lastChunk, 'x' },
	} {
		t.Run(name, func(t *testing.T) {
			_, err := readAll(readerOf(t, append(encoded(t), seal(change)...)))
			var damaged *DamagedError
			require.ErrorAs(t, err, &damaged)
			require.Equal(t, i, damaged.Index)
		})
	}
}

func TestOpenErrors(t *testing.T) {
	whole := encoded(t, acked(1))
	patch := func(at int, x byte) []byte { b := bytes.Clone(whole); b[at] ^= x; return b }
	for name, tc := range map[string]struct {
		file []byte
		want error
	}{
		"empty":                 {nil, ErrShortHeader},
		"another file":          {[]byte("#!/bin/sh\n"), ErrNotLedger},
		"another, long":         {bytes.Repeat([]byte("x"), 500), ErrNotLedger},
		"damaged header":        {patch(30, 1), ErrHeader},
		"header only":           {whole[:64], ErrNoConfig},
		"damaged configuration": {patch(70, 1), &DamagedError{}},
		"newer version":         {patch(16, 3), &VersionError{}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "l.ledger")
			require.NoError(t, os.WriteFile(path, tc.file, 0o600))
			_, err := OpenReader(path)
			_, _, werr := Open(path)
			for _, err := range []error{err, werr} {
				require.ErrorContains(t, err, path)
				switch want := tc.want.(type) {
				case *DamagedError:
					require.ErrorAs(t, err, &want)
				case *VersionError:
					require.ErrorAs(t, err, &want)
					assert.Equal(t, VersionError{path, 2, 1}, *want)
				default:
					require.ErrorIs(t, err, tc.want)
				}
			}
			after, err := os.ReadFile(path)
			require.NoError(t, err)
			require.True(t, bytes.Equal(tc.file, after), "Open changed a file that it refused")
		})
	}
	t.Run("missing", func(t *testing.T) {
		_, err := OpenReader(filepath.Join(t.TempDir(), "x"))
		require.ErrorIs(t, err, os.ErrNotExist)
	})
	t.Run("pipe", func(t *testing.T) { // must not block
		path := filepath.Join(t.TempDir(), "pipe")
		require.NoError(t, unix.Mkfifo(path, 0o600))
		_, err := OpenReader(path)
		require.ErrorIs(t, err, ErrNotLedger)
		_, _, err = Open(path)
		require.ErrorIs(t, err, ErrNotLedger)
	})
}

// A campaign reads on, each cycle, from where it was.
func TestReadOn(t *testing.T) {
	w, path := create(t)
	r, err := OpenReader(path)
	require.NoError(t, err)
	defer r.Close() //nolint:errcheck // opened for reading

	first, err := w.AppendAll([]Record{acked(1), text(TextNote, 1, string(make([]byte, 200))), acked(2)})
	require.NoError(t, err)
	require.NoError(t, w.Sync(t.Context()))
	got, err := readAll(r)
	require.NoError(t, err)
	require.Len(t, got, 3)
	require.Equal(t, first, r.Index())

	_, err = w.Append(acked(3))
	require.NoError(t, err)
	require.NoError(t, w.Sync(t.Context()))
	got, err = readAll(r) // the same reader, after its end
	require.NoError(t, err)
	require.Equal(t, []Record{acked(3)}, got)

	require.NoError(t, r.Seek(first))
	got, err = readAll(r)
	require.NoError(t, err)
	require.Equal(t, []Record{acked(3)}, got)

	require.ErrorIs(t, r.Seek(r.Index()+1), ErrPosition)
	require.ErrorIs(t, r.Seek(1<<62), ErrPosition)
}

// swapped is a file that changes under its reader.
type swapped struct{ *bytes.Reader }

// A reader that met a torn tail, and still holds it in its buffer, must not
// take what a resumed writer put there for damage.
func TestReaderSurvivesResume(t *testing.T) {
	torn := encoded(t, acked(1), acked(2))
	torn[len(torn)-30] ^= 1
	src := &swapped{bytes.NewReader(torn)}
	r, err := newReader(src, "mem", readBuffer)
	require.NoError(t, err)
	got, err := readAll(r)
	require.NoError(t, err)
	require.Len(t, got, 1)

	src.Reader = bytes.NewReader(encoded(t, acked(1), acked(7), acked(8)))
	got, err = readAll(r)
	require.NoError(t, err)
	require.Equal(t, []Record{acked(7), acked(8)}, got)
	require.Zero(t, r.Dropped())
}

type brokenDisk struct{ *bytes.Reader }

var errDisk = errors.New("disk")

func (brokenDisk) ReadAt([]byte, int64) (int, error) { return 0, errDisk }

// A disk that cannot be read is neither a torn tail nor the end.
func TestReadError(t *testing.T) {
	r := readerOf(t, encoded(t, sample(t)...))
	r.src = brokenDisk{}
	_, err := readAll(r)
	require.ErrorIs(t, err, errDisk)
}
