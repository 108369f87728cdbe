package tlspin

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// server speaks TLS with a certificate that is its own authority, for 127.0.0.1.
func server(t *testing.T, change func(*tls.Config)) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(nil)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{}
	if change != nil {
		change(s.TLS)
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func fingerprint(s *httptest.Server) string {
	sum := sha256.Sum256(s.Certificate().Raw)
	return hex.EncodeToString(sum[:])
}

// file has the server's certificate.
func file(t *testing.T, s *httptest.Server) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "ca.pem")
	b := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	require.NoError(t, os.WriteFile(name, b, 0o600))
	return name
}

func handshake(t *testing.T, s *httptest.Server, trust Trust, name string, cache tls.ClientSessionCache) error {
	t.Helper()
	conf, err := trust.Config()
	require.NoError(t, err)
	conf.ServerName, conf.ClientSessionCache = name, cache
	conn, err := tls.Dial("tcp", s.Listener.Addr().String(), conf)
	if err == nil {
		err = conn.Close()
	}
	return err
}

func TestTrust(t *testing.T) {
	s := server(t, nil)
	colons := func(digits string) string {
		var pairs []string
		for i := 0; i < len(digits); i += 2 {
			pairs = append(pairs, strings.ToUpper(digits[i:i+2]))
		}
		return strings.Join(pairs, ":")
	}
	for name, c := range map[string]struct {
		trust Trust
		name  string
		good  bool
	}{
		"fingerprint":              {Trust{Fingerprint: fingerprint(s)}, "127.0.0.1", true},
		"as openssl prints it":     {Trust{Fingerprint: colons(fingerprint(s))}, "127.0.0.1", true},
		"whatever the name is":     {Trust{Fingerprint: fingerprint(s)}, "elsewhere", true},
		"CA file":                  {Trust{CAFile: file(t, s)}, "127.0.0.1", true},
		"another fingerprint":      {Trust{Fingerprint: strings.Repeat("ab", 32)}, "127.0.0.1", false},
		"CA file, of another name": {Trust{CAFile: file(t, s)}, "elsewhere", false},
		"the system's CAs":         {Trust{}, "127.0.0.1", false},
	} {
		t.Run(name, func(t *testing.T) {
			err := handshake(t, s, c.trust, c.name, nil)
			require.Equal(t, c.good, err == nil, "%v", err)
		})
	}
	var ce *CertificateError
	require.ErrorAs(t, handshake(t, s, Trust{Fingerprint: strings.Repeat("AB", 32)}, "", nil), &ce)
	require.Equal(t, CertificateError{Want: strings.Repeat("ab", 32), Got: fingerprint(s)}, *ce, "so that a user can pin it")
}

// TestResumedSessionIsVerified: a session that another configuration made, with whom it liked,
// is no way around the pin.
func TestResumedSessionIsVerified(t *testing.T) {
	s := server(t, func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }) // 1.3 has its tickets after the handshake
	cache := tls.NewLRUClientSessionCache(1)
	require.NoError(t, handshake(t, s, Trust{Fingerprint: fingerprint(s)}, "a", cache))
	var ce *CertificateError
	require.ErrorAs(t, handshake(t, s, Trust{Fingerprint: strings.Repeat("ab", 32)}, "a", cache), &ce)
}

func TestOldVersionsAreRefused(t *testing.T) {
	s := server(t, func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 })
	err := handshake(t, s, Trust{Fingerprint: fingerprint(s)}, "", nil)
	var oe *net.OpError
	require.ErrorAs(t, err, &oe)
	require.Equal(t, "remote error", oe.Op)
}

func TestWhatCannotBeMeant(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	require.NoError(t, os.WriteFile(empty, []byte("nothing"), 0o600))
	for name, c := range map[string]struct {
		trust Trust
		want  string
	}{
		"both":                    {Trust{CAFile: empty, Fingerprint: strings.Repeat("ab", 32)}, "at most one"},
		"no file":                 {Trust{CAFile: "/nowhere"}, "read the CA file"},
		"a file without any":      {Trust{CAFile: empty}, "no certificate"},
		"no hexadecimal digits":   {Trust{Fingerprint: strings.Repeat("xy", 32)}, "64 hexadecimal"},
		"a SHA-1":                 {Trust{Fingerprint: strings.Repeat("ab", 20)}, "64 hexadecimal"},
		"too long":                {Trust{Fingerprint: strings.Repeat("ab", 33)}, "64 hexadecimal"},
		"an odd number of digits": {Trust{Fingerprint: strings.Repeat("ab", 32)[1:]}, "64 hexadecimal"},
		"nothing but colons":      {Trust{Fingerprint: ":::"}, "64 hexadecimal"},
	} {
		conf, err := c.trust.Config()
		require.ErrorContains(t, err, c.want, name)
		require.Nil(t, conf, name)
	}
	_, err := Trust{CAFile: "/nowhere"}.Config()
	require.ErrorIs(t, err, os.ErrNotExist)
}
