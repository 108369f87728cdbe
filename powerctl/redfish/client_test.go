package redfish

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"plugpull/powerctl"
	"plugpull/powerctl/powertest"
)

func TestRedirectsAreNotFollowed(t *testing.T) {
	elsewhere := startService(t)
	for _, code := range []int{301, 302, 303, 307, 308} {
		front := startService(t)
		front.Config.Handler = http.RedirectHandler(elsewhere.URL+systemPath, code)
		_, err := front.outlet(t, nil).Off(t.Context())
		var se *StatusError
		require.ErrorAs(t, err, &se)
		require.Equal(t, code, se.Code)
		require.ErrorIs(t, err, powerctl.ErrNotSent)
	}
	require.Empty(t, elsewhere.requests)
}

func TestCertificates(t *testing.T) {
	s := startService(t)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600))
	for name, c := range map[string]struct {
		change func(*Config)
		good   bool
	}{
		"fingerprint":             {func(*Config) {}, true},
		"fingerprint with colons": {func(c *Config) { c.Fingerprint = colons(c.Fingerprint) }, true},
		"CA file":                 {func(c *Config) { c.Fingerprint, c.CAFile = "", ca }, true},
		"another fingerprint":     {func(c *Config) { c.Fingerprint = strings.Repeat("ab", 32) }, false},
		"the system's CAs":        {func(c *Config) { c.Fingerprint = "" }, false},
		"CA of another name": {func(c *Config) {
			c.Fingerprint, c.CAFile, c.URL = "", ca, strings.Replace(c.URL, "127.0.0.1", "localhost", 1)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := s.outlet(t, c.change)
			before := s.secrets
			res, err := o.State(t.Context())
			if c.good {
				require.NoError(t, err)
				require.True(t, res.IsOn())
				return
			}
			require.Error(t, err)
			require.Equal(t, before, s.secrets, "the password went to somebody unknown")
			requireNotSent(t, s, o, func(error) {})
		})
	}
	_, err := s.outlet(t, func(c *Config) { c.Fingerprint = strings.Repeat("ab", 32) }).Identify(t.Context())
	var ce *CertificateError
	require.ErrorAs(t, err, &ce)
	require.Equal(t, s.fingerprint(), ce.Got, "so that a user can pin it")
}

func colons(hex string) string {
	var pairs []string
	for i := 0; i < len(hex); i += 2 {
		pairs = append(pairs, strings.ToUpper(hex[i:i+2]))
	}
	return strings.Join(pairs, ":")
}

func TestSessionsAreDeleted(t *testing.T) {
	s := startService(t)
	s.noBasic, s.location = true, "https://a-name-that-only-the-BMC-knows"
	o := s.outlet(t, func(c *Config) { c.Auth = Session })
	_, err := o.Identify(t.Context())
	require.NoError(t, err)
	_, err = powerctl.SwitchOff(t.Context(), o, powerctl.Policy{Deadline: time.Minute, Poll: time.Millisecond})
	require.NoError(t, err)
	require.Positive(t, s.opened)
	require.Empty(t, s.open)

	late := startService(t) // also when the time is over
	late.device.Plant(powertest.NoAnswer)
	_, err = powertest.ShortSilence(late.outlet(t, func(c *Config) { c.Auth = Session }), late.device).Off(t.Context())
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, powerctl.ErrNotSent)
	require.Equal(t, 1, late.opened)
	require.Empty(t, late.open)

	s.change(func(s *service) { s.patch["UUID"] = nil }) // and when nothing was sent
	_, err = o.Off(t.Context())
	require.ErrorIs(t, err, powerctl.ErrNotSent)
	require.Empty(t, s.open)
}

func TestWrongPassword(t *testing.T) {
	for _, auth := range []Auth{Basic, Session} {
		s := startService(t)
		o := s.outlet(t, func(c *Config) { c.Auth, c.Password = auth, powerctl.NewSecret("hunter2") })
		requireNotSent(t, s, o, func(err error) {
			var se *StatusError
			require.ErrorAs(t, err, &se)
			require.Equal(t, http.StatusUnauthorized, se.Code)
			require.NotEmpty(t, se.Message)
		})
	}
}

func TestUnreachable(t *testing.T) {
	s := startService(t)
	o := s.outlet(t, nil)
	s.Close()
	requireNotSent(t, s, o, func(error) {})
}

func TestSecretsNeverPrint(t *testing.T) {
	s := startService(t)
	o := s.outlet(t, nil)
	for _, v := range []any{o.c, &o.c, o.c.Password, *o, o} {
		requireNoSecret(t, v)
	}
	b, err := json.Marshal(o.c)
	require.NoError(t, err)
	requireNoSecret(t, string(b))
}

func FuzzParseObject(f *testing.F) {
	for _, text := range nonsense {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if o, err := parseObject(b); err == nil {
			r := resource{kind: &system, object: o}
			if r.check() == nil && r.state() == powerctl.Off {
				var v map[string]any
				require.NoError(t, json.Unmarshal(b, &v))
				require.Equal(t, "Off", v["PowerState"])
			}
		}
	})
}
