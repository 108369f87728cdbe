package sqlitevfs

import (
	"bytes"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
)

var errPowerOff = errors.New("the power is off")

// device is an honest drive: what was flushed is durable, and of every other
// sector the cut leaves what keep chooses among the durable version and those since.
type device struct {
	mu      sync.Mutex
	size    int64
	durable map[int64][]byte   // by offset; contents are never changed
	pending map[int64][][]byte // versions since the last flush, oldest first
	off     bool
	ops     int // writes and flushes
	trap    int // the power fails as this op arrives; 0: never
	flushes int
}

func newDevice(size int64) *device {
	return &device{size: size, durable: map[int64][]byte{}, pending: map[int64][][]byte{}}
}

func (d *device) Size() int64 { return d.size }

// sector returns the newest version, nil for zeros.
func (d *device) sector(at int64) []byte {
	if v := d.pending[at]; len(v) > 0 {
		return v[len(v)-1]
	}
	return d.durable[at]
}

func (d *device) ReadAt(p []byte, off int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.off {
		return 0, errPowerOff
	}
	for n := 0; n < len(p); {
		at := off + int64(n)
		end := min(len(p), n+int(sector-at%sector))
		clear(p[n:end])
		if s := d.sector(at / sector * sector); s != nil {
			copy(p[n:end], s[at%sector:])
		}
		n = end
	}
	return len(p), nil
}

func (d *device) op() error {
	d.ops++
	if d.ops == d.trap {
		d.off = true
	}
	if d.off {
		return errPowerOff
	}
	return nil
}

func (d *device) WriteAt(p []byte, off int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(p)%sector != 0 || off%sector != 0 {
		return 0, errors.New("unaligned")
	}
	err := d.op()
	if err != nil && d.ops != d.trap {
		return 0, err
	}
	b := bytes.Clone(p)
	for i := 0; i < len(p); i += sector { // a write in flight may be left in part
		at := off + int64(i)
		d.pending[at] = append(d.pending[at], b[i:i+sector])
	}
	return len(p), err
}

func (d *device) Flush() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.op(); err != nil {
		return err
	}
	d.flushes++
	for at, v := range d.pending {
		d.durable[at] = v[len(v)-1]
	}
	clear(d.pending)
	return nil
}

// damage flips a bit of what is durable.
func (d *device) damage(at int64) {
	s := make([]byte, sector)
	copy(s, d.durable[at/sector*sector])
	s[at%sector] ^= 1
	d.durable[at/sector*sector] = s
}

// set makes contents durable.
func (d *device) set(b []byte, off int64) {
	for i := 0; i < len(b); i += sector {
		s := make([]byte, sector)
		copy(s, b[i:])
		d.durable[off+int64(i)] = s
	}
}

// keep chooses one of n versions of a sector, 0 is the durable one.
type keep func(n int) int

func none(int) int           { return 0 }
func all(n int) int          { return n - 1 }
func some(r *rand.Rand) keep { return r.IntN }

// cut turns the power off, and returns the drive as it is when it comes back.
func (d *device) cut(k keep) *device {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.off = true
	after := newDevice(d.size)
	after.durable = maps.Clone(d.durable)
	for _, at := range slices.Sorted(maps.Keys(d.pending)) { // so that a seed tells all
		if v := d.pending[at]; len(v) > 0 {
			if i := k(len(v) + 1); i > 0 {
				after.durable[at] = v[i-1]
			}
		}
	}
	return after
}
