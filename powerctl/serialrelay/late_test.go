package serialrelay

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"plugpull/powerctl"
	"plugpull/powerctl/powertest"
)

// lateBy makes a board answer each question only when so many others have come.
func lateBy(n int, sim **board) func([]byte) ([]byte, bool) {
	var queue [][]byte
	return func(request []byte) ([]byte, bool) {
		s := *sim
		if q, _ := newWire(s.c).query(s.oc.Channel); string(q) != string(request) {
			return nil, false
		}
		now, _ := s.answer(request)
		if queue = append(queue, now); len(queue) <= n {
			return nil, true
		}
		was := queue[0]
		queue = queue[1:]
		return was, true
	}
}

// The contacts are on; the answers that come late are the off from before.
func TestLateAnswersAreNotTakenForOthers(t *testing.T) {
	for name, c := range map[string]Config{"kmtronic": kmOne, "lcus": lcusOne} {
		t.Run(name, func(t *testing.T) {
			var sim *board
			sim = plugIn(t, c, first, lateBy(2, &sim))
			sim.device.Force(powerctl.Off)
			o := openOutlet(t, sim, c)
			for asked := range 2 {
				ctx, done := powertest.CancelWhen(t.Context(), func() bool { return sim.device.Reads() > asked })
				_, err := o.State(ctx)
				done()
				require.ErrorIs(t, err, context.Canceled)
			}
			sim.device.Force(powerctl.On)
			for range 3 {
				res, err := o.State(t.Context())
				require.NoError(t, err)
				require.Equal(t, powerctl.On, res.State, "%q", res.Raw)
			}
			res, err := powerctl.SwitchOff(t.Context(), o, powerctl.Policy{Deadline: time.Minute, Poll: time.Millisecond})
			require.NoError(t, err)
			require.True(t, res.IsOff())
			require.Equal(t, powerctl.On, res.Before)
		})
	}
}

// The program before this one may have gone without its answers.
func TestAnswersToTheProgramBeforeAreNotTaken(t *testing.T) {
	for name, late := range map[string][]string{
		"one":           {"\xff\x01\x00"},
		"two":           {"\xff\x01\x00", "\xff\x01\x00"},
		"two and noise": {"\xff\x01", "\xff\x01\x00", "\xff\x01\x00"},
	} {
		t.Run(name, func(t *testing.T) {
			sim := plugIn(t, kmOne, first, func([]byte) ([]byte, bool) {
				if len(late) == 0 {
					return []byte("\xff\x01\x01"), true
				}
				was := late[0]
				late = late[1:]
				return []byte(was), true
			})
			res, err := openOutlet(t, sim, kmOne).State(t.Context())
			require.NoError(t, err)
			require.NotEqual(t, powerctl.Off, res.State, "%q", res.Raw)
		})
	}
}

// KMTronic's off command looks like its status off. The contacts are welded.
func TestEchoOfACommandIsNotAStatus(t *testing.T) {
	var sim *board
	atOnce := func(request []byte) ([]byte, bool) {
		answer, _ := sim.answer(request)
		return append(append([]byte(nil), request...), answer...), true
	}
	var held [][]byte
	// The echoes come with later requests, whose own answers are lost.
	late := func(request []byte) ([]byte, bool) {
		answer, _ := sim.answer(request)
		if answer == nil {
			held = append(held, append([]byte(nil), request...))
		} else if len(held) > 0 {
			answer, held = held[0], held[1:]
		}
		return answer, true
	}
	for name, say := range map[string]func([]byte) ([]byte, bool){"at once": atOnce, "late": late} {
		t.Run(name, func(t *testing.T) {
			sim = plugIn(t, kmOne, first, say)
			sim.device.Plant(powertest.StuckOn)
			o := openOutlet(t, sim, kmOne)
			for range 3 {
				_, err := o.Off(t.Context())
				require.NoError(t, err)
			}
			for range 3 {
				res, err := o.State(t.Context())
				require.NoError(t, err)
				require.NotEqual(t, powerctl.Off, res.State, "%q", res.Raw)
			}
		})
	}
}

// A second answer on the heels of the first: which of the two is it?
func TestAnswerThatGoesOnIsNone(t *testing.T) {
	sim := plugIn(t, numatoTwo, zeroth, func(request []byte) ([]byte, bool) {
		const two = "relay read 0\n\roff\n\r>relay read 0\n\roff\n\r>"
		return []byte(two), strings.HasPrefix(string(request), "relay read")
	})
	sim.pieces = true
	c := numatoTwo
	c.Path, c.Timeout = sim.port, time.Minute
	b, err := Open(t.Context(), c)
	require.NoError(t, err)
	defer b.Close()
	o, err := b.Outlet(zeroth)
	require.NoError(t, err)
	res, err := o.State(t.Context())
	require.NoError(t, err)
	require.Equal(t, powerctl.Unknown, res.State, "%q", res.Raw)
}

// The second command is not sent in vain, but the answer may be to the first.
func TestLateAcknowledgementIsNotTakenForAnother(t *testing.T) {
	commands := 0
	sim := plugIn(t, numatoTwo, zeroth, func(request []byte) ([]byte, bool) {
		if strings.HasPrefix(string(request), "relay off") {
			commands++
			return []byte("relay off 0\n\r>"), commands != 1
		}
		return nil, false
	})
	sim.device.Plant(powertest.NoAnswer)
	o := openOutlet(t, sim, numatoTwo)
	ctx, done := powertest.CancelWhen(t.Context(), func() bool { return len(sim.device.Commands()) > 0 })
	defer done()
	_, err := o.Off(ctx)
	require.ErrorIs(t, err, context.Canceled)
	res, err := o.Off(t.Context())
	require.ErrorIs(t, err, ErrNotAnAnswer)
	require.NotErrorIs(t, err, powerctl.ErrNotSent)
	require.NotZero(t, res.Commanded)
	require.Zero(t, res.Acknowledged)
}
