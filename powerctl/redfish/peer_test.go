package redfish

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"plugpull/internal/testskip"
	"plugpull/powerctl"
)

// client runs a program that is another client of Redfish, and skips the test
// where it is missing.
func client(t *testing.T, program, pkg string, args ...string) (output string, code int) {
	t.Helper()
	path := testskip.Program(t, program, pkg)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || !cmd.ProcessState.Exited() {
		t.Fatalf("%s: %v", program, err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// agree lets the driver and another client switch in turn and look at each other's work.
func agree(t *testing.T, s *service, status func() string, off func()) {
	o := s.outlet(t, nil)
	long := powerctl.Policy{Deadline: time.Minute, Poll: time.Millisecond}
	_, err := powerctl.SwitchOff(t.Context(), o, long)
	require.NoError(t, err)
	require.Contains(t, status(), "off")
	_, err = powerctl.SwitchOn(t.Context(), o, long)
	require.NoError(t, err)
	require.Contains(t, status(), "on")
	off()
	res, err := o.State(t.Context())
	require.NoError(t, err)
	require.True(t, res.IsOff())
	require.Equal(t, []powerctl.State{powerctl.Off, powerctl.On, powerctl.Off}, s.device.Commands())
}

// TestRedfishtoolAgrees: the simulated service is Redfish to the DMTF's own tool.
func TestRedfishtoolAgrees(t *testing.T) {
	t.Parallel()
	for _, auth := range []string{"Basic", "Session"} {
		t.Run(auth, func(t *testing.T) {
			t.Parallel()
			s := startService(t)
			u, err := url.Parse(s.URL)
			require.NoError(t, err)
			run := func(args ...string) string {
				base := []string{"-r", u.Host, "-u", simUser, "-p", simPassword, "-S", "Always", "-A", auth, "Systems", "-L", systemPath}
				out, code := client(t, "redfishtool", "redfishtool", append(base, args...)...)
				require.Zero(t, code, out)
				return strings.ToLower(out)
			}
			require.Contains(t, run("get"), strings.ToLower(simSerial))
			agree(t, s, func() string { return powerState(run("get")) }, func() { run("reset", "ForceOff") })
			require.Empty(t, s.open)
		})
	}
}

// powerState returns the value of PowerState in a printed resource.
func powerState(text string) string {
	_, rest, _ := strings.Cut(text, `"powerstate": "`)
	word, _, _ := strings.Cut(rest, `"`)
	return word
}

// fence-agents brings a hundred other packages with it, so that this is not for every run:
// PLUGPULL_LONG=1 go test -run TestLong ./powerctl/redfish
func TestLongFenceRedfishAgrees(t *testing.T) {
	t.Parallel()
	if os.Getenv("PLUGPULL_LONG") == "" {
		t.Skip("needs the package fence-agents: make test-long")
	}
	s := startService(t)
	u, err := url.Parse(s.URL)
	require.NoError(t, err)
	run := func(action string) (string, int) {
		return client(t, "fence_redfish", "fence-agents", "--ip", u.Hostname(), "--ipport", u.Port(), "--ssl-insecure",
			"--username", simUser, "--password", simPassword, "--systems-uri", systemPath, "--action", action)
	}
	agree(t, s, func() string {
		out, code := run("status")
		require.Contains(t, []int{0, 2}, code, out) // 2: off
		return strings.ToLower(out)
	}, func() {
		out, code := run("off")
		require.Zero(t, code, out)
	})
}
