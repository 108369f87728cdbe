package powerctl

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/clock"
)

// relay is an honest outlet of its own, unless told otherwise.
type relay struct {
	id  Identity
	mu  sync.Mutex
	on  bool
	dud bool // takes commands and does nothing
	// offErr fails Off before it does anything.
	offErr  error
	blind   bool
	sent    []string
	sentAt  []clock.Instant
	reads   int
	onState func() // called in State
}

func newRelay(on bool) *relay {
	return &relay{on: on, id: Identity{Driver: "test", Device: uuid.NewString(), Name: "n"}}
}

func (r *relay) command(op string, on bool) (Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if op == "off" && r.offErr != nil {
		return Result{}, r.offErr
	}
	at := clock.Now()
	r.sent, r.sentAt = append(r.sent, op), append(r.sentAt, at)
	if !r.dud {
		r.on = on
	}
	return Result{Commanded: at, Acknowledged: clock.Now()}, nil
}
func (r *relay) Off(context.Context) (Result, error)        { return r.command("off", false) }
func (r *relay) On(context.Context) (Result, error)         { return r.command("on", true) }
func (r *relay) Identify(context.Context) (Identity, error) { return r.id, nil }
func (r *relay) Capabilities() Capabilities {
	return Capabilities{ReadBack: !r.blind, Class: Mains, Tried: TriedOwn}
}
func (r *relay) State(context.Context) (Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.blind {
		return Result{}, ErrNoReadBack
	}
	r.reads++
	if r.onState != nil {
		r.onState()
	}
	s := Off
	if r.on {
		s = On
	}
	return Result{State: s, Observed: clock.Now()}, nil
}
func (r *relay) turn(on bool) { r.mu.Lock(); defer r.mu.Unlock(); r.on = on }

var quick = Policy{Deadline: time.Second, Poll: time.Millisecond}

func safe(dir string) Safety {
	return Safety{Lease: time.Minute, Dir: dir, Owner: "me", Leave: "on", Confirm: time.Millisecond}
}

func taken(t *testing.T, o Outlet, s Safety) Holder {
	t.Helper()
	h, err := Take(t.Context(), o, s)
	require.NoError(t, err)
	t.Cleanup(func() { _ = h.Close() })
	return h
}

func TestHeldWritesItsIntentBeforeItActs(t *testing.T) {
	dir, r := t.TempDir(), newRelay(true)
	h := taken(t, r, safe(dir))
	r.offErr = errors.New("the wire broke") // so that nothing is known
	_, err := h.Off(t.Context())
	require.ErrorIs(t, err, r.offErr)
	rec, err := ReadRecord(r.id, dir)
	require.NoError(t, err)
	require.True(t, rec.Intent.Open(), "%+v", rec)
	require.Equal(t, "off", rec.Intent.Op)
	require.Equal(t, "me", rec.Owner)
	require.NoError(t, h.Close())

	// The next holder is told, and its own commands end it.
	r.offErr = nil
	h = taken(t, r, safe(dir))
	require.True(t, h.Found()[0].Intent.Open())
	_, err = SwitchOff(t.Context(), h, quick)
	require.NoError(t, err)
	rec, err = ReadRecord(r.id, dir)
	require.NoError(t, err)
	require.False(t, rec.Intent.Open())
	require.Equal(t, Off, rec.State)
}

func TestHeldSendsNothingThatItCannotWriteDown(t *testing.T) {
	dir, r := t.TempDir(), newRelay(true)
	h := taken(t, r, safe(dir))
	records, err := filepath.Glob(filepath.Join(dir, "outlet-*.json"))
	require.NoError(t, err)
	require.Len(t, records, 1)
	require.NoError(t, os.Remove(records[0]))
	require.NoError(t, os.Mkdir(records[0], 0o700))
	_, err = h.Off(t.Context())
	require.ErrorIs(t, err, ErrNotSent)
	require.Empty(t, r.sent)
}

func TestHeldWaitsForTheLeastTimes(t *testing.T) {
	dir, r := t.TempDir(), newRelay(true)
	s := safe(dir)
	s.MinOff, s.MinOn = 120*time.Millisecond, 80*time.Millisecond
	h := taken(t, r, s)
	for range 2 {
		off, err := SwitchOff(t.Context(), h, quick)
		require.NoError(t, err)
		on, err := SwitchOn(t.Context(), h, quick)
		require.NoError(t, err)
		require.GreaterOrEqual(t, on.Commanded.Sub(off.Observed), s.MinOff)
	}
	require.GreaterOrEqual(t, r.sentAt[2].Sub(r.sentAt[1]), s.MinOn)

	// Another process remembers.
	_, err := SwitchOff(t.Context(), h, quick)
	require.NoError(t, err)
	require.NoError(t, h.Close())
	h = taken(t, r, s)
	_, err = SwitchOn(t.Context(), h, quick)
	require.NoError(t, err)
	require.GreaterOrEqual(t, r.sentAt[5].Sub(r.sentAt[4]), s.MinOff)

	// To wait can be given up, and then nothing is sent.
	s.MinOn = time.Hour
	require.NoError(t, h.Close())
	h = taken(t, r, s)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = SwitchOff(ctx, h, quick)
	require.ErrorIs(t, err, ErrNotSent)
	require.Len(t, r.sent, 6)
}

