package manual

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"plugpull/powerctl"
	"plugpull/powerctl/powertest"
)

// person obeys the instructions, with the faults of a simulated device.
func person(t *testing.T, d *powertest.Device, prompts io.Reader, in *os.File) {
	r := bufio.NewReader(prompts)
	for {
		line, err := r.ReadString(':')
		if err != nil {
			return
		}
		want := powerctl.On
		switch {
		case strings.Contains(line, "Switch OFF NOW"):
			want = powerctl.Off
		case !strings.Contains(line, "Switch ON NOW"):
			continue
		}
		a := d.Switch(want)
		if !a.Moves.IsZero() {
			select {
			case <-time.After(time.Until(a.Moves)):
			case <-t.Context().Done():
			}
		}
		if a.Failed || d.Contacts() != want {
			_, _ = in.WriteString("it is not " + want.String() + "\n")
			in.Close()
			return
		}
		_, _ = in.WriteString(want.String() + "\n")
	}
}

func TestConformance(t *testing.T) {
	powertest.Run(t, func(t *testing.T) powertest.Harness {
		in, answers, err := os.Pipe()
		require.NoError(t, err)
		prompts, out := io.Pipe()
		o, err := New(Config{Name: "rack 2, left PSU", Class: powerctl.Mains, In: in, Out: out})
		require.NoError(t, err)
		d := powertest.NewDevice()
		done := make(chan struct{})
		go func() { defer close(done); person(t, d, prompts, answers); _, _ = io.Copy(io.Discard, prompts) }()
		t.Cleanup(func() { out.Close(); <-done; in.Close(); answers.Close() })
		return powertest.Harness{
			Outlet: o, Device: d, Confirms: true,
			Policy:   powerctl.Policy{Deadline: time.Minute, Poll: 5 * time.Millisecond},
			Patience: 300 * time.Millisecond,
			Faults: []powertest.Fault{
				powertest.None, powertest.Slow, powertest.StuckOn, powertest.StuckOff, powertest.LostReply, powertest.LostCommand,
			},
		}
	})
}

// pipe returns an outlet that reads from a pipe holding the text.
func pipe(t *testing.T, text string) (*Outlet, *bytes.Buffer, *os.File) {
	in, answers, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { in.Close(); answers.Close() })
	_, err = answers.WriteString(text)
	require.NoError(t, err)
	var shown bytes.Buffer
	o, err := New(Config{Name: "A3", Class: powerctl.Drive, In: in, Out: &shown})
	require.NoError(t, err)
	return o, &shown, answers
}

func TestOnlyTheWordConfirms(t *testing.T) {
	o, shown, answers := pipe(t, "\ny\nyes\non\nof\noff now\n  "+strings.Repeat("off", 3000)+"\n OFF \r\nleft for later\n")
	answers.Close()
	res, err := o.Off(t.Context())
	require.NoError(t, err)
	require.True(t, res.IsOff())
	require.Equal(t, 7, strings.Count(shown.String(), "Not confirmed"))
	require.Equal(t, []string{"ask the person at the terminal: Switch OFF NOW: A3. When it is off, type off and press Enter"}, o.Plan(false))
	require.Contains(t, shown.String(), ">>> "+strings.TrimPrefix(o.Plan(false)[0], "ask the person at the terminal: ")+": ")
	require.GreaterOrEqual(t, res.Observed, res.Commanded)

	state, err := o.State(t.Context())
	require.NoError(t, err)
	require.True(t, state.IsOff())
	require.Equal(t, res.Observed, state.Observed)
}

func TestEndOfInputIsNoAnswer(t *testing.T) {
	for name, text := range map[string]string{"nothing": "", "an unfinished word": "off", "something else": "no\n"} {
		t.Run(name, func(t *testing.T) {
			o, _, answers := pipe(t, text)
			answers.Close()
			res, err := o.Off(t.Context())
			require.ErrorIs(t, err, io.EOF)
			require.NotErrorIs(t, err, powerctl.ErrNotSent, "the person may have acted")
			require.Zero(t, res.Observed)
		})
	}
}

func TestAnOpenQuestionForgetsTheState(t *testing.T) {
	o, _, answers := pipe(t, "off\n")
	_, err := o.Off(t.Context())
	require.NoError(t, err)
	answers.Close()
	_, err = o.On(t.Context())
	require.ErrorIs(t, err, io.EOF)
	state, err := o.State(t.Context())
	require.NoError(t, err)
	require.Equal(t, powerctl.Unknown, state.State)
	require.Zero(t, state.Observed)
}

func TestInterruptedQuestionLeavesTheInputAlone(t *testing.T) {
	o, _, answers := pipe(t, "")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	_, err := o.Off(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	// Nobody sits in a read any more that would swallow this answer.
	_, err = answers.WriteString("on\n")
	require.NoError(t, err)
	res, err := o.On(t.Context())
	require.NoError(t, err)
	require.True(t, res.IsOn())
}

func TestWhatWasTypedAheadIsNoAnswer(t *testing.T) {
	terminal, keyboard := openPTY(t)
	_, err := keyboard.WriteString("off\n")
	require.NoError(t, err)
	var shown notifier = make(chan struct{}, 8)
	o, err := New(Config{Name: "A3", Class: powerctl.Mains, In: terminal, Out: shown})
	require.NoError(t, err)
	waitReadable(t, terminal)
	done := make(chan error, 1)
	go func() { _, err := o.Off(t.Context()); done <- err }()
	<-shown // the instruction
	select {
	case err := <-done:
		t.Fatalf("confirmed by a word typed before the instruction (%v)", err)
	case <-time.After(50 * time.Millisecond):
	}
	_, err = keyboard.WriteString("off\n")
	require.NoError(t, err)
	require.NoError(t, <-done)
}

type notifier chan struct{}

func (n notifier) Write(p []byte) (int, error) { n <- struct{}{}; return len(p), nil }

func openPTY(t *testing.T) (terminal, keyboard *os.File) {
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { keyboard.Close() })
	require.NoError(t, unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	terminal, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { terminal.Close() })
	return terminal, keyboard
}

func waitReadable(t *testing.T, f *os.File) {
	fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 10_000)
	require.NoError(t, err)
	require.Equal(t, 1, n)
}
