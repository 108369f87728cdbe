package serialrelay

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"plugpull/powerctl"
)

var (
	kmOne     = Config{Protocol: KMTronic, Channels: 1}
	lcusOne   = Config{Protocol: LCUS, Channels: 1, Readback: Bytes}
	numatoTwo = Config{Protocol: Numato, Channels: 2}
	first     = OutletConfig{Name: "A3", Channel: 1, Contact: powerctl.NormallyOpen, Class: powerctl.Mains}
	zeroth    = OutletConfig{Name: "A3", Contact: powerctl.NormallyOpen, Class: powerctl.Mains}
)

func TestUnpluggedBeforeACommandSendsItOnceAfterwards(t *testing.T) {
	sim := plugIn(t, kmOne, first, nil)
	o := openOutlet(t, sim, kmOne)
	sim.unplug()
	res, err := powerctl.SwitchOff(t.Context(), o, powerctl.Policy{Deadline: time.Minute, Poll: time.Millisecond})
	require.NoError(t, err)
	require.True(t, res.IsOff())
	require.Equal(t, []powerctl.State{powerctl.Off}, sim.device.Commands())
}

func TestAnotherBoardUnderThePathIsNotSwitched(t *testing.T) {
	sim := plugIn(t, numatoTwo, zeroth, nil)
	o := openOutlet(t, sim, numatoTwo)
	sim.own = "87654321"
	sim.unplug()
	res, err := o.Off(t.Context())
	var wrong *powerctl.IdentityError
	require.ErrorAs(t, err, &wrong)
	id := ", port " + sim.port
	require.Equal(t, powerctl.IdentityError{What: "board", Want: "id 12345678 version A0M09.01" + id, Got: "id 87654321 version A0M09.01" + id}, *wrong)
	require.ErrorIs(t, err, powerctl.ErrNotSent)
	require.Zero(t, res.Commanded)
	_, err = o.State(t.Context())
	require.ErrorAs(t, err, &wrong)
	require.Empty(t, sim.device.Commands())
}

func TestPin(t *testing.T) {
	sim := plugIn(t, numatoTwo, zeroth, nil)
	o := openOutlet(t, sim, numatoTwo)
	id, err := o.Identify(t.Context())
	require.NoError(t, err)
	require.Equal(t, "numato board, id 12345678 version A0M09.01, port "+sim.port+", channel 0, normally_open", id.Device)
	c := numatoTwo
	pins, err := o.Pins(t.Context())
	require.NoError(t, err)
	require.Equal(t, powerctl.TriedSimulator, o.Capabilities().Tried)
	require.Equal(t, powerctl.TriedSimulator, new(Outlet).Capabilities().Tried)
	c.Path, c.Timeout, c.Pin = sim.port, time.Minute, pins["board"]
	require.NoError(t, o.b.Close())
	b, err := open(t.Context(), c, t.TempDir(), quickly)
	require.NoError(t, err)
	require.NoError(t, b.Close())
	c.Pin = "usb 1a86:7523 serial 1"
	_, err = open(t.Context(), c, t.TempDir(), quickly)
	var wrong *powerctl.IdentityError
	require.ErrorAs(t, err, &wrong)
	require.Equal(t, pins["board"], wrong.Got, "so that a user can pin it")
}

// What was planned is what arrives.
func TestPlan(t *testing.T) {
	nc := first
	nc.Contact = powerctl.NormallyClosed
	for name, x := range map[string]struct {
		c    Config
		oc   OutletConfig
		on   bool
		want string
		sent string
	}{
		"lcus":         {lcusOne, first, false, "write a0 01 00 a1 to PORT (lcus, 9600 baud)", "\xa0\x01\x00\xa1"},
		"kmtronic, nc": {kmOne, nc, false, "write ff 01 01 to PORT (kmtronic, 9600 baud)", "\xff\x01\x01"},
		"numato":       {numatoTwo, zeroth, true, `write 72 65 6c 61 79 20 6f 6e 20 30 0d ("relay on 0\r") to PORT (numato, 9600 baud)`, "relay on 0\r"},
	} {
		t.Run(name, func(t *testing.T) {
			sim := plugIn(t, x.c, x.oc, nil)
			o := openOutlet(t, sim, x.c)
			require.Equal(t, []string{strings.Replace(x.want, "PORT", sim.port, 1)}, o.Plan(x.on))
			do := o.Off
			if x.on {
				do = o.On
			}
			_, err := do(t.Context())
			require.NoError(t, err)
			require.Eventually(t, func() bool { s := sim.seen(); return len(s) > 0 && s[len(s)-1] == x.sent }, time.Minute, time.Millisecond)
		})
	}
}

