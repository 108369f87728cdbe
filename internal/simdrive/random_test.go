package simdrive

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// long scales the randomised tests by PLUGPULL_LONG, a whole number.
func long(n int) int {
	if k, err := strconv.Atoi(os.Getenv("PLUGPULL_LONG")); err == nil && k > 0 {
		return n * k
	}
	return n
}

// hookClock is a virtual clock that lets other requests in while one sleeps.
type hookClock struct {
	VirtualClock
	hook func()
}

func (c *hookClock) Sleep(d time.Duration) {
	c.Advance(d / 2)
	if c.hook != nil {
		c.hook()
	}
	c.Advance(d - d/2)
}

// trial drives one drive and the model side by side with random requests.
type trial struct {
	cfg    Config
	clock  *hookClock
	d      *Drive
	h      *Handle
	stale  []*Handle
	m      *model
	rng    *rand.Rand
	stamps stamp
	ops    int
	cuts   int
	depth  int
	buf    []byte
	bufs   [4][]byte // for writes, one a depth
}

// trialConfig draws a configuration.
func trialConfig(rng *rand.Rand) Config {
	pick := func(chance int) bool { return rng.IntN(chance) == 0 }
	cfg := Config{
		Size:    int64(1+rng.IntN(8)) * BlockSize,
		Survive: []Survive{SurviveNone, SurviveAll, SurviveRandom, SurviveRandom}[rng.IntN(4)],
		Tear:    []int{SectorSize, BlockSize}[rng.IntN(2)],
		Seed:    rng.Uint64(),
	}
	if pick(4) {
		cfg.CacheBytes = int64(1+rng.IntN(32)) * SectorSize
	}
	cfg.WriteThrough = pick(8)
	if pick(2) {
		cfg.WriteLatency = time.Millisecond
	}
	if pick(2) {
		cfg.FlushLatency = 3 * time.Millisecond
	}
	for _, f := range []Fault{
		{Class: FlushIgnored}, {Class: FlushLate, Arg: int64(10 * time.Millisecond)},
		{Class: FUAIgnored}, {Class: Capacitor},
	} {
		if pick(6) {
			cfg.Faults = append(cfg.Faults, f)
		}
	}
	return cfg
}

func newTrial(cfg Config, rng *rand.Rand, broken mutant) (*trial, error) {
	t := &trial{cfg: cfg, clock: &hookClock{}, rng: rng, m: newModel(cfg.Size, cfg.Tear)}
	cfg.Clock = t.clock
	t.buf = make([]byte, cfg.Size)
	for i := range t.bufs {
		t.bufs[i] = make([]byte, cfg.Size)
	}
	var err error
	if t.d, err = New(cfg); err != nil {
		return nil, err
	}
	t.d.mutant = broken
	t.h, err = t.d.PowerOn()
	return t, err
}

func (t *trial) has(c Class) bool {
	for _, f := range t.cfg.Faults {
		if f.Class == c {
			return true
		}
	}
	return false
}

// run issues n requests, those let in by others counted.
func (t *trial) run(n int) error {
	var nested error
	t.clock.hook = func() {
		for t.depth < 3 && t.rng.IntN(2) == 0 && nested == nil {
			t.depth++
			nested = t.request()
			t.depth--
		}
	}
	for t.ops < n {
		err := errors.Join(t.request(), nested)
		if err != nil {
			return fmt.Errorf("request %d, cut %d, %+v: %w", t.ops, t.cuts, t.cfg, err)
		}
	}
	return nil
}

func (t *trial) request() error {
	t.ops++
	t.m.tick(t.clock.Now())
	switch k := t.rng.IntN(100); {
	case k < 50:
		return t.write(plainWrite)
	case k < 58:
		return t.write(fuaWrite)
	case k < 62:
		return t.write(discard)
	case k < 76:
		return t.flush()
	case k < 92:
		return t.read()
	case k < 94:
		t.clock.Advance(time.Duration(t.rng.IntN(8)) * time.Millisecond)
		return nil
	case k < 95:
		t.d.CutAt(uint64(t.rng.IntN(6)))
		return nil
	case k < 97:
		return t.zombie()
	case k < 98:
		return t.reset()
	default:
		t.d.Cut()
		return t.restart()
	}
}

// span draws a range of sectors.
func (t *trial) span() (first, n int64) {
	total := t.cfg.Size / SectorSize
	if t.rng.IntN(3) == 0 { // whole blocks
		first = t.rng.Int64N(total/perBlock) * perBlock
		n = (1 + t.rng.Int64N(2)) * perBlock
	} else {
		first = t.rng.Int64N(total)
		n = 1 + t.rng.Int64N(10)
	}
	return first, min(n, total-first)
}

func (t *trial) write(kind writeKind) error {
	first, n := t.span()
	w := &modelWrite{first: first, n: n}
	w.durable = t.cfg.WriteThrough || kind == fuaWrite && !t.has(FUAIgnored)
	p := t.bufs[t.depth][:n*SectorSize]
	if kind != discard {
		t.stamps++
		w.s = t.stamps
		for i := range n {
			fillSector(p[i*SectorSize:], w.s, first+i)
		}
	}
	t.m.inflight = append(t.m.inflight, w)
	var err error
	switch kind {
	case plainWrite:
		_, err = t.h.WriteAt(p, first*SectorSize)
	case fuaWrite:
		_, err = t.h.WriteFUA(p, first*SectorSize)
	case discard:
		err = t.h.Discard(first*SectorSize, n*SectorSize)
	}
	if errors.Is(err, ErrPowerOff) {
		return t.restart() // the trap: this write is in flight
	}
	for i, other := range t.m.inflight {
		if other == w {
			t.m.inflight = append(t.m.inflight[:i], t.m.inflight[i+1:]...)
		}
	}
	if errors.Is(err, ErrStale) {
		return nil // a cut or a reset overtook it
	}
	if err == nil {
		t.m.tick(t.clock.Now())
		t.m.done(w)
	}
	return err
}

