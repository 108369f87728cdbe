// Package embedded is the bench without prerequisites: SQLite on the simulated
// drive, in one process.
//
// It guarantees that nothing is left to chance: streams take turns, the power
// fails at a drive operation and time is the drive's own, so that the same seed and
// cycle number give the same findings, and each cycle replays alone. Every cycle begins
// on a fresh drive whose schema is durable, as on a drive that has been idle.
// The power is cut inside the drive, before anything else learns of it, which
// is the proof that a verdict rests on.
package embedded

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"plugpull/client"
	"plugpull/internal/campaign"
	"plugpull/internal/clock"
	words "plugpull/internal/database"
	"plugpull/internal/database/sqlite"
	"plugpull/internal/simdrive"
	"plugpull/internal/simdrive/sqlitevfs"
	"plugpull/internal/witness"
	"plugpull/powerctl"
	"plugpull/powerctl/simulated"
	"plugpull/scenarios"
	"plugpull/verifier"
)

// Config of a Bench.
type Config struct {
	Seed uint64
	// Drive is the drive of every cycle, but for its seed, its clock and its base.
	Drive simdrive.Config
	// SyncByFUA has the file layer write with FUA and never flush.
	SyncByFUA bool
	Pragmas   sqlite.Pragmas
	// MinOps and MaxOps span the drive operations, counted from the load's start, at
	// one of which the power fails.
	MinOps, MaxOps int
}

// ConfigOf returns the bench that a scenario asks for.
func ConfigOf(sc *scenarios.Scenario, seed uint64) Config {
	return Config{
		Seed:      seed,
		Drive:     sc.Drive.Config(),
		SyncByFUA: sc.Drive.SyncByFUA,
		Pragmas: sqlite.Pragmas{Journal: sqlite.Journal(sc.SQLite.Journal), Synchronous: sqlite.Synchronous(sc.SQLite.Synchronous),
			WALAutocheckpoint: sc.SQLite.AutoCheckpoint},
		MinOps: sc.Cut.Ops.Min, MaxOps: sc.Cut.Ops.Max,
	}
}

// driveSize is that of a sparse drive with room for far more than a cycle writes.
const driveSize = 256 << 20

// Bench implements campaign.Stepping.
type Bench struct {
	c       Config
	cycle   uint32
	clock   *simdrive.VirtualClock
	drive   *simdrive.Drive
	outlet  *simulated.Outlet
	on      bool
	mount   *mounted // nil while the drive has no power or cannot be mounted
	witness *witness.Witness
	facts   words.Facts
}

// New returns a bench. Close removes what its last cycle holds.
func New(c Config) (*Bench, error) {
	if c.MinOps < 1 || c.MaxOps < c.MinOps {
		return nil, fmt.Errorf("embedded bench: cut at operation %d..%d: want 1 or more, in order", c.MinOps, c.MaxOps)
	}
	b := &Bench{c: c}
	b.witness = &witness.Witness{Open: b.openWitness, Now: b.Now}
	var err error
	b.outlet, err = simulated.New(simulated.Config{Name: "simulated drive", Device: (*supply)(b), Now: b.Now})
	return b, err
}

// supply is the bench's side of the outlet.
type supply Bench

func (s *supply) PowerOff() {
	if s.drive != nil {
		s.drive.Cut()
	}
	s.on = false
}

func (s *supply) PowerOn() error { s.on = true; return nil }
func (s *supply) Powered() bool  { return s.on }

// Now implements campaign.Stepping: each cycle has an hour of its own, so that
// times never go back within a ledger.
func (b *Bench) Now() clock.Instant {
	at := clock.Instant(time.Hour) * clock.Instant(b.cycle+1)
	if b.clock != nil {
		at += clock.Instant(b.clock.Now())
	}
	return at
}

// Database implements campaign.Bench.
func (b *Bench) Database() campaign.Database { return (*database)(b) }

// Ready implements campaign.Bench: Renew does the work.
func (b *Bench) Ready(context.Context) error { return nil }