func TestHeldStopsWhenSomebodyElseSwitches(t *testing.T) {
	for name, leave := range map[string]bool{"on behind our back": false, "off behind our back": true} {
		t.Run(name, func(t *testing.T) {
			r := newRelay(!leave)
			h := taken(t, r, safe(t.TempDir()))
			do, undo := SwitchOff, SwitchOn
			if leave {
				do, undo = SwitchOn, SwitchOff
			}
			_, err := do(t.Context(), h, quick)
			require.NoError(t, err)
			r.turn(!leave)
			_, err = h.State(t.Context()) // to look at it does not accept it
			require.NoError(t, err)
			_, err = undo(t.Context(), h, quick)
			var changed *ChangedError
			require.ErrorAs(t, err, &changed)
			require.ErrorIs(t, err, ErrNotSent)
			require.Len(t, r.sent, 1)
		})
	}
	t.Run("a stale reading is no change", func(t *testing.T) {
		r := newRelay(true)
		h := taken(t, r, safe(t.TempDir()))
		_, err := SwitchOff(t.Context(), h, quick)
		require.NoError(t, err)
		stale := 1 + r.reads // the one before the command, of SwitchOn, and one more
		r.onState = func() { r.on = r.reads <= stale+1 }
		_, err = h.On(t.Context())
		require.NoError(t, err)
	})
}

func TestTakeKeepsOthersAway(t *testing.T) {
	dir, r := t.TempDir(), newRelay(true)
	h := taken(t, r, safe(dir))
	_, err := Take(t.Context(), r, safe(dir))
	var locked *LockedError
	require.ErrorAs(t, err, &locked)
	_, err = Release(r.id, dir, "me")
	require.ErrorAs(t, err, &locked, "a live holder of this machine is never robbed")
	require.NoError(t, h.Close())

	st := newStore(dir, r.id)
	elsewhere := func(expires time.Duration) {
		require.NoError(t, st.change(func(rec *Record) error {
			rec.Owner, rec.Host, rec.PID, rec.Expires = "them", "lab2", 1, time.Now().Add(expires)
			return nil
		}))
	}
	elsewhere(time.Hour)
	_, err = Take(t.Context(), r, safe(dir))
	var leased *LeasedError
	require.ErrorAs(t, err, &leased)
	require.Contains(t, err.Error(), "them")
	_, err = Release(r.id, dir, "me")
	require.ErrorIs(t, err, ErrOwner)
	_, err = Release(r.id, dir, "them")
	require.NoError(t, err)
	taken(t, r, safe(dir)).Close()

	elsewhere(-time.Second)
	h = taken(t, r, safe(dir)) // that one has expired

	// And they take it from us, as after a long sleep of this machine.
	elsewhere(time.Hour)
	_, err = h.Off(t.Context())
	require.ErrorIs(t, err, ErrLeaseLost)
	require.ErrorIs(t, err, ErrNotSent)
	require.Empty(t, r.sent)
	require.NoError(t, h.Close())
	rec, err := ReadRecord(r.id, dir)
	require.NoError(t, err)
	require.Equal(t, "them", rec.Owner, "what is not ours is not given back")
}

func TestTwoTakersOfOneOutlet(t *testing.T) {
	dir, r := t.TempDir(), newRelay(true)
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for range 16 {
		wg.Go(func() {
			if h, err := Take(t.Context(), r, safe(dir)); err == nil {
				mu.Lock()
				won++
				mu.Unlock()
				_ = h // kept until the end
			}
		})
	}
	wg.Wait()
	require.Equal(t, 1, won)
}

func TestRecordSurvivesATornWrite(t *testing.T) {
	dir, id := t.TempDir(), newRelay(true).id
	st := newStore(dir, id)
	for _, owner := range []string{"a", "b", "c"} {
		require.NoError(t, st.change(func(r *Record) error { r.Outlet, r.Owner = id, owner; return nil }))
	}
	whole, err := os.ReadFile(st.path)
	require.NoError(t, err)
	for _, cut := range []struct {
		name string
		from int
		want string
	}{{"the newer", 1 * slotSize, "b"}, {"the older", 0, "c"}} {
		torn := append([]byte(nil), whole...)
		copy(torn[cut.from+20:], make([]byte, 30))
		require.NoError(t, os.WriteFile(st.path, torn, 0o600))
		r, err := ReadRecord(id, dir)
		require.NoError(t, err)
		assert.Equal(t, cut.want, r.Owner, cut.name)
	}
	require.NoError(t, os.WriteFile(st.path, []byte("shopping list"), 0o600))
	_, err = ReadRecord(id, dir)
	require.ErrorContains(t, err, "no record of plugpull")
	require.ErrorContains(t, err, st.path)
	b, err := os.ReadFile(st.path)
	require.NoError(t, err)
	require.Equal(t, "shopping list", string(b), "what is not ours is not written over")
}

