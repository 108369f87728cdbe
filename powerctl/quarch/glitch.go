package quarch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"plugpull/internal/clock"
	"plugpull/powerctl"
)

// Errors of Glitch, for errors.Is.
var (
	// ErrLength: the glitch engine cannot make this length.
	ErrLength = errors.New("not a length that the glitch engine makes: want 1 to 255 times one of 50ns, 500ns, 5us, 50us, 500us, 5ms, 50ms and 500ms")
	// ErrNotGlitched: the glitch would not break the drive's power as it should.
	ErrNotGlitched = errors.New("the glitch would not break the drive's power")
)

// glitchSteps are the multipliers of every glitch engine that quarchpy knows (its files
// QTL*.qfg); the count is 0 to 255.
var glitchSteps = []struct {
	text   string
	length time.Duration
}{
	{"50ns", 50 * time.Nanosecond}, {"500ns", 500 * time.Nanosecond}, {"5us", 5 * time.Microsecond}, {"50us", 50 * time.Microsecond},
	{"500us", 500 * time.Microsecond}, {"5ms", 5 * time.Millisecond}, {"50ms", 50 * time.Millisecond}, {"500ms", 500 * time.Millisecond},
}

const glitchCount = 255

// glitchSetup is the command for exactly that length, in the finest step that makes it.
func glitchSetup(length time.Duration) (string, error) {
	for _, s := range glitchSteps {
		if n := length / s.length; length%s.length == 0 && n >= 1 && n <= glitchCount {
			return fmt.Sprintf("glitch:setup %s %d", s.text, n), nil
		}
	}
	return "", fmt.Errorf("%v is %w", length, ErrLength)
}

const glitchOnce = "run:glitch once"

// Glitch interrupts the signals of the configuration once, for exactly the length that is
// asked for, on a hot-plug module that is plugged. It sends the length and then the glitch,
// each once; only the latter counts as the command, so that an error of the former matches
// ErrNotSent. It returns before a long glitch is over.
//
// It is a brown-out, and never an Off: State is Unknown and Observed zero, always. Nothing
// reads back whether the rail fell, how deep and for how long: the drive's own capacitors may
// have carried it through, and what the drive saw is not what the contacts did. So a
// campaign may use it to look for drives and stacks that lose acknowledged commits in a
// brown-out, where a loss that is found counts like any other. It is no ground for
// durable: without an off read back, or the drive's own word (a counter of unsafe
// shutdowns, a reset seen by the host), nothing says that there was any interruption.
//
// Each signal must have its glitch enabled (signal:NAME:glitch:enable on), which is read
// and not set; other signals that are enabled, data lines among them, break as well. A
// module that is not plugged is refused: a glitch would connect what is pulled.
func (o *Outlet) Glitch(ctx context.Context, length time.Duration) (powerctl.Result, error) {
	const op = "glitch"
	var res powerctl.Result
	setup, err := glitchSetup(length)
	if err == nil && len(o.c.Signals) == 0 {
		err = fmt.Errorf("%w: the configuration names no signals", ErrNotGlitched)
	}
	if err != nil {
		return res, sentAt(0, o.fail(op, "begin", err))
	}
	var said []string
	err = o.with(ctx, op, func(ctx context.Context, c *conversation) error {
		var err error
		if said, err = c.glitchable(ctx, o.c.Signals); err != nil {
			return o.fail(op, "look whether it would break the power", err)
		}
		if _, err := c.order(ctx, setup); err != nil {
			return o.fail(op, "send "+setup, err)
		}
		said = append(said, setup+": OK")
		if res.Commanded, err = c.order(ctx, glitchOnce); err != nil {
			return o.fail(op, "send "+glitchOnce, err)
		}
		res.Acknowledged = clock.Now()
		said = append(said, glitchOnce+": OK")
		return nil
	})
	res.Raw = raw(strings.Join(said, "; "))
	return res, sentAt(res.Commanded, err)
}

// glitchable returns the answers on which it stands.
func (c *conversation) glitchable(ctx context.Context, signals []string) ([]string, error) {
	_, word, err := c.power(ctx)
	if err != nil {
		return nil, err
	}
	said := []string{word}
	if word != plugged {
		return said, fmt.Errorf("%w: the module is %q, and not %s", ErrNotGlitched, raw(word), plugged)
	}
	for _, s := range signals {
		command := "signal:" + s + ":glitch:enable?"
		word, err := c.word(ctx, command)
		if err != nil {
			return said, err
		}
		said = append(said, s+" glitch "+word)
		if word != on {
			return said, fmt.Errorf("%w: %s is answered by %q: enable it with \"signal:%s:glitch:enable on\"", ErrNotGlitched, command, raw(word), s)
		}
	}
	return said, nil
}
