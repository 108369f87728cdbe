package simdrive

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rig is a drive with its clock and handle, and the requests in short.
type rig struct {
	t     *testing.T
	clock *VirtualClock
	d     *Drive
	h     *Handle
}

func newRig(t *testing.T, cfg Config, faults ...string) *rig {
	t.Helper()
	r := &rig{t: t, clock: NewVirtualClock()}
	if cfg.Size == 0 {
		cfg.Size = 1 << 20
	}
	if cfg.Clock == nil {
		cfg.Clock = r.clock
	}
	for _, s := range faults {
		f, err := ParseFault(s)
		require.NoError(t, err)
		cfg.Faults = append(cfg.Faults, f)
	}
	var err error
	r.d, err = New(cfg)
	require.NoError(t, err)
	r.on()
	return r
}

func (r *rig) on() {
	r.t.Helper()
	var err error
	r.h, err = r.d.PowerOn()
	require.NoError(r.t, err)
}

// fill is n sectors of one byte.
func fill(v byte, n int) []byte { return bytes.Repeat([]byte{v}, n*SectorSize) }

func (r *rig) write(v byte, sector int64, n int) {
	r.t.Helper()
	_, err := r.h.WriteAt(fill(v, n), sector*SectorSize)
	require.NoError(r.t, err)
}

func (r *rig) fua(v byte, sector int64, n int) {
	r.t.Helper()
	_, err := r.h.WriteFUA(fill(v, n), sector*SectorSize)
	require.NoError(r.t, err)
}

func (r *rig) flush() {
	r.t.Helper()
	require.NoError(r.t, r.h.Flush())
}

func (r *rig) image() []byte {
	r.t.Helper()
	p := make([]byte, r.h.Size())
	_, err := r.h.ReadAt(p, 0)
	require.NoError(r.t, err)
	return p
}

// cycle cuts and powers on.
func (r *rig) cycle() (CutReport, []byte) {
	r.t.Helper()
	report := r.d.Cut()
	r.on()
	return report, r.image()
}

// at is the first byte of a sector.
func at(image []byte, sector int64) byte { return image[sector*SectorSize] }

// differing lists the sectors in which two images differ.
func differing(a, b []byte) []int64 {
	var d []int64
	for i := int64(0); i < int64(len(a)); i += SectorSize {
		if !bytes.Equal(a[i:i+SectorSize], b[i:i+SectorSize]) {
			d = append(d, i/SectorSize)
		}
	}
	return d
}

