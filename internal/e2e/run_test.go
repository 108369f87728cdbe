package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/verifier"
)

// TestOutletFaults: an outlet that does not do what it says must never give a verdict,
// and what it did is named.
func TestOutletFaults(t *testing.T) {
	for _, tt := range []struct {
		name    string
		fault   func(*machine)
		watch   func(m *machine, folder string) // while it runs
		code    int
		reason  string
		says    []string // on stderr, or in the cycle's error
		state   string   // of the outlet afterwards
		offs    int
		leave   string
		wait    string // for the server
		noState bool
	}{
		{name: "off fails", code: 3, reason: "cut_failed", state: "on", offs: 1,
			fault: func(m *machine) { m.write("off-fails", "") },
			says:  []string{"relay of", "no answer from the relay"}},
		{name: "off does nothing", code: 3, reason: "cut_failed", state: "on", offs: 1,
			fault: func(m *machine) { m.write("off-ignored", "") },
			says:  []string{"relay of", `last read as on`}},
		{name: "off does nothing and nothing reads it", code: 3, reason: "still_alive", state: "on", offs: 1, noState: true,
			fault: func(m *machine) { m.write("off-ignored", "") }},
		{name: "off comes late", code: 3, reason: "still_alive", state: "on", offs: 1,
			fault: func(m *machine) { m.write("off-late", "") }},
		{name: "it reads off before the cut", code: 4, reason: "failed", state: "off",
			watch: func(m *machine, folder string) {
				await(m.t, "the load", func() bool { return strings.Contains(journal(folder), `"prepare"`) })
				m.write("says", "off")
			},
			says: []string{"was left on at", "now reads off: somebody else switches it", "could not be left as configured"}},
		{name: "on fails", code: 4, reason: "failed", state: "off", offs: 1,
			fault: func(m *machine) { m.write("on-fails", "") },
			says:  []string{"relay of", "switch it on", "fuse blown", "could not be left as configured", "--resume"}},
		{name: "it reads off for ever", code: 4, reason: "failed", state: "off",
			fault: func(m *machine) { m.write("says-always", "off") },
			says:  []string{"relay of", "switch it on", `last read as off`}},
		{name: "the server does not come back", code: 3, reason: "no_server", state: "off", offs: 2, leave: "off", wait: "2s",
			fault: func(m *machine) { m.write("on.1", "touch $dir/dead") },
			says:  []string{"does not answer", "--resume"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			if tt.fault != nil {
				tt.fault(m)
			}
			out := t.TempDir()
			p := start(t, nil, "run", m.scenario("faulty", "append", "200ms..400ms"), "--cycles", "1", "--out", out, "--json", "--bench",
				m.bench(benchOpts{attest: "drive", offDeadline: "1s", serverWait: tt.wait, silence: "500ms", leave: tt.leave, noState: tt.noState}))
			folder := filepath.Join(out, "faulty")
			if tt.watch != nil {
				tt.watch(m, folder)
			}
			r := finish(t, p, 0)
			assert.Equal(t, tt.code, r.code, "%s\n%s", r.stdout, r.stderr)
			s := r.one(t)
			assert.Equal(t, "inconclusive", s.Verdict)
			assert.Equal(t, tt.reason, s.Reason)
			assert.Zero(t, s.findings())
			for _, text := range tt.says {
				assert.Contains(t, r.stderr, text)
			}
			if tt.offs > 0 {
				assert.Positive(t, s.Commits.Acked)
			}
			assert.Equal(t, tt.offs, m.count("off"), "a command is never repeated")
			assert.Equal(t, tt.state, m.power("state"))
			checkLedgerShows(t, filepath.Join(folder, "ledger"))
		})
	}
}

func TestOutletThatCannotBeAskedIsNotSwitched(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.write("says-nothing", "")
	r := m.runOnce(t, "mute", benchOpts{})
	assert.Equal(t, 4, r.code)
	assert.Contains(t, r.stderr, "is this machine", "a ledger that loses power too proves nothing")
	assert.Contains(t, r.stderr, "relay of")
	assert.Contains(t, r.stderr, "identify: run bash: exit status 3")
	assert.Zero(t, m.count("off")+m.count("on"))
}

// TestPlantedLossIsCountedOnce: what the second restart finds gone is charged in the
// second cycle and never again.
func TestPlantedLossIsCountedOnce(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	// Also executed by the later starts, where there is nothing left to delete.
	m.write("on.2", `echo "DELETE FROM plugpull.append_1 WHERE stream = 1 AND seq = 1;" >"$dir/plant.sql"`)
	r := m.run(t, 4, 1, m.scenario("lossy", "append", "200ms..300ms", "verify:\n  last: 1\n  all_every: 2"), benchOpts{attest: "drive"})
	assert.Equal(t, 1, r.code, r.stderr)
	s := r.one(t)
	assert.Equal(t, "lossy", s.Verdict)
	assert.Equal(t, uint64(1), s.Findings["lost_hole"])
	assert.Equal(t, uint64(1), s.findings())
	assert.Equal(t, 1, s.Cycles.Lossy)
	assert.Equal(t, 4, s.Cycles.Counted)
	assert.Equal(t, uint64(1), readCycle(t, s.Folder, 2).Findings["lost_hole"])
	assert.Equal(t, uint64(1), checkLedger(t, filepath.Join(s.Folder, "ledger")).findings)
}

