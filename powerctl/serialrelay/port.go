package serialrelay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"plugpull/internal/serialport"
	"plugpull/powerctl"
)

// ErrBusy: another program holds the serial port.
var ErrBusy = serialport.ErrBusy

// ErrUnplugged: the port has gone away while it was open.
var ErrUnplugged = errors.New("the serial port is gone")

// port is used by one goroutine at a time, interrupt excepted.
type port struct{ *serialport.Port }

func openPort(path string, baud int) (*port, error) {
	p, err := serialport.Open(path, baud)
	if err != nil {
		return nil, err
	}
	return &port{p}, nil
}

// interrupt ends reads and writes that are under way, and all later ones until
// a new deadline is set.
func (p *port) interrupt() { _ = p.SetDeadline(time.Unix(1, 0)) }

// send writes the frame and waits until it has left the kernel's buffer.
func (p *port) send(ctx context.Context, frame []byte) error {
	if err := p.arm(ctx, time.Time{}); err != nil {
		return fmt.Errorf("%w: %w", powerctl.ErrNotSent, err)
	}
	if _, err := p.Write(frame); err != nil {
		return broken(ctx, err)
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		left, err := p.Unsent()
		if err != nil || left == 0 {
			return broken(ctx, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// receive reads what comes until the instant, at least one byte. No byte in
// time is os.ErrDeadlineExceeded; ctx's error goes before it.
func (p *port) receive(ctx context.Context, until time.Time, b []byte) (int, error) {
	if err := p.arm(ctx, until); err != nil {
		return 0, err
	}
	n, err := p.Read(b)
	return n, broken(ctx, err)
}

// arm sets the deadline. Whoever ends ctx calls interrupt afterwards, so that a deadline
// set here either comes before that or is noticed by the check.
func (p *port) arm(ctx context.Context, until time.Time) error {
	if err := p.SetDeadline(until); err != nil {
		return err
	}
	return ctx.Err()
}

// broken tells a passed deadline from a port that is gone. An unplugged USB
// adapter is EIO, ENXIO, ENODEV or the end of the file.
func broken(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	case errors.Is(err, io.EOF), errors.Is(err, unix.EIO), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		return fmt.Errorf("%w: %w", ErrUnplugged, err)
	}
	return err
}
