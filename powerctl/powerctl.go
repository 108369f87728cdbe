// Package powerctl switches power outlets and says what it knows about them.
//
// It guarantees that no outlet is called off unless its state was read back,
// after the command, as exactly Off: unknown, pending, faulty, unreadable and
// silent are not off. A command that may have reached the device is never sent
// again; its effect is read back. There is no power cycle: a reboot in place of
// an off would be a cut that nobody measured.
//
// Drivers live in folders of their own and pass the suite in powertest. Only
// the command line imports them.
package powerctl

import (
	"context"
	"errors"
	"fmt"

	"plugpull/internal/clock"
)

// State is the state of an outlet as far as it is known.
type State uint8

// The states. Only Off is off.
const (
	Unknown State = iota // not read, or read as something else
	On
	Off
	Pending // the device is still carrying out a command
	Fault   // the device says that it cannot tell or cannot switch
)

var stateNames = [...]string{"unknown", "on", "off", "pending", "fault"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// MarshalText writes the state's name, so that evidence reads well in JSON.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText accepts exactly the names that MarshalText writes.
func (s *State) UnmarshalText(b []byte) error {
	for i, name := range stateNames {
		if string(b) == name {
			*s = State(i)
			return nil
		}
	}
	return fmt.Errorf("unknown outlet state %q", b)
}

// Class says what loses power when the outlet is off.
type Class string

// The classes of cut.
const (
	Mains   Class = "mains"   // the host and everything in it
	Drive   Class = "drive"   // the supply rail of the drive alone
	Chassis Class = "chassis" // a BMC's off: standby rails can stay live
)

// Classes returns every class in the order of the documentation.
func Classes() []Class { return []Class{Mains, Drive, Chassis} }

// Capabilities says what an outlet can do beyond being switched.
type Capabilities struct {
	// ReadBack: State asks the device itself, so that polling it can show
	// a change. False for an outlet that cannot report, and for one whose state
	// is only what a person last said.
	ReadBack bool
	Class    Class
	// Tried says against what this driver, or this profile of it, was run.
	Tried Tried
}

// Result is the evidence of one action. Instants are zero where the thing did
// not happen or is not known to have happened.
type Result struct {
	// Commanded is stamped before the first byte of the command leaves.
	// Zero for State, which commands nothing.
	Commanded clock.Instant `json:"commanded,omitempty"`
	// Acknowledged is stamped after the device accepted the command.
	Acknowledged clock.Instant `json:"acknowledged,omitempty"`
	// Observed is stamped after the reading that gave State was complete. After
	// Off and On it is zero unless exactly the commanded state was read back;
	// after State it is zero unless that is On or Off.
	Observed clock.Instant `json:"observed,omitempty"`
	// Before is what SwitchOff and SwitchOn read just before the command, Unknown
	// where they could not. Off before a cut means that nothing was cut, or
	// that this is the wrong outlet.
	Before State `json:"before"`
	// State is what was last read; Unknown when nothing was.
	State State `json:"state"`
	// Raw is what the device said when State was read, at most MaxRaw bytes, unchanged.
	Raw string `json:"raw,omitempty"`
}

// MaxRaw bounds Result.Raw, in bytes.
const MaxRaw = 512

// IsOff reports whether off was read back: the only ground for saying that an
// outlet is off.
func (r Result) IsOff() bool { return r.State == Off && r.Observed != 0 }

// IsOn reports whether on was read back.
func (r Result) IsOn() bool { return r.State == On && r.Observed != 0 }

// Identity tells outlets apart. It holds no secret.
type Identity struct {
	Driver string `json:"driver"`
	// Device is what the device says of itself (a serial number, a model),
	// or a digest of how it is reached where it cannot say. Never empty.
	Device string `json:"device"`
	// Part tells outlets of one device apart, where Device does not. It does not depend on what people
	// call them: Driver, Device and Part together are what is locked.
	Part string `json:"part,omitempty"`
	// Name is the outlet's name.
	Name string `json:"name"`
}

func (i Identity) String() string {
	return fmt.Sprintf("%s outlet %q (%s)", i.Driver, i.Name, i.Device)
}

// Outlet is a switch with the power of one device behind it. One goroutine at a
// time uses it; hold a Lock while it is switched. Every method
// blocks on the device until it has answered, the driver's own timeout has passed or ctx is done.
type Outlet interface {
	// Off sends one off command and never sends it twice. It is idempotent:
	// an outlet that is off stays off. An error that does not match ErrNotSent
	// leaves open whether the command took effect. The Result is
	// filled in as far as things went, also beside an error. Its State is what
	// was read back in the same exchange, Unknown where nothing was: SwitchOff polls.
	Off(ctx context.Context) (Result, error)
	// On is Off's counterpart.
	On(ctx context.Context) (Result, error)
	// State reads the state and changes nothing. A reading that is none of the
	// states is Unknown with the Raw text and no error. ErrNoReadBack when the outlet
	// can never tell.
	State(ctx context.Context) (Result, error)
	// Identify asks the device who it is and changes nothing.
	Identify(ctx context.Context) (Identity, error)
	// Capabilities does not block and always returns the same.
	Capabilities() Capabilities
}

// Sentinels for errors.Is.
var (
	// ErrNoReadBack: the outlet cannot report its state. From SwitchOff and
	// SwitchOn it means that the command was acknowledged and nothing more is known.
	ErrNoReadBack = errors.New("the outlet cannot report its state")
	// ErrNotSent: the command certainly did not reach the device.
	ErrNotSent = errors.New("the command was not sent")
	// ErrNotReached: the deadline passed without the commanded state being read back.
	ErrNotReached = errors.New("the commanded state was not read back")
)

// OpError says which step of an operation on an outlet failed.
type OpError struct {
	Op     string // off, on, state, identify
	Outlet string // the outlet's name
	Step   string // what was being done; never a secret
	Err    error
}

func (e *OpError) Error() string {
	return fmt.Sprintf("outlet %q: %s: %s: %v", e.Outlet, e.Op, e.Step, e.Err)
}

func (e *OpError) Unwrap() error { return e.Err }
