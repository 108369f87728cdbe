package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// watched is a running plugpull whose words can be read while it runs.
type watched struct {
	*proc
	t    testing.TB
	text string // the file with its standard error
}

// watch starts a plugpull; files given are its standard input and error.
func watch(t testing.TB, in *os.File, args ...string) *watched {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	c := command(t, nil, args...)
	p := &proc{cmd: c, ended: make(chan struct{})}
	c.Stdin, c.Stdout, c.Stderr = in, &p.out, f
	require.NoError(t, c.Start())
	go func() {
		_ = c.Wait() // the code is in ProcessState
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = c.Process.Kill()
		<-p.ended
	})
	return &watched{p, t, f.Name()}
}

func (w *watched) said() string {
	b, err := os.ReadFile(w.text)
	require.NoError(w.t, err)
	return string(b)
}

// awaitSaid blocks until standard error holds a text n times.
func (w *watched) awaitSaid(text string, n int) {
	w.t.Helper()
	await(w.t, text, func() bool { return strings.Count(w.said(), text) >= n || over(w.proc) })
	require.GreaterOrEqual(w.t, strings.Count(w.said(), text), n, "it ended without %q:\n%s", text, w.said())
}

func (w *watched) interrupt() { require.NoError(w.t, w.cmd.Process.Signal(os.Interrupt)) }

// awaitStep blocks until the journal has a step.
func awaitStep(t testing.TB, folder, step string) {
	t.Helper()
	await(t, "step "+step, func() bool { return strings.Contains(journal(folder), `"step":"`+step+`"`) })
}

// TestInterruptInEachPhase: the first Ctrl-C ends the cycle in order, the outlet is left as
// configured, and the run can be carried on to its planned end.
func TestInterruptInEachPhase(t *testing.T) {
	for _, tt := range []struct {
		phase   string
		leave   string
		off     bool // before the run
		wait    func(m *machine, w *watched, folder string)
		counted int // cycles of the interrupted process
		resume  bool
		state   string
	}{
		{phase: "load", leave: "off", resume: true, state: "off", wait: func(m *machine, w *watched, folder string) {
			awaitSize(m.t, filepath.Join(folder, "ledger"), 32<<10)
		}},
		{phase: "cut", leave: "on", state: "on", counted: 1, wait: func(m *machine, w *watched, folder string) { awaitStep(m.t, folder, "off") }},
		{phase: "silence", leave: "as_found", state: "on", counted: 1, wait: func(m *machine, w *watched, folder string) { awaitStep(m.t, folder, "off done") }},
		{phase: "restore", leave: "as_found", off: true, state: "off", counted: 1, resume: true, wait: func(m *machine, w *watched, folder string) { awaitStep(m.t, folder, "on") }},
		{phase: "verify", leave: "off", state: "off", counted: 1, wait: func(m *machine, w *watched, folder string) { w.awaitSaid("  verify  ", 1) }},
	} {
		t.Run(tt.phase, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.write("slow", "") // so that the phases can be met
			if tt.off {
				m.power("off")
				m.remove("off.count")
			}
			out := t.TempDir()
			after := "200ms..300ms"
			if tt.phase == "load" {
				after = "2s"
			}
			w := watch(t, nil, "run", m.scenario("cut-short", "append", after), "--cycles", "2", "--out", out, "--json",
				"--bench", m.bench(benchOpts{attest: "drive", leave: tt.leave, silence: "500ms"}))
			folder := filepath.Join(out, "cut-short")
			tt.wait(m, w, folder)
			w.interrupt()
			code := w.wait(t)
			assert.Equal(t, 3, code, w.said())
			assert.Contains(t, w.said(), "ending in order")
			assert.Contains(t, w.said(), "plugpull run --resume "+out)
			assert.NotContains(t, w.said(), "context canceled")
			s := summaries(t, w.out.String())[0]
			assert.Equal(t, tt.counted, s.Cycles.Counted)
			assert.Equal(t, 1-tt.counted, s.Cycles.Interrupted)
			assert.Equal(t, tt.state, m.power("state"))

			if !tt.resume {
				return
			}
			r := resume(t, out)
			assert.Zero(t, r.code, r.stderr)
			s = r.one(t)
			assert.Equal(t, "durable", s.Verdict)
			assert.Equal(t, 2, s.Cycles.Counted)
			assert.Equal(t, tt.state, m.power("state"))
			checkLedger(t, filepath.Join(folder, "ledger"))
		})
	}
}

// TestSecondInterruptAbandons: while the server does not come back the second Ctrl-C ends the
// wait, and the outlet is left as configured nevertheless.
func TestSecondInterruptAbandons(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.write("on.1", "touch $dir/dead")
	out := t.TempDir()
	w := watch(t, nil, "run", m.scenario("abandoned", "append", "200ms..300ms"), "--cycles", "2", "--out", out, "--json",
		"--bench", m.bench(benchOpts{attest: "drive", leave: "off", serverWait: "1h"}))
	awaitStep(t, filepath.Join(out, "abandoned"), "on done")
	w.interrupt()
	w.awaitSaid("ending in order", 1)
	w.interrupt()
	assert.Equal(t, 3, w.wait(t), w.said())
	assert.Contains(t, w.said(), "plugpull run --resume "+out)
	assert.Equal(t, "interrupted", summaries(t, w.out.String())[0].Reason)
	assert.Equal(t, "off", m.power("state"))

	m.remove("dead")
	r := resume(t, out)
	assert.Zero(t, r.code, r.stderr)
	assert.Equal(t, 2, r.one(t).Cycles.Counted)
	assert.Zero(t, r.one(t).findings())
}
