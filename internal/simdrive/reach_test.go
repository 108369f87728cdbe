package simdrive

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// step is a request of a tiny history; during are those that arrive while it is
// under way, and cut is the cut.
type step struct {
	kind   string // write, fua, flush, cut
	first  int64
	n      int64
	during []step
}

// tiny runs one history on a fresh drive and in the model.
type tiny struct {
	clock  *hookClock
	d      *Drive
	h      *Handle
	m      *model
	stamps stamp
	// allowed is what the model allows after the cut, unit by unit.
	allowed [][][]stamp
}

func tinyConfig(tear int) Config {
	return Config{
		Size: 2 * BlockSize, Survive: SurviveRandom, Tear: tear,
		WriteLatency: time.Millisecond, FlushLatency: time.Millisecond,
	}
}

// runTiny returns the image that a seed's cut leaves, as text, and what is allowed.
func runTiny(t testing.TB, cfg Config, steps []step) (string, [][][]stamp) {
	x := &tiny{clock: &hookClock{}, m: newModel(cfg.Size, cfg.Tear)}
	cfg.Clock = x.clock
	var err error
	x.d, err = New(cfg)
	require.NoError(t, err)
	x.h, err = x.d.PowerOn()
	require.NoError(t, err)
	for _, s := range steps {
		x.do(s)
	}
	h, err := x.d.PowerOn()
	require.NoError(t, err)
	image := make([]byte, cfg.Size)
	_, err = h.ReadAt(image, 0)
	require.NoError(t, err)
	var left []stamp
	for i := range cfg.Size / SectorSize {
		s, err := readSector(image[i*SectorSize:], i)
		require.NoError(t, err)
		left = append(left, s)
	}
	return fmt.Sprint(left), x.allowed
}

func (x *tiny) do(s step) {
	during := s.during
	x.clock.hook = func() {
		x.clock.hook = nil
		for _, s := range during {
			x.do(s)
		}
	}
	defer func() { x.clock.hook = nil }()
	switch s.kind {
	case "cut":
		for u := range x.m.units {
			x.allowed = append(x.allowed, x.m.allowed(int64(u), ruleAny, true))
		}
		x.d.Cut()
	case "flush":
		seq := x.m.seq
		if x.h.Flush() == nil {
			x.m.cover(seq)
		}
	default:
		x.stamps++
		w := &modelWrite{first: s.first, n: s.n, s: x.stamps, durable: s.kind == "fua"}
		x.m.inflight = append(x.m.inflight, w)
		p := make([]byte, s.n*SectorSize)
		for i := range s.n {
			fillSector(p[i*SectorSize:], w.s, s.first+i)
		}
		put := x.h.WriteAt
		if w.durable {
			put = x.h.WriteFUA
		}
		if _, err := put(p, s.first*SectorSize); err == nil {
			x.m.done(w)
			for i, other := range x.m.inflight {
				if other == w {
					x.m.inflight = append(x.m.inflight[:i], x.m.inflight[i+1:]...)
				}
			}
		}
	}
}

// images lists every allowed image as text, and bounds how rare the rarest is:
// each unit's choice is 1/3 for durable and newest, and 1/3 over the others.
func images(allowed [][][]stamp) (all map[string]bool, rarest float64) {
	lists := [][]stamp{{}}
	rarest = 1
	for _, unit := range allowed {
		if n := len(unit); n > 1 {
			rarest /= 3 * float64(max(1, n-2))
		}
		var longer [][]stamp
		for _, head := range lists {
			for _, tail := range unit {
				longer = append(longer, append(head[:len(head):len(head)], tail...))
			}
		}
		lists = longer
		if rarest < rarestTried {
			return nil, rarest
		}
	}
	all = make(map[string]bool)
	for _, l := range lists {
		all[fmt.Sprint(l)] = true
	}
	return all, rarest
}

const (
	rarestTried = 1.0 / 200
	seedsTried  = 4000 // misses an image of that chance once in e^20 histories
)

// seen returns the images that occur over many seeds; it stops early when there
// are as many as wanted.
func seen(t *testing.T, cfg Config, steps []step, wanted int) map[string]bool {
	got := make(map[string]bool)
	for seed := range seedsTried {
		if seed >= seedsTried/20 && len(got) >= wanted {
			break
		}
		cfg.Seed = uint64(seed)
		image, _ := runTiny(t, cfg, steps)
		got[image] = true
	}
	return got
}