// TestDroppedTableBeginsAnEpoch: what cannot be read is charged whole, once, and the
// cycles after it work on new tables.
func TestDroppedTableBeginsAnEpoch(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.write("on.2", `echo "DROP TABLE IF EXISTS plugpull.transfer_b_1;" >"$dir/plant.sql"`)
	r := m.run(t, 4, 1, m.scenario("dropped", "transfer", "200ms..300ms"), benchOpts{attest: "drive"})
	assert.Equal(t, 1, r.code, r.stderr)
	s := r.one(t)
	assert.Equal(t, "lossy", s.Verdict)
	// Beside what was acknowledged, the unknown commits that the first cycle saw present.
	acked := readCycle(t, s.Folder, 1).Acked + readCycle(t, s.Folder, 2).Acked
	assert.GreaterOrEqual(t, s.Findings["unreadable"], acked)
	assert.LessOrEqual(t, s.Findings["unreadable"], acked+4)
	assert.Equal(t, s.Findings["unreadable"], s.findings())
	assert.Equal(t, 1, s.Cycles.Lossy)
	assert.Contains(t, readCycle(t, s.Folder, 2).Unreadable[0], "transfer_b")
	f := readLedger(t, filepath.Join(s.Folder, "ledger"))
	assert.Equal(t, uint64(2), f.epochs)
	assert.Equal(t, s.findings(), f.findings)
}

// cycleFile is what a test reads of cycles/NNNN/cycle.json.
type cycleFile struct {
	Acked      uint64
	Findings   map[string]uint64
	Unreadable []string
	Ends       map[string]int
}

func readCycle(t testing.TB, folder string, n int) (c cycleFile) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(folder, fmt.Sprintf("cycles/%04d/cycle.json", n)))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &c))
	return c
}

func TestSecondPlugpullIsRefused(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	out := t.TempDir()
	scenario, bench := m.scenario("locked", "append", "30s"), m.bench(benchOpts{})
	// As nohup starts it: then it outlives its terminal.
	c := command(t, nil, "run", scenario, "--bench", bench, "--out", out)
	c.Path, c.Args = "/bin/sh", append([]string{"sh", "-c", `trap "" HUP; exec "$@"`, "sh", binary}, c.Args[1:]...)
	first := startCommand(t, c)
	folder := filepath.Join(out, "locked")
	awaitSize(t, filepath.Join(folder, "ledger"), 64<<10)
	require.NoError(t, first.cmd.Process.Signal(syscall.SIGHUP))

	for name, tt := range map[string]struct {
		args []string
		says string
	}{
		"the folder, carried on":  {[]string{"run", "--resume", folder}, folder + ": another plugpull is running this run"},
		"the folder, for new":     {[]string{"run", scenario, "--bench", bench, "--out", out}, "holds a run already: carry it on with --resume " + folder},
		"the outlet":              {[]string{"run", scenario, "--bench", bench, "--out", t.TempDir()}, fmt.Sprintf("is in use by process %d on this machine", first.cmd.Process.Pid)},
		"the ledger, to stream":   {append([]string{"stream", "--ledger", folder + "/ledger"}, m.byHand()...), folder + "/ledger"},
		"the ledger, to verify":   {append([]string{"verify", "--ledger", folder + "/ledger"}, m.byHand()...), folder + "/ledger"},
		"no folder to carry on":   {[]string{"run", "--resume", t.TempDir()}, "no run.json in it"},
		"a folder and a scenario": {[]string{"run", scenario, "--resume", folder}, "give it alone"},
	} {
		_, errs, code := plugpull(t, nil, tt.args...)
		assert.Equal(t, 2, code, "%s: %s", name, errs)
		assert.Contains(t, errs, tt.says, name)
	}
	require.NoError(t, first.cmd.Process.Signal(os.Interrupt))
	assert.Equal(t, 3, first.wait(t), first.err.String())
	assert.Zero(t, m.count("off"))
	assert.Equal(t, 1, strings.Count(first.err.String(), "ending in order"))
}

