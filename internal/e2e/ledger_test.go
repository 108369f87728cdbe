package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/ledger"
	"plugpull/internal/workload"
)

// facts is what a test reads in a ledger.
type facts struct {
	unknown  int                // commits of which no outcome is known
	unpinned int                // those of them that no verification recorded
	ends     map[ledger.End]int // of streams
	findings uint64             // commits charged by pins
	epochs   uint64             // the last
	streams  int                // of all sessions
}

// readLedger reads a ledger by its records alone, without the verifier.
func readLedger(t testing.TB, path string) facts {
	t.Helper()
	r, err := ledger.OpenReader(path)
	require.NoError(t, err)
	defer r.Close()
	f := facts{ends: map[ledger.End]int{}, epochs: 1}
	type commit struct {
		stream workload.Stream
		seq    workload.Seq
	}
	open := map[commit]bool{}
	each := func(rec *ledger.Record, do func(commit)) {
		for n := rec.From; n <= rec.To; n++ {
			do(commit{rec.Stream, n})
		}
	}
	var pins []ledger.Record
	for {
		var rec ledger.Record
		ok, err := r.Next(&rec)
		require.NoError(t, err)
		if !ok {
			break
		}
		switch rec.Kind {
		case ledger.KindStream:
			f.streams++
		case ledger.KindReserve:
			each(&rec, func(c commit) { open[c] = true })
		case ledger.KindOutcome:
			if ledger.Outcome(rec.Code) != ledger.Unknown {
				delete(open, commit{rec.Stream, rec.From})
			}
		case ledger.KindSkip:
			each(&rec, func(c commit) { delete(open, c) })
		case ledger.KindEnd:
			f.ends[ledger.End(rec.Code)]++
		case ledger.KindPin:
			pins = append(pins, rec)
			if c := ledger.PinClass(rec.Code); c != ledger.PinPresent && c != ledger.PinAbsent {
				f.findings += uint64(rec.To - rec.From + 1)
			}
		case ledger.KindMark:
			if ledger.Mark(rec.Code) == ledger.MarkEpoch {
				f.epochs = rec.Count
			}
		}
	}
	f.unknown = len(open)
	for i := range pins {
		each(&pins[i], func(c commit) { delete(open, c) })
	}
	f.unpinned = len(open)
	return f
}

// checkLedger asserts that the ledger of a finished run can be shown, and that every
// unknown commit was pinned.
func checkLedger(t testing.TB, path string) facts {
	t.Helper()
	checkLedgerShows(t, path)
	f := readLedger(t, path)
	assert.Zero(t, f.unpinned, "of %d unknown commits %d were not pinned", f.unknown, f.unpinned)
	return f
}

// journal returns the journal's text.
func journal(folder string) string {
	b, _ := os.ReadFile(filepath.Join(folder, "journal"))
	return string(b)
}
