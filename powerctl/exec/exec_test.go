package exec

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/testskip"
	"plugpull/powerctl"
	"plugpull/powerctl/powertest"
)

// device is the command under test: a script that asks the simulated device
// through a named pipe and has its answer from one of its own, so that what
// a killed script left unread disturbs no later one.
const device = `#!/bin/sh
cd "${0%/*}" && mkfifo "answer.$$" && echo "$1 $$" >ask && read -r code <"answer.$$" || exit 99
cat "print.$$"
[ "$code" = reset ] && kill -9 "$$"
[ "$code" = 0 ] || echo "the relay board does not answer" >&2
exit "$code"
`

// nonsense must never be taken for off.
var nonsense = []string{
	"off on", "", "0", "offline", "off\noff", "off\x00", "OFF?", "not off", "state: off", "power off", "o f f", "off ok",
	"already OFF", strings.Repeat("off\n", 1000), "off" + strings.Repeat(" ", 4096) + "on", "false", "\xffoff", "１", "Оff",
}

// serve answers the script until the test ends and returns the script's path.
func serve(t *testing.T, d *powertest.Device) string {
	dir := t.TempDir()
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "ask"), 0o600))
	ask, err := os.OpenFile(filepath.Join(dir, "ask"), os.O_RDWR|syscall.O_NONBLOCK, 0)
	require.NoError(t, err)
	path := filepath.Join(dir, "device")
	testskip.Script(t, path, device)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for words := bufio.NewScanner(ask); words.Scan(); {
			word, pid, _ := strings.Cut(words.Text(), " ")
			text, code := answer(word, d)
			if code == "" {
				continue
			}
			if os.WriteFile(filepath.Join(dir, "print."+pid), []byte(text), 0o600) != nil {
				return
			}
			// Opened for reading too, this does not wait for a script that was killed;
			// and it stays open, since the script may not have opened its end yet.
			to, err := os.OpenFile(filepath.Join(dir, "answer."+pid), os.O_RDWR, 0)
			if err != nil {
				return
			}
			defer to.Close()
			_, _ = to.WriteString(code)
		}
	}()
	t.Cleanup(func() { ask.Close(); <-done })
	return path
}

// answer returns what the script prints and its status; no status for silence.
func answer(word string, d *powertest.Device) (text, code string) {
	var a powertest.Answer
	switch word {
	case "off":
		a = d.Switch(powerctl.Off)
	case "on":
		a = d.Switch(powerctl.On)
	case "state":
		a = d.Read()
		text = " " + strings.ToUpper(a.State.String()) + "\n"
		if a.Garbage > 0 {
			text = nonsense[a.Garbage%len(nonsense)]
		}
		if a.Failed { // the word beside an error is worth nothing
			text = "off\n"
		}
	case "identify":
		text = "relay board 4711\n"
		if d.Other() {
			text = "relay board 4712\n"
		}
	}
	switch {
	case a.Silent:
		return "", ""
	case a.Busy:
		return text, "75\n" // EX_TEMPFAIL
	case a.Reset: // the program dies of it
		return text, "reset\n"
	case a.Failed:
		return text, "3\n"
	}
	return text, "0\n"
}

// faults: a program's output is its own, so that nothing strays into it.
func faults(leftOut ...powertest.Fault) []powertest.Fault {
	leftOut = append(leftOut, powertest.LateAnswer, powertest.Echo)
	return slices.DeleteFunc(powertest.Faults(), func(f powertest.Fault) bool { return slices.Contains(leftOut, f) })
}

