package loop

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"plugpull/internal/campaign"
	"plugpull/internal/ledger"
	"plugpull/internal/report"
	"plugpull/internal/testskip"
	"plugpull/internal/workload"
	"plugpull/scenarios"
)

// templates are made once for all tests; only TestMain sets it.
var templates *Templates

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if os.Geteuid() == 0 {
		var err error
		if templates, err = NewTemplates(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer templates.Close()
	}
	return m.Run()
}

// builtin returns a built-in scenario.
func builtin(t testing.TB, name string) scenarios.Scenario {
	t.Helper()
	sc, err := scenarios.Load(name)
	require.NoError(t, err)
	require.Equal(t, []scenarios.BenchKind{scenarios.Loop}, sc.Benches)
	return sc
}

// run is a run on a bench of its own.
type run struct {
	*campaign.Runner
	b *Bench
	t testing.TB
}

func newRun(t testing.TB, sc *scenarios.Scenario, seed uint64, cycles int, change func(*Config)) *run {
	t.Helper()
	testskip.LoopBench(t)
	folder, err := campaign.CreateFolder(filepath.Join(t.TempDir(), "run"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, folder.Close()) })
	id, err := uuid.NewRandom()
	require.NoError(t, err)
	l := sc.Load
	book, err := campaign.CreateBook(folder.Ledger(), ledger.Config{Database: "mysql", Schema: Schema,
		Params: workload.Params{Run: id, Profile: l.Profile, PayloadMin: l.PayloadMin, PayloadMax: l.PayloadMax, Window: l.Window}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, book.Close()) })
	c := ConfigOf(sc, seed, 10e9, filepath.Join(folder.Path, "drive.img"))
	c.Templates = templates
	if change != nil {
		change(&c)
	}
	b, err := New(context.Background(), c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	r := &campaign.Runner{Folder: folder, Book: book, Bench: b, BenchName: "loop",
		Load: campaign.Load{Streams: l.Streams, AllowNonDurable: sc.Database.AllowNondurable, AllowBinlog: sc.Database.AllowBinlog},
		Plan: campaign.Plan{Scenario: sc.Name, Expected: string(sc.Expect), Seed: seed, Cycles: cycles,
			After: campaign.Range(sc.Cut.After), Last: sc.Verify.Last, AllEvery: sc.Verify.AllEvery},
		Silence: 10e9, ServerWait: 60e9, Control: report.Control{Kind: report.NoControl},
		Log: slog.New(slog.DiscardHandler), Stop: make(chan struct{})}
	if sc.Witness {
		r.Load.Witnesses = 1
	}
	return &run{r, b, t}
}

// do runs it to its end and returns the report and every cycle.
func (r *run) do() (*report.Run, []*campaign.CycleResult) {
	r.t.Helper()
	rep, err := r.Run(context.Background())
	require.NoError(r.t, err)
	var cycles []*campaign.CycleResult
	for n := uint32(1); n <= r.Book.Cycle; n++ {
		if c, err := r.Folder.Cycle(n); err == nil {
			cycles = append(cycles, c)
		}
	}
	return rep, cycles
}
