package quarch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"plugpull/internal/serialport"
)

// ErrBusy: another program holds the serial port.
var ErrBusy = serialport.ErrBusy

// baud is that of every module, with 8N1.
const baud = 19200

// adapterLatency: an FTDI adapter keeps bytes back for up to 16 ms.
const adapterLatency = 30 * time.Millisecond

// serialPort is open for one conversation only, so that the
// outlets of one array controller take turns.
type serialPort struct {
	path  string
	quiet time.Duration
}

// open waits for a port that another conversation holds. It sends nothing, not even a line end:
// that could carry out what a program before this one has left half typed.
func (p serialPort) open(ctx context.Context) (wire, error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		f, err := serialport.Open(p.path, baud)
		if err == nil {
			return p.settle(ctx, f)
		}
		if !errors.Is(err, ErrBusy) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", err, ctx.Err())
		case <-tick.C:
		}
	}
}

// settle waits until the line is quiet, for ten times that long at most: noise spoils the
// echo and is found there.
func (p serialPort) settle(ctx context.Context, f *serialport.Port) (wire, error) {
	s := &stream{conn: f, encode: func(command string) []byte { return []byte(command + "\r\n") }, decode: decodeEcho}
	buf := make([]byte, 256)
	for limit := time.Now().Add(10 * p.quiet); time.Now().Before(limit); {
		if err := s.arm(ctx, time.Now().Add(p.quiet)); err != nil {
			return nil, errors.Join(err, s.close())
		}
		_, err := f.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	return s, nil
}
