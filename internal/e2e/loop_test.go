package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/testskip"
)

// loopScenario writes a scenario of the loop bench; more are further lines.
func loopScenario(t testing.TB, name, profile string, more ...string) string {
	t.Helper()
	text := fmt.Sprintf("scenario: %s\nsummary: a test\nexpect: durable\nbench: [loop]\nload:\n  profile: %s\n  streams: 4\ncut:\n  after: 200ms..400ms\ncycles: 3\nwitness: true\n", name, profile)
	path := filepath.Join(t.TempDir(), name+".yaml")
	require.NoError(t, os.WriteFile(path, []byte(text+strings.Join(more, "\n")+"\n"), 0o600))
	return path
}

// left lists what loop benches whose process is gone have left on this machine: folders, loop
// devices, servers. Other tests have benches of their own at the same time.
func left(t testing.TB) (list []string) {
	t.Helper()
	var lines []string
	for _, dir := range []string{"/dev/shm", os.TempDir()} {
		dirs, err := filepath.Glob(filepath.Join(dir, "plugpull-loop-*"))
		require.NoError(t, err)
		lines = append(lines, dirs...)
	}
	loops, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	require.NoError(t, err)
	for _, path := range loops {
		if b, err := os.ReadFile(path); err == nil && strings.HasSuffix(strings.TrimSpace(string(b)), "/drive") {
			lines = append(lines, path+" "+string(b))
		}
	}
	out, _ := exec.Command("pgrep", "-af", "plugpull-loop-").Output()
	lines = append(lines, strings.Split(strings.TrimSpace(string(out)), "\n")...)
	for _, line := range lines {
		if line != "" && !strings.Contains(line, "pgrep") && !ownerLives(line) {
			list = append(list, line)
		}
	}
	return list
}

var benchFolder = regexp.MustCompile(`/[^ ]*/plugpull-loop-[0-9]+`)

// ownerLives reports whether the bench whose folder a line names is locked by its process.
func ownerLives(line string) bool {
	f, err := os.Open(benchFolder.FindString(line) + "/lock")
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}

// nothingLeft waits until what a killed process had is gone; it takes the kernel a moment.
func nothingLeft(t testing.TB) {
	t.Helper()
	await(t, "everything of the loop bench to be gone", func() bool { return len(left(t)) == 0 })
}

func TestLoopRun(t *testing.T) {
	testskip.LoopBench(t)
	out := t.TempDir()
	r := finish(t, start(t, nil, "run", loopScenario(t, "first", "append"), "--bench", "loop", "--out", out, "--json", "--seed", "3"), time.Minute)
	require.Zero(t, r.code, r.stderr)
	s := r.one(t)
	assert.Equal(t, "durable", s.Verdict, s.Reason)
	assert.Zero(t, s.findings())
	assert.Equal(t, 3, s.Cycles.Counted+s.Cycles.Inconclusive)
	assert.Contains(t, r.stdout, `"control":{"kind":"flush-ignored"`)
	assert.Contains(t, r.stdout, `"stack":"ext4, cache on"`)
	checkLedger(t, filepath.Join(out, "first/ledger"))
	nothingLeft(t)
}

// Two at the same time do not meet.
func TestLoopTwoAtOnce(t *testing.T) {
	testskip.LoopBench(t)
	var procs []*proc
	for _, fs := range []string{"ext4", "xfs"} {
		procs = append(procs, start(t, nil, "run", loopScenario(t, "two-"+fs, "append", "filesystem:", "  type: "+fs, "control:", "  fault: none"),
			"--bench", "loop", "--out", t.TempDir(), "--json"))
	}
	for _, p := range procs {
		r := finish(t, p, time.Minute)
		require.Zero(t, r.code, r.stderr)
		s := r.one(t)
		assert.Zero(t, s.findings())
		assert.Equal(t, 3, s.Cycles.Counted+s.Cycles.Inconclusive)
	}
	nothingLeft(t)
}

func TestKillLoop(t *testing.T) {
	testskip.LoopBench(t)
	killLoop(t, 4, 4)
}

