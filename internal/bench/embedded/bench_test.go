package embedded_test

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"plugpull/internal/bench/embedded"
	"plugpull/internal/campaign"
	"plugpull/internal/database/sqlite"
	"plugpull/internal/ledger"
	"plugpull/internal/report"
	"plugpull/internal/simdrive"
	"plugpull/internal/workload"
)

// BenchmarkCuts prints whole cycles a second, each with about 100 commits, of the
// scenario wal-full, ledger and run folder on the disk included.
func BenchmarkCuts(b *testing.B) {
	r := runner(b, workload.Append, embedded.Config{Seed: 1, MinOps: 900, MaxOps: 1100,
		Drive:   simdrive.Config{WriteLatency: 20 * time.Microsecond, FlushLatency: time.Millisecond, Survive: simdrive.SurviveRandom},
		Pragmas: sqlite.Pragmas{Journal: "wal", Synchronous: "full", WALAutocheckpoint: 64}}, b.N)
	b.ResetTimer()
	rep, err := r.Run(b.Context())
	require.NoError(b, err)
	require.Zero(b, rep.Findings.Total())
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cuts/s")
	b.ReportMetric(float64(rep.Commits.Acked)/float64(b.N), "commits/cut")
}

// runner makes a run of its own in a temporary folder.
func runner(t testing.TB, p workload.Profile, c embedded.Config, cycles int) *campaign.Runner {
	t.Helper()
	folder, err := campaign.CreateFolder(filepath.Join(t.TempDir(), "run"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, folder.Close()) })
	run, err := campaign.NewRun()
	require.NoError(t, err)
	params := workload.Params{Run: run, Profile: p, PayloadMin: 100, PayloadMax: 400}
	if p == workload.Churn {
		params.Window = 8
	}
	book, err := campaign.CreateBook(folder.Ledger(), ledger.Config{Params: params, Database: "sqlite", Schema: "main"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, book.Close()) })
	bench, err := embedded.New(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, bench.Close()) })
	return &campaign.Runner{Folder: folder, Book: book, Bench: bench, BenchName: "embedded",
		Load:    campaign.Load{Streams: 4, Witnesses: 1, Now: bench.Now},
		Plan:    campaign.Plan{Scenario: "test", Expected: "durable", Seed: c.Seed, Cycles: cycles, Last: 2, AllEvery: 50},
		Control: report.Control{Kind: report.NoControl}, Log: slog.New(slog.DiscardHandler), Stop: make(chan struct{})}
}
