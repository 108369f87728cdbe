package ipmi

import "plugpull/powerctl"

// restorePolicy is what a BMC does when mains returns (IPMI 2.0, table 28-3).
type restorePolicy string

// The policies.
const (
	alwaysOff     restorePolicy = "always off"
	lastState     restorePolicy = "last state"
	alwaysOn      restorePolicy = "always on"
	unknownPolicy restorePolicy = "unknown"
)

type status struct {
	state  powerctl.State
	policy restorePolicy
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
		return status{state: powerctl.Unknown, policy: unknownPolicy}
	}
	st := status{policy: [...]restorePolicy{alwaysOff, lastState, alwaysOn, unknownPolicy}[b[0]>>statusPolicyShift&3]}
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