// Lies about flush and FUA, and capacitors: what a strict cut leaves of a few
// requests, with the fault and without.
func TestLies(t *testing.T) {
	t.Parallel()
	ms := time.Millisecond
	plain := func(r *rig) { r.write(1, 0, 8); r.flush() }
	for _, c := range []struct {
		name   string
		faults []string
		load   func(r *rig)
		want   map[int64]byte // sectors after the cut
		honest map[int64]byte // the clean twin
		quiet  bool           // the fault has nothing to act on
	}{
		{"flush ignored", []string{"flush-ignored"}, plain, map[int64]byte{0: 0}, map[int64]byte{0: 1}, false},
		{"flush ignored, FUA is not", []string{"flush-ignored"}, func(r *rig) { r.write(1, 0, 8); r.fua(2, 4, 2); r.flush() },
			map[int64]byte{3: 0, 4: 2, 5: 2, 6: 0}, map[int64]byte{3: 1, 4: 2, 6: 1}, false},
		{"flush ignored in another cycle", []string{"flush-ignored@cycle=2"}, plain, map[int64]byte{0: 1}, map[int64]byte{0: 1}, true},
		{"flush ignored with nothing to flush", []string{"flush-ignored"}, func(r *rig) { r.fua(1, 0, 8); r.flush() },
			map[int64]byte{0: 1}, map[int64]byte{0: 1}, true},
		{"flush late, cut before", []string{"flush-late(50ms)"}, func(r *rig) { plain(r); r.clock.Advance(50*ms - 1) },
			map[int64]byte{0: 0}, map[int64]byte{0: 1}, false},
		{"flush late, cut after", []string{"flush-late(50ms)"}, func(r *rig) { plain(r); r.clock.Advance(50 * ms) },
			map[int64]byte{0: 1}, map[int64]byte{0: 1}, false},
		{"flush late, overwritten meanwhile", []string{"flush-late(50ms)"},
			func(r *rig) { plain(r); r.clock.Advance(20 * ms); r.write(2, 0, 8); r.clock.Advance(30 * ms) },
			map[int64]byte{0: 1}, map[int64]byte{0: 1}, false},
		{"flush late, two of them", []string{"flush-late(50ms)"},
			func(r *rig) {
				plain(r)
				r.clock.Advance(20 * ms)
				r.write(2, 8, 8)
				r.flush()
				r.clock.Advance(30 * ms)
			},
			map[int64]byte{0: 1, 8: 0}, map[int64]byte{0: 1, 8: 2}, false},
		{"flush late, FUA supersedes", []string{"flush-late(50ms)"},
			func(r *rig) { plain(r); r.fua(2, 0, 1); r.clock.Advance(50 * ms) },
			map[int64]byte{0: 2, 1: 1}, map[int64]byte{0: 2, 1: 1}, false},
		{"flush late and nothing new later", []string{"flush-late(50ms)"},
			func(r *rig) { plain(r); r.clock.Advance(30 * ms); r.flush(); r.clock.Advance(20 * ms) },
			map[int64]byte{0: 1}, map[int64]byte{0: 1}, false},
		{"FUA ignored", []string{"fua-ignored"}, func(r *rig) { r.fua(1, 0, 8) }, map[int64]byte{0: 0}, map[int64]byte{0: 1}, false},
		{"FUA ignored, flush is not", []string{"fua-ignored"}, func(r *rig) { r.fua(1, 0, 8); r.flush() },
			map[int64]byte{0: 1}, map[int64]byte{0: 1}, false},
		{"capacitor", []string{"capacitor"}, func(r *rig) { r.write(1, 0, 8); r.write(2, 0, 1) },
			map[int64]byte{0: 2, 1: 1}, map[int64]byte{0: 0, 1: 0}, false},
		{"capacitor and flush ignored", []string{"flush-ignored", "capacitor"}, plain, map[int64]byte{0: 1}, map[int64]byte{0: 1}, false},
		{"capacitor with nothing to save", []string{"capacitor"}, plain, map[int64]byte{0: 1}, map[int64]byte{0: 1}, true},
		{"weak capacitor, oldest first, newest version", []string{"weak-capacitor(8KiB)"},
			func(r *rig) {
				for b := range int64(4) {
					r.write(byte(b+1), (3-b)*8, 8)
				}
				r.write(9, 3*8, 8)
			},
			map[int64]byte{24: 9, 16: 2, 8: 0, 0: 0}, map[int64]byte{24: 0, 16: 0, 8: 0, 0: 0}, false},
		{"weak capacitor, part of a block", []string{"weak-capacitor(1KiB)"}, func(r *rig) { r.write(1, 0, 8) },
			map[int64]byte{0: 1, 1: 1, 2: 0, 7: 0}, map[int64]byte{0: 0, 1: 0}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, Config{}, c.faults...)
			c.load(r)
			report, image := r.cycle()
			for s, v := range c.want {
				assert.Equal(t, v, at(image, s), "sector %d", s)
			}
			if c.quiet {
				assert.Empty(t, report.Planted)
			} else {
				assert.Equal(t, c.faults, report.Planted)
			}

			twin := newRig(t, Config{})
			c.load(twin)
			report, image = twin.cycle()
			for s, v := range c.honest {
				assert.Equal(t, v, at(image, s), "clean twin, sector %d", s)
			}
			assert.Empty(t, report.Planted)
		})
	}
}

// damageLoad writes and flushes 32 blocks, twice, each a flush of its own, after
// 64 blocks of older data.
func damageLoad(r *rig) {
	r.write(1, 0, 64*8)
	r.flush()
	require.NoError(r.t, r.d.Settle())
	for pass := range 2 {
		for b := range int64(32) {
			r.write(byte(10+32*pass)+byte(b), (b+16)*8, 8)
			r.flush()
		}
	}
}

// damaged runs damageLoad with and without the faults.
func damaged(t *testing.T, cfg Config, faults ...string) (bad, clean []byte, report CutReport) {
	t.Helper()
	twin := newRig(t, cfg)
	damageLoad(twin)
	want := twin.image()
	_, clean = twin.cycle()
	require.Equal(t, want, clean, "the clean twin keeps everything")
	r := newRig(t, cfg, faults...)
	damageLoad(r)
	require.Equal(t, want, r.image(), "until the cut everything reads as written")
	report, bad = r.cycle()
	assert.Equal(t, faults, report.Planted)
	return bad, clean, report
}