// Everything that the contract allows after a tiny history does occur, and nothing else.
func TestAllowedStatesOccur(t *testing.T) {
	t.Parallel()
	w := func(first, n int64, during ...step) step { return step{"write", first, n, during} }
	fua := func(first, n int64, during ...step) step { return step{"fua", first, n, during} }
	flush := func(during ...step) step { return step{kind: "flush", during: during} }
	cut := step{kind: "cut"}
	histories := map[string][]step{
		"four versions":                    {w(0, 1), w(0, 1), w(0, 1), w(0, 1), cut},
		"two sectors together":             {w(0, 2), w(0, 2), cut},
		"flush between":                    {w(0, 1), flush(), w(0, 1), w(0, 1), cut},
		"writes while a flush":             {w(0, 1), w(0, 1), flush(w(0, 1), w(0, 1)), w(0, 1), cut},
		"cut while a flush":                {w(0, 1), w(0, 1), flush(w(0, 1), cut)},
		"two flushes under way":            {w(0, 1), flush(w(0, 1), flush(w(0, 1), cut))},
		"FUA over cached versions":         {w(0, 1), w(0, 1), fua(0, 1), w(0, 1), cut},
		"FUA beside a cached version":      {w(0, 2), fua(1, 1), w(0, 1), cut},
		"FUA while a flush":                {w(0, 2), flush(fua(0, 1), cut)},
		"write in flight":                  {w(0, 1), w(0, 2, cut)},
		"FUA in flight":                    {w(0, 1), fua(0, 1, cut)},
		"write overtaken while in flight":  {w(0, 1, w(0, 1), w(0, 1)), cut},
		"write in flight over block edges": {w(7, 2, cut)},
	}
	for name, steps := range histories {
		for _, tear := range []int{SectorSize, BlockSize} {
			t.Run(fmt.Sprintf("%s, tear %d", name, tear), func(t *testing.T) {
				t.Parallel()
				checkReach(t, tinyConfig(tear), steps)
			})
		}
	}
}

// The same over random tiny histories.
func TestAllowedStatesOccurAtRandom(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 7))
	n := long(12)
	if raceEnabled {
		n = 2
	}
	for n > 0 {
		cfg := tinyConfig([]int{SectorSize, BlockSize}[rng.IntN(2)])
		steps := randomSteps(rng, 2+rng.IntN(4), 1)
		steps = append(steps, step{kind: "cut"})
		if checkReach(t, cfg, steps) {
			n--
		}
	}
}

func randomSteps(rng *rand.Rand, n, depth int) []step {
	var steps []step
	for range n {
		s := step{kind: []string{"write", "write", "fua", "flush"}[rng.IntN(4)], first: 6 + rng.Int64N(3), n: 1 + rng.Int64N(2)}
		if depth > 0 && rng.IntN(3) == 0 {
			s.during = randomSteps(rng, 1+rng.IntN(2), depth-1)
		}
		steps = append(steps, s)
	}
	return steps
}

// checkReach reports whether the history was small enough to try.
func checkReach(t *testing.T, cfg Config, steps []step) bool {
	t.Helper()
	_, allowed := runTiny(t, cfg, steps)
	want, rarest := images(allowed)
	if rarest < rarestTried {
		return false
	}
	require.Equal(t, want, seen(t, cfg, steps, len(want)), "%+v", steps)
	return true
}

// The older version is a fair sample of all of them, over layers too.
func TestOlderVersionsAreEquallyLikely(t *testing.T) {
	t.Parallel()
	w := step{kind: "write", n: 1}
	steps := []step{w, w, w, {kind: "flush", during: []step{w, w, {kind: "cut"}}}}
	const seeds = 3000
	count := make(map[string]int)
	cfg := tinyConfig(SectorSize)
	cfg.Size = BlockSize
	for seed := range uint64(seeds) {
		cfg.Seed = seed
		image, _ := runTiny(t, cfg, steps)
		count[image]++
	}
	for s := range stamp(6) {
		want := seeds / 3
		if s > 0 && s < 5 {
			want /= 4
		}
		image := make([]stamp, cfg.Size/SectorSize)
		image[0] = s
		assert.InEpsilon(t, want, count[fmt.Sprint(image)], 0.25, "version %d", s)
	}
}

// What the contract allows and the drive never leaves: of two writes in flight in
// one 4 KiB unit, the later without the earlier; and with one seed, more than one
// of the older versions of a unit.
func TestAllowedStatesOutOfReach(t *testing.T) {
	t.Parallel()
	inFlight := step{"write", 0, 1, []step{{"write", 1, 1, []step{{kind: "cut"}}}}}
	cfg := tinyConfig(BlockSize)
	_, allowed := runTiny(t, cfg, []step{inFlight})
	want, _ := images(allowed)
	got := seen(t, cfg, []step{inFlight}, len(want))
	later := fmt.Sprint([]stamp{0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	assert.Contains(t, want, later)
	delete(want, later)
	assert.Equal(t, want, got)
}
