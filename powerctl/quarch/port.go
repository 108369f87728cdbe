package quarch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrBusy: another program holds the serial port.
var ErrBusy = errors.New("the serial port is in use by another program")

// adapterLatency: an FTDI adapter keeps bytes back for up to 16 ms.
const adapterLatency = 30 * time.Millisecond

// serialPort is a line at 19200 8N1. It is open for one conversation only, so that the
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
		f, err := openTTY(p.path)
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
func (p serialPort) settle(ctx context.Context, f *os.File) (wire, error) {
	s := &stream{conn: tty{f}, encode: func(command string) []byte { return []byte(command + "\r\n") }, decode: decodeEcho}
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

// tty throws away on Close what has not left yet, which the kernel would else wait for.
type tty struct{ *os.File }

func (t tty) Close() error {
	_ = control(t.File, func(fd int) error {
		return errors.Join(unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCIOFLUSH), unix.IoctlSetInt(fd, unix.TIOCNXCL, 0))
	})
	return t.File.Close()
}

// openTTY does not wait for a carrier. TIOCEXCL keeps other users out, flock keeps root out.
func openTTY(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.EBUSY) {
		return nil, fmt.Errorf("%w: %w", ErrBusy, err)
	}
	if err != nil {
		return nil, err
	}
	if err := control(f, takeOver); err != nil {
		return nil, errors.Join(fmt.Errorf("set up %s: %w", path, err), f.Close())
	}
	return f, nil
}

func takeOver(fd int) error {
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return ErrBusy
		}
		return fmt.Errorf("flock: %w", err)
	}
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return fmt.Errorf("read the settings of the terminal: %w", err)
	}
	makeRaw(t)
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, t); err != nil {
		return fmt.Errorf("set the terminal raw: %w", err)
	}
	if err := unix.IoctlSetInt(fd, unix.TIOCEXCL, 0); err != nil {
		return fmt.Errorf("TIOCEXCL: %w", err)
	}
	return nil
}

// makeRaw is 19200 8N1 without flow control. HUPCL is cleared: a module must not see the
// control lines drop at the end of each conversation.
func makeRaw(t *unix.Termios) {
	t.Iflag, t.Oflag, t.Lflag = unix.IGNBRK, 0, 0
	t.Cflag &^= unix.CSIZE | unix.PARENB | unix.CSTOPB | unix.CRTSCTS | unix.HUPCL | unix.CBAUD | unix.CIBAUD
	t.Cflag |= unix.CS8 | unix.CREAD | unix.CLOCAL | unix.B19200
	t.Ispeed, t.Ospeed = unix.B19200, unix.B19200
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
}

// control keeps the file in the poller, which File.Fd would not.
func control(f *os.File, do func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := conn.Control(func(fd uintptr) { inner = do(int(fd)) }); err != nil {
		return err
	}
	return inner
}
