// Package tlspin says whom a driver trusts on the other side of TLS: the system's
// authorities, those of one file, or one certificate alone.
//
// It guarantees that a Trust which cannot be meant as it is written makes no configuration,
// and that none of the configurations it makes goes without verification.
package tlspin

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Trust is one of the two, or the system's authorities where both are empty.
type Trust struct {
	// CAFile is a file with the authorities' certificates, in PEM.
	CAFile string
	// Fingerprint is the SHA-256 of the device's own certificate: 64 hexadecimal digits,
	// with or without colons. It takes the place of authority, name and validity.
	Fingerprint string
}

// CertificateError: the device's certificate is not the pinned one.
type CertificateError struct{ Want, Got string } // SHA-256 fingerprints, in lower case without colons

func (e *CertificateError) Error() string {
	return fmt.Sprintf("the certificate's fingerprint is %s, and %s is pinned", e.Got, e.Want)
}

// Config returns what a client wants, for TLS 1.2 and later. It reads the CA file. The name to
// verify is for the caller to set where it dials by itself (crypto/tls: ServerName); net/http
// does so. A handshake with another certificate than the pinned one is a *CertificateError.
func (t Trust) Config() (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	switch {
	case t.CAFile != "" && t.Fingerprint != "":
		return nil, errors.New("at most one of CA file and fingerprint is wanted")
	case t.CAFile != "":
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the CA file: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("the CA file has no certificate")
		}
	case t.Fingerprint != "":
		want := strings.ToLower(strings.ReplaceAll(t.Fingerprint, ":", ""))
		if b, err := hex.DecodeString(want); err != nil || len(b) != sha256.Size {
			return nil, errors.New("the fingerprint is not 64 hexadecimal digits")
		}
		conf.InsecureSkipVerify = true // the fingerprint takes the place of the authorities
		conf.VerifyConnection = func(s tls.ConnectionState) error {
			sum := sha256.Sum256(s.PeerCertificates[0].Raw)
			if got := hex.EncodeToString(sum[:]); got != want {
				return &CertificateError{Want: want, Got: got}
			}
			return nil
		}
	}
	return conf, nil
}
