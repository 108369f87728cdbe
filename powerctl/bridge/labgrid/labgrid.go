// Package labgrid switches the power of a labgrid place by running labgrid-client.
//
// It guarantees that labgrid-client is run with `power off` and `power on` alone, never with cycle; that
// `show` has named exactly this place just before (labgrid takes a part of a name, or an alias, for
// the place: `-p rack` finds "rack7"); and that a state is only what `power get` prints for this
// place, in exactly its words, where labgrid is known to have read it.
//
// That last condition is needed because labgrid-client prints "off" for whatever Python does not hold
// for true (remote/client.py: 'on' if res else 'off'). With PDUDaemonDriver, as released, that
// is nothing at all (labgrid's pull request 1154); with the models sentry and sentry_sequential it is
// every state that they do not know, with rest and simplerest every answer but "1", with eaton an off that
// is still pending. ManualPowerDriver and ExternalPowerDriver have no reading. So there is
// ReadBack only where Config.Reads names a driver of labgrid whose source was read and found
// to take "off" from the hardware and to fail otherwise; with any other, no off is ever claimed. labgrid-client
// does not say which driver it used: that Reads is right is the word of whoever configures it.
//
// The place must be acquired by the user who runs plugpull. labgrid's environment variables
// hold, but with LG_ENV the client says more than is known here, and nothing is read then.
package labgrid

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"plugpull/internal/clock"
	"plugpull/powerctl"
	"plugpull/powerctl/bridge"
	"plugpull/powerctl/exec"
)

// Config describes a place.
type Config struct {
	Name string
	// Program is labgrid-client, or the path of one; empty is labgrid-client.
	Program string
	// Coordinator is what follows -x; empty is labgrid's own default.
	Coordinator string
	// Place is the place's whole name; Resource the name of its power resource, for places with several.
	Place, Resource string
	// Reads is how labgrid reads the place's power, one of Readers; empty for any other way.
	Reads string
	Class powerctl.Class
	// Timeout bounds each run of labgrid-client; a command takes two.
	Timeout time.Duration
}

// Readers returns what Config.Reads can be: the drivers of labgrid, and the models of its
// NetworkPowerDriver, whose reading is off only where the hardware says so. They were read in labgrid's
// source, as it was in 0.4.1 or later.
func Readers() []string {
	return []string{
		"NetworkPowerDriver/apc",      // an SNMP value of 2
		"NetworkPowerDriver/gude",     // a row of the web page with OFF
		"NetworkPowerDriver/gude8316", // a row of the web page with ,0
		"NetworkPowerDriver/netio",    // a digit 0
		"NetworkPowerDriver/raritan",  // an SNMP value of 8
		"SiSPMPowerDriver",            // sispmctl prints off
		"USBPowerDriver",              // uhubctl shows the port as off; what that says of VBUS depends on the hub
	}
}

// Outlet implements powerctl.Outlet and powerctl.Planner.
type Outlet struct {
	c           Config
	power, show *exec.Outlet
	off, on     []string
}

// New checks the configuration; it runs nothing.
func New(c Config) (*Outlet, error) {
	var errs []error
	check := func(bad bool, text string) {
		if bad {
			errs = append(errs, errors.New(text))
		}
	}
	if c.Program == "" {
		c.Program = "labgrid-client"
	}
	check(c.Name == "", "the outlet's name is missing")
	check(!bridge.PlainName(c.Place), "the place is not one plain name of letters, digits, '.', '_' and '-'")
	check(c.Resource != "" && !bridge.PlainName(c.Resource), "the resource is not one plain name of letters, digits, '.', '_' and '-'")
	check(strings.HasPrefix(c.Coordinator, "-") || strings.ContainsAny(c.Coordinator, " \t\r\n"), "the coordinator is not an address")
	if c.Reads != "" && !slices.Contains(Readers(), c.Reads) {
		errs = append(errs, fmt.Errorf("%q is no driver of labgrid whose reading can be trusted: leave it out, or give one of %s", c.Reads, strings.Join(Readers(), ", ")))
	}
	check(!bridge.ValidClass(c.Class), "the class is none of mains, drive and chassis")
	check(c.Timeout <= 0, "the timeout is missing")
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("labgrid outlet: %w", err)
	}
	o := &Outlet{c: c, off: c.argv("off"), on: c.argv("on")}
	var err error
	o.power, err = exec.New(exec.Config{Name: c.Name, Off: o.off, On: o.on, State: c.argv("get"), Timeout: c.Timeout, Class: c.Class})
	if err != nil {
		return nil, fmt.Errorf("labgrid outlet: %w", err)
	}
	// Only its State is ever run.
	o.show, err = exec.New(exec.Config{Name: c.Name, Off: o.off, On: o.on, State: append(c.base(), "show"), Timeout: c.Timeout, Class: c.Class})
	if err != nil {
		return nil, fmt.Errorf("labgrid outlet: %w", err)
	}
	return o, nil
}

func (c Config) base() []string {
	argv := []string{c.Program}
	if c.Coordinator != "" {
		argv = append(argv, "-x", c.Coordinator)
	}
	return append(argv, "-p", c.Place)
}

