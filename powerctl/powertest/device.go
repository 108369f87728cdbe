// Package powertest is the conformance suite that every driver of powerctl
// passes, and the simulated device behind it.
//
// It guarantees that a driver which passes reports an Off, or an On, in none of
// the faults that its wire can show unless the contacts are so, sends each
// command once, and recovers from a lost reply by reading back.
package powertest

import (
	"slices"
	"sync"
	"time"

	"plugpull/powerctl"
)

// Fault is a way in which a device misbehaves.
type Fault string

// The faults.
const (
	None         Fault = "none"
	StaleReads   Fault = "stale reads"   // a few readings after a command show the old state
	UnknownReads Fault = "unknown reads" // the device says that it does not know
	PendingReads Fault = "pending reads" // the device says for ever that it is busy
	FaultReads   Fault = "fault reads"   // the device reports a fault
	GarbageReads Fault = "garbage reads" // readings mean nothing, some look like off
	FailedReads  Fault = "failed reads"  // readings fail
	StuckOn      Fault = "stuck on"      // the contacts are welded; commands are acknowledged
	StuckOff     Fault = "stuck off"     // the contacts stay open; commands are acknowledged
	Slow         Fault = "slow"          // the contacts move some time after the acknowledgement
	LostReply    Fault = "lost reply"    // the command took effect and is answered by an error
	LostCommand  Fault = "lost command"  // the command had no effect and is answered by an error
	NoAnswer     Fault = "no answer"     // the command took effect and is never answered
	Busy         Fault = "busy"          // the device refuses the command for now
	Reset        Fault = "reset"         // the command took effect and the connection is cut in place of an answer
	TakenBack    Fault = "taken back"    // somebody else moves the contacts back before the first reading
	TakenLater   Fault = "taken later"   // somebody else does so between the first reading and the second
	LateAnswer   Fault = "late answer"   // from the command on, an answer from before it goes ahead of each
	Echo         Fault = "echo"          // from the command on, what was sent comes back ahead of each answer
	WrongDevice  Fault = "wrong device"  // another device answers from now on
)

// Faults returns every fault, None first.
func Faults() []Fault {
	return []Fault{
		None, StaleReads, UnknownReads, PendingReads, FaultReads, GarbageReads, FailedReads,
		StuckOn, StuckOff, Slow, LostReply, LostCommand, NoAnswer,
		Busy, Reset, TakenBack, TakenLater, LateAnswer, Echo, WrongDevice,
	}
}

// slowness is how late the contacts of a Slow device move.
const slowness = 150 * time.Millisecond

// staleReads is how many readings of a StaleReads device are old.
const staleReads = 3

// Device is a simulated outlet. A harness serves it over the driver's wire. Its
// methods may be called concurrently.
type Device struct {
	mu       sync.Mutex
	contacts powerctl.State
	old      powerctl.State // what a stale reading shows
	stale    int
	moves    powerctl.State // of a slow device
	due      time.Time
	undo     int // readings until somebody else moves the contacts back
	fault    Fault
	commands []powerctl.State
	reads    int
	earlier  []byte // the last answer of the time before the fault
	shown    int    // how often the wire showed a fault that a simulator has to ask for
}

// Answer is what the device says. The wire turns it into bytes.
type Answer struct {
	Failed  bool // an error of the device
	Busy    bool // beside Failed: the error that says busy, where the wire has one
	Reset   bool // beside Failed: the connection is cut instead, where the wire has one
	Silent  bool // never answered
	Garbage int  // from 1 on: the n-th kind of nonsense
	State   powerctl.State
	// Moves is when the contacts will have moved, for a wire whose answer waits
	// for them. The zero time: they have.
	Moves time.Time
}

// NewDevice returns a healthy device that is on.
func NewDevice() *Device { return &Device{contacts: powerctl.On, fault: None} }

// Plant makes the device misbehave from now on.
func (d *Device) Plant(f Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = f
}

// Planted returns how the device misbehaves.
func (d *Device) Planted() Fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fault
}

// Force moves the contacts without a command.
func (d *Device) Force(s powerctl.State) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.contacts, d.due = s, time.Time{}
}

// Contacts returns where the contacts really are.
func (d *Device) Contacts() powerctl.State {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settle()
	return d.contacts
}

// Commands returns the commands that reached the device, in order.
func (d *Device) Commands() []powerctl.State {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]powerctl.State(nil), d.commands...)
}

// Reads returns how often the state was asked for.
func (d *Device) Reads() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reads
}

func (d *Device) settle() {
	if !d.due.IsZero() && !time.Now().Before(d.due) {
		d.contacts, d.due = d.moves, time.Time{}
	}
}

// Switch carries out a command.
func (d *Device) Switch(to powerctl.State) Answer {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settle()
	d.commands = append(d.commands, to)
	switch d.fault {
	case StuckOn, StuckOff, LateAnswer, Echo: // what strays must not hide that nothing moved
		return Answer{}
	case LostCommand, Busy:
		return Answer{Failed: true, Busy: d.fault == Busy}
	case Slow:
		d.moves, d.due = to, time.Now().Add(slowness)
		return Answer{Moves: d.due}
	case StaleReads:
		d.old, d.stale = d.contacts, staleReads
	case TakenBack:
		d.undo = 1
	case TakenLater:
		d.undo = 2
	}
	d.contacts = to
	return Answer{Failed: d.fault == LostReply || d.fault == Reset, Reset: d.fault == Reset, Silent: d.fault == NoAnswer}
}

// Read reports the state.
func (d *Device) Read() Answer {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settle()
	d.reads++
	if d.undo > 0 {
		if d.undo--; d.undo == 0 {
			d.contacts = opposite(d.contacts)
		}
	}
	switch d.fault {
	case UnknownReads:
		return Answer{State: powerctl.Unknown}
	case PendingReads:
		return Answer{State: powerctl.Pending}
	case FaultReads:
		return Answer{State: powerctl.Fault}
	case GarbageReads:
		return Answer{Garbage: d.reads}
	case FailedReads:
		return Answer{Failed: true}
	}
	if !d.due.IsZero() {
		return Answer{State: powerctl.Pending}
	}
	if d.stale > 0 {
		d.stale--
		return Answer{State: d.old}
	}
	return Answer{State: d.contacts}
}

// Other reports whether another device answers. A simulator asks it whenever it says who
// it is.
func (d *Device) Other() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fault != WrongDevice {
		return false
	}
	d.shown++
	return true
}

// Outgoing returns what goes out for the answer to one reading or one command, in order.
// A simulator of a wire that can show LateAnswer or Echo sends through it.
func (d *Device) Outgoing(request, answer []byte) [][]byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fault == None && len(answer) > 0 {
		d.earlier = slices.Clone(answer)
	}
	ahead := map[Fault][]byte{LateAnswer: d.earlier, Echo: slices.Clone(request)}[d.fault]
	if len(ahead) == 0 || len(d.commands) == 0 {
		return [][]byte{answer}
	}
	d.shown++
	return [][]byte{ahead, answer}
}

func (d *Device) showed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.shown > 0
}
