package postgres

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseDSN(t *testing.T) {
	base := func(change func(*DSN)) DSN {
		d := DSN{User: "u", Host: "h", Port: 5432, Database: "postgres", Timeout: 10 * time.Second}
		change(&d)
		return d
	}
	for name, c := range map[string]struct {
		in   string
		want DSN
	}{
		"defaults":      {"postgres://u@h", base(func(*DSN) {})},
		"other scheme":  {"postgresql://u@h/", base(func(*DSN) {})},
		"port":          {"postgres://u@h:6432/shop", base(func(d *DSN) { d.Port, d.Database = 6432, "shop" })},
		"IPv6":          {"postgres://u@[::1]:33", base(func(d *DSN) { d.Host, d.Port = "::1", 33 })},
		"socket":        {"postgres://u@/shop?host=/run/postgresql", base(func(d *DSN) { d.Host, d.Database = "/run/postgresql", "shop" })},
		"socket's port": {"postgres://u@:5433/?host=/x", base(func(d *DSN) { d.Host, d.Port = "/x", 5433 })},
		"encoded":       {"postgres://a%40b@h/x%20y", base(func(d *DSN) { d.User, d.Database = "a@b", "x y" })},
		"TLS":           {"postgres://u@h?sslmode=verify-full&sslrootcert=/ca", base(func(d *DSN) { d.TLS = map[string]string{"sslmode": "verify-full", "sslrootcert": "/ca"} })},
		"timeout":       {"postgres://u@h?connect_timeout=3", base(func(d *DSN) { d.Timeout = 3 * time.Second })},
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
		"empty":           {"", "postgres://USER@HOST"},
		"MySQL":           {"mysql://u@h", "postgres://USER@HOST"},
		"key words":       {"host=h user=u", "postgres://USER@HOST"},
		"no user":         {"postgres://h/x", "user is missing"},
		"no host":         {"postgres://u@/x", "host is missing"},
		"two hosts":       {"postgres://u@a,b/x", "host must be"},
		"two hosts again": {"postgres://u@/x?host=/a,/b", "absolute path"},
		"port":            {"postgres://u@h:70000/", "port"},
		"empty port":      {"postgres://u@h:/", "port is empty"},
		"session setting": {"postgres://u@h?synchronous_commit=on", `unknown parameter "synchronous_commit"`},
		"options":         {"postgres://u@h?options=-cfsync%3Don", `unknown parameter "options"`},
		"password":        {"postgres://u@h?password=x", `unknown parameter "password"`},
		"twice":           {"postgres://u@h?sslmode=require&sslmode=disable", "2 times"},
		"TLS":             {"postgres://u@h?sslmode=maybe", "maybe"},
		"timeout":         {"postgres://u@h?connect_timeout=0", "connect_timeout"},
		"host and socket": {"postgres://u@h?host=/x", "contradicts"},
		"relative socket": {"postgres://u@?host=x", "absolute path"},
		"fragment":        {"postgres://u@h/x#y", "percent-encoded"},
	} {
		_, err := ParseDSN(c.in)
		assert.ErrorContains(t, err, c.says, name)
	}
}

func TestPasswordNeverShows(t *testing.T) {
	const secret = "s3cr3t"
	d, err := ParseDSN("postgres://u:" + secret + "@h?sslmode=require")
	require.NoError(t, err)
	require.True(t, d.HasPassword())
	type holder struct{ d DSN }
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
		for _, v := range []any{d, &d, holder{d}, []DSN{d}} {
			assert.NotContains(t, fmt.Sprintf(verb, v), secret)
			assert.NotContains(t, fmt.Sprintf(verb, v), fmt.Sprintf("%x", secret))
		}
	}
	cfg, err := d.Config("plugpull check")
	require.NoError(t, err)
	assert.Equal(t, secret, cfg.Password)
	d.TLS["sslrootcert"] = "/no/such/file"
	_, err = d.Config("plugpull check")
	require.Error(t, err)
	assert.NotContains(t, err.Error(), secret)
	for _, s := range []string{"postgres://u:" + secret + "/x@h", "postgres://u:a@" + secret + "@h", "postgres://u:" + secret + "%@h", "postgres://u:" + secret + "h"} {
		_, err := ParseDSN(s)
		require.Error(t, err, s)
		assert.NotContains(t, err.Error(), secret)
	}
}

// What is quoted for the driver comes out as it went in.
func TestConfigQuotes(t *testing.T) {
	d, err := ParseDSN("postgres://a'b%5Cc@h/d%20'e")
	require.NoError(t, err)
	cfg, err := d.Config("plugpull check")
	require.NoError(t, err)
	assert.Equal(t, `a'b\c`, cfg.User)
	assert.Equal(t, `d 'e`, cfg.Database)
}

func FuzzParseDSN(f *testing.F) {
	for _, s := range []string{"postgres://u@h", "postgres://u:p@[::1]:5432/s?sslmode=require", "postgres://u@/s?host=/x", "postgres://u:a/b@h", "postgres://@", "postgresql://u@h?connect_timeout=1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseDSN(s)
		if err != nil {
			return
		}
		again, err := ParseDSN(d.String())
		require.NoError(t, err, d.String())
		again.password = d.password
		require.Equal(t, d, again)
	})
}
