package verifier_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"plugpull/internal/ledger"
	"plugpull/verifier"
)

// TestEvidence has for each reason the evidence that lacks just that, and its
// clean twin beside it.
func TestEvidence(t *testing.T) {
	whole := func() verifier.Evidence {
		return verifier.Evidence{Restarted: true, Ends: map[ledger.End]int{ledger.EndSilence: 4}, Streams: 4,
			Commanded: true, LastAck: 3 * time.Millisecond, Proven: true}
	}
	for _, c := range []struct {
		name string
		do   func(e *verifier.Evidence)
		want verifier.Reason
	}{
		{"whole", func(*verifier.Evidence) {}, verifier.ReasonNone},
		{"nothing is known", func(e *verifier.Evidence) { *e = verifier.Evidence{} }, verifier.ReasonNotRestarted},
		{"not restarted", func(e *verifier.Evidence) { e.Restarted = false }, verifier.ReasonNotRestarted},
		{"not restarted, whatever a person says", func(e *verifier.Evidence) { e.Restarted, e.Attest = false, verifier.AttestMains }, verifier.ReasonNotRestarted},
		{"a clean shutdown", func(e *verifier.Evidence) { e.CleanShutdown = true }, verifier.ReasonCleanShutdown},
		{"one stream was told of a shutdown", func(e *verifier.Evidence) { e.Ends[ledger.EndShutdown] = 1 }, verifier.ReasonCleanShutdown},
		{"all streams had been stopped", func(e *verifier.Evidence) { e.Ends = map[ledger.End]int{ledger.EndStopped: 4} }, verifier.ReasonStreamsStopped},
		{"refusals and a full disk under the ledger are stops too", func(e *verifier.Evidence) {
			e.Ends = map[ledger.End]int{ledger.EndRefusals: 2, ledger.EndLedger: 2}
		}, verifier.ReasonStreamsStopped},
		{"no end is recorded", func(e *verifier.Evidence) { e.Ends = nil }, verifier.ReasonStreamsStopped},
		{"some streams had been stopped, and one died of something else", func(e *verifier.Evidence) {
			e.Ends = map[ledger.End]int{ledger.EndStopped: 3, ledger.EndSilence: 1}
		}, verifier.ReasonStreamsStopped},
		{"a host without power said farewell", func(e *verifier.Evidence) {
			e.NoFarewell, e.Ends = true, map[ledger.End]int{ledger.EndSilence: 3, ledger.EndFIN: 1}
		}, verifier.ReasonFarewell},
		{"a host without power reset a connection", func(e *verifier.Evidence) {
			e.NoFarewell, e.Ends = true, map[ledger.End]int{ledger.EndSilence: 3, ledger.EndRST: 1}
		}, verifier.ReasonFarewell},
		{"a host without power fell silent", func(e *verifier.Evidence) { e.NoFarewell = true }, verifier.ReasonNone},
		{"acknowledged 100 ms before the cut", func(e *verifier.Evidence) { e.LastAck = 100 * time.Millisecond }, verifier.ReasonNone},
		{"acknowledged longer before the cut", func(e *verifier.Evidence) { e.LastAck = 100*time.Millisecond + 1 }, verifier.ReasonIdleAtCut},
		{"acknowledged after the command", func(e *verifier.Evidence) { e.LastAck = -time.Millisecond }, verifier.ReasonNone},
		{"idle by design", func(e *verifier.Evidence) { e.IdleByDesign, e.LastAck = true, time.Hour }, verifier.ReasonNone},
		{"nobody knows when the cut came", func(e *verifier.Evidence) { e.Commanded, e.LastAck = false, time.Hour }, verifier.ReasonNone},
		{"still acknowledging with the power off", func(e *verifier.Evidence) { e.AckedAfterOff = true }, verifier.ReasonStillAlive},
		{"the outlet failed", func(e *verifier.Evidence) {
			e.OutletFailed, e.Proven, e.Attest = true, false, verifier.AttestMains
		}, verifier.ReasonCutFailed},
		{"the outlet failed, but the bench has proof", func(e *verifier.Evidence) { e.OutletFailed = true }, verifier.ReasonNone},
		{"a restart is all that is known", func(e *verifier.Evidence) { e.Proven = false }, verifier.ReasonProcessCrash},
		{"a person says what was cut", func(e *verifier.Evidence) { e.Proven, e.Attest = false, verifier.AttestDrive }, verifier.ReasonNone},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := whole()
			c.do(&e)
			got := e.Counts()
			assert.Equal(t, c.want, got)
			if got != verifier.ReasonNone {
				assert.NotEqual(t, string(got), got.Explain(), "a sentence for people")
			}
		})
	}
}

// TestZeroVerdict: what nobody decided is inconclusive.
func TestZeroVerdict(t *testing.T) {
	var v verifier.Verdict
	assert.Equal(t, "inconclusive", v.String())
	assert.Equal(t, []string{"durable", "lossy", "refused"},
		[]string{verifier.Durable.String(), verifier.Lossy.String(), verifier.RefusedSetting.String()})
}
