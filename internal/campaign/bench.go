package campaign

import (
	"context"
	"encoding/json"

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

// Stepping is a bench without chance: each cycle is played on a fresh device, one
// commit at a time, in a time of its own.
type Stepping interface {
	Bench
	// Renew begins a cycle: nothing of earlier ones is left on the device.
	Renew(ctx context.Context, cycle uint32) error
	// Play has the streams take turns until the bench cuts the power at a point that
	// follows from its seed and the cycle's number. What the streams had
	// under way then is unknown.
	Play(ctx context.Context, s *client.Session) (Cut, error)
	// Now is the clock of the bench.
	Now() clock.Instant
}

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
