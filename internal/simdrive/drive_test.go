package simdrive

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{Size: 8192})
	for name, c := range map[string]struct {
		n    int
		off  int64
		want error
	}{
		"past the end": {1024, 8192 - 512, ErrRange}, "far past the end": {512, 1 << 62, ErrRange},
		"before the start": {512, -512, ErrRange}, "unaligned offset": {512, 1, ErrAlign}, "unaligned length": {511, 0, ErrAlign},
	} {
		_, err := r.h.WriteAt(make([]byte, c.n), c.off)
		require.ErrorIs(t, err, c.want, name)
		_, err = r.h.WriteFUA(make([]byte, c.n), c.off)
		require.ErrorIs(t, err, c.want, name)
		require.ErrorIs(t, r.h.Discard(c.off, int64(c.n)), c.want, name)
	}
	require.ErrorIs(t, r.h.Discard(0, -512), ErrRange)
	_, err := r.h.ReadAt(make([]byte, 2), 8191)
	require.ErrorIs(t, err, ErrRange)
	assert.Zero(t, r.d.Stats().Ops, "what is refused does not count")

	r.write(7, 1, 1)
	p := make([]byte, 3)
	_, err = r.h.ReadAt(p, 1022)
	require.NoError(t, err)
	assert.Equal(t, []byte{7, 7, 0}, p, "a read may have any offset")
}

func TestBadConfig(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"no size": {}, "odd size": {Size: 4097}, "tear": {Size: 4096, Tear: 1024}, "survive": {Size: 4096, Survive: "some"},
		"cache": {Size: 4096, CacheBytes: -1}, "fault": {Size: 4096, Faults: []Fault{{Class: "odd"}}},
		"fault's argument": {Size: 4096, Faults: []Fault{{Class: BitCorruption}}},
	} {
		_, err := New(cfg)
		require.ErrorIs(t, err, ErrConfig, name)
	}
}

// The trap springs at the request that was asked for, and that request fails.
func TestCutAt(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{})
	r.write(1, 0, 1)
	r.flush()
	r.d.CutAt(4)
	r.write(2, 0, 1)
	_ = r.image() // does not count
	r.fua(3, 1, 1)
	r.flush()
	_, reported := r.d.Report()
	assert.False(t, reported)
	_, err := r.h.WriteAt(fill(4, 1), 0)
	require.ErrorIs(t, err, ErrPowerOff)
	report, reported := r.d.Report()
	assert.True(t, reported)
	assert.Equal(t, CutReport{Generation: 1, Op: 6, InFlight: true}, report)
	assert.Equal(t, report, r.d.Cut(), "a cut without power changes nothing")
	r.on()
	assert.Equal(t, []byte{2, 3}, []byte{at(r.image(), 0), at(r.image(), 1)})

	r.write(5, 0, 2)
	r.d.CutAt(1)
	require.ErrorIs(t, r.h.Flush(), ErrPowerOff)
	report, _ = r.d.Report()
	assert.Equal(t, CutReport{Generation: 2, Op: 2, VolatileBytes: 1024, DroppedBytes: 1024}, report)
	r.on()
	assert.EqualValues(t, 2, at(r.image(), 0), "a flush that was cut off covers nothing")

	r.d.CutAt(1)
	r.d.CutAt(0)
	r.write(6, 0, 1)
}

// The report's bytes add up: kept is what kept its newest version.
func TestReportedBytes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		r := newRig(t, Config{Survive: SurviveRandom, Seed: seed, FlushLatency: time.Millisecond})
		for i := range int64(20) {
			r.write(1, i*16, 2)
			r.write(2, i*16, 1)
		}
		report, image := r.cycle()
		kept := int64(0)
		for i := range int64(20) {
			if at(image, i*16) == 2 {
				kept += SectorSize
			}
			if at(image, i*16+1) == 1 {
				kept += SectorSize
			}
		}
		assert.EqualValues(t, 40*SectorSize, report.VolatileBytes)
		assert.Equal(t, kept, report.KeptBytes)
		assert.Equal(t, report.VolatileBytes, report.KeptBytes+report.DroppedBytes)
	}
}

func TestGenerationFence(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{})
	old := r.h
	r.write(1, 0, 1)
	r.d.Cut()
	_, err := old.ReadAt(make([]byte, 1), 0)
	require.ErrorIs(t, err, ErrPowerOff)
	r.on()
	for range 2 {
		_, err = old.WriteAt(fill(2, 1), 0)
		require.ErrorIs(t, err, ErrStale)
		_, err = old.WriteFUA(fill(2, 1), 0)
		require.ErrorIs(t, err, ErrStale)
		_, err = old.ReadAt(make([]byte, 1), 0)
		require.ErrorIs(t, err, ErrStale)
		require.ErrorIs(t, old.Flush(), ErrStale)
		require.ErrorIs(t, old.Discard(0, 512), ErrStale)
		assert.Zero(t, at(r.image(), 0))
		r.d.Cut()
		r.on()
	}
}

