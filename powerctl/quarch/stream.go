package quarch

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"plugpull/internal/clock"
)

// deadliner is a TCP connection or a serial port.
type deadliner interface {
	Read([]byte) (int, error)
	Write([]byte) (int, error)
	SetDeadline(time.Time) error
	Close() error
}

// stream is a wire of bytes.
type stream struct {
	conn   deadliner
	encode func(command string) []byte
	// decode returns the answer in what has come so far. whole is false while
	// more is to come; an error: it will never be one.
	decode func(command string, got []byte) (answer string, whole bool, err error)
	closed func()
}

func (s *stream) close() error {
	if s.closed != nil {
		s.closed()
	}
	return s.conn.Close()
}

func (s *stream) ask(ctx context.Context, command string) (string, clock.Instant, error) {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { defer close(ended); _ = s.conn.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		if !stop() {
			<-ended
		}
	}()
	if err := s.arm(ctx, time.Time{}); err != nil {
		return "", 0, err
	}
	at := clock.Now()
	n, err := s.conn.Write(s.encode(command))
	if n == 0 && err != nil {
		return "", 0, cause(ctx, err)
	}
	if err != nil {
		return "", at, cause(ctx, err)
	}
	answer, err := s.answer(ctx, command)
	return answer, at, err
}

func (s *stream) answer(ctx context.Context, command string) (string, error) {
	var got []byte
	buf := make([]byte, 1<<10)
	for {
		n, err := s.conn.Read(buf)
		if err != nil {
			return "", fmt.Errorf("after %q: %w", raw(string(got)), cause(ctx, err))
		}
		if got = append(got, buf[:n]...); len(got) > maxAnswer {
			return "", fmt.Errorf("%w: it has more than %d bytes", ErrNotAnAnswer, maxAnswer)
		}
		if answer, whole, err := s.decode(command, got); whole || err != nil {
			return answer, err
		}
	}
}

// arm sets the deadline. What ends ctx sets another one afterwards, which comes after
// this or is noticed by the check.
func (s *stream) arm(ctx context.Context, until time.Time) error {
	if err := s.conn.SetDeadline(until); err != nil {
		return err
	}
	return ctx.Err()
}

// cause puts the end of ctx in the place of the deadline that it made pass.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		return ctx.Err()
	}
	return err
}

// breather is how long a module's TCP server is given between two connections: quarchpy
// waits as long, since a module that was just left says that it is in use.
const breather = 150 * time.Millisecond

type dialer struct {
	address  string
	breather time.Duration
	left     time.Time
}

func newDialer(address string) *dialer { return &dialer{address: address, breather: breather} }

func hostPort(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host, port, err = net.SplitHostPort(net.JoinHostPort(address, defaultPort))
	}
	if err == nil && (host == "" || strings.ContainsAny(host, ":/ []") && net.ParseIP(host) == nil) {
		err = errors.New("the host is missing")
	}
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	return net.JoinHostPort(host, port), err
}

func (d *dialer) open(ctx context.Context) (wire, error) {
	pause := time.NewTimer(d.breather - time.Since(d.left))
	defer pause.Stop()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-pause.C:
	}
	// Without ctx's deadline, so that what ends the dialing is told as ctx's error.
	dialing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	conn, err := (&net.Dialer{}).DialContext(dialing, "tcp", d.address)
	if err != nil {
		return nil, errors.Join(ctx.Err(), err)
	}
	return &stream{conn: conn, encode: encodeFrame, decode: decodeFrames, closed: func() { d.left = time.Now() }}, nil
}

// encodeFrame: two bytes of length, the lower one first, and the command with its line end.
func encodeFrame(command string) []byte {
	b := binary.LittleEndian.AppendUint16(nil, uint16(len(command)+2))
	return append(append(b, command...), '\r', '\n')
}

const prompt = "\r\n>"

// decodeFrames takes frames of the same form until their text ends in a prompt. A prompt
// with more behind it is two answers, and so none.
func decodeFrames(command string, got []byte) (string, bool, error) {
	var text []byte
	for rest := got; len(rest) >= 2; {
		n := int(binary.LittleEndian.Uint16(rest))
		if n == 0 || n > maxAnswer {
			return "", false, fmt.Errorf("%w: %s is answered by a frame of %d bytes", ErrNotAnAnswer, command, n)
		}
		if len(rest) < 2+n {
			return "", false, nil
		}
		text, rest = append(text, rest[2:2+n]...), rest[2+n:]
		if !bytes.HasSuffix(text, []byte(prompt)) {
			continue
		}
		if len(rest) > 0 {
			return "", false, notAnswer(command, string(got))
		}
		return string(text[:len(text)-len(prompt)]), true, nil
	}
	return "", false, nil
}

// decodeEcho takes the echo of the command, the answer and a prompt at the beginning of a line. The
// echo of an addressed command has a > of its own.
func decodeEcho(command string, got []byte) (string, bool, error) {
	n := min(len(got), len(command))
	if string(got[:n]) != command[:n] {
		return "", false, notAnswer(command, string(got))
	}
	rest := string(got[n:])
	if rest == "" {
		return "", false, nil
	}
	if !isLineEnd(rune(rest[0])) {
		return "", false, notAnswer(command, string(got))
	}
	body := rest[:len(rest)-1]
	if rest[len(rest)-1] != '>' || !isLineEnd(rune(body[len(body)-1])) {
		return "", false, nil
	}
	return body, true, nil
}
