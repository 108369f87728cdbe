package serialrelay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"plugpull/powerctl"
)

// ErrBusy: another program holds the serial port.
var ErrBusy = errors.New("the serial port is in use by another program")

// ErrUnplugged: the port has gone away while it was open.
var ErrUnplugged = errors.New("the serial port is gone")

var bauds = map[int]uint32{
	9600: unix.B9600, 19200: unix.B19200, 38400: unix.B38400, 57600: unix.B57600, 115200: unix.B115200, 921600: unix.B921600,
}

// port is an open, raw and locked serial port. The runtime's poller waits for
// it, so that reads and writes end at a deadline. It is used by one goroutine at a
// time, interrupt excepted.
type port struct{ f *os.File }

// openPort does not wait for a carrier. TIOCEXCL keeps other users out, flock
// keeps root out.
func openPort(path string, baud int) (*port, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.EBUSY) {
		return nil, fmt.Errorf("%w: %w", ErrBusy, err)
	}
	if err != nil {
		return nil, err
	}
	p := &port{f}
	if err := p.control(func(fd int) error { return takeOver(fd, baud) }); err != nil {
		f.Close()
		return nil, fmt.Errorf("set up %s: %w", path, err)
	}
	return p, nil
}

func takeOver(fd, baud int) error {
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
	makeRaw(t, bauds[baud])
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, t); err != nil {
		return fmt.Errorf("set the terminal raw: %w", err)
	}
	if err := unix.IoctlSetInt(fd, unix.TIOCEXCL, 0); err != nil {
		return fmt.Errorf("TIOCEXCL: %w", err)
	}
	return nil
}

// makeRaw is 8N1 without flow control. HUPCL is cleared: a board must not see
// the control lines drop when plugpull ends.
func makeRaw(t *unix.Termios, speed uint32) {
	t.Iflag, t.Oflag, t.Lflag = unix.IGNBRK, 0, 0
	t.Cflag &^= unix.CSIZE | unix.PARENB | unix.CSTOPB | unix.CRTSCTS | unix.HUPCL | unix.CBAUD | unix.CIBAUD
	t.Cflag |= unix.CS8 | unix.CREAD | unix.CLOCAL | speed
	t.Ispeed, t.Ospeed = speed, speed
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
}

// control keeps the file in the poller, which File.Fd would not.
func (p *port) control(do func(fd int) error) error {
	raw, err := p.f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = do(int(fd)) }); err != nil {
		return err
	}
	return inner
}

// close throws away what has not left yet, which the kernel would else wait for.
func (p *port) close() error {
	err := p.control(func(fd int) error {
		return errors.Join(unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCIOFLUSH), unix.IoctlSetInt(fd, unix.TIOCNXCL, 0))
	})
	return errors.Join(ignoreGone(err), p.f.Close())
}

func ignoreGone(err error) error {
	if errors.Is(err, unix.EIO) {
		return nil
	}
	return err
}

// device returns the number of the device that is open, whatever the path has come to mean.
func (p *port) device() (uint64, error) {
	var st unix.Stat_t
	err := p.control(func(fd int) error { return unix.Fstat(fd, &st) })
	return uint64(st.Rdev), err // 32 bits on some architectures
}

// interrupt ends reads and writes that are under way, and all later ones until
// a new deadline is set.
func (p *port) interrupt() { _ = p.f.SetDeadline(time.Unix(1, 0)) }

// send writes the frame and waits until it has left the kernel's buffer.
func (p *port) send(ctx context.Context, frame []byte) error {
	if err := p.arm(ctx, time.Time{}); err != nil {
		return fmt.Errorf("%w: %w", powerctl.ErrNotSent, err)
	}
	if _, err := p.f.Write(frame); err != nil {
		return broken(ctx, err)
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		var left int
		err := p.control(func(fd int) (err error) { left, err = unix.IoctlGetInt(fd, unix.TIOCOUTQ); return err })
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
	n, err := p.f.Read(b)
	return n, broken(ctx, err)
}

// arm sets the deadline. Whoever ends ctx calls interrupt afterwards, so that a deadline
// set here either comes before that or is noticed by the check.
func (p *port) arm(ctx context.Context, until time.Time) error {
	if err := p.f.SetDeadline(until); err != nil {
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
