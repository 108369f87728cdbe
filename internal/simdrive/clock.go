package simdrive

import (
	"sync"
	"time"
)

// Clock is the time that a drive lives in: virtual for deterministic benches,
// real for wires. Both methods must be safe for concurrent use.
type Clock interface {
	// Now returns the time since an arbitrary zero. It never goes back.
	Now() time.Duration
	// Sleep lets d pass: a virtual clock advances, a real one waits. The drive
	// calls it with no lock held.
	Sleep(d time.Duration)
}

// VirtualClock is a Clock that moves only when it is told to. It is safe for
// concurrent use.
type VirtualClock struct {
	mu  sync.Mutex
	now time.Duration
}

// NewVirtualClock returns a clock that stands at zero.
func NewVirtualClock() *VirtualClock { return new(VirtualClock) }

// Now returns the time that has been slept and advanced so far.
func (c *VirtualClock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Sleep advances the clock by d and returns at once.
func (c *VirtualClock) Sleep(d time.Duration) { c.Advance(d) }

// Advance moves the clock forward by d; a negative d is ignored.
func (c *VirtualClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += max(d, 0)
}

type realClock struct{ start time.Time }

// RealClock returns a clock that runs with the machine's monotonic clock.
func RealClock() Clock { return realClock{start: time.Now()} }

func (c realClock) Now() time.Duration    { return time.Since(c.start) }
func (c realClock) Sleep(d time.Duration) { time.Sleep(d) }
