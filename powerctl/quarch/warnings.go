package quarch

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"plugpull/powerctl"
)

// Warnings asks a hot-plug module for its glitch engine, for the sources of the signals
// and for the delay, the state and the bounce of those sources. A power module has none of
// these; its voltage patterns cannot be asked for.
func (o *Outlet) Warnings(ctx context.Context) ([]powerctl.Warning, error) {
	a := &audit{}
	err := o.with(ctx, "warnings", func(ctx context.Context, c *conversation) error {
		_, word, err := c.power(ctx)
		if err != nil {
			return o.fail("warnings", "read the state", err)
		}
		a.c = c
		switch word {
		case on, off:
			a.warn(false, "a power module: plugpull cannot read whether a voltage pattern is set or waits for a trigger (PATtern:TRIGger:EXTernal); clear them with \"conf:def:state\"")
			return nil
		case plugged, pulled:
			if err := a.breaker(ctx, o.c.Signals); err != nil {
				return o.fail("warnings", "read the settings", err)
			}
			return nil
		}
		a.warn(false, "the module answers %q when it is asked for its state, which is none of %s, %s, %s and %s: no cut will be observed", raw(word), plugged, pulled, on, off)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return a.found, nil
}

// audit collects what is found.
type audit struct {
	c     *conversation
	found []powerctl.Warning
}

func (a *audit) warn(switches bool, format string, args ...any) {
	a.found = append(a.found, powerctl.Warning{Text: fmt.Sprintf(format, args...), Switches: switches})
}

// ask returns ok false for what the module refuses, or answers with what is no answer, and warns.
func (a *audit) ask(ctx context.Context, command string) (string, bool, error) {
	answer, err := a.c.word(ctx, command)
	var fail *FailError
	if errors.As(err, &fail) || errors.Is(err, ErrNotAnAnswer) {
		a.warn(false, "%s cannot be read: %v", command, err)
		return "", false, nil
	}
	return answer, err == nil, err
}

func (a *audit) breaker(ctx context.Context, signals []string) error {
	if err := a.glitch(ctx); err != nil {
		return err
	}
	timed := []int{1, 2, 3, 4, 5, lastTimed}
	if len(signals) == 0 {
		a.warn(false, "no signals are configured: a power rail on a source that is always on stays live while the module says %s", pulled)
	} else {
		timed = nil
	}
	for _, s := range signals {
		source, err := a.c.source(ctx, s)
		if err != nil {
			return err
		}
		switch stuck := stateOf(source); {
		case stuck != powerctl.Unknown:
			a.warn(true, "%v: it is always %s", &SourceError{Signal: s, Source: source}, stuck)
		case source <= lastTimed && !slices.Contains(timed, source):
			timed = append(timed, source)
		}
	}
	for _, n := range timed {
		if err := a.source(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// The words for the glitch engine. The running ones are the parameters of run:glitch and
// their likes; what a module says is in no public document, so a word that is in
// neither list is told as it is.
var (
	glitchRuns  = []string{"ONCE", "CYCLE", "PRBS", "RUNNING", "ACTIVE", "ON"}
	glitchRests = []string{"STOP", "STOPPED", "IDLE", "INACTIVE", "OFF"}
)

// glitch: the engine inverts a signal, so that it connects one that is pulled.
func (a *audit) glitch(ctx context.Context) error {
	word, ok, err := a.ask(ctx, "run:glitch?")
	if err != nil || !ok {
		return err
	}
	switch {
	case slices.Contains(glitchRuns, strings.ToUpper(word)):
		a.warn(true, "the glitch engine is %s: it connects what is pulled and breaks what is plugged; stop it with \"run:glitch stop\"", word)
	case !slices.Contains(glitchRests, strings.ToUpper(word)):
		a.warn(false, "the glitch engine is %q, which plugpull does not know; make sure of it with \"run:glitch stop\"", word)
	}
	return nil
}

// source asks for what a timed source does between a command and its end.
func (a *audit) source(ctx context.Context, n int) error {
	name := "source:" + strconv.Itoa(n)
	delay, ok, err := a.duration(ctx, name+":delay?")
	if err != nil {
		return err
	}
	if ok && delay > 0 {
		a.warn(false, "source %d switches %v after the command: the drive can have power for that long after %s was read, and contacts that break earlier announce the cut to it; \"%s:delay 0\" or source 7 switches at once", n, delay, pulled, name)
	}
	bounce, ok, err := a.duration(ctx, name+":boun:len?")
	if err != nil {
		return err
	}
	if ok && bounce > 0 {
		a.warn(true, "source %d bounces for %v after each command: power comes back in that time; \"conf:def:state\" clears it", n, bounce)
	}
	state, ok, err := a.ask(ctx, name+":state?")
	if err == nil && ok && state != on {
		a.warn(false, "source %d is %q, and not %s: its signals stay cut after power up; set it with \"%s:state on\"", n, state, on, name)
	}
	return err
}

func (a *audit) duration(ctx context.Context, command string) (time.Duration, bool, error) {
	answer, ok, err := a.ask(ctx, command)
	if err != nil || !ok {
		return 0, false, err
	}
	d, ok := parseDuration(answer)
	if !ok {
		a.warn(false, "%s is answered by %q, which is no time", command, answer)
	}
	return d, ok, nil
}

var moduleTime = regexp.MustCompile(`^([0-9]{1,9}(?:\.[0-9]{1,9})?) ?([A-Za-z]*)$`)

// parseDuration reads "25", "25mS" and "500 uS". Without a unit it is milliseconds, as for the
// commands that set it.
func parseDuration(s string) (time.Duration, bool) {
	m := moduleTime.FindStringSubmatch(s)
	if m == nil {
		return 0, false
	}
	unit, known := map[string]time.Duration{
		"": time.Millisecond, "ns": time.Nanosecond, "us": time.Microsecond, "ms": time.Millisecond, "s": time.Second,
	}[strings.ToLower(m[2])]
	n, err := strconv.ParseFloat(m[1], 64)
	return time.Duration(n * float64(unit)), known && err == nil
}
