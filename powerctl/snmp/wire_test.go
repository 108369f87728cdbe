package snmp

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/gosnmp/gosnmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/powerctl"
	"plugpull/powerctl/powertest"
)

// A SET leaves once even where the SNMP library would send it again.
func TestReportToASetDoesNotSendItAgain(t *testing.T) {
	for name, oid := range map[string]string{
		"not in time window": ".1.3.6.1.6.3.15.1.1.2.0", "unknown engine": ".1.3.6.1.6.3.15.1.1.4.0", "wrong digest": ".1.3.6.1.6.3.15.1.1.5.0",
	} {
		t.Run(name, func(t *testing.T) {
			a, o := start(t, V3, true, nil)
			a.onReply(only(gosnmp.SetRequest, func(r *gosnmp.SnmpPacket) {
				r.PDUType, r.Variables = gosnmp.Report, []gosnmp.SnmpPDU{{Name: oid, Type: gosnmp.Counter32, Value: uint32(7)}}
			}))
			a.onSend(func(req *gosnmp.SnmpPacket, out []byte) [][]byte { return [][]byte{authentic(t, req, out, oid)} })
			_, err := o.Off(t.Context())
			require.Error(t, err)
			require.NotErrorIs(t, err, powerctl.ErrNotSent)
			require.Len(t, a.writes(), 1, "%v", err)
		})
	}
}

// authentic makes an authenticated report in place of the agent's plain one.
func authentic(t *testing.T, req *gosnmp.SnmpPacket, out []byte, oid string) []byte {
	if req.PDUType != gosnmp.SetRequest {
		return out
	}
	r := &gosnmp.SnmpPacket{
		Version: gosnmp.Version3, PDUType: gosnmp.GetResponse, RequestID: req.RequestID, MsgID: req.MsgID, SecurityModel: req.SecurityModel,
		ContextEngineID: engineID, Variables: []gosnmp.SnmpPDU{{Name: oid, Type: gosnmp.Counter32, Value: uint32(7)}},
	}
	_, err := seal(r, engineID) // sets the keys
	assert.NoError(t, err)
	r.PDUType = gosnmp.Report
	b, err := r.MarshalMsg()
	assert.NoError(t, err)
	return b
}

func TestAnswerOfAnotherEngineWithTheSamePassphrase(t *testing.T) {
	a, o := start(t, V3, true, nil)
	twin := func(req *gosnmp.SnmpPacket, out []byte) [][]byte {
		if req.PDUType != gosnmp.SetRequest {
			return [][]byte{out}
		}
		r := &gosnmp.SnmpPacket{
			Version: gosnmp.Version3, PDUType: gosnmp.GetResponse, RequestID: req.RequestID, MsgID: req.MsgID, SecurityModel: req.SecurityModel,
			ContextEngineID: engineID + "2", Variables: req.Variables,
		}
		b, err := seal(r, engineID+"2")
		assert.NoError(t, err)
		return [][]byte{b}
	}
	a.onSend(twin)
	_, err := o.Off(t.Context())
	require.ErrorIs(t, err, ErrBadReply)
}

// Replies that answer no request of this session: the library waits on, and so
// the command stays open until the time is over.
func TestStrayRepliesAreNotTaken(t *testing.T) {
	other, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer other.Close()
	for name, stray := range map[string]func(a *agent, to uint16, out []byte) [][]byte{
		"an earlier reply": func(a *agent, _ uint16, _ []byte) [][]byte { return [][]byte{a.first} },
		"from another port": func(_ *agent, to uint16, out []byte) [][]byte {
			_, _ = other.WriteToUDP(out, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(to)})
			return nil
		},
	} {
		for _, v := range versions() {
			t.Run(name+"/v"+string(v), func(t *testing.T) {
				a, o := start(t, v, true, nil)
				a.onSend(func(req *gosnmp.SnmpPacket, out []byte) [][]byte {
					if req.PDUType != gosnmp.SetRequest {
						return [][]byte{out}
					}
					return stray(a, a.port[len(a.port)-1], out)
				})
				ctx, done := powertest.CancelWhen(t.Context(), func() bool { return len(a.writes()) > 0 })
				defer done()
				res, err := o.Off(ctx)
				require.ErrorIs(t, err, context.Canceled)
				require.NotErrorIs(t, err, powerctl.ErrNotSent)
				require.Zero(t, res.Acknowledged)

				// And the reading back does not take them for the state.
				before := a.reads()
				a.onSend(func(req *gosnmp.SnmpPacket, out []byte) [][]byte {
					if len(req.Variables) == 0 {
						return [][]byte{out} // engine discovery
					}
					return stray(a, a.port[len(a.port)-1], out)
				})
				ctx, done = powertest.CancelWhen(t.Context(), func() bool { return a.reads() > before })
				defer done()
				res, err = o.State(ctx)
				require.ErrorIs(t, err, context.Canceled)
				require.Equal(t, powerctl.Unknown, res.State)
			})
		}
	}
}

