package quarch

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"plugpull/internal/clock"
	"plugpull/powerctl"
)

// ErrNotAnAnswer: what came back is no answer to what was sent.
var ErrNotAnAnswer = errors.New("the module's answer is not one to this command")

// FailError is an answer that begins with FAIL: the module did not do it.
type FailError struct{ Text string }

func (e *FailError) Error() string { return "the module says: " + e.Text }

// SourceError: run:power does not switch a signal of the drive's power.
type SourceError struct {
	Signal string
	Source int // 0 is always off, 8 always on
}

func (e *SourceError) Error() string {
	return fmt.Sprintf("signal %s hangs on source %d, which run:power does not switch: give it one of 1 to 7 with \"signal:%s:source 7\"", e.Signal, e.Source, e.Signal)
}

// wire is one conversation with a module on one of the ways in.
type wire interface {
	// ask sends one command, once, and returns the whole answer without its echo and
	// prompt. at is stamped before the first byte leaves; zero: nothing has left.
	ask(ctx context.Context, command string) (answer string, at clock.Instant, err error)
	close() error
}

// maxAnswer bounds an answer, in bytes. That to *idn? has a few hundred.
const maxAnswer = 4 << 10

const askSerial = "*serial?"

func askSource(signal string) string { return "signal:" + signal + ":source?" }

// conversation is a wire on which the module has been met.
type conversation struct {
	w      wire
	module int
	serial string
}

// meet asks who answers. It is the first question of every conversation: an answer that is left
// over from one before is no serial number, or moves the next answers by one, where it shows.
func (c *conversation) meet(ctx context.Context, pinned, seen string) error {
	answer, err := c.word(ctx, askSerial)
	if err != nil {
		return err
	}
	if !isSerial(answer) {
		return notAnswer(askSerial, answer)
	}
	for _, want := range []string{pinned, seen} {
		if want != "" && bare(want) != bare(answer) {
			return &powerctl.IdentityError{What: "serial", Want: want, Got: answer}
		}
	}
	c.serial = answer
	return nil
}

// still asks for the serial number again. That is the right answer only if each one before it
// was to its own question, and from one module.
func (c *conversation) still(ctx context.Context) error {
	answer, err := c.word(ctx, askSerial)
	if err == nil && answer != c.serial {
		return notAnswer(askSerial, answer)
	}
	return err
}

var serialNumber = regexp.MustCompile(`^[A-Za-z0-9]{1,12}(-[A-Za-z0-9]{1,12}){1,3}$`)

func isSerial(s string) bool { return serialNumber.MatchString(s) }

func bare(serial string) string { return strings.TrimPrefix(strings.ToUpper(serial), "QTL") }

// addressed adds the module's number for the array controller.
func addressed(command string, module int) string {
	if module == 0 {
		return command
	}
	return fmt.Sprintf("%s <%d>", command, module)
}

// ask returns the lines of an answer.
func (c *conversation) ask(ctx context.Context, command string) ([]string, clock.Instant, error) {
	answer, at, err := c.w.ask(ctx, addressed(command, c.module))
	if err != nil {
		return nil, at, err
	}
	lines, err := parseLines(command, answer, c.module)
	return lines, at, err
}

// parseLines splits an answer and takes the module's number off each line, which an
// array controller puts there: "3:OK", or "3.1: OK". A line of another module is no answer.
func parseLines(command, answer string, module int) ([]string, error) {
	lines := strings.FieldsFunc(answer, isLineEnd)
	if len(lines) == 0 {
		return nil, notAnswer(command, answer)
	}
	for i, line := range lines {
		if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' }) || line[0] == '>' {
			return nil, notAnswer(command, answer)
		}
		if module == 0 || isFail(line) {
			continue
		}
		number, rest, ok := strings.Cut(line, ":")
		which, sub, dotted := strings.Cut(number, ".")
		if !ok || which != strconv.Itoa(module) || dotted && !isNumber(sub) {
			return nil, notAnswer(command, answer)
		}
		lines[i] = strings.TrimPrefix(rest, " ")
	}
	for _, line := range lines {
		if isFail(line) {
			return nil, &FailError{raw(line)}
		}
	}
	return lines, nil
}

