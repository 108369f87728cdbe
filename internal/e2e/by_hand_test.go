package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/ledger"
	"plugpull/internal/report"
	"plugpull/internal/testserver"
	"plugpull/internal/workload"
	"plugpull/verifier"
)

// The exit codes, as the help names them.
const (
	asExpected    = 0
	notAsExpected = 1
	badUsage      = 2
	inconclusive  = 3
)

// hand is a person's half of the experiment: one server and one ledger.
type hand struct {
	*testserver.Server
	env    []string
	ledger string
}

// newHand begins afresh on a server: no schema, no ledger.
func newHand(t *testing.T, s *testserver.Server) *hand {
	t.Helper()
	_, err := rootAt(t, s, "").Exec("DROP DATABASE IF EXISTS plugpull")
	require.NoError(t, err)
	return &hand{s, dsnEnv(s), filepath.Join(t.TempDir(), "ledger")}
}

// load streams until the ledger has grown by so many acknowledged commits.
func (h *hand) load(t *testing.T, commits int64, args ...string) *proc {
	t.Helper()
	before := int64(0)
	if st, err := os.Stat(h.ledger); err == nil {
		before = st.Size()
	}
	p := start(t, h.env, append([]string{"stream", "--ledger", h.ledger, "--silence", "5s"}, args...)...)
	const head = 100 // records before the first commit, at most
	awaitGrown(t, p, h.ledger, before+64*(head+commits))
	return p
}

// awaitGrown blocks until the ledger has so many bytes, or fails with what plugpull said.
func awaitGrown(t *testing.T, p *proc, path string, size int64) {
	t.Helper()
	await(t, "commits in "+path, func() bool {
		select {
		case <-p.ended:
			t.Fatalf("plugpull ended before its time:\n%s%s", &p.out, &p.err)
		default:
		}
		st, err := os.Stat(path)
		return err == nil && st.Size() >= size
	})
}

// crash kills the server under the load, waits for plugpull to notice and restarts.
func (h *hand) crash(t *testing.T, commits int64, args ...string) {
	t.Helper()
	p := h.load(t, commits, args...)
	require.NoError(t, h.Kill())
	require.Equal(t, asExpected, p.wait(t), "%s%s", &p.out, &p.err)
	assert.Contains(t, p.out.String(), "plugpull verify --ledger '"+h.ledger+"'", "says what to type next")
	restart(t, h.Server)
}

// verify runs plugpull verify --json.
func (h *hand) verify(t *testing.T, args ...string) (report.Run, int) {
	t.Helper()
	return h.verifyLedger(t, h.ledger, args...)
}

func (h *hand) verifyLedger(t *testing.T, path string, args ...string) (report.Run, int) {
	t.Helper()
	out, errs, code := plugpull(t, h.env, append([]string{"verify", "--json", "--wait", "30s", "--ledger", path}, args...)...)
	var rep report.Run
	require.NoError(t, json.Unmarshal([]byte(out), &rep), "%s%s", out, errs)
	assert.Equal(t, 1, strings.Count(out, "\n"), "one object, one line")
	return rep, code
}

// copyLedger returns a copy, whose verification leaves the ledger as it is.
func (h *hand) copyLedger(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(h.ledger)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "copy")
	require.NoError(t, os.WriteFile(path, b, 0o600))
	return path
}

// acked counts the acknowledged commits in the ledger, by reading it record by record.
func (h *hand) acked(t *testing.T) (n uint64) {
	t.Helper()
	records(t, h.ledger, func(r *ledger.Record) {
		if r.Kind == ledger.KindOutcome && ledger.Outcome(r.Code) == ledger.Acked {
			n++
		}
	})
	return n
}

func records(t *testing.T, path string, each func(*ledger.Record)) {
	t.Helper()
	r, err := ledger.OpenReader(path)
	require.NoError(t, err)
	defer r.Close()
	var rec ledger.Record
	for {
		ok, err := r.Next(&rec)
		require.NoError(t, err)
		if !ok {
			return
		}
		each(&rec)
	}
}

func (h *hand) count(t *testing.T, query string) (n uint64) {
	t.Helper()
	require.NoError(t, root(t, h.Server).QueryRow(query).Scan(&n))
	return n
}

