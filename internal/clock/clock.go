// Package clock reads the one clock that plugpull measures with:
// CLOCK_BOOTTIME of the control host.
//
// It guarantees that two instants taken during one boot can be subtracted,
// also across a suspend and whatever happens to the wall clock. Instants of
// two boots cannot: compare [BootID] first.
package clock

import (
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

// Instant is a reading of CLOCK_BOOTTIME in nanoseconds. Zero means "not known".
type Instant int64

// Now reads the clock. It does not block and may be called concurrently.
func Now() Instant {
	var ts unix.Timespec
	// clock_gettime cannot fail here: CLOCK_BOOTTIME exists since Linux 2.6.39.
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("clock_gettime(CLOCK_BOOTTIME): " + err.Error())
	}
	return Instant(ts.Nano())
}

// Sub returns i−j.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }

// Add returns i+d.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// BootID returns the kernel's id of the current boot
// (/proc/sys/kernel/random/boot_id).
func BootID() (uuid.UUID, error) {
	const path = "/proc/sys/kernel/random/boot_id"
	b, err := os.ReadFile(path)
	if err != nil {
		return uuid.Nil, fmt.Errorf("read the boot id: %w", err)
	}
	id, err := uuid.ParseBytes(b[:min(len(b), 36)])
	if err != nil {
		return uuid.Nil, fmt.Errorf("parse the boot id in %s: %w", path, err)
	}
	return id, nil
}
