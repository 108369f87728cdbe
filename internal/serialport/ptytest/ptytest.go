// Package ptytest gives tests the two ends of a serial line: a pseudo terminal.
//
// It guarantees that what the device's end says before a program has opened the other one is
// neither echoed to it nor changed, and that the terminal outlives a program that closes it.
package ptytest

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// TB is what it needs of testing.TB.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Open returns the device's end, and the path of the end that a program opens. held is that
// end too, open without a lock. The caller closes both; closing the device's end hangs the line up.
func Open(t TB) (device, held *os.File, path string) {
	t.Helper()
	device, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatalf("open a pseudo terminal: %v", err)
	}
	n := 0
	err = with(device, func(fd int) (err error) {
		if n, err = unix.IoctlGetInt(fd, unix.TIOCGPTN); err != nil {
			return err
		}
		return unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	})
	if err != nil {
		device.Close()
		t.Fatalf("unlock the pseudo terminal: %v", err)
	}
	path = fmt.Sprintf("/dev/pts/%d", n)
	held, err = os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err == nil {
		err = with(held, raw)
	}
	if err != nil {
		device.Close()
		held.Close()
		t.Fatalf("open the other end of the pseudo terminal: %v", err)
	}
	return device, held, path
}

// raw changes nothing but what would alter bytes: the rest is for the program to set.
func raw(fd int) error {
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return err
	}
	t.Iflag, t.Oflag, t.Lflag = 0, 0, 0
	return unix.IoctlSetTermios(fd, unix.TCSETS, t)
}

// with keeps the file in the poller, which File.Fd would not.
func with(f *os.File, do func(fd int) error) error {
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
