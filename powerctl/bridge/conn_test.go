package bridge_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"plugpull/powerctl/bridge"
	"plugpull/powerctl/bridge/bridgetest"
)

// dial connects to a daemon that says a text at once and hangs up on the first line that it gets.
func dial(t *testing.T, ctx context.Context, text string) *bridge.Conn {
	s := bridgetest.Serve(t, func(c *bridgetest.Conn) {
		c.Say(text)
		_, _ = c.Line()
	})
	c, err := bridge.Dial(ctx, s.Address)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func TestLine(t *testing.T) {
	c := dial(t, t.Context(), "one\r\ntwo\n\n> three\n")
	for _, want := range []string{"one", "two", ""} {
		line, err := c.Line()
		require.NoError(t, err)
		require.Equal(t, want, line)
	}
	require.NoError(t, c.Prompt("> "))
	at, err := c.Send("request")
	require.ErrorIs(t, err, bridge.ErrUnasked, "what comes next would not be its answer")
	require.Zero(t, at)
	line, err := c.Line()
	require.NoError(t, err)
	require.Equal(t, "three", line)
	at, err = c.Send("request")
	require.NoError(t, err)
	require.NotZero(t, at)
	_, err = c.Line()
	require.Error(t, err)
}

func TestNotALine(t *testing.T) {
	for text, want := range map[string]error{
		strings.Repeat("x", 10<<10) + "\n": bridge.ErrTooLong,
		"o\x00ff\n":                        bridge.ErrNotPlain,
		"on\roff\n":                        bridge.ErrNotPlain,
		"\x1b[2Koff\n":                     bridge.ErrNotPlain,
	} {
		line, err := dial(t, t.Context(), text).Line()
		require.ErrorIs(t, err, want, "%.40q", text)
		require.Empty(t, line)
	}
	require.ErrorIs(t, dial(t, t.Context(), "powerman< ").Prompt("powerman> "), bridge.ErrNotPrompt)

	half := bridgetest.Serve(t, func(c *bridgetest.Conn) { c.Say("off") })
	c, err := bridge.Dial(t.Context(), half.Address)
	require.NoError(t, err)
	defer c.Close()
	line, err := c.Line()
	require.ErrorContains(t, err, `the line ends after "off"`)
	require.Empty(t, line)
}

// TestWithoutEnd: no number of short lines is taken for ever.
func TestWithoutEnd(t *testing.T) {
	c := dial(t, t.Context(), strings.Repeat("303 x\r\n", 1<<18))
	for {
		if _, err := c.Line(); err != nil {
			require.ErrorIs(t, err, bridge.ErrTooLong)
			return
		}
	}
}

func TestContextEndsEveryWait(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := dial(t, ctx, "half").Line()
	require.ErrorIs(t, err, context.DeadlineExceeded)

	ctx, cancel = context.WithCancel(t.Context())
	c := dial(t, ctx, "")
	cancel()
	require.ErrorIs(t, c.Prompt("> "), context.Canceled)
	at, err := c.Send("off")
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, at)
}

func TestNames(t *testing.T) {
	for name, want := range map[string]bool{
		"n7": true, "rack-7.lab_1": true, "7": true, strings.Repeat("n", 128): true,
		"": false, "-p": false, "+x": false, ".n": false, "n[1-2]": false, "n1,n2": false, "n 1": false, "n\n": false, "é": false, strings.Repeat("n", 129): false,
	} {
		require.Equal(t, want, bridge.PlainName(name), "%q", name)
	}
	for address, want := range map[string]bool{"h:1": true, "[::1]:3493": true, "h": false, ":1": false, "h:": false, "": false} {
		require.Equal(t, want, bridge.HostPort(address), address)
	}
}
