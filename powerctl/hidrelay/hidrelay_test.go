package hidrelay

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"plugpull/powerctl"
	"plugpull/powerctl/powertest"
)

// silent are the faults of the clone, which cannot be read.
var silent = []powertest.Fault{
	powertest.None, powertest.StaleReads, powertest.UnknownReads, powertest.GarbageReads, powertest.FailedReads, powertest.StuckOn, powertest.StuckOff,
	powertest.Slow, powertest.LostReply, powertest.LostCommand, powertest.NoAnswer, powertest.Busy, powertest.Reset, powertest.TakenBack,
	powertest.TakenLater, powertest.WrongDevice,
}

// faults: the report knows no busy relay and no faulty one. The kernel takes an answer from the
// request's own control transfer; a board may well answer with what it was sent.
var faults = append([]powertest.Fault{powertest.Echo}, silent...)

func TestConformance(t *testing.T) {
	for name, change := range map[string]func(*board){
		"report 0":     func(*board) {},
		"report 1, nc": func(b *board) { b.oc.Report, b.oc.Contact, b.oc.Relay = 1, powerctl.NormallyClosed, 2 },
		"clone":        func(b *board) { *b = *clone("A0001") },
		"clone, nc":    func(b *board) { *b = *clone("A0001"); b.oc.Contact, b.oc.Relay = powerctl.NormallyClosed, 9 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			powertest.Run(t, func(t *testing.T) powertest.Harness {
				b := usbRelay("hidraw0", "USBRelay2", "6QMBS")
				change(b)
				machine := &bus{boards: []*board{b}}
				o := start(t, machine, b.oc)
				// The board is found before it misbehaves: one that cannot say its serial is not
				// switched, which TestBoardThatCannotSayItsSerialIsNotSwitched is about.
				_, err := o.Identify(t.Context())
				require.NoError(t, err)
				other := *b
				other.serial, other.info.uniq = "6QMBT", "A0002"
				can := faults
				if b.oc.Model == HIDRelay {
					can = silent
				}
				return powertest.Harness{
					Outlet: o, Device: b.device, Faults: can, Swap: func() { machine.replug(b, &other) },
					Policy: powerctl.Policy{Deadline: time.Minute, Poll: 2 * time.Millisecond}, Patience: 50 * time.Millisecond,
				}
			})
		})
	}
}

func TestTheRightBoardIsSwitched(t *testing.T) {
	mouse := usbRelay("hidraw0", "Mouse", "6QMBS")
	other, ours := usbRelay("hidraw1", "USBRelay8", "6QMBT"), usbRelay("hidraw2", "USBRelay4", "6QMBS")
	ours.oc.Relay = 4
	o := start(t, &bus{boards: []*board{mouse, other, ours}}, ours.oc)
	res, err := powerctl.SwitchOff(t.Context(), o, powerctl.Policy{Deadline: time.Minute})
	require.NoError(t, err)
	require.True(t, res.IsOff())
	require.Equal(t, "00 36 51 4d 42 53 00 00 00", res.Raw)
	require.Equal(t, [][]byte{{0, 0xfd, 4, 0, 0, 0, 0, 0, 0}}, ours.sent)
	require.Empty(t, other.sent)
	require.Zero(t, mouse.device.Reads(), "what is no relay board is left alone")
	id, err := o.Identify(t.Context())
	require.NoError(t, err)
	require.Equal(t, "16c0:05df www.dcttech.com USBRelay4 serial 6QMBS, relay 4, normally_open", id.Device)
}

func TestNothingIsSentWhereTheBoardIsNotCertain(t *testing.T) {
	ours := func() *board { return usbRelay("hidraw0", "USBRelay2", "6QMBS") }
	mute := usbRelay("hidraw1", "USBRelay2", "")
	mute.device.Plant(powertest.FailedReads)
	for name, c := range map[string]struct {
		boards []*board
		relay  int
		want   error
		text   string
	}{
		"none":                  {nil, 1, ErrNotFound, ""},
		"another":               {[]*board{usbRelay("hidraw0", "USBRelay2", "6QMBT")}, 1, ErrNotFound, ""},
		"corrupt":               {[]*board{usbRelay("hidraw0", "USBRelay2", "\xb1QMBS")}, 1, ErrNotFound, `corrupt serial (["\xb1QMBS"])`},
		"no serial":             {[]*board{usbRelay("hidraw0", "USBRelay8", "")}, 1, ErrNotFound, "corrupt serial"},
		"twins":                 {[]*board{ours(), usbRelay("hidraw1", "USBRelay8", "6QMBS")}, 1, ErrAmbiguous, "hidraw1"},
		"one that says nothing": {[]*board{ours(), mute}, 1, unix.EPROTO, "hidraw1"},
		"too few relays":        {[]*board{ours()}, 3, ErrNoSuchRelay, "USBRelay2"},
	} {
		t.Run(name, func(t *testing.T) {
			oc := ours().oc
			oc.Relay = c.relay
			o := start(t, &bus{boards: c.boards}, oc)
			res, err := o.Off(t.Context())
			require.ErrorIs(t, err, c.want)
			require.ErrorIs(t, err, powerctl.ErrNotSent)
			require.ErrorContains(t, err, c.text)
			require.Zero(t, res.Commanded)
			_, err = o.Identify(t.Context())
			require.ErrorIs(t, err, c.want)
			for _, b := range c.boards {
				require.Empty(t, b.sent)
			}
		})
	}
}

