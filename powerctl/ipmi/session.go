package ipmi

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// resendAfter is the silence after which a reading is asked for again; the
// next silence may be twice as long, since there are BMCs that need seconds for
// a step. A command that switches is never sent again.
const resendAfter = time.Second

// operator is the lowest privilege level that Chassis Control needs.
const operator = 0x03

// nameOnly in a role: the user is looked up by name alone.
const nameOnly = 0x10

// session is one authenticated RMCP+ session on a socket of its own. It starts
// no goroutine that outlives a call.
type session struct {
	conn     net.Conn
	keys     keys
	console  uint32 // our session id
	bmc      uint32 // the BMC's
	sequence uint32
	requests int
	patience time.Duration // with one message of the handshake
}

// open connects and authenticates. The context bounds it, and the socket's
// reads as long as stop has not been called.
func open(ctx context.Context, c Config) (_ *session, stop func(), err error) {
	conn, err := dial(ctx, c.Address)
	if err != nil {
		return nil, nil, err
	}
	interrupted := make(chan struct{})
	forget := context.AfterFunc(ctx, func() {
		_ = conn.SetReadDeadline(time.Unix(1, 0)) // wakes a read that is under way
		close(interrupted)
	})
	stop = func() {
		if !forget() {
			<-interrupted
		}
		_ = conn.Close()
	}
	s := &session{conn: conn}
	if err := s.authenticate(ctx, c); err != nil {
		stop()
		return nil, nil, err
	}
	return s, stop, nil
}

// dial keeps the deadline of ctx from the dialer, which would fail a moment before ctx is
// done: that reads like a BMC that failed.
func dial(ctx context.Context, address string) (net.Conn, error) {
	free, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	var d net.Dialer
	conn, err := d.DialContext(free, "udp", address)
	if err != nil {
		return nil, errors.Join(ctx.Err(), err)
	}
	return conn, nil
}

// authenticate starts anew, with new random numbers, when a packet is lost.
func (s *session) authenticate(ctx context.Context, c Config) error {
	for s.patience = resendAfter; ; s.patience *= 2 {
		if err := s.handshake(ctx, c); !errors.Is(err, errSilence) {
			return err
		}
	}
}

func (s *session) handshake(ctx context.Context, c Config) error {
	st, _ := suiteOf(c.CipherSuite)
	r := rakp{suite: st, role: operator | nameOnly, user: c.User, userKey: padKey(c.Password.Reveal())}
	r.bmcKey = r.userKey
	if key := c.BMCKey.Reveal(); key != "" {
		r.bmcKey = padKey(key)
	}
	var tag [1]byte
	var id [4]byte
	for _, b := range [][]byte{tag[:], id[:], r.consoleRand[:]} {
		_, _ = rand.Read(b) // never fails
	}
	r.consoleID = binary.LittleEndian.Uint32(id[:]) | 1 // zero is no session

	if err := s.openSession(ctx, &r, tag[0]); err != nil {
		return fmt.Errorf("open session: %w", err)
	}
	if err := s.exchangeNames(ctx, &r, tag[0]+1); err != nil {
		return fmt.Errorf("RAKP 1 and 2: %w", err)
	}
	if err := s.proveKey(ctx, r, tag[0]+2); err != nil {
		return fmt.Errorf("RAKP 3 and 4: %w", err)
	}
	s.keys, s.console, s.bmc, s.sequence, s.requests = r.keys(), r.consoleID, r.bmcID, 0, 0
	granted, err := s.ask(ctx, setPrivilege, []byte{operator})
	if err != nil {
		return err
	}
	if len(granted) != 1 || granted[0]&0x0f != operator {
		return fmt.Errorf("%s: got % x: %w", setPrivilege.name, granted, errProtocol)
	}
	return nil
}

// openSession agrees on session ids and takes no other suite than the configured one.
func (s *session) openSession(ctx context.Context, r *rakp, tag byte) error {
	algorithms := []byte{
		0, 0, 0, 8, r.auth, 0, 0, 0,
		1, 0, 0, 8, r.integrity, 0, 0, 0,
		2, 0, 0, 8, r.confidentiality, 0, 0, 0,
	}
	req := append(append([]byte{tag, operator, 0, 0}, le32(r.consoleID)...), algorithms...)
	b, err := s.setUp(ctx, payloadOpenRequest, payloadOpenResponse, req, r.consoleID, 36)
	if err != nil {
		return err
	}
	if b[16] != r.auth || b[24] != r.integrity || b[32] != r.confidentiality {
		return fmt.Errorf("the BMC answered with other algorithms (%d, %d, %d): %w", b[16], b[24], b[32], errProtocol)
	}
	r.bmcID = binary.LittleEndian.Uint32(b[8:])
	return nil
}

