package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"plugpull/internal/testskip"
)

// TestPersonAtTheSwitch drives the manual outlet: the machine is switched when plugpull
// asks for it, and only then confirmed.
func TestPersonAtTheSwitch(t *testing.T) {
	for name, open := range map[string]func(testing.TB) (in, answers *os.File){"by a pipe": pipe, "on a terminal": terminal} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			in, answers := open(t)
			w := watch(t, in, "run", m.scenario("by-hand", "append", "200ms..300ms"), "--cycles", "1", "--out", t.TempDir(), "--json",
				"--bench", m.bench(benchOpts{attest: "drive", manual: true, leave: "off", silence: "500ms"}))
			say := func(line string) {
				_, err := fmt.Fprintln(answers, line)
				require.NoError(t, err)
			}
			w.awaitSaid(">>> Switch ON NOW: relay of", 1)
			say("off") // no answer to this question
			w.awaitSaid("Not confirmed.", 1)
			say("on")
			w.awaitSaid(">>> Switch OFF NOW: relay of", 1)
			m.power("off")
			say("off")
			w.awaitSaid(">>> Switch ON NOW", 2)
			m.power("on")
			say("on")
			w.awaitSaid(">>> Switch OFF NOW", 2) // to be left off
			say("off")
			code := w.wait(t)
			require.Zero(t, code, w.said())
			s := summaries(t, w.out.String())[0]
			assert.Equal(t, "durable", s.Verdict)
			assert.Equal(t, "drive", s.Attested)
			checkLedger(t, filepath.Join(s.Folder, "ledger"))
		})
	}
}

// TestPersonWhoLeaves: the end of the input is no answer.
func TestPersonWhoLeaves(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	in, answers := pipe(t)
	require.NoError(t, answers.Close())
	w := watch(t, in, "run", m.scenario("alone", "append", "200ms..300ms"), "--cycles", "1", "--out", t.TempDir(),
		"--bench", m.bench(benchOpts{manual: true}))
	assert.Equal(t, 4, w.wait(t))
	assert.Contains(t, w.said(), "wait for the person to type on: EOF")
	assert.Contains(t, w.said(), "could not be left as configured")
}

func pipe(t testing.TB) (in, answers *os.File) {
	t.Helper()
	in, answers, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = in.Close(), answers.Close() })
	return in, answers
}

// terminal returns the two ends of a pseudo terminal.
func terminal(t testing.TB) (in, answers *os.File) {
	t.Helper()
	answers, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		testskip.Skip(t, "no pseudo terminals: %v", err)
	}
	t.Cleanup(func() { _ = answers.Close() })
	raw, err := answers.SyscallConn()
	require.NoError(t, err)
	var n int
	require.NoError(t, raw.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
			n, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	}))
	require.NoError(t, err)
	in, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = in.Close() })
	return in, answers
}
