package ipmi

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"plugpull/powerctl"
)

// TestForgedOffIsDropped: an off from somebody who has no session key, ahead
// of the true reply.
func TestForgedOffIsDropped(t *testing.T) {
	off := func(seq byte) []byte { return response(getChassisStatus, seq, 0, []byte{0, 0, 0, 0}) }
	for name, forge := range map[string]func(s *simSession) []byte{
		"in clear": func(s *simSession) []byte { return header(payloadIPMI, s.consoleID, 9, off(1)) },
		"of IPMI 1.5": func(*simSession) []byte {
			return append(append(rmcpHeader[:], make([]byte, 9)...), append([]byte{12}, off(1)...)...)
		},
		"with a flipped bit": func(s *simSession) []byte { p := s.seal(off(1)); p[30] ^= 1; return p },
		"with a wrong code":  func(s *simSession) []byte { p := s.seal(off(1)); p[len(p)-1] ^= 1; return p },
		"of another session": func(s *simSession) []byte { return s.keys.seal(s.consoleID+1, 1, off(1)) },
		"of another request": func(s *simSession) []byte { return s.seal(off(63)) },
		"of another command": func(s *simSession) []byte { return s.seal(response(chassisControl, 1, 0, nil)) },
		"under another key": func(s *simSession) []byte {
			k := s.keys
			k.k1 = make([]byte, 20)
			return k.seal(s.consoleID, 1, off(1))
		},
		"cut short":                 func(s *simSession) []byte { return s.seal(off(1))[:40] },
		"with an odd length":        func(s *simSession) []byte { return oddLength(s) },
		"empty":                     func(*simSession) []byte { return nil },
		"with a bad inner checksum": func(s *simSession) []byte { m := off(1); m[len(m)-1]++; return s.seal(m) },
		"with a message of 2 bytes": func(s *simSession) []byte { return s.seal([]byte{1, 2}) },
	} {
		t.Run(name, func(t *testing.T) {
			b := startBMC(t, SHA256)
			b.change(func(b *bmc) { b.forge = forge })
			res, err := b.outlet(t, func(c *Config) { c.Pin = Pin{} }).State(t.Context())
			require.NoError(t, err)
			require.Equal(t, powerctl.On, res.State)
			require.Equal(t, 1, b.device.Reads(), "the true reply was taken, and was not asked for twice")
		})
	}
}

// oddLength is authentic, and its payload is no whole number of cipher blocks.
func oddLength(s *simSession) []byte {
	p := header(payloadIPMI|encrypted|authenticated, s.consoleID, 1, make([]byte, 34))
	p = append(p, 0xff, 0xff, 2, nextHeader)
	return append(p, s.mac(s.keys.k1, p[len(rmcpHeader):])[:s.codeLen]...)
}

func TestLostPackets(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]byte{
		"open session": payloadOpenRequest, "RAKP 1": payloadRAKP1, "RAKP 3": payloadRAKP3, "a reading": payloadIPMI | encrypted | authenticated,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := startBMC(t, SHA256)
			lost := false
			b.change(func(b *bmc) {
				b.drop = func(k byte) bool {
					first := k == kind && !lost
					lost = lost || first
					return first
				}
			})
			res, err := b.outlet(t, func(c *Config) { c.Pin = Pin{} }).State(t.Context())
			require.NoError(t, err)
			require.True(t, res.IsOn())
		})
	}
}

func TestNoUsableSession(t *testing.T) {
	for name, c := range map[string]struct {
		bmc    func(*bmc)
		config func(*Config)
		want   any
	}{
		"wrong password": {config: func(c *Config) { c.Password = powerctl.NewSecret("hunter2") }, want: ErrAuthentication},
		"no password":    {config: func(c *Config) { c.Password = powerctl.Secret{} }, want: ErrAuthentication},
		"wrong user":     {config: func(c *Config) { c.User = "nobody" }, want: &StatusError{Code: 0x0d}},
		"wrong BMC key":  {bmc: func(b *bmc) { b.key = simKey }, config: func(c *Config) { c.BMCKey = powerctl.NewSecret("hunter2") }, want: ErrAuthentication},
		"other suite":    {config: func(c *Config) { c.CipherSuite = SHA1 }, want: &StatusError{Code: 0x11}},
		"weaker suite":   {bmc: func(b *bmc) { b.chosenSuite = SHA1 }, want: errProtocol},
		"no encryption":  {bmc: func(b *bmc) { b.chosenSuite = 0 }, want: errProtocol},
		"low privilege":  {bmc: func(b *bmc) { b.refuse[setPrivilege.number] = 0x81 }, want: &CompletionError{Command: setPrivilege.name, Code: 0x81}},
	} {
		t.Run(name, func(t *testing.T) {
			b := startBMC(t, SHA256)
			if c.bmc != nil {
				b.change(c.bmc)
			}
			o := b.outlet(t, c.config)
			res, err := o.Off(t.Context())
			requireCause(t, err, c.want)
			require.ErrorIs(t, err, powerctl.ErrNotSent)
			require.Zero(t, res)
			require.Empty(t, b.device.Commands())
			requireNoSecret(t, err)
			_, err = o.Identify(t.Context())
			requireCause(t, err, c.want)
		})
	}
}

func requireCause(t *testing.T, err error, want any) {
	t.Helper()
	var op *powerctl.OpError
	require.ErrorAs(t, err, &op)
	switch want := want.(type) {
	case *StatusError:
		var got *StatusError
		require.ErrorAs(t, err, &got)
		require.Equal(t, want, got)
	case *CompletionError:
		var got *CompletionError
		require.ErrorAs(t, err, &got)
		require.Equal(t, want, got)
	case error:
		require.ErrorIs(t, err, want)
	}
}

func TestBMCKey(t *testing.T) {
	b := startBMC(t, SHA256)
	b.change(func(b *bmc) { b.key = simKey })
	_, err := b.outlet(t, func(c *Config) { c.BMCKey = powerctl.NewSecret(simKey) }).Identify(t.Context())
	require.NoError(t, err)
}

func TestSilentBMCIsGivenUp(t *testing.T) {
	b := startBMC(t, SHA256)
	b.change(func(b *bmc) { b.drop = func(byte) bool { return true } })
	_, err := b.outlet(t, func(c *Config) { c.Timeout = 100 * time.Millisecond }).Off(t.Context())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, powerctl.ErrNotSent)

	b.stop()
	_, err = b.outlet(t, nil).Off(t.Context())
	require.ErrorIs(t, err, powerctl.ErrNotSent)
}

func TestEverySessionIsClosed(t *testing.T) {
	b := startBMC(t, SHA256)
	o := b.outlet(t, nil)
	for range 3 {
		_, err := o.State(t.Context())
		require.NoError(t, err)
	}
	_, err := o.Off(t.Context())
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.closed == 4
	}, time.Minute, time.Millisecond)
}

func FuzzReplies(f *testing.F) {
	k := rakp{suite: suite{hash: nil}}
	k.suite, _ = suiteOf(SHA1)
	k.userKey, k.bmcKey = padKey("a"), padKey("a")
	ks := k.keys()
	f.Add(ks.seal(1, 1, response(getChassisStatus, 1, 0, []byte{0, 0, 0})))
	f.Add(header(payloadRAKP2, 0, 0, make([]byte, 60)))
	f.Fuzz(func(t *testing.T, p []byte) {
		if m, ok := ks.unseal(p, 1); ok {
			decodeResponse(m, getChassisStatus, 1)
		}
		decodeResponse(p, getChassisStatus, 1)
	})
}
