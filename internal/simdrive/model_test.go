package simdrive

import (
	"encoding/binary"
	"fmt"
	"time"
)

// The naive reference: every version of every unit since the covered one is
// kept, and nothing is shared with the drive but the words of its contract.

// stamp names one version of a sector; 0 is zeros.
type stamp uint64

// fillSector writes the only legal contents of a version of a sector.
func fillSector(p []byte, s stamp, sector int64) {
	if s == 0 {
		clear(p[:SectorSize])
		return
	}
	x := uint64(s)*0x9e3779b97f4a7c15 ^ uint64(sector)
	binary.LittleEndian.PutUint64(p, uint64(s))
	for i := 8; i < SectorSize; i += 8 {
		binary.LittleEndian.PutUint64(p[i:], x+uint64(i))
	}
}

// readSector names the version that p holds.
func readSector(p []byte, sector int64) (stamp, error) {
	s := stamp(binary.LittleEndian.Uint64(p))
	var want [SectorSize]byte
	fillSector(want[:], s, sector)
	if string(want[:]) != string(p[:SectorSize]) {
		return 0, fmt.Errorf("sector %d holds no version of it: starts like %d", sector, s)
	}
	return s, nil
}

type version struct {
	seq    uint64
	stamps []stamp // one for each sector of the unit
}

// modelWrite is a write of the sectors [first, first+n); stamp 0 is a discard.
type modelWrite struct {
	first, n int64
	s        stamp
	durable  bool
}

type model struct {
	per      int64       // sectors in a unit
	units    [][]version // oldest first; [0] is the covered one
	seq      uint64
	inflight []*modelWrite
	owed     []owed
}

type owed struct {
	due time.Duration
	seq uint64
}

func newModel(size int64, tear int) *model {
	m := &model{per: int64(tear / SectorSize)}
	for range size / int64(tear) {
		m.units = append(m.units, []version{{stamps: make([]stamp, m.per)}})
	}
	return m
}

// over returns stamps with the part of w that falls into unit u.
func (m *model) over(stamps []stamp, u int64, w *modelWrite) []stamp {
	s := append([]stamp(nil), stamps...)
	for i := range m.per {
		if at := u*m.per + i; at >= w.first && at < w.first+w.n {
			s[i] = w.s
		}
	}
	return s
}

func (m *model) touched(w *modelWrite) (from, to int64) {
	return w.first / m.per, (w.first + w.n - 1) / m.per
}

// done completes a write.
func (m *model) done(w *modelWrite) {
	m.seq++
	from, to := m.touched(w)
	for u := from; u <= to; u++ {
		list := m.units[u]
		if !w.durable {
			m.units[u] = append(list, version{m.seq, m.over(list[len(list)-1].stamps, u, w)})
			continue
		}
		for i := range list {
			list[i].stamps = m.over(list[i].stamps, u, w)
		}
		if u*m.per >= w.first && (u+1)*m.per <= w.first+w.n {
			m.units[u] = list[len(list)-1:]
		}
	}
}

// cover makes durable what had completed when the model stood at seq.
func (m *model) cover(seq uint64) {
	for u, list := range m.units {
		for len(list) > 1 && list[1].seq <= seq {
			list = list[1:]
		}
		m.units[u] = list
	}
}

// tick pays what late flushes owe.
func (m *model) tick(now time.Duration) {
	left := m.owed[:0]
	for _, o := range m.owed {
		if o.due <= now {
			m.cover(o.seq)
		} else {
			left = append(left, o)
		}
	}
	m.owed = left
}

func (m *model) newest(sector int64) stamp {
	list := m.units[sector/m.per]
	return list[len(list)-1].stamps[sector%m.per]
}

// rule says what a cut may leave of the versions that the model keeps.
type rule int

const (
	ruleCovered rule = iota // exactly the covered version
	ruleNewest              // exactly the newest completed version
	ruleAny                 // any completed one since the covered one
)

// allowed lists what may be left of unit u; with flight, also what writes in
// flight made of the newest version, any of them and in the order of arrival.
func (m *model) allowed(u int64, r rule, flight bool) [][]stamp {
	list := m.units[u]
	newest := list[len(list)-1].stamps
	var out [][]stamp
	switch r {
	case ruleCovered:
		out = [][]stamp{list[0].stamps}
	case ruleNewest:
		out = [][]stamp{newest}
	case ruleAny:
		for _, v := range list {
			out = append(out, v.stamps)
		}
	}
	if flight {
		on := [][]stamp{newest}
		for _, w := range m.inflight {
			if from, to := m.touched(w); u < from || u > to {
				continue
			}
			for _, s := range on {
				on = append(on, m.over(s, u, w))
			}
		}
		out = append(out, on[1:]...)
	}
	return out
}

// afterCut checks what a cut left and goes on from it.
func (m *model) afterCut(image []byte, r rule, flight bool) error {
	for u := range m.units {
		left := make([]stamp, m.per)
		for i := range m.per {
			sector := int64(u)*m.per + i
			var err error
			if left[i], err = readSector(image[sector*SectorSize:], sector); err != nil {
				return err
			}
		}
		allowed := m.allowed(int64(u), r, flight)
		ok := false
		for _, a := range allowed {
			ok = ok || equalStamps(a, left)
		}
		if !ok {
			return fmt.Errorf("unit %d of %d sectors is left with %v; allowed: %v", u, m.per, left, allowed)
		}
		m.units[u] = []version{{stamps: left}}
	}
	m.inflight, m.owed = nil, nil
	return nil
}

func equalStamps(a, b []stamp) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
