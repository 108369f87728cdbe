package httprelay

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"plugpull/internal/testskip"
	"plugpull/powerctl"
)

func TestLogin(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*sim){
		"MD5":                     func(s *sim) { s.login.algorithm = "MD5" },
		"SHA-256":                 func(*sim) {},
		"a nonce for one request": func(s *sim) { s.login.once = true },
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, named("shelly-gen2"), change)
			o := s.driver(t, nil)
			_, err := powerctl.SwitchOff(t.Context(), o, powerctl.Policy{Deadline: limit, Poll: time.Millisecond})
			require.NoError(t, err)
			before := len(s.requests)
			_, err = o.State(t.Context())
			require.NoError(t, err)
			extra := 1 // for the first challenge, unless every request needs its own
			if s.login.once {
				extra = 3
			}
			require.Len(t, s.requests[before:], 3+extra)
			warnings, err := o.Warnings(t.Context())
			require.NoError(t, err)
			require.Len(t, warnings, 2) // plain HTTP, and the profile's note
			require.Equal(t, 1, s.orders, "the command is written once")
		})
	}
}

// TestStaleNonce: a command that is refused for its nonce was not carried out, and is not
// sent again by itself.
func TestStaleNonce(t *testing.T) {
	for _, profile := range []string{"shelly-gen2", "digital-loggers"} {
		s := start(t, named(profile), func(s *sim) { s.login.expire = true })
		o := s.driver(t, nil)
		res, err := o.Off(t.Context())
		require.ErrorIs(t, err, powerctl.ErrNotSent)
		require.Equal(t, powerctl.Result{}, res)
		require.Equal(t, 1, s.orders)
		require.Empty(t, s.device.Commands())
		s.change(func(s *sim) { s.login.expire = false })
		_, err = o.Off(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, s.orders)
	}
}

func TestWrongPassword(t *testing.T) {
	t.Parallel()
	eachModel(t, func(t *testing.T, m model) {
		s := start(t, m, nil)
		for _, change := range []func(*Config){
			func(c *Config) { c.Password = powerctl.NewSecret("hunter2") },
			func(c *Config) { c.User, c.Password = "", powerctl.Secret{} },
		} {
			o := s.driver(t, change)
			requireNotSent(t, s, o, func(err error) {
				var se *StatusError
				require.ErrorAs(t, err, &se)
				require.Equal(t, http.StatusUnauthorized, se.Code)
			})
			res, err := o.State(t.Context())
			require.Error(t, err)
			require.Equal(t, powerctl.Unknown, res.State)
			requireNoSecret(t, err)
		}
		require.Zero(t, s.orders)
	})
}

// TestRefusedCommand: only a 401 with a challenge says that a command was not carried out.
func TestRefusedCommand(t *testing.T) {
	for profile, notSent := range map[string]bool{"netio": true, "digital-loggers": true, "tasmota": false} {
		s := start(t, named(profile), func(s *sim) { s.openRead = true })
		o := s.driver(t, func(c *Config) { c.User, c.Password = "", powerctl.Secret{} })
		res, err := o.Off(t.Context())
		var se *StatusError
		require.ErrorAs(t, err, &se)
		require.Equal(t, http.StatusUnauthorized, se.Code)
		require.Equal(t, 1, s.orders)
		if notSent {
			require.ErrorIs(t, err, powerctl.ErrNotSent)
			require.Zero(t, res.Commanded)
		} else {
			require.NotErrorIs(t, err, powerctl.ErrNotSent)
			require.NotZero(t, res.Commanded)
		}
		require.Zero(t, res.Acknowledged)
	}
}

func TestChallenges(t *testing.T) {
	const good = `Digest realm="r", nonce="n", qop="auth"`
	for name, c := range map[string]struct {
		headers []string
		nonce   string // of the one that is taken; empty for none
	}{
		"none":               {nil, ""},
		"basic":              {[]string{`Basic realm="r"`}, ""},
		"no algorithm":       {[]string{good}, "n"},
		"MD5 and SHA-256":    {[]string{good + `, algorithm=MD5`, `Digest realm="r", nonce="m", qop="auth", algorithm=SHA-256`}, "m"},
		"the first of equal": {[]string{good, `Digest realm="r", nonce="m", qop="auth"`}, "n"},
		"auth-int, auth":     {[]string{`Digest realm="r", nonce="n", qop="auth-int, auth"`}, "n"},
		"auth-int alone":     {[]string{`Digest realm="r", nonce="n", qop="auth-int"`}, ""},
		"no qop":             {[]string{`Digest realm="r", nonce="n"`}, ""},
		"no nonce":           {[]string{`Digest realm="r", qop="auth"`}, ""},
		"unknown algorithm":  {[]string{good + `, algorithm=SHA-1`}, ""},
		"sessions":           {[]string{good + `, algorithm=MD5-sess`}, ""},
		"garbage, then good": {[]string{`Digest "`, `Digest realm=`, good}, "n"},
		"empty":              {[]string{``, `Digest `}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			ch, err := findChallenge(http.Header{"Www-Authenticate": c.headers})
			if c.nonce == "" {
				require.ErrorIs(t, err, errChallenge)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.nonce, ch.Nonce)
			require.Equal(t, []string{"auth"}, ch.QOP)
		})
	}
	s := start(t, named("digital-loggers"), func(s *sim) { s.login.headers = []string{`Digest realm="r", nonce="n"`} })
	requireNotSent(t, s, s.driver(t, nil), func(err error) { require.ErrorIs(t, err, errChallenge) })
}