func (s *session) exchangeNames(ctx context.Context, r *rakp, tag byte) error {
	req := append(append([]byte{tag, 0, 0, 0}, le32(r.bmcID)...), r.consoleRand[:]...)
	req = append(append(req, r.role, 0, 0, byte(len(r.user))), r.user...)
	b, err := s.setUp(ctx, payloadRAKP1, payloadRAKP2, req, r.consoleID, 40)
	if err != nil {
		return err
	}
	copy(r.bmcRand[:], b[8:])
	copy(r.guid[:], b[24:])
	if !hmac.Equal(b[40:], r.code2()) {
		return ErrAuthentication
	}
	return nil
}

func (s *session) proveKey(ctx context.Context, r rakp, tag byte) error {
	req := append(append([]byte{tag, 0, 0, 0}, le32(r.bmcID)...), r.code3()...)
	b, err := s.setUp(ctx, payloadRAKP3, payloadRAKP4, req, r.consoleID, 8)
	if err != nil {
		return err
	}
	if !hmac.Equal(b[8:], r.code4()) {
		return ErrAuthentication
	}
	return nil
}

// setUp exchanges one pair of messages that precede the session. The answer
// has at least size bytes.
func (s *session) setUp(ctx context.Context, send, want byte, req []byte, console uint32, size int) ([]byte, error) {
	if _, err := s.conn.Write(header(send, 0, 0, req)); err != nil {
		return nil, err
	}
	var reply []byte
	err := s.receive(ctx, time.Now().Add(s.patience), func(p []byte) bool {
		h, ok := parseHeader(p)
		ok = ok && h.kind == want && h.session == 0 && len(h.payload) >= 8 && h.payload[0] == req[0] &&
			binary.LittleEndian.Uint32(h.payload[4:]) == console
		if ok {
			reply = append(reply, h.payload...)
		}
		return ok
	})
	switch {
	case err != nil:
		return nil, err
	case reply[1] != 0:
		return nil, &StatusError{Code: reply[1]}
	case len(reply) < size:
		return nil, fmt.Errorf("%d bytes: %w", len(reply), errProtocol)
	}
	return reply, nil
}

// ask sends a request that changes nothing, again after a silence, until it is
// answered or the context ends.
func (s *session) ask(ctx context.Context, c command, data []byte) ([]byte, error) {
	seq, err := s.nextRequest(c)
	if err != nil {
		return nil, err
	}
	for patience := resendAfter; ; patience *= 2 {
		if err := s.send(c, seq, data); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		reply, err := s.await(ctx, time.Now().Add(patience), c, seq)
		if !errors.Is(err, errSilence) {
			return reply, err
		}
	}
}

// tell sends a command that switches, once. sent is false only when no byte of
// it left.
func (s *session) tell(ctx context.Context, c command, data []byte, stamp func()) (sent bool, err error) {
	seq, err := s.nextRequest(c)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		stamp()
		err = s.send(c, seq, data)
	}
	if err != nil { // a datagram that the kernel did not take was not sent
		return false, fmt.Errorf("%s: %w", c.name, err)
	}
	_, err = s.await(ctx, time.Time{}, c, seq)
	return true, err
}

func (s *session) nextRequest(c command) (byte, error) {
	if s.requests == maxRequests {
		return 0, fmt.Errorf("%s: more than %d requests in one session", c.name, maxRequests)
	}
	s.requests++
	return byte(s.requests - 1), nil
}

func (s *session) send(c command, seq byte, data []byte) error {
	s.sequence++
	_, err := s.conn.Write(s.keys.seal(s.bmc, s.sequence, encodeRequest(c, seq, data)))
	return err
}

func (s *session) await(ctx context.Context, until time.Time, c command, seq byte) ([]byte, error) {
	var code byte
	var data []byte
	err := s.receive(ctx, until, func(p []byte) bool {
		m, ok := s.keys.unseal(p, s.console)
		if ok {
			code, data, ok = decodeResponse(m, c, seq)
		}
		return ok
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", c.name, err)
	case code != 0:
		return nil, &CompletionError{Command: c.name, Code: code}
	}
	return data, nil
}

// errSilence: nothing that counts was received in time.
var errSilence = errors.New("no answer")

// receive reads packets until one is accepted. The zero time sets no limit
// beside the context's. What is not accepted is dropped: anybody can send a datagram.
func (s *session) receive(ctx context.Context, until time.Time, accept func([]byte) bool) error {
	if err := s.conn.SetReadDeadline(until); err != nil {
		return err
	}
	buf := make([]byte, 2048)
	for {
		// After the deadline has been set: the one that the context's end sets stays.
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("no answer: %w", err)
		}
		n, err := s.conn.Read(buf)
		switch {
		case err == nil && accept(buf[:n]):
			return nil
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil:
			return errSilence
		case errors.Is(err, os.ErrDeadlineExceeded):
		default:
			return err
		}
	}
}

// close tells the BMC that its session is free again. It does not wait: a
// session that is not closed ends by itself after a minute.
func (s *session) close() {
	if seq, err := s.nextRequest(closeSession); err == nil {
		_ = s.send(closeSession, seq, le32(s.bmc))
	}
}
