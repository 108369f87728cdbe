package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"plugpull/internal/usage"
	"plugpull/internal/wiring"
	"plugpull/powerctl"
	"plugpull/scenarios"
)

// wiringFlags are those of both commands that cut a host to learn from it.
type wiringFlags struct {
	witness    string
	dark, boot time.Duration
	dry        bool
}

func (f *wiringFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.witness, "witness", "", "who tells whether the host has power: "+wiring.Want)
	c.Flags().DurationVar(&f.dark, "dark", 30*time.Second, "wait for the host to go silent after off was read back")
	c.Flags().DurationVar(&f.boot, "boot", 10*time.Minute, "wait for the host's answer after on")
	c.Flags().BoolVar(&f.dry, "dry-run", false, "print what would be sent; contact nothing, take nothing")
}

func (f *wiringFlags) check() (*wiring.Witness, error) {
	if f.witness == "" {
		return nil, usage.Errorf("--witness is missing: %s", wiring.Want)
	}
	if f.dark <= 0 || f.boot <= 0 {
		return nil, usage.Errorf("--dark and --boot want a time above 0")
	}
	w, err := wiring.ParseWitness(f.witness)
	if err != nil {
		return nil, usage.Errorf("--witness: %w", err)
	}
	return w, nil
}

func (a *app) powerWiringCommand() *cobra.Command {
	var f wiringFlags
	c := &cobra.Command{Use: "verify-wiring BENCH-FILE --witness WHO", Short: "cut once, and see that this host vanishes and comes back", Args: cobra.ExactArgs(1),
		Long: `CUTS THE POWER OF THE HOST, once. The witness must answer first; then the outlet is switched off and read back,
the witness must fall silent (three questions in a row), stay silent until on is sent, and answer again after it. An
outlet that cannot report is believed by the witness alone. The proof is written down beside the outlet: plugpull
power status and run show it.

Exit codes: 0 proven; 1 the host did not vanish, or did not come back; 2 usage, a bad file, or somebody else
holds the outlet; 4 anything else.`,
		RunE: func(c *cobra.Command, args []string) error {
			return a.cuts(c.Context(), args[0], &f, 1, func(h powerctl.Holder, w *wiring.Witness, cuts []wiring.Cut) error {
				fmt.Fprintf(a.out, "proven: off made %s vanish, on brought it back after %v\n", w,
					cuts[0].Back.Sub(cuts[0].Result.Commanded).Round(time.Millisecond))
				return h.Prove(powerctl.Wiring{Witness: w.String(), At: time.Now()})
			})
		}}
	f.register(c)
	return c
}

func (a *app) powerCalibrateCommand() *cobra.Command {
	var f wiringFlags
	var n int
	var asJSON bool
	c := &cobra.Command{Use: "calibrate BENCH-FILE --witness WHO", Short: "cut some times, and measure how soon the host is dark", Args: cobra.ExactArgs(1),
		Long: `CUTS THE POWER OF THE HOST N times. Prints the least, the middle and the greatest time from the command to its
acknowledgement, to off as it was read back, and to the dark host. A host that was dark long after its outlet
read off shows an outlet that reports what its relay was told; set off_deadline and min_off by what you see.

Exit codes: as of verify-wiring.`,
		RunE: func(c *cobra.Command, args []string) error {
			if n < 1 || n > 1000 {
				return usage.Errorf("--cuts %d: want 1 to 1000", n)
			}
			return a.cuts(c.Context(), args[0], &f, n, func(_ powerctl.Holder, _ *wiring.Witness, cuts []wiring.Cut) error {
				c := wiring.Calibrate(cuts)
				if asJSON {
					return json.NewEncoder(a.out).Encode(c)
				}
				printCalibration(a.out, c)
				return nil
			})
		}}
	f.register(c)
	c.Flags().IntVarP(&n, "cuts", "n", 5, "how many cuts")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object, times in nanoseconds")
	return c
}

// cuts makes n cuts and hands them to end; the outlet is left as the file says.
func (a *app) cuts(ctx context.Context, path string, f *wiringFlags, n int, end func(powerctl.Holder, *wiring.Witness, []wiring.Cut) error) error {
	w, err := f.check()
	if err != nil {
		return err
	}
	b, err := loadLab(path)
	if err != nil {
		return err
	}
	if f.dry {
		return a.planCuts(ctx, path, w, n)
	}
	first := a.until(ctx)
	h, err := a.hold(first, b, powerctl.Unknown)
	if err != nil {
		return err
	}
	plan := &wiring.Plan{Outlet: h, Witness: w, Policy: powerctl.Policy{Deadline: b.Timing.OffDeadline}, Dark: f.dark, Boot: f.boot,
		Say: func(text string) { fmt.Fprintln(a.errs, text) }}
	var all []wiring.Cut
	for i := 0; i < n && err == nil; i++ {
		var cut wiring.Cut
		cut, err = plan.Once(first)
		all = append(all, cut)
	}
	if err == nil {
		err = end(h, w, all)
	}
	if h.leave == scenarios.LeaveOff && switched(all) {
		err = errors.Join(err, powerctl.Settle(ctx, h, plan.Policy, false))
	}
	var notWired *wiring.NotWiredError
	var notBack *wiring.NotBackError
	var returned *wiring.ReturnedError
	if errors.As(err, &notWired) || errors.As(err, &notBack) || errors.As(err, &returned) {
		a.code = exitUnexpected
		fmt.Fprintln(a.errs, "plugpull:", err)
		err = nil
	}
	return errors.Join(err, h.Close())
}

// switched reports whether any cut was commanded.
func switched(cuts []wiring.Cut) bool {
	return slices.ContainsFunc(cuts, func(c wiring.Cut) bool { return c.Result.Commanded != 0 })
}

func (a *app) planCuts(ctx context.Context, path string, w *wiring.Witness, n int) error {
	return a.withOutlet(ctx, path, true, func(b *scenarios.Bench, o *outlets) error {
		fmt.Fprintf(a.out, "%d times:\n", n)
		fmt.Fprintf(a.out, "  wait until %s answers\n", w)
		for _, line := range powerctl.PlanOf(o.Outlet, false) {
			fmt.Fprintln(a.out, "  "+line)
		}
		fmt.Fprintf(a.out, "  read back off, wait until %s is silent, at least %v\n", w, b.Timing.MinOff)
		for _, line := range powerctl.PlanOf(o.Outlet, true) {
			fmt.Fprintln(a.out, "  "+line)
		}
		fmt.Fprintf(a.out, "  wait until %s answers\n", w)
		return nil
	})
}

func printCalibration(w io.Writer, c wiring.Calibration) {
	ms := func(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/1e6) }
	row := func(name string, s wiring.Spread) {
		if s == (wiring.Spread{}) {
			return
		}
		fmt.Fprintf(w, "%-16s %10s %10s %10s %10s\n", name, ms(s.Least), ms(s.Median), ms(s.Most), ms(s.Jitter()))
	}
	fmt.Fprintf(w, "%d cuts; ms from the command to\n", c.Cuts)
	fmt.Fprintf(w, "%-16s %10s %10s %10s %10s\n", "", "least", "median", "most", "jitter")
	row("acknowledged", c.Acknowledged)
	row("off read back", c.Off)
	row("dark (at most)", c.Dark)
	row("back again", c.Back)
	fmt.Fprintf(w, "dark is known to %s ms; dark before off was read: %d, still answering after: %d\n", ms(c.Resolution), c.Early, c.Late)
}
