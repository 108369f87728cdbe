package powerman

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"plugpull/powerctl"
	"plugpull/powerctl/bridge"
	"plugpull/powerctl/bridge/bridgetest"
	"plugpull/powerctl/powertest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	powertest.Run(t, func(t *testing.T) powertest.Harness { return start(t).harness(t) })
}

func (d *daemon) harness(t *testing.T) powertest.Harness {
	return powertest.Harness{
		Outlet: powertest.ShortSilence(d.outlet(t, nil), d.device), Device: d.device,
		Policy:   powerctl.Policy{Deadline: time.Minute, Poll: 10 * time.Millisecond},
		Patience: 100 * time.Millisecond,
	}
}

// TestConformanceOfEveryFailure: what fails does so in every way that the wire has.
func TestConformanceOfEveryFailure(t *testing.T) {
	t.Parallel()
	for _, f := range []failure{reset, half, promptl, endless} {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			powertest.Run(t, func(t *testing.T) powertest.Harness {
				d := start(t)
				d.change(func(d *daemon) { d.failure = f })
				h := d.harness(t)
				h.Faults = []powertest.Fault{powertest.FailedReads, powertest.LostReply, powertest.LostCommand, powertest.UnknownReads}
				return h
			})
		})
	}
}

// TestNonsense: none of it is a state, whatever it looks like.
func TestNonsense(t *testing.T) {
	d := start(t)
	o := d.outlet(t, nil)
	for _, text := range nonsense {
		d.say("status n7", text)
		res, err := o.State(t.Context())
		require.Error(t, err, text)
		require.Equal(t, powerctl.Unknown, res.State, text)
		require.Zero(t, res.Observed)
		_, err = o.Off(t.Context())
		if !strings.Contains(text, "211 ") && !strings.Contains(text, "102 ") { // those name the node well
			require.ErrorIs(t, err, powerctl.ErrNotSent, text)
		}
	}
}

// TestNameThatStandsForOthers: powermand expands an alias before it looks for a node.
func TestNameThatStandsForOthers(t *testing.T) {
	for _, answer := range []string{
		status(powerctl.On, "n[4-5]"), status(powerctl.Off, "n8"), "302 on:      n7\r\n302 off:     n8\r\n302 unknown: \r\n",
		"302 on:      n7\r\n302 off:     \r\n302 unknown: n8\r\n", status(powerctl.On, "n7,n8"), status(powerctl.On, ""),
	} {
		for _, end := range []string{done, "211 Query completed with errors\r\n" + prompt} {
			d := start(t)
			d.say("status n7", answer+end)
			o := d.outlet(t, nil)
			for _, command := range []func(context.Context) (powerctl.Result, error){o.Off, o.On} {
				res, err := command(t.Context())
				var ie *powerctl.IdentityError
				require.ErrorAs(t, err, &ie)
				require.Equal(t, "n7", ie.Want)
				require.ErrorIs(t, err, powerctl.ErrNotSent)
				require.Zero(t, res.Commanded)
			}
			_, err := o.State(t.Context())
			require.Error(t, err)
			require.Empty(t, d.device.Commands(), answer)
		}
	}
}

func TestPinnedDevice(t *testing.T) {
	d := start(t)
	pins, err := d.outlet(t, func(c *Config) { c.Pin.Device = "other" }).Pins(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]string{"device": "pdu1"}, pins)

	id, err := d.outlet(t, nil).Identify(t.Context())
	require.NoError(t, err)
	require.Equal(t, powerctl.Identity{Driver: "powerman", Name: "server 7", Device: "device pdu1 type apc node n7 at " + d.Address}, id)

	for name, answer := range map[string]string{
		"another":  deviceRow("pdu2") + done,
		"two":      strings.Repeat(deviceRow("pdu1"), 2) + done,
		"none":     done,
		"part":     "304 pdu1\r\n" + done,
		"an error": "201 Unknown command\r\n" + prompt,
	} {
		d.say("device n7", answer)
		o := d.outlet(t, nil)
		_, err := o.Off(t.Context())
		require.ErrorIs(t, err, powerctl.ErrNotSent, name)
		if name == "another" {
			var ie *powerctl.IdentityError
			require.ErrorAs(t, err, &ie)
			require.Equal(t, "pdu2", ie.Got)
		}
		_, err = o.State(t.Context())
		require.Error(t, err, name)
		require.Empty(t, d.device.Commands())
	}
}

func TestGreeting(t *testing.T) {
	for _, greeting := range []string{"SSH-2.0-OpenSSH_9.2\r\n", "001 2.3.27\r\nlogin: ", "102 Command completed successfully\r\n" + prompt, "001 2.3.27\r\n" + prompt + status(powerctl.Off, "n7") + done} {
		d := start(t)
		d.say("", greeting)
		o := d.outlet(t, nil)
		res, err := o.State(t.Context())
		require.Error(t, err, greeting)
		require.Equal(t, powerctl.Unknown, res.State)
		_, err = o.Off(t.Context())
		require.ErrorIs(t, err, powerctl.ErrNotSent)
		require.Empty(t, d.device.Commands())
	}
}

