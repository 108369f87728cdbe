package serialrelay

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"plugpull/powerctl"
	"plugpull/powerctl/powertest"
)

// silent are the faults of a line on which nothing is answered: that a command or an answer
// was lost cannot be seen.
var silent = []powertest.Fault{
	powertest.None, powertest.StaleReads, powertest.UnknownReads, powertest.GarbageReads, powertest.FailedReads,
	powertest.StuckOn, powertest.StuckOff, powertest.Slow, powertest.TakenBack, powertest.TakenLater, powertest.WrongDevice,
}

// oneWay are those of a line on which questions are answered, and commands are not.
var oneWay = append([]powertest.Fault{powertest.LateAnswer, powertest.Echo}, silent...)

// answered are the faults of Numato's line, which knows no busy relay and no faulty one.
var answered = append([]powertest.Fault{powertest.LostReply, powertest.LostCommand, powertest.NoAnswer, powertest.Reset}, oneWay...)

// variant leaves out what a board of the same protocol was held against already: only the
// decoder differs.
func variant(faults []powertest.Fault) []powertest.Fault {
	return slices.DeleteFunc(slices.Clone(faults), func(f powertest.Fault) bool { return f == powertest.WrongDevice || f == powertest.TakenBack })
}

func TestConformance(t *testing.T) {
	for name, c := range map[string]struct {
		c       Config
		channel int
		contact powerctl.Contact
		faults  []powertest.Fault
	}{
		"lcus text":                {Config{Protocol: LCUS, Channels: 4, Readback: Text}, 3, powerctl.NormallyOpen, oneWay},
		"lcus text, probed, nc":    {Config{Protocol: LCUS, Channels: 1, Readback: Probe}, 1, powerctl.NormallyClosed, variant(oneWay)},
		"lcus bytes":               {Config{Protocol: LCUS, Channels: 1, Readback: Bytes}, 1, powerctl.NormallyOpen, variant(oneWay)},
		"lcus bytes, nc":           {Config{Protocol: LCUS, Channels: 8, Readback: Bytes}, 8, powerctl.NormallyClosed, variant(oneWay)},
		"lcus silent":              {Config{Protocol: LCUS, Channels: 2, Readback: None}, 2, powerctl.NormallyOpen, silent},
		"kmtronic, 1 channel":      {Config{Protocol: KMTronic, Channels: 1}, 1, powerctl.NormallyOpen, oneWay},
		"kmtronic, 2 channels, nc": {Config{Protocol: KMTronic, Channels: 2}, 2, powerctl.NormallyClosed, variant(oneWay)},
		"kmtronic, 8 channels":     {Config{Protocol: KMTronic, Channels: 8}, 5, powerctl.NormallyOpen, variant(oneWay)},
		"numato":                   {Config{Protocol: Numato, Channels: 16}, 10, powerctl.NormallyOpen, answered},
		"numato readall, nc":       {Config{Protocol: Numato, Channels: 64, Readback: ReadAll}, 63, powerctl.NormallyClosed, variant(answered)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			powertest.Run(t, func(t *testing.T) powertest.Harness { return harness(t, c.c, c.channel, c.contact, c.faults) })
		})
	}
}

func harness(t *testing.T, c Config, channel int, contact powerctl.Contact, faults []powertest.Fault) powertest.Harness {
	oc := OutletConfig{Name: "A3", Channel: channel, Contact: contact, Class: powerctl.Drive}
	simulated := c
	if c.Readback == Probe {
		simulated.Readback = Text
	}
	sim := plugInUSB(t, simulated, oc)
	o := openOutlet(t, sim, c)
	return powertest.Harness{
		Outlet: shortSilence{o, sim.device}, Device: sim.device, Faults: faults, Swap: sim.unplug,
		Policy:   powerctl.Policy{Deadline: time.Minute, Poll: 2 * time.Millisecond},
		Patience: 60 * time.Millisecond,
	}
}

func openOutlet(t *testing.T, sim *board, c Config) *Outlet {
	t.Helper()
	c.Path = sim.port
	if c.Timeout == 0 {
		c.Timeout = 20 * time.Second
	}
	sysfs := sim.sysfs
	if sysfs == "" {
		sysfs = t.TempDir()
	}
	b, err := open(t.Context(), c, sysfs, quickly)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	o, err := b.Outlet(sim.oc)
	require.NoError(t, err)
	return o
}

// shortSilence gives a command that is never answered up once the board has had
// it, so that the suite need not wait out a timeout that is safe on a slow machine. And
// it waits for the board, which has a command only some time after it left.
type shortSilence struct {
	*Outlet
	d *powertest.Device
}

func (s shortSilence) Off(ctx context.Context) (powerctl.Result, error) {
	return s.command(ctx, s.Outlet.Off)
}

func (s shortSilence) On(ctx context.Context) (powerctl.Result, error) {
	return s.command(ctx, s.Outlet.On)
}

func (s shortSilence) command(ctx context.Context, do func(context.Context) (powerctl.Result, error)) (powerctl.Result, error) {
	before := len(s.d.Commands())
	served := func() bool { return len(s.d.Commands()) > before }
	if s.d.Planted() == powertest.NoAnswer {
		ctx, done := powertest.CancelWhen(ctx, served)
		defer done()
		return do(ctx)
	}
	res, err := do(ctx)
	if err == nil {
		seen, done := powertest.CancelWhen(ctx, served)
		<-seen.Done()
		done()
	}
	return res, err
}
