package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/workload"
	"plugpull/verifier"
)

func TestPlanted(t *testing.T) {
	t.Parallel()
	s := server(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *hand)
	}{
		{"append", func(t *testing.T, h *hand) { planted(t, h, workload.Append, plantAppend) }},
		{"transfer", func(t *testing.T, h *hand) { planted(t, h, workload.Transfer, plantTransfer) }},
		{"churn", func(t *testing.T, h *hand) { planted(t, h, workload.Churn, plantChurn) }},
		{"the tail of a single stream", tailOfOne},
		{"a dropped table", droppedTable},
		{"a dropped half", droppedHalf},
		{"a dropped schema", droppedSchema},
		{"a schema, run or server that is not the ledger's", notTheLedgers},
		{"a bad page", badPage},
	} {
		if !t.Run(test.name, func(t *testing.T) { test.run(t, newHand(t, s)) }) {
			t.Logf("the server's log ends:\n%s", s.Log(2000))
			restart(t, s)
		}
	}
}

// planted damages what survived of a real crash, and asks for exactly that damage.
func planted(t *testing.T, h *hand, p workload.Profile, plant func(*history)) {
	load := []string{"--streams", "8", "--profile", string(p), "--window", "16"}
	h.crash(t, 2000, load...)

	// The clean twin: the same ledger and the same rows.
	twin, code := h.verifyLedger(t, h.copyLedger(t), "--attest", "mains")
	require.Equal(t, asExpected, code)
	require.Zero(t, twin.Findings.Total())

	y := readHistory(t, h)
	plant(y)
	gone := y.tail(8, 5)
	window := y.charge(8, gone)

	rep, code := h.verify(t, "--attest", "mains")
	assert.Equal(t, notAsExpected, code)
	assert.Equal(t, "lossy", rep.Verdict)
	assert.Equal(t, y.want, rep.Findings)
	assert.InDelta(t, window.Seconds()*1e3, rep.LossWindowMS, 0.002)
	assert.Equal(t, h.acked(t), rep.Commits.Acked)

	out, _, code := plugpull(t, h.env, "verify", "--ledger", h.ledger)
	assert.Equal(t, notAsExpected, code, "what was found stays found")
	assert.Contains(t, out, "found by earlier verifications")
	assert.NotContains(t, out, "found now")

	h.crash(t, 1000, load...)
	rep, code = h.verify(t, "--attest", "mains")
	assert.Equal(t, notAsExpected, code)
	assert.Equal(t, y.want, rep.Findings, "nothing is counted twice, and the new session lost nothing")
	assert.EqualValues(t, 0, rep.Cycles.Lossy)
}

func plantAppend(y *history) {
	const t = workload.TableAppend
	for s := workload.Stream(1); s <= 7; s++ {
		y.remove(t, s, y.at(s, 0.5))
	}
	for s := workload.Stream(1); s <= 3; s++ {
		y.spoil(t, s, y.at(s, 0.25))
	}
	// The next session will come upon the first of these.
	y.put(t, 2, y.reserved[2]+3, 1)
	y.put(t, 99, 1, 1)
	y.want = verifier.Counts{LostHole: 7, Corrupt: 3, Phantom: 2}
}

func plantTransfer(y *history) {
	for s := workload.Stream(1); s <= 7; s++ {
		y.remove(workload.TableA, s, y.at(s, 0.5))
		y.remove(workload.TableB, s, y.at(s, 0.5))
	}
	y.spoil(workload.TableA, 1, y.at(1, 0.25))
	y.spoil(workload.TableA, 2, y.at(2, 0.25))
	y.spoil(workload.TableB, 3, y.at(3, 0.25))
	y.remove(workload.TableA, 4, y.at(4, 0.75))
	y.remove(workload.TableA, 5, y.at(5, 0.75))
	y.remove(workload.TableB, 6, y.at(6, 0.75))
	y.remove(workload.TableB, 7, y.at(7, 0.75))
	y.put(workload.TableHead, 1, y.at(1, 0.9), 1)
	y.put(workload.TableHead, 4, y.at(4, 0.9), 1)
	y.put(workload.TableA, 3, y.reserved[3]+1_000_000, 1)
	y.put(workload.TableB, 3, y.reserved[3]+1_000_000, 1)
	y.put(workload.TableA, 99, 1, 1)
	y.want = verifier.Counts{LostHole: 7, Corrupt: 3, Torn: 4, Stale: 2, Phantom: 2}
}

