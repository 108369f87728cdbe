package mysql

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/ledger"
	"plugpull/internal/workload"
)

func TestWait(t *testing.T) {
	s := ownServer(t)
	dsn := testDSN(uint16(s.Port()))
	d, err := Open(dsn, Options{})
	require.NoError(t, err)

	t.Run("up, without the schema", func(t *testing.T) {
		took, err := d.Wait(ctx(t), time.Minute)
		require.NoError(t, err)
		assert.Positive(t, took)
	})
	t.Run("access denied is told at once", func(t *testing.T) {
		bad := dsn
		bad.SetPassword("wrong")
		b, err := Open(bad, Options{})
		require.NoError(t, err)
		_, err = b.Wait(ctx(t), time.Hour)
		assert.EqualValues(t, 1045, Errno(err))
		assert.NotErrorIs(t, err, ErrNotUp)
	})
	t.Run("no TLS there is told at once", func(t *testing.T) {
		bad := dsn
		bad.TLS = "skip-verify"
		b, err := Open(bad, Options{})
		require.NoError(t, err)
		_, err = b.Wait(ctx(t), time.Hour)
		require.Error(t, err)
		assert.NotErrorIs(t, err, ErrNotUp)
	})
	t.Run("cancelled", func(t *testing.T) {
		require.NoError(t, s.Kill())
		c, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		_, err := d.Wait(c, time.Hour)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.NotErrorIs(t, err, ErrNotUp)
	})
	t.Run("down, then up", func(t *testing.T) {
		_, err := d.Wait(ctx(t), 600*time.Millisecond)
		assert.ErrorIs(t, err, ErrNotUp)
		assert.Contains(t, err.Error(), "refused", "says what the last try met")
		done := make(chan error, 1)
		go func() { _, err := d.Wait(context.Background(), time.Minute); done <- err }()
		require.NoError(t, s.Restart(ctx(t)))
		require.NoError(t, <-done)
	})
}

// A forwarder accepts while there is no server behind it.
func TestWaitIsNotContentWithAnAccept(t *testing.T) {
	for name, serve := range map[string]func(net.Conn){
		"silent": func(net.Conn) {},
		"closes": func(c net.Conn) { _ = c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			done := make(chan struct{})
			go func() {
				defer close(done)
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					defer c.Close()
					serve(c)
				}
			}()
			defer func() { _ = l.Close(); <-done }()
			dsn := testDSN(uint16(l.Addr().(*net.TCPAddr).Port))
			dsn.ConnectTimeout = 100 * time.Millisecond
			d, err := Open(dsn, Options{})
			require.NoError(t, err)
			_, err = d.Wait(ctx(t), time.Second)
			assert.ErrorIs(t, err, ErrNotUp)
		})
	}
}

func TestIncurable(t *testing.T) {
	assert.True(t, incurable(fmt.Errorf("x: %w", &net.DNSError{IsNotFound: true})))
	assert.False(t, incurable(&net.DNSError{IsTemporary: true}), "the resolver may be the one that reboots")
	assert.False(t, incurable(context.DeadlineExceeded))
}

func TestTLS(t *testing.T) {
	dir := t.TempDir()
	ca, key, cert := certificates(t, dir)
	s := ownServer(t, "--ssl-ca="+ca, "--ssl-key="+key, "--ssl-cert="+cert, "--require-secure-transport=ON")
	dsn := testDSN(uint16(s.Port()))
	dsn.TLS, dsn.TLSCA = "true", ca
	d, err := Open(dsn, Options{})
	require.NoError(t, err)
	p := workload.Params{Run: [16]byte{1}, Profile: workload.Append, PayloadMax: 50}
	require.NoError(t, d.Prepare(ctx(t), p, 1))
	c := dial(t, d, p)
	r := c.Commit(ctx(t), op(1))
	assert.Equal(t, ledger.Acked, r.Outcome)
	assert.NotZero(t, r.Sent)
	assert.Len(t, readAll(t, survivors(t, d), workload.TableAppend, 1, 0), 1)
	require.NoError(t, s.Kill())
	r = c.Commit(ctx(t), op(2))
	assert.NotEqual(t, ledger.Acked, r.Outcome)
	assert.Contains(t, []ledger.End{ledger.EndFIN, ledger.EndRST}, r.Ended, "%v", r.Err)
	require.NoError(t, s.Restart(ctx(t)))

	otherDir := t.TempDir()
	other, _, _ := certificates(t, otherDir)
	for name, change := range map[string]func(*DSN){
		"other CA":     func(d *DSN) { d.TLSCA = other },
		"system's CAs": func(d *DSN) { d.TLSCA = "" },
	} {
		t.Run(name, func(t *testing.T) {
			bad := dsn
			change(&bad)
			b, err := Open(bad, Options{})
			require.NoError(t, err)
			_, err = b.Wait(ctx(t), time.Hour)
			require.Error(t, err)
			assert.NotErrorIs(t, err, ErrNotUp)
		})
	}
	for _, mode := range []string{"skip-verify", "preferred"} {
		dsn := dsn
		dsn.TLS, dsn.TLSCA = mode, ""
		d, err := Open(dsn, Options{})
		require.NoError(t, err)
		_, err = d.Wait(ctx(t), 10*time.Second)
		require.NoError(t, err, mode)
	}
	dsn.TLSCA = filepath.Join(dir, "none")
	_, err = Open(dsn, Options{})
	assert.ErrorIs(t, err, os.ErrNotExist)

	plain := testDSN(uint16(sharedServer(t).Port()))
	plain.TLS = "preferred"
	d, err = Open(plain, Options{})
	require.NoError(t, err)
	_, err = d.Wait(ctx(t), time.Second)
	require.NoError(t, err, "preferred does without")
}

// certificates writes a self-signed certificate for 127.0.0.1.
func certificates(t *testing.T, dir string) (ca, keyFile, cert string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "plugpull test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	write := func(name, kind string, b []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600))
		return path
	}
	return write("ca.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", keyDER), write("cert.pem", "CERTIFICATE", der)
}