// Discarding a drive that is empty costs nothing, so that mkfs can.
func TestDiscard(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{Size: 1 << 40})
	r.write(1, 0, 16)
	r.flush()
	require.NoError(t, r.h.Discard(4*SectorSize, 1<<30))
	assert.EqualValues(t, 12*SectorSize, r.d.Stats().DirtyBytes)
	first := make([]byte, 16*SectorSize)
	read := func() []byte {
		_, err := r.h.ReadAt(first, 0)
		require.NoError(t, err)
		return first
	}
	assert.Equal(t, append(fill(1, 4), fill(0, 12)...), read())
	r.d.Cut()
	r.on()
	assert.Equal(t, fill(1, 16), read(), "a discard is as volatile as a write")
	require.NoError(t, r.h.Discard(4*SectorSize, 12*SectorSize))
	r.flush()
	r.d.Cut()
	r.on()
	assert.Equal(t, append(fill(1, 4), fill(0, 12)...), read())
}

// Durable contents are where the base is, and a base that is too short is zeros.
func TestBase(t *testing.T) {
	t.Parallel()
	f, err := os.Create(filepath.Join(t.TempDir(), "base"))
	require.NoError(t, err)
	defer f.Close()
	_, err = f.WriteAt(fill(9, 1), 0)
	require.NoError(t, err)
	r := newRig(t, Config{Base: f})
	r.write(1, 1, 1)
	assert.Equal(t, []byte{9, 1, 0}, []byte{at(r.image(), 0), at(r.image(), 1), at(r.image(), 2)})
	r.flush()
	r.write(2, 2, 1)
	r.d.Cut()
	p := make([]byte, 8*SectorSize)
	n, _ := f.ReadAt(p, 0)
	assert.Equal(t, append(fill(9, 1), fill(1, 1)...), bytes.TrimRight(p[:n], "\x00"))
}

const wildCycles = 12

// wild makes the configuration of a drive with everything random in it.
func wild(seed uint64) Config {
	cfg := Config{
		Size: 64 * BlockSize, Survive: SurviveRandom, CacheBytes: 24 * BlockSize, Seed: seed, Log: LogAll,
		WriteLatency: time.Millisecond, FlushLatency: 2 * time.Millisecond,
	}
	for _, s := range []string{
		"flush-ignored@p=0.1", "flush-late(9ms)@p=0.3", "fua-ignored@p=0.3", "weak-capacitor(8KiB)@p=0.5", "bit-corruption(2)@p=0.4",
		"shorn-write@p=0.1", "unserializable(2)@p=0.5", "metadata-lost(8KiB)@p=0.2", "metadata-old(8KiB)@p=0.2",
		"misdirected-write@p=0.05", "adjacent-damage@p=0.5",
	} {
		f, err := ParseFault(s)
		if err != nil {
			panic(err)
		}
		cfg.Faults = append(cfg.Faults, f)
	}
	return cfg
}

// wildCycle is a load that depends on its number only.
func wildCycle(t *testing.T, d *Drive, cycle uint64) (CutReport, []byte) {
	h, err := d.PowerOn()
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(99, cycle))
	for range 80 {
		p := make([]byte, (1+rng.IntN(16))*SectorSize)
		for i := range p {
			p[i] = byte(rng.Uint32())
		}
		off := rng.Int64N((h.Size()-int64(len(p)))/SectorSize) * SectorSize
		switch rng.IntN(5) {
		case 0:
			require.NoError(t, h.Flush())
		case 1:
			_, err = h.WriteFUA(p, off)
			require.NoError(t, err)
		default:
			_, err = h.WriteAt(p, off)
			require.NoError(t, err)
		}
	}
	return d.Cut(), durable(t, d)
}

// durable reads what is there without a power-on of the drive's own.
func durable(t *testing.T, d *Drive) []byte {
	image := make([]byte, d.cfg.Size)
	for b := range d.cfg.Size / BlockSize {
		require.NoError(t, d.medium.read(b, (*block)(image[b*BlockSize:])))
	}
	return image
}

// The same seed gives the same drive byte for byte, and one cycle replays alone.
func TestSameSeedSameState(t *testing.T) {
	t.Parallel()
	type state struct {
		Image  [32]byte
		Report CutReport
	}
	run := func(seed uint64) (states []state, images [][]byte, d *Drive) {
		d, err := New(wild(seed))
		require.NoError(t, err)
		for c := range uint64(wildCycles) {
			report, image := wildCycle(t, d, c)
			report.At = 0 // a replay starts its clock at zero
			states = append(states, state{sha256.Sum256(image), report})
			images = append(images, image)
		}
		return states, images, d
	}
	one, images, d := run(1)
	two, _, e := run(1)
	assert.Equal(t, one, two)
	assert.Equal(t, d.Entries(), e.Entries())
	assert.Equal(t, d.Stats(), e.Stats())
	other, _, _ := run(2)
	assert.NotEqual(t, one, other)

	for c := uint64(1); c < wildCycles; c++ {
		cfg := wild(1)
		cfg.FirstGeneration = c + 1
		cfg.Base = &memBase{p: bytes.Clone(images[c-1])}
		alone, err := New(cfg)
		require.NoError(t, err)
		report, image := wildCycle(t, alone, c)
		report.At = 0
		assert.Equal(t, one[c], state{sha256.Sum256(image), report}, "cycle %d alone", c)
	}
}

