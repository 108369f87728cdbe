package simdrive

import (
	"math/bits"
	"math/rand/v2"
)

// cache holds what is volatile: a stack of layers. A flush that takes time seals
// the current layer; when it is done, the oldest sealed layers go to the medium.
// A layer is a set of segments, at most one a block; the segments of one block
// form a stack too, so that a read needs one look-up.
type cache struct {
	entries map[int64]*entry
	dirty   []*entry // all entries, in no useful order: destaging picks from them
	cur     *layer
	sealed  []*layer // oldest first
	sectors int64    // dirty sectors, summed over the segments
	born    uint64   // counts segments

	sample  *rand.Rand // nil: no older versions are kept
	perUnit int        // sectors in a unit of survival: 1 or 8

	medium store
	// commit makes sectors durable; give and the buffer are those of store.write.
	commit func(b int64, data *block, m mask, give bool, why *twist) (*block, error)

	zero        *block // never written to: the contents of discarded blocks
	freeBlocks  []*block
	freeSegs    []*segment
	freeEntries []*entry
	freeLayers  []*layer
}

// entry is a block of which something is volatile.
type entry struct {
	b           int64
	pos         int // in cache.dirty
	bottom, top *segment
}

// segment is what one layer knows of one block.
type segment struct {
	e        *entry
	l        *layer
	pos      int // in layer.segs
	down, up *segment
	born     uint64
	data     *block // the whole newest contents as of this layer, clean sectors too
	dirty    mask   // sectors that were written in this layer
	// older is the sampled older version of each unit that has one. Where the
	// unit is the whole block it is the block as it was, clean sectors included.
	older    *block
	hasOlder mask // one bit a unit
	versions [perBlock]uint32
	twist    *twist // how the newest versions fail to reach their place
}

type layer struct {
	id   uint64 // counts up from 1 within a generation
	due  int64  // nanoseconds on the clock when it becomes durable by itself; 0: never
	segs []*segment
}

const maxFree = 16 << 10 // pooled blocks: 64 MiB

func newCache(medium store, zero *block, perUnit int) *cache {
	return &cache{
		entries: make(map[int64]*entry), cur: &layer{id: 1},
		medium: medium, zero: zero, perUnit: perUnit,
	}
}

// put adds a version of the sectors of m to the current layer; src holds them
// back to back from the first one on, nil means zeros.
func (c *cache) put(b int64, m mask, src []byte, why *twist) error {
	e := c.entries[b]
	if e == nil || e.top.l != c.cur {
		var err error
		if e, err = c.push(b, e, m); err != nil {
			return err
		}
	}
	s := e.top
	if c.sample != nil {
		c.keepOlder(s, m)
	}
	c.fill(&s.data, m, src)
	c.sectors += int64(bits.OnesCount8(uint8(m &^ s.dirty)))
	s.dirty |= m
	if s.twist != nil || why != nil {
		s.twist = s.twist.with(m, why)
	}
	return nil
}

// fill copies src into the sectors of m of a buffer that may be the block of zeros.
func (c *cache) fill(dst **block, m mask, src []byte) {
	if src == nil && m == fullBlock {
		c.release(*dst)
		*dst = c.zero
		return
	}
	if *dst == c.zero {
		*dst = c.buffer()
		if m != fullBlock {
			**dst = *c.zero
		}
	}
	first := bits.TrailingZeros8(uint8(m)) * SectorSize
	n := bits.OnesCount8(uint8(m)) * SectorSize
	if src == nil {
		clear((*dst)[first : first+n])
		return
	}
	copy((*dst)[first:first+n], src)
}

// push puts a new segment of the current layer on the entry of block b. Its data
// is complete unless m says that all of it is about to be written.
func (c *cache) push(b int64, e *entry, m mask) (*entry, error) {
	data := c.buffer()
	if m != fullBlock {
		if e != nil {
			*data = *e.top.data
		} else if err := c.medium.read(b, data); err != nil {
			c.release(data)
			return nil, err
		}
	}
	if e == nil {
		e = take(&c.freeEntries)
		e.b, e.pos = b, len(c.dirty)
		c.dirty = append(c.dirty, e)
		c.entries[b] = e
	}
	c.born++
	s := take(&c.freeSegs)
	s.e, s.l, s.pos, s.down, s.data, s.born = e, c.cur, len(c.cur.segs), e.top, data, c.born
	c.cur.segs = append(c.cur.segs, s)
	if e.top != nil {
		e.top.up = s
	} else {
		e.bottom = s
	}
	e.top = s
	return e, nil
}

// keepOlder counts one more version of the units that m touches. The one that it
// supersedes takes the place of the sampled older one with probability 1/n, n
// being the older ones so far: reservoir sampling with room for one.
func (c *cache) keepOlder(s *segment, m mask) {
	for u := 0; u < perBlock/c.perUnit; u++ {
		unit := sectors(u*c.perUnit, c.perUnit)
		if m&unit == 0 {
			continue
		}
		n := s.versions[u]
		s.versions[u]++
		if n == 0 || n > 1 && c.sample.Uint32N(n) != 0 {
			continue
		}
		if s.older == nil {
			s.older = c.buffer()
		}
		copySectors(s.older, s.data, unit)
		s.hasOlder |= 1 << u
	}
}

