package powerctl

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"plugpull/internal/clock"
)

// lying is a driver that breaks the contract: SwitchOff must not believe it.
type lying struct {
	command  Result
	cmdErr   error
	readings []Result
	readErr  error
	caps     Capabilities
	offs     int
}

func (l *lying) Off(context.Context) (Result, error)        { l.offs++; return l.command, l.cmdErr }
func (l *lying) On(context.Context) (Result, error)         { return l.command, l.cmdErr }
func (l *lying) Identify(context.Context) (Identity, error) { return Identity{}, nil }
func (l *lying) Capabilities() Capabilities                 { return l.caps }
func (l *lying) State(context.Context) (Result, error) {
	if len(l.readings) == 0 {
		return Result{}, l.readErr
	}
	r := l.readings[0]
	if len(l.readings) > 1 {
		l.readings = l.readings[1:]
	}
	return r, l.readErr
}

var errWire = errors.New("the wire broke")

func TestSwitchOffBelievesNoClaimWithoutAReading(t *testing.T) {
	now := clock.Now()
	off := Result{Commanded: now, Acknowledged: now, State: Off, Observed: now + 1}
	for name, c := range map[string]struct {
		o    lying
		want error
	}{
		"off without an instant":      {lying{command: Result{Commanded: now, State: Off}}, ErrNoReadBack},
		"off seen before the command": {lying{command: Result{Commanded: now, State: Off, Observed: now - 1}}, ErrNoReadBack},
		"off without a command":       {lying{command: Result{State: Off, Observed: now}}, ErrNoReadBack},
		"off beside an error":         {lying{command: off, cmdErr: errWire}, errWire},
		"off beside an error, reads on": {
			lying{command: off, cmdErr: errWire, caps: Capabilities{ReadBack: true}, readings: []Result{{State: On, Raw: "1"}}}, errWire,
		},
		"off beside a reading error": {
			lying{caps: Capabilities{ReadBack: true}, readings: []Result{{State: Off}}, readErr: errWire}, errWire,
		},
		"claims a read-back that it has not": {
			lying{caps: Capabilities{ReadBack: true}, readErr: ErrNoReadBack}, ErrNotReached,
		},
	} {
		t.Run(name, func(t *testing.T) {
			res, err := SwitchOff(t.Context(), &c.o, Policy{Deadline: 50 * time.Millisecond, Poll: time.Millisecond})
			require.ErrorIs(t, err, c.want)
			require.False(t, res.IsOff(), "%+v", res)
			require.Zero(t, res.Observed)
			require.Equal(t, 1, c.o.offs, "sent once")
		})
	}
}

func TestFailedCommandIsNeverCalledAcknowledged(t *testing.T) {
	o := &lying{cmdErr: errWire, caps: Capabilities{ReadBack: true}, readErr: ErrNoReadBack}
	_, err := SwitchOff(t.Context(), o, Policy{Deadline: time.Second})
	require.ErrorIs(t, err, errWire)
	require.NotErrorIs(t, err, ErrNoReadBack)
}

func TestOffBeforeTheCutIsReported(t *testing.T) {
	o := &lying{command: Result{Commanded: 1, Acknowledged: 2}, caps: Capabilities{ReadBack: true}, readings: []Result{{State: Off}}}
	res, err := SwitchOff(t.Context(), o, Policy{Deadline: time.Second})
	require.NoError(t, err)
	require.Equal(t, Off, res.Before, "nothing was cut: the campaign must see it")
}

func TestMissingDeadlineSendsNothing(t *testing.T) {
	o := &lying{}
	_, err := SwitchOff(t.Context(), o, Policy{})
	require.ErrorIs(t, err, ErrNotSent)
	require.Zero(t, o.offs)
}

func TestErrorHoldsTheLastReading(t *testing.T) {
	o := &lying{cmdErr: errWire, caps: Capabilities{ReadBack: true}, readings: []Result{{State: Fault, Raw: "-1"}}}
	res, err := SwitchOff(t.Context(), o, Policy{Deadline: 20 * time.Millisecond, Poll: time.Millisecond})
	require.EqualError(t, err, `switch off: the commanded state was not read back: last read as fault ("-1"); the command had failed: the wire broke`)
	require.Equal(t, Fault, res.State)
}

func TestStateIsReadableInEvidence(t *testing.T) {
	b, err := json.Marshal(Result{Commanded: 5, State: Off, Before: On})
	require.NoError(t, err)
	require.JSONEq(t, `{"commanded":5,"state":"off","before":"on"}`, string(b))
	var back Result
	require.NoError(t, json.Unmarshal(b, &back))
	require.Equal(t, Off, back.State)
	require.Error(t, new(State).UnmarshalText([]byte("OFF")))
	require.Equal(t, Unknown, Result{}.State, "the zero value knows nothing")
}

// A reading that was never sent says nothing of the command, which was.
func TestReadingThatWasNotSent(t *testing.T) {
	o := &lying{command: Result{Commanded: clock.Now()}, caps: Capabilities{ReadBack: true},
		readErr: errors.Join(ErrNotSent, &IdentityError{What: "serial", Want: "a", Got: "b"})}
	_, err := SwitchOff(t.Context(), o, Policy{Deadline: 20 * time.Millisecond, Poll: time.Millisecond})
	require.ErrorIs(t, err, ErrNotReached)
	require.NotErrorIs(t, err, ErrNotSent)
	var id *IdentityError
	require.ErrorAs(t, err, &id, "its cause is still there")
}
