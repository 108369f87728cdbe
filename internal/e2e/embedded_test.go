package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/ledger"
	"plugpull/internal/testskip"
)

// cutsOf counts the cycles of a run that were verified.
func cutsOf(t testing.TB, folder string) int {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(folder, "cycles", "*", "cycle.json"))
	require.NoError(t, err)
	return len(list)
}

// startEmbedded begins a run on the embedded bench, or carries it on where it has begun.
func startEmbedded(t testing.TB, tmp, out, scenario string, cycles int, seed uint64) *proc {
	t.Helper()
	env := []string{"TMPDIR=" + tmp}
	if exists(filepath.Join(out, scenario, "run.json")) {
		return start(t, env, "run", "--resume", out, "--json")
	}
	return start(t, env, "run", scenario, "--bench", "embedded", "--out", out, "--json",
		"--cycles", fmt.Sprint(cycles), "--seed", fmt.Sprint(seed))
}

// runEmbedded runs a scenario on the embedded bench to its end.
func runEmbedded(t testing.TB, scenario string, cycles int, seed uint64, more ...string) ran {
	t.Helper()
	args := append([]string{"run", scenario, "--bench", "embedded", "--json", "--seed", fmt.Sprint(seed)}, more...)
	if cycles > 0 {
		args = append(args, "--cycles", fmt.Sprint(cycles))
	}
	return finish(t, start(t, nil, append(args, "--out", t.TempDir())...), time.Duration(cycles)*time.Second)
}

// killEmbedded kills a run at random moments and carries it on each time: soon after it
// started, and some way into a cycle. It returns the folder of the run and its last words.
func killEmbedded(t *testing.T, scenario string, cycles, kills int, seed uint64) (string, ran) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 4))
	out, tmp := t.TempDir(), t.TempDir()
	folder := filepath.Join(out, scenario)
	for i := range kills {
		p := startEmbedded(t, tmp, out, scenario, cycles, seed)
		if i%3 > 0 { // else it may be killed before its first cycle
			n := cutsOf(t, folder) + rng.IntN(max(1, cycles/kills))
			await(t, "a cycle", func() bool { return cutsOf(t, folder) > n || over(p) })
		}
		require.True(t, p.killAfter(t, time.Duration(rng.Int64N(int64(40*time.Millisecond)))), "seed %d, kill %d: it ended by itself: %s", seed, i, &p.err)
		left, err := filepath.Glob(filepath.Join(tmp, "plugpull-shm-*"))
		require.NoError(t, err)
		assert.LessOrEqual(t, len(left), i+1, "a kill leaves at most the folder of its cycle")
		if st, err := os.Stat(folder + "/ledger"); err == nil && st.Size() > 0 {
			checkLedgerShows(t, folder+"/ledger")
		}
	}
	r := finish(t, startEmbedded(t, tmp, out, scenario, cycles, seed), time.Duration(cycles)*time.Second)
	return folder, r
}

func TestKillEmbedded(t *testing.T) {
	t.Parallel()
	killHonest(t, 50, 4)
}

func TestLongKillEmbedded(t *testing.T) {
	long(t)
	killHonest(t, 500, 15)
}

// killHonest: whatever the moments of the kills, an honest drive is never accused, and every
// planned cut is made.
func killHonest(t *testing.T, cycles, kills int) {
	for _, scenario := range []string{"wal-full-torn", "truncate-churn-torn"} {
		t.Run(scenario, func(t *testing.T) {
			t.Parallel()
			seed := drawSeed(t)
			folder, r := killEmbedded(t, scenario, cycles, kills, seed)
			require.Zero(t, r.code, "seed %d: %s", seed, r.stderr)
			s := r.one(t)
			assert.Equal(t, "durable", s.Verdict, "seed %d", seed)
			assert.Equal(t, cycles, s.Cycles.Counted, "seed %d", seed)
			assert.Zero(t, s.findings(), "seed %d: an honest drive was accused", seed)
			assert.Zero(t, readLedger(t, folder+"/ledger").findings, "seed %d", seed)
			checkLedgerShows(t, folder+"/ledger")
		})
	}
}

// TestKillLyingEmbedded: each cycle's losses are those of a run that nobody killed, and are counted once.
func TestKillLyingEmbedded(t *testing.T) {
	t.Parallel()
	killLying(t, 40, 8)
}

