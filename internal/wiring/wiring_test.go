package wiring

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/clock"
	"plugpull/powerctl"
)

// host is behind an outlet, unless it is not.
type host struct {
	mu       sync.Mutex
	on       bool
	unwired  bool          // something else feeds it
	dies     bool          // for another reason, at the next question
	stays    bool          // does not start again
	read     bool          // off was read back
	lingers  int           // questions that it answers after off was read back
	answered clock.Instant // the last of these
	commands []string
}

func (h *host) turn(op string, on bool) (powerctl.Result, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := powerctl.Result{Commanded: clock.Now(), Acknowledged: clock.Now()}
	h.on, h.commands = on, append(h.commands, op)
	return r, nil
}
func (h *host) Off(context.Context) (powerctl.Result, error) { return h.turn("off", false) }
func (h *host) On(context.Context) (powerctl.Result, error)  { return h.turn("on", true) }
func (h *host) Identify(context.Context) (powerctl.Identity, error) {
	return powerctl.Identity{Driver: "test", Device: "d", Name: "n"}, nil
}
func (h *host) Capabilities() powerctl.Capabilities { return powerctl.Capabilities{ReadBack: true} }
func (h *host) State(context.Context) (powerctl.Result, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := map[bool]powerctl.State{true: powerctl.On, false: powerctl.Off}[h.on]
	h.read = h.read || !h.on
	return powerctl.Result{State: s, Observed: clock.Now()}, nil
}

func (h *host) ask(context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	powered := h.on
	if !h.on && h.lingers > 0 {
		powered = true
		if h.read {
			h.lingers--
			h.answered = clock.Now()
		}
	}
	if h.stays && len(h.commands) > 0 {
		powered = false
	}
	if h.unwired || powered && !h.dies {
		return nil
	}
	return errors.New("silence")
}

func (h *host) plan() *Plan {
	return &Plan{Outlet: h, Witness: &Witness{text: "it", probe: h.ask, Every: time.Millisecond, Patience: time.Second},
		Policy: powerctl.Policy{Deadline: time.Second, Poll: time.Millisecond}, Dark: 300 * time.Millisecond, Boot: 300 * time.Millisecond}
}

func TestWiringIsProven(t *testing.T) {
	for name, h := range map[string]*host{"on before": {on: true}, "off before": {}} {
		t.Run(name, func(t *testing.T) {
			cut, err := h.plan().Once(t.Context())
			require.NoError(t, err)
			require.True(t, h.on)
			require.True(t, cut.Result.IsOff())
			require.Greater(t, cut.FirstSilence, cut.LastAnswer)
			require.Greater(t, cut.Back, cut.FirstSilence)
		})
	}
}

func TestWiringIsNotProven(t *testing.T) {
	var notWired *NotWiredError
	var notBack *NotBackError
	for name, c := range map[string]struct {
		h    *host
		as   any
		says string
		cuts int
	}{
		"another host, or a second supply": {&host{on: true, unwired: true}, &notWired, "second supply", 2},
		"it does not start again":          {&host{on: true, stays: true}, &notBack, "starts by itself", 2},
		"it was not up":                    {&host{on: true, dies: true}, nil, "nothing was cut", 0},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.h.plan().Once(t.Context())
			require.ErrorContains(t, err, c.says)
			if c.as != nil {
				require.ErrorAs(t, err, c.as)
			}
			require.Len(t, c.h.commands, c.cuts)
			require.True(t, c.h.on, "power is on again")
		})
	}
}

// A host that dies by itself just before the cut proves nothing of the outlet.
func TestHostThatDiesBeforeTheCut(t *testing.T) {
	h := &host{on: true}
	p := h.plan()
	p.Say = func(text string) {
		if text == "it answers" {
			h.mu.Lock()
			h.dies = true
			h.mu.Unlock()
		}
	}
	p.Outlet = &slow{h, 50 * time.Millisecond}
	_, err := p.Once(t.Context())
	require.ErrorContains(t, err, "fell silent before the outlet was switched")
	require.True(t, h.on)
}

// A host that answers again while the outlet is off was silenced by something else.
func TestHostThatReturnsWhileTheOutletIsOff(t *testing.T) {
	h := &host{on: true}
	p := h.plan()
	p.Outlet = &patient{h, 150 * time.Millisecond}
	asked := 0
	p.Witness.probe = func(ctx context.Context) error {
		h.mu.Lock()
		off := !h.on
		h.mu.Unlock()
		if off {
			asked++
		}
		if off && asked <= silences {
			return errors.New("silence")
		}
		return nil
	}
	_, err := p.Once(t.Context())
	var returned *ReturnedError
	require.ErrorAs(t, err, &returned)
	require.True(t, h.on)
}

// patient waits before its on, as a least time off makes it.
type patient struct {
	*host
	by time.Duration
}

