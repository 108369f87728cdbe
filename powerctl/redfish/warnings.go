package redfish

import (
	"context"
	"encoding/json"
)

// RestorePolicy is what a device does when mains returns (PowerRestorePolicy).
type RestorePolicy string

// The policies.
const (
	AlwaysOff     RestorePolicy = "AlwaysOff"
	LastState     RestorePolicy = "LastState"
	AlwaysOn      RestorePolicy = "AlwaysOn"
	UnknownPolicy RestorePolicy = "unknown" // not told, or something else
)

// Warning is something about a device that a campaign should know and that
// stops nothing.
type Warning struct {
	Policy RestorePolicy // empty when the warning is about a delay
	// Delay is a property such as PowerOffDelaySeconds that is not zero, and its value in seconds.
	Delay   string
	Seconds float64
}

func (w Warning) String() string {
	switch {
	case w.Delay != "":
		return "the outlet switches late: " + w.Delay + " is not zero"
	case w.Policy == AlwaysOn:
		return "the device switches on by itself when mains returns (restore policy AlwaysOn)"
	case w.Policy == LastState:
		return "the device switches on by itself when mains returns and it was on (restore policy LastState)"
	}
	return "the device does not say whether it switches on by itself when mains returns"
}

// Warnings asks for settings that switch by themselves or late. It changes nothing.
func (o *Outlet) Warnings(ctx context.Context) ([]Warning, error) {
	var out []Warning
	err := o.with(ctx, "warnings", func(c *conversation) error {
		r, err := o.get(c, "warnings")
		if err != nil {
			return err
		}
		switch p := RestorePolicy(r.object.text("PowerRestorePolicy")); p {
		case AlwaysOff:
		case AlwaysOn, LastState:
			out = append(out, Warning{Policy: p})
		default:
			out = append(out, Warning{Policy: UnknownPolicy})
		}
		for _, key := range []string{"PowerOffDelaySeconds", "PowerOnDelaySeconds"} {
			var seconds float64
			if json.Unmarshal(r.object[key], &seconds) == nil && seconds != 0 {
				out = append(out, Warning{Delay: key, Seconds: seconds})
			}
		}
		return nil
	})
	return out, err
}
