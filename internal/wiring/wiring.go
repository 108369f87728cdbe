package wiring

import (
	"context"
	"errors"
	"fmt"
	"time"

	"plugpull/internal/clock"
	"plugpull/powerctl"
)

// Plan says how to prove a wiring, or to measure it.
type Plan struct {
	Outlet  powerctl.Outlet
	Witness *Witness
	Policy  powerctl.Policy
	// Dark bounds the wait for the host to go silent after off was read back; Boot that for its
	// answer after on.
	Dark, Boot time.Duration
	// Say is told each step as it ends; nil for nobody.
	Say func(string)
}

// Cut is one off as the outlet and the witness saw it.
type Cut struct {
	Result powerctl.Result `json:"result"`
	// LastAnswer is when the witness last answered, FirstSilence when the first question was
	// asked that was never answered: the host went dark between them, or while that question was
	// on its way.
	LastAnswer   clock.Instant `json:"last_answer"`
	FirstSilence clock.Instant `json:"first_silence"`
	// Back is when the host answered again.
	Back clock.Instant `json:"back,omitempty"`
}

// Dark bounds the time from the command to the dark host.
func (c Cut) Dark() (least, most time.Duration) {
	return max(0, c.LastAnswer.Sub(c.Result.Commanded)), c.FirstSilence.Sub(c.Result.Commanded)
}

// NotWiredError: off did not make the host vanish.
type NotWiredError struct {
	Witness string
	After   time.Duration
	Read    bool // off was read back, and not merely acknowledged
}

func (e *NotWiredError) Error() string {
	what := "the outlet has taken off, and cannot report it"
	if e.Read {
		what = "the outlet reads off"
	}
	return fmt.Sprintf("%s, and %s still answers %v later: it is another outlet's host, or has a second supply (make a group of its feeds)",
		what, e.Witness, e.After.Round(time.Millisecond))
}

// ReturnedError: the host answered again before on was sent.
type ReturnedError struct{ Witness string }

func (e *ReturnedError) Error() string {
	return fmt.Sprintf("%s fell silent and answered again while the outlet was off: it was something else that silenced it, or another supply feeds it", e.Witness)
}

// NotBackError: the host did not answer again after on.
type NotBackError struct {
	Witness string
	After   time.Duration
}

func (e *NotBackError) Error() string {
	return fmt.Sprintf("the outlet was switched on, and %s does not answer within %v: see that the host starts by itself when power returns",
		e.Witness, e.After)
}

// silences is how many questions in a row stay unanswered before a host is called dark: one lost
// packet is no cut.
const silences = 3

// Once cuts the power of a host that answers, sees it go dark and stay dark until the moment at which on is sent,
// and waits for its answer. A *NotWiredError or *NotBackError says what failed; power is on again in
// the first case too, unless switching on failed. It blocks for about Boot + Dark + the least
// time off. A command that was sent is always followed by an on, also when ctx ends.
func (p *Plan) Once(ctx context.Context) (Cut, error) {
	if err := p.begin(ctx); err != nil {
		return Cut{}, err
	}
	w := watch(ctx, p.Witness)
	defer w.end()
	res, err := powerctl.SwitchOff(ctx, p.Outlet, p.Policy)
	cut := Cut{Result: res}
	if err != nil && !errors.Is(err, powerctl.ErrNoReadBack) {
		if errors.Is(err, powerctl.ErrNotSent) {
			return cut, fmt.Errorf("switch off: %w", err)
		}
		return cut, errors.Join(fmt.Errorf("switch off: %w", err), p.on(ctx))
	}
	if res.IsOff() {
		p.say("off")
	} else {
		p.say("the outlet has taken the command, and cannot report")
	}
	began := clock.Now()
	dark, err := w.awaitDark(ctx, p.Dark)
	if err == nil && !dark {
		err = &NotWiredError{p.Witness.String(), clock.Now().Sub(began), res.IsOff()}
	}
	if s := w.sight(); err == nil && s.gaveUp < res.Commanded {
		err = fmt.Errorf("%s fell silent before the outlet was switched, so that nothing is shown: try again", p.Witness)
	}
	if err != nil {
		return cut, errors.Join(err, p.on(ctx))
	}
	p.say("%s is silent", p.Witness)
	return cut, p.back(ctx, w, &cut)
}

// back switches on again and waits for the host's answer, which must not have come before.
func (p *Plan) back(ctx context.Context, w *watcher, cut *Cut) error {
	before := w.sight()
	cut.LastAnswer, cut.FirstSilence = before.answer, before.silence
	if before.silence < cut.Result.Commanded {
		// It was on its way when the power went, and so says only that this was before it was given up.
		cut.FirstSilence = before.second
	}
	on, err := powerctl.SwitchOn(context.WithoutCancel(ctx), p.Outlet, p.Policy)
	if err != nil && !errors.Is(err, powerctl.ErrNoReadBack) {
		return fmt.Errorf("switch on: %w", err)
	}
	p.say("on")
	s, err := w.awaitBack(ctx, p.Boot)
	switch {
	case err != nil:
		return err
	case s.back == 0:
		return &NotBackError{p.Witness.String(), p.Boot}
	case s.back < on.Commanded:
		return &ReturnedError{p.Witness.String()}
	}
	cut.Back = s.back
	p.say("%s answers again", p.Witness)
	return nil
}

// begin has the host up before it is cut.
func (p *Plan) begin(ctx context.Context) error {
	if p.Outlet.Capabilities().ReadBack {
		r, err := p.Outlet.State(ctx)
		if err != nil {
			return fmt.Errorf("read the outlet before the cut: %w", err)
		}
		if r.State != powerctl.On {
			p.say("the outlet reads %s: switching it on", r.State)
			if err := p.on(ctx); err != nil {
				return err
			}
		}
	}
	err := p.await(ctx, p.Boot)
	var not *NotBackError
	if errors.As(err, &not) {
		return fmt.Errorf("%s does not answer within %v while the outlet is on: nothing was cut", p.Witness, p.Boot)
	}
	if err != nil {
		return fmt.Errorf("before the cut: %w", err)
	}
	p.say("%s answers", p.Witness)
	return nil
}

func (p *Plan) say(format string, args ...any) {
	if p.Say != nil {
		p.Say(fmt.Sprintf(format, args...))
	}
}

// on gives the power back, whatever has become of ctx.
func (p *Plan) on(ctx context.Context) error {
	if err := powerctl.Settle(context.WithoutCancel(ctx), p.Outlet, p.Policy, true); err != nil {
		return fmt.Errorf("switch on: %w", err)
	}
	return nil
}

// await waits for an answer.
func (p *Plan) await(ctx context.Context, most time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for {
		err := p.Witness.Ask(limited)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrCannotAsk):
			return err
		}
		if !rest(limited, p.Witness.Every) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return &NotBackError{p.Witness.String(), most}
		}
	}
}

func rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
