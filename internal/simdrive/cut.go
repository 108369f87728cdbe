package simdrive

import (
	"math/bits"
	"math/rand/v2"
	"slices"
	"time"
)

// CutReport says what a cut found and what it left.
type CutReport struct {
	At         time.Duration // on the drive's clock
	Generation uint64        // the one that the cut ended
	// VolatileBytes counts the sectors of which a completed write was not durable
	// yet. It is the sum of KeptBytes, whose newest completed version (or one in
	// flight) was left, and DroppedBytes, whose newest was not.
	VolatileBytes, DroppedBytes, KeptBytes int64
	Op                                     uint64   // writes and flushes that arrived since the power-on, the one that was cut off included
	Planted                                []string // faults that acted since the power-on, as text; a lie acts when it is told
	InFlight                               bool     // a write was in flight
}

func (r *CutReport) clone() CutReport {
	c := *r
	c.Planted = slices.Clone(r.Planted)
	return c
}

// Cut cuts the power: when it returns, every request fails, and what survived is
// decided. Without power it changes nothing and returns the last report.
func (d *Drive) Cut() CutReport {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.on {
		d.cut()
	}
	if d.report == nil {
		return CutReport{}
	}
	return d.report.clone()
}

func (d *Drive) cut() {
	now := d.clock.Now()
	d.mergeDue(now)
	d.on, d.trap = false, 0
	r := &CutReport{At: now, Generation: d.generation, Op: d.stats.Ops - d.firstOp, InFlight: len(d.inflight) > 0}
	r.VolatileBytes = d.cache.volatile() * SectorSize
	rng := newRand(d.cfg.Seed, d.generation, streamCut)

	d.plant.cutting = true
	beside := d.beside()
	if d.failed == nil && !d.dead {
		kept := d.save()
		d.fail(d.land())
		n, err := d.resolve(rng)
		d.fail(err)
		r.KeptBytes = (kept + n) * SectorSize
		d.fail(d.reveal())
		d.fail(d.damage(beside))
	}
	d.plant.cutting = false

	r.DroppedBytes = r.VolatileBytes - r.KeptBytes
	for _, f := range d.faults {
		if f.acted {
			r.Planted = append(r.Planted, f.String())
		}
	}
	for _, w := range d.inflight {
		d.note(Entry{Kind: EntryInFlight, Off: w.off, Len: w.n, Data: w.p})
	}
	d.note(Entry{Kind: EntryCut})
	d.inflight = nil
	d.cache.drop()
	d.plant.forget()
	if d.keeper != nil {
		d.keeper.old = map[int64]*block{}
	}
	d.report = r
}

// volatile counts the sectors of which anything is volatile.
func (c *cache) volatile() int64 {
	n := 0
	for _, e := range c.dirty {
		n += bits.OnesCount8(uint8(e.dirtyMask()))
	}
	return int64(n)
}

// save makes durable what the capacitors have energy for and returns the sectors.
func (d *Drive) save() (saved int64) {
	for _, f := range d.faults {
		var room int64
		switch f.Class {
		case Capacitor:
			room = d.cfg.Size / SectorSize
		case WeakCapacitor:
			room = f.Arg / SectorSize
		default:
			continue
		}
		if !f.due(d.generation) || len(d.cache.dirty) == 0 {
			continue
		}
		f.acted = true
		oldest := slices.Clone(d.cache.dirty)
		slices.SortFunc(oldest, func(a, b *entry) int { return int(int64(a.bottom.born - b.bottom.born)) })
		for _, e := range oldest {
			m := d.affordable(e.dirtyMask(), room)
			if m == 0 {
				break
			}
			n := int64(bits.OnesCount8(uint8(m)))
			d.fail(d.cache.destage(e, m))
			room -= n
			saved += n
		}
	}
	return saved
}

// affordable returns the sectors of m that there is room for. A unit of survival
// is saved whole or not at all.
func (d *Drive) affordable(m mask, room int64) mask {
	if n := int64(bits.OnesCount8(uint8(m))); n <= room {
		return m
	}
	if d.cfg.Tear == BlockSize {
		return 0
	}
	var some mask
	for i := 0; i < perBlock && room > 0; i++ {
		if m&(1<<i) != 0 {
			some |= 1 << i
			room--
		}
	}
	return some
}

