package verifier

import (
	"fmt"
	"time"

	"plugpull/internal/clock"
	"plugpull/internal/ledger"
	"plugpull/internal/workload"
)

// Class is what a finding accuses the stack of.
type Class uint8

// The classes, by precedence: where two fit one commit, the lower one is charged.
const (
	Unreadable  Class = iota + 1 // the database cannot read what holds it
	Corrupt                      // bytes differ from what was sent
	Torn                         // part of a transaction
	LostHole                     // gone, although something later survived
	LostTail                     // gone, and nothing later survived
	Stale                        // an older acknowledged version
	Resurrected                  // an acknowledged delete is back
	Phantom                      // a row that was never sent, or refused
)

func (c Class) String() string {
	switch c {
	case Unreadable:
		return "unreadable"
	case Corrupt:
		return "corrupt"
	case Torn:
		return "torn"
	case LostHole:
		return "lost_hole"
	case LostTail:
		return "lost_tail"
	case Stale:
		return "stale"
	case Resurrected:
		return "resurrected"
	case Phantom:
		return "phantom"
	}
	return "none"
}

// MarshalText writes the class's name.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText accepts exactly the names that MarshalText writes.
func (c *Class) UnmarshalText(b []byte) error {
	for k := Unreadable; k <= Phantom; k++ {
		if k.String() == string(b) {
			*c = k
			return nil
		}
	}
	return fmt.Errorf("unknown class of finding %q", b)
}

// pin returns the ledger's class for a finding.
func (c Class) pin() ledger.PinClass {
	switch c {
	case Unreadable:
		return ledger.PinUnreadable
	case Corrupt:
		return ledger.PinCorrupt
	case Torn:
		return ledger.PinTorn
	case LostHole:
		return ledger.PinLostHole
	case LostTail:
		return ledger.PinLostTail
	case Stale:
		return ledger.PinStale
	case Resurrected:
		return ledger.PinResurrected
	}
	return ledger.PinPhantom
}

// Counts counts commits by class.
type Counts struct {
	LostTail    uint64 `json:"lost_tail"`
	LostHole    uint64 `json:"lost_hole"`
	Torn        uint64 `json:"torn"`
	Corrupt     uint64 `json:"corrupt"`
	Stale       uint64 `json:"stale"`
	Resurrected uint64 `json:"resurrected"`
	Phantom     uint64 `json:"phantom"`
	Unreadable  uint64 `json:"unreadable"`
}

// Lost is the number of lost commits, tail and hole.
func (c Counts) Lost() uint64 { return c.LostTail + c.LostHole }

// Total is the number of commits charged with a finding.
func (c Counts) Total() uint64 { return c.Lost() + c.Other() }

// Other is the number of findings that are not losses.
func (c Counts) Other() uint64 {
	return c.Torn + c.Corrupt + c.Stale + c.Resurrected + c.Phantom + c.Unreadable
}

// Plus returns the sums by class.
func (c Counts) Plus(d Counts) Counts {
	return Counts{
		LostTail: c.LostTail + d.LostTail, LostHole: c.LostHole + d.LostHole,
		Torn: c.Torn + d.Torn, Corrupt: c.Corrupt + d.Corrupt, Stale: c.Stale + d.Stale,
		Resurrected: c.Resurrected + d.Resurrected, Phantom: c.Phantom + d.Phantom, Unreadable: c.Unreadable + d.Unreadable,
	}
}

// Add adds n to the count of a finding's pin class; other classes are left alone.
func (c *Counts) Add(p ledger.PinClass, n uint64) {
	switch p {
	case ledger.PinLostTail:
		c.LostTail += n
	case ledger.PinLostHole:
		c.LostHole += n
	case ledger.PinTorn:
		c.Torn += n
	case ledger.PinCorrupt:
		c.Corrupt += n
	case ledger.PinStale:
		c.Stale += n
	case ledger.PinResurrected:
		c.Resurrected += n
	case ledger.PinPhantom:
		c.Phantom += n
	case ledger.PinUnreadable:
		c.Unreadable += n
	}
}

// Finding is a run of neighbouring commits of one stream that are charged with the same class.
type Finding struct {
	Class   Class           `json:"class"`
	Stream  workload.Stream `json:"stream"`
	From    workload.Seq    `json:"from"`
	To      workload.Seq    `json:"to"`
	Session uint32          `json:"session"` // zero where the number belongs to none
	// Acked is when From was acknowledged; zero when it never was.
	Acked clock.Instant `json:"acked,omitempty"`
	// At is the same by the wall clock of the control host as it stood when the session began.
	At time.Time `json:"at,omitzero"`
	// BeforeLast is how long before the session's last acknowledgement that
	// was; zero when From was never acknowledged.
	BeforeLast time.Duration `json:"before_last_ns,omitempty"`
}

// Commits is the number of commits in the run.
func (f Finding) Commits() uint64 { return uint64(f.To - f.From + 1) }

// Pin is what the next verification must know of a range of commits.
type Pin struct {
	Class    ledger.PinClass
	Stream   workload.Stream
	From, To workload.Seq
}

// rank is zero for sightings of unknown commits, one for findings.
func (p Pin) rank() int {
	if p.Class == ledger.PinPresent || p.Class == ledger.PinAbsent {
		return 0
	}
	return 1
}
