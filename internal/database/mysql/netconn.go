package mysql

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"plugpull/internal/clock"
	"plugpull/internal/ledger"
)

// errAborted is what reads and writes of an aborted wire return.
var errAborted = errors.New("plugpull gave the connection up")

// wire is the socket under a stream's connection, below TLS. It knows whether
// a byte of the committing packet has left and how the connection ended,
// which the driver above it does not tell.
//
// One goroutine uses it at a time; abort may be called by any.
type wire struct {
	net.Conn
	silence  time.Duration
	aborted  atomic.Bool
	graceful atomic.Bool

	armed   bool
	sent    clock.Instant // just before the first write after arm
	written int64         // bytes the kernel took since arm
	end     ledger.End    // zero while the socket works
}

// arm declares that the next write begins the committing packet.
func (w *wire) arm() { w.armed, w.sent, w.written = true, 0, 0 }

// disarm ends the packet's accounting: what is written next belongs to others.
func (w *wire) disarm() { w.armed = false }

func (w *wire) Write(b []byte) (int, error) {
	if err := w.before(w.Conn.SetWriteDeadline); err != nil {
		return 0, err
	}
	if w.armed && w.sent == 0 {
		w.sent = clock.Now()
	}
	n, err := w.Conn.Write(b)
	if w.armed {
		w.written += int64(n)
	}
	w.note(err)
	return n, err
}

func (w *wire) Read(b []byte) (int, error) {
	if err := w.before(w.Conn.SetReadDeadline); err != nil {
		return 0, err
	}
	n, err := w.Conn.Read(b)
	w.note(err)
	return n, err
}

// before sets the silence deadline. The order of the two steps matters: abort
// raises its flag first and moves the deadline after, so one of the two
// always ends the operation.
func (w *wire) before(set func(time.Time) error) error {
	if err := set(time.Now().Add(w.silence)); err != nil {
		w.note(err)
		return err
	}
	if w.aborted.Load() {
		return errAborted
	}
	return nil
}

// note remembers the first error as the way in which the connection ended.
func (w *wire) note(err error) {
	if err == nil || w.end != 0 || w.aborted.Load() {
		return
	}
	switch {
	case errors.Is(err, io.EOF):
		w.end = ledger.EndFIN
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		w.end = ledger.EndRST
	case errors.Is(err, os.ErrDeadlineExceeded),
		// The kernel's own words for a peer that does not answer: no
		// acknowledgement of what was sent, or nobody on the link who
		// claims its address.
		errors.Is(err, syscall.ETIMEDOUT), errors.Is(err, syscall.EHOSTUNREACH):
		w.end = ledger.EndSilence
	default:
		w.end = ledger.EndError
	}
}

// abort makes the operation in progress and all later ones fail at once.
func (w *wire) abort() {
	w.aborted.Store(true)
	_ = w.Conn.SetDeadline(time.Unix(1, 0))
}

// Close closes the socket. Unless the connection ends in order, what the
// kernel has not sent yet is thrown away (and a reset sent), so that a commit
// which waits in a send buffer cannot reach a server that comes back later.
func (w *wire) Close() error {
	if c, ok := w.Conn.(*net.TCPConn); ok && !w.graceful.Load() {
		_ = c.SetLinger(0)
	}
	return w.Conn.Close()
}

// dialSocket opens a TCP connection or Unix socket whose peer, when it falls
// silent, is noticed by the kernel: by probes while nothing is sent, and by the
// lack of acknowledgements within userTimeout while something is.
func dialSocket(ctx context.Context, network, addr string, userTimeout time.Duration) (net.Conn, error) {
	d := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4}}
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	tc, ok := c.(*net.TCPConn)
	if !ok {
		return c, nil
	}
	raw, err := tc.SyscallConn()
	if err == nil {
		var sockErr error
		err = raw.Control(func(fd uintptr) {
			sockErr = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds()))
		})
		err = errors.Join(err, sockErr)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set TCP_USER_TIMEOUT: %w", err), c.Close())
	}
	return c, nil
}

// buffered reads ahead: the driver asks for 4 KiB at a time, which makes a
// system call every few rows of a scan.
type buffered struct {
	net.Conn
	r *bufio.Reader
}

func (b buffered) Read(p []byte) (int, error) { return b.r.Read(p) }