// TestAnswersToSomethingElse: an answer that comes before its request is none.
func TestAnswersToSomethingElse(t *testing.T) {
	d := start(t)
	d.device.Force(powerctl.Off)
	d.say("status n7", status(powerctl.Off, "n7")+done+status(powerctl.On, "n7")+done)
	o := d.outlet(t, nil)
	res, err := o.State(t.Context())
	require.ErrorIs(t, err, bridge.ErrUnasked)
	require.NotErrorIs(t, err, powerctl.ErrNotSent, "that is said of commands only")
	require.Equal(t, powerctl.Unknown, res.State)
	_, err = o.Off(t.Context())
	require.ErrorIs(t, err, powerctl.ErrNotSent)
	require.Empty(t, d.device.Commands())
}

// TestDeadline: an answer that drips in late is cut short with the context's own error.
func TestDeadline(t *testing.T) {
	slow := bridgetest.Serve(t, func(c *bridgetest.Conn) {
		c.Say("001 2.3.27\r\n" + prompt)
		if _, ok := c.Line(); ok {
			c.Drip(status(powerctl.Off, "n7")+done, 10*time.Millisecond)
		}
	})
	o, err := New(Config{Name: "server 7", Address: slow.Address, Node: "n7", Class: powerctl.Mains, Timeout: 50 * time.Millisecond})
	require.NoError(t, err)
	res, err := o.State(t.Context())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, powerctl.Unknown, res.State)
	_, err = o.Off(t.Context())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, powerctl.ErrNotSent)
}

func TestNobodyListens(t *testing.T) {
	d := start(t)
	o := d.outlet(t, func(c *Config) { c.Address = "127.0.0.1:1" })
	_, err := o.Off(t.Context())
	require.ErrorIs(t, err, powerctl.ErrNotSent)
	var op *powerctl.OpError
	require.ErrorAs(t, err, &op)
	require.Equal(t, "connect to 127.0.0.1:1", op.Step)
}

func TestPlanIsWhatIsSent(t *testing.T) {
	for _, pin := range []string{"", "pdu1"} {
		d := start(t)
		o := d.outlet(t, func(c *Config) { c.Pin.Device = pin })
		plan := o.Plan(false)
		require.Empty(t, d.seen())
		_, err := o.Off(t.Context())
		require.NoError(t, err)
		sent := d.seen()
		for i := range sent {
			sent[i] = "tcp " + d.Address + ": " + sent[i]
		}
		require.Equal(t, plan, sent)
		require.Contains(t, o.Plan(true), "tcp "+d.Address+": on n7")
	}
}

func TestNewReportsEverything(t *testing.T) {
	_, err := New(Config{Class: "rail", Pin: Pin{Device: "a b"}})
	for _, text := range []string{"name is missing", "not host:port", "node is not one plain name", "class is none of", "timeout is missing", "pinned device"} {
		require.ErrorContains(t, err, text)
	}
	good := Config{Name: "a", Address: "pm:10101", Node: "n-7.rack_1", Class: powerctl.Mains, Timeout: time.Second}
	_, err = New(good)
	require.NoError(t, err)
	for _, node := range []string{"n[0-15]", "n7,n8", "n7 n8", "n7\nn8", "", "-n7", "@all", "^file", "n7;", "n*", "ñ7", "n7\r\noff n8", strings.Repeat("n", 129)} {
		bad := good
		bad.Node = node
		_, err := New(bad)
		require.Error(t, err, node)
	}
}

func FuzzReply(f *testing.F) {
	f.Add(strings.TrimSuffix(status(powerctl.Off, "n7")+"103 Query complete", prompt))
	for _, s := range nonsense[:12] {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		lines := strings.Split(strings.ReplaceAll(text, "\r", ""), "\n")
		r, err := readReply(func() (string, error) {
			if len(lines) == 0 {
				return "", errMalformed
			}
			line := lines[0]
			lines = lines[1:]
			return line, nil
		})
		if err != nil {
			return
		}
		_, _ = r.device()
		state, err := r.state("n7")
		if state == powerctl.Unknown {
			return
		}
		require.NoError(t, err)
		require.Len(t, r.lines, 4)
		word := map[powerctl.State]string{powerctl.On: "on:", powerctl.Off: "off:"}[state]
		require.Contains(t, strings.Fields(r.lines[0]+" "+r.lines[1]+" "+r.lines[2]), "n7")
		for _, l := range r.lines[:3] {
			require.Equal(t, strings.HasPrefix(l, "302 "+word), strings.Contains(l, "n7"), l)
		}
		require.True(t, strings.HasPrefix(r.lines[3], "103 "))
	})
}
