package ipmi

import (
	"context"
	"errors"
	"fmt"

	"plugpull/powerctl"
)

// Warnings asks the BMC for what can switch the host without a command: its restore
// policy and its watchdog. It changes nothing.
func (o *Outlet) Warnings(ctx context.Context) ([]powerctl.Warning, error) {
	var out []powerctl.Warning
	err := o.with(ctx, "warnings", func(ctx context.Context, s *session) error {
		b, err := s.ask(ctx, getChassisStatus, nil)
		if err != nil {
			return o.fail("warnings", "read the restore policy", err)
		}
		if text := parseStatus(b).policy.warning(); text != "" {
			out = append(out, powerctl.Warning{Text: text})
		}
		b, err = s.ask(ctx, getWatchdog, nil)
		var refused *CompletionError
		switch {
		case errors.As(err, &refused) && refused.Code == notSupported: // it has none
		case errors.As(err, &refused):
			out = append(out, powerctl.Warning{Text: fmt.Sprintf("the BMC's watchdog cannot be read (%v): it may switch the host", refused)})
		case err != nil:
			return o.fail("warnings", "read the watchdog", err)
		default:
			out = append(out, watchdogWarnings(b)...)
		}
		return nil
	})
	return out, err
}

func (p restorePolicy) warning() string {
	switch p {
	case alwaysOff:
		return ""
	case alwaysOn:
		return "the BMC switches the host on by itself when mains returns (restore policy always on)"
	case lastState:
		return "the BMC switches the host on by itself when mains returns and it was on (restore policy last state)"
	}
	return "the BMC does not say whether it switches the host on by itself when mains returns"
}

// watchdogWarnings reads the answer to Get Watchdog Timer (IPMI 2.0, 27.7): bit 6 of the
// first byte is set while it runs, the low bits of the second are what it does then. What
// follows may be short: ipmi_sim leaves the present countdown out.
func watchdogWarnings(b []byte) []powerctl.Warning {
	const running, reset = 1 << 6, 1
	if len(b) < 2 || len(b) > 8 {
		return []powerctl.Warning{{Text: fmt.Sprintf("the BMC's watchdog cannot be read (% x): it may switch the host", b[:min(len(b), 16)])}}
	}
	does, known := map[byte]string{0: "nothing", reset: "a reset", 2: "power down", 3: "a power cycle"}[b[1]&7]
	switch {
	case b[0]&running == 0 || does == "nothing":
		return nil
	case !known:
		does = fmt.Sprintf("unknown (%d)", b[1]&7)
	}
	return []powerctl.Warning{{
		Text:     fmt.Sprintf("the BMC's watchdog timer runs, and its action is %s: stop it on the host", does),
		Switches: b[1]&7 != reset, // which takes no power away
	}}
}

// Pins returns what the BMC says of itself now, whatever is pinned, by the keys of a bench
// file; what it does not say is left out.
func (o *Outlet) Pins(ctx context.Context) (map[string]string, error) {
	pins := map[string]string{}
	err := o.unverified(ctx, "pins", func(ctx context.Context, s *session) error {
		for _, p := range []struct {
			key  string
			read func(context.Context) (string, error)
		}{{"guid", s.guid}, {"serial", s.serial}} {
			said, err := p.read(ctx)
			if err != nil {
				return o.fail("pins", "read the "+p.key, err)
			}
			if said != "" {
				pins[p.key] = said
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return pins, nil
}

// Plan implements powerctl.Planner. The requests are those of a session in which nothing
// is lost; only what changes nothing is asked for again.
func (o *Outlet) Plan(on bool) []string {
	to := " to " + o.c.Address
	lines := []string{
		fmt.Sprintf("Open Session (cipher suite %d)%s", o.c.CipherSuite, to),
		"RAKP 1 and RAKP 3" + to,
		"Set Session Privilege Level operator (0x03)" + to,
	}
	if o.c.Pin.GUID != "" {
		lines = append(lines, "Get System GUID"+to)
	}
	if o.c.Pin.Serial != "" {
		lines = append(lines, "Get FRU Inventory Area Info and Read FRU Data of FRU 0 (serial)"+to)
	}
	control := fmt.Sprintf("Chassis Control power down (%#02x)", powerDown)
	if on {
		control = fmt.Sprintf("Chassis Control power up (%#02x)", powerUp)
	}
	return append(lines, control+to, "Close Session"+to)
}
