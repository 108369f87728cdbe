package snmp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/gosnmp/gosnmp"

	"plugpull/internal/clock"
)

// session is one socket to the device, for one operation. A new source port and
// a new random request id each time keep answers to earlier requests out.
type session struct {
	g      *gosnmp.GoSNMP
	c      *Config
	ctx    context.Context
	wire   *wire
	engine string // of the SNMPv3 device, from its first answer
	finish func()
}

// wire is the socket as the SNMP library sees it. The library re-sends a SET
// that an SNMPv3 device answers with a time or engine report; this does not let it.
type wire struct {
	net.Conn
	set       bool
	written   int
	commanded clock.Instant
}

func (w *wire) Write(b []byte) (int, error) {
	if w.set {
		if w.written > 0 {
			return 0, errSecondWrite
		}
		w.written++
		w.commanded = clock.Now()
	}
	return w.Conn.Write(b)
}

// open makes the socket. Nothing is sent.
func open(ctx context.Context, c *Config) (*session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	host, port, err := splitAddress(c.Address)
	if err != nil {
		return nil, err
	}
	// With the deadline of ctx the dialer would fail a moment before ctx is done,
	// which reads like a device that failed.
	dial, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	g := &gosnmp.GoSNMP{
		Target: host, Port: port, Transport: "udp", Timeout: c.Timeout, Context: dial,
		Community: c.Community.Reveal(), Version: c.Version.wire(),
	}
	if c.Version == V3 {
		c.User.apply(g)
	}
	if err := g.Connect(); err != nil {
		return nil, errors.Join(ctx.Err(), &libraryError{err})
	}
	s := &session{g: g, c: c, ctx: ctx, wire: &wire{Conn: g.Conn}}
	g.Conn = s.wire
	// The library looks at ctx only between packets: closing the socket ends
	// a read that is under way. It gets no deadline for the dialer's reason.
	g.Context = context.WithoutCancel(ctx)
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { defer close(closed); s.wire.Close() })
	s.finish = func() {
		if !stop() {
			<-closed
		}
		s.wire.Close()
	}
	return s, nil
}

func splitAddress(address string) (string, uint16, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address, 161, nil // no port; a bare IPv6 address has none either
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("the port of the address %q is not a number", address)
	}
	return host, uint16(n), nil
}

// get reads variables in one packet, so that all are of one moment. A variable
// that an SNMPv1 device does not have is left out and asked for no more.
func (s *session) get(oids ...string) ([]value, error) {
	values := make([]value, len(oids))
	left := make([]int, len(oids)) // positions that are still asked for
	for i := range oids {
		left[i] = i
	}
	for len(left) > 0 {
		asked := make([]string, len(left))
		for i, at := range left {
			asked[i] = oids[at]
		}
		s.g.Retries = s.c.Retries
		reply, err := s.g.Get(asked)
		if err = s.check(reply, err); err != nil {
			var status *StatusError
			if !errors.As(err, &status) || status.Status != uint8(gosnmp.NoSuchName) || !missing(reply, asked) {
				return nil, err
			}
			at := int(reply.ErrorIndex) - 1
			values[left[at]].absent = gosnmp.NoSuchName.String()
			left = append(left[:at:at], left[at+1:]...)
			continue
		}
		if !names(reply, asked) {
			return nil, fmt.Errorf("%w: it holds other variables", ErrBadReply)
		}
		for i, at := range left {
			values[at] = valueOf(reply.Variables[i])
		}
		return values, nil
	}
	return values, nil
}

func missing(reply *gosnmp.SnmpPacket, asked []string) bool {
	return reply.ErrorIndex >= 1 && int(reply.ErrorIndex) <= len(asked)
}

func names(reply *gosnmp.SnmpPacket, asked []string) bool {
	if len(reply.Variables) != len(asked) {
		return false
	}
	for i, oid := range asked {
		if dotted(reply.Variables[i].Name) != oid {
			return false
		}
	}
	return true
}

// maxRows bounds a walk.
const maxRows = 4096

