package simdrive

import (
	"fmt"
	"time"
)

// Handle is one power-on's way to the drive. All methods may be called
// concurrently; writes and flushes block for the configured latency. Reads may
// have any offset and length, everything else multiples of 512.
type Handle struct {
	d          *Drive
	generation uint64
}

// Size returns the size of the drive in bytes, also without power.
func (h *Handle) Size() int64 { return h.d.cfg.Size }

// writeKind is what a pending request does with its sectors.
type writeKind int

const (
	plainWrite writeKind = iota
	fuaWrite
	discard
)

// pending is a write that has arrived and has not completed. Its buffer stays
// the caller's, who is still waiting.
type pending struct {
	kind writeKind
	off  int64
	n    int64
	p    []byte // nil: zeros
}

// ReadAt reads the newest version of everything.
func (h *Handle) ReadAt(p []byte, off int64) (int, error) {
	d := h.d
	d.mu.Lock()
	defer d.mu.Unlock()
	err := h.usable()
	if err == nil {
		err = d.inRange(off, int64(len(p)))
	}
	if err == nil {
		d.stats.Reads++
		err = d.read(p, off)
	}
	if err != nil {
		return 0, fmt.Errorf("read %d bytes at %d: %w", len(p), off, err)
	}
	d.stats.BytesRead += int64(len(p))
	return len(p), nil
}

// WriteAt writes to the cache. It writes all of p or fails; a write that the cut
// catches can be left in part.
func (h *Handle) WriteAt(p []byte, off int64) (int, error) {
	if err := h.write(pending{kind: plainWrite, off: off, n: int64(len(p)), p: p}); err != nil {
		return 0, fmt.Errorf("write %d bytes at %d: %w", len(p), off, err)
	}
	return len(p), nil
}

// WriteFUA writes, and what it wrote is durable when it returns.
func (h *Handle) WriteFUA(p []byte, off int64) (int, error) {
	if err := h.write(pending{kind: fuaWrite, off: off, n: int64(len(p)), p: p}); err != nil {
		return 0, fmt.Errorf("FUA write %d bytes at %d: %w", len(p), off, err)
	}
	return len(p), nil
}

// Discard makes a range read as zeros. It is as volatile as a write.
func (h *Handle) Discard(off, n int64) error {
	if err := h.write(pending{kind: discard, off: off, n: n}); err != nil {
		return fmt.Errorf("discard %d bytes at %d: %w", n, off, err)
	}
	return nil
}

// Flush makes durable what completed before it was called.
func (h *Handle) Flush() error {
	if err := h.flush(); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	return nil
}

// usable says whether a request may go on. The drive is locked.
func (h *Handle) usable() error {
	d := h.d
	switch {
	case h.generation != d.generation && d.mutant != staleHandleWrites:
		return fmt.Errorf("%w: generation %d, now %d", ErrStale, h.generation, d.generation)
	case !d.on:
		return ErrPowerOff
	case d.dead:
		return ErrDead
	default:
		return d.failed
	}
}

func (d *Drive) inRange(off, n int64) error {
	if off < 0 || n < 0 || off > d.cfg.Size-n {
		return fmt.Errorf("%w of %d bytes", ErrRange, d.cfg.Size)
	}
	return nil
}

// count counts a request that arrives and says whether the trap springs.
func (d *Drive) count() (sprung bool) {
	d.stats.Ops++
	return d.trap != 0 && d.stats.Ops >= d.trap
}

func (h *Handle) write(w pending) error {
	d := h.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := h.usable(); err != nil {
		return err
	}
	if w.off%SectorSize != 0 || w.n%SectorSize != 0 {
		return ErrAlign
	}
	if err := d.inRange(w.off, w.n); err != nil {
		return err
	}
	if w.n == 0 {
		return nil
	}
	d.stats.Writes++
	switch w.kind {
	case fuaWrite:
		d.stats.FUAWrites++
	case discard:
		d.stats.Discards++
	}
	if d.count() {
		caught := w // a copy, so that other writes do not escape to the heap
		d.inflight = append(d.inflight, &caught)
		d.cut()
		return ErrPowerOff
	}
	if d.cfg.WriteLatency > 0 {
		waiting := w
		if err := h.await(&waiting); err != nil {
			return err
		}
	}
	return d.apply(&w)
}

// await lets a write's latency pass while the write is in flight.
func (h *Handle) await(w *pending) error {
	d := h.d
	d.inflight = append(d.inflight, w)
	h.sleep(d.cfg.WriteLatency)
	for i, other := range d.inflight {
		if other == w {
			d.inflight = append(d.inflight[:i], d.inflight[i+1:]...)
			break
		}
	}
	err := h.usable()
	if err != nil && d.mutant == applyAfterCut {
		d.fail(d.apply(w))
	}
	return err
}

