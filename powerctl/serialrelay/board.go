package serialrelay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"plugpull/powerctl"
)

// Errors of a Board, for errors.Is.
var (
	// ErrNotAnAnswer: the board said something that is no answer to the request.
	ErrNotAnAnswer = errors.New("the board's answer is not one")
	// ErrClosed: Close has been called.
	ErrClosed = errors.New("the board is closed")
)

// timing is how long a board waits.
type timing struct {
	// quiet is how long a line must be silent before an answer is taken for whole.
	quiet time.Duration
	// stall is how long a started answer may pause.
	stall time.Duration
	// babble is how long silence is waited for before a request.
	babble time.Duration
	// lateness is how late an answer may come and still be reckoned with.
	lateness time.Duration
}

// realTiming: an FTDI adapter keeps bytes back for up to 16 ms.
var realTiming = timing{quiet: 30 * time.Millisecond, stall: 250 * time.Millisecond, babble: 300 * time.Millisecond, lateness: 30 * time.Second}

// longest bounds an answer, in bytes. 16 lines of LCUS are 208.
const longest = 256

// Board is an open relay board. It holds the serial port, so that nobody else uses
// it, until Close. Its outlets may be used concurrently: they take turns.
type Board struct {
	c     Config
	wire  wire
	sysfs string
	timing

	turn   chan struct{} // holds one token; whoever took it may use the rest
	port   *port         // nil: not open
	id     string
	owed   []debt
	closed bool
}

// debt is a request whose answer has not come, and may still come.
type debt struct {
	at      time.Time
	request string
}

// Open opens the board, checks who it is and, for Probe, finds out how it answers.
// It switches nothing. It blocks until ctx is done or the timeout has passed.
func Open(ctx context.Context, c Config) (*Board, error) {
	return open(ctx, c, "/sys", realTiming)
}

// Plan checks the configuration and returns a board whose outlets can say what they would
// send, and nothing else: any other use is ErrClosed. It opens nothing.
func Plan(c Config) (*Board, error) {
	b, err := newBoard(c, "/sys", realTiming)
	if err == nil {
		b.closed = true
	}
	return b, err
}

func newBoard(c Config, sysfs string, t timing) (*Board, error) {
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("serial relay board: %w", err)
	}
	if c.Baud == 0 {
		c.Baud = 9600
	}
	b := &Board{c: c, wire: newWire(c), sysfs: sysfs, timing: t, turn: make(chan struct{}, 1)}
	b.turn <- struct{}{}
	return b, nil
}

