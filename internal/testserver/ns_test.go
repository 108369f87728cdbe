package testserver

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A prefix puts the server into a network namespace of its own, where the
// loopback address is not this one's.
func TestPrefix(t *testing.T) {
	NeedMariaDB(t)
	if _, err := exec.LookPath("ip"); err != nil || os.Getuid() != 0 {
		t.Skip("needs root and ip(8); to run it: sudo -E go test ./internal/testserver")
	}
	ns := "pp-ts-" + strconv.Itoa(os.Getpid())
	if out, err := exec.Command("ip", "netns", "add", ns).CombinedOutput(); err != nil {
		t.Skipf("network namespaces cannot be made here: %v: %s", err, out)
	}
	defer func() { require.NoError(t, exec.Command("ip", "netns", "del", ns).Run()) }()
	require.NoError(t, exec.Command("ip", "netns", "exec", ns, "ip", "link", "set", "lo", "up").Run())
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := Start(ctx, Options{Dir: t.TempDir(), Prefix: []string{"ip", "netns", "exec", ns}})
	require.NoError(t, err)
	defer s.Close()
	require.True(t, greets(ctx, s.Socket()))
	require.False(t, taken("127.0.0.1", s.Port()), "it listens in its own namespace only")
	exe, err := os.Readlink("/proc/" + strconv.Itoa(s.PID()) + "/exe")
	require.NoError(t, err)
	require.Contains(t, exe, "mariadbd", "the prefix execs: the process is the server itself")
	require.NoError(t, s.Kill())
}