func (t *trial) flush() error {
	now, seq := t.clock.Now(), t.m.seq
	err := t.h.Flush()
	switch {
	case errors.Is(err, ErrPowerOff):
		return t.restart()
	case errors.Is(err, ErrStale):
		return nil
	case err != nil:
		return err
	case t.has(FlushIgnored):
	case t.has(FlushLate):
		t.m.owed = append(t.m.owed, owed{now + 10*time.Millisecond, seq})
	default:
		t.m.cover(seq)
	}
	return nil
}

func (t *trial) read() error {
	first, n := t.span()
	p := t.buf[:n*SectorSize]
	if _, err := t.h.ReadAt(p, first*SectorSize); err != nil {
		return err
	}
	for i := range n {
		s, err := readSector(p[i*SectorSize:], first+i)
		if err != nil {
			return err
		}
		if want := t.m.newest(first + i); s != want {
			return fmt.Errorf("sector %d reads as version %d, newest is %d", first+i, s, want)
		}
	}
	return nil
}

// zombie tries what holders of older handles try.
func (t *trial) zombie() error {
	if len(t.stale) == 0 {
		return nil
	}
	h := t.stale[t.rng.IntN(len(t.stale))]
	first, n := t.span()
	if _, err := h.WriteAt(make([]byte, n*SectorSize), first*SectorSize); !errors.Is(err, ErrStale) {
		return fmt.Errorf("a stale handle wrote: %v", err)
	}
	return nil
}

// reset is a power-on without a cut: the cache stays.
func (t *trial) reset() error {
	t.stale = append(t.stale, t.h)
	t.m.inflight = nil
	var err error
	t.h, err = t.d.PowerOn()
	return err
}

// restart checks what a cut left.
func (t *trial) restart() error {
	t.cuts++
	t.m.tick(t.clock.Now())
	if _, err := t.h.ReadAt(t.buf[:1], 0); !errors.Is(err, ErrPowerOff) {
		return fmt.Errorf("a read without power: %v", err)
	}
	t.stale = append(t.stale, t.h)
	var err error
	if t.h, err = t.d.PowerOn(); err != nil {
		return err
	}
	if _, err := t.h.ReadAt(t.buf, 0); err != nil {
		return err
	}
	r, flight := ruleCovered, false
	switch {
	case t.cfg.Survive == SurviveRandom:
		r, flight = ruleAny, true
	case t.cfg.Survive == SurviveAll:
		r, flight = ruleNewest, true
	case t.cfg.CacheBytes > 0:
		r = ruleAny // destaging is not to be seen
	}
	if t.has(Capacitor) {
		r = ruleNewest
	}
	return t.m.afterCut(t.buf, r, flight)
}

// hunt runs trials of one drive, and returns the first that breaks the contract.
func hunt(seed uint64, requests int, broken mutant, adjust func(*Config)) (cuts int, err error) {
	for total, i := 0, uint64(0); total < requests; i++ {
		rng := rand.New(rand.NewPCG(seed, i))
		cfg := trialConfig(rng)
		if adjust != nil {
			adjust(&cfg)
		}
		t, err := newTrial(cfg, rng, broken)
		if err == nil {
			err = t.run(1000)
		}
		if err != nil {
			return cuts, fmt.Errorf("seed %d, trial %d: %w", seed, i, err)
		}
		total += t.ops
		cuts += t.cuts
	}
	return cuts, nil
}

func TestAgainstModel(t *testing.T) {
	t.Parallel()
	requests := long(1_000_000)
	if raceEnabled {
		requests /= 40
	}
	cuts, err := hunt(1, requests, noMutant, nil)
	require.NoError(t, err)
	assert.Greater(t, cuts, requests/100, "cuts")
	t.Logf("%d requests, %d cuts", requests, cuts)
}

// TestLongAgainstModel is the same over many more requests, with another seed for
// each value of PLUGPULL_LONG, which multiplies them.
func TestLongAgainstModel(t *testing.T) {
	if os.Getenv("PLUGPULL_LONG") == "" {
		t.Skip("set PLUGPULL_LONG=1; takes minutes")
	}
	cuts, err := hunt(uint64(long(1000)), long(20_000_000), noMutant, nil)
	require.NoError(t, err)
	t.Logf("%d cuts", cuts)
}

// The durable contents in a file behave like those in memory.
func TestAgainstModelInFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := 0
	_, err := hunt(2, 10_000, noMutant, func(cfg *Config) {
		n++
		f, err := os.Create(filepath.Join(dir, strconv.Itoa(n)))
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		cfg.Base = f
	})
	require.NoError(t, err)
}

// Each way of breaking the contract is noticed by the same trials.
func TestBrokenDrivesAreCaught(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]mutant{
		"flush covers what completes while it is under way": flushCoversLater,
		"write applied after the cut":                       applyAfterCut,
		"tear outside the write":                            tearOutside,
		"durable by magic":                                  durableByMagic,
		"stale handle writes":                               staleHandleWrites,
		"superseded version destaged after FUA":             fuaLeavesOlder,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := hunt(3, 100_000, broken, nil)
			require.Error(t, err)
			t.Log(err)
		})
	}
}