func open(ctx context.Context, c Config, sysfs string, t timing) (*Board, error) {
	b, err := newBoard(c, sysfs, t)
	if err != nil {
		return nil, err
	}
	err = b.with(ctx, func(ctx context.Context) error {
		if c.Readback == Probe {
			return b.probe(ctx)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("serial relay board at %s: %w", c.Path, errors.Join(err, b.Close()))
	}
	return b, nil
}

// Close gives the port back. It waits for a call that is under way.
func (b *Board) Close() error {
	<-b.turn
	defer func() { b.turn <- struct{}{} }()
	b.closed = true
	return b.drop()
}

// ID says which board it is: a Numato's own id, and the USB device behind the port.
func (b *Board) ID() string { return b.id }

// Readback says how the board answers; after Probe, what was found.
func (b *Board) Readback() Readback { return b.c.Readback }

// with runs do while nobody else uses the board, which is open, the pinned one and
// drained. An error that matches ErrNotSent comes from before do, unless do returns one.
func (b *Board) with(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, b.c.Timeout)
	defer cancel()
	if ctx.Err() == nil {
		select {
		case <-b.turn:
			defer func() { b.turn <- struct{}{} }()
		case <-ctx.Done():
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", powerctl.ErrNotSent, err)
	}
	if err := b.ready(ctx); err != nil {
		return fmt.Errorf("%w: %w", powerctl.ErrNotSent, err)
	}
	return b.watched(ctx, do)
}

// watched runs do and ends its reads and writes when ctx is done.
func (b *Board) watched(ctx context.Context, do func(context.Context) error) error {
	p, ended := b.port, make(chan struct{})
	stop := context.AfterFunc(ctx, func() { defer close(ended); p.interrupt() })
	err := do(ctx)
	if !stop() {
		<-ended
	}
	if errors.Is(err, ErrUnplugged) {
		return errors.Join(err, b.drop())
	}
	return err
}

func (b *Board) drop() error {
	if b.port == nil {
		return nil
	}
	p := b.port
	b.port = nil
	return p.Close()
}

// ready leaves the port open and drained. A port that turns out to be gone is
// opened once more: a USB adapter comes back under its old name.
func (b *Board) ready(ctx context.Context) error {
	if b.closed {
		return ErrClosed
	}
	if b.port != nil {
		err := b.watched(ctx, b.drain)
		if !errors.Is(err, ErrUnplugged) {
			return err
		}
	}
	if err := b.reopen(); err != nil {
		return fmt.Errorf("open the port: %w", err)
	}
	err := b.watched(ctx, func(ctx context.Context) error {
		if err := b.settle(ctx); err != nil {
			return err
		}
		id, err := b.whoIsIt(ctx)
		if err != nil {
			return fmt.Errorf("ask the board who it is: %w", err)
		}
		return b.pin(id)
	})
	if err != nil {
		return errors.Join(err, b.drop())
	}
	return nil
}

func (b *Board) reopen() error {
	p, err := openPort(b.c.Path, b.c.Baud)
	if err != nil {
		return err
	}
	b.port = p
	// Whoever had the port before may have gone without waiting for an answer.
	b.owed = []debt{{at: time.Now()}}
	return nil
}

// settle brings a port that was just opened to where a request can be sent.
func (b *Board) settle(ctx context.Context) error {
	if err := b.drain(ctx); err != nil || b.c.Protocol != Numato {
		return err
	}
	// Ends what the program before this one may have left half typed.
	if err := b.port.send(ctx, []byte("\r")); err != nil {
		return err
	}
	_, _, err := b.listen(ctx, func(got []byte) reading {
		if bytes.HasSuffix(got, []byte(">")) {
			return accepted
		}
		return incomplete
	}, time.Now().Add(b.c.Timeout/4))
	return err
}

// pin compares with the pinned board; the first one that is seen is pinned
// where the configuration names none.
func (b *Board) pin(id string) error {
	want := b.c.Pin
	if want == "" {
		want = b.id
	}
	if want != "" && want != id {
		return &powerctl.IdentityError{What: "board", Want: want, Got: id}
	}
	if b.id == "" {
		b.id = id
	}
	return nil
}

// drain waits for a quiet line, so that what was said before is not taken for an
// answer to come. It gives up after babble: noise stops no cut, and no answer is
// found in it.
func (b *Board) drain(ctx context.Context) error {
	limit, until := time.Now().Add(b.babble), time.Now().Add(b.quiet)
	buf := make([]byte, longest)
	for {
		_, err := b.port.receive(ctx, until, buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return err
		}
		if until = time.Now().Add(b.quiet); until.After(limit) {
			return nil
		}
	}
}

// exchange sends one request and returns what came back. The first byte may take as
// long as patience; zero is as long as ctx. An answer that is whole leaves no debt.
func (b *Board) exchange(ctx context.Context, request []byte, j judge, patience time.Duration) ([]byte, reading, error) {
	b.owe(request)
	if err := b.port.send(ctx, request); err != nil {
		return nil, incomplete, err
	}
	var until time.Time
	if patience > 0 {
		until = time.Now().Add(patience)
	}
	got, r, err := b.listen(ctx, j, until)
	if err == nil && r != incomplete && r != nonsense {
		b.owed = b.owed[:len(b.owed)-1]
	}
	return got, r, err
}

// listen reads one answer. incomplete: nothing came, or too little. A whole
// answer counts only once the line is quiet behind it.
func (b *Board) listen(ctx context.Context, j judge, until time.Time) ([]byte, reading, error) {
	var got []byte
	r := incomplete
	buf := make([]byte, longest)
	for len(got) < longest {
		n, err := b.port.receive(ctx, until, buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return got, r, nil
		}
		if err != nil {
			return got, r, err
		}
		got = append(got, buf[:n]...)
		r = j(got)
		until = time.Now().Add(b.quiet)
		if r == incomplete {
			until = time.Now().Add(b.stall)
		}
	}
	return got, nonsense, nil
}

// owe notes a request, and forgets those whose answers are too late to come.
func (b *Board) owe(request []byte) {
	kept := b.owed[:0]
	for _, d := range b.owed {
		if time.Since(d.at) < b.lateness {
			kept = append(kept, d)
		}
	}
	b.owed = append(kept, debt{time.Now(), string(request)})
}

// owes reports whether an answer to the same request may still come.
func (b *Board) owes(request []byte) bool {
	for _, d := range b.owed {
		if d.request == string(request) && time.Since(d.at) < b.lateness {
			return true
		}
	}
	return false
}

// relay asks for a relay until one answer is certain to be this call's. Answers come in
// the order of the requests: while n are owed, n answers may be to earlier ones.
func (b *Board) relay(ctx context.Context, request []byte, j judge) (said []byte, _ reading, _ error) {
	need := len(b.owed) + b.wire.agree()
	last := incomplete
	for i := range need {
		got, r, err := b.exchange(ctx, request, j, 0)
		said = append(said, got...)
		if err != nil || r != energised && r != released {
			return said, nonsense, err
		}
		if i > need-b.wire.agree() && r != last {
			return said, nonsense, nil
		}
		last = r
	}
	return said, last, nil
}
