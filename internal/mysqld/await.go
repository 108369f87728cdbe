package mysqld

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"
)

// connectEvery is the pause between two tries to connect. A try costs some 20 µs
// and a server needs 100 ms, so it is short.
const connectEvery = time.Millisecond

// logInError is how much of the log a StartError has, in bytes.
const logInError = 8 << 10

// Await blocks until the server greets on its own socket, where no other server can
// answer and which is served together with TCP; until its process is gone; or until
// ctx ends. The last two are a *StartError; a server that still runs goes on
// running. After a first start that failed it may take some seconds to find out whether a
// setting was the reason: see Install.TrySettings.
func (p *Process) Await(ctx context.Context) error {
	tick := time.NewTicker(connectEvery)
	defer tick.Stop()
	for {
		if p.greets(ctx) {
			p.srv.settled.Store(true)
			return nil
		}
		select {
		case <-p.done:
			return p.failed(ctx)
		case <-ctx.Done():
			return &StartError{Log: p.Log(logInError), Err: fmt.Errorf("wait for the server's greeting: %w", ctx.Err())}
		case <-tick.C:
		}
	}
}

// greets connects and reports whether the first packet is a handshake of protocol
// 10 rather than an error. A server listens before it serves, so this is where Await
// spends most of its time, without polling.
func (p *Process) greets(ctx context.Context) bool {
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", p.srv.Socket())
	if err != nil {
		return false
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var head [5]byte // three bytes of length, one of sequence, the protocol's version
	_, err = io.ReadFull(c, head[:])
	return err == nil && head[4] == 10
}

// failed says why the process ended before it greeted.
func (p *Process) failed(ctx context.Context) error {
	e := &StartError{Exited: true, End: p.end, Log: p.Log(logInError)}
	if e.End.Cause != ByItself {
		return e
	}
	if e.PortTaken = p.srv.held.taken(); e.PortTaken {
		return e
	}
	e.Refused, e.Err = p.srv.refused(ctx)
	return e
}
