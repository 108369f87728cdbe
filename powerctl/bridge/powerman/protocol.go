package powerman

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"plugpull/internal/clock"
	"plugpull/powerctl"
	"plugpull/powerctl/bridge"
)

// The numbers of powermand's lines (src/powerman/client_proto.h of chaos/powerman): 1xx ends an
// answer well, 2xx ends it badly, 3xx is a part of it. The greeting is 001.
const (
	greetingCode = 1
	goodbye      = 101
	commandDone  = 102
	queryDone    = 103
	statusLine   = 302
	deviceLine   = 304

	prompt   = "powerman> "
	maxLines = 256 // of one answer: one node and its device need five
)

// ReplyError is an answer of powermand that is not a success.
type ReplyError struct {
	Code int
	Text string // the line that ended the answer
}

func (e *ReplyError) Error() string {
	text := fmt.Sprintf("powermand answers %q", e.Text)
	switch e.Code {
	case 209:
		text += ": give the node as it is in powerman.conf"
	case 210, 211:
		text += ": its log and `powerman --device` say what the device did"
	case 213:
		text += ": its device file has no script for this"
	}
	return text
}

var errMalformed = errors.New("not an answer of powermand")

// reply is one whole answer.
type reply struct {
	lines []string
	code  int // of the last line
}

// number returns the number that begins a line.
func number(line string) (int, error) {
	if len(line) < 4 || line[3] != ' ' || strings.ContainsFunc(line[:3], func(r rune) bool { return r < '0' || r > '9' }) {
		return 0, fmt.Errorf("%w: %.64q", errMalformed, line)
	}
	return strconv.Atoi(line[:3])
}

// readReply reads lines up to the one that ends the answer.
func readReply(next func() (string, error)) (reply, error) {
	var r reply
	for len(r.lines) < maxLines {
		line, err := next()
		if err != nil {
			return r, err
		}
		r.lines = append(r.lines, line)
		switch r.code, err = number(line); {
		case err != nil:
			return r, err
		case r.code >= 100 && r.code < 300:
			return r, nil
		case r.code < 300 || r.code >= 400:
			return r, fmt.Errorf("%w: %.64q", errMalformed, line)
		}
	}
	return r, bridge.ErrTooLong
}

func (r reply) mustEnd(code int) error {
	if r.code == code {
		return nil
	}
	last := ""
	if len(r.lines) > 0 {
		last = r.lines[len(r.lines)-1]
	}
	return &ReplyError{Code: r.code, Text: last}
}

// of returns the lines with this number, without it.
func (r reply) of(code int) []string {
	var out []string
	for _, line := range r.lines {
		if rest, ok := strings.CutPrefix(line, fmt.Sprintf("%03d ", code)); ok {
			out = append(out, rest)
		}
	}
	return out
}

// state reads the answer to a query of one node: three lines in this order, with the
// node in exactly one of them. Any other node in them is an *IdentityError: the name stands for
// something else. The state of an answer that ended badly is Unknown.
func (r reply) state(node string) (powerctl.State, error) {
	rows := r.of(statusLine)
	if len(rows) == 0 && r.code >= 200 {
		return powerctl.Unknown, r.mustEnd(queryDone)
	}
	labels := []string{"on:      ", "off:     ", "unknown: "}
	states := []powerctl.State{powerctl.On, powerctl.Off, powerctl.Unknown}
	if len(rows) != len(labels) {
		return powerctl.Unknown, fmt.Errorf("%w: %d lines of status, want 3", errMalformed, len(rows))
	}
	found, state := []string{}, powerctl.Unknown
	for i, row := range rows {
		nodes, ok := strings.CutPrefix(row, labels[i])
		if !ok {
			return powerctl.Unknown, fmt.Errorf("%w: %.64q, want %q", errMalformed, row, labels[i])
		}
		if nodes != "" {
			found, state = append(found, nodes), states[i]
		}
	}
	if len(found) != 1 || found[0] != node {
		return powerctl.Unknown, &powerctl.IdentityError{What: "node", Want: node, Got: strings.Join(found, " and ")}
	}
	switch {
	case r.code != queryDone:
		return powerctl.Unknown, nil
	case len(r.lines) != len(labels)+1: // errors of devices, telemetry, another query's lines
		return powerctl.Unknown, fmt.Errorf("%w: %d lines, want %d", errMalformed, len(r.lines), len(labels)+1)
	}
	return state, nil
}

// device is what powermand tells of a device.
type device struct{ name, kind string }

// device reads the answer to a query for a node's device: one line.
func (r reply) device() (device, error) {
	if err := r.mustEnd(queryDone); err != nil {
		return device{}, err
	}
	rows := r.of(deviceLine)
	if len(rows) != 1 || len(r.lines) != 2 {
		return device{}, fmt.Errorf("powermand names %d devices for the node, want one: look at powerman.conf", len(rows))
	}
	name, rest, ok := strings.Cut(rows[0], ": state=")
	_, rest, typed := strings.Cut(rest, " type=")
	kind, _, hosts := strings.Cut(rest, " hosts=")
	if !ok || !typed || !hosts || !bridge.PlainName(name) {
		return device{}, fmt.Errorf("%w: %.64q", errMalformed, rows[0])
	}
	return device{name, kind}, nil
}

// conversation is the requests of one method.
type conversation struct{ *bridge.Conn }

func (c *conversation) greeting() error {
	line, err := c.Line()
	if err != nil {
		return err
	}
	if code, err := number(line); err != nil || code != greetingCode {
		return fmt.Errorf("%w: it greets with %.64q", errMalformed, line)
	}
	return c.Prompt(prompt)
}

// ask sends one request and reads the whole answer and the prompt after it. The
// instant is zero where nothing of the request left.
func (c *conversation) ask(request string) (clock.Instant, reply, error) {
	at, err := c.Send(request)
	if err != nil {
		return at, reply{}, err
	}
	r, err := readReply(c.Line)
	if err == nil {
		err = c.Prompt(prompt)
	}
	return at, r, err
}

func (c *conversation) device(node string) (device, error) {
	_, answer, err := c.ask("device " + node)
	if err != nil {
		return device{}, err
	}
	return answer.device()
}

// quit ends the conversation. What comes before the goodbye is the answer to another request,
// so that what was read before answered yet another one.
func (c *conversation) quit() error {
	if _, err := c.Send("quit"); err != nil {
		return err
	}
	r, err := readReply(c.Line)
	if err == nil && (r.code != goodbye || len(r.lines) != 1) {
		err = fmt.Errorf("%w before the goodbye: %.64q", bridge.ErrUnasked, r.lines[0])
	}
	return err
}
