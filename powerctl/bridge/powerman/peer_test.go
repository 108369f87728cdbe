package powerman

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"plugpull/internal/testskip"
	"plugpull/powerctl"
)

// powermand runs PowerMan's own daemon with its virtual power controller of 16 plugs and
// returns its address. The alias t3 stands for two other nodes.
func powermand(t *testing.T) string {
	daemon, controller := testskip.Program(t, "powermand", "powerman"), testskip.Program(t, "vpcd", "powerman")
	const devices = "/etc/powerman/vpc.dev"
	spec, err := os.ReadFile(devices)
	if err != nil {
		testskip.Skip(t, "%v: apt-get install powerman", err)
	}
	// The same device, given up sooner.
	dead := strings.NewReplacer(`specification "vpc"`, `specification "dead"`, "5.0", "0.2").Replace(string(spec))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	dir := t.TempDir()
	conf := filepath.Join(dir, "powerman.conf")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "dead.dev"), []byte(dead), 0o600))
	require.NoError(t, os.WriteFile(conf, fmt.Appendf(nil, `include "%s"
include "%s/dead.dev"
tcpwrappers no
listen "%s"
alias "t3" "t[4-5]"
device "v0" "vpc" "%s |&"
device "v1" "dead" "/bin/cat |&"
node "t[0-15]" "v0" "[0-15]"
node "dead1" "v1" "1"
`, devices, dir, address, controller), 0o600))

	var said bytes.Buffer
	cmd := exec.Command(daemon, "-f", "-c", conf)
	cmd.Stdout, cmd.Stderr = &said, &said
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt) // it ends the controller on its way out
		kill := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		_ = cmd.Wait()
	})
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	}, 30*time.Second, 20*time.Millisecond, "powermand does not listen")
	return address
}

func peer(t *testing.T, address, node string) *Outlet {
	o, err := New(Config{Name: "server 1", Address: address, Node: node, Class: powerctl.Mains, Timeout: time.Minute, Pin: Pin{Device: "v0"}})
	require.NoError(t, err)
	return o
}

// client runs PowerMan's own client.
func client(t *testing.T, address string, args ...string) string {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, testskip.Program(t, "powerman", "powerman"), append([]string{"-h", address}, args...)...).CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

// TestPowermandAgrees: the driver and PowerMan's client see each other's work.
func TestPowermandAgrees(t *testing.T) {
	t.Parallel()
	address := powermand(t)
	o := peer(t, address, "t1")
	policy := powerctl.Policy{Deadline: time.Minute, Poll: 10 * time.Millisecond}
	row := func(word string) string {
		for _, line := range strings.Split(client(t, address, "-Q", "t1"), "\n") {
			if rest, ok := strings.CutPrefix(line, word); ok {
				return strings.TrimSpace(rest)
			}
		}
		return "no such row"
	}
	res, err := powerctl.SwitchOn(t.Context(), o, policy) // the virtual controller begins with everything off
	require.NoError(t, err)
	require.Equal(t, powerctl.Off, res.Before)
	require.Equal(t, "t1", row("on:"))
	res, err = powerctl.SwitchOff(t.Context(), o, policy)
	require.NoError(t, err)
	require.True(t, res.IsOff())
	require.NotZero(t, res.Acknowledged)
	require.Equal(t, "t1", row("off:"))
	require.Equal(t, "", row("on:"))

	client(t, address, "--on", "t1")
	res, err = o.State(t.Context())
	require.NoError(t, err)
	require.True(t, res.IsOn())
	require.Contains(t, res.Raw, "302 on:      t1")

	pins, err := o.Pins(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]string{"device": "v0"}, pins)
	id, err := o.Identify(t.Context())
	require.NoError(t, err)
	require.Equal(t, "device v0 type vpc node t1 at "+address, id.Device)
}

// TestPowermandAliasOfANode: "off t3" would switch t4 and t5.
func TestPowermandAliasOfANode(t *testing.T) {
	t.Parallel()
	address := powermand(t)
	client(t, address, "--on", "t[4-5]")
	res, err := peer(t, address, "t3").Off(t.Context())
	var ie *powerctl.IdentityError
	require.ErrorAs(t, err, &ie)
	require.Equal(t, "t[4-5]", ie.Got)
	require.ErrorIs(t, err, powerctl.ErrNotSent)
	require.Zero(t, res.Commanded)
	require.Contains(t, client(t, address, "-Q", "t[4-5]"), "on:      t[4-5]")
}

func TestPowermandRefuses(t *testing.T) {
	t.Parallel()
	address := powermand(t)
	_, err := peer(t, address, "nosuch").Off(t.Context())
	var re *ReplyError
	require.ErrorAs(t, err, &re)
	require.Equal(t, 209, re.Code)
	require.ErrorIs(t, err, powerctl.ErrNotSent)

	var ie *powerctl.IdentityError
	_, err = peer(t, address, "dead1").Off(t.Context()) // of another device than the pinned one
	require.ErrorAs(t, err, &ie)
	require.Equal(t, "v1", ie.Got)

	o := peer(t, address, "dead1")
	o.c.Pin.Device = "v1"
	res, err := o.State(t.Context())
	require.ErrorAs(t, err, &re)
	require.Equal(t, 211, re.Code)
	require.Equal(t, powerctl.Unknown, res.State)
	require.Contains(t, res.Raw, "302 unknown: dead1")
	_, err = o.Off(t.Context()) // it may be the reading that is broken: the command is tried
	require.ErrorAs(t, err, &re)
	require.Equal(t, 210, re.Code)
	require.NotErrorIs(t, err, powerctl.ErrNotSent)
}
