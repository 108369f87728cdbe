package mysql

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"time"

	driver "github.com/go-sql-driver/mysql"
)

// waitEvery is the pause between two tries of Wait.
const waitEvery = 250 * time.Millisecond

// ErrNotUp is wrapped by the error of Wait when the server did not answer in
// time: it says nothing about the data.
var ErrNotUp = errors.New("the server is not up")

// Wait blocks until the server has let the user in and answered a query, for at
// most limit, and returns how long that took. That a port accepts connections
// is not enough: forwarders accept before the server is there. An error that
// waiting cannot cure (access denied, TLS, an unknown host) is returned at once.
func (d *DB) Wait(ctx context.Context, limit time.Duration) (time.Duration, error) {
	start := time.Now()
	whole, cancel := context.WithDeadline(ctx, start.Add(limit))
	defer cancel()
	var last error
	for {
		err := d.try(whole)
		if err == nil {
			return time.Since(start), nil
		}
		if incurable(err) {
			return time.Since(start), err
		}
		if whole.Err() == nil || last == nil {
			last = err // of a try that had its time, rather than the one cut short
		}
		pause := time.NewTimer(waitEvery)
		select {
		case <-pause.C:
		case <-whole.Done():
			pause.Stop()
			if err := ctx.Err(); err != nil {
				return time.Since(start), fmt.Errorf("wait for the server: %w: %w", err, last)
			}
			return time.Since(start), fmt.Errorf("%w after %v: %w", ErrNotUp, limit, last)
		}
	}
}

func (d *DB) try(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.dsn.ConnectTimeout)
	defer cancel()
	// Without the schema: whether that is there is for the verification to see.
	return d.control(ctx, "", func(c *sql.Conn) error {
		var one int
		if err := c.QueryRowContext(ctx, "SELECT 1").Scan(&one); err != nil {
			return fmt.Errorf("ask the server for 1: %w", err)
		}
		return nil
	})
}

// incurable reports whether trying again cannot help.
func incurable(err error) bool {
	switch Errno(err) {
	case erAccessDenied, erAccessDeniedNoPassword, erNotSupportedAuth, erHostIsBlocked:
		return true
	}
	var dns *net.DNSError
	var verify *tls.CertificateVerificationError
	var alert tls.AlertError
	var record tls.RecordHeaderError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &dns):
		return dns.IsNotFound
	case errors.As(err, &verify), errors.As(err, &alert), errors.As(err, &record), errors.As(err, &invalid):
		return true
	}
	return errors.Is(err, driver.ErrNoTLS) || errors.Is(err, driver.ErrUnknownPlugin) || errors.Is(err, driver.ErrOldPassword) ||
		errors.Is(err, driver.ErrNativePassword) || errors.Is(err, driver.ErrCleartextPassword) || errors.Is(err, driver.ErrOldProtocol)
}
