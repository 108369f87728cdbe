// Package serialport opens serial ports for devices that switch something.
//
// It guarantees that no program without root's rights opens a port that is open here, and that
// of those with them no second one that uses this package does; that bytes pass as they are,
// in both directions; and that opening and closing are nothing that a device could take for a
// command: no byte is sent, no carrier is waited for, and the control lines do not drop.
package serialport

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrBusy: another program holds the serial port.
var ErrBusy = errors.New("the serial port is in use by another program")

// Supported reports whether a port can be opened with so many bits a second.
func Supported(baud int) bool { _, err := speed(baud); return err == nil }

func speed(baud int) (uint32, error) {
	switch baud {
	case 9600:
		return unix.B9600, nil
	case 19200:
		return unix.B19200, nil
	case 38400:
		return unix.B38400, nil
	case 57600:
		return unix.B57600, nil
	case 115200:
		return unix.B115200, nil
	case 921600:
		return unix.B921600, nil
	}
	return 0, fmt.Errorf("the baud rate %d is unknown", baud)
}

// Port is an open serial port. The runtime's poller waits for it, so that reads and writes end
// at a deadline, which may be set from another goroutine to end them (os.File).
type Port struct{ f *os.File }

// Open returns a port with 8 data bits, no parity, one stop bit and no flow control. ErrBusy:
// somebody else has it. It waits for nothing.
func Open(path string, baud int) (*Port, error) {
	rate, err := speed(baud)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.EBUSY) {
		return nil, fmt.Errorf("%w: %w", ErrBusy, err)
	}
	if err != nil {
		return nil, err
	}
	p := &Port{f}
	if err := p.control(func(fd int) error { return takeOver(fd, rate) }); err != nil {
		return nil, errors.Join(fmt.Errorf("set up %s: %w", path, err), f.Close())
	}
	return p, nil
}

// takeOver: TIOCEXCL keeps other users out, flock keeps root out.
func takeOver(fd int, rate uint32) error {
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
	makeRaw(t, rate)
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, t); err != nil {
		return fmt.Errorf("set the terminal raw: %w", err)
	}
	if err := unix.IoctlSetInt(fd, unix.TIOCEXCL, 0); err != nil {
		return fmt.Errorf("TIOCEXCL: %w", err)
	}
	return nil
}

// makeRaw clears HUPCL: a device must not see the control lines drop when the port is closed.
func makeRaw(t *unix.Termios, rate uint32) {
	t.Iflag, t.Oflag, t.Lflag = unix.IGNBRK, 0, 0
	t.Cflag &^= unix.CSIZE | unix.PARENB | unix.CSTOPB | unix.CRTSCTS | unix.HUPCL | unix.CBAUD | unix.CIBAUD
	t.Cflag |= unix.CS8 | unix.CREAD | unix.CLOCAL | rate
	t.Ispeed, t.Ospeed = rate, rate
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
}

// Read blocks until there is a byte. At the deadline it is os.ErrDeadlineExceeded.
func (p *Port) Read(b []byte) (int, error) { return p.f.Read(b) }

// Write blocks until the kernel has all of it; Unsent says what has not left yet. At the
// deadline it is os.ErrDeadlineExceeded, and some may have left.
func (p *Port) Write(b []byte) (int, error) { return p.f.Write(b) }

// SetDeadline is for reads and writes, those under way too. The zero time is no deadline.
func (p *Port) SetDeadline(t time.Time) error { return p.f.SetDeadline(t) }

// Unsent returns how many bytes are still in the kernel's buffer.
func (p *Port) Unsent() (n int, err error) {
	err = p.control(func(fd int) error { n, err = unix.IoctlGetInt(fd, unix.TIOCOUTQ); return err })
	return n, err
}

// Device returns the number of the device that is open, whatever the path has come to mean.
func (p *Port) Device() (uint64, error) {
	var st unix.Stat_t
	err := p.control(func(fd int) error { return unix.Fstat(fd, &st) })
	return uint64(st.Rdev), err // 32 bits on some architectures
}

// Close throws away what has not left yet, which the kernel would else wait for. That the
// device is gone already is no error.
func (p *Port) Close() error {
	err := p.control(func(fd int) error {
		return errors.Join(unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCIOFLUSH), unix.IoctlSetInt(fd, unix.TIOCNXCL, 0))
	})
	if errors.Is(err, unix.EIO) {
		err = nil
	}
	return errors.Join(err, p.f.Close())
}

// control keeps the file in the poller, which File.Fd would not.
func (p *Port) control(do func(fd int) error) error {
	conn, err := p.f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := conn.Control(func(fd uintptr) { inner = do(int(fd)) }); err != nil {
		return err
	}
	return inner
}
