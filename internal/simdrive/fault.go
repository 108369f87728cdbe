package simdrive

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Class names one way in which a drive can be bad.
type Class string

// The classes, with their argument and its default. "At a cut" and "each flush"
// say how often the schedule is asked.
const (
	// FlushIgnored (each flush): the flush returns at once and covers nothing.
	FlushIgnored Class = "flush-ignored"
	// FlushLate (50ms; each flush): the flush returns at once and what it covers
	// becomes durable only that much later on the drive's clock.
	FlushLate Class = "flush-late"
	// FUAIgnored (each FUA write): it is a plain write.
	FUAIgnored Class = "fua-ignored"
	// Capacitor (at a cut): everything volatile is saved, whatever a flush did.
	// A request in flight is not in the cache yet.
	Capacitor Class = "capacitor"
	// WeakCapacitor (64KiB; at a cut): only so many bytes are saved, those that
	// became dirty first.
	WeakCapacitor Class = "weak-capacitor"
	// BitCorruption (1; at a cut): so many random bits flip in sectors that were
	// written since the power-on.
	BitCorruption Class = "bit-corruption"
	// ShornWrite (3/8; each whole 4 KiB block of a write): only that part of the
	// block, from its start, reaches the medium. The cut shows it.
	ShornWrite Class = "shorn-write"
	// Unserializable (1; at a cut): so many tear units that a flush or FUA
	// covered revert to the durable version before, while what a later one
	// covered stays.
	Unserializable Class = "unserializable"
	// MetadataLost (64KiB; at a cut): an aligned range of this length around a
	// block that was written since the power-on reads as zeros.
	MetadataLost Class = "metadata-lost"
	// MetadataOld (64KiB; at a cut): such a range shows its contents of the last
	// power-on.
	MetadataOld Class = "metadata-old"
	// DeadDevice (at a cut): no request succeeds again.
	DeadDevice Class = "dead-device"
	// MisdirectedWrite (each write): the write reaches the medium at other
	// blocks, at most 256 away, instead of its own. The cut shows it.
	MisdirectedWrite Class = "misdirected-write"
	// AdjacentDamage (at a cut): the durable sectors before and after one that
	// was being written (in flight or, with nothing in flight, volatile) are
	// overwritten with noise.
	AdjacentDamage Class = "adjacent-damage"
)

// ErrFault is wrapped by every error of [ParseFault] and [Fault.Check].
var ErrFault = errors.New("bad fault")

// Fault is one planted fault: a class, its argument and its schedule. The zero
// value of P and Cycle means always.
type Fault struct {
	Class Class
	// Arg is nanoseconds (flush-late), bytes (weak-capacitor, metadata-lost,
	// metadata-old), a number (bit-corruption, unserializable) or eighths of a
	// block (shorn-write); 0 for the others.
	Arg int64
	// P, if not 0, is the probability with which the fault acts each time.
	P float64
	// Cycle, if not 0, is the only power-on generation in which it acts.
	Cycle uint64
}

type argKind int

const (
	argNone argKind = iota
	argDuration
	argSectors // bytes, a multiple of 512
	argBlocks  // bytes, a multiple of 4096
	argCount
	argEighths
)

// argOf returns what kind of argument a class takes and its default.
func argOf(c Class) (kind argKind, def int64, known bool) {
	switch c {
	case FlushIgnored, FUAIgnored, Capacitor, DeadDevice, MisdirectedWrite, AdjacentDamage:
		return argNone, 0, true
	case FlushLate:
		return argDuration, int64(50 * time.Millisecond), true
	case WeakCapacitor:
		return argSectors, 64 << 10, true
	case MetadataLost, MetadataOld:
		return argBlocks, 64 << 10, true
	case BitCorruption, Unserializable:
		return argCount, 1, true
	case ShornWrite:
		return argEighths, 3, true
	}
	return argNone, 0, false
}

const maxCount = 1 << 20 // of flipped bits or reverted units

// Check returns an error that wraps ErrFault unless the fault is one that
// ParseFault could return.
func (f Fault) Check() error {
	kind, _, known := argOf(f.Class)
	if !known {
		return fmt.Errorf("%w: unknown class %q", ErrFault, f.Class)
	}
	ok := true
	switch kind {
	case argNone:
		ok = f.Arg == 0
	case argDuration:
		ok = f.Arg > 0
	case argSectors:
		ok = f.Arg > 0 && f.Arg%SectorSize == 0
	case argBlocks:
		ok = f.Arg > 0 && f.Arg%BlockSize == 0
	case argCount:
		ok = f.Arg > 0 && f.Arg <= maxCount
	case argEighths:
		ok = f.Arg > 0 && f.Arg < perBlock
	}
	if !ok {
		return fmt.Errorf("%w: %s: argument out of range", ErrFault, f.Class)
	}
	if math.IsNaN(f.P) || f.P < 0 || f.P > 1 {
		return fmt.Errorf("%w: %s: probability %v is not in (0, 1]", ErrFault, f.Class, f.P)
	}
	if f.P != 0 && f.Cycle != 0 {
		return fmt.Errorf("%w: %s: two schedules", ErrFault, f.Class)
	}
	return nil
}

