package nut

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"plugpull/powerctl"
)

// TestSecret: the password is sent as it is, and is nowhere else.
func TestSecret(t *testing.T) {
	s := start(t)
	o := s.outlet(t, nil)
	_, err := o.Off(t.Context())
	require.NoError(t, err)
	require.Contains(t, s.seen(), `PASSWORD "s3cret \"of\\ \#the test"`)

	request := `PASSWORD "s3cret \"of\\ \#the test"`
	for _, answer := range []string{"ERR INVALID-PASSWORD\n", request + "\n", "ERR s3cret\n"} {
		s.change(func(s *server) { s.instead[request] = answer })
		_, err = o.On(t.Context())
		require.ErrorIs(t, err, powerctl.ErrNotSent)
		require.NotContains(t, fmt.Sprintf("%v %+v %#v", err, o, o.Plan(true)), "s3cret")
	}
	require.Equal(t, []powerctl.State{powerctl.Off}, s.device.Commands())

	wrong := s.outlet(t, func(c *Config) { c.Password = powerctl.NewSecret("wrong") })
	res, err := wrong.On(t.Context())
	var re *ReplyError
	require.ErrorAs(t, err, &re)
	require.Equal(t, "ACCESS-DENIED", re.Code)
	require.ErrorContains(t, err, "instcmds in upsd.users")
	require.NotZero(t, res.Commanded)
	require.NotErrorIs(t, err, powerctl.ErrNotSent)
}

func TestTLS(t *testing.T) {
	web := httptest.NewTLSServer(nil) // for its certificate
	defer web.Close()
	s := start(t)
	s.change(func(s *server) { s.cert = &web.TLS.Certificates[0] })
	sum := sha256.Sum256(web.Certificate().Raw)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw}), 0o600))
	fingerprint := hex.EncodeToString(sum[:])

	for name, change := range map[string]func(*Config){
		"fingerprint": func(c *Config) { c.Fingerprint = fingerprint },
		"CA file":     func(c *Config) { c.CAFile = ca },
	} {
		o := s.outlet(t, func(c *Config) { c.TLS = true; change(c) })
		res, err := powerctl.SwitchOff(t.Context(), o, powerctl.Policy{Deadline: time.Minute, Poll: time.Millisecond})
		require.NoError(t, err, name)
		require.True(t, res.IsOff())
	}
	commands, asked := len(s.device.Commands()), len(s.seen())
	for name, change := range map[string]func(*Config){
		"another certificate": func(c *Config) { c.Fingerprint = strings.Repeat("ab", 32) },
		"nobody vouches":      func(*Config) {},
	} {
		_, err := s.outlet(t, func(c *Config) { c.TLS = true; change(c) }).Off(t.Context())
		require.ErrorIs(t, err, powerctl.ErrNotSent, name)
	}
	s.change(func(s *server) { s.cert = nil })
	_, err := s.outlet(t, func(c *Config) { c.TLS, c.Fingerprint = true, fingerprint }).Off(t.Context())
	var re *ReplyError
	require.ErrorAs(t, err, &re)
	require.ErrorIs(t, err, powerctl.ErrNotSent)
	require.Len(t, s.device.Commands(), commands)
	for _, r := range s.seen()[asked:] {
		require.Equal(t, "STARTTLS", r, "nothing is said in the clear")
	}
}