func TestBoardThatCannotSayItsSerialIsNotSwitched(t *testing.T) {
	b := usbRelay("hidraw0", "USBRelay2", "6QMBS")
	b.device.Plant(powertest.FailedReads)
	o := start(t, &bus{boards: []*board{b}}, b.oc)
	_, err := o.Off(t.Context())
	require.ErrorIs(t, err, powerctl.ErrNotSent)
	require.ErrorIs(t, err, unix.EPROTO)
	require.Empty(t, b.sent)
}

func TestReplugged(t *testing.T) {
	first, second := usbRelay("hidraw0", "USBRelay2", "6QMBS"), usbRelay("hidraw0", "USBRelay2", "6QMBS")
	stranger := usbRelay("hidraw0", "USBRelay2", "6QMBT")
	machine := &bus{boards: []*board{first}}
	o := start(t, machine, first.oc)
	_, err := o.On(t.Context())
	require.NoError(t, err)
	machine.replug(first, second)
	_, err = o.Off(t.Context())
	require.NoError(t, err)
	require.Len(t, second.sent, 1)
	machine.replug(second, stranger)
	_, err = o.Off(t.Context())
	require.ErrorIs(t, err, ErrNotFound)
	require.EqualError(t, err, `outlet "A3": off: command the relay: the command was not sent: find the board: no relay board has this serial: wrong device: the pinned serial is "6QMBS", this one says "6QMBT"`)
	require.ErrorIs(t, err, powerctl.ErrNotSent)
	require.Empty(t, stranger.sent)
	machine.replug(stranger, nil)
	res, err := o.State(t.Context())
	require.ErrorIs(t, err, ErrNotFound)
	require.Equal(t, powerctl.Unknown, res.State)
}

func TestGoneInTheMiddleOfACommandLeavesItOpen(t *testing.T) {
	b := usbRelay("hidraw0", "USBRelay2", "6QMBS")
	machine := &bus{boards: []*board{b}}
	b.hold = func(request string) {
		if request == "set" {
			machine.replug(b, nil)
		}
	}
	res, err := start(t, machine, b.oc).Off(t.Context())
	require.ErrorIs(t, err, unix.ENODEV)
	require.NotErrorIs(t, err, powerctl.ErrNotSent)
	require.NotZero(t, res.Commanded)
	require.Zero(t, res.Acknowledged)
}

func TestSerialThatChangesIsNoticed(t *testing.T) {
	b := usbRelay("hidraw0", "USBRelay2", "6QMBS")
	o := start(t, &bus{boards: []*board{b}}, b.oc)
	_, err := o.Off(t.Context())
	require.NoError(t, err)
	b.answer = make([]byte, 8) // seen on boards that brown out: all zero would be off
	res, err := o.State(t.Context())
	require.NoError(t, err)
	require.Equal(t, powerctl.Unknown, res.State)
	_, err = o.Identify(t.Context())
	var wrong *powerctl.IdentityError
	require.ErrorAs(t, err, &wrong)
	require.Equal(t, powerctl.IdentityError{What: "serial", Want: "6QMBS"}, *wrong)
}

func TestPins(t *testing.T) {
	for _, b := range []*board{usbRelay("hidraw0", "USBRelay2", "6QMBS"), clone("A0001")} {
		machine := &bus{boards: []*board{b}}
		got, err := start(t, machine, b.oc).Pins(t.Context())
		require.NoError(t, err)
		require.Equal(t, map[string]string{"serial": b.oc.Serial}, got)
		c := b.oc
		c.Serial = "other"
		_, err = start(t, machine, c).Pins(t.Context())
		require.ErrorIs(t, err, ErrNotFound)
		var wrong *powerctl.IdentityError
		require.ErrorAs(t, err, &wrong)
		require.Equal(t, powerctl.IdentityError{What: "serial", Want: "other", Got: b.oc.Serial}, *wrong, "so that a user can pin it")
	}
}

