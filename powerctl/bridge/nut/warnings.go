package nut

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"plugpull/powerctl"
)

// Warnings reads every variable of the device once, and looks at those by which the device can
// switch the outlet, or by which a reading can be old. It changes nothing.
func (o *Outlet) Warnings(ctx context.Context) ([]powerctl.Warning, error) {
	var vars map[string]string
	err := o.with(ctx, "warnings", func(c *conversation) error {
		if err := o.verify(c); err != nil {
			return o.fail("warnings", "verify which device answers", err)
		}
		rows, err := c.list("VAR")
		if err != nil {
			return o.fail("warnings", "read the variables", err)
		}
		vars = map[string]string{}
		for _, words := range rows {
			if len(words) != 2 {
				return o.fail("warnings", "read the variables", errMalformed)
			}
			vars[words[0]] = words[1]
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return o.warnings(vars), nil
}

func (o *Outlet) warnings(vars map[string]string) []powerctl.Warning {
	var out []powerctl.Warning
	warn := func(switches bool, format string, args ...any) {
		out = append(out, powerctl.Warning{Switches: switches, Text: fmt.Sprintf(format, args...)})
	}
	// Countdowns: -1 or 0 is none.
	for _, scope := range []string{fmt.Sprintf("outlet.%d.", o.c.Outlet), "ups."} {
		for _, timer := range []string{"timer.shutdown", "timer.start", "timer.reboot"} {
			v, there := vars[scope+timer]
			seconds, err := strconv.ParseFloat(v, 64)
			switch {
			case !there:
			case err != nil:
				warn(false, "%s%s is %q, which is no number: a countdown may be running", scope, timer, v)
			case seconds > 0:
				warn(true, "a countdown is running: %s%s is %s s", scope, timer, v)
			}
		}
	}
	for word := range strings.FieldsSeq(vars["ups.status"]) {
		if slices.Contains([]string{"OB", "LB", "FSD"}, word) {
			warn(true, "the UPS is on battery or about to shut down (ups.status is %q): it may switch its outlets off", vars["ups.status"])
			break
		}
	}
	positive := func(name string) bool { n, err := strconv.ParseFloat(vars[name], 64); return err == nil && n > 0 }
	for _, name := range []string{"autoswitch.charge.low", "battery.charge.low"} {
		if name = o.variable(name); positive(name) {
			warn(false, "the UPS switches the outlet off by itself on battery, at %s%% of charge (%s)", vars[name], name)
		}
	}
	for _, name := range []string{"delay.shutdown", "delay.start"} {
		if name = o.variable(name); positive(name) {
			warn(false, "%s is %s s: it holds for shutdowns by others; some devices also wait that long for load.off and load.on", name, vars[name])
		}
	}
	for _, name := range []string{"driver.parameter.pollinterval", "driver.parameter.pollfreq"} {
		if positive(name) {
			warn(false, "a reading can be %s s old (%s): the deadline must be longer", vars[name], name)
		}
	}
	return out
}
