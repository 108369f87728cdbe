// Package manual lets a person be the switch: it says what to do and waits
// until the person has confirmed it.
//
// It guarantees that a state is known only after the person typed its name in
// answer to the instruction; no default, no timeout and no end of input counts
// as an answer.
package manual

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"plugpull/internal/clock"
	"plugpull/powerctl"
)

// Config describes an outlet.
type Config struct {
	Name  string
	Class powerctl.Class
	// In is where the answers come from: a terminal, or a pipe with a line an
	// answer. It is read only while a question is open, and never closed.
	In *os.File
	// Out is where the instructions go.
	Out io.Writer
}

// Outlet implements powerctl.Outlet and Planner.
type Outlet struct {
	c    Config
	in   lines
	last powerctl.Result // what the person last confirmed
}

// New returns an outlet whose state is unknown. It asks nothing yet.
func New(c Config) (*Outlet, error) {
	if c.Name == "" || c.In == nil || c.Out == nil {
		return nil, errors.New("manual outlet: the name, the input or the output is missing")
	}
	return &Outlet{c: c, in: lines{file: c.In}}, nil
}

// Capabilities implements powerctl.Outlet: polling a person shows nothing new.
func (o *Outlet) Capabilities() powerctl.Capabilities {
	return powerctl.Capabilities{Class: o.c.Class, Tried: powerctl.TriedOwn}
}

// Plan implements powerctl.Planner.
func (o *Outlet) Plan(on bool) []string {
	want := powerctl.Off
	if on {
		want = powerctl.On
	}
	return []string{"ask the person at the terminal: " + o.instruction(want)}
}

func (o *Outlet) instruction(want powerctl.State) string {
	word := want.String()
	return fmt.Sprintf("Switch %s NOW: %s. When it is %s, type %s and press Enter", strings.ToUpper(word), o.c.Name, word, word)
}

// Off asks the person to switch off and blocks until they have typed "off",
// the input ends (io.EOF) or ctx is done. Commanded is when the instruction
// was shown; Acknowledged and Observed are when the person confirmed.
func (o *Outlet) Off(ctx context.Context) (powerctl.Result, error) {
	return o.ask(ctx, powerctl.Off)
}

// On is Off's counterpart.
func (o *Outlet) On(ctx context.Context) (powerctl.Result, error) {
	return o.ask(ctx, powerctl.On)
}

// State returns what the person last confirmed, Unknown before that and after a
// question that stayed open. It does not block and asks nobody.
func (o *Outlet) State(context.Context) (powerctl.Result, error) {
	return powerctl.Result{State: o.last.State, Raw: o.last.Raw, Observed: o.last.Observed}, nil
}

// Identify returns the name; it does not block.
func (o *Outlet) Identify(context.Context) (powerctl.Identity, error) {
	return powerctl.Identity{Driver: "manual", Device: "a person", Part: o.c.Name, Name: o.c.Name}, nil
}

func (o *Outlet) ask(ctx context.Context, want powerctl.State) (powerctl.Result, error) {
	op := want.String()
	fail := func(res powerctl.Result, step string, err error) (powerctl.Result, error) {
		return res, &powerctl.OpError{Op: op, Outlet: o.c.Name, Step: step, Err: err}
	}
	if err := ctx.Err(); err != nil {
		return fail(powerctl.Result{}, "ask", fmt.Errorf("%w: %w", powerctl.ErrNotSent, err))
	}
	// Something typed before the instruction is no answer to it.
	if err := o.in.discard(); err != nil {
		return fail(powerctl.Result{}, "discard what was typed ahead", fmt.Errorf("%w: %w", powerctl.ErrNotSent, err))
	}
	res := powerctl.Result{Commanded: clock.Now()}
	o.last = powerctl.Result{} // from here on the person may act
	_, err := fmt.Fprintf(o.c.Out, "\n>>> %s: ", o.instruction(want))
	for err == nil {
		var line string
		if line, err = o.in.next(ctx); err != nil {
			return fail(res, "wait for the person to type "+op, err)
		}
		if strings.ToLower(strings.TrimSpace(line)) == op {
			now := clock.Now()
			res.Acknowledged, res.Observed, res.State, res.Raw = now, now, want, line
			o.last = res
			return res, nil
		}
		_, err = fmt.Fprintf(o.c.Out, "Not confirmed. Is %s %s? Type %s, or interrupt: ", o.c.Name, op, op)
	}
	return fail(res, "show the instruction", err)
}
