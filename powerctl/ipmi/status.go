package ipmi

import (
	"context"

	"plugpull/powerctl"
)

// RestorePolicy is what a BMC does when mains returns (IPMI 2.0, table 28-3).
type RestorePolicy string

// The policies.
const (
	AlwaysOff     RestorePolicy = "always off"
	LastState     RestorePolicy = "last state"
	AlwaysOn      RestorePolicy = "always on"
	UnknownPolicy RestorePolicy = "unknown"
)

// Warning is something about a BMC that a campaign should know and that stops
// nothing.
type Warning struct {
	Policy RestorePolicy
}

func (w Warning) String() string {
	switch w.Policy {
	case AlwaysOn:
		return "the BMC switches the host on by itself when mains returns (restore policy always on)"
	case LastState:
		return "the BMC switches the host on by itself when mains returns and it was on (restore policy last state)"
	}
	return "the BMC does not say whether it switches the host on by itself when mains returns"
}

// Warnings asks the BMC for settings that can switch the host by themselves. It
// changes nothing.
func (o *Outlet) Warnings(ctx context.Context) ([]Warning, error) {
	var out []Warning
	err := o.with(ctx, "warnings", func(ctx context.Context, s *session) error {
		b, err := s.ask(ctx, getChassisStatus, nil)
		if err != nil {
			return o.fail("warnings", "read", err)
		}
		if p := parseStatus(b).policy; p != AlwaysOff {
			out = append(out, Warning{Policy: p})
		}
		return nil
	})
	return out, err
}

type status struct {
	state  powerctl.State
	policy RestorePolicy
}

// Bits of the current power state, the first byte of Get Chassis Status.
const (
	statusOn           = 1 << 0
	statusOverload     = 1 << 1
	statusInterlock    = 1 << 2
	statusFault        = 1 << 3
	statusControlFault = 1 << 4 // the last command did not have its effect
	statusReserved     = 1 << 7
	statusPolicyShift  = 5
)

// parseStatus calls nothing on or off that is not exactly that: a fault that
// keeps the chassis dark is not an off which a command made.
func parseStatus(b []byte) status {
	if len(b) < 3 || len(b) > 4 || b[0]&statusReserved != 0 {
		return status{state: powerctl.Unknown, policy: UnknownPolicy}
	}
	st := status{policy: [...]RestorePolicy{AlwaysOff, LastState, AlwaysOn, UnknownPolicy}[b[0]>>statusPolicyShift&3]}
	switch {
	case b[0]&(statusOverload|statusInterlock|statusFault|statusControlFault) != 0:
		st.state = powerctl.Fault
	case b[0]&statusOn != 0:
		st.state = powerctl.On
	default:
		st.state = powerctl.Off
	}
	return st
}