// Replaying the log gives the same image: all of it what was read, and up to the
// last flush or FUA before each cut what a strict drive kept.
func TestLogReplays(t *testing.T) {
	t.Parallel()
	cfg := Config{Size: 32 * BlockSize, Log: LogAll}
	r := newRig(t, cfg)
	rng := rand.New(rand.NewPCG(5, 5))
	for range 400 {
		first := rng.Int64N(r.h.Size()/SectorSize - 8)
		switch rng.IntN(12) {
		case 0:
			r.flush()
		case 1:
			r.fua(byte(rng.Uint32()), first, 1+rng.IntN(8))
		case 2:
			require.NoError(t, r.h.Discard(first*SectorSize, SectorSize))
		case 3:
			if rng.IntN(4) == 0 {
				r.cycle()
			}
		default:
			r.write(byte(rng.Uint32()), first, 1+rng.IntN(8))
		}
	}
	r.d.Mark("end")
	entries := r.d.Entries()
	assert.Equal(t, "end", entries[len(entries)-1].Text)

	newest, covered := make([]byte, r.h.Size()), make([]byte, r.h.Size())
	for _, e := range entries {
		switch e.Kind {
		case EntryWrite:
			copy(newest[e.Off:], e.Data)
		case EntryFUA:
			copy(newest[e.Off:], e.Data)
			copy(covered[e.Off:], e.Data)
		case EntryDiscard:
			clear(newest[e.Off : e.Off+e.Len])
		case EntryFlushDone:
			assert.Equal(t, EntryFlush, entries[e.Of].Kind)
			copy(covered, newest)
		case EntryCut:
			copy(newest, covered)
		}
	}
	assert.Equal(t, newest, r.image())
	_, image := r.cycle()
	assert.Equal(t, covered, image)
}

func TestNoLog(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{})
	r.write(1, 0, 1)
	r.d.Mark("x")
	assert.Empty(t, r.d.Entries())
}

// A bounded cache stays bounded, and leaves more than nothing at a strict cut.
func TestBoundedCache(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{CacheBytes: 64 << 10})
	for b := range int64(256) {
		r.write(1, b*8, 8)
		assert.LessOrEqual(t, r.d.Stats().DirtyBytes, int64(64<<10))
	}
	destaged := r.d.Stats().DestagedBytes
	assert.EqualValues(t, 1<<20-64<<10, destaged)
	report, image := r.cycle()
	assert.EqualValues(t, 64<<10, report.DroppedBytes)
	assert.EqualValues(t, destaged, bytes.Count(image, []byte{1}))
}

// Many clients, each with its own sectors, write and flush while the power is cut:
// none loses what its flush covered. Run with -race.
func TestConcurrentClients(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		d, err := New(Config{
			Size: 1 << 20, Survive: SurviveRandom, Seed: seed, Clock: RealClock(), CacheBytes: 32 << 10,
			WriteLatency: 20 * time.Microsecond, FlushLatency: 50 * time.Microsecond,
		})
		require.NoError(t, err)
		h, err := d.PowerOn()
		require.NoError(t, err)
		d.CutAt(300)
		const clients = 8
		var covered, sent [clients]uint32
		var wg sync.WaitGroup
		for c := range clients {
			wg.Go(func() {
				p := make([]byte, SectorSize)
				for i := uint32(1); ; i++ {
					binary.LittleEndian.PutUint32(p, i)
					sent[c] = i
					if _, err := h.WriteAt(p, int64(c)*SectorSize); err != nil {
						assert.ErrorIs(t, err, ErrPowerOff)
						return
					}
					if i%3 != 0 {
						continue
					}
					if err := h.Flush(); err != nil {
						assert.ErrorIs(t, err, ErrPowerOff)
						return
					}
					covered[c] = i
					_ = d.Stats()
				}
			})
		}
		wg.Wait()
		h, err = d.PowerOn()
		require.NoError(t, err)
		p := make([]byte, SectorSize)
		for c := range clients {
			_, err := h.ReadAt(p, int64(c)*SectorSize)
			require.NoError(t, err)
			left := binary.LittleEndian.Uint32(p)
			assert.True(t, left >= covered[c] && left <= sent[c], "client %d: %d covered, %d left, %d sent", c, covered[c], left, sent[c])
		}
	}
}

func ExampleFault_String() {
	f, err := ParseFault("flush-late@p=0.25")
	fmt.Println(f, err)
	// Output: flush-late(50ms)@p=0.25 <nil>
}
