package embedded_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/bench/embedded"
	"plugpull/internal/campaign"
	"plugpull/internal/database/sqlite"
	"plugpull/internal/ledger"
	"plugpull/internal/report"
	"plugpull/internal/workload"
	"plugpull/scenarios"
	"plugpull/verifier"
)

var testRun = uuid.MustParse("6ba7b810-9dad-11d1-80b4-00c04fd430c8")

// run is a campaign in a temporary folder.
type run struct {
	*campaign.Runner
	t testing.TB
}

// runner makes a run. from is the first cycle.
func runner(t testing.TB, p workload.Profile, streams int, c embedded.Config, from uint32, cycles int) run {
	t.Helper()
	folder, err := campaign.CreateFolder(filepath.Join(t.TempDir(), "run"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, folder.Close()) })
	params := workload.Params{Run: testRun, Profile: p, PayloadMin: 100, PayloadMax: 400}
	if p == workload.Churn {
		params.Window = 8
	}
	book, err := campaign.CreateBook(folder.Ledger(), ledger.Config{Params: params, Database: "sqlite", Schema: "main"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, book.Close()) })
	book.Cycle = from - 1
	bench, err := embedded.New(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, bench.Close()) })
	return run{&campaign.Runner{Folder: folder, Book: book, Bench: bench, BenchName: "embedded",
		Load:    campaign.Load{Streams: streams, Witnesses: 1, Now: bench.Now},
		Plan:    campaign.Plan{Scenario: "test", Expected: "durable", Seed: c.Seed, Cycles: cycles, Last: 2, AllEvery: 50},
		Control: report.Control{Kind: report.NoControl}, Log: slog.New(slog.DiscardHandler), Stop: make(chan struct{})}, t}
}

func ofScenario(t testing.TB, sc *scenarios.Scenario, seed uint64, from uint32, cycles int) run {
	t.Helper()
	return runner(t, sc.Load.Profile, sc.Load.Streams, embedded.ConfigOf(sc, seed), from, cycles)
}

// do runs it and returns the report and every cycle.
func (r run) do() (*report.Run, []*campaign.CycleResult) {
	r.t.Helper()
	from := r.Book.Cycle + 1
	rep, err := r.Run(context.Background())
	require.NoError(r.t, err)
	var cycles []*campaign.CycleResult
	for n := from; n <= r.Book.Cycle; n++ {
		c, err := r.Folder.Cycle(n)
		require.NoError(r.t, err)
		cycles = append(cycles, c)
	}
	return rep, cycles
}

// builtin returns the built-in scenarios of the bench with an expectation.
func builtin(t testing.TB, expect scenarios.Expectation) (list []scenarios.Scenario) {
	t.Helper()
	all, err := scenarios.Builtin()
	require.NoError(t, err)
	for _, sc := range all {
		if sc.Expect == expect && sc.Benches[0] == scenarios.Embedded {
			list = append(list, sc)
		}
	}
	return list
}

// honest runs every durable scenario for its share of the cuts.
func honest(t *testing.T, cuts int) {
	list := builtin(t, scenarios.Durable)
	for _, sc := range list {
		t.Run(sc.Name, func(t *testing.T) {
			n := (cuts + len(list) - 1) / len(list)
			rep, cycles := ofScenario(t, &sc, 20, 1, n).do()
			assert.Equal(t, n, rep.Cycles.Counted, "each cut counts")
			assert.Positive(t, rep.Commits.Acked)
			for _, c := range cycles {
				assert.Zero(t, c.Counts.Total()+c.Witness.Total(), "seed 20, cycle %d: %+v, witness %+v", c.Cycle, c.Counts, c.Witness)
			}
		})
	}
}

func TestHonestDriveLosesNothing(t *testing.T) { honest(t, 1000) }

// PLUGPULL_LONG=1 go test -run TestLongHonestDriveLosesNothing ./internal/bench/embedded
func TestLongHonestDriveLosesNothing(t *testing.T) {
	if os.Getenv("PLUGPULL_LONG") == "" {
		t.Skip("takes minutes: make test-long runs it")
	}
	honest(t, 10_000)
}