func TestByHand(t *testing.T) {
	t.Parallel()
	s := server(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *hand)
	}{
		{"kill -9 under eight streams", killed},
		{"each profile survives", profiles},
		{"two sessions on one ledger", twoSessions},
		{"streams that were stopped", streamsStopped},
		{"a clean shutdown is no power cut", cleanShutdown},
		{"no server", noServer},
		{"show and clean", showAndClean},
	} {
		if !t.Run(test.name, func(t *testing.T) { test.run(t, newHand(t, s)) }) {
			t.Logf("the server's log ends:\n%s", s.Log(2000))
			// What comes next finds a running server, whatever happened.
			restart(t, s)
		}
	}
}

func killed(t *testing.T, h *hand) {
	h.crash(t, 3000, "--streams", "8")
	acked := h.acked(t)
	require.GreaterOrEqual(t, h.count(t, "SELECT COUNT(*) FROM append_1"), acked, "the server kept its word, so no finding may accuse it")

	rep, code := h.verify(t)
	assert.Equal(t, inconclusive, code)
	assert.Equal(t, "inconclusive", rep.Verdict)
	assert.Equal(t, verifier.ReasonProcessCrash, rep.Reason)
	assert.Zero(t, rep.Findings.Total())
	assert.Equal(t, acked, rep.Commits.Acked)
	assert.Equal(t, report.Cycles{Planned: 1, Inconclusive: 1}, rep.Cycles)

	rep, code = h.verify(t, "--attest", "mains")
	assert.Equal(t, asExpected, code)
	assert.Equal(t, "durable", rep.Verdict)
	assert.Equal(t, "mains", rep.Attested)
	assert.Empty(t, rep.Reason)
	assert.Zero(t, rep.Findings.Total())
	assert.Equal(t, report.Cycles{Planned: 1, Counted: 1}, rep.Cycles)
	assert.InDelta(t, 0.95, rep.Bound.MaxLossRate, 1e-9, "one cut without a loss excludes next to nothing")

	out, _, code := plugpull(t, h.env, "verify", "--ledger", h.ledger, "--attest", "drive")
	assert.Equal(t, asExpected, code)
	assert.Contains(t, out, "attested by you: the drive alone lost power")
	assert.Contains(t, out, "verdict: durable: no finding in 1 cut of")
	assert.Contains(t, out, "at most 95% of cuts")
	assert.Contains(t, out, "without a control")
	hasEveryKey(t, h)
}

// hasEveryKey checks the object's keys as promised to those who parse it.
func hasEveryKey(t *testing.T, h *hand) {
	out, _, _ := plugpull(t, h.env, "verify", "--json", "--ledger", h.ledger)
	var got map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	for key, inner := range map[string]string{
		"schema": "", "run": "", "scenario": "", "bench": "", "seed": "", "verdict": "", "expected": "", "loss_window_ms": "",
		"cycles":   "planned counted inconclusive",
		"commits":  "acked refused unknown per_second",
		"findings": "lost_tail lost_hole torn corrupt stale resurrected phantom unreadable",
		"bound":    "confidence max_loss_rate",
		"control":  "kind lost cuts",
	} {
		require.Contains(t, got, key)
		for _, k := range strings.Fields(inner) {
			assert.Contains(t, got[key], k, key)
		}
	}
	assert.EqualValues(t, 1, got["schema"])
}

func profiles(t *testing.T, h *hand) {
	for _, p := range workload.Profiles() {
		if p == workload.Append {
			continue // it has a test of its own
		}
		h := newHand(t, h.Server)
		h.crash(t, 1500, "--profile", string(p), "--streams", "4", "--window", "16")
		rep, code := h.verify(t, "--attest", "mains")
		assert.Equal(t, asExpected, code, p)
		assert.Zero(t, rep.Findings.Total(), p)
		assert.Equal(t, h.acked(t), rep.Commits.Acked, p)
	}
}

func twoSessions(t *testing.T, h *hand) {
	h.crash(t, 1000, "--streams", "8", "--payload", "10..20")
	first := h.acked(t)
	_, errs, code := plugpull(t, h.env, "stream", "--ledger", h.ledger, "--profile", "churn")
	assert.Equal(t, badUsage, code)
	assert.Contains(t, errs, "--profile churn: the ledger "+h.ledger+" is of profile append")

	// Fewer streams and no flags: profile and payload come from the ledger.
	h.crash(t, 1000, "--streams", "3")
	both := h.acked(t)
	assert.Greater(t, both, first)
	rep, code := h.verify(t, "--attest", "mains")
	assert.Equal(t, asExpected, code)
	assert.Equal(t, both, rep.Commits.Acked)
	assert.Zero(t, rep.Findings.Total())
	assert.EqualValues(t, 8, h.count(t, "SELECT COUNT(DISTINCT stream) FROM append_1"))
	assert.LessOrEqual(t, h.count(t, "SELECT MAX(LENGTH(payload)) FROM append_1"), uint64(20))
}