// land puts the writes in flight into a layer of their own, as the newest
// versions, in the order of their arrival.
func (d *Drive) land() error {
	if d.cfg.Survive == SurviveNone {
		return nil
	}
	d.cache.seal()
	for _, w := range d.inflight {
		if d.mutant == tearOutside && w.off+w.n < d.cfg.Size {
			wider := pending{kind: plainWrite, off: w.off, n: w.n + SectorSize, p: make([]byte, w.n+SectorSize)}
			copy(wider.p, w.p)
			w = &wider
		}
		if err := d.each(w, d.cache.put); err != nil {
			return err
		}
	}
	return nil
}

// resolve decides what is left of everything volatile and returns the sectors
// that kept the newest of their completed versions.
func (d *Drive) resolve(rng *rand.Rand) (kept int64, err error) {
	if d.cfg.Survive == SurviveNone {
		return 0, nil
	}
	for _, b := range sortedKeys(d.cache.entries) {
		n, err := d.resolveBlock(d.cache.entries[b], rng)
		if err != nil {
			return kept, err
		}
		kept += n
	}
	return kept, nil
}

func (d *Drive) resolveBlock(e *entry, rng *rand.Rand) (kept int64, err error) {
	c := d.cache
	completed := mask(0) // sectors of which a completed write is volatile
	for s := e.bottom; s != nil && s.l != c.cur; s = s.up {
		completed |= s.dirty
	}
	var left block
	var changed mask
	var why *twist
	for u := 0; u < perBlock/c.perUnit; u++ {
		unit := sectors(u*c.perUnit, c.perUnit)
		m := e.dirtyMask() & unit
		if m == 0 {
			continue
		}
		s, older := d.survivor(e, u, unit, rng)
		if s == nil {
			continue
		}
		changed |= m
		if older {
			copySectors(&left, s.older, m)
		} else {
			copySectors(&left, s.data, m)
			if s == e.newest(unit) {
				why = e.twists(why, m)
			}
		}
		if s.l == c.cur || !older && s.isNewestBelow(c.cur, unit) {
			kept += int64(bits.OnesCount8(uint8(completed & unit)))
		}
	}
	if changed == 0 {
		return 0, nil
	}
	_, err = d.commit(e.b, &left, changed, false, why)
	return kept, err
}

// survivor chooses what is left of one unit: a segment's newest or older
// version, or nil for the durable one.
func (d *Drive) survivor(e *entry, u int, unit mask, rng *rand.Rand) (s *segment, older bool) {
	newest := e.newest(unit)
	if d.cfg.Survive != SurviveRandom {
		return newest, false
	}
	n := -1 // older versions: all but the newest
	for s := e.bottom; s != nil; s = s.up {
		if s.dirty&unit != 0 {
			n += int(s.versions[u])
		}
	}
	choices := 3
	if n == 0 {
		choices = 2
	}
	switch rng.IntN(choices) {
	case 0:
		return nil, false
	case 1:
		return newest, false
	}
	k := rng.IntN(n)
	for s := e.bottom; ; s = s.up {
		if s.dirty&unit == 0 {
			continue
		}
		v := int(s.versions[u])
		if k < v-1 {
			return s, true // any of the v-1 older ones: it is a fair sample of them
		}
		if k == v-1 {
			return s, false
		}
		k -= v
	}
}

// newest returns the segment with the newest version of a unit, nil if it is clean.
func (e *entry) newest(unit mask) *segment {
	for s := e.top; s != nil; s = s.down {
		if s.dirty&unit != 0 {
			return s
		}
	}
	return nil
}

// isNewestBelow says whether no segment above has a version of the unit, but for
// one in layer l.
func (s *segment) isNewestBelow(l *layer, unit mask) bool {
	for up := s.up; up != nil; up = up.up {
		if up.l != l && up.dirty&unit != 0 {
			return false
		}
	}
	return true
}

// twists adds to t how the newest versions of the sectors of m go wrong.
func (e *entry) twists(t *twist, m mask) *twist {
	for s := e.top; s != nil && m != 0; s = s.down {
		if now := s.dirty & m; now != 0 {
			t = t.with(now, s.twist)
			m &^= now
		}
	}
	return t
}
