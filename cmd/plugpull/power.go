package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"plugpull/internal/clock"
	"plugpull/internal/usage"
	"plugpull/powerctl"
	"plugpull/scenarios"
)

func (a *app) powerCommand() *cobra.Command {
	c := &cobra.Command{Use: "power", Short: "switch the outlet of a bench file, and prove what hangs on it", Args: cobra.NoArgs,
		Long: `Works on the outlet of a bench file, or on the group of its feeds. Each command locks the outlet on this
machine, takes its lease, checks that the device is the pinned one, and writes down what it is about to do.
An outlet is called off only when the device read back exactly off.`,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(a.powerListCommand(), a.powerStatusCommand(), a.powerSwitchCommand(false), a.powerSwitchCommand(true),
		a.powerIdentifyCommand(), a.powerWiringCommand(), a.powerCalibrateCommand(), a.powerGlitchCommand(), a.powerReleaseCommand())
	return c
}

// loadLab loads a lab bench from a file. What is wrong with it is said at once, also what only a driver can see
// wrong with an outlet whose keys are right.
func loadLab(path string) (*scenarios.Bench, error) {
	b, err := scenarios.LoadBench(path)
	var bad *scenarios.FileError
	if errors.As(err, &bad) {
		driverProblems(&b, bad)
	}
	return &b, err
}

func (a *app) powerListCommand() *cobra.Command {
	return &cobra.Command{Use: "list [BENCH-FILE…]", Short: "print the drivers and device profiles, or the outlets of bench files",
		Long: `Without a file: every driver, and every device profile of those that have some, with the class of its cut,
whether it reads back, and what it was tried against. With files: their outlets, and who holds them.
Nothing is contacted.`,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return listDrivers(a.out)
			}
			var errs []error
			w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "FILE\tOUTLET\tDRIVER\tCLASS\tREAD-BACK\tLEAVE\tTRIED")
			for _, path := range args {
				errs = append(errs, a.listOutlets(c.Context(), w, path))
			}
			return errors.Join(append(errs, w.Flush())...)
		}}
}

func (a *app) listOutlets(ctx context.Context, w io.Writer, path string) error {
	b, err := loadLab(path)
	if err != nil {
		return err
	}
	row := func(o *scenarios.Outlet, indent, leave string, c powerctl.Capabilities) {
		fmt.Fprintf(w, "%s\t%s%s\t%s\t%s\t%s\t%s\t%s\n", path, indent, o.Name, o.Driver, c.Class, yes(c.ReadBack), leave, c.Tried)
	}
	o, err := a.outlet(ctx, b, true)
	if err != nil {
		return err
	}
	defer o.Close()
	row(&b.Outlet, "", string(b.Outlet.Leave), o.Capabilities())
	if g, is := o.Outlet.(*powerctl.Group); is {
		for i, f := range g.Feeds() {
			row(&b.Outlet.Feeds[i], "  ", "", f.Outlet.Capabilities())
		}
	}
	return nil
}

// members are the feeds of a group, or the outlet alone without a name of its own.
func members(o powerctl.Outlet) []powerctl.Feed {
	if g, is := o.(*powerctl.Group); is {
		return g.Feeds()
	}
	return []powerctl.Feed{{Outlet: o}}
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// withOutlet loads a bench file, builds its outlet and hands it to f.
func (a *app) withOutlet(ctx context.Context, path string, dry bool, f func(b *scenarios.Bench, o *outlets) error) error {
	b, err := loadLab(path)
	if err != nil {
		return err
	}
	o, err := a.outlet(ctx, b, dry)
	if err != nil {
		return err
	}
	return errors.Join(f(b, o), o.Close())
}

func (a *app) powerStatusCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{Use: "status BENCH-FILE", Short: "read the outlet's state, and what is written down about it", Args: cobra.ExactArgs(1),
		Long: `Reads the state from the device and changes nothing; it takes no lock. Beside it: who holds the outlet, what
was last commanded, whether that was seen to take effect, and when its wiring was proven.

Exit codes: 0 on or off; 2 usage or a bad file; 3 anything else that the device says, or an outlet that
cannot report; 4 the device does not answer.`,
		RunE: func(c *cobra.Command, args []string) error {
			return a.withOutlet(c.Context(), args[0], false, func(b *scenarios.Bench, o *outlets) error {
				return a.status(a.until(c.Context()), b, o.Outlet, asJSON)
			})
		}}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object an outlet, a line each")
	return c
}