func TestLongKillLyingEmbedded(t *testing.T) {
	long(t)
	killLying(t, 300, 60)
}

func killLying(t *testing.T, cycles, kills int) {
	seed := drawSeed(t)
	folder, r := killEmbedded(t, "flush-ignored", cycles, kills, seed)
	require.Zero(t, r.code, "seed %d: %s", seed, r.stderr)
	s := r.one(t)
	assert.Equal(t, cycles, s.Cycles.Counted, "seed %d", seed)
	assert.LessOrEqual(t, s.Cycles.Interrupted, kills, "seed %d", seed)
	last := s.Cycles.Counted + s.Cycles.Interrupted
	whole := runEmbedded(t, "flush-ignored", last, seed).one(t)
	inLedger := map[uint32]uint64{}
	records(t, folder+"/ledger", func(r *ledger.Record) {
		if c := ledger.PinClass(r.Code); r.Kind == ledger.KindPin && c != ledger.PinPresent && c != ledger.PinAbsent &&
			ledger.StreamKind(r.Errno) == ledger.DatabaseStream {
			inLedger[r.Cycle] += uint64(r.To - r.From + 1)
		}
	})
	var found, acked uint64
	for n := 1; n <= last; n++ {
		want := readCycle(t, whole.Folder, n)
		total := (summary{Findings: want.Findings}).findings()
		assert.LessOrEqual(t, inLedger[uint32(n)], total, "seed %d, cycle %d", seed, n)
		if !exists(filepath.Join(folder, fmt.Sprintf("cycles/%04d/cycle.json", n))) {
			continue // killed in mid-cycle
		}
		got := readCycle(t, folder, n)
		assert.Equal(t, want.Findings, got.Findings, "seed %d, cycle %d", seed, n)
		assert.Equal(t, want.Acked, got.Acked, "seed %d, cycle %d", seed, n)
		found, acked = found+total, acked+want.Acked
	}
	assert.Equal(t, found, s.findings(), "seed %d", seed)
	assert.Equal(t, acked, s.Commits.Acked, "seed %d: nothing is said of commits that nobody verified", seed)
}

// TestKillBeforeFindingsAreRecorded: a cycle whose file was written is complete, whatever the ledger lacks.
func TestKillBeforeFindingsAreRecorded(t *testing.T) {
	t.Parallel()
	whole := runEmbedded(t, "flush-ignored", 3, 6).one(t)
	path := filepath.Join(whole.Folder, "ledger")
	st, err := os.Stat(path)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(path, st.Size()-3*64-10)) // the mark, some pins, and one of them in part
	require.NoError(t, os.Remove(filepath.Join(whole.Folder, "report.json")))
	r := resume(t, whole.Folder)
	assert.Zero(t, r.code, r.stderr)
	s := r.one(t)
	assert.Equal(t, whole, s)
}

// TestEmbeddedLeavesNothingBehind: of a run that ended only its own folder is left.
func TestEmbeddedLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	tmp, out := t.TempDir(), t.TempDir()
	for _, args := range [][]string{{"wal-full"}, {"dead-device"}, {"truncate-full"}} {
		r := finish(t, startEmbedded(t, tmp, out, args[0], 3, 1), 0)
		assert.Zero(t, r.code, r.stderr)
	}
	list, err := os.ReadDir(tmp)
	require.NoError(t, err)
	assert.Empty(t, list)
}

