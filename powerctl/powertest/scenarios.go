package powertest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"plugpull/powerctl"
)

// wrongDevice: another device answers, whose contacts happen to be where they are wanted.
func wrongDevice(t *testing.T, h Harness, want powerctl.State) {
	pinned, err := h.Outlet.Identify(t.Context())
	require.NoError(t, err)
	h.Device.Force(want)
	h.Device.Plant(WrongDevice)
	if h.Swap != nil {
		h.Swap()
	}
	policy := h.Policy
	policy.Deadline = h.Patience
	res, err := h.do(t.Context(), policy, want)
	var wrong *powerctl.IdentityError
	require.ErrorAs(t, err, &wrong)
	require.NotEmpty(t, wrong.What)
	require.NotEmpty(t, wrong.Want)
	require.NotEqual(t, wrong.Want, wrong.Got)
	require.ErrorIs(t, err, powerctl.ErrNotSent)
	require.Zero(t, res.Commanded)
	require.False(t, res.IsOff() || res.IsOn(), "%+v", res)

	res, _ = h.Outlet.State(t.Context())
	require.NotContains(t, []powerctl.State{powerctl.Off, powerctl.On}, res.State, "the state of another device")
	require.Zero(t, res.Observed)
	if now, err := h.Outlet.Identify(t.Context()); err == nil {
		require.NotEqual(t, pinned, now)
	}
	require.Empty(t, h.Device.Commands(), "another device was switched")
	if h.Swap == nil {
		h.mustHaveShown(t)
	}
}

// takenLater: a driver that needs one reading may have seen the commanded state while it
// was so. One that needs two must not put them together.
func takenLater(t *testing.T, h Harness, want powerctl.State) {
	h.Device.Force(opposite(want))
	h.Device.Plant(TakenLater)
	policy := h.Policy
	policy.Deadline = h.Patience
	res, err := h.do(t.Context(), policy, want)
	h.mustBeTrue(t, res)
	if err == nil {
		require.Equal(t, want, res.State)
		require.NotZero(t, res.Observed)
	} else {
		require.False(t, res.IsOff() || res.IsOn(), "%+v", res)
		h.checkError(t, TakenLater, res, err)
	}
	require.Equal(t, []powerctl.State{want}, h.Device.Commands(), "the command is sent once")
	h.checkState(t, TakenLater)
}

// cutShort: a reading that its deadline ends is an error of the deadline, which has
// passed by then, and no state. SwitchOff tells such a reading from one that failed.
func cutShort(t *testing.T, h Harness) {
	if !h.Outlet.Capabilities().ReadBack {
		return
	}
	for i := range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i*i)*150*time.Microsecond)
		res, err := h.Outlet.State(ctx)
		passed := ctx.Err()
		cancel()
		if err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Error(t, passed, "it failed before the deadline: %v", err)
			require.Equal(t, powerctl.Unknown, res.State)
			require.Zero(t, res.Observed)
		}
	}
}