func harness(t *testing.T, withState bool, pin string, faults []powertest.Fault) powertest.Harness {
	d := powertest.NewDevice()
	path := serve(t, d)
	command := func(word string) []string { return []string{path, word} }
	c := Config{Name: "A3", Off: command("off"), On: command("on"), Timeout: time.Minute, Class: powerctl.Mains}
	if withState {
		c.State = command("state")
	}
	if withState || pin != "" {
		c.Identify, c.Pin = command("identify"), pin
	}
	o, err := New(c)
	require.NoError(t, err)
	return powertest.Harness{
		Outlet: powertest.ShortSilence(o, d), Device: d,
		Policy:   powerctl.Policy{Deadline: time.Minute, Poll: 5 * time.Millisecond},
		Patience: 300 * time.Millisecond,
		Faults:   faults,
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	powertest.Run(t, func(t *testing.T) powertest.Harness { return harness(t, true, "", faults(powertest.WrongDevice)) })
}

func TestConformanceWithoutState(t *testing.T) {
	t.Parallel()
	// Nobody looks, and so nobody sees what somebody else did.
	can := faults(powertest.WrongDevice, powertest.TakenBack, powertest.TakenLater)
	powertest.Run(t, func(t *testing.T) powertest.Harness { return harness(t, false, "", can) })
}

func TestConformanceWithPin(t *testing.T) {
	t.Parallel()
	can := []powertest.Fault{powertest.None, powertest.LostReply, powertest.WrongDevice}
	for _, withState := range []bool{true, false} {
		powertest.Run(t, func(t *testing.T) powertest.Harness { return harness(t, withState, "relay board 4711", can) })
	}
}

// What cannot be verified is not switched, and not read.
func TestNothingRunsWithoutThePinnedIdentity(t *testing.T) {
	for name, body := range map[string]string{"fails": "echo 4711; exit 1", "two lines": "echo 4711; echo 4711", "more": "echo 4711 4712", "nothing": "true"} {
		t.Run(name, func(t *testing.T) {
			ran := filepath.Join(t.TempDir(), "ran")
			touch := script(t, "touch "+ran+"\necho off\n")
			o := outlet(t, Config{Off: touch, State: touch, Identify: script(t, body), Pin: "4711"})
			res, err := o.Off(t.Context())
			require.ErrorIs(t, err, powerctl.ErrNotSent)
			var op *powerctl.OpError
			require.ErrorAs(t, err, &op)
			require.Equal(t, "off", op.Op)
			require.Zero(t, res)
			res, err = o.State(t.Context())
			require.Error(t, err)
			require.Zero(t, res)
			require.NoFileExists(t, ran)
		})
	}
}

func TestPins(t *testing.T) {
	o := outlet(t, Config{Identify: script(t, "echo ' 4712 '"), Pin: "4711"})
	got, err := o.Pins(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]string{"identity": "4712"}, got)
	_, err = o.Identify(t.Context())
	require.EqualError(t, err, `outlet "A3": identify: verify which device answers: wrong device: the pinned identity is "4711", this one says "4712"`)
	got, err = outlet(t, Config{}).Pins(t.Context())
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestPlanCountsArguments(t *testing.T) {
	o, err := New(Config{Name: "A3", Off: []string{"/opt/pdu", "-p", "hunter2"}, On: []string{"pdu-on"}, Identify: []string{"who", "hunter2"}, Pin: "4711", Timeout: 1})
	require.NoError(t, err)
	require.Equal(t, []string{`run "who" with 1 argument; it must print "4711"`, `run "/opt/pdu" with 2 arguments`}, o.Plan(false))
	require.Equal(t, `run "pdu-on" without arguments`, o.Plan(true)[1])
}

func TestParseKnowsFiveWords(t *testing.T) {
	for text, want := range map[string]powerctl.State{
		"on": powerctl.On, "Off\r\n": powerctl.Off, "\t PENDING ": powerctl.Pending, "fault": powerctl.Fault, "unknown": powerctl.Unknown,
	} {
		assert.Equal(t, want, parse(text), "%q", text)
	}
	for _, text := range nonsense {
		assert.Equal(t, powerctl.Unknown, parse(text), "%q", text)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range nonsense {
		f.Add(text)
	}
	f.Add(" off\n")
	f.Fuzz(func(t *testing.T, text string) {
		if parse(text) == powerctl.Off {
			assert.Equal(t, "off", strings.ToLower(strings.TrimSpace(text)))
		}
	})
}

func script(t *testing.T, body string) []string {
	path := filepath.Join(t.TempDir(), "command")
	testskip.Script(t, path, "#!/bin/sh\n"+body)
	return []string{path}
}

func outlet(t *testing.T, c Config) *Outlet {
	if c.Off == nil {
		c.Off = []string{"true"}
	}
	c.On, c.Name = []string{"true"}, "A3"
	if c.Timeout == 0 {
		c.Timeout = 20 * time.Second
	}
	o, err := New(c)
	require.NoError(t, err)
	return o
}

func TestTimeoutKillsWhatTheCommandStarted(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "pid")
	o := outlet(t, Config{Off: script(t, "sleep 600 & echo $! >"+pidFile+"\nwait\n"), Timeout: time.Second})
	res, err := o.Off(t.Context())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, powerctl.ErrNotSent)
	require.NotZero(t, res.Commanded)
	require.Zero(t, res.Acknowledged)
	text, err := os.ReadFile(pidFile)
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return gone(pid) }, 10*time.Second, 10*time.Millisecond, "the grandchild lives on")
}

