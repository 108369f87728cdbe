package campaign

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"plugpull/client"
	"plugpull/internal/clock"
	"plugpull/verifier"
)

// Bench is a device under test with its power and its way in. Its methods block and are
// called by one goroutine at a time.
type Bench interface {
	// Ready makes sure that the power is on; the server may still be starting.
	Ready(ctx context.Context) error
	// Cut takes the power away and returns once off was observed or cannot be. An
	// error leaves open whether the power is off; the Cut beside it holds what
	// is known. It must not warn the streams.
	Cut(ctx context.Context) (Cut, error)
	// Restore gives the power back, no sooner than the bench's least time off
	// after the cut. A *verifier.UnreadableError is the bench's own evidence that
	// nothing on the device can be read: a finding, not a failure.
	Restore(ctx context.Context) error
	// Leave puts the power into the state that the bench is to be left in. It is
	// called once, also after a failure.
	Leave(ctx context.Context) error
	// Database is the database under test.
	Database() Database
}

// Renewing is a bench whose device ends with its process, and can be made anew.
type Renewing interface {
	Bench
	// Renew makes the device anew for the cycle that comes: nothing of earlier ones is
	// left on it. A *RefusedError says that the system would not take what the scenario asks for.
	Renew(ctx context.Context, cycle uint32) error
}

// Settling is a Renewing bench that can make durable what was set up on it.
type Settling interface {
	// Settle is called in the cycle of a renewal, when the session has been prepared: the cycle
	// begins as on a device that was left idle.
	Settle(ctx context.Context) error
}

// Filling is a Renewing bench whose device fills up over the cycles.
type Filling interface {
	// Full reports that the device should be made anew before the next cycle.
	Full(ctx context.Context) (bool, error)
}

// Mortal is a bench that runs the server itself.
type Mortal interface {
	// Revive says how the server ended by itself since it last greeted, and starts it again;
	// died is empty while it lives and where somebody killed it. It waits a moment for a server
	// that is about to end. The error says that it does not start again: a
	// *verifier.UnreadableError is the bench's own evidence.
	Revive(ctx context.Context) (died string, err error)
}

// Stepping is a bench without chance: each cycle is played on a fresh device, one
// commit at a time, in a time of its own.
type Stepping interface {
	Renewing
	// Play has the streams take turns until the bench cuts the power at a point that
	// follows from its seed and the cycle's number. What the streams had
	// under way then is unknown.
	Play(ctx context.Context, s *client.Session) (Cut, error)
	// Now is the clock of the bench.
	Now() clock.Instant
}

// Keeping is a bench that can keep what a cut left.
type Keeping interface {
	// Keep writes the evidence of the last cut into dir: the logs, and with image also
	// the drive as the cut left it. The text says how to look at it, for people.
	Keep(ctx context.Context, dir string, image bool) (text string, err error)
}

// Splitting is a bench that knows the parts of its last Restore.
type Splitting interface {
	// RestoreSplit names the parts and how long each took; what it leaves out is
	// called restore.
	RestoreSplit() map[string]time.Duration
}

// RefusedError says that the system would not take a mount option or a setting: the
// verdict refused, not a failure of the bench.
type RefusedError struct {
	What string // the option or setting, as the scenario has it
	Err  error  // the reason, in the words of who refused it
}

func (e *RefusedError) Error() string { return fmt.Sprintf("%s: refused: %v", e.What, e.Err) }
func (e *RefusedError) Unwrap() error { return e.Err }

// Cut is what is known of one cut.
type Cut struct {
	Commanded clock.Instant `json:"commanded"` // just before the command
	Observed  clock.Instant `json:"observed"`  // zero: off was not read back
	// Failed: the outlet can report its state, and off was not read back.
	Failed bool `json:"failed"`
	// Proven: the bench itself made the drive lose its volatile contents.
	Proven bool                 `json:"proven"`
	Attest verifier.Attestation `json:"attest,omitempty"`
	// Detail is the bench's own record of the cut.
	Detail json.RawMessage `json:"detail,omitempty"`
}
