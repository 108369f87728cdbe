package loop

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/campaign"
	"plugpull/internal/testskip"
	"plugpull/scenarios"
)

// long skips what takes minutes unless it is asked for:
// PLUGPULL_LONG=1 go test -run TestLong ./internal/bench/loop
func long(t *testing.T) {
	t.Helper()
	if os.Getenv("PLUGPULL_LONG") == "" {
		t.Skip("takes minutes: make test-long")
	}
	testskip.LoopBench(t)
}

// shortLoad makes the most of the time: the cut is what matters.
func shortLoad(sc *scenarios.Scenario) {
	sc.Cut.After = scenarios.Range{Min: 200e6, Max: 400e6}
	sc.Verify.AllEvery = 50
}

func TestLongHonestDriveLosesNothing(t *testing.T) {
	long(t)
	for _, name := range []string{"ext4", "ext4-single", "xfs", "xfs-single"} {
		t.Run(name, func(t *testing.T) {
			sc := builtin(t, name)
			shortLoad(&sc)
			const cuts = 200
			rep, all := newRun(t, &sc, 11, cuts, nil).do()
			t.Logf("%s; %s", rep.Headline(), rep.SplitText())
			assert.Len(t, all, cuts)
			assert.Zero(t, rep.Findings.Total()+rep.Witness.Findings.Total(), "seed 11: %+v", rep.Findings)
			assert.Greater(t, rep.Cycles.Counted, cuts/2, "most cuts met an idle server: this machine is too busy to prove anything")
		})
	}
}

// TestLongTornLeftovers reports what a random choice of unflushed sectors does. Where InnoDB itself
// gives a table up, the state is kept outside of the test; anything else accuses an honest drive.
func TestLongTornLeftovers(t *testing.T) {
	long(t)
	for _, name := range []string{"ext4-torn", "xfs-torn", "btrfs-torn"} {
		t.Run(name, func(t *testing.T) {
			sc := builtin(t, name)
			shortLoad(&sc)
			r := newRun(t, &sc, 12, 100, nil)
			rep, all := r.do()
			t.Logf("%s; %s", rep.Headline(), rep.SplitText())
			for _, c := range all {
				if c.Counts.Total()+c.Witness.Total() > 0 {
					keep(t, r, c)
				}
			}
			assert.Zero(t, rep.Witness.Findings.Total(), "the witness has no cache and no format: this is plugpull's or the filesystem's")
			assert.Zero(t, rep.Findings.Total()-rep.Findings.Unreadable, "seed 12: %+v", rep.Findings)
		})
	}
}

// keep copies a cycle's evidence to where the end of the test does not remove it.
func keep(t *testing.T, r *run, c *campaign.CycleResult) {
	t.Helper()
	to, err := os.MkdirTemp("", "plugpull-evidence-")
	require.NoError(t, err)
	from := filepath.Join(r.Folder.Path, "cycles")
	require.NoError(t, exec.Command("cp", "-a", from, filepath.Join(r.Folder.Path, "ledger"), to).Run())
	t.Logf("cycle %d: %+v %v: kept in %s", c.Cycle, c.Counts, c.Unreadable, to)
}