func TestBitCorruption(t *testing.T) {
	t.Parallel()
	bad, clean, _ := damaged(t, Config{Seed: 3}, "bit-corruption(9)")
	flipped := 0
	for i := range bad {
		flipped += bits.OnesCount8(bad[i] ^ clean[i])
	}
	assert.Equal(t, 9, flipped)
	for _, s := range differing(bad, clean) {
		assert.True(t, s >= 16*8 && s < 48*8, "sector %d was written since the power-on", s)
	}
}

func TestShornWrite(t *testing.T) {
	t.Parallel()
	for _, eighths := range []int64{3, 7} {
		bad, clean, _ := damaged(t, Config{}, fmt.Sprintf("shorn-write(%d/8)", eighths))
		for _, s := range differing(bad, clean) {
			assert.GreaterOrEqual(t, s%8, eighths, "sector %d", s)
			assert.EqualValues(t, 1, at(bad, s), "no later version ever reached the medium")
		}
		assert.Len(t, differing(bad, clean), 32*int(8-eighths))
	}
	bad, clean, _ := damaged(t, Config{}, "shorn-write(3/8)@p=0.3")
	n := len(differing(bad, clean)) / 5
	assert.True(t, n > 3 && n < 20, "%d of 32 blocks", n)

	r := newRig(t, Config{}, "shorn-write(3/8)")
	r.write(1, 4, 8) // no whole block
	r.write(2, 24, 8)
	r.flush()
	r.write(3, 27, 5) // heals it
	r.flush()
	r.fua(4, 32, 8)
	report, image := r.cycle()
	assert.EqualValues(t, 1, at(image, 11))
	assert.EqualValues(t, 2, at(image, 26))
	assert.EqualValues(t, 3, at(image, 31))
	assert.EqualValues(t, 4, at(image, 34))
	assert.EqualValues(t, 0, at(image, 35), "FUA writes are shorn too")
	assert.Equal(t, []string{"shorn-write(3/8)"}, report.Planted)
}

func TestUnserializable(t *testing.T) {
	t.Parallel()
	for tear, sectors := range map[int]int{SectorSize: 1, BlockSize: 8} {
		bad, clean, _ := damaged(t, Config{Tear: tear, Seed: 5}, "unserializable(3)")
		diff := differing(bad, clean)
		assert.Len(t, diff, 3*sectors)
		for _, s := range diff {
			assert.Equal(t, at(clean, s)-32, at(bad, s), "the version before")
			assert.Less(t, s, int64(47*8), "a later write survives")
		}
	}
	r := newRig(t, Config{}, "unserializable(1)")
	r.write(1, 0, 1)
	r.flush()
	report, image := r.cycle()
	assert.EqualValues(t, 1, at(image, 0), "nothing later survives, so nothing is out of order")
	assert.Empty(t, report.Planted)
}

func TestMetadata(t *testing.T) {
	t.Parallel()
	for class, want := range map[string]byte{"metadata-lost": 0, "metadata-old": 1} {
		bad, clean, _ := damaged(t, Config{Seed: 8}, class+"(32KiB)")
		diff := differing(bad, clean)
		require.Len(t, diff, 64)
		assert.Zero(t, diff[0]%64, "aligned")
		assert.EqualValues(t, 63, diff[63]-diff[0], "one range")
		for _, s := range diff {
			assert.Equal(t, want, at(bad, s))
		}
	}
	r := newRig(t, Config{}, "metadata-lost(32KiB)", "metadata-old(32KiB)")
	report, _ := r.cycle()
	assert.Empty(t, report.Planted, "nothing was written")
}

func TestMisdirectedWrite(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		r := newRig(t, Config{Seed: seed, Size: 2 << 20}, "misdirected-write@cycle=2")
		r.write(1, 0, 4096)
		r.flush()
		_, before := r.cycle()
		r.write(7, 1000, 20)
		r.flush()
		assert.EqualValues(t, 7, at(r.image(), 1000))
		report, after := r.cycle()
		diff := differing(before, after)
		require.Len(t, diff, 20)
		away := diff[0] - 1000
		assert.Zero(t, away%8, "by whole blocks")
		assert.NotZero(t, away)
		assert.LessOrEqual(t, max(away, -away), int64(maxAway*8))
		assert.Equal(t, fill(7, 20), after[diff[0]*SectorSize:(diff[0]+20)*SectorSize])
		assert.Equal(t, []string{"misdirected-write@cycle=2"}, report.Planted)
	}
}

