package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/powerctl"
)

// outletOnly is a machine that is switched and never started.
func outletOnly(t *testing.T) *machine {
	m := newMachine(t)
	m.power("off")
	m.write("dead", "")
	m.power("on")
	require.Equal(t, "on", m.power("state"))
	return m
}

// TestProcessesRaceForOneOutlet: each either switches it alone, or is refused and sends nothing.
func TestProcessesRaceForOneOutlet(t *testing.T) {
	t.Parallel()
	m := outletOnly(t)
	bench := m.bench(benchOpts{minOff: "0s"})
	before := m.count("off") + m.count("on")
	var wg sync.WaitGroup
	var mu sync.Mutex
	done, refused := 0, 0
	for i := range 12 {
		op := []string{"off", "on"}[i%2]
		wg.Go(func() {
			out, errs, code := plugpull(t, nil, "power", op, bench)
			mu.Lock()
			defer mu.Unlock()
			switch code {
			case 0:
				done++
				assert.Contains(t, out, "state         "+op)
			case 2:
				refused++
				assert.Contains(t, errs, "is in use by")
			default:
				t.Errorf("exit code %d: %s%s", code, out, errs)
			}
		})
	}
	wg.Wait()
	require.Equal(t, 12, done+refused)
	require.NotZero(t, done)
	require.Equal(t, done, m.count("off")+m.count("on")-before, "who was refused sent nothing")
}

// TestGuardLeavesTheOutletAsConfigured: the outlet ends as configured although nobody is left to switch it.
func TestGuardLeavesTheOutletAsConfigured(t *testing.T) {
	for _, leave := range []string{"on", "off", "as_found"} {
		t.Run(leave, func(t *testing.T) {
			t.Parallel()
			m := outletOnly(t)
			bench := m.bench(benchOpts{leave: leave})
			p := start(t, nil, "power", "verify-wiring", bench, "--witness", "command:true", "--dark", "1m")
			require.Eventually(t, func() bool { return m.power("state") == "off" }, limit, 10*time.Millisecond)
			require.NoError(t, p.cmd.Process.Kill())
			<-p.ended
			want := map[string]string{"on": "on", "off": "off", "as_found": "on"}[leave]
			awaitHolder(t, bench, func(r *powerctl.Record) bool { return r != nil && r.Owner == "" })
			require.Equal(t, want, m.power("state"))
			if want == "on" {
				require.Contains(t, p.err.String(), "was killed: outlet")
				require.Contains(t, p.err.String(), "is on, as it was to be left")
			}
			// The next one finds nothing in its way.
			_, errs, code := plugpull(t, nil, "power", "on", bench)
			require.Zero(t, code, errs)
		})
	}
}

// TestKillOfTheGuardToo: nobody is left, and the next one says what is not known.
func TestKillOfTheGuardToo(t *testing.T) {
	t.Parallel()
	m := outletOnly(t)
	bench := m.bench(benchOpts{})
	p := start(t, nil, "power", "verify-wiring", bench, "--witness", "command:true", "--dark", "1m")
	require.Eventually(t, func() bool { return m.power("state") == "off" }, limit, 10*time.Millisecond)
	for _, pid := range children(t, p.cmd.Process.Pid, "power-guard") {
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	require.NoError(t, p.cmd.Process.Kill())
	<-p.ended
	out, errs, code := plugpull(t, nil, "power", "status", bench)
	require.Zero(t, code, errs)
	require.Contains(t, out, "nobody: ")
	require.Contains(t, out, "ended without giving it back; it was to leave it on")
	require.Equal(t, "off", m.power("state"))
	_, errs, code = plugpull(t, nil, "power", "on", bench)
	require.Zero(t, code, errs)
	require.Equal(t, "on", m.power("state"))
}

// TestPDUThatGoesAwayWhileOff: the error says that the outlet may be off, and what was tried.
func TestPDUThatGoesAwayWhileOff(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.write("on.1", `touch "$dir/on-fails" "$dir/off-fails"; echo nobody answers >"$dir/says-always"; echo "no route to the PDU" >&2; exit 1`)
	r := m.run(t, 2, 1, m.scenario("gone", "append", "200ms..300ms"), benchOpts{attest: "drive", offDeadline: "500ms"})
	require.Equal(t, 4, r.code, r.stderr)
	require.Contains(t, r.stderr, "switch it on")
	require.Contains(t, r.stderr, "the commanded state was not read back")
	require.Contains(t, r.stderr, "fuse blown")
	for _, s := range summaries(t, r.stdout) {
		require.Zero(t, s.findings(), "a PDU that is gone loses no commit")
		require.NotEqual(t, "durable", s.Verdict)
	}
	require.Equal(t, 1, m.count("off"))
	m.remove("on-fails")
	m.remove("says-always")
}

// TestSomebodyElseSwitches: a run stops when its outlet is not as it left it.
func TestSomebodyElseSwitches(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.write("meddled", "")
	r := m.run(t, 3, 1, m.scenario("shared", "append", "200ms..300ms"), benchOpts{attest: "drive", minOff: "3s"})
	require.Equal(t, 4, r.code, r.stderr)
	require.Contains(t, r.stderr, "was left off at")
	require.Contains(t, r.stderr, "somebody else switches it")
	for _, s := range summaries(t, r.stdout) {
		require.NotEqual(t, "durable", s.Verdict)
		require.Zero(t, s.findings())
	}
	require.Equal(t, 1, m.count("off"))
}

func awaitHolder(t *testing.T, bench string, is func(*powerctl.Record) bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		out, _, _ := plugpull(t, nil, "power", "status", bench, "--json")
		var st struct{ Record *powerctl.Record }
		return json.Unmarshal([]byte(out), &st) == nil && is(st.Record)
	}, limit, 50*time.Millisecond)
}

// children returns the processes of a parent whose command line holds a word.
func children(t *testing.T, parent int, word string) (pids []int) {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	require.NoError(t, err)
	for _, list := range lists {
		b, _ := os.ReadFile(list) // a thread may have ended
		for _, f := range strings.Fields(string(b)) {
			line, _ := os.ReadFile("/proc/" + f + "/cmdline")
			pid, err := strconv.Atoi(f)
			require.NoError(t, err)
			if strings.Contains(string(line), word) {
				pids = append(pids, pid)
			}
		}
	}
	require.NotEmpty(t, pids)
	return pids
}