// outletStatus is what is known of one outlet.
type outletStatus struct {
	Outlet  powerctl.Identity `json:"outlet"`
	Feed    string            `json:"feed,omitempty"`
	State   powerctl.State    `json:"state"`
	Raw     string            `json:"raw,omitempty"`
	Tried   powerctl.Tried    `json:"tried"`
	Record  *powerctl.Record  `json:"record,omitempty"`
	Problem string            `json:"problem,omitempty"`
}

func (a *app) status(ctx context.Context, b *scenarios.Bench, o powerctl.Outlet, asJSON bool) error {
	var errs []error
	for _, m := range members(o) {
		st, err := statusOf(ctx, m, b.Outlet.Lease.Dir)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if st.State != powerctl.On && st.State != powerctl.Off {
			a.code = exitInconclusive
		}
		if asJSON {
			errs = append(errs, json.NewEncoder(a.out).Encode(st))
		} else {
			printStatus(a.out, st)
		}
	}
	return errors.Join(errs...)
}

func statusOf(ctx context.Context, m powerctl.Feed, dir string) (st outletStatus, err error) {
	if st.Outlet, err = m.Outlet.Identify(ctx); err != nil {
		return st, fmt.Errorf("identify the outlet: %w", err)
	}
	st.Feed, st.Tried = m.Name, m.Outlet.Capabilities().Tried
	res, err := m.Outlet.State(ctx)
	if err != nil && !errors.Is(err, powerctl.ErrNoReadBack) {
		return st, err
	}
	if err != nil {
		st.Problem = err.Error()
	}
	st.State, st.Raw = res.State, res.Raw
	r, err := powerctl.ReadRecord(st.Outlet, dir)
	if err != nil {
		return st, err
	}
	if r.Outlet != (powerctl.Identity{}) {
		st.Record = &r
	}
	return st, nil
}

func printStatus(w io.Writer, st outletStatus) {
	fmt.Fprintf(w, "%v\n", st.Outlet)
	line := func(key, format string, args ...any) {
		fmt.Fprintf(w, "  %-12s %s\n", key, fmt.Sprintf(format, args...))
	}
	line("state", "%s", st.State)
	if st.Problem != "" {
		line("", "%s", st.Problem)
	}
	if st.Raw != "" {
		line("read as", "%q", st.Raw)
	}
	if st.Tried != powerctl.TriedOwn {
		line("driver", "%s", st.Tried)
	}
	r := st.Record
	if r == nil {
		return
	}
	when := func(t time.Time) string { return t.Local().Format(time.DateTime) }
	switch {
	case r.Gone():
		line("held by", "nobody: %s, process %d, ended without giving it back; it was to leave it %s", r.Owner, r.PID, r.Leave)
	case r.Owner != "":
		line("held by", "%s, process %d on %s, until %s; leaves it %s", r.Owner, r.PID, r.Host, when(r.Expires), r.Leave)
	}
	switch i := r.Intent; {
	case i.Open():
		line("last", "%s at %s, which nobody saw take effect", i.Op, when(i.At))
	case i != nil:
		line("last", "%s at %s, seen at %s", i.Op, when(i.At), when(i.Done))
	}
	if r.Wiring != nil {
		line("wiring", "proven by %s at %s", r.Wiring.Witness, when(r.Wiring.At))
	}
}

