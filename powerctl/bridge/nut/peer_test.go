package nut

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"plugpull/internal/testskip"
	"plugpull/powerctl"
	"plugpull/powerctl/powertest"
)

// driver stands in for a driver of NUT's: upsd connects to its socket, where it tells variables
// and gets commands (docs/sock-protocol.txt). The powertest device is behind outlet 3.
type driver struct {
	device *powertest.Device
	dir    string
	l      net.Listener
	done   chan struct{}
	all    sync.WaitGroup

	mu     sync.Mutex
	silent bool // it tells nothing and answers no ping
	got    []string
}

func (d *driver) change(f func(*driver)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d)
}

func (d *driver) commands() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.got...)
}

const driverVariables = `SETINFO device.serial "SN \"4711\""
SETINFO device.mfr "Maker"
SETINFO device.model "PDU \#24"
SETINFO ups.status "OL"
SETINFO outlet.3.desc "server 7"
SETINFO outlet.3.switchable "yes"
SETINFO outlet.3.timer.start "-1"
SETINFO outlet.4.status "off"
SETINFO driver.parameter.pollinterval "2"
ADDCMD outlet.3.load.off
ADDCMD outlet.3.load.on
ADDCMD outlet.3.load.cycle
`

// serve answers upsd until the test ends.
func (d *driver) serve(conn net.Conn) {
	defer conn.Close()
	var writing sync.Mutex
	say := func(text string) bool {
		writing.Lock()
		defer writing.Unlock()
		_, err := conn.Write([]byte(text))
		return err == nil
	}
	d.all.Go(func() { // as a driver that polls its device
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-d.done:
				_ = conn.Close()
				return
			case <-tick.C:
			}
			d.mu.Lock()
			silent := d.silent
			d.mu.Unlock()
			if !silent && !say(d.status()) {
				return
			}
		}
	})
	for r := bufio.NewScanner(conn); r.Scan(); {
		d.mu.Lock()
		silent := d.silent
		d.mu.Unlock()
		word, rest, _ := strings.Cut(r.Text(), " ")
		switch {
		case silent:
		case word == "DUMPALL":
			say(driverVariables + d.status() + "DATAOK\nDUMPDONE\n")
		case word == "PING":
			say("PONG\n")
		case word == "INSTCMD":
			d.change(func(d *driver) { d.got = append(d.got, rest) })
			switch strings.TrimSpace(rest) {
			case "outlet.3.load.off":
				d.device.Switch(powerctl.Off)
			case "outlet.3.load.on":
				d.device.Switch(powerctl.On)
			}
		}
	}
}

func (d *driver) status() string {
	return fmt.Sprintf("SETINFO outlet.3.status %q\n", d.device.Read().State)
}

// upsd runs NUT's own server over the stand-in and returns its address.
func upsd(t *testing.T) (*driver, string) {
	testskip.Program(t, "upsc", "nut-client")
	const program = "/lib/nut/upsd"
	if _, err := os.Stat(program); err != nil {
		testskip.Skip(t, "%v: apt-get install nut-server", err)
	}
	d := &driver{device: powertest.NewDevice(), done: make(chan struct{}), dir: t.TempDir()}
	var err error
	d.l, err = net.Listen("unix", filepath.Join(d.dir, "dummy-ups-pdu1"))
	require.NoError(t, err)
	d.all.Go(func() {
		for {
			conn, err := d.l.Accept()
			if err != nil {
				return
			}
			d.all.Go(func() { d.serve(conn) })
		}
	})
	t.Cleanup(func() { close(d.done); _ = d.l.Close(); d.all.Wait() })

	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	host, port, _ := net.SplitHostPort(address)
	for name, text := range map[string]string{
		"ups.conf":  "[pdu1]\ndriver = dummy-ups\nport = x\n",
		"upsd.conf": "LISTEN " + host + " " + port + "\nMAXAGE 2\n",
		"upsd.users": "[" + simUser + "]\npassword = " + quote(simPassword) + "\ninstcmds = outlet.3.load.off\ninstcmds = outlet.3.load.on\n" +
			"[other]\npassword = plain\ninstcmds = all\n", // NUT's own client quotes no password
	} {
		require.NoError(t, os.WriteFile(filepath.Join(d.dir, name), []byte(text), 0o600))
	}
	me, err := user.Current()
	require.NoError(t, err)
	var said bytes.Buffer
	cmd := exec.Command(program, "-D", "-u", me.Username)
	cmd.Env = append(os.Environ(), "NUT_CONFPATH="+d.dir, "NUT_STATEPATH="+d.dir, "NUT_ALTPIDPATH="+d.dir)
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
	require.Eventually(t, func() bool { return exec.Command("upsc", "pdu1@"+address).Run() == nil }, 30*time.Second, 50*time.Millisecond, "upsd does not answer")
	return d, address
}

func peer(t *testing.T, address string, change func(*Config)) *Outlet {
	c := Config{
		Name: "server 7", Address: address, UPS: "pdu1", Outlet: 3, User: simUser, Password: powerctl.NewSecret(simPassword),
		Class: powerctl.Mains, Timeout: time.Minute, Pin: Pin{Serial: `SN "4711"`, OutletName: "server 7"},
	}
	if change != nil {
		change(&c)
	}
	o, err := New(c)
	require.NoError(t, err)
	return o
}