func (c Config) argv(action string) []string {
	argv := append(c.base(), "power")
	if c.Resource != "" {
		argv = append(argv, "--name", c.Resource)
	}
	return append(argv, action)
}

// Tried says against what the driver was run.
const Tried = powerctl.TriedSimulator

// Capabilities implements powerctl.Outlet. labgrid needs a coordinator and exporters: what it prints was
// taken from its source.
func (o *Outlet) Capabilities() powerctl.Capabilities {
	return powerctl.Capabilities{ReadBack: o.c.Reads != "", Class: o.c.Class, Tried: Tried}
}

// Off runs `power off`. It does not read back.
func (o *Outlet) Off(ctx context.Context) (powerctl.Result, error) {
	return o.command(ctx, "off", o.power.Off)
}

// On runs `power on`. It does not read back.
func (o *Outlet) On(ctx context.Context) (powerctl.Result, error) {
	return o.command(ctx, "on", o.power.On)
}

func (o *Outlet) command(ctx context.Context, op string, run func(context.Context) (powerctl.Result, error)) (powerctl.Result, error) {
	if err := o.verify(ctx, op); err != nil {
		return powerctl.Result{}, fmt.Errorf("%w: %w", powerctl.ErrNotSent, err)
	}
	return run(ctx)
}

// State runs `power get`. Raw is what it printed.
func (o *Outlet) State(ctx context.Context) (powerctl.Result, error) {
	if o.c.Reads == "" {
		return powerctl.Result{}, o.fail("state", "read the state", powerctl.ErrNoReadBack)
	}
	res, err := o.power.State(ctx)
	res.State, res.Observed = powerctl.Unknown, 0
	if err != nil {
		return res, reading{err}
	}
	if res.State, err = parse(res.Raw, o.c.Place, o.c.Resource); err != nil {
		return res, o.fail("state", "read what `power get` printed", err)
	}
	if res.State != powerctl.Unknown {
		res.Observed = clock.Now()
	}
	return res, nil
}

// parse knows two lines. One of them about another place is an *powerctl.IdentityError.
func parse(printed, place, resource string) (powerctl.State, error) {
	start := "power for place "
	if resource != "" {
		start = "power " + resource + " for place "
	}
	rest, ok := strings.CutPrefix(printed, start)
	if !ok {
		return powerctl.Unknown, nil
	}
	for word, state := range map[string]powerctl.State{" is on\n": powerctl.On, " is off\n": powerctl.Off} {
		if got, ok := strings.CutSuffix(rest, word); ok && bridge.PlainName(got) {
			if got != place {
				return powerctl.Unknown, &powerctl.IdentityError{What: "place", Want: place, Got: got}
			}
			return state, nil
		}
	}
	return powerctl.Unknown, nil
}

var errMalformed = errors.New("not what labgrid-client prints (is LG_ENV set?)")

// verify makes sure that the name stands for the place of this name.
func (o *Outlet) verify(ctx context.Context, op string) error {
	res, err := o.show.State(ctx)
	if err != nil {
		return reading{err}
	}
	line, _, _ := strings.Cut(res.Raw, "\n")
	rest, begun := strings.CutPrefix(line, "Place '")
	got, ended := strings.CutSuffix(rest, "':")
	if !begun || !ended {
		return o.fail(op, "ask for the place", fmt.Errorf("%w: %.64q", errMalformed, line))
	}
	if got != o.c.Place {
		return o.fail(op, "ask for the place", &powerctl.IdentityError{What: "place", Want: o.c.Place, Got: got})
	}
	return nil
}

// reading is an error of a run that commands nothing: that the program did not start is no
// powerctl.ErrNotSent there.
type reading struct{ err error }

func (e reading) Error() string      { return e.err.Error() }
func (e reading) As(target any) bool { return errors.As(e.err, target) }
func (e reading) Is(target error) bool {
	return target != powerctl.ErrNotSent && errors.Is(e.err, target)
}

// Identify asks labgrid for the place.
func (o *Outlet) Identify(ctx context.Context) (powerctl.Identity, error) {
	if err := o.verify(ctx, "identify"); err != nil {
		return powerctl.Identity{}, err
	}
	words := []string{"place", o.c.Place}
	if o.c.Resource != "" {
		words = append(words, "resource", o.c.Resource)
	}
	if o.c.Coordinator != "" {
		words = append(words, "at", o.c.Coordinator)
	}
	return powerctl.Identity{Driver: "labgrid", Name: o.c.Name, Device: strings.Join(words, " ")}, nil
}

// Pins returns nothing: the place is the only identity that labgrid tells, and it is configured.
func (o *Outlet) Pins(context.Context) (map[string]string, error) { return map[string]string{}, nil }

// Plan implements powerctl.Planner.
func (o *Outlet) Plan(on bool) []string {
	argv := o.off
	if on {
		argv = o.on
	}
	return []string{strings.Join(append(o.c.base(), "show"), " "), strings.Join(argv, " ")}
}

func (o *Outlet) fail(op, step string, err error) error {
	return &powerctl.OpError{Op: op, Outlet: o.c.Name, Step: step, Err: err}
}