// String returns the text that ParseFault parses back: class, argument if the
// class has one, and the schedule unless it is always.
func (f Fault) String() string {
	s := string(f.Class)
	switch kind, _, _ := argOf(f.Class); kind {
	case argNone:
	case argDuration:
		s += "(" + time.Duration(f.Arg).String() + ")"
	case argSectors, argBlocks:
		s += "(" + formatBytes(f.Arg) + ")"
	case argCount:
		s += "(" + strconv.FormatInt(f.Arg, 10) + ")"
	case argEighths:
		s += "(" + strconv.FormatInt(f.Arg, 10) + "/8)"
	}
	switch {
	case f.P != 0:
		s += "@p=" + strconv.FormatFloat(f.P, 'g', -1, 64)
	case f.Cycle != 0:
		s += "@cycle=" + strconv.FormatUint(f.Cycle, 10)
	}
	return s
}

// ParseFault parses class[(arg)][@schedule], where the schedule is always, p=0.25
// or cycle=3. An argument that is left out has the class's default. The error
// wraps ErrFault.
func ParseFault(s string) (Fault, error) {
	head, schedule, scheduled := strings.Cut(s, "@")
	class, arg, hasArg := strings.Cut(head, "(")
	f := Fault{Class: Class(class)}
	kind, def, known := argOf(f.Class)
	if !known {
		return Fault{}, fmt.Errorf("%w %q: unknown class %q", ErrFault, s, class)
	}
	f.Arg = def
	if hasArg {
		arg, closed := strings.CutSuffix(arg, ")")
		if !closed {
			return Fault{}, fmt.Errorf("%w %q: no closing bracket", ErrFault, s)
		}
		var err error
		if f.Arg, err = parseArg(kind, arg); err != nil {
			return Fault{}, fmt.Errorf("%w %q: argument: %w", ErrFault, s, err)
		}
	}
	if scheduled {
		if err := f.parseSchedule(schedule); err != nil {
			return Fault{}, fmt.Errorf("%w %q: schedule: %w", ErrFault, s, err)
		}
	}
	if err := f.Check(); err != nil {
		return Fault{}, fmt.Errorf("%q: %w", s, err)
	}
	return f, nil
}

func (f *Fault) parseSchedule(s string) error {
	key, value, _ := strings.Cut(s, "=")
	var err error
	switch {
	case s == "always":
	case key == "p":
		if f.P, err = strconv.ParseFloat(value, 64); err == nil && f.P == 0 {
			err = errors.New("a probability of 0 is no fault")
		}
	case key == "cycle":
		if f.Cycle, err = strconv.ParseUint(value, 10, 64); err == nil && f.Cycle == 0 {
			err = errors.New("cycles count from 1")
		}
	default:
		err = fmt.Errorf("%q is not always, p=… or cycle=…", s)
	}
	return err
}

func parseArg(kind argKind, s string) (int64, error) {
	switch kind {
	case argDuration:
		d, err := time.ParseDuration(s)
		return int64(d), err
	case argSectors, argBlocks:
		return parseBytes(s)
	case argCount:
		return strconv.ParseInt(s, 10, 64)
	case argEighths:
		n, ok := strings.CutSuffix(s, "/8")
		if !ok {
			return 0, fmt.Errorf("%q is not a number of eighths such as 3/8", s)
		}
		return strconv.ParseInt(n, 10, 64)
	default:
		return 0, errors.New("the class takes none")
	}
}

// byteUnits has the largest first, so that formatBytes takes the shortest text.
func byteUnits() []struct {
	name string
	size int64
} {
	return []struct {
		name string
		size int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}
}

func formatBytes(n int64) string {
	for _, u := range byteUnits() {
		if n%u.size == 0 && n != 0 {
			return strconv.FormatInt(n/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}

func parseBytes(s string) (int64, error) {
	for _, u := range byteUnits() {
		digits, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil {
			return 0, err
		}
		if n < 0 || n > math.MaxInt64/u.size {
			return 0, fmt.Errorf("%q is out of range", s)
		}
		return n * u.size, nil
	}
	return 0, fmt.Errorf("%q has no unit (B, KiB, MiB, GiB)", s)
}