// What was planned is what arrives.
func TestPlan(t *testing.T) {
	nc := usbRelay("hidraw0", "USBRelay2", "6QMBS")
	nc.oc.Contact, nc.oc.Relay = powerctl.NormallyClosed, 2
	for want, b := range map[string]*board{
		`set feature report 00 ff 02 00 00 00 00 00 00 to the board with the serial "6QMBS"`:  nc,
		`write output report 00 01 00 00 00 00 00 00 00 to the board with the serial "A0001"`: clone("A0001"),
	} {
		o := start(t, &bus{boards: []*board{b}}, b.oc)
		plan := o.Plan(false)
		require.Len(t, plan, 2)
		require.Equal(t, want, plan[1])
		_, err := o.Off(t.Context())
		require.NoError(t, err)
		require.Len(t, b.sent, 1)
		require.Contains(t, want, fmt.Sprintf(" % x ", b.sent[0]))
	}
}

// held blocks one kind of request until it is let go.
func held(b *board, kind string) (reached <-chan struct{}, letGo func()) {
	at, free := make(chan struct{}), make(chan struct{})
	var once sync.Once
	b.hold = func(request string) {
		if request == kind {
			once.Do(func() { close(at); <-free })
		}
	}
	return at, sync.OnceFunc(func() { close(free) })
}

// A call that was given up must not switch anything once the kernel lets go.
func TestGivenUpWhileTheBoardIsLookedForIsNeverSent(t *testing.T) {
	b := usbRelay("hidraw0", "USBRelay2", "6QMBS")
	o := start(t, &bus{boards: []*board{b}}, b.oc)
	reached, letGo := held(b, "get")
	defer letGo()
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-reached; cancel() }()
	res, err := o.Off(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, powerctl.ErrNotSent)
	require.Zero(t, res.Commanded)
	letGo()
	require.NoError(t, o.Close(), "waits for the call")
	require.Empty(t, b.sent)
}

func TestGivenUpWhileTheCommandIsUnderWayIsOpen(t *testing.T) {
	b := usbRelay("hidraw0", "USBRelay2", "6QMBS")
	o := start(t, &bus{boards: []*board{b}}, b.oc)
	reached, letGo := held(b, "set")
	defer letGo()
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-reached; cancel() }()
	res, err := o.Off(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, powerctl.ErrNotSent)
	require.NotZero(t, res.Commanded)
	require.Zero(t, res.Acknowledged)

	short, cancelShort := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancelShort()
	_, err = o.State(short)
	require.ErrorIs(t, err, context.DeadlineExceeded, "the kernel still has the call before")
	letGo()
	require.NoError(t, o.Close())
	require.Len(t, b.sent, 1)
}

func TestPartOfAReportIsNotTaken(t *testing.T) {
	require.ErrorIs(t, send(USBRelay, &hidraw{ioctl: replies(8, nil)}, make([]byte, 9)), ErrShort)
}

func TestClone(t *testing.T) {
	b := clone("A0001")
	b.oc.Relay = 3
	o := start(t, &bus{boards: []*board{b}}, b.oc)
	_, err := powerctl.SwitchOff(t.Context(), o, powerctl.Policy{Deadline: time.Second})
	require.ErrorIs(t, err, powerctl.ErrNoReadBack)
	_, err = powerctl.SwitchOn(t.Context(), o, powerctl.Policy{Deadline: time.Second})
	require.ErrorIs(t, err, powerctl.ErrNoReadBack)
	require.Equal(t, [][]byte{{0, 3, 0, 0, 0, 0, 0, 0, 0}, {0, 0xf3, 0, 0, 0, 0, 0, 0, 0}}, b.sent)
	require.Zero(t, b.device.Reads())
}

func TestEverythingWrongIsSaidAtOnce(t *testing.T) {
	_, err := New(Config{Serial: "\xb1QMBS7", Relay: 9, Report: 2, Model: USBRelay})
	require.EqualError(t, err, `hid relay outlet: the outlet's name is missing
the serial "\xb1QMBS7" is no pin: it has signs that do not print, or none
the serial "\xb1QMBS7" is longer than 5 signs
relay 9: want 1 to 8, of a clone 9
the contact "" is neither normally_open nor normally_closed
report 2: want 0 or 1
the timeout is missing`)
}