func (a *app) powerSwitchCommand(on bool) *cobra.Command {
	word, other := "off", "min_on"
	if on {
		word, other = "on", "min_off"
	}
	var dry, asJSON bool
	c := &cobra.Command{Use: word + " BENCH-FILE", Short: "switch the outlet " + word + " and read it back", Args: cobra.ExactArgs(1),
		Long: `Waits for the least time in the other state (` + other + `), sends one command, and reads the state back until it
is exactly ` + word + ` or off_deadline has passed. The outlet stays ` + word + `: leave is for runs.

Exit codes: 0 read back ` + word + `; 2 usage, a bad file, or somebody else holds the outlet; 3 the device took the
command and cannot report; 4 anything else: the error says what is known.`,
		RunE: func(c *cobra.Command, args []string) error {
			if dry {
				return a.withOutlet(c.Context(), args[0], true, func(_ *scenarios.Bench, o *outlets) error {
					for _, line := range powerctl.PlanOf(o.Outlet, on) {
						fmt.Fprintln(a.out, line)
					}
					return nil
				})
			}
			return a.switchOutlet(c.Context(), args[0], on, asJSON)
		}}
	c.Flags().BoolVar(&dry, "dry-run", false, "print what would be sent; contact nothing, take nothing")
	c.Flags().BoolVar(&asJSON, "json", false, "print the evidence as one JSON object")
	return c
}

func (a *app) switchOutlet(ctx context.Context, path string, on, asJSON bool) error {
	b, err := loadLab(path)
	if err != nil {
		return err
	}
	h, err := a.hold(a.until(ctx), b, powerctl.Unknown)
	if err != nil {
		return err
	}
	do := powerctl.SwitchOff // at the first interrupt it goes on: what was sent is read back
	if on {
		do = powerctl.SwitchOn
	}
	res, err := do(ctx, h, powerctl.Policy{Deadline: b.Timing.OffDeadline})
	if errors.Is(err, powerctl.ErrNoReadBack) {
		fmt.Fprintln(a.errs, "warning:", err)
		a.code, err = exitInconclusive, nil
	}
	if asJSON {
		err = errors.Join(err, json.NewEncoder(a.out).Encode(res))
	} else if res.Commanded != 0 {
		printResult(a.out, res)
	}
	return errors.Join(err, h.Close())
}

// until is done at the first interrupt: reading, and waiting for a state, are safe to give up at once.
func (a *app) until(ctx context.Context) context.Context {
	limited, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		select {
		case <-a.stop:
		case <-ctx.Done():
		}
	}()
	return limited
}

func printResult(w io.Writer, r powerctl.Result) {
	after := func(i clock.Instant) string {
		if i == 0 {
			return "never"
		}
		return "+" + i.Sub(r.Commanded).Round(100*time.Microsecond).String()
	}
	fmt.Fprintf(w, "before        %s\n", r.Before)
	fmt.Fprintf(w, "commanded     %s\n", time.Now().Add(-clock.Now().Sub(r.Commanded)).Format("15:04:05.000"))
	fmt.Fprintf(w, "acknowledged  %s\n", after(r.Acknowledged))
	fmt.Fprintf(w, "read back     %s\n", after(r.Observed))
	if r.Raw != "" {
		fmt.Fprintf(w, "read as       %q\n", r.Raw)
	}
	fmt.Fprintf(w, "state         %s\n", r.State)
}

func (a *app) powerIdentifyCommand() *cobra.Command {
	return &cobra.Command{Use: "identify BENCH-FILE", Short: "ask the device who it is, and print what to pin", Args: cobra.ExactArgs(1),
		Long: `Asks the device and switches nothing. The lines below "pin:" go into the bench file, below the outlet or the
feed: from then on another device, or another outlet of it, is refused. Settings by which the device
could switch by itself are named.`,
		RunE: func(c *cobra.Command, args []string) error {
			return a.withOutlet(c.Context(), args[0], false, func(_ *scenarios.Bench, o *outlets) error {
				var errs []error
				for _, m := range members(o.Outlet) {
					errs = append(errs, a.identify(a.until(c.Context()), m.Outlet))
				}
				return errors.Join(errs...)
			})
		}}
}