// seal ends the current layer and returns the id up to which a flush that
// arrives now covers; 0 if there is nothing to cover.
func (c *cache) seal() uint64 {
	if len(c.cur.segs) > 0 {
		id := c.cur.id
		c.sealed = append(c.sealed, c.cur)
		c.cur = take(&c.freeLayers)
		c.cur.id = id + 1
	}
	if len(c.sealed) == 0 {
		return 0
	}
	return c.sealed[len(c.sealed)-1].id
}

// merge makes the layers up to id durable, oldest first, and reports whether
// there was anything in them.
func (c *cache) merge(id uint64) (covered bool, err error) {
	n := 0
	for ; n < len(c.sealed) && c.sealed[n].id <= id; n++ {
		l := c.sealed[n]
		covered = covered || len(l.segs) > 0
		for len(l.segs) > 0 {
			s := l.segs[len(l.segs)-1]
			spare, err := c.commit(s.e.b, s.data, s.dirty, true, s.twist)
			if err != nil {
				return covered, err
			}
			c.release(spare)
			s.data = nil
			c.remove(s)
		}
		l.due = 0
		c.freeLayers = append(c.freeLayers, l)
	}
	c.sealed = append(c.sealed[:0], c.sealed[n:]...)
	return covered, nil
}

// remove takes a segment out of its layer and its entry, and the entry out of
// the cache with its last one. s.data is the caller's business if it is nil.
func (c *cache) remove(s *segment) {
	last := s.l.segs[len(s.l.segs)-1]
	s.l.segs[s.pos], last.pos = last, s.pos
	s.l.segs = s.l.segs[:len(s.l.segs)-1]

	e := s.e
	if s.down != nil {
		s.down.up = s.up
	} else {
		e.bottom = s.up
	}
	if s.up != nil {
		s.up.down = s.down
	} else {
		e.top = s.down
	}
	if e.top == nil {
		tail := c.dirty[len(c.dirty)-1]
		c.dirty[e.pos], tail.pos = tail, e.pos
		c.dirty = c.dirty[:len(c.dirty)-1]
		delete(c.entries, e.b)
		*e = entry{}
		c.freeEntries = append(c.freeEntries, e)
	}
	c.sectors -= int64(bits.OnesCount8(uint8(s.dirty)))
	c.release(s.data)
	c.release(s.older)
	*s = segment{}
	c.freeSegs = append(c.freeSegs, s)
}

// supersede takes the sectors of m, whose durable contents are data's now, out
// of every layer: no older version of them is left to reach the medium.
func (c *cache) supersede(e *entry, data *block, m mask) {
	for s := e.bottom; s != nil; {
		up := s.up
		gone := s.dirty & m
		c.sectors -= int64(bits.OnesCount8(uint8(gone)))
		s.dirty &^= m
		if s.dirty == 0 {
			c.remove(s)
			s = up
			continue
		}
		if s.data != data {
			s.data = c.writable(s.data)
			copySectors(s.data, data, m)
		}
		if s.older != nil {
			copySectors(s.older, data, m)
		}
		if c.perUnit == 1 {
			s.hasOlder &^= m
			for i := 0; i < perBlock; i++ {
				if m&(1<<i) != 0 {
					s.versions[i] = 0
				}
			}
		}
		s.twist = s.twist.with(m, nil)
		s = up
	}
}

// destage makes the newest version of the sectors of m in a block durable.
func (c *cache) destage(e *entry, m mask) error {
	left := m
	for s := e.top; s != nil && left != 0; s = s.down {
		now := s.dirty & left
		if now == 0 {
			continue
		}
		spare, err := c.commit(e.b, e.top.data, now, false, s.twist)
		if err != nil {
			return err
		}
		c.release(spare)
		left &^= now
	}
	c.supersede(e, e.top.data, m)
	return nil
}

// dirtyMask returns the sectors of a block of which something is volatile.
func (e *entry) dirtyMask() mask {
	var m mask
	for s := e.bottom; s != nil; s = s.up {
		m |= s.dirty
	}
	return m
}

// drop forgets everything volatile and starts over.
func (c *cache) drop() {
	for len(c.dirty) > 0 {
		c.remove(c.dirty[len(c.dirty)-1].top)
	}
	for _, l := range c.sealed {
		l.due = 0
		c.freeLayers = append(c.freeLayers, l)
	}
	c.sealed = c.sealed[:0]
	c.cur.id = 1
}

func (c *cache) buffer() *block { return take(&c.freeBlocks) }

func (c *cache) release(b *block) {
	if b != nil && b != c.zero && len(c.freeBlocks) < maxFree {
		c.freeBlocks = append(c.freeBlocks, b)
	}
}

func (c *cache) writable(b *block) *block {
	if b != c.zero {
		return b
	}
	n := c.buffer()
	*n = *c.zero
	return n
}

// take pops a pooled value, or makes one.
func take[T any](free *[]*T) *T {
	n := len(*free)
	if n == 0 {
		return new(T)
	}
	v := (*free)[n-1]
	*free = (*free)[:n-1]
	return v
}