func TestLongKillLoop(t *testing.T) {
	long(t)
	testskip.LoopBench(t)
	killLoop(t, 20, 15)
}

// killLoop kills plugpull at random moments: the machine is as before, and the run is carried
// on without a false finding.
func killLoop(t *testing.T, kills, cycles int) {
	seed := drawSeed(t)
	rng := rand.New(rand.NewPCG(seed, 4))
	out := t.TempDir()
	folder := filepath.Join(out, "killed")
	scenario := loopScenario(t, "killed", []string{"append", "transfer", "churn"}[rng.IntN(3)],
		"filesystem:", "  type: "+[]string{"ext4", "xfs", "btrfs"}[rng.IntN(3)], "control:", "  fault: none",
		// A slow flush: plugpull itself is then often waiting for its own drive when it is killed.
		"drive:", "  flush_latency: 2ms")
	for i := range kills {
		p := startRun(t, out, folder, scenario, "loop", cycles)
		if !p.killAfter(t, time.Duration(rng.Int64N(int64(5*time.Second)))) {
			require.Zero(t, p.cmd.ProcessState.ExitCode(), "seed %d, kill %d: %s", seed, i, &p.err)
			break
		}
		// The folder is the one thing that a kill leaves; the next run takes it away.
		await(t, "mounts, loop devices and servers to be gone", func() bool {
			return !slices.ContainsFunc(left(t), func(s string) bool { return !strings.HasPrefix(s, "/dev/shm/") })
		})
		if st, err := os.Stat(folder + "/ledger"); err == nil && st.Size() > 0 {
			checkLedgerShows(t, folder+"/ledger")
		}
	}
	r := finish(t, startRun(t, out, folder, scenario, "loop", cycles), time.Duration(cycles)*10*time.Second)
	require.Zero(t, r.code, "seed %d: %s", seed, r.stderr)
	s := r.one(t)
	assert.Equal(t, "durable", s.Verdict, "seed %d: %s", seed, s.Reason)
	assert.Equal(t, cycles, s.Cycles.Counted+s.Cycles.Inconclusive, "seed %d", seed)
	assert.Zero(t, s.findings(), "seed %d: an honest drive was accused", seed)
	checkLedgerShows(t, folder+"/ledger")
	nothingLeft(t)
}

