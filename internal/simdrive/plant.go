package simdrive

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// mutant makes the drive break its contract. Tests set it, to show that they
// would notice.
type mutant int

const (
	noMutant          mutant = iota
	flushCoversLater         // a flush covers what completes while it is under way
	applyAfterCut            // a write that the cut caught is applied afterwards
	tearOutside              // a torn write takes its neighbour sector along
	durableByMagic           // writes are durable without a flush
	staleHandleWrites        // an older handle still works
	fuaLeavesOlder           // the cache keeps what FUA superseded, and destages it
)

// planted is a fault of the drive, with the generation's generator.
type planted struct {
	Fault
	index int
	rng   *rand.Rand
	acted bool
}

// due asks the schedule, once for each event.
func (f *planted) due(generation uint64) bool {
	switch {
	case f.Cycle != 0:
		return f.Cycle == generation
	case f.P != 0:
		return f.rng.Float64() < f.P
	}
	return true
}

// asks returns the first fault of a class that is due now. Every one is asked, so
// that none changes what another draws.
func (d *Drive) asks(c Class) *planted {
	var first *planted
	for _, f := range d.faults {
		if f.Class == c && f.due(d.generation) && first == nil {
			first = f
		}
	}
	return first
}

// twist says how the newest version of some sectors of a block fails to reach
// its place on the medium.
type twist struct {
	lost mask // sectors that do not reach it
	to   [perBlock]int64
	by   [perBlock]*planted
}

const nowhere = -1

// with returns t with the sectors of m as in other.
func (t *twist) with(m mask, other *twist) *twist {
	if t == nil && other == nil {
		return nil
	}
	n := new(twist)
	if t != nil {
		*n = *t
	}
	n.lost &^= m
	if other != nil {
		n.lost |= other.lost & m
		for i := range perBlock {
			if m&(1<<i) != 0 {
				n.to[i], n.by[i] = other.to[i], other.by[i]
			}
		}
	}
	if n.lost == 0 {
		return nil
	}
	return n
}

// revision is what a block held before it was made durable last.
type revision struct {
	data    block
	has     mask
	promise [perBlock]uint64 // by which the newer version was made durable
}

// hidden is what the medium really holds of a block, where it differs from what
// reads return until the cut.
type hidden struct {
	data block
	m    mask
	by   [perBlock]*planted
}

// plant is what the faults need to know. Each map is nil unless a fault needs it.
type plant struct {
	written  map[int64]mask      // sectors, since the power-on
	first    map[int64]*block    // what was there at the power-on, of blocks that were made durable since
	before   map[int64]*revision // what was there before, of blocks that were covered since
	hidden   map[int64]*hidden
	promise  uint64 // counts flushes and FUA writes that covered something
	destaged bool   // something was, since the last promise
	paused   bool   // nothing is planted, and nothing remembered
	cutting  bool   // what is made durable now was promised by no one
}

func (p *plant) init(faults []Fault) {
	for _, f := range faults {
		switch f.Class {
		case BitCorruption, MetadataLost:
			p.written = make(map[int64]mask)
		case MetadataOld:
			p.written = make(map[int64]mask)
			p.first = make(map[int64]*block)
		case Unserializable:
			p.before = make(map[int64]*revision)
		case ShornWrite, MisdirectedWrite:
			p.hidden = make(map[int64]*hidden)
		}
	}
}

// forget starts a new generation.
func (p *plant) forget() {
	clear(p.written)
	clear(p.first)
	clear(p.before)
	clear(p.hidden)
	p.destaged = false
}

func (p *plant) wrote(b int64, m mask) {
	if p.written != nil {
		p.written[b] |= m
	}
}

// commit makes sectors durable: the one way to the medium while there is power.
func (d *Drive) commit(b int64, data *block, m mask, give bool, why *twist) (*block, error) {
	p := &d.plant
	if !p.paused {
		if err := d.remember(b, m); err != nil {
			return nil, err
		}
		if p.hidden != nil {
			if err := d.hide(b, data, m, why); err != nil {
				return nil, err
			}
		}
	}
	return d.medium.write(b, data, m, give)
}

// remember keeps what is about to be overwritten, for the faults that bring it back.
func (d *Drive) remember(b int64, m mask) error {
	p := &d.plant
	if p.first != nil && p.first[b] == nil {
		old := new(block)
		if err := d.medium.read(b, old); err != nil {
			return err
		}
		p.first[b] = old
	}
	if p.before == nil || p.cutting {
		return nil
	}
	var old block
	if err := d.medium.read(b, &old); err != nil {
		return err
	}
	r := p.before[b]
	if r == nil {
		r = new(revision)
		p.before[b] = r
	}
	if d.cfg.Tear == BlockSize {
		m = fullBlock
	}
	copySectors(&r.data, &old, m)
	r.has |= m
	for i := range perBlock {
		if m&(1<<i) != 0 {
			r.promise[i] = p.promise
		}
	}
	return nil
}

// hide keeps what the medium really holds when sectors fail to reach it.
func (d *Drive) hide(b int64, data *block, m mask, why *twist) error {
	p := &d.plant
	var lost mask
	if why != nil {
		lost = why.lost & m
	}
	h := p.hidden[b]
	if h != nil {
		h.m &^= m &^ lost
	}
	if lost == 0 {
		return nil
	}
	if h == nil {
		h = new(hidden)
		p.hidden[b] = h
	}
	var old block
	if err := d.medium.read(b, &old); err != nil {
		return err
	}
	copySectors(&h.data, &old, lost&^h.m)
	h.m |= lost
	for i := range perBlock {
		if lost&(1<<i) == 0 {
			continue
		}
		h.by[i] = why.by[i]
		if why.to[i] == nowhere {
			continue
		}
		t := p.hidden[why.to[i]]
		if t == nil {
			t = new(hidden)
			p.hidden[why.to[i]] = t
		}
		copySectors(&t.data, data, 1<<i)
		t.m |= 1 << i
		t.by[i] = why.by[i]
	}
	return nil
}

const maxAway = 256 // blocks

// misdirect says how many blocks beside its place a write lands; 0: none.
func (d *Drive) misdirect(w *pending) (away int64, by *planted) {
	if d.plant.hidden == nil || w.kind == discard {
		return 0, nil
	}
	f := d.asks(MisdirectedWrite)
	if f == nil {
		return 0, nil
	}
	first := w.off / BlockSize
	last := (w.off + w.n - 1) / BlockSize
	down := min(first, maxAway)
	up := min(d.cfg.Size/BlockSize-1-last, maxAway)
	if down+up == 0 {
		return 0, nil
	}
	if away = f.rng.Int64N(down+up) - down; away >= 0 {
		away++
	}
	return away, f
}

// twistOf says how the write of some sectors of a block goes wrong.
func (d *Drive) twistOf(b int64, m mask, away int64, by *planted) *twist {
	if d.plant.hidden == nil {
		return nil
	}
	var t twist
	to := int64(nowhere)
	shorn := (*planted)(nil)
	if m == fullBlock {
		shorn = d.asks(ShornWrite)
	}
	switch {
	case away != 0:
		t.lost, to = m, b+away
	case shorn != nil:
		t.lost = m &^ sectors(0, int(shorn.Arg))
		by = shorn
	default:
		return nil
	}
	for i := range perBlock {
		t.to[i], t.by[i] = to, by
	}
	return &t
}

// sortedKeys makes choices among blocks independent of the order of a map.
func sortedKeys[V any](m map[int64]V) []int64 {
	return slices.Sorted(maps.Keys(m))
}
