package ledger

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"plugpull/internal/workload"
)

// childLedger names the ledger that a child process writes: this test binary
// again, see runChild.
const childLedger = "PLUGPULL_TEST_LEDGER"

// TestMain runs the child in place of the tests where the environment asks for it.
func TestMain(m *testing.M) {
	if path := os.Getenv(childLedger); path != "" {
		runChild(context.Background(), path)
		return
	}
	os.Exit(m.Run())
}

// runChild is what the crash tests kill: as a child it continues a ledger and prints each
// number that is durable, until it is killed.
func runChild(ctx context.Context, path string) {
	w, st, err := Open(path)
	if err != nil {
		fmt.Println("error:", err)
		return
	}
	for n := st.Reserved[1] + 1; ; {
		for range rand.IntN(50) + 1 {
			if _, err := w.Append(acked(n)); err != nil {
				fmt.Println("error:", err)
				return
			}
			n++
		}
		if err := w.Sync(ctx); err != nil {
			fmt.Println("error:", err)
			return
		}
		fmt.Println("durable", uint64(n-1))
	}
}

func child(t *testing.T, path string) (*exec.Cmd, *bufio.Scanner) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childLedger+"="+path)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	return cmd, bufio.NewScanner(out)
}

// A writer that is killed at any moment loses nothing that it has confirmed,
// and leaves a ledger that the next one continues.
func TestKilledWriter(t *testing.T) {
	w, path := create(t)
	require.NoError(t, w.Close())
	for range 5 {
		cmd, out := child(t, path)
		var kill *time.Timer // set once the child writes
		var durable workload.Seq
		for out.Scan() {
			n, err := strconv.ParseUint(strings.TrimPrefix(out.Text(), "durable "), 10, 64)
			require.NoError(t, err, out.Text())
			if kill == nil {
				kill = time.AfterFunc(rand.N(100*time.Millisecond), func() { cmd.Process.Kill() }) //nolint:errcheck // Wait tells
			}
			durable = workload.Seq(n)
		}
		require.NotNil(t, kill, "the child confirmed nothing")
		require.Error(t, cmd.Wait(), "it was not killed")

		got := readFile(t, path)
		require.GreaterOrEqual(t, len(got), int(durable), "a confirmed record is gone")
		for i, r := range got {
			require.Equal(t, acked(workload.Seq(i+1)), r)
		}
	}
}

func TestOneWriterOfAllProcesses(t *testing.T) {
	w, path := create(t)
	cmd, out := child(t, path)
	require.True(t, out.Scan())
	require.Contains(t, out.Text(), "error: ledger "+path+": another plugpull writes this ledger")
	for out.Scan() { // what the test binary says at its end
		continue
	}
	require.NoError(t, cmd.Wait())
	require.NoError(t, w.Close())
}

// A full disk ends the writer by name and leaves what was confirmed.
func TestFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounts a small tmpfs: run it as root, sudo -E go test -run TestFullDisk ./internal/ledger")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("root may not mount a tmpfs here (%v): run it outside of the container", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })

	path := filepath.Join(dir, "ledger")
	w, err := Create(path, testRun, testBoot, testConfig())
	require.NoError(t, err)
	confirmed := workload.Seq(0)
	for n := workload.Seq(1); err == nil; n++ {
		if _, err = w.Append(acked(n)); err == nil && n%100 == 0 {
			if err = w.Sync(t.Context()); err == nil {
				confirmed = n
			}
		}
	}
	require.ErrorIs(t, err, unix.ENOSPC)
	require.ErrorContains(t, err, path)
	require.ErrorContains(t, err, "make room")
	require.ErrorIs(t, w.Close(), unix.ENOSPC)

	_, err = Create(path+"2", testRun, testBoot, testConfig())
	require.ErrorIs(t, err, unix.ENOSPC)
	require.NoFileExists(t, path+"2")

	got := readFile(t, path)
	require.NotZero(t, confirmed)
	require.GreaterOrEqual(t, len(got), int(confirmed))

	// With room again the same ledger goes on.
	require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, "size=1m"))
	w, st, err := Open(path)
	require.NoError(t, err)
	require.Equal(t, workload.Seq(len(got)), st.Reserved[1])
	_, err = w.Append(acked(st.Reserved[1] + 1))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.Len(t, readFile(t, path), len(got)+1)
}
