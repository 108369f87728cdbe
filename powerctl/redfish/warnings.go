package redfish

import (
	"context"
	"encoding/json"
	"fmt"

	"plugpull/powerctl"
)

// Warnings asks for what can switch without a command, or late: the restore policy, the
// delays and the host's watchdog. It changes nothing.
func (o *Outlet) Warnings(ctx context.Context) ([]powerctl.Warning, error) {
	var out []powerctl.Warning
	err := o.with(ctx, "warnings", func(c *conversation) error {
		r, err := o.get(c, "warnings")
		if err != nil {
			return err
		}
		out = append(append(r.restoreWarnings(), r.delayWarnings()...), r.watchdogWarnings()...)
		return nil
	})
	return out, err
}

// restoreWarnings: PowerRestorePolicy is what the device does when mains returns.
func (r *resource) restoreWarnings() []powerctl.Warning {
	text := "the device does not say whether it switches on by itself when mains returns"
	switch r.object.text("PowerRestorePolicy") {
	case "AlwaysOff":
		return nil
	case "AlwaysOn":
		text = "the device switches on by itself when mains returns (restore policy AlwaysOn)"
	case "LastState":
		text = "the device switches on by itself when mains returns and it was on (restore policy LastState)"
	}
	return []powerctl.Warning{{Text: text}}
}

// delayWarnings: a delay makes a command late, and switches nothing without one.
func (r *resource) delayWarnings() []powerctl.Warning {
	var out []powerctl.Warning
	for _, key := range []string{"PowerOffDelaySeconds", "PowerOnDelaySeconds"} {
		raw, there := r.object[key]
		if !there || string(raw) == "null" {
			continue
		}
		var seconds float64
		if json.Unmarshal(raw, &seconds) != nil || seconds != 0 {
			out = append(out, powerctl.Warning{Text: fmt.Sprintf("the outlet switches late: %s is %.40s", key, raw)})
		}
	}
	return out
}

// watchdogWarnings: HostWatchdogTimer is the timer by which a BMC takes power from a host
// that has stopped to answer it.
func (r *resource) watchdogWarnings() []powerctl.Warning {
	timer := r.object.object("HostWatchdogTimer")
	enabled, ok := timer.flag("FunctionEnabled")
	action := timer.text("TimeoutAction")
	if ok && !enabled || action == "None" {
		return nil
	}
	return []powerctl.Warning{{
		Text:     fmt.Sprintf("the BMC's watchdog is enabled, and its action is %.40q: disable HostWatchdogTimer", action),
		Switches: action != "ResetSystem", // which takes no power away
	}}
}

// Pins returns what the device says of itself now, whatever is pinned, by the keys of a
// bench file; what it does not say is left out.
func (o *Outlet) Pins(ctx context.Context) (map[string]string, error) {
	pins := map[string]string{}
	err := o.with(ctx, "pins", func(c *conversation) error {
		r, err := o.unverified(c, "pins")
		if err != nil {
			return err
		}
		d, err := r.device(c)
		if err != nil {
			return o.fail("pins", "read which device this is", err)
		}
		said := map[string]string{"uuid": d.uuid, "serial": d.serial}
		if o.kind == &pduOutlet {
			said["label"] = r.label()
		}
		for key, value := range said {
			if value != "" {
				pins[key] = value
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return pins, nil
}

// Plan implements powerctl.Planner. The target of the action is the device's to name; its
// usual place stands for it.
func (o *Outlet) Plan(on bool) []string {
	var lines []string
	if o.c.Auth == Session {
		lines = append(lines, "GET "+o.c.URL+"/redfish/v1/ (without credentials)",
			"POST "+o.c.URL+defaultSessions+" with the user and the password, or where the service says that sessions are")
	}
	lines = append(lines, "GET "+o.c.URL+o.path())
	if pdu, ok := pduOf(o.path()); ok && o.kind == &pduOutlet && o.c.Pin.UUID+o.c.Pin.Serial != "" {
		lines = append(lines, "GET "+o.c.URL+pdu)
	}
	value := o.kind.off
	if on {
		value = o.kind.on
	}
	lines = append(lines, "GET of the action's description, where the resource has it apart",
		fmt.Sprintf("POST %s%s/Actions/%s {%q:%q}, or where the resource says that the action is", o.c.URL, o.path(), o.kind.action, o.kind.parameter, value),
		"GET "+o.c.URL+o.path()+" again, only when the answer is 409")
	if o.c.Auth == Session {
		lines = append(lines, "DELETE of the session")
	}
	return lines
}