func (a *app) identify(ctx context.Context, o powerctl.Outlet) error {
	id, err := o.Identify(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.out, "%v\n", id)
	if p, can := o.(powerctl.Pinner); can {
		pins, err := p.Pins(ctx)
		if err != nil {
			return err
		}
		if len(pins) > 0 {
			fmt.Fprintln(a.out, "pin:")
		}
		for _, key := range slices.Sorted(maps.Keys(pins)) {
			fmt.Fprintf(a.out, "  %s: %q\n", key, pins[key])
		}
	}
	list, err := powerctl.WarningsOf(ctx, o)
	for _, w := range list {
		fmt.Fprintln(a.out, "warning: "+w.Text)
	}
	return err
}

func (a *app) powerGlitchCommand() *cobra.Command {
	var length time.Duration
	c := &cobra.Command{Use: "glitch BENCH-FILE --length TIME", Short: "take the power away for some microseconds, once", Args: cobra.ExactArgs(1),
		Long: `For outlets that can (quarch): a brown-out of the given length, such as 500us. Nothing reads back how deep the rail
fell, so that it is never called off, and no run counts it as a cut.

Exit codes: 0 the device took the command; 2 usage, a bad file, or an outlet that cannot; 4 anything else.`,
		RunE: func(c *cobra.Command, args []string) error { return a.glitch(a.until(c.Context()), args[0], length) }}
	c.Flags().DurationVar(&length, "length", 0, "how long")
	return c
}

func (a *app) glitch(ctx context.Context, path string, length time.Duration) error {
	if length <= 0 {
		return usage.Errorf("--length is missing: a time such as 500us")
	}
	b, err := loadLab(path)
	if err != nil {
		return err
	}
	h, err := a.hold(ctx, b, powerctl.Unknown)
	if err != nil {
		return err
	}
	g, can := h.drivers.Outlet.(powerctl.Glitcher)
	if !can {
		return errors.Join(usage.Errorf("%s: outlet %q (driver %s) cannot glitch", path, b.Outlet.Name, b.Outlet.Driver), h.Close())
	}
	res, err := g.Glitch(ctx, length)
	if res.Commanded != 0 {
		printResult(a.out, res)
	}
	return errors.Join(err, h.Close())
}

func (a *app) powerReleaseCommand() *cobra.Command {
	var owner string
	c := &cobra.Command{Use: "release BENCH-FILE --owner NAME", Short: "end the lease of a holder that is gone for good", Args: cobra.ExactArgs(1),
		Long: `Ends the lease of an outlet whose holder on another machine is gone for good; it switches nothing. --owner must be
the holder's name, as the refusal gives it: to take an outlet from a run that is alive spoils its cut.

Exit codes: 0 released, or nobody held it; 2 usage, a bad file, or another holder; 4 anything else.`,
		RunE: func(c *cobra.Command, args []string) error {
			if owner == "" {
				return usage.Errorf("--owner is missing: the name of the holder, as plugpull power status gives it")
			}
			return a.withOutlet(c.Context(), args[0], false, func(b *scenarios.Bench, o *outlets) error {
				return a.release(c.Context(), b, o.Outlet, owner)
			})
		}}
	c.Flags().StringVar(&owner, "owner", "", "the holder's name")
	return c
}

func (a *app) release(ctx context.Context, b *scenarios.Bench, o powerctl.Outlet, owner string) error {
	for _, m := range members(o) {
		id, err := m.Outlet.Identify(ctx)
		if err != nil {
			return err
		}
		was, err := powerctl.Release(id, b.Outlet.Lease.Dir, owner)
		if errors.Is(err, powerctl.ErrOwner) {
			return usage.Wrap(err)
		}
		if err != nil {
			return err
		}
		if was.Owner == "" {
			fmt.Fprintf(a.out, "%v: nobody holds it\n", id)
			continue
		}
		fmt.Fprintf(a.out, "%v: released from %s\n", id, strings.TrimSpace(was.Owner+" on "+was.Host))
	}
	return nil
}
