package powertest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/clock"
	"plugpull/powerctl"
)

// Harness is a driver with a simulated device on its wire.
type Harness struct {
	Outlet powerctl.Outlet
	Device *Device
	// Policy holds for the faults that end in success; the others wait for
	// Patience only.
	Policy   powerctl.Policy
	Patience time.Duration
	// Faults are those that the wire can show; nil is all of them.
	Faults []Fault
	// Swap, where it is set, puts another device in the place of this one for the fault
	// WrongDevice; without it the simulator asks Device.Other.
	Swap func()
	// Confirms: Off and On themselves return the state that was confirmed, and
	// State cannot be polled for it (a person).
	Confirms bool
}

// Run holds a driver against the contract of powerctl. start returns a fresh
// driver and device, on, and cleans up through t.
func Run(t *testing.T, start func(t *testing.T) Harness) {
	faults := start(t).Faults
	if faults == nil {
		faults = Faults()
	}
	for _, fault := range faults {
		for _, want := range []powerctl.State{powerctl.Off, powerctl.On} {
			t.Run(string(fault)+"/"+want.String(), func(t *testing.T) {
				switch h := start(t); fault {
				case WrongDevice:
					wrongDevice(t, h, want)
				case TakenLater:
					takenLater(t, h, want)
				default:
					switchUnder(t, h, fault, want)
				}
			})
		}
	}
	t.Run("off twice", func(t *testing.T) { offTwice(t, start(t)) })
	t.Run("cancelled before", func(t *testing.T) { cancelledBefore(t, start(t)) })
	t.Run("cancelled while reading back", func(t *testing.T) { cancelledWhileReading(t, start(t)) })
	t.Run("cut short", func(t *testing.T) { cutShort(t, start(t)) })
	t.Run("identity", func(t *testing.T) { identity(t, start(t)) })
}

var (
	badReads   = []Fault{UnknownReads, PendingReads, FaultReads, GarbageReads, FailedReads}
	noReplies  = []Fault{LostReply, NoAnswer, Reset}
	noEffects  = []Fault{LostCommand, Busy}
	strays     = []Fault{LateAnswer, Echo}
	neverFails = []Fault{None, StaleReads, Slow}
)

func opposite(s powerctl.State) powerctl.State {
	if s == powerctl.Off {
		return powerctl.On
	}
	return powerctl.Off
}

// reachable says whether the driver must come to know that want was reached.
func (h Harness) reachable(fault Fault, want powerctl.State) bool {
	readBack := h.Outlet.Capabilities().ReadBack
	switch {
	case !readBack && !h.Confirms:
		return false
	case fault == StuckOn || fault == StuckOff:
		return (fault == StuckOn) == (want == powerctl.On)
	case slices.Contains(badReads, fault):
		return h.Confirms
	case slices.Contains(noReplies, fault):
		return readBack
	}
	return slices.Contains(neverFails, fault)
}

func switchUnder(t *testing.T, h Harness, fault Fault, want powerctl.State) {
	first := opposite(want)
	if fault == StuckOn || fault == StuckOff {
		// Welded contacts are where they are, whatever was asked before.
		first = map[Fault]powerctl.State{StuckOn: powerctl.On, StuckOff: powerctl.Off}[fault]
	}
	if slices.Contains(strays, fault) { // the earlier answer is what the command is to bring about
		h.Device.Force(want)
		_, err := h.Outlet.State(t.Context())
		require.NoError(t, err)
	}
	h.Device.Force(first)
	h.Device.Plant(fault)
	reach := h.reachable(fault, want)
	policy := h.Policy
	if !reach {
		policy.Deadline = h.Patience
	}
	start := clock.Now()
	res, err := h.do(t.Context(), policy, want)
	end := clock.Now()

	h.mustBeTrue(t, res)
	if reach {
		require.NoError(t, err)
		require.Equal(t, want, res.State)
		require.NotZero(t, res.Observed)
	} else {
		require.Error(t, err)
		require.False(t, res.IsOff() || res.IsOn(), "%+v", res)
		require.Zero(t, res.Observed, "observed a state that was not commanded: %+v", res)
	}
	h.checkError(t, fault, res, err)
	require.Equal(t, []powerctl.State{want}, h.Device.Commands(), "the command is sent once")
	requireOrder(t, start, res.Commanded, res.Acknowledged, res.Observed, end)
	if h.Outlet.Capabilities().ReadBack && !slices.Contains(badReads, fault) {
		require.Equal(t, first, res.Before)
	}
	h.checkState(t, fault)
	if slices.Contains(strays, fault) {
		h.mustHaveShown(t)
	}
}

// mustHaveShown: a fault that the wire never showed would pass as one that was withstood.
func (h Harness) mustHaveShown(t *testing.T) {
	t.Helper()
	require.True(t, h.Device.showed(), "the simulator does not show this fault: let it use Device.Other or Device.Outgoing, or leave the fault out of Harness.Faults")
}

func (h Harness) do(ctx context.Context, p powerctl.Policy, want powerctl.State) (powerctl.Result, error) {
	if want == powerctl.Off {
		return powerctl.SwitchOff(ctx, h.Outlet, p)
	}
	return powerctl.SwitchOn(ctx, h.Outlet, p)
}

