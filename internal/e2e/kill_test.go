package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// killAfter kills a process some time from now, unless it ends before. It reports whether
// it was killed.
func (p *proc) killAfter(t testing.TB, d time.Duration) bool {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.ended:
		return false
	case <-timer.C:
	}
	if err := p.cmd.Process.Kill(); !errors.Is(err, os.ErrProcessDone) {
		require.NoError(t, err)
	}
	<-p.ended
	return p.cmd.ProcessState.ExitCode() == -1
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestKillRun(t *testing.T) {
	t.Parallel()
	killRun(t, 5, 4)
}

func TestLongKillRun(t *testing.T) {
	long(t)
	killRun(t, 50, 25)
}

// killRun kills plugpull run at random moments and carries it on each time.
func killRun(t *testing.T, kills, cycles int) {
	seed := drawSeed(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	m := newMachine(t)
	out := t.TempDir()
	folder := filepath.Join(out, "killed")
	scenario := m.scenario("killed", []string{"append", "transfer", "churn"}[rng.IntN(3)], "200ms..600ms")
	bench := m.bench(benchOpts{attest: "drive", leave: "as_found", silence: "500ms"})
	for i := range kills {
		p := startRun(t, out, folder, scenario, bench, cycles)
		if !p.killAfter(t, time.Duration(rng.Int64N(int64(2500*time.Millisecond)))) {
			require.Zero(t, p.cmd.ProcessState.ExitCode(), "seed %d, kill %d: %s", seed, i, &p.err)
			break // every cycle is done
		}
		// Before that, the run would find it off, and leave it so in the end.
		if rng.IntN(2) == 0 && strings.Contains(journal(folder), `"found"`) {
			m.power("off") // the server is gone as well
		}
		// A kill within its creation leaves a ledger of no length.
		if st, err := os.Stat(folder + "/ledger"); err == nil && st.Size() > 0 {
			checkLedgerShows(t, folder+"/ledger")
		}
	}
	r := finish(t, startRun(t, out, folder, scenario, bench, cycles), time.Duration(cycles)*10*time.Second)
	require.Zero(t, r.code, "seed %d: %s", seed, r.stderr)
	s := r.one(t)
	assert.Equal(t, "durable", s.Verdict, "seed %d", seed)
	assert.Equal(t, cycles, s.Cycles.Counted+s.Cycles.Inconclusive, "seed %d", seed)
	assert.Zero(t, s.findings(), "seed %d: an honest server was accused", seed)
	assert.Equal(t, "on", m.power("state"), "as it was found before the first kill")
	checkLedger(t, folder+"/ledger")
}

// startRun begins the run, or carries it on where it has begun.
func startRun(t testing.TB, out, folder, scenario, bench string, cycles int) *proc {
	t.Helper()
	if exists(folder + "/run.json") {
		return start(t, nil, "run", "--resume", out, "--json", "--stop-at-finding")
	}
	return start(t, nil, "run", scenario, "--bench", bench, "--out", out, "--json", "--stop-at-finding", "--cycles", fmt.Sprint(cycles))
}

// TestKillBetweenOffAndOn: its guard brings the power back, or who carries the run on.
func TestKillBetweenOffAndOn(t *testing.T) {
	for name, guard := range map[string]bool{"the guard lives": true, "the guard is killed too": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			out := t.TempDir()
			folder := filepath.Join(out, "killed")
			p := startRun(t, out, folder, m.scenario("killed", "churn", "200ms..300ms"), m.bench(benchOpts{attest: "drive", leave: "as_found", minOff: "2s"}), 1)
			awaitStep(t, folder, "off done")
			if !guard {
				for _, pid := range children(t, p.cmd.Process.Pid, "power-guard") {
					require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
				}
			}
			require.True(t, p.killAfter(t, 0), p.err.String())
			require.Equal(t, map[bool]string{true: "on", false: "off"}[guard], m.power("state"))
			r := resume(t, folder)
			require.Zero(t, r.code, r.stderr)
			s := r.one(t)
			assert.Equal(t, 1, s.Cycles.Counted)
			assert.Equal(t, 1, s.Cycles.Interrupted)
			assert.Zero(t, s.findings())
			assert.Equal(t, "on", m.power("state"))
		})
	}
}

func TestKillWhileRecording(t *testing.T) {
	t.Parallel()
	killWhileRecording(t, 2)
}

func TestLongKillWhileRecording(t *testing.T) {
	long(t)
	killWhileRecording(t, 40)
}

// killWhileRecording loses one acknowledged row in the first cycle and kills plugpull
// around the moment at which that is recorded, then whoever looks at what it
// left: in the end the row is counted exactly once.
func killWhileRecording(t *testing.T, rounds int) {
	seed := drawSeed(t)
	rng := rand.New(rand.NewPCG(seed, 2))
	m := newMachine(t)
	m.write("plant.sql", "DELETE FROM plugpull.append_1 WHERE stream = 1 AND seq = 1;\n")
	scenario, bench := m.scenario("planted", "append", "200ms..300ms"), m.bench(benchOpts{attest: "drive", silence: "500ms"})
	for round := range rounds {
		out := t.TempDir()
		folder := filepath.Join(out, "planted")
		p := start(t, nil, "run", scenario, "--bench", bench, "--out", out, "--json", "--cycles", "2", "--clean")
		for kill, file := range []string{"cycle.json", "interrupted.json"} {
			path := filepath.Join(folder, "cycles/0001", file)
			await(t, file, func() bool {
				return exists(path) || exists(folder+"/cycles/0002/cycle.json") || over(p)
			})
			p.killAfter(t, time.Duration(rng.Int64N(int64(20*time.Millisecond))))
			require.True(t, kill == 1 || p.cmd.ProcessState.ExitCode() == -1, "seed %d, round %d: it ended by itself: %s", seed, round, &p.err)
			checkLedgerShows(t, folder+"/ledger")
			if kill == 0 {
				p = start(t, nil, "run", "--resume", out, "--json")
			}
		}
		r := resume(t, out)
		require.Equal(t, 1, r.code, "seed %d, round %d: %s", seed, round, r.stderr)
		s := r.one(t)
		assert.Equal(t, "lossy", s.Verdict)
		assert.Equal(t, uint64(1), s.findings(), "seed %d, round %d: %v", seed, round, s.Findings)
		assert.Equal(t, uint64(1), s.Findings["lost_hole"], "seed %d, round %d", seed, round)
		assert.Equal(t, uint64(1), checkLedger(t, folder+"/ledger").findings)
	}
}

