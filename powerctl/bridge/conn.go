// Package bridge holds what the drivers share that reach outlets through a daemon
// which a lab runs already: a conversation in lines over TCP.
//
// It guarantees that a line is returned only when it is whole, that an answer which
// is too long, cut short or early is an error and never a shorter answer, and that every wait
// ends with the context. One goroutine at a time uses a Conn.
package bridge

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"plugpull/internal/clock"
	"plugpull/powerctl"
)

// The bounds of a conversation, in bytes. powermand allows lines of 8 KiB.
const (
	maxLine  = 8 << 10
	maxTotal = 1 << 20
)

// The ways in which what was received is no answer.
var (
	ErrTooLong   = errors.New("the answer is too long")
	ErrUnasked   = errors.New("bytes that nobody asked for")
	ErrNotPlain  = errors.New("the line has control characters")
	ErrNotPrompt = errors.New("not the prompt")
)

// Conn is a conversation with a daemon. It is of no use after an error.
type Conn struct {
	ctx      context.Context
	conn     net.Conn
	r        *bufio.Reader
	received int
	stop     func() bool
	stopped  chan struct{}
}

// Dial connects to host:port. Everything that is done with the Conn ends when ctx does.
func Dial(ctx context.Context, address string) (*Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, because(ctx, err)
	}
	c := &Conn{ctx: ctx, conn: conn, r: bufio.NewReader(conn), stopped: make(chan struct{})}
	c.stop = context.AfterFunc(ctx, func() {
		defer close(c.stopped)
		// In the past: what is being waited for ends now.
		_ = conn.SetDeadline(time.Unix(1, 0))
	})
	return c, nil
}

// Close ends the conversation without a word.
func (c *Conn) Close() {
	if !c.stop() {
		<-c.stopped
	}
	_ = c.conn.Close()
}

// because names the end of ctx as the cause where it is.
func because(ctx context.Context, err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		// There is no deadline but that of ctx. A socket can be a moment ahead of it.
		<-ctx.Done()
	}
	if cause := ctx.Err(); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// Send writes one line, which has no end of line of its own, and returns the instant before
// its first byte. It refuses to speak where something is still to be read: an answer that
// is already there is the answer to something else. The instant is zero where no byte left.
func (c *Conn) Send(line string) (clock.Instant, error) {
	if c.r.Buffered() > 0 {
		rest, _ := c.r.Peek(min(c.r.Buffered(), 64))
		return 0, fmt.Errorf("%w before the request: %q", ErrUnasked, rest)
	}
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	at := clock.Now()
	n, err := c.conn.Write([]byte(line + "\n"))
	if err == nil {
		return at, nil
	}
	if n == 0 {
		at = 0
	}
	return at, because(c.ctx, err)
}

// Line returns one line without its end, LF or CR LF.
func (c *Conn) Line() (string, error) {
	var line []byte
	for {
		b, err := c.r.ReadByte()
		if err != nil {
			if len(line) > 0 {
				return "", because(c.ctx, fmt.Errorf("the line ends after %q: %w", cut(string(line), 64), err))
			}
			return "", because(c.ctx, err)
		}
		if c.received++; c.received > maxTotal || len(line) > maxLine {
			return "", ErrTooLong
		}
		if b == '\n' {
			break
		}
		line = append(line, b)
	}
	text := strings.TrimSuffix(string(line), "\r")
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", fmt.Errorf("%w: %q", ErrNotPlain, cut(text, 64))
	}
	return text, nil
}

// Prompt reads exactly this text, which ends no line.
func (c *Conn) Prompt(text string) error {
	for i := range len(text) {
		b, err := c.r.ReadByte()
		if err != nil {
			return because(c.ctx, err)
		}
		c.received++
		if b != text[i] {
			return fmt.Errorf("%w %q: %q after %q", ErrNotPrompt, text, b, text[:i])
		}
	}
	return nil
}

// StartTLS goes on in TLS and blocks for the handshake.
func (c *Conn) StartTLS(conf *tls.Config) error {
	if c.r.Buffered() > 0 {
		return fmt.Errorf("%w before the handshake", ErrUnasked)
	}
	conn := tls.Client(c.conn, conf)
	if err := conn.HandshakeContext(c.ctx); err != nil {
		return because(c.ctx, err)
	}
	c.conn, c.r = conn, bufio.NewReader(conn)
	return nil
}

func cut(text string, n int) string { return text[:min(len(text), n)] }

// Raw bounds what a Result keeps of an answer.
func Raw(lines []string) string { return cut(strings.Join(lines, "\n"), powerctl.MaxRaw) }

// PlainName reports whether s is one plain name: letters, digits, '.', '_' and '-', at most 128 of
// them, a letter or a digit first. What a daemon could take for a list, a pattern, an option or a
// second word is none.
func PlainName(s string) bool {
	for i, r := range s {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		case i > 0 && (r == '.' || r == '_' || r == '-'):
		default:
			return false
		}
	}
	return s != "" && len(s) <= 128
}

// ValidClass reports whether c is one of the classes.
func ValidClass(c powerctl.Class) bool { return slices.Contains(powerctl.Classes(), c) }

// HostPort reports whether s is host:port.
func HostPort(s string) bool {
	host, port, err := net.SplitHostPort(s)
	return err == nil && host != "" && port != ""
}