// sleep waits without the lock.
func (h *Handle) sleep(t time.Duration) {
	h.d.mu.Unlock()
	defer h.d.mu.Lock()
	h.d.clock.Sleep(t)
}

// apply completes a write.
func (d *Drive) apply(w *pending) error {
	d.mergeDue(d.clock.Now())
	fua := w.kind == fuaWrite
	if fua {
		if f := d.asks(FUAIgnored); f != nil {
			fua, f.acted = false, true
		}
	}
	durable := fua || d.cfg.WriteThrough || d.mutant == durableByMagic
	if durable {
		d.plant.promise++
	}
	d.fail(d.each(w, func(b int64, m mask, src []byte, why *twist) error {
		d.plant.wrote(b, m)
		if durable {
			return d.putDurable(b, m, src, why)
		}
		return d.cache.put(b, m, src, why)
	}))
	d.shrink()
	if d.failed != nil {
		return d.failed
	}
	d.stats.BytesWritten += w.n
	switch w.kind {
	case plainWrite:
		d.note(Entry{Kind: EntryWrite, Off: w.off, Data: w.p})
	case fuaWrite:
		d.note(Entry{Kind: EntryFUA, Off: w.off, Data: w.p})
	case discard:
		d.note(Entry{Kind: EntryDiscard, Off: w.off, Len: w.n})
	}
	return nil
}

// each calls f for every block of a write, with the way it goes wrong if it does.
func (d *Drive) each(w *pending, f func(b int64, m mask, src []byte, why *twist) error) error {
	away, by := d.misdirect(w)
	for done := int64(0); done < w.n; {
		b := (w.off + done) / BlockSize
		first := (w.off + done) % BlockSize
		n := min(w.n-done, BlockSize-first)
		m := sectors(int(first/SectorSize), int(n/SectorSize))
		var src []byte
		var why *twist
		if w.kind != discard {
			src = w.p[done : done+n]
			why = d.twistOf(b, m, away, by)
		}
		done += n
		if src == nil && d.cache.entries[b] == nil {
			// Nothing to discard; else a discard of a whole empty drive would
			// make all of it dirty.
			if zero, err := d.medium.isZero(b); err != nil || zero {
				if err != nil {
					return err
				}
				continue
			}
		}
		if err := f(b, m, src, why); err != nil {
			return err
		}
	}
	return nil
}

// putDurable writes past the cache and supersedes what it holds.
func (d *Drive) putDurable(b int64, m mask, src []byte, why *twist) error {
	c := d.cache
	data := c.buffer()
	c.fill(&data, m, src)
	if e := c.entries[b]; e != nil {
		if d.mutant == fuaLeavesOlder {
			d.fail(c.put(b, m, src, why))
		} else {
			c.supersede(e, data, m)
		}
	}
	spare, err := d.commit(b, data, m, true, why)
	c.release(spare)
	return err
}

// read copies the newest version of a range.
func (d *Drive) read(p []byte, off int64) error {
	var buf block
	for len(p) > 0 {
		b, first := off/BlockSize, off%BlockSize
		n := min(int64(len(p)), BlockSize-first)
		if e := d.cache.entries[b]; e != nil {
			copy(p[:n], e.top.data[first:])
		} else {
			to := &buf
			if n == BlockSize {
				to = (*block)(p)
			}
			if err := d.medium.read(b, to); err != nil {
				d.fail(err)
				return err
			}
			if to == &buf {
				copy(p[:n], buf[first:])
			}
		}
		p, off = p[n:], off+n
	}
	return nil
}

func (h *Handle) flush() error {
	d := h.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := h.usable(); err != nil {
		return err
	}
	d.stats.Flushes++
	if d.count() {
		d.cut()
		return ErrPowerOff
	}
	now := d.clock.Now()
	d.mergeDue(now)
	of := d.note(Entry{Kind: EntryFlush})
	switch ignored, late := d.asks(FlushIgnored), d.asks(FlushLate); {
	case ignored != nil:
		ignored.acted = ignored.acted || len(d.cache.dirty) > 0
	case late != nil:
		late.acted = late.acted || len(d.cache.dirty) > 0
		d.flushLate(now, late.Arg)
	default:
		id := d.cache.seal()
		if d.cfg.FlushLatency > 0 {
			h.sleep(d.cfg.FlushLatency)
			if err := h.usable(); err != nil {
				return err
			}
		}
		if d.mutant == flushCoversLater {
			id = d.cache.seal()
		}
		d.merge(id)
	}
	d.note(Entry{Kind: EntryFlushDone, Of: of})
	return d.failed
}

// flushLate leaves what a flush covers in the cache until it is due.
func (d *Drive) flushLate(now time.Duration, late int64) {
	if d.cache.seal() == 0 {
		return
	}
	l := d.cache.sealed[len(d.cache.sealed)-1]
	if due := int64(now) + late; l.due == 0 || due < l.due {
		l.due = due
	}
}