func TestUnpluggedInTheMiddleOfACommandLeavesItOpen(t *testing.T) {
	var sim *board
	sim = plugIn(t, numatoTwo, zeroth, func(request []byte) ([]byte, bool) {
		if strings.HasPrefix(string(request), "relay off") {
			sim.device.Switch(powerctl.Off)
			sim.ptm.Close() // not back yet
			sim.pts.Close()
			return nil, true
		}
		return nil, false
	})
	o := openOutlet(t, sim, numatoTwo)
	res, err := o.Off(t.Context())
	require.ErrorIs(t, err, ErrUnplugged)
	require.NotErrorIs(t, err, powerctl.ErrNotSent, "it had the command")
	require.NotZero(t, res.Commanded)
	require.Zero(t, res.Acknowledged)
	res, err = o.Off(t.Context())
	require.ErrorIs(t, err, powerctl.ErrNotSent)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.Zero(t, res.Commanded)
	require.Len(t, sim.device.Commands(), 1)
}

func TestSilenceIsAnErrorAndTakesNoLongerThanTheTimeout(t *testing.T) {
	silent := func([]byte) ([]byte, bool) { return nil, true }
	sim := plugIn(t, kmOne, first, silent)
	c := kmOne
	c.Timeout = 50 * time.Millisecond
	o := openOutlet(t, sim, c)
	res, err := o.State(t.Context())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, powerctl.Unknown, res.State)
	require.Zero(t, res.Observed)
}

func TestDeadlineEndsABlockedWrite(t *testing.T) {
	sim := plugIn(t, kmOne, first, nil)
	ptm, pts := sim.ptm, sim.pts
	p, err := openPort(sim.port, 9600)
	require.NoError(t, err)
	sim.connect() // the old terminal is read by nobody once its loop is stopped
	require.NoError(t, ptm.SetReadDeadline(time.Unix(1, 0)))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	stop := context.AfterFunc(ctx, p.interrupt)
	defer stop()
	require.ErrorIs(t, p.send(ctx, make([]byte, 1<<20)), context.DeadlineExceeded)
	require.NoError(t, p.Close(), "what is left must not hold the closing up")
	require.NoError(t, ptm.Close())
	require.NoError(t, pts.Close())
}

func TestPortIsHeldAlone(t *testing.T) {
	sim := plugIn(t, kmOne, first, nil)
	o := openOutlet(t, sim, kmOne)
	c := o.b.c
	_, err := open(t.Context(), c, t.TempDir(), quickly)
	require.ErrorIs(t, err, ErrBusy)
	require.NoError(t, o.b.Close())
	_, err = o.Off(t.Context())
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, err, powerctl.ErrNotSent)
	b, err := open(t.Context(), c, t.TempDir(), quickly)
	require.NoError(t, err)
	require.NoError(t, b.Close())
}

func TestProbe(t *testing.T) {
	for name, c := range map[string]struct {
		answer   string
		channels int
		want     Readback
	}{
		"text":            {"CH1:OFF \r\nCH2:ON \r\n", 2, Text},
		"bytes":           {"\x00\x01", 2, Bytes},
		"one byte":        {"\x00", 1, Bytes},
		"silence":         {"", 2, None},
		"an echo":         {"\xff", 2, ""},
		"fewer relays":    {"CH1:OFF \r\n", 2, ""},
		"more relays":     {"\x00\x00\x00", 2, ""},
		"another program": {"login: ", 2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			sim := plugIn(t, lcusOne, first, func([]byte) ([]byte, bool) { return []byte(c.answer), true })
			b, err := open(t.Context(), Config{Path: sim.port, Protocol: LCUS, Channels: c.channels, Readback: Probe, Timeout: time.Second}, t.TempDir(), quickly)
			if c.want == "" {
				require.ErrorIs(t, err, ErrNotAnAnswer)
				return
			}
			require.NoError(t, err)
			defer b.Close()
			require.Equal(t, c.want, b.Readback())
			o, err := b.Outlet(first)
			require.NoError(t, err)
			require.Equal(t, c.want != None, o.Capabilities().ReadBack)
			if c.want == None {
				_, err = o.State(t.Context())
				require.ErrorIs(t, err, powerctl.ErrNoReadBack)
				require.Len(t, sim.seen(), 2, "silence is believed the second time")
			}
		})
	}
}

