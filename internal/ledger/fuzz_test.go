package ledger

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzReader: any file is read without a panic, and what is read is what was
// written, byte for byte.
func FuzzReader(f *testing.F) {
	f.Add(encoded(f, sample(f)...))
	f.Add(encoded(f, acked(1))[:200])
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := newReader(bytes.NewReader(b), "mem", smallBuffer)
		if err != nil {
			return
		}
		start := offset(r.Index())
		got, err := readAll(r)
		c := newCodec(r.Header().Run)
		again := bytes.Clone(b[:start])
		for i := range got {
			again = c.append(again, LSN((len(again)-headerSize)/recordSize), &got[i])
		}
		require.True(t, bytes.Equal(b[:offset(r.Index())], again))
		if err == nil {
			require.Equal(t, int64(len(b)), offset(r.Index())+r.Dropped().Bytes)
		}
	})
}

// FuzzRecords: records with good checksums, whatever they hold, are refused or
// have one encoding only.
func FuzzRecords(f *testing.F) {
	head := encoded(f)
	f.Add(encoded(f, sample(f)...)[len(head):])
	f.Add(encoded(f, text(TextNote, 1, "x"), acked(2))[len(head):])
	f.Fuzz(func(t *testing.T, records []byte) {
		b := bytes.Clone(head)
		c := newCodec(testRun)
		for len(records) >= recordSize {
			i := LSN((len(b) - headerSize) / recordSize)
			b = append(b, records[:recordSize]...)
			binary.LittleEndian.PutUint32(b[len(b)-4:], c.sum(b[len(b)-recordSize:], i))
			records = records[recordSize:]
		}
		r := readerOf(t, b)
		got, err := readAll(r)
		require.True(t, bytes.Equal(b[:offset(r.Index())], encoded(t, got...)))
		if err == nil && r.Dropped().Bytes == 0 {
			require.Equal(t, int64(len(b)), offset(r.Index()))
		}
	})
}
