package simdrive

import (
	"math/bits"
	"math/rand/v2"
)

// reveal shows what the medium really holds.
func (d *Drive) reveal() error {
	for _, b := range sortedKeys(d.plant.hidden) {
		h := d.plant.hidden[b]
		var now block
		if err := d.medium.read(b, &now); err != nil {
			return err
		}
		for i := range perBlock {
			if h.m&(1<<i) != 0 && !sameSectors(&now, &h.data, 1<<i) {
				h.by[i].acted = true
			}
		}
		if _, err := d.medium.write(b, &h.data, h.m, false); err != nil {
			return err
		}
	}
	return nil
}

func sameSectors(a, b *block, m mask) bool {
	for i := 0; i < perBlock; i++ {
		at := i * SectorSize
		if m&(1<<i) != 0 && [SectorSize]byte(a[at:at+SectorSize]) != [SectorSize]byte(b[at:at+SectorSize]) {
			return false
		}
	}
	return true
}

// damage does what the faults do to durable contents at a cut. beside holds the
// durable sectors next to what was being written.
func (d *Drive) damage(beside []int64) error {
	for _, f := range d.faults {
		var err error
		switch f.Class {
		case BitCorruption, Unserializable, MetadataLost, MetadataOld, DeadDevice, AdjacentDamage:
			if !f.due(d.generation) {
				continue
			}
		}
		switch f.Class {
		case BitCorruption:
			err = d.flipBits(f)
		case Unserializable:
			err = d.revert(f)
		case MetadataLost, MetadataOld:
			err = d.loseRange(f)
		case DeadDevice:
			d.dead, f.acted = true, true
		case AdjacentDamage:
			err = d.spoil(f, beside)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// change rewrites some sectors of a durable block and reports whether it changed.
func (d *Drive) change(b int64, m mask, f func(*block)) (changed bool, err error) {
	var now block
	if err := d.medium.read(b, &now); err != nil {
		return false, err
	}
	then := now
	f(&then)
	if sameSectors(&now, &then, m) {
		return false, nil
	}
	_, err = d.medium.write(b, &then, m, false)
	return true, err
}

// flipBits flips random bits in sectors that were written since the power-on.
func (d *Drive) flipBits(f *planted) error {
	var at []int64 // sectors
	for _, b := range sortedKeys(d.plant.written) {
		at = appendSectors(at, b, d.plant.written[b])
	}
	for n := int64(0); n < f.Arg && len(at) > 0; n++ {
		sector := at[f.rng.IntN(len(at))]
		bit := f.rng.IntN(SectorSize * 8)
		i := int(sector % perBlock)
		f.acted = true
		_, err := d.change(sector/perBlock, 1<<i, func(b *block) { b[i*SectorSize+bit/8] ^= 1 << (bit % 8) })
		if err != nil {
			return err
		}
	}
	return nil
}

// appendSectors appends the numbers of the sectors of m in block b.
func appendSectors(to []int64, b int64, m mask) []int64 {
	for i := range int64(perBlock) {
		if m&(1<<i) != 0 {
			to = append(to, b*perBlock+i)
		}
	}
	return to
}

// revert brings back the version before of random units that were covered, all
// but those of the last promise: a later write survives.
func (d *Drive) revert(f *planted) error {
	type unit struct {
		b int64
		m mask
	}
	var able []unit
	for _, b := range sortedKeys(d.plant.before) {
		r := d.plant.before[b]
		var now block
		if err := d.medium.read(b, &now); err != nil {
			return err
		}
		for u := 0; u < perBlock; u += d.cache.perUnit {
			m := sectors(u, d.cache.perUnit) & r.has
			if m != 0 && r.promise[u] < d.plant.promise && !sameSectors(&now, &r.data, m) {
				able = append(able, unit{b, m})
			}
		}
	}
	for n := int64(0); n < f.Arg && len(able) > 0; n++ {
		i := f.rng.IntN(len(able))
		if _, err := d.medium.write(able[i].b, &d.plant.before[able[i].b].data, able[i].m, false); err != nil {
			return err
		}
		f.acted = true
		able[i] = able[len(able)-1]
		able = able[:len(able)-1]
	}
	return nil
}

// loseRange zeros a range around a random block that was written since the
// power-on, or brings back its contents of then.
func (d *Drive) loseRange(f *planted) error {
	written := sortedKeys(d.plant.written)
	if len(written) == 0 {
		return nil
	}
	n := f.Arg / BlockSize
	first := written[f.rng.IntN(len(written))] / n * n
	for b := first; b < min(first+n, d.cfg.Size/BlockSize); b++ {
		old := d.zero
		if f.Class == MetadataOld {
			if old = d.plant.first[b]; old == nil {
				continue
			}
		}
		changed, err := d.change(b, fullBlock, func(now *block) { *now = *old })
		if err != nil {
			return err
		}
		f.acted = f.acted || changed
	}
	return nil
}

// beside returns the durable sectors next to one run of sectors that is being
// written: a write in flight or, with none, something volatile.
func (d *Drive) beside() []int64 {
	var f *planted
	for _, g := range d.faults {
		if g.Class == AdjacentDamage {
			f = g
		}
	}
	if f == nil {
		return nil
	}
	first, end, ok := d.beingWritten(f.rng)
	if !ok {
		return nil
	}
	var at []int64
	for _, s := range []int64{first - 1, end} {
		if s >= 0 && s < d.cfg.Size/SectorSize && !d.isVolatile(s) {
			at = append(at, s)
		}
	}
	return at
}

// beingWritten picks a run of sectors, from first up to and without end.
func (d *Drive) beingWritten(rng *rand.Rand) (first, end int64, ok bool) {
	if len(d.inflight) > 0 {
		w := d.inflight[rng.IntN(len(d.inflight))]
		return w.off / SectorSize, (w.off + w.n) / SectorSize, true
	}
	blocks := sortedKeys(d.cache.entries)
	if len(blocks) == 0 {
		return 0, 0, false
	}
	b := blocks[rng.IntN(len(blocks))]
	first = b*perBlock + int64(bits.TrailingZeros8(uint8(d.cache.entries[b].dirtyMask())))
	for end = first; end < d.cfg.Size/SectorSize && d.isVolatile(end); end++ {
	}
	return first, end, true
}

// isVolatile says whether a sector is in the cache or in flight.
func (d *Drive) isVolatile(sector int64) bool {
	for _, w := range d.inflight {
		if sector >= w.off/SectorSize && sector < (w.off+w.n)/SectorSize {
			return true
		}
	}
	e := d.cache.entries[sector/perBlock]
	return e != nil && e.dirtyMask()&(1<<(sector%perBlock)) != 0
}

// spoil overwrites sectors with noise.
func (d *Drive) spoil(f *planted, at []int64) error {
	for _, sector := range at {
		i := int(sector % perBlock)
		f.acted = true
		_, err := d.change(sector/perBlock, 1<<i, func(b *block) {
			for j := range SectorSize {
				b[i*SectorSize+j] = byte(f.rng.Uint32())
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}
