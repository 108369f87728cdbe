package simdrive

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// What a request can fail with; match with errors.Is. The contents of an
// external Base that fail to be read or written give other errors, after which
// the drive fails for good.
var (
	ErrPowerOff = errors.New("the drive has no power")
	ErrStale    = errors.New("the handle is of an older power-on")
	ErrDead     = errors.New("the drive is dead")
	ErrRange    = errors.New("outside the drive")
	ErrAlign    = errors.New("not a multiple of 512")
	ErrConfig   = errors.New("bad drive configuration")
)

// Survive says what is left of volatile data at a cut.
type Survive string

const (
	SurviveNone Survive = "none" // only what was covered
	SurviveAll  Survive = "all"  // the newest version of everything
	// SurviveRandom chooses for each tear unit, with equal chances, among the
	// covered version, one sampled older version if there is one, and the newest.
	SurviveRandom Survive = "random"
)

// Config says what drive New makes. Only Size is needed.
type Config struct {
	Size         int64         // bytes, a multiple of 4096
	Base         Base          // the durable contents; nil: zeros, in memory
	WriteThrough bool          // every completed write is durable
	CacheBytes   int64         // room for volatile data; 0: unbounded; beyond it random blocks are destaged
	WriteLatency time.Duration // slept by each write before it completes
	FlushLatency time.Duration // slept by each honest flush before it is done
	Survive      Survive       // default SurviveNone
	Tear         int           // unit of survival, 512 (default) or 4096 bytes
	Faults       []Fault       // those of one event act in this order
	Seed         uint64        // of all randomness; see the package comment
	Clock        Clock         // nil: a VirtualClock of the drive's own
	Log          Log           // what is kept for Entries
	KeepCut      bool          // keep what each cut left for CutImage, until the next
	// FirstGeneration is the number that the first power-on gets; 0 means 1. It
	// lets one cycle be replayed alone.
	FirstGeneration uint64
}

// Stats counts since New. Requests count when they arrive, whatever becomes of
// them, if they are well-formed and find the drive on.
type Stats struct {
	Reads     uint64
	Writes    uint64 // FUA writes and discards included
	FUAWrites uint64
	Discards  uint64
	Flushes   uint64
	Ops       uint64 // Writes + Flushes: what CutAt counts
	// BytesRead and BytesWritten count what completed.
	BytesRead, BytesWritten int64
	DirtyBytes              int64  // volatile now; twice what two flushes under way both hold
	DestagedBytes           int64  // made durable because the cache was full
	Generation              uint64 // of the last power-on; 0 before the first
}

// Drive is a simulated drive. It starts without power. All methods may be called
// concurrently; none but those of a Handle sleeps.
type Drive struct {
	cfg    Config
	clock  Clock
	faults []*planted

	mu         sync.Mutex
	zero       *block
	medium     store
	keeper     *keeper // around the medium, with KeepCut
	cache      *cache
	plant      plant
	generation uint64
	firstOp    uint64 // Stats.Ops at the power-on
	on         bool
	dead       bool
	failed     error  // of the Base; sticky
	trap       uint64 // Stats.Ops of the request that the power fails at; 0: none
	inflight   []*pending
	destage    *rand.Rand
	report     *CutReport
	stats      Stats
	log        []Entry
	mutant     mutant // tests only
}

// New makes a drive, without power. The error wraps ErrConfig.
func New(cfg Config) (*Drive, error) {
	if cfg.Survive == "" {
		cfg.Survive = SurviveNone
	}
	if cfg.Tear == 0 {
		cfg.Tear = SectorSize
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	d := &Drive{cfg: cfg, clock: cfg.Clock, zero: new(block)}
	if d.clock == nil {
		d.clock = NewVirtualClock()
	}
	if cfg.Base != nil {
		d.medium = baseStore{cfg.Base}
	} else {
		d.medium = newMemStore(d.zero)
	}
	if cfg.KeepCut {
		d.keeper = &keeper{store: d.medium}
		d.medium = d.keeper
	}
	d.cache = newCache(d.medium, d.zero, cfg.Tear/SectorSize)
	d.cache.commit = d.commit
	for i, f := range cfg.Faults {
		d.faults = append(d.faults, &planted{Fault: f, index: i})
	}
	d.plant.init(cfg.Faults)
	return d, nil
}

func (c *Config) check() error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrConfig}, a...)...)
	}
	switch {
	case c.Size <= 0 || c.Size%BlockSize != 0:
		return bad("size %d is not a positive multiple of %d", c.Size, BlockSize)
	case c.Tear != SectorSize && c.Tear != BlockSize:
		return bad("tear %d is neither %d nor %d", c.Tear, SectorSize, BlockSize)
	case c.CacheBytes < 0 || c.WriteLatency < 0 || c.FlushLatency < 0:
		return bad("negative cache or latency")
	case c.Survive != SurviveNone && c.Survive != SurviveAll && c.Survive != SurviveRandom:
		return bad("unknown survival %q", c.Survive)
	}
	for _, f := range c.Faults {
		if err := f.Check(); err != nil {
			return bad("%w", err)
		}
	}
	return nil
}

