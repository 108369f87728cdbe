package verifier_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/ledger"
	"plugpull/verifier"
)

// TestIndex sums up a ledger of two sessions, read in two steps.
func TestIndex(t *testing.T) {
	w := newWorld(app)
	w.begin(1, 2)
	w.ack(1, 10)
	w.ack(2, 10)
	w.stop(2, ledger.EndStopped)
	w.dropFrom(1, 9) // holes, since stream 2 went on
	w.check(t)
	w.begin(1)
	w.ack(1, 3)
	w.refuse(1)
	w.unknown(1, true)
	w.witness(9)
	w.mark(ledger.MarkCutCommanded, 0)
	commanded := w.now
	w.mark(ledger.MarkCutObserved, 0)

	in, err := w.input(w.scan(), 0, "")
	require.NoError(t, err)
	ix := in.Index
	totals := ix.Totals()
	assert.Equal(t, uint64(23), totals.Acked)
	assert.Equal(t, uint64(1), totals.Refused)
	assert.Equal(t, uint64(1), totals.Unknown)
	assert.Equal(t, counts{LostHole: 2}, totals.Findings)
	// From a send to the acknowledgement of its commit are 2, between commits 1.
	assert.Equal(t, time.Duration(20*3-1+3*3-1), totals.Load)
	assert.InEpsilon(t, 23/totals.Load.Seconds(), totals.PerSecond(), 1e-9)
	assert.Zero(t, verifier.Totals{}.PerSecond())

	assert.Equal(t, uint32(1), ix.Epoch())
	assert.Equal(t, uint32(2), ix.LastSession())
	assert.Equal(t, seq(24), ix.Reserved(1), "two reservations of the first session, one of the second")
	assert.Equal(t, seq(16), ix.Reserved(2))
	assert.Zero(t, ix.Reserved(9), "a witness is no stream of the database")
	assert.Zero(t, ix.Reserved(60000))

	last, ok := ix.Last()
	require.True(t, ok)
	assert.Equal(t, uint32(2), last.Session)
	assert.Equal(t, uint64(3), last.Acked)
	assert.Equal(t, 1, last.Streams, "database streams")
	assert.Equal(t, 1, last.Ends[ledger.EndSilence], "the witness's end is none of the database's")
	assert.Equal(t, commanded, last.CutCommanded)
	assert.Equal(t, w.now, last.CutSeen)

	_, ok = verifier.NewIndex().Last()
	assert.False(t, ok)
}
