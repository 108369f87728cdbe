package verifier

import (
	"time"

	"plugpull/internal/ledger"
)

// Verdict is what a run proves of the stack.
type Verdict uint8

// The verdicts.
const (
	Inconclusive Verdict = iota
	Durable
	Lossy
	RefusedSetting // the system would not take a mount option or setting
)

func (v Verdict) String() string {
	switch v {
	case Durable:
		return "durable"
	case Lossy:
		return "lossy"
	case RefusedSetting:
		return "refused"
	}
	return "inconclusive"
}

// Reason says why a cycle does not count, or a run is inconclusive.
type Reason string

// The reasons.
const (
	ReasonNone           Reason = ""
	ReasonNoServer       Reason = "no_server"       // the database did not answer within the wait
	ReasonScanBroken     Reason = "scan_broken"     // the connection was lost while survivors were read
	ReasonNotRestarted   Reason = "not_restarted"   // a buffer pool answers, not the drive
	ReasonCleanShutdown  Reason = "clean_shutdown"  // the server was shut down in order
	ReasonStreamsStopped Reason = "streams_stopped" // nothing was being committed when the cut came
	ReasonIdleAtCut      Reason = "idle_at_cut"     // the last acknowledgement is too old
	ReasonStillAlive     Reason = "still_alive"     // commits were acknowledged after off was observed
	ReasonCutFailed      Reason = "cut_failed"      // off was not read back from the outlet
	ReasonProcessCrash   Reason = "process_crash"   // a restart is all that is known
	ReasonFarewell       Reason = "farewell"        // the host ended connections: it had power
	ReasonInterrupted    Reason = "interrupted"     // plugpull itself ended in mid-cycle
	ReasonNoCycles       Reason = "no_cycles"
	ReasonFailed         Reason = "failed" // the bench or plugpull failed
	ReasonControlFailed  Reason = "control_failed"
)

// Explain returns a sentence for people.
func (r Reason) Explain() string {
	switch r {
	case ReasonNoServer:
		return "the database did not answer within the wait, so nothing could be compared"
	case ReasonScanBroken:
		return "the connection was lost while the survivors were read"
	case ReasonNotRestarted:
		return "the server was not restarted since the commits were sent: its memory answers, not the drive"
	case ReasonCleanShutdown:
		return "the server said that it was shutting down: an orderly end is no power cut"
	case ReasonStreamsStopped:
		return "the streams had been stopped before the cut: nothing was at risk"
	case ReasonIdleAtCut:
		return "no commit was acknowledged within the last 100 ms before the cut was commanded"
	case ReasonStillAlive:
		return "commits were still acknowledged after the outlet read back off: it feeds something else"
	case ReasonCutFailed:
		return "the outlet never read back off"
	case ReasonProcessCrash:
		return "a restart is all that is known: a crash of the process alone looks the same. State what was cut with --attest, or use a bench that proves it"
	case ReasonFarewell:
		return "connections were closed or reset, which a host without power cannot do: the process alone ended, or something on the way speaks for the host"
	case ReasonInterrupted:
		return "plugpull was interrupted in mid-cycle"
	case ReasonFailed:
		return "the bench or plugpull failed before the run was complete"
	case ReasonNoCycles:
		return "no cycle was completed"
	case ReasonControlFailed:
		return "the control lost nothing: this bench cannot show a loss"
	}
	return string(r)
}

// Attestation is what a person says was cut; empty for nothing.
type Attestation string

// The attestations.
const (
	AttestMains Attestation = "mains" // the machine lost its supply
	AttestDrive Attestation = "drive" // the drive alone lost its supply
)

// Evidence is what is known of one cut beside the rows.
type Evidence struct {
	// Restarted: the token written at connect is gone from the MEMORY table.
	Restarted bool
	// CleanShutdown: the bench saw an orderly end.
	CleanShutdown bool
	// Ends counts the ways in which the cycle's streams ended, of Streams in all.
	Ends    map[ledger.End]int
	Streams int
	// Commanded: it is known when the cut was commanded, and LastAck is how
	// long before that the last acknowledgement came (negative: after it).
	Commanded bool
	LastAck   time.Duration
	// IdleByDesign waives the demand for streams that run and a fresh acknowledgement.
	IdleByDesign bool
	// AckedAfterOff: a commit was acknowledged that was sent so long after off was
	// observed that no supply holds up for it.
	AckedAfterOff bool
	// OutletFailed: a cut was commanded and off was not read back.
	OutletFailed bool
	// NoFarewell: the whole host is said to have lost power while streams ran, so that a
	// connection which was closed or reset contradicts it.
	NoFarewell bool
	// Proven: the bench has proof of its own that power was lost.
	Proven bool
	Attest Attestation
}

// FreshAck is how old the last acknowledgement may be when the cut is commanded.
const FreshAck = 100 * time.Millisecond

// Counts says whether a cycle without findings speaks for the stack: ReasonNone
// when it does.
func (e Evidence) Counts() Reason {
	// The outlet comes first: where it did not cut, all else follows from that.
	switch {
	case e.OutletFailed && !e.Proven:
		return ReasonCutFailed
	case e.AckedAfterOff:
		return ReasonStillAlive
	case !e.Restarted:
		return ReasonNotRestarted
	case e.CleanShutdown || e.Ends[ledger.EndShutdown] > 0:
		return ReasonCleanShutdown
	case !e.IdleByDesign && (e.Ends[ledger.EndStopped] > 0 ||
		e.Ends[ledger.EndSilence]+e.Ends[ledger.EndFIN]+e.Ends[ledger.EndRST]+e.Ends[ledger.EndError] == 0):
		return ReasonStreamsStopped
	case e.Commanded && !e.IdleByDesign && e.LastAck > FreshAck:
		return ReasonIdleAtCut
	case e.NoFarewell && e.Ends[ledger.EndFIN]+e.Ends[ledger.EndRST] > 0:
		return ReasonFarewell
	case !e.Proven && e.Attest == "":
		return ReasonProcessCrash
	}
	return ReasonNone
}