func FuzzReadSlots(f *testing.F) {
	f.Add([]byte(`{"plugpull_outlet_record":1,"record":{"outlet":{"driver":"d","device":"e","name":"n"},"state":"off"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "r")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		s, err := readSlots(file)
		if err == nil && len(b) > 0 && s.Seq == 0 {
			t.Fatal("nothing was read as a record")
		}
	})
}

// Old states after a command are neither how the outlet was left nor somebody else's doing.
func TestStaleReadingsAfterACommand(t *testing.T) {
	dir, r := t.TempDir(), newRelay(true)
	s := safe(dir)
	s.MinOff = 50 * time.Millisecond
	h := taken(t, r, s)
	for range 2 {
		var shown []bool
		r.onState = func() {
			if len(shown) < 3 && len(r.sent) > 0 && r.sent[len(r.sent)-1] == "off" {
				shown = append(shown, true)
				r.on = true
				return
			}
			r.on = len(r.sent) == 0 || r.sent[len(r.sent)-1] == "on"
		}
		off, err := SwitchOff(t.Context(), h, quick)
		require.NoError(t, err)
		require.True(t, off.IsOff())
		require.Len(t, shown, 3)
		rec, err := ReadRecord(r.id, dir)
		require.NoError(t, err)
		require.False(t, rec.Intent.Open(), "it was seen to take effect")
		on, err := SwitchOn(t.Context(), h, quick)
		require.NoError(t, err, "on is sent")
		require.GreaterOrEqual(t, on.Commanded.Sub(off.Observed), s.MinOff)
	}
}

func TestOpenIntentOutlivesACommandThatWasNotSent(t *testing.T) {
	dir, r := t.TempDir(), newRelay(true)
	h := taken(t, r, safe(dir))
	r.offErr = errors.New("the wire broke")
	_, err := h.Off(t.Context())
	require.Error(t, err)
	r.offErr = ErrNotSent
	_, err = h.Off(t.Context())
	require.ErrorIs(t, err, ErrNotSent)
	rec, err := ReadRecord(r.id, dir)
	require.NoError(t, err)
	require.True(t, rec.Intent.Open(), "nobody knows what the first one did")
}

func TestLeastTimesOfAnOutletThatCannotReport(t *testing.T) {
	dir, r := t.TempDir(), newRelay(true)
	r.blind = true
	s := safe(dir)
	s.MinOff = 150 * time.Millisecond
	h := taken(t, r, s)
	_, err := SwitchOff(t.Context(), h, quick)
	require.ErrorIs(t, err, ErrNoReadBack)
	require.NoError(t, h.Close())
	h = taken(t, r, s)
	_, err = SwitchOn(t.Context(), h, quick)
	require.ErrorIs(t, err, ErrNoReadBack)
	require.GreaterOrEqual(t, r.sentAt[1].Sub(r.sentAt[0]), s.MinOff-5*time.Millisecond, "by the wall clock, which the record holds")
}

// What people call an outlet does not matter for who holds it.
func TestTwoNamesOfOneOutlet(t *testing.T) {
	dir, r := t.TempDir(), newRelay(true)
	taken(t, r, safe(dir))
	other := newRelay(true)
	other.id = r.id
	other.id.Name = "another name"
	_, err := Take(t.Context(), other, safe(dir))
	var locked *LockedError
	require.ErrorAs(t, err, &locked)
}

// Our own off is followed by an on also when the disk has become full meanwhile.
func TestOnAfterOffWithoutARecord(t *testing.T) {
	dir, r := t.TempDir(), newRelay(true)
	h := taken(t, r, safe(dir))
	_, err := SwitchOff(t.Context(), h, quick)
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.WriteFile(dir, nil, 0o600))
	_, err = SwitchOn(t.Context(), h, quick)
	require.NoError(t, err)
	require.True(t, r.on)
	_, err = h.Off(t.Context())
	require.ErrorIs(t, err, ErrNotSent, "but nothing is cut that cannot be written down")
}

// An interrupt ends the wait before a command and never the command.
func TestInterruptDoesNotCutACommandShort(t *testing.T) {
	r := &interruptible{relay: newRelay(true)}
	h := taken(t, r, safe(t.TempDir()))
	ctx, cancel := context.WithCancel(t.Context())
	r.within = cancel
	_, err := h.Off(ctx)
	require.NoError(t, err)
	require.NoError(t, r.err, "the driver's context goes on")
}

type interruptible struct {
	*relay
	within func()
	err    error
}

func (i *interruptible) Off(ctx context.Context) (Result, error) {
	i.within()
	i.err = ctx.Err()
	return i.relay.Off(ctx)
}
