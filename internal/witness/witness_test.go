package witness

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/clock"
	"plugpull/internal/ledger"
	"plugpull/internal/workload"
)

var params = workload.Params{Run: [16]byte{7}, Profile: workload.Append, PayloadMin: 1, PayloadMax: 9}.ForWitness()

const stream = workload.FirstWitness

// written makes a file on the real filesystem with numbers 100 to 100+n−1 of a stream that began at 90.
func written(t *testing.T, n int) (*Witness, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "witness")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	w := &Witness{Open: func() (File, error) { return OpenFile(path) }, Now: clock.Now}
	c, err := w.Dial(params)
	require.NoError(t, err)
	for i := range n {
		r := c.Commit(context.Background(), workload.Op{Stream: stream, Seq: workload.Seq(100 + i), First: 90})
		require.Equal(t, ledger.Acked, r.Outcome, r.Err)
		assert.LessOrEqual(t, r.Sent, r.Answered)
	}
	require.NoError(t, c.Close())
	return w, path
}

// read returns the numbers that are there, and which of them prove themselves.
func read(t *testing.T, w *Witness, from workload.Seq) (seqs []workload.Seq, intact map[workload.Seq]bool) {
	t.Helper()
	rows, err := w.Survivors().Rows(context.Background(), workload.TableWitness, stream, from)
	require.NoError(t, err)
	defer rows.Close()
	intact = map[workload.Seq]bool{}
	var r workload.Row
	for {
		more, err := rows.Next(&r)
		require.NoError(t, err)
		if !more {
			return seqs, intact
		}
		seqs = append(seqs, r.Seq)
		intact[r.Seq] = params.Intact(&r)
	}
}

func TestRecordsComeBack(t *testing.T) {
	w, _ := written(t, 200) // more than a cursor reads at once
	seqs, intact := read(t, w, 0)
	require.Len(t, seqs, 200)
	for i, s := range seqs {
		assert.EqualValues(t, 100+i, s)
		assert.True(t, intact[s], s)
	}
	seqs, _ = read(t, w, 295)
	assert.Equal(t, []workload.Seq{295, 296, 297, 298, 299}, seqs)
	seqs, _ = read(t, w, 1000)
	assert.Empty(t, seqs, "beyond the end")
	// A later session of the stream keeps its places.
	c, err := w.Dial(params)
	require.NoError(t, err)
	r := c.Commit(context.Background(), workload.Op{Stream: stream, Seq: 400, First: 400})
	require.Equal(t, ledger.Acked, r.Outcome)
	require.NoError(t, c.Close())
	seqs, _ = read(t, w, 299)
	assert.Equal(t, []workload.Seq{299, 400}, seqs)
}

func TestDamageIsTold(t *testing.T) {
	w, path := written(t, 6)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	at := func(n int64) int64 { return (n - 90) * RecordSize }
	_, err = f.WriteAt([]byte{1}, at(101)+2000) // in the payload
	require.NoError(t, err)
	_, err = f.WriteAt([]byte{1}, at(102)+20) // in the run id
	require.NoError(t, err)
	_, err = f.WriteAt(make([]byte, RecordSize), at(103)) // never reached the drive
	require.NoError(t, err)
	other := make([]byte, RecordSize)
	_, err = f.ReadAt(other, at(100))
	require.NoError(t, err)
	_, err = f.WriteAt(other, at(104)) // a whole record in the wrong place
	require.NoError(t, err)
	require.NoError(t, f.Truncate(at(105)+512))
	require.NoError(t, f.Close())
	_, intact := read(t, w, 0)
	assert.Equal(t, map[workload.Seq]bool{100: true, 101: false, 102: false, 104: false}, intact)
	w.Forget()
	require.NoError(t, os.Remove(path))
	seqs, _ := read(t, w, 0)
	assert.Empty(t, seqs, "a file that is gone took its records with it")
	_, err = w.Dial(params)
	assert.ErrorIs(t, err, fs.ErrNotExist)
}