// TestReplay: the command that a lossy run prints finds the same again, in the cycle alone.
func TestReplay(t *testing.T) {
	t.Parallel()
	for _, scenario := range []string{"flush-late", "bit-corruption", "sync-off"} {
		seed := drawSeed(t)
		dir := t.TempDir()
		p := start(t, nil, "run", scenario, "--bench", "embedded", "--cycles", "8", "--seed", fmt.Sprint(seed), "--out", dir)
		r := finish(t, p, 0)
		folder := filepath.Join(dir, scenario)
		first := ""
		for n := 1; n <= 8; n++ {
			want := readCycle(t, folder, n)
			replay := readReplay(t, folder, n)
			if first == "" {
				first = replay // of a cycle in which only the witness lost something, maybe
			}
			if (summary{Findings: want.Findings}).findings() == 0 {
				continue
			}
			fields := strings.Fields(replay)
			require.Equal(t, []string{"plugpull", "run", scenario, "--bench", "embedded", "--seed", fmt.Sprint(seed), "--cycle", fmt.Sprint(n)}, fields)
			assert.Contains(t, r.stdout, first+"\n", "the first one is printed")
			again := finish(t, start(t, nil, append(fields[1:], "--json", "--out", filepath.Join(dir, fmt.Sprint("again", n)))...), 0)
			assert.Zero(t, again.code, again.stderr)
			s := again.one(t)
			assert.Equal(t, want.Findings, s.Findings, "%s, seed %d, cycle %d", scenario, seed, n)
			assert.Equal(t, want.Acked, s.Commits.Acked)
			assert.Zero(t, s.Cycles.Interrupted, "the cycles before it were not begun")
			assert.Equal(t, 1, s.Cycles.Counted)
			got := readCycle(t, s.Folder, n)
			assert.Equal(t, want.Unreadable, got.Unreadable)

			carried := resume(t, s.Folder)
			assert.Equal(t, 2, carried.code, "another cycle would be in its place")
			break
		}
	}
}

func readReplay(t testing.TB, folder string, n int) string {
	t.Helper()
	var c struct{ Replay string }
	b, err := os.ReadFile(filepath.Join(folder, fmt.Sprintf("cycles/%04d/cycle.json", n)))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &c))
	return c.Replay
}

// scenarioFile writes a scenario for the embedded bench.
func scenarioFile(t testing.TB, name, expect, ops, more string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name+".yaml")
	text := "scenario: " + name + "\nsummary: of a test\nexpect: " + expect + "\nbench: [embedded]\nload:\n  profile: append\n  streams: 2\nwitness: true\ncut:\n  ops: " + ops + "\ncycles: 4\n" + more
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

// TestEmbeddedJSON: the keys that scripts read.
func TestEmbeddedJSON(t *testing.T) {
	t.Parallel()
	for scenario, want := range map[string]struct {
		attribution any
		control     string
		lossy       bool
	}{
		"wal-full":      {nil, "flush-ignored", false},
		"wal-normal":    {"witness whole", "none", true},
		"flush-ignored": {"drive or filesystem", "none", true},
	} {
		r := runEmbedded(t, scenario, 3, 9)
		assert.Zero(t, r.code, r.stderr)
		var o map[string]any
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &o))
		assert.Equal(t, want.attribution, o["attribution"], scenario)
		control := o["control"].(map[string]any)
		assert.Equal(t, want.control, control["kind"], scenario)
		if !want.lossy {
			assert.Positive(t, control["lost"])
			assert.EqualValues(t, 2, control["cuts"])
			assert.NotContains(t, o, "replay")
		} else {
			assert.Contains(t, o["replay"], "--seed 9 --cycle ")
		}
		witness := o["witness"].(map[string]any)
		assert.Positive(t, witness["acked"])
		assert.Contains(t, witness["findings"], "lost_tail")
		assert.EqualValues(t, 9, o["seed"])
	}
}

// TestEmbeddedVerdicts: what a scenario file asks for decides, not what it expects.
func TestEmbeddedVerdicts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, expect, ops, more, verdict, reason string
		code, lossy                              int
	}{
		{name: "a lying drive", expect: "durable", more: "drive:\n  faults: [flush-ignored]\n", verdict: "lossy", code: 1, lossy: 4},
		{name: "a control that loses nothing", expect: "durable", more: "control:\n  fault: capacitor\n", verdict: "inconclusive", reason: "control_failed", code: 3},
		{name: "no control", expect: "durable", more: "control:\n  fault: none\n", verdict: "durable"},
		{name: "an honest drive that is expected to lie", expect: "lossy", verdict: "durable", code: 1},
		{name: "a fault in one cycle", expect: "lossy", more: "drive:\n  faults: [\"flush-ignored@cycle=3\"]\n", verdict: "lossy", lossy: 1},
		{name: "a fault in a cycle that never comes", expect: "durable", more: "drive:\n  faults: [\"flush-ignored@cycle=5\"]\n", verdict: "durable"},
		{name: "no commit before the cut", expect: "durable", ops: "1..1", more: "control:\n  fault: none\n", verdict: "inconclusive", reason: "idle_at_cut", code: 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := scenarioFile(t, "verdict", tt.expect, cmp.Or(tt.ops, "40..120"), tt.more)
			r := runEmbedded(t, path, 0, 5)
			assert.Equal(t, tt.code, r.code, "%s\n%s", r.stdout, r.stderr)
			s := r.one(t)
			assert.Equal(t, tt.verdict, s.Verdict)
			assert.Equal(t, tt.reason, s.Reason)
			assert.Equal(t, tt.lossy, s.Cycles.Lossy)
			assert.Equal(t, tt.lossy > 0, strings.Contains(r.stdout, "plugpull run "+path+" --bench embedded --seed 5 --cycle "), "the command that shows it again")
			if tt.name == "a fault in one cycle" {
				assert.Positive(t, readCycle(t, s.Folder, 3).Findings["lost_tail"])
				again := runEmbedded(t, path, 0, 5, "--cycle", "3")
				assert.Equal(t, s.Findings, again.one(t).Findings)
			}
		})
	}
}

