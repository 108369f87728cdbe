package simulated

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"plugpull/powerctl"
	"plugpull/powerctl/powertest"
)

// feeds is the suite's device behind this driver's interface. It counts each question as a
// reading, as the suite expects of a wire.
type feeds struct{ d *powertest.Device }

func (f feeds) PowerOff()      { f.d.Switch(powerctl.Off) }
func (f feeds) PowerOn() error { f.d.Switch(powerctl.On); return nil }
func (f feeds) Powered() bool  { return f.d.Read().State == powerctl.On }

func TestConformance(t *testing.T) {
	t.Parallel()
	powertest.Run(t, func(t *testing.T) powertest.Harness {
		d := powertest.NewDevice()
		o, err := New(Config{Name: "drive", Device: feeds{d}})
		require.NoError(t, err)
		return powertest.Harness{Outlet: o, Device: d, Policy: powerctl.Policy{Deadline: 5 * time.Second}, Patience: 200 * time.Millisecond,
			// A call within the process has no wire that could lose or garble anything.
			Faults: []powertest.Fault{powertest.None, powertest.StuckOn, powertest.StuckOff, powertest.TakenBack, powertest.TakenLater}}
	})
}

func TestConfigIsComplete(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Name: "drive"})
	require.Error(t, err)
	_, err = New(Config{Device: feeds{powertest.NewDevice()}})
	require.Error(t, err)
}

func TestPlan(t *testing.T) {
	t.Parallel()
	o, err := New(Config{Name: "drive", Device: feeds{powertest.NewDevice()}})
	require.NoError(t, err)
	require.Equal(t, []string{`take power from the simulated drive "drive", within plugpull`}, o.Plan(false))
	require.Equal(t, []string{`give power to the simulated drive "drive", within plugpull`}, o.Plan(true))
	require.False(t, o.Capabilities().Tried.Experimental())
}