func TestAdjacentDamage(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{}, "adjacent-damage@cycle=2")
	r.write(1, 0, 64)
	r.flush()
	_, before := r.cycle()
	r.d.CutAt(1)
	_, err := r.h.WriteAt(fill(2, 3), 10*SectorSize)
	require.ErrorIs(t, err, ErrPowerOff)
	report, after := r.cycle()
	assert.True(t, report.InFlight)
	assert.Equal(t, []int64{9, 13}, differing(before, after), "with a write in flight")
	assert.Equal(t, []string{"adjacent-damage@cycle=2"}, report.Planted)

	r = newRig(t, Config{}, "adjacent-damage")
	r.write(1, 0, 64)
	r.flush()
	before = r.image()
	r.write(2, 0, 9) // over a block's edge, and at the drive's
	_, after = r.cycle()
	assert.Equal(t, []int64{9}, differing(before, after), "with something volatile")
	r.write(1, 9, 1)
	r.flush()
	report, again := r.cycle()
	assert.Equal(t, before, again, "with nothing being written")
	assert.Empty(t, report.Planted)
}

func TestDeadDevice(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{}, "dead-device@cycle=2")
	r.write(1, 0, 8)
	r.flush()
	report, _ := r.cycle()
	assert.Empty(t, report.Planted)
	report = r.d.Cut()
	assert.Equal(t, []string{"dead-device@cycle=2"}, report.Planted)
	for range 2 {
		r.on()
		_, err := r.h.ReadAt(make([]byte, 1), 0)
		require.ErrorIs(t, err, ErrDead)
		_, err = r.h.WriteAt(fill(1, 1), 0)
		require.ErrorIs(t, err, ErrDead)
		require.ErrorIs(t, r.h.Flush(), ErrDead)
		require.ErrorIs(t, r.d.Settle(), ErrDead)
		r.d.Cut()
	}
}

// A schedule with a probability acts about that often, and never otherwise.
func TestSchedule(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{Seed: 4, Size: BlockSize}, "flush-ignored@p=0.25")
	lost := 0
	for i := range 400 {
		v := byte(i%200 + 1)
		r.write(v, 0, 1)
		r.flush()
		report, image := r.cycle()
		gone := at(image, 0) != v
		assert.Equal(t, gone, len(report.Planted) == 1)
		if gone {
			lost++
		}
	}
	assert.True(t, lost > 60 && lost < 140, "%d of 400", lost)
}

// Settle is for setting up: no fault applies to what was written before it.
func TestSettle(t *testing.T) {
	t.Parallel()
	faults := []string{
		"flush-ignored", "fua-ignored", "shorn-write", "misdirected-write", "unserializable(50)",
		"bit-corruption(50)", "metadata-lost", "metadata-old", "adjacent-damage",
	}
	r := newRig(t, Config{}, faults...)
	for b := range int64(64) {
		r.write(byte(b+1), b*8, 8)
		r.flush()
	}
	r.fua(200, 0, 8)
	want := r.image()
	require.NoError(t, r.d.Settle())
	assert.Zero(t, r.d.Stats().DirtyBytes)
	report, image := r.cycle()
	assert.Equal(t, want, image)
	assert.Empty(t, report.Planted)
}

// brokenBase fails all writes once it is told to.
type brokenBase struct {
	memBase
	err error
}

func (b *brokenBase) WriteAt(p []byte, off int64) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	return b.memBase.WriteAt(p, off)
}

// memBase is a Base in memory that ends where the last write did.
type memBase struct{ p []byte }

func (b *memBase) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader(b.p).ReadAt(p, off)
}

func (b *memBase) WriteAt(p []byte, off int64) (int, error) {
	if end := off + int64(len(p)); end > int64(len(b.p)) {
		b.p = append(b.p, make([]byte, end-int64(len(b.p)))...)
	}
	return copy(b.p[off:], p), nil
}

// A base that fails never passes for a drive that lost something.
func TestBaseFails(t *testing.T) {
	t.Parallel()
	base := &brokenBase{}
	r := newRig(t, Config{Base: base})
	r.write(1, 0, 8)
	r.flush()
	base.err = errors.New("no space")
	r.write(2, 0, 8)
	require.ErrorIs(t, r.h.Flush(), base.err)
	_, err := r.h.ReadAt(make([]byte, 1), 0)
	require.ErrorIs(t, err, base.err)
	r.d.Cut()
	_, err = r.d.PowerOn()
	require.ErrorIs(t, err, base.err)
}