// TestUpsdAgrees: the driver switches through NUT's server, and NUT's clients see it and are seen.
func TestUpsdAgrees(t *testing.T) {
	t.Parallel()
	d, address := upsd(t)
	o := peer(t, address, nil)
	policy := powerctl.Policy{Deadline: time.Minute, Poll: 10 * time.Millisecond}
	client := func(program string, args ...string) string {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, program, args...).Output()
		require.NoError(t, err)
		return strings.TrimSpace(string(out))
	}
	res, err := powerctl.SwitchOff(t.Context(), o, policy)
	require.NoError(t, err)
	require.True(t, res.IsOff())
	require.Equal(t, powerctl.On, res.Before)
	require.NotZero(t, res.Acknowledged)
	require.Equal(t, powerctl.Off, d.device.Contacts())
	require.Equal(t, "off", client("upsc", "pdu1@"+address, "outlet.3.status"))
	client("upscmd", "-u", "other", "-p", "plain", "pdu1@"+address, "outlet.3.load.on")
	require.Eventually(t, func() bool { res, err := o.State(t.Context()); return err == nil && res.IsOn() }, 30*time.Second, 20*time.Millisecond)

	d.device.Plant(powertest.StuckOn)
	_, err = powerctl.SwitchOff(t.Context(), o, powerctl.Policy{Deadline: 100 * time.Millisecond, Poll: 10 * time.Millisecond})
	require.ErrorIs(t, err, powerctl.ErrNotReached)
	for i, want := range []string{"outlet.3.load.off", "outlet.3.load.on", "outlet.3.load.off"} {
		require.Equal(t, want, strings.TrimSpace(d.commands()[i]), "no value, and no tracking")
	}
	require.Len(t, d.commands(), 3)

	id, err := o.Identify(t.Context())
	require.NoError(t, err)
	require.Equal(t, `serial SN "4711" Maker PDU #24 outlet 3`, id.Device)
	pins, err := o.Pins(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]string{"serial": `SN "4711"`, "outlet_name": "server 7"}, pins)
	warnings, err := o.Warnings(t.Context())
	require.NoError(t, err)
	require.Equal(t, []powerctl.Warning{{Text: "a reading can be 2 s old (driver.parameter.pollinterval): the deadline must be longer"}}, warnings)
}

func TestUpsdRefuses(t *testing.T) {
	t.Parallel()
	d, address := upsd(t)
	for name, c := range map[string]struct {
		change func(*Config)
		code   string
		sent   bool
	}{
		"wrong password": {func(c *Config) { c.Password = powerctl.NewSecret("wrong") }, "ACCESS-DENIED", true},
		"no such UPS":    {func(c *Config) { c.UPS = "pdu2" }, "UNKNOWN-UPS", false},
		"no TLS":         {func(c *Config) { c.TLS, c.Fingerprint = true, strings.Repeat("ab", 32) }, "FEATURE-NOT-CONFIGURED", false},
	} {
		_, err := peer(t, address, c.change).Off(t.Context())
		var re *ReplyError
		require.ErrorAs(t, err, &re, name)
		require.Equal(t, c.code, re.Code)
		if c.sent {
			require.NotErrorIs(t, err, powerctl.ErrNotSent)
		} else {
			require.ErrorIs(t, err, powerctl.ErrNotSent)
		}
	}
	for name, change := range map[string]func(*Config){
		"another serial": func(c *Config) { c.Pin.Serial = "SN 4712" },
		"another name":   func(c *Config) { c.Pin.OutletName = "mail" },
	} {
		_, err := peer(t, address, change).Off(t.Context())
		var ie *powerctl.IdentityError
		require.ErrorAs(t, err, &ie, name)
	}
	_, err := peer(t, address, func(c *Config) { c.Outlet, c.Pin.OutletName = 4, "" }).Off(t.Context())
	require.ErrorIs(t, err, ErrNotSwitchable)
	require.Empty(t, d.commands())
}

// TestUpsdCallsItStale: a driver that has gone silent leaves an old "off" behind in upsd.
func TestUpsdCallsItStale(t *testing.T) {
	t.Parallel()
	d, address := upsd(t)
	o := peer(t, address, nil)
	d.device.Force(powerctl.Off)
	require.Eventually(t, func() bool { res, err := o.State(t.Context()); return err == nil && res.IsOff() }, 30*time.Second, 20*time.Millisecond)
	d.change(func(d *driver) { d.silent = true })
	var re *ReplyError
	require.Eventually(t, func() bool {
		res, err := o.State(t.Context())
		if err == nil {
			return false
		}
		require.ErrorAs(t, err, &re)
		require.Equal(t, powerctl.Unknown, res.State)
		return true
	}, 30*time.Second, 50*time.Millisecond)
	require.Contains(t, []string{"DATA-STALE", "DRIVER-NOT-CONNECTED"}, re.Code)
	_, err := o.On(t.Context())
	require.ErrorIs(t, err, powerctl.ErrNotSent)
	require.Empty(t, d.commands())
}