// With W = 16 and N the last acknowledged number, keys above N−16 have version
// 1, those above N−32 version 2, and older ones are deleted.
func plantChurn(y *history) {
	const t = workload.TableChurn
	for s := workload.Stream(1); s <= 7; s++ {
		y.remove(t, s, y.last(s)-28)
	}
	for s := workload.Stream(1); s <= 3; s++ {
		y.spoil(t, s, y.last(s)-24)
	}
	for s := workload.Stream(4); s <= 5; s++ {
		y.put(t, s, y.last(s)-24, 1)
	}
	for s := workload.Stream(6); s <= 7; s++ {
		require.False(y.t, y.there(t, s, y.last(s)-38))
		y.put(t, s, y.last(s)-38, 2)
	}
	y.put(t, 3, y.reserved[3]+1_000_000, 1)
	y.put(t, 99, 1, 1)
	y.want = verifier.Counts{LostHole: 7, Corrupt: 3, Stale: 2, Resurrected: 2, Phantom: 2}
}

// Nothing else was sent after them, so all five are the tail, and the loss window
// is the time between their acknowledgements.
func tailOfOne(t *testing.T, h *hand) {
	h.crash(t, 200, "--streams", "1")
	y := readHistory(t, h)
	gone := y.tail(1, 5)

	out, _, code := plugpull(t, h.env, "verify", "--ledger", h.copyLedger(t))
	assert.Equal(t, notAsExpected, code)
	assert.Contains(t, out, "found now: 5 lost_tail")
	assert.Regexp(t, fmt.Sprintf(`lost_tail: stream 1, commits %d to %d \(5\) of session 1, acknowledged at 20[0-9 :.-]+, \S+ before the last acknowledgement`,
		gone[0].seq, gone[4].seq), out)
	assert.Contains(t, out, "loss window: ")
	assert.Contains(t, out, fmt.Sprintf("verdict: lossy: 5 of %d acknowledged commits lost, 0 other findings", h.acked(t)))

	rep, code := h.verify(t)
	assert.Equal(t, notAsExpected, code)
	assert.Equal(t, verifier.Counts{LostTail: 5}, rep.Findings)
	assert.InDelta(t, gone[4].answered.Sub(gone[0].answered).Seconds()*1e3, rep.LossWindowMS, 0.002)
}

func droppedTable(t *testing.T, h *hand) {
	h.crash(t, 1000)
	acked := h.acked(t)
	_, err := root(t, h.Server).Exec("DROP TABLE append_1")
	require.NoError(t, err)
	for range 2 {
		rep, code := h.verify(t, "--attest", "mains")
		assert.Equal(t, notAsExpected, code)
		assert.Equal(t, verifier.Counts{Unreadable: acked}, rep.Findings)
	}

	// The next session writes new tables, which are judged by themselves.
	h.crash(t, 1000)
	require.Greater(t, h.acked(t), acked)
	assert.GreaterOrEqual(t, h.count(t, "SELECT COUNT(*) FROM append_2"), h.acked(t)-acked)
	rep, code := h.verify(t, "--attest", "mains")
	assert.Equal(t, notAsExpected, code)
	assert.Equal(t, verifier.Counts{Unreadable: acked}, rep.Findings)
	y := readHistory(t, h)
	y.remove(workload.TableAppend, 1, y.at(1, 0.5))
	rep, _ = h.verify(t, "--attest", "mains")
	assert.Equal(t, verifier.Counts{Unreadable: acked, LostHole: 1}, rep.Findings, "the new tables are looked at")
}

func droppedHalf(t *testing.T, h *hand) {
	h.crash(t, 500, "--profile", "transfer")
	_, err := root(t, h.Server).Exec("DROP TABLE transfer_b_1")
	require.NoError(t, err)
	rep, code := h.verify(t)
	assert.Equal(t, notAsExpected, code)
	assert.Equal(t, verifier.Counts{Unreadable: h.acked(t)}, rep.Findings)
}