// TestEmbeddedOnAFullDisk: it says so, fails, and is carried on once there is room.
func TestEmbeddedOnAFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		testskip.Skip(t, "needs root for a small tmpfs")
	}
	dir := t.TempDir()
	require.NoError(t, syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"))
	t.Cleanup(func() { assert.NoError(t, syscall.Unmount(dir, 0)) })
	tmp, out := t.TempDir(), filepath.Join(dir, "out")
	r := finish(t, startEmbedded(t, tmp, out, "truncate-full", 100, 1), 0)
	assert.Equal(t, 4, r.code, r.stderr)
	assert.Contains(t, r.stderr, "no space left on device")
	assert.Contains(t, r.stderr, "plugpull run --resume "+out)
	s := r.one(t)
	assert.Equal(t, "failed", s.Reason)
	assert.Less(t, s.Cycles.Counted, 100)
	assert.Zero(t, s.findings())
	list, err := os.ReadDir(tmp)
	require.NoError(t, err)
	assert.Empty(t, list, "also a failure cleans up")

	require.NoError(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=64m"))
	r = finish(t, startEmbedded(t, tmp, out, "truncate-full", 100, 1), 0)
	assert.Zero(t, r.code, r.stderr)
	assert.Equal(t, 100, r.one(t).Cycles.Counted)
	assert.Equal(t, "durable", r.one(t).Verdict)
}

// TestEmbeddedFoldersAreNotShared: one process at a time has a run, and a run's folder is never reused.
func TestEmbeddedFoldersAreNotShared(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	args := []string{"run", "wal-full", "--bench", "embedded", "--cycles", "100000", "--out", out}
	p := start(t, nil, args...)
	folder := filepath.Join(out, "wal-full")
	await(t, "a cycle", func() bool { return cutsOf(t, folder) > 0 || over(p) })
	_, errs, code := plugpull(t, nil, args...)
	assert.Equal(t, 2, code)
	assert.Contains(t, errs, "holds a run already")
	_, errs, code = plugpull(t, nil, "run", "--resume", out)
	assert.Equal(t, 2, code)
	assert.Contains(t, errs, "another plugpull is running this run")
	require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
	assert.Equal(t, 3, p.wait(t), p.err.String())
}

// TestEmbeddedAsAnOrdinaryUser: without a home, and with one that may not be written.
func TestEmbeddedAsAnOrdinaryUser(t *testing.T) {
	t.Parallel()
	const nobody = 65534
	if os.Getuid() != 0 {
		testskip.Skip(t, "needs root to become another user")
	}
	// The folders of TestMain and of this test are root's.
	dir, err := os.MkdirTemp("/tmp", "plugpull-e2e-user-")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	b, err := os.ReadFile(binary)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "plugpull"), b, 0o755))
	require.NoError(t, os.Chmod(dir, 0o755))
	for name, env := range map[string][]string{"no home": {}, "readonly home": {"HOME=/proc/1"}} {
		out := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
		require.NoError(t, os.Mkdir(out, 0o755))
		require.NoError(t, os.Chown(out, nobody, nobody))
		c := exec.Command(filepath.Join(dir, "plugpull"), "run", "wal-full-torn", "truncate-full", "--bench", "embedded", "--cycles", "3", "--json")
		c.Dir, c.Env = out, append([]string{"PATH=/usr/bin:/bin"}, env...)
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, Pdeathsig: syscall.SIGKILL}
		p := startCommand(t, c)
		assert.Zero(t, p.wait(t), "%s: %s", name, &p.err)
		for _, s := range summaries(t, p.out.String()) {
			assert.Equal(t, "durable", s.Verdict)
			assert.True(t, strings.HasPrefix(s.Folder, "plugpull-"), "below the working folder")
		}
	}
}

