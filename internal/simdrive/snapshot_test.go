package simdrive

import (
	"hash/crc32"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The image of a cut stays what it was, whatever happens to the drive afterwards.
func TestCutImage(t *testing.T) {
	t.Parallel()
	for name, base := range map[string]Base{"in memory": nil, "in a base": &memBase{}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{Size: 64 * BlockSize, Base: base, Survive: SurviveRandom, KeepCut: true, Seed: 3,
				Faults: []Fault{{Class: AdjacentDamage, P: 0.2}}})
			_, err := r.d.CutImage()
			require.ErrorIs(t, err, ErrNoImage)
			rng := rand.New(rand.NewPCG(8, 8))
			work := func() {
				for range 200 {
					r.write(byte(1+rng.IntN(255)), rng.Int64N(64*perBlock-8), 1+rng.IntN(8))
					switch rng.IntN(8) {
					case 0:
						r.flush()
					case 1:
						require.NoError(t, r.h.Discard(rng.Int64N(64)*BlockSize, BlockSize))
					case 2:
						r.fua(9, rng.Int64N(64*perBlock-8), 3)
					}
				}
			}
			var last io.ReaderAt
			for range 5 {
				work()
				r.d.Cut()
				require.Zero(t, r.d.WrittenSinceCut())
				_, err := r.h.WriteFUA(fill(1, 1), 0)
				require.Error(t, err)
				require.Zero(t, r.d.WrittenSinceCut(), "nothing is written without power")
				_, left := r.cycle()
				image, err := r.d.CutImage()
				require.NoError(t, err)
				work()
				r.flush()
				got := make([]byte, 64*BlockSize)
				n, err := image.ReadAt(got, 0)
				require.NoError(t, err)
				assert.Equal(t, len(got), n)
				assert.Equal(t, left, got)
				assert.NotEqual(t, left, r.image(), "the drive has gone on")
				assert.Positive(t, r.d.WrittenSinceCut())
				n, err = image.ReadAt(got[:600], 64*BlockSize-500)
				assert.ErrorIs(t, err, io.EOF)
				assert.Equal(t, 500, n)
				assert.Equal(t, left[64*BlockSize-500:], got[:500])
				if last != nil {
					_, err = last.ReadAt(got, 0)
					assert.ErrorIs(t, err, ErrNoImage, "of an older cut")
				}
				last = image
			}
		})
	}
}

// LogHeads knows what was written by its checksum, and forgets what is two power-ons ago.
func TestLogHeads(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{Log: LogHeads})
	for range 4 {
		r.write(1, 0, 1)
		r.write(2, 8, 2)
		r.flush()
		r.cycle()
	}
	var kinds []EntryKind
	for i, e := range r.d.Entries() {
		kinds = append(kinds, e.Kind)
		assert.Nil(t, e.Data)
		if e.Kind == EntryFlushDone {
			assert.Equal(t, EntryFlush, r.d.Entries()[e.Of].Kind)
			assert.Less(t, e.Of, i)
		}
		if e.Kind == EntryWrite && e.Off == 8*SectorSize {
			assert.Equal(t, crc32.Checksum(fill(2, 2), castagnoli), e.Sum)
			assert.EqualValues(t, 1024, e.Len)
		}
		assert.GreaterOrEqual(t, e.Generation, uint64(4))
	}
	assert.Equal(t, []EntryKind{EntryPowerOn, EntryWrite, EntryWrite, EntryFlush, EntryFlushDone, EntryCut, EntryPowerOn}, kinds)
}
