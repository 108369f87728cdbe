package embedded_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"plugpull/internal/bench/embedded"
	"plugpull/internal/database/sqlite"
	"plugpull/internal/simdrive"
	"plugpull/internal/workload"
)

// BenchmarkCuts prints whole cycles a second, each with about 100 commits, of the
// scenario wal-full, ledger and run folder on the disk included.
func BenchmarkCuts(b *testing.B) {
	r := runner(b, workload.Append, 4, embedded.Config{Seed: 1, MinOps: 900, MaxOps: 1100,
		Drive:   simdrive.Config{WriteLatency: 20 * time.Microsecond, FlushLatency: time.Millisecond, Survive: simdrive.SurviveRandom},
		Pragmas: sqlite.Pragmas{Journal: "wal", Synchronous: "full", WALAutocheckpoint: 64}}, 1, b.N)
	b.ResetTimer()
	rep, err := r.Run(b.Context())
	require.NoError(b, err)
	require.Zero(b, rep.Findings.Total())
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cuts/s")
	b.ReportMetric(float64(rep.Commits.Acked)/float64(b.N), "commits/cut")
}