func isLineEnd(r rune) bool { return r == '\r' || r == '\n' }

func isFail(line string) bool { return strings.HasPrefix(line, "FAIL") }

func isNumber(s string) bool {
	return s != "" && len(s) <= 9 && !strings.ContainsFunc(s, func(r rune) bool { return r < '0' || r > '9' })
}

// word asks what has one line for an answer.
func (c *conversation) word(ctx context.Context, command string) (string, error) {
	lines, _, err := c.ask(ctx, command)
	if err != nil {
		return "", err
	}
	if len(lines) != 1 {
		return "", notAnswer(command, strings.Join(lines, "\n"))
	}
	return lines[0], nil
}

// order sends what is answered by OK.
func (c *conversation) order(ctx context.Context, command string) (clock.Instant, error) {
	lines, at, err := c.ask(ctx, command)
	if err == nil && (len(lines) != 1 || lines[0] != "OK") {
		err = notAnswer(command, strings.Join(lines, "\n"))
	}
	return at, err
}

// The words for the state: a hot-plug module's and a power module's.
const (
	plugged, pulled = "PLUGGED", "PULLED"
	on, off         = "ON", "OFF"
)

func powerState(word string) powerctl.State {
	switch word {
	case plugged, on:
		return powerctl.On
	case pulled, off:
		return powerctl.Off
	}
	return powerctl.Unknown
}

// power reads the state. Several lines are no state; neither is a word that is none.
func (c *conversation) power(ctx context.Context) (powerctl.State, string, error) {
	const command = "run:power?"
	lines, _, err := c.ask(ctx, command)
	if err != nil {
		return powerctl.Unknown, "", err
	}
	if len(lines) != 1 {
		return powerctl.Unknown, strings.Join(lines, "\n"), nil
	}
	return powerState(lines[0]), lines[0], nil
}

// Sources of a hot-plug module: 1 to 6 are timed, 7 switches at once, and run:power
// switches them all. The other two never change.
const (
	alwaysOff = 0
	lastTimed = 6
	alwaysOn  = 8
)

// stateOf is what a signal on a source is whatever is commanded; Unknown where
// run:power decides.
func stateOf(source int) powerctl.State {
	switch source {
	case alwaysOff:
		return powerctl.Off
	case alwaysOn:
		return powerctl.On
	}
	return powerctl.Unknown
}

// source reads on which source a signal hangs.
func (c *conversation) source(ctx context.Context, signal string) (int, error) {
	answer, err := c.word(ctx, askSource(signal))
	if err != nil {
		return 0, err
	}
	if len(answer) != 1 || answer[0] < '0'+alwaysOff || answer[0] > '0'+alwaysOn {
		return 0, notAnswer(askSource(signal), answer)
	}
	return int(answer[0] - '0'), nil
}

// requireSwitched makes sure that run:power reaches every signal.
func (c *conversation) requireSwitched(ctx context.Context, signals []string) error {
	for _, s := range signals {
		source, err := c.source(ctx, s)
		if err != nil {
			return err
		}
		if stateOf(source) != powerctl.Unknown {
			return &SourceError{Signal: s, Source: source}
		}
	}
	return nil
}

// idn returns name and part number. A module that refuses to say has its serial number.
func (c *conversation) idn(ctx context.Context) (string, error) {
	lines, _, err := c.ask(ctx, "*idn?")
	var fail *FailError
	if errors.As(err, &fail) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var out string
	for _, key := range []string{"Name", "Part#"} {
		for _, line := range lines {
			if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
				out += " " + strings.ToLower(strings.Trim(key, "#")) + " " + strings.TrimSpace(v)
				break
			}
		}
	}
	return out, nil
}

func notAnswer(command, got string) error {
	return fmt.Errorf("%w: %s is answered by %q", ErrNotAnAnswer, command, raw(got))
}

// raw bounds what a module said.
func raw(s string) string { return s[:min(len(s), powerctl.MaxRaw)] }