// TestInterruptEmbedded: Ctrl-C ends the cycle under way in order, in the control too.
func TestInterruptEmbedded(t *testing.T) {
	t.Parallel()
	whole := runEmbedded(t, "wal-full-torn", 25, 3).one(t)
	for _, where := range []string{"control", ""} {
		out := t.TempDir()
		folder := filepath.Join(out, "wal-full-torn")
		p := start(t, nil, "run", "wal-full-torn", "--bench", "embedded", "--cycles", "25", "--seed", "3", "--out", out, "--json")
		await(t, "a step", func() bool { return journal(filepath.Join(folder, where)) != "" || over(p) })
		require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
		code := p.wait(t)
		require.Equal(t, 3, code, "%s: %s\n%s", where, &p.out, &p.err)
		assert.Contains(t, p.err.String(), "ending in order")
		assert.Contains(t, p.err.String(), "plugpull run --resume "+out)
		assert.NotContains(t, p.err.String(), "context canceled")
		r := resume(t, out)
		assert.Zero(t, r.code, r.stderr)
		s := r.one(t)
		assert.Equal(t, "durable", s.Verdict)
		assert.Equal(t, 25, s.Cycles.Counted)
		assert.Equal(t, whole.Commits.Acked, s.Commits.Acked, "no cut was made twice, and none left out")
	}
}

// TestTwoEmbeddedRunsAtOnce: in two processes the same seed gives the same, and neither disturbs the other.
func TestTwoEmbeddedRunsAtOnce(t *testing.T) {
	t.Parallel()
	seed := drawSeed(t)
	for _, scenario := range []string{"small-cache-flush-ignored", "misdirected-write", "wal-transfer-torn"} {
		var runs [2]*proc
		for i := range runs {
			runs[i] = start(t, nil, "run", scenario, "--bench", "embedded", "--cycles", "8", "--seed", fmt.Sprint(seed), "--out", t.TempDir(), "--json")
		}
		var s [2]summary
		for i, p := range runs {
			r := finish(t, p, 0)
			s[i] = r.one(t)
			if scenario == "wal-transfer-torn" {
				assert.Zero(t, r.code, "seed %d: %s", seed, r.stderr)
				assert.Zero(t, s[i].findings(), "seed %d: an honest drive was accused", seed)
			} else { // a rare fault may pass so few cuts by
				assert.Contains(t, []int{0, 1}, r.code, "%s, seed %d: %s", scenario, seed, r.stderr)
			}
		}
		for n := 1; n <= 8; n++ {
			assert.Equal(t, readCycle(t, s[0].Folder, n), readCycle(t, s[1].Folder, n), "%s, seed %d, cycle %d", scenario, seed, n)
		}
		s[1].Folder = s[0].Folder
		assert.Equal(t, s[0], s[1], "%s, seed %d", scenario, seed)
	}
}

// TestWithoutATemporaryFolder: a host that has no room for the WAL index is no evidence against the drive.
func TestWithoutATemporaryFolder(t *testing.T) {
	t.Parallel()
	tmp, out := t.TempDir(), t.TempDir()
	p := startEmbedded(t, tmp, out, "wal-full", 100000, 2)
	await(t, "a cycle", func() bool { return cutsOf(t, filepath.Join(out, "wal-full")) > 0 || over(p) })
	// plugpull makes and removes folders in it meanwhile, so that one attempt may fail.
	await(t, "the folder to be gone", func() bool {
		return os.RemoveAll(tmp) == nil
	})
	code := p.wait(t)
	assert.Contains(t, []int{2, 4}, code, &p.err)
	assert.Contains(t, p.err.String(), tmp)
	s := summaries(t, p.out.String())[0]
	assert.Equal(t, "inconclusive", s.Verdict)
	assert.Zero(t, s.findings())
}
