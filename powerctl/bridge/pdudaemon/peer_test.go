package pdudaemon

import (
	"bytes"
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

// TestLongPdudaemonAgrees runs pdudaemon itself over a PDU that is a command. The package brings
// twenty others, so that this is not for every run:
// PLUGPULL_LONG=1 go test -run TestLong ./powerctl/bridge/pdudaemon
func TestLongPdudaemonAgrees(t *testing.T) {
	t.Parallel()
	if os.Getenv("PLUGPULL_LONG") == "" {
		t.Skip("needs the package pdudaemon: make test-long")
	}
	program := testskip.Program(t, "pdudaemon", "pdudaemon")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().(*net.TCPAddr)
	require.NoError(t, l.Close())
	dir := t.TempDir()
	done := filepath.Join(dir, "done")
	conf := filepath.Join(dir, "pdudaemon.conf")
	require.NoError(t, os.WriteFile(conf, fmt.Appendf(nil, `{
		"daemon": {"hostname": "127.0.0.1", "port": %d, "listener": "http"},
		"pdus": {
			"pdu1": {"driver": "localcmdline", "cmd_on": "echo on %%s >>%s", "cmd_off": "echo off %%s >>%s"},
			"dead": {"driver": "localcmdline", "cmd_on": "exit 1; %%s", "cmd_off": "exit 1; %%s"}
		}}`, address.Port, done, done), 0o600))
	var said bytes.Buffer
	cmd := exec.Command(program, "--conf", conf, "--listener", "http")
	cmd.Stdout, cmd.Stderr = &said, &said
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		kill := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(said.String())
		}
	})
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", address.String())
		if err != nil {
			return false
		}
		return conn.Close() == nil
	}, time.Minute, 50*time.Millisecond, "pdudaemon does not listen")

	outlet := func(pdu string) *Outlet {
		o, err := New(Config{Name: "server 7", URL: "http://" + address.String(), PDU: pdu, Port: 3, Class: powerctl.Mains, Timeout: time.Minute})
		require.NoError(t, err)
		return o
	}
	_, err = outlet("pdu1").Off(t.Context())
	require.NoError(t, err)
	_, err = outlet("pdu1").On(t.Context())
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		b, _ := os.ReadFile(done)
		return strings.ReplaceAll(string(b), "\n", ";") == "off 3;on 3;"
	}, time.Minute, 20*time.Millisecond)

	// What the package says of it: a PDU that fails is answered for as one that works.
	res, err := outlet("dead").Off(t.Context())
	require.NoError(t, err)
	require.NotZero(t, res.Acknowledged)

	_, err = outlet("nosuch").Off(t.Context())
	var ae *AnswerError
	require.ErrorAs(t, err, &ae)
	require.Equal(t, 500, ae.Code)
	require.NotErrorIs(t, err, powerctl.ErrNotSent)
}
