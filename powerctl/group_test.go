package powerctl

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func groupOf(t *testing.T, a, b Outlet) *Group {
	t.Helper()
	g, err := NewGroup("host", []Feed{{"a", a}, {"b", b}})
	require.NoError(t, err)
	return g
}

func TestGroupIsOffWhenEveryFeedIs(t *testing.T) {
	a, b := newRelay(true), newRelay(true)
	h := taken(t, groupOf(t, a, b), safe(t.TempDir()))
	res, err := SwitchOff(t.Context(), h, quick)
	require.NoError(t, err)
	require.True(t, res.IsOff())
	require.Equal(t, On, res.Before)
	require.False(t, a.on || b.on)
	require.LessOrEqual(t, res.Commanded, a.sentAt[0])
	require.LessOrEqual(t, res.Commanded, b.sentAt[0])
	res, err = SwitchOn(t.Context(), h, quick)
	require.NoError(t, err)
	require.True(t, res.IsOn())
}

func TestGroupWithOneFeedThatStaysOn(t *testing.T) {
	a, b := newRelay(true), newRelay(true)
	b.dud = true
	h := taken(t, groupOf(t, a, b), safe(t.TempDir()))
	res, err := SwitchOff(t.Context(), h, Policy{Deadline: 50 * time.Millisecond, Poll: time.Millisecond})
	require.ErrorIs(t, err, ErrNotReached)
	require.False(t, res.IsOff())
	require.Zero(t, res.Observed)
	require.Contains(t, res.Raw, "b: on")

	// Power never went away from the host, so that no on may look like the end of a cut.
	_, err = SwitchOn(t.Context(), h, quick)
	require.ErrorIs(t, err, ErrFeedsDiffer)
	require.ErrorIs(t, err, ErrNotSent)
	require.Equal(t, []string{"off"}, a.sent)
	// To leave it on is another matter.
	require.NoError(t, Settle(t.Context(), h, quick, true))
	require.True(t, a.on && b.on)
}

func TestGroupWithOneFeedThatIsNotReached(t *testing.T) {
	a, b := newRelay(true), newRelay(true)
	b.offErr = errors.Join(ErrNotSent, errors.New("no route"))
	g := groupOf(t, a, b)
	_, err := g.Off(t.Context())
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrNotSent, "one feed was sent its off")
	require.Equal(t, []string{"off"}, a.sent, "the other feed is switched nevertheless")
	a.offErr = b.offErr
	_, err = g.Off(t.Context())
	require.ErrorIs(t, err, ErrNotSent)
}

func TestStatesTogether(t *testing.T) {
	for _, c := range []struct{ a, b, want State }{
		{On, On, On}, {Off, Off, Off}, {On, Off, Pending}, {Off, Pending, Pending}, {On, Unknown, Unknown},
		{Off, Unknown, Unknown}, {Off, Fault, Fault}, {Unknown, Fault, Fault}, {Pending, Pending, Pending}, {Unknown, Unknown, Unknown},
	} {
		require.Equal(t, c.want, together(c.a, c.b), "%s %s", c.a, c.b)
		require.Equal(t, c.want, together(c.b, c.a), "%s %s", c.b, c.a)
	}
}

func TestGroupThatIsNone(t *testing.T) {
	a := newRelay(true)
	_, err := NewGroup("host", []Feed{{"a", a}})
	require.ErrorContains(t, err, "at least 2")
	_, err = NewGroup("host", []Feed{{"a", a}, {"a", newRelay(true)}})
	require.ErrorContains(t, err, `two feeds are named "a"`)
	_, err = Take(t.Context(), groupOf(t, a, a), safe(t.TempDir()))
	require.ErrorContains(t, err, "the same outlet")
	blind := newRelay(true)
	blind.blind = true
	_, err = NewGroup("host", []Feed{{"a", a}, {"b", blind}})
	require.ErrorContains(t, err, "one can report its state and the other cannot")
	deaf := newRelay(true)
	deaf.blind = true
	require.False(t, groupOf(t, deaf, blind).Capabilities().ReadBack)

	// What is taken of a group that cannot be taken whole is given back.
	b, dir := newRelay(true), t.TempDir()
	other := taken(t, b, safe(dir))
	_, err = Take(t.Context(), groupOf(t, a, b), safe(dir))
	var locked *LockedError
	require.ErrorAs(t, err, &locked)
	taken(t, a, safe(dir))
	require.NoError(t, other.Close())
}
