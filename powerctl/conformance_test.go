package powerctl_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"plugpull/powerctl"
	"plugpull/powerctl/powertest"
	"plugpull/powerctl/simulated"
)

type feeds struct{ d *powertest.Device }

func (f feeds) PowerOff()      { f.d.Switch(powerctl.Off) }
func (f feeds) PowerOn() error { f.d.Switch(powerctl.On); return nil }
func (f feeds) Powered() bool  { return f.d.Read().State == powerctl.On }

func outlet(t *testing.T, d simulated.Device) powerctl.Outlet {
	t.Helper()
	o, err := simulated.New(simulated.Config{Name: uuid.NewString(), Device: d})
	require.NoError(t, err)
	return o
}

// An outlet that is held keeps the contract of its driver, in every fault that a call within
// the process can show.
func TestConformanceOfHeld(t *testing.T) {
	t.Parallel()
	powertest.Run(t, func(t *testing.T) powertest.Harness {
		d := powertest.NewDevice()
		h, err := powerctl.Take(t.Context(), outlet(t, feeds{d}), powerctl.Safety{Lease: time.Minute, Dir: t.TempDir(), Confirm: time.Millisecond})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, h.Close()) })
		return powertest.Harness{Outlet: h, Device: d, Policy: powerctl.Policy{Deadline: 5 * time.Second}, Patience: 200 * time.Millisecond,
			Faults: []powertest.Fault{powertest.None, powertest.StuckOn, powertest.StuckOff, powertest.TakenBack, powertest.TakenLater}}
	})
}