func streamsStopped(t *testing.T, h *hand) {
	out, errs, code := plugpull(t, h.env, "stream", "--ledger", h.ledger, "--for", "300ms")
	require.Equal(t, asExpected, code, errs)
	assert.Contains(t, out, "The streams were stopped, so a cut after this proves nothing.")

	rep, code := h.verify(t, "--attest", "mains")
	assert.Equal(t, inconclusive, code)
	assert.Equal(t, verifier.ReasonNotRestarted, rep.Reason, "a buffer pool answers, whatever is attested")

	restart(t, h.Server)
	rep, code = h.verify(t, "--attest", "mains")
	assert.Equal(t, inconclusive, code)
	assert.Equal(t, verifier.ReasonStreamsStopped, rep.Reason)
	assert.Zero(t, rep.Findings.Total())
}

// MariaDB closes its connections at an orderly shutdown without a word, exactly as a
// kill -9 does; MySQL says 1053. So the streams alone cannot always tell, and a person
// who attests is told what speaks against it.
func cleanShutdown(t *testing.T, h *hand) {
	p := h.load(t, 1000)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	require.NoError(t, h.Stop(ctx))
	require.Equal(t, asExpected, p.wait(t))
	restart(t, h.Server)
	rep, code := h.verify(t)
	assert.Equal(t, inconclusive, code, "%s", &p.out)
	assert.Contains(t, []verifier.Reason{verifier.ReasonCleanShutdown, verifier.ReasonProcessCrash}, rep.Reason)
	assert.Zero(t, rep.Findings.Total())

	out, _, _ := plugpull(t, h.env, "verify", "--ledger", h.ledger, "--attest", "mains")
	if rep.Reason == verifier.ReasonCleanShutdown {
		assert.Contains(t, out, "inconclusive (clean_shutdown)")
	} else {
		assert.Contains(t, out, "8 of 8 streams were told that their connection was over (fin, rst)")
		assert.Contains(t, out, "make sure that the server was not shut down in order")
	}
}

func noServer(t *testing.T, h *hand) {
	p := h.load(t, 500)
	require.NoError(t, h.Kill())
	require.Equal(t, asExpected, p.wait(t))
	rep, code := h.verify(t, "--wait", "300ms", "--attest", "mains")
	assert.Equal(t, inconclusive, code)
	assert.Equal(t, verifier.ReasonNoServer, rep.Reason)
	assert.Zero(t, rep.Findings.Total(), "nobody is accused of what nobody could look at")

	restart(t, h.Server)
	rep, code = h.verify(t, "--attest", "mains")
	assert.Equal(t, asExpected, code)
	assert.Equal(t, "durable", rep.Verdict)
}

func showAndClean(t *testing.T, h *hand) {
	_, errs, code := plugpull(t, h.env, "stream", "--ledger", h.ledger, "--for", "100ms", "--streams", "2")
	require.Equal(t, asExpected, code, errs)
	out, errs, code := plugpull(t, nil, "ledger", "show", h.ledger)
	require.Equal(t, asExpected, code, errs)
	assert.Equal(t, h.acked(t), uint64(strings.Count(out, "  acked ")-strings.Count(out, "not sent")))
	assert.Contains(t, out, `"profile":"append"`)
	assert.Contains(t, out, "stopped  last sent")
	assert.NotContains(t, out, password)

	out, errs, code = plugpull(t, h.env, "clean")
	assert.Equal(t, asExpected, code, errs)
	assert.Equal(t, "dropped the schema plugpull\n", out)
	var n int
	require.NoError(t, rootAt(t, h.Server, "").QueryRow("SELECT COUNT(*) FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = 'plugpull'").Scan(&n))
	assert.Zero(t, n)
	_, errs, code = plugpull(t, h.env, "clean")
	assert.Equal(t, asExpected, code, "nothing to drop is no error: %s", errs)
}

// The user of all these tests has what the help says and nothing more.
func TestHelpNamesTheGrantOfTheseTests(t *testing.T) {
	t.Parallel()
	for _, c := range []string{"stream", "verify", "run"} {
		out, _, code := plugpull(t, nil, c, "--help")
		assert.Equal(t, asExpected, code)
		assert.Contains(t, out, grant+";", c)
	}
}
