package manual

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
	"plugpull/powerctl"
)

// lines reads lines from a file in a way that a context can interrupt.
//
// A goroutine that sits in Read could be neither interrupted nor waited for,
// and would swallow the next answer; read deadlines do not work on a terminal.
// So the file is read only when poll(2) says that it is readable, and ctx
// wakes the same poll through an eventfd.
type lines struct {
	file *os.File
	rest []byte // read and not yet returned: a pipe can hold several lines
}

// maxLine bounds a line, in bytes; what is longer is cut.
const maxLine = powerctl.MaxRaw

// next returns a line without its end. It blocks until there is one, the input
// ends (io.EOF; an unfinished line is no line) or ctx is done.
func (l *lines) next(ctx context.Context) (string, error) {
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return "", fmt.Errorf("eventfd: %w", err)
	}
	defer unix.Close(wake)
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		_, _ = unix.Write(wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	})
	defer func() {
		if !stop() {
			<-woken // it must not write to a descriptor that is closed
		}
	}()
	for {
		if line, ok := l.take(); ok {
			return line, nil
		}
		if err := l.fill(ctx, wake); err != nil {
			return "", err
		}
	}
}

func (l *lines) take() (string, bool) {
	line, rest, found := bytes.Cut(l.rest, []byte("\n"))
	if !found {
		// More than a line can hold and no end yet: keep what shows that it is no answer.
		l.rest = l.rest[:min(len(l.rest), maxLine)]
		return "", false
	}
	l.rest = rest
	return string(bytes.TrimSuffix(line[:min(len(line), maxLine)], []byte("\r"))), true
}

// fill waits for input and reads what there is.
func (l *lines) fill(ctx context.Context, wake int) error {
	raw, err := l.file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(wake), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err != nil {
			failed = err
			return
		}
		if failed = ctx.Err(); failed != nil {
			return
		}
		if fds[0].Revents == 0 {
			return
		}
		var b [maxLine]byte
		n, err := unix.Read(int(fd), b[:])
		switch {
		case err != nil:
			failed = fmt.Errorf("read: %w", err)
		case n == 0:
			failed = io.EOF
		default:
			l.rest = append(l.rest, b[:n]...)
		}
	})
	if errors.Is(failed, unix.EINTR) || errors.Is(failed, unix.EAGAIN) {
		return nil
	}
	return errors.Join(err, failed)
}

// discard drops what was typed and not read. A pipe keeps its lines: who writes
// the answers of a script ahead means them.
func (l *lines) discard() error {
	raw, err := l.file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.IoctlSetInt(int(fd), unix.TCFLSH, unix.TCIFLUSH)
	})
	if errors.Is(failed, unix.ENOTTY) || errors.Is(failed, unix.EINVAL) {
		failed = nil
	} else if failed == nil {
		l.rest = nil
	}
	return errors.Join(err, failed)
}