// PowerOn starts a new generation and returns its handle; requests through older
// ones fail from now on. With the power still on it is what a reset of the host
// is: the cache stays. A dead drive powers on too, and fails every request. The
// error is that of a failed Base.
func (d *Drive) PowerOn() (*Handle, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed != nil {
		return nil, d.failed
	}
	if d.generation == 0 && d.cfg.FirstGeneration > 0 {
		d.generation = d.cfg.FirstGeneration - 1
	}
	d.generation++
	g := d.generation
	if d.cfg.Survive == SurviveRandom {
		d.cache.sample = newRand(d.cfg.Seed, g, streamSample)
	}
	d.destage = newRand(d.cfg.Seed, g, streamDestage)
	for _, f := range d.faults {
		f.rng = newRand(d.cfg.Seed, g, streamFault+uint64(f.index))
		f.acted = false
	}
	d.firstOp = d.stats.Ops
	d.on = true
	d.inflight = nil // they will find that they are stale
	d.trimLog()
	d.note(Entry{Kind: EntryPowerOn})
	return &Handle{d: d, generation: g}, nil
}

// CutAt sets a trap: the power fails as the n-th further write, discard or flush
// arrives; 0 clears it. A FUA write is one, reads do not count. That request
// fails too; it was in flight, so a write can be left in part like anything
// volatile. The trap stays set over power-ons until it has sprung.
func (d *Drive) CutAt(n uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.trap = 0
	if n > 0 {
		d.trap = d.stats.Ops + n
	}
}

// Settle makes everything volatile durable, as a drive left idle would, and
// takes what is there now as what was there at the power-on: no fault applies to
// what was written before. It is for setting up.
func (d *Drive) Settle() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return fmt.Errorf("settle: %w", ErrDead)
	}
	d.plant.paused = true
	defer func() { d.plant.paused = false }()
	for len(d.cache.dirty) > 0 && d.failed == nil {
		e := d.cache.dirty[len(d.cache.dirty)-1]
		d.fail(d.cache.destage(e, e.dirtyMask()))
	}
	d.plant.forget()
	for _, f := range d.faults {
		f.acted = false
	}
	if d.failed != nil {
		return fmt.Errorf("settle: %w", d.failed)
	}
	return nil
}

// Stats returns the counts so far.
func (d *Drive) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.stats
	s.DirtyBytes = d.cache.sectors * SectorSize
	s.Generation = d.generation
	return s
}

// Report returns the report of the last cut, and whether there was one.
func (d *Drive) Report() (CutReport, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.report == nil {
		return CutReport{}, false
	}
	return d.report.clone(), true
}

// fail keeps the first error of the Base.
func (d *Drive) fail(err error) {
	if err != nil && d.failed == nil {
		d.failed = err
	}
}

// mergeDue makes durable what late flushes owe by now.
func (d *Drive) mergeDue(now time.Duration) {
	for i := len(d.cache.sealed) - 1; i >= 0; i-- {
		if l := d.cache.sealed[i]; l.due != 0 && l.due <= int64(now) {
			d.merge(l.id)
			return
		}
	}
}

// merge makes durable what a flush covers. What it covers is one promise.
func (d *Drive) merge(id uint64) {
	d.plant.promise++
	covered, err := d.cache.merge(id)
	if !covered && !d.plant.destaged {
		d.plant.promise--
	}
	d.plant.destaged = false
	d.fail(err)
}

// shrink destages random blocks until the cache has room again.
func (d *Drive) shrink() {
	c := d.cache
	for d.cfg.CacheBytes > 0 && c.sectors*SectorSize > d.cfg.CacheBytes && d.failed == nil {
		e := c.dirty[d.destage.IntN(len(c.dirty))]
		before := c.sectors
		d.plant.promise++ // of the flush to come
		d.fail(c.destage(e, e.dirtyMask()))
		d.plant.promise--
		d.plant.destaged = true
		d.stats.DestagedBytes += (before - c.sectors) * SectorSize
	}
}