// TestFaultsAreCaught: within 20 cuts, and only in the classes that docs/faults.md tells of.
func TestFaultsAreCaught(t *testing.T) {
	for _, sc := range builtin(t, scenarios.Lossy) {
		t.Run(sc.Name, func(t *testing.T) {
			rep, _ := ofScenario(t, &sc, 21, 1, 20).do()
			assert.Equal(t, verifier.Lossy.String(), rep.Verdict)
			got := rep.Findings
			switch sc.Name {
			case "wal-normal", "flush-ignored", "flush-late", "fua-ignored", "weak-capacitor", "delete-full":
				// Without leftovers a missing flush loses the newest and nothing else.
				assert.Equal(t, verifier.Counts{LostTail: got.LostTail}, got)
				assert.Positive(t, got.LostTail)
			case "dead-device":
				assert.Equal(t, verifier.Counts{Unreadable: rep.Commits.Acked}, got, "all that was acknowledged, each once")
			default:
				assert.Positive(t, got.Total()+rep.Witness.Findings.Total())
			}
			if sc.Name == "delete-full" {
				assert.LessOrEqual(t, got.LostTail, uint64(rep.Cycles.Counted), "no more than the last commit a cut")
			}
			switch sc.Name {
			case "wal-normal", "delete-full", "sync-off":
				assert.Equal(t, report.AttributeWhole, rep.Attribution)
				assert.Zero(t, rep.Witness.Findings.Total(), "the drive is honest")
			case "misdirected-write", "unserializable", "adjacent-damage", "metadata-lost", "metadata-old", "bit-corruption":
				// Few places are hit: the witness may be passed by.
			default:
				assert.Equal(t, report.AttributeDrive, rep.Attribution)
			}
			if sc.Name == "flush-late" {
				assert.InDelta(t, 50, rep.LossWindowMS, 10, "the drive is 50 ms late")
			}
		})
	}
}

// TestTheSameSeedGivesTheSameFindings cut by cut, and each cycle replays alone.
func TestTheSameSeedGivesTheSameFindings(t *testing.T) {
	for _, name := range []string{"flush-late", "bit-corruption", "small-cache-flush-ignored", "wal-churn-torn", "misdirected-write"} {
		t.Run(name, func(t *testing.T) {
			sc, err := scenarios.Load(name)
			require.NoError(t, err)
			_, first := ofScenario(t, &sc, 5, 1, 6).do()
			_, again := ofScenario(t, &sc, 5, 1, 6).do()
			for i := range first {
				same(t, first[i], again[i])
				_, alone := ofScenario(t, &sc, 5, first[i].Cycle, 1).do()
				same(t, first[i], alone[0])
			}
			_, other := ofScenario(t, &sc, 6, 1, 6).do()
			differs := false
			for i := range first {
				differs = differs || first[i].Acked != other[i].Acked
			}
			assert.True(t, differs, "another seed cuts elsewhere")
		})
	}
}

// same compares what two runs found in a cycle, but for the wall clock, the host's
// timings and the session's number, which counts the sessions of its ledger.
func same(t *testing.T, a, b *campaign.CycleResult) {
	t.Helper()
	for _, c := range []*campaign.CycleResult{a, b} {
		c.Split, c.Session = nil, 0
		for i := range c.Findings {
			c.Findings[i].At, c.Findings[i].Session = time.Time{}, 0
		}
	}
	require.Equal(t, a, b, "cycle %d", a.Cycle)
}

// TestTheWitnessTellsDriveFromDatabase: on a lying drive it loses too, beside a lax database it is whole.
func TestTheWitnessTellsDriveFromDatabase(t *testing.T) {
	for name, want := range map[string]string{"flush-ignored": report.AttributeDrive, "wal-normal": report.AttributeWhole, "wal-full": ""} {
		t.Run(name, func(t *testing.T) {
			sc, err := scenarios.Load(name)
			require.NoError(t, err)
			rep, _ := ofScenario(t, &sc, 22, 1, 10).do()
			assert.Equal(t, want, rep.Attribution)
			assert.Positive(t, rep.Witness.Acked)
		})
	}
}

// TestAHostWithoutRoomIsNoEvidence: the WAL index lies on the host; where that fails, nothing is said of the drive.
func TestAHostWithoutRoomIsNoEvidence(t *testing.T) {
	b, err := embedded.New(embedded.Config{MinOps: 1, MaxOps: 1, Pragmas: sqlite.Pragmas{Journal: "wal", Synchronous: "full"}})
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Close()) }()
	require.NoError(t, b.Renew(t.Context(), 1))
	_, err = b.Cut(t.Context())
	require.NoError(t, err)
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "gone"))
	err = b.Restore(t.Context())
	require.Error(t, err)
	var unreadable *verifier.UnreadableError
	assert.False(t, errors.As(err, &unreadable), "%v", err)
}
