package mysql

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseDSN(t *testing.T) {
	base := func(change func(*DSN)) DSN {
		d := DSN{User: "u", Host: "h", Port: 3306, Schema: "plugpull", ConnectTimeout: 10 * time.Second}
		change(&d)
		return d
	}
	for name, c := range map[string]struct {
		in   string
		want DSN
	}{
		"defaults":         {"mysql://u@h", base(func(*DSN) {})},
		"slash":            {"mysql://u@h/", base(func(*DSN) {})},
		"port and schema":  {"mysql://u@h:13306/other", base(func(d *DSN) { d.Port, d.Schema = 13306, "other" })},
		"IPv6":             {"mysql://u@[fd00::1]:33/", base(func(d *DSN) { d.Host, d.Port = "fd00::1", 33 })},
		"IPv6, no port":    {"mysql://u@[::1]", base(func(d *DSN) { d.Host = "::1" })},
		"IPv6 with a zone": {"mysql://u@[fe80::1%25eth0]:33", base(func(d *DSN) { d.Host, d.Port = "fe80::1%eth0", 33 })},
		"encoded user":     {"mysql://a%40b%3Ac@h", base(func(d *DSN) { d.User = "a@b:c" })},
		"socket":           {"mysql://u@/s?socket=/run/x.sock", base(func(d *DSN) { d.Host, d.Schema, d.Socket = "", "s", "/run/x.sock" })},
		"socket localhost": {"mysql://u@localhost?socket=/x", base(func(d *DSN) { d.Host, d.Socket = "", "/x" })},
		"TLS":              {"mysql://u@h?tls=skip-verify", base(func(d *DSN) { d.TLS = "skip-verify" })},
		"no TLS":           {"mysql://u@h?tls=false", base(func(*DSN) {})},
		"a CA implies TLS": {"mysql://u@h?tls-ca=/ca.pem", base(func(d *DSN) { d.TLS, d.TLSCA = "true", "/ca.pem" })},
		"timeout":          {"mysql://u@h?connect-timeout=3s", base(func(d *DSN) { d.ConnectTimeout = 3 * time.Second })},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseDSN(c.in)
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
			again, err := ParseDSN(got.String())
			require.NoError(t, err, "what is printed parses")
			assert.Equal(t, got, again)
		})
	}
}

func TestParseDSNRefuses(t *testing.T) {
	for name, c := range map[string]struct{ in, says string }{
		"empty":             {"", "mysql://USER@HOST"},
		"other scheme":      {"postgres://u@h/x", "mysql://USER@HOST"},
		"no user":           {"mysql://h/x", "user is missing"},
		"IPv6 unbracketed":  {"mysql://u@::1", "brackets"},
		"no host":           {"mysql://u@/x", "host is missing"},
		"bad port":          {"mysql://u@h:99999/x", "port"},
		"port zero":         {"mysql://u@h:0", "port"},
		"empty port":        {"mysql://u@h:/x", "port is empty"},
		"unknown parameter": {"mysql://u@h?charset=utf8", `unknown parameter "charset"`},
		"password as one":   {"mysql://u@h?password=x", `unknown parameter "password"`},
		"repeated":          {"mysql://u@h?tls=true&tls=false", `"tls" is given 2 times`},
		"two at once":       {"mysql://u@h?a=1&b=2", `"b"`},
		"bad TLS":           {"mysql://u@h?tls=maybe", "maybe"},
		"bad timeout":       {"mysql://u@h?connect-timeout=10", "connect-timeout"},
		"negative timeout":  {"mysql://u@h?connect-timeout=-1s", "connect-timeout"},
		"cert without key":  {"mysql://u@h?tls-cert=/c", "tls-key"},
		"CA not verified":   {"mysql://u@h?tls=skip-verify&tls-ca=/c", "tls-ca needs tls=true"},
		"CA without TLS":    {"mysql://u@h?tls=false&tls-ca=/c", "contradicts"},
		"socket and host":   {"mysql://u@h?socket=/x", "socket contradicts"},
		"socket and port":   {"mysql://u@localhost:3306?socket=/x", "socket contradicts"},
		"empty socket":      {"mysql://u@/x?socket=", `"socket" is empty`},
		"system schema":     {"mysql://u@h/mysql", "schema"},
		"schema with quote": {"mysql://u@h/a%60b", "schema"},
		"two schemas":       {"mysql://u@h/a/b", "schema"},
		"fragment":          {"mysql://u@h/a#b", "percent-encoded"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseDSN(c.in)
			require.Error(t, err)
			assert.Contains(t, err.Error(), c.says)
		})
	}
}

func TestPasswordNeverShows(t *testing.T) {
	const secret = "s3cr3t"
	d, err := ParseDSN("mysql://u:" + secret + "@h")
	require.NoError(t, err)
	require.True(t, d.HasPassword())
	db, err := Open(d, Options{})
	require.NoError(t, err)

	type holder struct{ d DSN }
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
		for _, v := range []any{d, &d, holder{d}, &holder{d}, db, *db, []DSN{d}, struct{ x *DB }{db}} {
			out := fmt.Sprintf(verb, v)
			assert.NotContains(t, out, secret)
			assert.NotContains(t, out, fmt.Sprintf("%x", secret))
		}
	}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "dsn", d, "p", &d, "db", db, "h", holder{d})
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "dsn", d, "p", &d, "db", db)
	js, err := json.Marshal(d)
	require.NoError(t, err)
	assert.NotContains(t, log.String()+string(js), secret)
}

func TestErrorsDoNotQuoteAnUnencodedPassword(t *testing.T) {
	for _, in := range []string{
		"mysql://u:12/hunter@h/x", "mysql://u:hunter/x@h", "mysql://u:1?hunter@h/x", "mysql://u:1#hunter@h", "mysql://u:hun@hunter@h",
		"mysql://u:%zzhunter@h", "u:hunter@h", "mysql://u:hunter", "mysql://u:hunter@h:port", "mysql://u:hunter@h/x?a=%zz", "mysql://u:1/hunter",
		"mysql://u:hunter@h?bogus=1", "mysql://u:hun[ter@h", "mysql:u:hunter@h", "mysql://u:hunter\x7f@h",
	} {
		_, err := ParseDSN(in)
		if assert.Error(t, err, in) {
			assert.NotContains(t, err.Error(), "hunter", in)
		}
	}
}

func FuzzParseDSN(f *testing.F) {
	for _, s := range []string{"mysql://u@h", "mysql://u:p@[::1]:3306/s?tls=true", "mysql://u@/s?socket=/x", "mysql://u:a/b@h", "mysql://@", "mysql://u@h?connect-timeout=1s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseDSN(s)
		if err != nil {
			return
		}
		again, err := ParseDSN(d.String())
		if err != nil {
			t.Fatalf("%q printed as %q does not parse: %v", s, d.String(), err)
		}
		again.password = d.password
		if again != d {
			t.Fatalf("%q: %v is not %v", s, again, d)
		}
	})
}