// TestLoopMachineFails: what the machine lacks or refuses is said, and is never a finding.
func TestLoopMachineFails(t *testing.T) {
	testskip.LoopBench(t)
	for _, c := range []struct {
		name string
		more []string // of the scenario
		via  []string // put before the command
		tmp  bool     // the run's folder lies on a tmpfs of 24 MiB
		// public: the run's folder lies where everybody may write.
		public bool
		code   int
		says   []string
	}{
		{name: "not root", public: true, code: 2, says: []string{"needs root", "embedded bench"},
			via: []string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"}},
		{name: "no fuse device", code: 4, says: []string{"/dev/fuse"},
			via: []string{"unshare", "-m", "--propagation", "private", "bash", "-c", `mount --bind /dev/null /dev/fuse && exec "$@"`, "bash"}},
		{name: "no server", more: []string{"server:", "  binary: /nowhere/mariadbd"}, code: 2, says: []string{"/nowhere/mariadbd", "apt-get install"}},
		{name: "no mkfs", more: []string{"filesystem:", "  type: xfs"}, code: 2, says: []string{"mkfs.xfs", "xfsprogs"},
			via: []string{"unshare", "-m", "--propagation", "private", "bash", "-c",
				`for p in $(type -ap mkfs.xfs); do mount --bind /dev/null "$(readlink -f "$p")"; done; exec "$@"`, "bash"}},
		{name: "wrong mount option", more: []string{"filesystem:", "  mount: [frobnicate]"}, code: 1, says: []string{"frobnicate"}},
		{name: "wrong mkfs option", more: []string{"filesystem:", "  mkfs: [--frobnicate]"}, code: 2, says: []string{"frobnicate"}},
		{name: "no room for the image", more: []string{"drive:", "  image: file"}, tmp: true, code: 4, says: []string{"no space left"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := t.TempDir()
			if c.public {
				out = readable(t)
			}
			if c.tmp {
				require.NoError(t, syscall.Mount("tmpfs", out, "tmpfs", 0, "size=24m"))
				t.Cleanup(func() { require.NoError(t, syscall.Unmount(out, 0)) })
			}
			scenario := loopScenario(t, "fails", "append", append(c.more, "control:", "  fault: none")...)
			public := readable(t, binary, scenario)
			cmd := command(t, nil, "run", filepath.Join(public, filepath.Base(scenario)), "--bench", "loop", "--out", filepath.Join(out, "o"), "--json")
			if c.via != nil {
				if _, err := exec.LookPath(c.via[0]); err != nil {
					testskip.Skip(t, "no %s", c.via[0])
				}
				cmd.Args = append(slices.Clone(c.via), append([]string{filepath.Join(public, "plugpull")}, cmd.Args[1:]...)...)
				cmd.Path, _ = exec.LookPath(c.via[0])
			}
			r := finish(t, startCommand(t, cmd), 30*time.Second)
			assert.Equal(t, c.code, r.code, "%s%s", r.stdout, r.stderr)
			for _, want := range c.says {
				assert.Contains(t, r.stdout+r.stderr, want)
			}
			for _, s := range summaries(t, r.stdout) {
				assert.Zero(t, s.findings(), "a finding that is none")
				assert.NotEqual(t, "durable", s.Verdict)
			}
			nothingLeft(t)
		})
	}
}

// readable copies files into a folder where everybody may write, read and run them.
func readable(t testing.TB, paths ...string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "plugpull-public-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o777))
	for _, path := range paths {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(path)), b, 0o755))
	}
	return dir
}

func TestLoopNothingGrows(t *testing.T) {
	testskip.LoopBench(t)
	loopNothingGrows(t, 8)
}

func TestLongLoopNothingGrows(t *testing.T) {
	long(t)
	testskip.LoopBench(t)
	loopNothingGrows(t, 200)
}

// loopNothingGrows samples memory, descriptors, threads and FUSE connections at each cut.
func loopNothingGrows(t *testing.T, cycles int) {
	out := t.TempDir()
	folder := filepath.Join(out, "again")
	p := startRun(t, out, folder, loopScenario(t, "again", "append", "control:", "  fault: none"), "loop", cycles+1)
	var rss, fds, threads []int
	for n := 1; n <= cycles; n++ {
		await(t, "a cycle", func() bool { return strings.Count(journal(folder), `"step":"off"`) >= n || over(p) })
		require.False(t, over(p), "%s", &p.err)
		rss, fds, threads = append(rss, p.rss(t)), append(fds, p.descriptors(t)), append(threads, p.threads(t))
	}
	r := finish(t, p, time.Duration(cycles)*5*time.Second)
	require.Zero(t, r.code, r.stderr)
	assert.Zero(t, r.one(t).findings())
	t.Logf("RSS in KiB: %v; descriptors: %v; threads: %v", rss, fds, threads)
	half := len(fds) / 2
	assert.LessOrEqual(t, slices.Min(fds[half:]), slices.Max(fds[:half]), "descriptors: %v", fds)
	// The Go runtime makes a thread whenever too many are blocked, and keeps it: some come and stay,
	// but not one for each cycle.
	quarter := len(threads) / 4
	assert.LessOrEqual(t, median(threads[3*quarter:]), median(threads[:quarter])+8, "threads: %v", threads)
	// The drive's contents are in memory, and each block that is written for the first time
	// is one more, up to its size.
	const drive = 512 << 10
	assert.LessOrEqual(t, slices.Max(rss), 2*drive, "RSS in KiB: %v", rss)
	nothingLeft(t)
}

func median(list []int) int {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}

func (p *proc) threads(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/task")
	require.NoError(t, err)
	return len(list)
}