func (p *patient) On(ctx context.Context) (powerctl.Result, error) {
	rest(ctx, p.by)
	return p.host.On(ctx)
}

// A witness that cannot be asked any more proves nothing.
func TestWitnessThatBreaks(t *testing.T) {
	h := &host{on: true}
	p := h.plan()
	p.Witness.probe = func(context.Context) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.on {
			return nil
		}
		return own(syscall.EMFILE)
	}
	_, err := p.Once(t.Context())
	require.ErrorIs(t, err, ErrCannotAsk)
	require.True(t, h.on, "power is on again")
}

// slow sends its off some time after it was told to.
type slow struct {
	*host
	by time.Duration
}

func (s *slow) Off(ctx context.Context) (powerctl.Result, error) {
	rest(ctx, s.by)
	return s.host.Off(ctx)
}

func TestInterruptLeavesPowerOn(t *testing.T) {
	h := &host{on: true, unwired: true}
	p := h.plan()
	p.Dark = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	p.Say = func(text string) {
		if text == "off" {
			cancel()
		}
	}
	_, err := p.Once(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, h.on)
	require.Equal(t, []string{"off", "on"}, h.commands)
}

// whileAsked takes off while a question is on its way.
type whileAsked struct {
	*host
	asked, off chan struct{}
}

func (w *whileAsked) Off(ctx context.Context) (powerctl.Result, error) {
	<-w.asked
	defer close(w.off)
	return w.host.Off(ctx)
}

// A question that was on its way when the power went does not date the darkness to before the command.
func TestQuestionOnItsWay(t *testing.T) {
	h := &whileAsked{&host{on: true}, make(chan struct{}), make(chan struct{})}
	p := h.plan()
	p.Outlet = h
	questions := 0
	p.Witness.probe = func(ctx context.Context) error {
		if questions++; questions == 2 { // the first is before the cut
			close(h.asked)
			<-h.off
			return errors.New("silence")
		}
		return h.ask(ctx)
	}
	cut, err := p.Once(t.Context())
	require.NoError(t, err)
	require.Greater(t, cut.FirstSilence, cut.Result.Commanded)
	c := Calibrate([]Cut{cut})
	require.Positive(t, c.Dark.Least)
	require.Positive(t, c.Resolution)
}

func TestCalibrationSeesALateHost(t *testing.T) {
	var cuts []Cut
	var least time.Duration
	for range 3 {
		h := &host{on: true, lingers: 5}
		cut, err := h.plan().Once(t.Context())
		require.NoError(t, err)
		require.GreaterOrEqual(t, cut.FirstSilence, h.answered)
		if d := h.answered.Sub(cut.Result.Commanded); least == 0 || d < least {
			least = d
		}
		cuts = append(cuts, cut)
	}
	c := Calibrate(cuts)
	assert.Equal(t, 3, c.Cuts)
	assert.Equal(t, 3, c.Late, "it answered on after off was read back")
	assert.GreaterOrEqual(t, c.Dark.Least, least)
	assert.LessOrEqual(t, c.Off.Most, c.Dark.Least)
	assert.LessOrEqual(t, c.Dark.Least, c.Dark.Median)
	assert.LessOrEqual(t, c.Dark.Median, c.Dark.Most)
}

func TestWitnesses(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed := l.Addr().String()
	require.NoError(t, l.Close())
	for text, answers := range map[string]bool{
		"tcp:" + closed: true, // a refusal needs power
		"command:true":  true, "command:false": false,
	} {
		w, err := ParseWitness(text)
		require.NoError(t, err, text)
		assert.Equal(t, answers, w.Ask(t.Context()) == nil, text)
	}
	for _, text := range []string{"", "ping", "ping:", "tcp:host", "tcp::", "smoke:signal", "command:", "command: "} {
		_, err := ParseWitness(text)
		require.Error(t, err, text)
		require.ErrorContains(t, err, Want)
	}
	for _, text := range []string{"command:" + filepath.Join(t.TempDir(), "none"), "tcp:host.invalid:1", "ping:host.invalid"} {
		w, err := ParseWitness(text)
		require.NoError(t, err, text)
		require.ErrorIs(t, w.Ask(t.Context()), ErrCannotAsk, text)
	}
}

// A command that hangs is a silence, and none of it is left.
func TestCommandThatHangs(t *testing.T) {
	w, err := ParseWitness("command:sleep 3600")
	require.NoError(t, err)
	w.Patience = 50 * time.Millisecond
	err = w.Ask(t.Context())
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrCannotAsk)
}

// Loopback answers wherever a ping can be sent at all.
func TestPing(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		w, err := ParseWitness("ping:" + host)
		require.NoError(t, err)
		w.Patience = 10 * time.Second
		err = w.Ask(t.Context())
		if errors.Is(err, ErrCannotAsk) {
			t.Logf("no socket for ping here: %v", err)
			continue
		}
		require.NoError(t, err, host)
	}
}