// A reply to a request before the SET must not become the state after it: each
// operation has a socket of its own.
func TestEachOperationHasItsOwnSocket(t *testing.T) {
	for _, v := range versions() {
		a, o := start(t, v, true, nil)
		a.mu.Lock()
		before := a.port[len(a.port)-1]
		a.mu.Unlock()
		_, err := o.State(t.Context())
		require.NoError(t, err)
		a.mu.Lock()
		after := a.port[len(a.port)-1]
		a.mu.Unlock()
		require.NotEqual(t, before, after)
	}
}

func TestGarbageOnTheWire(t *testing.T) {
	for name, b := range map[string][]byte{
		"nothing": {}, "zeros": make([]byte, 64), "text": []byte("HTTP/1.0 200 OK\r\n\r\n"),
		"a sequence that promises more": {0x30, 0x82, 0xff, 0xff, 2, 1, 1, 4}, "only a header": {0x30, 3, 2, 1, 1},
	} {
		for _, v := range versions() {
			t.Run(name+"/v"+string(v), func(t *testing.T) {
				a, o := start(t, v, true, nil)
				a.onSend(func(req *gosnmp.SnmpPacket, out []byte) [][]byte {
					if req.PDUType == gosnmp.SetRequest {
						return [][]byte{b}
					}
					return [][]byte{out}
				})
				_, err := o.Off(t.Context())
				require.Error(t, err)
				require.NotErrorIs(t, err, powerctl.ErrNotSent)
				require.Less(t, len(err.Error()), 600)
				res, err := o.State(t.Context())
				require.NoError(t, err)
				require.True(t, res.IsOff())

				a.onSend(func(*gosnmp.SnmpPacket, []byte) [][]byte { return [][]byte{b} })
				res, err = o.State(t.Context())
				require.Error(t, err)
				require.False(t, res.IsOff())
			})
		}
	}
}

func TestNoKindOfNonsenseIsAState(t *testing.T) {
	for _, sp := range specs() {
		for _, v := range versions() {
			a := startAgent(t, sp)
			o := outlet(t, config(t, sp, a.address(), v))
			a.d.Plant(powertest.GarbageReads)
			for range 15 {
				res, err := o.State(t.Context())
				require.NotContains(t, []powerctl.State{powerctl.On, powerctl.Off}, res.State, "%+v %v", res, err)
				require.Zero(t, res.Observed)
			}
		}
	}
}

func TestReadsAreRepeatedAndCommandsAreNot(t *testing.T) {
	for _, v := range []Version{V2c, V3} {
		t.Run("v"+string(v), func(t *testing.T) {
			a, o := start(t, v, true, func(c *Config) { c.Retries, c.Timeout = 9, 250*time.Millisecond })
			lost := 0
			a.onReply(func(req, _ *gosnmp.SnmpPacket) bool {
				if req.PDUType == gosnmp.GetRequest && len(req.Variables) > 0 {
					lost++
					return lost%2 == 0
				}
				return req.PDUType != gosnmp.SetRequest
			})
			_, err := o.State(t.Context())
			require.NoError(t, err)
			_, err = o.Off(t.Context())
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NotErrorIs(t, err, powerctl.ErrNotSent)
			require.Len(t, a.writes(), 1, "sent once")
		})
	}
}

func TestUnreachableAndCancelled(t *testing.T) {
	sp := specs()[0]
	gone, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	address := gone.LocalAddr().String()
	gone.Close()
	for _, v := range versions() {
		o := outlet(t, config(t, sp, address, v))
		_, err := o.Off(t.Context()) // the kernel says that nobody listens
		require.ErrorIs(t, err, powerctl.ErrNotSent)
		_, err = o.Identify(t.Context())
		var op *powerctl.OpError
		require.ErrorAs(t, err, &op)
	}
	silent, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer silent.Close()
	for _, v := range versions() {
		o := outlet(t, config(t, sp, silent.LocalAddr().String(), v))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err := o.State(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		late, done := powertest.CancelWhen(t.Context(), func() bool { _, _, err := silent.ReadFrom(make([]byte, 1500)); return err == nil })
		_, err = o.Off(late)
		done()
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, powerctl.ErrNotSent)
	}
}