// mustBeTrue is the heart of the suite: no claim that the contacts contradict.
func (h Harness) mustBeTrue(t *testing.T, res powerctl.Result) {
	t.Helper()
	contacts := h.Device.Contacts()
	if res.IsOff() {
		require.Equal(t, powerctl.Off, contacts, "reported off: %+v", res)
	}
	if res.IsOn() {
		require.Equal(t, powerctl.On, contacts, "reported on: %+v", res)
	}
}

func (h Harness) checkError(t *testing.T, fault Fault, res powerctl.Result, err error) {
	t.Helper()
	if err == nil {
		return
	}
	commandFailed := slices.Contains(noReplies, fault) || slices.Contains(noEffects, fault)
	switch {
	case h.Outlet.Capabilities().ReadBack:
		require.ErrorIs(t, err, powerctl.ErrNotReached)
	case h.Confirms:
	case commandFailed:
		require.NotErrorIs(t, err, powerctl.ErrNoReadBack, "a failed command must not read as acknowledged")
		require.Zero(t, res.Acknowledged)
	default:
		require.ErrorIs(t, err, powerctl.ErrNoReadBack)
		require.NotZero(t, res.Acknowledged)
	}
	if commandFailed {
		var op *powerctl.OpError
		require.ErrorAs(t, err, &op, "the error says which step failed")
		require.NotEmpty(t, op.Step)
		require.NotErrorIs(t, err, powerctl.ErrNotSent, "the command may have reached the device")
		require.Zero(t, res.Acknowledged)
	}
}

// checkState asks for the state alone, once the stale readings are over.
func (h Harness) checkState(t *testing.T, fault Fault) {
	t.Helper()
	res, err := h.Outlet.State(t.Context())
	switch {
	case h.Confirms: // the last answer, of which there may be none
	case !h.Outlet.Capabilities().ReadBack:
		require.ErrorIs(t, err, powerctl.ErrNoReadBack)
		require.Equal(t, powerctl.Unknown, res.State)
	case slices.Contains(badReads, fault):
		require.NotEqual(t, powerctl.On, res.State)
		require.NotEqual(t, powerctl.Off, res.State)
		require.Zero(t, res.Observed)
	case slices.Contains(strays, fault): // an error, or the truth
	default:
		require.NoError(t, err)
	}
	require.LessOrEqual(t, len(res.Raw), powerctl.MaxRaw)
	h.mustBeTrue(t, res)
}

// requireOrder: every instant that is known lies between its neighbours.
func requireOrder(t *testing.T, instants ...clock.Instant) {
	t.Helper()
	last := clock.Instant(0)
	for _, i := range instants {
		if i != 0 {
			require.GreaterOrEqual(t, i, last, "instants out of order: %v", instants)
			last = i
		}
	}
}

func offTwice(t *testing.T, h Harness) {
	for range 2 {
		res, err := h.do(t.Context(), h.Policy, powerctl.Off)
		h.mustBeTrue(t, res)
		if h.Outlet.Capabilities().ReadBack || h.Confirms {
			require.NoError(t, err)
			require.True(t, res.IsOff())
		}
	}
	require.Equal(t, powerctl.Off, h.Device.Contacts())
}

func cancelledBefore(t *testing.T, h Harness) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, want := range []powerctl.State{powerctl.Off, powerctl.On} {
		res, err := h.do(ctx, h.Policy, want)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, powerctl.ErrNotSent)
		require.Zero(t, res.Observed)
	}
	_, err := h.Outlet.Off(ctx)
	require.ErrorIs(t, err, powerctl.ErrNotSent)
	require.Empty(t, h.Device.Commands())
}

func cancelledWhileReading(t *testing.T, h Harness) {
	if !h.Outlet.Capabilities().ReadBack {
		return
	}
	never := UnknownReads
	if h.Faults != nil && !slices.Contains(h.Faults, never) {
		never = StuckOn
	}
	h.Device.Plant(never)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{})
	go func() { // cancels once the command and a reading after it have been served
		defer close(done)
		for len(h.Device.Commands()) == 0 || h.Device.Reads() < 2 {
			select {
			case <-t.Context().Done():
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
		cancel()
	}()
	p := h.Policy
	p.Deadline = time.Hour
	res, err := h.do(ctx, p, powerctl.Off)
	<-done
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, powerctl.ErrNotReached)
	require.Zero(t, res.Observed)
}

func identity(t *testing.T, h Harness) {
	one, err := h.Outlet.Identify(t.Context())
	require.NoError(t, err)
	two, err := h.Outlet.Identify(t.Context())
	require.NoError(t, err)
	assert.Equal(t, one, two)
	assert.NotEmpty(t, one.Driver)
	assert.NotEmpty(t, one.Device)
	assert.NotEmpty(t, one.Name)
	assert.Empty(t, h.Device.Commands(), "asking who it is switches nothing")
	assert.Equal(t, h.Outlet.Capabilities(), h.Outlet.Capabilities())
}
