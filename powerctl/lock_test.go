package powerctl

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const holderEnv = "PLUGPULL_TEST_HOLD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(holderEnv); dir != "" {
		os.Exit(hold(dir))
	}
	os.Exit(m.Run())
}

// hold is the other process: it takes the lock, says so and waits to be killed.
func hold(dir string) int {
	if _, err := acquireIn(dir, pdu); err != nil {
		os.Stderr.WriteString(err.Error())
		return 1
	}
	os.Stdout.WriteString("held\n")
	_, _ = os.Stdin.Read(make([]byte, 1))
	return 0
}

var pdu = Identity{Driver: "snmp", Device: "serial 4711", Part: "A3", Name: "A3"}

func lockFile(t *testing.T, dir string) string {
	found, err := filepath.Glob(filepath.Join(dir, "plugpull-outlet-*.lock"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	return found[0]
}

func TestLockKeepsTheSecondOut(t *testing.T) {
	dir := t.TempDir()
	first, err := acquireIn(dir, pdu)
	require.NoError(t, err)
	_, err = acquireIn(dir, pdu)
	var locked *LockedError
	require.ErrorAs(t, err, &locked)
	require.Equal(t, os.Getpid(), locked.PID)
	require.ErrorContains(t, err, `snmp outlet "A3" (serial 4711) is in use by process `)

	other, err := acquireIn(dir, Identity{Driver: "snmp", Device: "serial 4711", Part: "A4", Name: "A4"})
	require.NoError(t, err, "another outlet of the device is free")
	require.NoError(t, other.Release())

	require.NoError(t, first.Release())
	again, err := acquireIn(dir, pdu)
	require.NoError(t, err)
	require.NoError(t, again.Release())
}

func TestLockOfAKilledProcessIsFree(t *testing.T) {
	dir := t.TempDir()
	other := exec.Command(os.Args[0])
	other.Env = append(os.Environ(), holderEnv+"="+dir)
	stdin, err := other.StdinPipe()
	require.NoError(t, err)
	defer stdin.Close()
	stdout, err := other.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, other.Start())
	_, err = stdout.Read(make([]byte, 8))
	require.NoError(t, err)

	_, err = acquireIn(dir, pdu)
	var locked *LockedError
	require.ErrorAs(t, err, &locked)
	require.Equal(t, other.Process.Pid, locked.PID, "the error names the holder")

	require.NoError(t, other.Process.Kill())
	_ = other.Wait()
	l, err := acquireIn(dir, pdu)
	require.NoError(t, err)
	require.NoError(t, l.Release())
}

func TestLockNeverWritesOverAnotherFile(t *testing.T) {
	for name, plant := range map[string]func(path, victim string) error{
		"symbolic link": func(path, victim string) error { return os.Symlink(victim, path) },
		"hard link":     func(path, victim string) error { return os.Link(victim, path) },
		"other content": func(path, _ string) error { return os.WriteFile(path, []byte("precious"), 0o600) },
		"folder":        func(path, _ string) error { return os.Mkdir(path, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			l, err := acquireIn(dir, pdu)
			require.NoError(t, err)
			require.NoError(t, l.Release())
			path := lockFile(t, dir)
			require.NoError(t, os.Remove(path))
			victim := filepath.Join(dir, "victim")
			require.NoError(t, os.WriteFile(victim, []byte("precious"), 0o600))
			require.NoError(t, plant(path, victim))

			_, err = acquireIn(dir, pdu)
			require.Error(t, err)
			content, err := os.ReadFile(victim)
			require.NoError(t, err)
			require.Equal(t, "precious", string(content))
		})
	}
}

func TestLockSurvivesAHalfWrittenHolder(t *testing.T) {
	dir := t.TempDir()
	l, err := acquireIn(dir, pdu)
	require.NoError(t, err)
	require.NoError(t, l.Release())
	require.NoError(t, os.WriteFile(lockFile(t, dir), []byte(lockMagic[:9]), 0o666))
	l, err = acquireIn(dir, pdu)
	require.NoError(t, err)
	content, err := os.ReadFile(lockFile(t, dir))
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(content), lockMagic))
	require.NoError(t, l.Release())
}