// Renew implements campaign.Stepping.
func (b *Bench) Renew(_ context.Context, cycle uint32) error {
	if err := b.unmount(); err != nil {
		return err
	}
	b.cycle, b.clock = cycle, simdrive.NewVirtualClock()
	b.witness.Forget()
	cfg := b.c.Drive
	cfg.Size, cfg.Clock, cfg.Seed = driveSize, b.clock, b.rand(1).Uint64()
	for _, f := range cfg.Faults {
		if f.Cycle > 0 { // a fresh drive would be in its first generation in every cycle
			cfg.FirstGeneration = uint64(cycle)
		}
	}
	var err error
	if b.drive, err = simdrive.New(cfg); err != nil {
		return fmt.Errorf("make the drive: %w", err)
	}
	h, err := b.drive.PowerOn()
	if err != nil {
		return fmt.Errorf("power the drive: %w", err)
	}
	b.on = true
	if err := sqlitevfs.Format(b.device(h)); err != nil {
		return fmt.Errorf("format the drive: %w", err)
	}
	return b.mountOn(h)
}

// rand returns the generator for one purpose of the cycle.
func (b *Bench) rand(purpose uint64) *rand.Rand {
	return rand.New(rand.NewPCG(b.c.Seed^purpose<<56, uint64(b.cycle)))
}

// settle makes all that was set up durable, in the file layer and in the drive, as on a
// machine that has been idle.
func (b *Bench) settle() error {
	if err := b.mount.fs.Sync(); err != nil {
		return fmt.Errorf("settle the file layer: %w", err)
	}
	if err := b.drive.Settle(); err != nil {
		return fmt.Errorf("settle the drive: %w", err)
	}
	return nil
}

// Play implements campaign.Stepping.
func (b *Bench) Play(ctx context.Context, s *client.Session) (campaign.Cut, error) {
	if err := b.settle(); err != nil {
		return campaign.Cut{}, err
	}
	at := b.c.MinOps + b.rand(2).IntN(b.c.MaxOps-b.c.MinOps+1)
	b.drive.CutAt(uint64(at))
	s.TakeTurns(ctx)
	if ctx.Err() != nil {
		return campaign.Cut{}, ctx.Err()
	}
	r, failed := b.drive.Report()
	if !failed {
		return campaign.Cut{}, fmt.Errorf("the streams ended before the power failed: %w", errors.Join(s.Errors(), errNotCut))
	}
	b.on = false
	cut := campaign.Cut{Commanded: b.instant(r.At), Proven: true}
	off, err := powerctl.SwitchOff(ctx, b.outlet, powerctl.Policy{Deadline: time.Second})
	if err != nil {
		return cut, err
	}
	cut.Observed = off.Observed
	cut.Detail, err = json.Marshal(r)
	return cut, err
}

var errNotCut = errors.New("the drive was not cut")

func (b *Bench) instant(at time.Duration) clock.Instant {
	return clock.Instant(time.Hour)*clock.Instant(b.cycle+1) + clock.Instant(at)
}

// Cut implements campaign.Bench; Play is what the campaign calls.
func (b *Bench) Cut(ctx context.Context) (campaign.Cut, error) {
	r, err := powerctl.SwitchOff(ctx, b.outlet, powerctl.Policy{Deadline: time.Second})
	return campaign.Cut{Commanded: r.Commanded, Observed: r.Observed, Proven: err == nil}, err
}

// Restore implements campaign.Bench: a new generation, a fresh mount, SQLite's own recovery.
func (b *Bench) Restore(ctx context.Context) error {
	if err := b.unmount(); err != nil {
		return err
	}
	if _, err := powerctl.SwitchOn(ctx, b.outlet, powerctl.Policy{Deadline: time.Second}); err != nil {
		return err
	}
	h, err := b.drive.PowerOn()
	if err != nil {
		return &verifier.UnreadableError{Err: fmt.Errorf("the drive does not come up again: %w", err)}
	}
	return b.mountOn(h)
}

// Leave implements campaign.Bench: a simulated drive needs no state to be left in.
func (b *Bench) Leave(context.Context) error { return nil }

// Close releases what the last cycle holds.
func (b *Bench) Close() error { return b.unmount() }
