package serialport

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"plugpull/internal/serialport/ptytest"
)

// line returns both ends of a line; the device's end hangs up at the end of the test.
func line(t *testing.T) (device, held *os.File, path string) {
	t.Helper()
	device, held, path = ptytest.Open(t)
	t.Cleanup(func() {
		device.Close()
		held.Close()
	})
	return device, held, path
}

func open(t *testing.T, path string, baud int) *Port {
	t.Helper()
	p, err := Open(path, baud)
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func settings(t *testing.T, f *os.File) *unix.Termios {
	t.Helper()
	var tio *unix.Termios
	require.NoError(t, (&Port{f}).control(func(fd int) (err error) { tio, err = unix.IoctlGetTermios(fd, unix.TCGETS); return err }))
	return tio
}

// spoil sets everything that a terminal can do to bytes and control lines.
func spoil(t *testing.T, f *os.File) {
	t.Helper()
	tio := settings(t, f)
	tio.Iflag |= unix.IXON | unix.IXOFF | unix.ICRNL | unix.ISTRIP | unix.INLCR | unix.PARMRK
	tio.Oflag |= unix.OPOST | unix.ONLCR
	tio.Lflag |= unix.ICANON | unix.ECHO | unix.ISIG
	tio.Cflag |= unix.HUPCL | unix.CRTSCTS | unix.CSTOPB | unix.PARENB
	tio.Cflag &^= unix.CLOCAL
	require.NoError(t, (&Port{f}).control(func(fd int) error { return unix.IoctlSetTermios(fd, unix.TCSETS, tio) }))
}

func TestBytesPassAsTheyAre(t *testing.T) {
	var all []byte
	for i := range 256 {
		all = append(all, byte(i))
	}
	device, held, path := line(t)
	spoil(t, held)
	p := open(t, path, 9600)
	limit := time.Now().Add(time.Minute)
	require.NoError(t, errors.Join(p.SetDeadline(limit), device.SetDeadline(limit)))
	for name, way := range map[string]struct {
		write func([]byte) (int, error)
		read  func([]byte) (int, error)
	}{"to the device": {p.Write, device.Read}, "from the device": {device.Write, p.Read}} {
		_, err := way.write(all)
		require.NoError(t, err, name)
		var got []byte
		buf := make([]byte, 512)
		for len(got) < len(all) {
			n, err := way.read(buf)
			require.NoError(t, err, name)
			got = append(got, buf[:n]...)
		}
		require.Equal(t, all, got, name)
	}
}

func TestSettings(t *testing.T) {
	for baud, rate := range map[int]uint32{9600: unix.B9600, 19200: unix.B19200, 38400: unix.B38400, 57600: unix.B57600,
		115200: unix.B115200, 921600: unix.B921600} {
		_, held, path := line(t)
		spoil(t, held)
		require.True(t, Supported(baud))
		p := open(t, path, baud)
		tio := settings(t, held)
		require.Zero(t, tio.Lflag|tio.Oflag)
		require.EqualValues(t, unix.IGNBRK, tio.Iflag)
		require.Zero(t, tio.Cflag&(unix.HUPCL|unix.CRTSCTS|unix.CSTOPB|unix.PARENB), "HUPCL would drop the control lines")
		require.EqualValues(t, unix.CS8|unix.CLOCAL|unix.CREAD|rate, tio.Cflag&(unix.CSIZE|unix.CLOCAL|unix.CREAD|unix.CBAUD))
		require.NoError(t, p.Close())
		require.Zero(t, settings(t, held).Cflag&unix.HUPCL, "nor when it is closed")
	}
	_, _, path := line(t)
	require.False(t, Supported(1234))
	_, err := Open(path, 1234)
	require.ErrorContains(t, err, "1234")
}

func TestPortIsHeldAlone(t *testing.T) {
	_, held, path := line(t)
	exclusive := func() (n int) {
		require.NoError(t, (&Port{held}).control(func(fd int) (err error) { n, err = unix.IoctlGetInt(fd, unix.TIOCGEXCL); return err }))
		return n
	}
	p := open(t, path, 9600)
	_, err := Open(path, 9600)
	require.ErrorIs(t, err, ErrBusy)
	require.Equal(t, 1, exclusive(), "which keeps out whoever does not ask for the lock")
	_, err = p.Write([]byte("x"))
	require.NoError(t, err, "whoever came too late has changed nothing")
	require.NoError(t, p.Close())
	require.Zero(t, exclusive())
	require.NoError(t, open(t, path, 9600).Close())
}

func TestWhatIsNoPort(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	_, err := Open(file, 9600)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = Open(file, 9600)
	require.ErrorIs(t, err, unix.ENOTTY)
	require.ErrorContains(t, err, file)
}

func TestOpeningAndClosingSendNothing(t *testing.T) {
	device, _, path := line(t)
	require.NoError(t, open(t, path, 9600).Close())
	require.NoError(t, device.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
	n, err := device.Read(make([]byte, 16))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.Zero(t, n)
}

func TestDeadlineEndsReadsAndWritesUnderWay(t *testing.T) {
	_, _, path := line(t)
	p := open(t, path, 9600)
	for name, do := range map[string]func() (int, error){
		"read":  func() (int, error) { return p.Read(make([]byte, 1)) },
		"write": func() (int, error) { return p.Write(make([]byte, 1<<20)) }, // which nobody reads
	} {
		require.NoError(t, p.SetDeadline(time.Time{}))
		ended := make(chan error)
		go func() { _, err := do(); ended <- err }()
		require.NoError(t, p.SetDeadline(time.Unix(1, 0)))
		require.ErrorIs(t, <-ended, os.ErrDeadlineExceeded, name)
	}
	require.NoError(t, p.Close())
}

func TestClosingAfterTheDeviceIsGone(t *testing.T) {
	device, held, path := line(t)
	p := open(t, path, 9600)
	require.NoError(t, device.Close())
	require.NoError(t, held.Close())
	_, err := p.Write([]byte("x"))
	require.Error(t, err)
	require.NoError(t, p.Close())
}

// TestDevice: the number is that of the open device, when the path leads elsewhere by now.
func TestDevice(t *testing.T) {
	_, held, path := line(t)
	_, _, other := line(t)
	link := filepath.Join(t.TempDir(), "port")
	require.NoError(t, os.Symlink(path, link))
	p := open(t, link, 9600)
	require.NoError(t, os.Remove(link))
	require.NoError(t, os.Symlink(other, link))
	info, err := held.Stat()
	require.NoError(t, err)
	dev, err := p.Device()
	require.NoError(t, err)
	require.EqualValues(t, info.Sys().(*syscall.Stat_t).Rdev, dev)
	require.True(t, strings.HasPrefix(path, "/dev/pts/"))
}

// TestUnsentIsNotWhatCameIn. A pseudo terminal has no more to show: all of it leaves at once.
func TestUnsentIsNotWhatCameIn(t *testing.T) {
	device, _, path := line(t)
	p := open(t, path, 9600)
	for _, write := range []func([]byte) (int, error){p.Write, device.Write} {
		_, err := write([]byte("some"))
		require.NoError(t, err)
	}
	_, err := p.Read(make([]byte, 1))
	require.NoError(t, err)
	n, err := p.Unsent()
	require.NoError(t, err)
	require.Zero(t, n)
}