func TestAnswerInPieces(t *testing.T) {
	c := Config{Protocol: LCUS, Channels: 8, Readback: Text, Timeout: 20 * time.Second}
	sim := plugIn(t, c, first, nil)
	sim.pieces = true
	c.Path = sim.port
	b, err := Open(t.Context(), c)
	require.NoError(t, err)
	defer b.Close()
	o, err := b.Outlet(first)
	require.NoError(t, err)
	res, err := o.State(t.Context())
	require.NoError(t, err)
	require.True(t, res.IsOn(), "%q", res.Raw)
}

func TestBabblingLineIsNoStateAndStopsNoCut(t *testing.T) {
	sim := plugIn(t, kmOne, first, nil)
	o := openOutlet(t, sim, kmOne)
	stop := make(chan struct{})
	sim.loop.Go(func() {
		tick := time.NewTicker(time.Millisecond / 2)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				_, _ = sim.ptm.Write([]byte("\xff\x01\x00"))
			}
		}
	})
	defer close(stop)
	res, err := o.State(t.Context())
	require.NoError(t, err)
	require.Equal(t, powerctl.Unknown, res.State, "%q", res.Raw)
	_, err = o.Off(t.Context())
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(sim.device.Commands()) == 1 }, time.Minute, time.Millisecond)
}

func TestOutletsOfOneBoardTakeTurns(t *testing.T) {
	c := Config{Protocol: KMTronic, Channels: 2}
	var inside atomic.Int32
	sim := plugIn(t, c, first, func([]byte) ([]byte, bool) {
		defer inside.Add(-1)
		if inside.Add(1) > 1 {
			t.Error("two requests at once")
		}
		return nil, false
	})
	one := openOutlet(t, sim, c)
	two, err := one.b.Outlet(OutletConfig{Name: "A4", Channel: 2, Contact: powerctl.NormallyOpen})
	require.NoError(t, err)
	done := make(chan error)
	for _, o := range []*Outlet{one, two} {
		go func() {
			var all error
			for range 3 {
				_, err := o.Off(t.Context())
				all = errors.Join(all, err)
			}
			done <- all
		}()
	}
	require.NoError(t, errors.Join(<-done, <-done))
}

// Bytes that are no text would be lost in JSON.
func TestRawKeepsBytes(t *testing.T) {
	sim := plugIn(t, kmOne, first, nil)
	res, err := openOutlet(t, sim, kmOne).State(t.Context())
	require.NoError(t, err)
	require.Equal(t, "ff 01 01 ff 01 01 ff 01 01", res.Raw)
	b, err := json.Marshal(res)
	require.NoError(t, err)
	require.Contains(t, string(b), "ff 01 01")
}

func TestEverythingWrongIsSaidAtOnce(t *testing.T) {
	_, err := Open(t.Context(), Config{Protocol: "x10", Baud: 1})
	require.EqualError(t, err, "serial relay board: the path is missing\nthe protocol \"x10\" is unknown\nthe baud rate 1 is unknown\nthe timeout is missing")
	_, err = Open(t.Context(), Config{Path: "/dev/null", Protocol: KMTronic, Channels: 3, Readback: Text, Timeout: 1})
	require.EqualError(t, err, "serial relay board: the read-back \"text\" is not one of kmtronic\n3 channels: want 1, 2, 4 or 8")
	_, err = Open(t.Context(), Config{Path: "/dev/null", Protocol: KMTronic, Channels: 4, Timeout: time.Second})
	require.ErrorIs(t, err, unix.ENOTTY)

	sim := plugIn(t, kmOne, first, nil)
	o := openOutlet(t, sim, kmOne)
	_, err = o.b.Outlet(OutletConfig{Channel: 2})
	require.EqualError(t, err, "serial relay outlet: the outlet's name is missing\nchannel 2: the board has 1 to 1\nthe contact \"\" is neither normally_open nor normally_closed")
}