// gone is true also for a dead process that nobody has reaped yet.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func TestCancelledCommandIsNotCalledUnsent(t *testing.T) {
	started := filepath.Join(t.TempDir(), "started")
	o := outlet(t, Config{Off: script(t, "touch "+started+"\nexec sleep 600\n")})
	ctx, done := powertest.CancelWhen(t.Context(), func() bool { _, err := os.Stat(started); return err == nil })
	defer done()
	_, err := o.Off(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, powerctl.ErrNotSent, "it may have switched")
}

func TestErrorsSayWhatTheCommandSaidAndNoArgument(t *testing.T) {
	argv := append(script(t, "echo 'no route to the relay' >&2; exit 7\n"), "--password", "hunter2")
	_, err := outlet(t, Config{Off: argv}).Off(t.Context())
	require.EqualError(t, err, `outlet "A3": off: run command: exit status 7; it said "no route to the relay"`)

	res, err := outlet(t, Config{Off: []string{"/nowhere/pdu", "hunter2"}}).Off(t.Context())
	require.ErrorIs(t, err, powerctl.ErrNotSent)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.Zero(t, res.Commanded)
	require.EqualError(t, err, `outlet "A3": off: start pdu: the command was not sent: no such file or directory`)

	id, err := outlet(t, Config{Off: argv}).Identify(t.Context())
	require.NoError(t, err)
	require.NotContains(t, fmt.Sprint(id), "hunter2")
}

func TestOutputWithoutEndIsBounded(t *testing.T) {
	o := outlet(t, Config{State: script(t, "yes off | head -c 50000000; yes bad | head -c 50000000 >&2; exit 0\n")})
	res, err := o.State(t.Context())
	require.NoError(t, err)
	require.Equal(t, powerctl.Unknown, res.State)
	require.Len(t, res.Raw, powerctl.MaxRaw)
}

func TestEnvironmentIsPassedThroughAndStdinIsEmpty(t *testing.T) {
	t.Setenv("PDU_STATE", "off")
	o := outlet(t, Config{State: script(t, `read x && exit 1; echo "$PDU_STATE"`)})
	res, err := o.State(t.Context())
	require.NoError(t, err)
	require.True(t, res.IsOff())
}

func TestIdentifyTellsOutletsApart(t *testing.T) {
	one, err := outlet(t, Config{Off: []string{"pdu", "off", "1"}}).Identify(t.Context())
	require.NoError(t, err)
	two, err := outlet(t, Config{Off: []string{"pdu", "off", "2"}}).Identify(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, one, two)

	for name, body := range map[string]string{"nothing": "true", "two lines": "echo a; echo b", "endless": "yes serial | head -c 100000"} {
		_, err := outlet(t, Config{Identify: script(t, body)}).Identify(t.Context())
		var op *powerctl.OpError
		require.ErrorAs(t, err, &op, name)
	}
}

func TestNewReportsEverything(t *testing.T) {
	_, err := New(Config{On: []string{""}, Pin: "4711\n"})
	require.EqualError(t, err, "exec outlet: the outlet's name is missing\nthe off command has no program\nthe on command has no program\n"+
		"the pin needs an identify command\nthe pin \"4711\\n\" is not one line without white space around it\nthe timeout is missing")
}