func over(p *proc) bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

func TestKillStream(t *testing.T) {
	t.Parallel()
	killStream(t, 5)
}

func TestLongKillStream(t *testing.T) {
	long(t)
	killStream(t, 50)
}

// killStream kills plugpull stream at random moments, some of them with the server, and
// continues the ledger each time.
func killStream(t *testing.T, kills int) {
	seed := drawSeed(t)
	rng := rand.New(rand.NewPCG(seed, 3))
	m := newMachine(t)
	path := filepath.Join(t.TempDir(), "ledger")
	args := append([]string{"stream", "--ledger", path, "--silence", "1s"}, m.byHand()...)
	first := append(args, "--profile", []string{"append", "transfer", "churn"}[rng.IntN(3)])
	begin := func() *proc {
		if exists(path) {
			return start(t, nil, args...)
		}
		return start(t, nil, first...)
	}
	for i := range kills {
		p := begin()
		p.killAfter(t, time.Duration(rng.Int64N(int64(900*time.Millisecond))))
		st, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case st.Size() == 0: // killed within its creation: nothing was recorded
			require.NoError(t, os.Remove(path))
		default:
			checkLedgerShows(t, path)
		}
		if rng.IntN(2) == 0 {
			m.power("off")
			m.power("on")
		}
		if rng.IntN(3) == 0 && exists(path) && readLedger(t, path).streams > 0 {
			out, errs, code := m.verify(t, path, "--wait", "30s")
			require.Equal(t, 3, code, "seed %d, kill %d: %s%s", seed, i, out, errs)
		}
		m.awaitServer(t)
	}
	before := int64(0)
	if st, err := os.Stat(path); err == nil {
		before = st.Size()
	}
	p := begin()
	awaitSize(t, path, before+64<<10)
	m.power("off")
	assert.Zero(t, p.wait(t), p.err.String())
	m.power("on")
	out, errs, code := m.verify(t, path, "--attest", "mains", "--wait", "30s", "--json")
	require.Zero(t, code, "seed %d: %s%s", seed, out, errs)
	s := ran{stdout: out}.one(t)
	assert.Equal(t, "durable", s.Verdict)
	assert.Zero(t, s.findings(), "seed %d: an honest server was accused", seed)
	checkLedger(t, path)
}

func (m *machine) verify(t testing.TB, path string, more ...string) (stdout, stderr string, code int) {
	t.Helper()
	return plugpull(t, nil, append(append([]string{"verify", "--ledger", path}, m.byHand()...), more...)...)
}

// awaitServer blocks until the server lets root in.
func (m *machine) awaitServer(t testing.TB) {
	t.Helper()
	db := root(t, m.server)
	await(t, "the server", func() bool {
		_, err := db.Exec("DO 1")
		return err == nil || strings.Contains(err.Error(), "Unknown database")
	})
}

func TestNothingGrowsOverCycles(t *testing.T) {
	t.Parallel()
	nothingGrows(t, 8)
}

func TestLongNothingGrowsOverCycles(t *testing.T) {
	long(t)
	nothingGrows(t, 60)
}

// nothingGrows samples memory and descriptors at the beginning of each cycle, and has the
// goroutines printed in the last.
func nothingGrows(t *testing.T, cycles int) {
	m := newMachine(t)
	out := t.TempDir()
	folder := filepath.Join(out, "again")
	p := startRun(t, out, folder, m.scenario("again", "append", "200ms"), m.bench(benchOpts{attest: "drive", silence: "500ms"}), cycles+1)
	var rss, fds []int
	for n := 1; n <= cycles; n++ {
		await(t, "a cycle", func() bool { return strings.Count(journal(folder), `"step":"off"`) >= n || over(p) })
		require.False(t, over(p), "%s", &p.err)
		rss, fds = append(rss, p.rss(t)), append(fds, p.descriptors(t))
	}
	t.Logf("RSS in KiB: %v; descriptors: %v", rss, fds)
	half := len(rss) / 2
	assert.LessOrEqual(t, slices.Min(fds[half:]), slices.Max(fds[:half]), "descriptors: %v", fds)
	assert.LessOrEqual(t, slices.Min(rss[half:]), slices.Max(rss[:half])+8<<10, "RSS in KiB: %v", rss)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGQUIT))
	<-p.ended
	// Those of the runtime itself vary; of ours each stream has one, and each session a few.
	own := bytes.Count(p.err.Bytes(), []byte("\ncreated by ")) - bytes.Count(p.err.Bytes(), []byte("\ncreated by runtime"))
	t.Logf("goroutines: %d", own)
	assert.Positive(t, own)
	assert.LessOrEqual(t, own, 20, "goroutines after %d cycles", cycles)
}

func (p *proc) rss(t testing.TB) (kib int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(b)) {
		if n, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); n == 1 && err == nil {
			return kib
		}
	}
	t.Fatal("no VmRSS")
	return 0
}

func (p *proc) descriptors(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	require.NoError(t, err)
	return len(list)
}