func droppedSchema(t *testing.T, h *hand) {
	h.crash(t, 500)
	_, err := rootAt(t, h.Server, "").Exec("DROP DATABASE plugpull")
	require.NoError(t, err)
	rep, code := h.verify(t)
	assert.Equal(t, notAsExpected, code)
	assert.Equal(t, verifier.Counts{Unreadable: h.acked(t)}, rep.Findings)
}

// A wrong DSN is the person's mistake: nobody is accused, and nothing is recorded.
func notTheLedgers(t *testing.T, h *hand) {
	h.crash(t, 500)
	before, err := os.ReadFile(h.ledger)
	require.NoError(t, err)
	refused := func(env []string, says ...string) {
		t.Helper()
		out, errs, code := plugpull(t, env, "verify", "--json", "--ledger", h.ledger, "--attest", "mains", "--wait", "10s")
		assert.Equal(t, badUsage, code)
		assert.Empty(t, out, "no verdict")
		for _, s := range says {
			assert.Contains(t, errs, s)
		}
		after, err := os.ReadFile(h.ledger)
		require.NoError(t, err)
		assert.True(t, bytes.Equal(before, after), "the ledger is as it was")
	}
	refused([]string{"PLUGPULL_DSN=" + fmt.Sprintf("mysql://%s:%s@%s/elsewhere", user, password, h.Addr())},
		h.ledger, "schema plugpull", "schema elsewhere")

	other := server(t)
	refused(dsnEnv(other), "not the server that the ledger recorded", "datadir was", h.Datadir(), other.Datadir())

	// The same schema and server, but another run has taken it.
	_, err = rootAt(t, h.Server, "").Exec("DROP DATABASE plugpull")
	require.NoError(t, err)
	second := filepath.Join(t.TempDir(), "second")
	_, errs, code := plugpull(t, h.env, "stream", "--ledger", second, "--for", "50ms")
	require.Equal(t, asExpected, code, errs)
	y := readHistory(t, h)
	refused(h.env, "the schema plugpull holds run", y.p.Run.String(), h.ledger)
}

// What InnoDB does with a bad page is its own affair; that it is not durable is ours.
func badPage(t *testing.T, h *hand) {
	h.crash(t, 3000, "--payload", "400")
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	require.NoError(t, h.Stop(ctx)) // no redo is left that could mend the page
	spoilPage(t, filepath.Join(h.Datadir(), "plugpull", "append_1.ibd"))
	restart(t, h.Server)
	acked := h.acked(t)
	begin := time.Now()
	rep, code := h.verify(t, "--attest", "mains")
	t.Logf("%s %s %+v after %v", rep.Verdict, rep.Reason, rep.Findings, time.Since(begin))
	assert.NotEqual(t, "durable", rep.Verdict)
	if rep.Verdict == "lossy" {
		assert.Equal(t, notAsExpected, code)
		assert.Equal(t, verifier.Counts{Unreadable: rep.Findings.Unreadable}, rep.Findings, "no other class")
		assert.Positive(t, rep.Findings.Unreadable)
		assert.LessOrEqual(t, rep.Findings.Unreadable, acked)
	} else {
		assert.Equal(t, inconclusive, code)
	}
	restart(t, h.Server)
}

// spoilPage overwrites a part of a page in the middle of a tablespace.
func spoilPage(t *testing.T, path string) {
	t.Helper()
	const page = 16 << 10
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	// An index page (type 0x45BF at byte 24) that is in use, from the middle on.
	st, err := f.Stat()
	require.NoError(t, err)
	for n := st.Size() / page / 2; n >= 3; n-- {
		b := make([]byte, page)
		_, err := f.ReadAt(b, n*page)
		require.NoError(t, err)
		if b[24] == 0x45 && b[25] == 0xbf {
			for i := 4000; i < 4600; i++ {
				b[i] ^= 0xff
			}
			_, err = f.WriteAt(b, n*page)
			require.NoError(t, err)
			require.NoError(t, f.Sync())
			return
		}
	}
	t.Fatalf("%s has no index page", path)
}