// TestOtherMomentsOfTheCut: after a number of acknowledgements, and some time after the last.
func TestOtherMomentsOfTheCut(t *testing.T) {
	for name, tt := range map[string]struct {
		cut     string
		stopped bool
	}{
		"after acknowledgements": {"after_acks: 300", false},
		"idle":                   {"after: 200ms\n  idle: 300ms", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			path := m.scenario("moment", "transfer", "AFTER")
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			m.write("moment.yaml", strings.Replace(string(b), "after: AFTER", tt.cut, 1))
			r := m.run(t, 1, 1, path, benchOpts{attest: "drive", silence: "500ms"})
			assert.Zero(t, r.code, r.stderr)
			s := r.one(t)
			assert.Equal(t, 1, s.Cycles.Counted)
			assert.Zero(t, s.findings())
			ends := readCycle(t, s.Folder, 1).Ends
			if tt.stopped {
				assert.Equal(t, map[string]int{"stopped": 4}, ends)
			} else {
				assert.GreaterOrEqual(t, s.Commits.Acked, uint64(300))
				assert.Zero(t, ends["stopped"])
			}
		})
	}
}

// TestAFarewellContradictsAMainsCut: the server is killed and its host closes the
// connections, which a host without power does not.
func TestAFarewellContradictsAMainsCut(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	r := m.run(t, 1, 1, m.scenario("farewell", "append", "200ms..300ms"), benchOpts{attest: "mains", silence: "500ms"})
	assert.Equal(t, 3, r.code, r.stderr)
	s := r.one(t)
	assert.Zero(t, s.findings())
	assert.EqualValues(t, verifier.ReasonFarewell, s.Reason)
	ends := readCycle(t, s.Folder, 1).Ends
	assert.Positive(t, ends["fin"]+ends["rst"])
}

// byHand are the flags of the subcommands that take a DSN.
func (m *machine) byHand() []string {
	return []string{"--dsn", dsn(m.server, "plugpull"), "--password-file", filepath.Join(m.dir, "password")}
}

func TestSeveralScenarios(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	out := filepath.Join(t.TempDir(), "runs")
	o, errs, code := plugpull(t, nil, "run", m.scenario("zuerst", "append", "200ms..300ms"), m.scenario("danach", "transfer", "200ms..300ms"),
		"--bench", m.bench(benchOpts{attest: "drive"}), "--cycles", "1", "--out", out)
	require.Zero(t, code, "%s\n%s", o, errs)
	lines := strings.Split(o, "\n")
	assert.Regexp(t, `^scenario +cuts counted +acked +commits/s +lost +other +loss window +verdict +expected`, lines[0])
	assert.Regexp(t, `^zuerst +1 of 1 +\d+ +\d+ +0 +0 +- +durable +durable`, lines[1])
	assert.Regexp(t, `^danach +1 of 1 +\d+ +\d+ +0 +0 +- +durable +durable`, lines[2])
	// The tables of the first are gone before the second begins.
	var tables int
	require.NoError(t, root(t, m.server).QueryRow("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'plugpull' AND table_name LIKE 'append%'").Scan(&tables))
	assert.Zero(t, tables)

	r := resume(t, out)
	assert.Zero(t, r.code, r.stderr)
	assert.Len(t, summaries(t, r.stdout), 2)
	assert.Equal(t, 2, strings.Count(r.stderr, "complete already"))
	r = resume(t, filepath.Join(out, "danach"), "--cycles", "2")
	assert.Zero(t, r.code, r.stderr)
	assert.Equal(t, 2, r.one(t).Cycles.Counted)
	assert.Equal(t, 3, m.count("off"))
	// The first's tables are gone: it cannot go on, and nobody is accused of that.
	r = resume(t, filepath.Join(out, "zuerst"), "--cycles", "2")
	assert.Equal(t, 2, r.code, r.stderr)
	assert.Contains(t, r.stderr, "plugpull")
	assert.Equal(t, "inconclusive", r.one(t).Verdict)

	_, errs, code = plugpull(t, m.env(), "clean")
	require.Zero(t, code, errs)
	r = resume(t, filepath.Join(out, "danach"), "--cycles", "3")
	assert.Equal(t, 2, r.code, r.stderr)
	assert.Contains(t, r.stderr, "plugpull clean does")
	assert.Equal(t, "inconclusive", r.one(t).Verdict)
}

func (m *machine) env() []string { return dsnEnv(m.server) }

// runOnce runs one short cycle.
func (m *machine) runOnce(t testing.TB, name string, o benchOpts) ran {
	t.Helper()
	return m.run(t, 1, 1, m.scenario(name, "append", "200ms..300ms"), o)
}

// checkLedgerShows asserts that a ledger can be shown.
func checkLedgerShows(t testing.TB, path string) {
	t.Helper()
	out, errs, code := plugpull(t, nil, "ledger", "show", path)
	assert.Zero(t, code, "ledger show: %s", errs)
	assert.Contains(t, out, "# plugpull ledger, version 1")
}