// TestCurlAgrees: the simulated logins are RFC 7616 to curl, so that the driver that
// passes them speaks what curl speaks.
func TestCurlAgrees(t *testing.T) {
	curl := testskip.Program(t, "curl", "curl")
	for _, m := range []model{named("shelly-gen2"), named("digital-loggers"), named("netio")} {
		for password, want := range map[string]string{simPassword: "200", "hunter2": "401"} {
			s := start(t, m, func(s *sim) { s.login.once = true })
			path := statePath(t, m)
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			out, err := exec.CommandContext(ctx, curl, "-sS", "-o", "/dev/null", "-w", "%{http_code}", "-q", "--noproxy", "*", "--"+string(m.auth),
				"-H", "Accept: application/json", "-H", "X-CSRF: x", "-u", simUser+":"+password, s.URL+path).CombinedOutput()
			cancel()
			require.NoError(t, err, "%s", out)
			require.Equal(t, want, string(out), m.profile)
		}
	}
}

func statePath(t *testing.T, m model) string {
	p, err := Named(profiles(t), m.profile)
	require.NoError(t, err)
	return p.state.get.fill(m.outlet)
}

// TestSecretsNeverShow: a device that repeats what it was sent, everywhere.
func TestSecretsNeverShow(t *testing.T) {
	leak := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, password, _ := r.BasicAuth()
		password += r.URL.Query().Get("password")
		_, _ = fmt.Fprintf(w, `{"StatusSTS":{"POWER2":"%[1]s"},"StatusNET":{"Mac":"%[1]s"},"FriendlyName2":"%[1]s","Rule1":{"State":"%[1]s"},"Agent":{"SerialNumber":"%[1]s"},"Outputs":[{},{"ID":2,"Name":"%[1]s","State":"%[1]s"}],"url":"%[2]s"}`,
			password, r.URL.RequestURI())
	}
	server := httptest.NewServer(http.HandlerFunc(leak))
	t.Cleanup(server.Close)
	for _, profile := range []string{"tasmota", "netio"} {
		s := &sim{Server: server, model: named(profile)}
		o := s.driver(t, func(c *Config) { c.Pin = Pin{} })
		for _, v := range []any{o.c, &o.c, o.c.Password, *o, o, o.Plan(false), o.Plan(true)} {
			requireNoSecret(t, v)
		}
		res, err := o.State(t.Context())
		require.NoError(t, err)
		require.NotEmpty(t, res.Raw)
		requireNoSecret(t, res)
		_, err = o.Off(t.Context())
		require.ErrorIs(t, err, errReply)
		requireNoSecret(t, err)
		id, err := o.Identify(t.Context())
		require.NoError(t, err)
		requireNoSecret(t, id)
		pins, err := o.Pins(t.Context())
		require.NoError(t, err)
		require.Len(t, pins, 2)
		requireNoSecret(t, pins)
		warnings, err := o.Warnings(t.Context())
		require.NoError(t, err)
		requireNoSecret(t, warnings)
		s = &sim{Server: server, model: named(profile)}
		_, err = s.driver(t, nil).Off(t.Context())
		var ie *powerctl.IdentityError
		require.ErrorAs(t, err, &ie)
		requireNoSecret(t, err)
	}
	down := httptest.NewServer(http.NotFoundHandler())
	down.Close()
	s := &sim{Server: down, model: named("tasmota")}
	_, err := s.driver(t, nil).Off(t.Context())
	require.ErrorIs(t, err, powerctl.ErrNotSent)
	requireNoSecret(t, err)
	require.NotContains(t, err.Error(), "password=")
	require.Contains(t, strings.ToLower(err.Error()), "refused")
}