// walk hands every variable below column to see, in order.
func (s *session) walk(column string, see func(oid string, v value)) error {
	at := column
	for range maxRows {
		s.g.Retries = s.c.Retries
		reply, err := s.g.GetNext([]string{at})
		if err = s.check(reply, err); err != nil {
			var status *StatusError
			if errors.As(err, &status) && status.Status == uint8(gosnmp.NoSuchName) {
				return nil // how SNMPv1 ends
			}
			return err
		}
		if len(reply.Variables) != 1 {
			return fmt.Errorf("%w: it holds %d variables, want 1", ErrBadReply, len(reply.Variables))
		}
		next := dotted(reply.Variables[0].Name)
		if reply.Variables[0].Type == gosnmp.EndOfMibView || !under(next, column) {
			return nil
		}
		if !lessOID(at, next) {
			return fmt.Errorf("%w: the device's table runs backwards at %s", ErrBadReply, next)
		}
		see(next, valueOf(reply.Variables[0]))
		at = next
	}
	return fmt.Errorf("%w: more than %d rows below %s", ErrBadReply, maxRows, column)
}

// set writes one INTEGER, in one packet that leaves at most once. The instant
// is zero when it certainly did not leave. An echo of another value is an error:
// the reading back decides.
func (s *session) set(oid string, n int) (clock.Instant, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	if s.c.Version == V3 && s.engine == "" { // the library would have to ask first
		return 0, errors.New("the device has not said which SNMPv3 engine it is")
	}
	s.g.Retries = 0
	s.wire.set, s.wire.written, s.wire.commanded = true, 0, 0
	reply, err := s.g.Set([]gosnmp.SnmpPDU{{Name: oid, Type: gosnmp.Integer, Value: n}})
	s.wire.set = false
	at := s.wire.commanded
	if err = s.check(reply, err); err != nil {
		return at, err
	}
	if !names(reply, []string{oid}) {
		return at, fmt.Errorf("%w: it acknowledges other variables", ErrBadReply)
	}
	if got, ok := valueOf(reply.Variables[0]).integer(); !ok || got != n {
		return at, fmt.Errorf("%w: it acknowledges %v, want %d", ErrBadReply, valueOf(reply.Variables[0]), n)
	}
	return at, nil
}

// check holds a reply against what the library does not look at: an error status
// (its Go error is nil), the kind of message (an echo of our own SET would pass
// for its acknowledgement), the version, the community, the SNMPv3 engine and
// level, and the request id 0, which the library takes for any request's.
func (s *session) check(reply *gosnmp.SnmpPacket, err error) error {
	if err != nil {
		return s.wireError(err)
	}
	switch {
	case reply == nil:
		return ErrBadReply
	case reply.Version != s.g.Version:
		return fmt.Errorf("%w: it is of another SNMP version", ErrBadReply)
	case reply.PDUType != gosnmp.GetResponse:
		return fmt.Errorf("%w: it is a message of type %#x", ErrBadReply, byte(reply.PDUType))
	case reply.RequestID == 0:
		return fmt.Errorf("%w: it names no request", ErrBadReply)
	case s.c.Version != V3 && reply.Community != s.c.Community.Reveal():
		return fmt.Errorf("%w: it is of another community", ErrBadReply)
	}
	if err := s.checkUser(reply); err != nil {
		return err
	}
	if reply.Error == gosnmp.NoError {
		return nil
	}
	status := &StatusError{Status: uint8(reply.Error)}
	if i := int(reply.ErrorIndex); i >= 1 && i <= len(reply.Variables) {
		status.OID = dotted(reply.Variables[i-1].Name)
	}
	return status
}

// checkUser: the library authenticates an answer with the key of whichever
// engine it names, so that another device with the same passphrase would do.
func (s *session) checkUser(reply *gosnmp.SnmpPacket) error {
	if s.c.Version != V3 {
		return nil
	}
	usm, ok := reply.SecurityParameters.(*gosnmp.UsmSecurityParameters)
	switch {
	case !ok || reply.MsgFlags&gosnmp.AuthPriv != s.g.MsgFlags&gosnmp.AuthPriv:
		return fmt.Errorf("%w: it is of another security level", ErrBadReply)
	case s.engine == "":
		s.engine = usm.AuthoritativeEngineID
	case s.engine != usm.AuthoritativeEngineID:
		return fmt.Errorf("%w: it is from another SNMPv3 engine", ErrBadReply)
	}
	return nil
}

func (s *session) wireError(err error) error {
	lib := &libraryError{err}
	switch {
	case s.ctx.Err() != nil:
		return fmt.Errorf("%w: %w", s.ctx.Err(), lib)
	case errors.Is(err, gosnmp.ErrMaxRetriesExceeded):
		return fmt.Errorf("no answer within %v: %w: %w", s.c.Timeout, context.DeadlineExceeded, lib)
	}
	return lib
}
