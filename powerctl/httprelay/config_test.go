package httprelay

import (
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/powerctl"
)

func TestNewReportsEverything(t *testing.T) {
	_, err := New(Config{URL: "ftp://plug:hunter2@strip/x?y", Profile: "nothing", Fingerprint: "12", User: "a", Class: "some"})
	for _, text := range []string{"name is missing", "timeout is missing", "URL is not", "wants https", "class is", "both or not at all", "no HTTP profile", "64 hexadecimal"} {
		require.ErrorContains(t, err, text)
	}
	requireNoSecret(t, err)
	sound := func() Config {
		return Config{Name: "a", URL: "https://strip:8443/", Profiles: profiles(t), Profile: "netio", Outlet: 1, Timeout: time.Second, Fingerprint: strings.Repeat("ab", 32)}
	}
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"outlet 0":         {func(c *Config) { c.Outlet = 0 }, "want 1 to 8"},
		"outlet 9":         {func(c *Config) { c.Outlet = 9 }, "want 1 to 8"},
		"two kinds of CA":  {func(c *Config) { c.CAFile = "/nowhere" }, "at most one"},
		"no CA file":       {func(c *Config) { c.Fingerprint, c.CAFile = "", "/nowhere" }, "read the CA file"},
		"a CA over http":   {func(c *Config) { c.URL = "http://strip" }, "wants https"},
		"a path":           {func(c *Config) { c.URL = "https://strip/netio.json" }, "URL is not"},
		"a fragment":       {func(c *Config) { c.URL = "https://strip/#x" }, "URL is not"},
		"a password alone": {func(c *Config) { c.Password = powerctl.NewSecret("hunter2") }, "both or not at all"},
		"no such password": {func(c *Config) {
			c.Profiles[0].Auth, c.Profile = NoAuth, c.Profiles[0].Name
			c.User, c.Password = "a", powerctl.NewSecret("hunter2")
		}, "knows no password"},
		"no serial to read": {func(c *Config) { c.Profiles[0].serial, c.Profile = nil, c.Profiles[0].Name; c.Pin.Serial = "x" }, "cannot read a serial"},
		"no name to read":   {func(c *Config) { c.Profiles[0].outletName, c.Profile = nil, c.Profiles[0].Name; c.Pin.OutletName = "x" }, "cannot read an outlet's name"},
	} {
		conf := sound()
		_, err := New(conf)
		require.NoError(t, err)
		c.change(&conf)
		_, err = New(conf)
		require.ErrorContains(t, err, c.want, name)
		requireNoSecret(t, err)
	}
}

func TestCertificates(t *testing.T) {
	s := start(t, named("netio"), func(s *sim) { s.patch["https"] = true })
	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600))
	empty := filepath.Join(t.TempDir(), "empty.pem")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	_, err := New(Config{Fingerprint: "", CAFile: empty})
	require.ErrorContains(t, err, "no certificate")
	for name, c := range map[string]struct {
		change func(*Config)
		good   bool
	}{
		"fingerprint":         {func(c *Config) { c.Fingerprint = s.fingerprint() }, true},
		"in capitals":         {func(c *Config) { c.Fingerprint = strings.ToUpper(s.fingerprint()) }, true},
		"CA file":             {func(c *Config) { c.CAFile = ca }, true},
		"another fingerprint": {func(c *Config) { c.Fingerprint = strings.Repeat("ab", 32) }, false},
		"the system's CAs":    {func(*Config) {}, false},
		"CA of another name":  {func(c *Config) { c.CAFile, c.URL = ca, strings.Replace(c.URL, "127.0.0.1", "localhost", 1) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := s.driver(t, c.change)
			before := len(s.requests)
			res, err := o.State(t.Context())
			if c.good {
				require.NoError(t, err)
				require.True(t, res.IsOn())
				warnings, err := o.Warnings(t.Context())
				require.NoError(t, err)
				require.NotContains(t, fmt.Sprint(warnings), "plain HTTP")
				return
			}
			require.Error(t, err)
			requireNotSent(t, s, o, func(error) {})
			require.Len(t, s.requests, before, "a password went to somebody unknown")
		})
	}
	_, err = s.driver(t, func(c *Config) { c.Fingerprint = strings.Repeat("ab", 32) }).Identify(t.Context())
	var ce *CertificateError
	require.ErrorAs(t, err, &ce)
	require.Equal(t, s.fingerprint(), ce.Got, "so that a user can pin it")
}

// TestPlanIsWhatIsSent: the plan is compared with the wire.
func TestPlanIsWhatIsSent(t *testing.T) {
	eachModel(t, func(t *testing.T, m model) {
		for _, on := range []bool{false, true} {
			s := start(t, m, func(s *sim) { s.openRead = m.auth == Digest })
			o := s.driver(t, nil)
			plan := o.Plan(on)
			requireNoSecret(t, plan)
			do := o.Off
			if on {
				do = o.On
			}
			_, err := do(t.Context())
			if m.auth == Digest { // whose readings are open, and whose challenge is for commands alone
				require.ErrorIs(t, err, powerctl.ErrNotSent)
			} else {
				require.NoError(t, err)
			}
			var shown []string
			for _, line := range plan {
				line, _, _ = strings.Cut(strings.ReplaceAll(line, s.URL, ""), "&user=")
				fields := strings.SplitN(line, " ", 3)
				shown = append(shown, fields[0]+" "+fields[1])
			}
			require.Equal(t, s.requests, shown)
		}
	})
	assert.Equal(t, []string{"GET http://h/cm?cmnd=Status%205&user=a&password=(secret)", "GET http://h/cm?cmnd=FriendlyName3&user=a&password=(secret)",
		"GET http://h/cm?cmnd=Power3%20OFF&user=a&password=(secret)"},
		(&sim{Server: nil, model: named("tasmota")}).plan(t, "http://h", 3))
}

func (s *sim) plan(t *testing.T, address string, outlet int) []string {
	o, err := New(Config{Name: "x", URL: address, Profiles: profiles(t), Profile: s.profile, Outlet: outlet, User: "a", Password: powerctl.NewSecret("hunter2"), Timeout: limit})
	require.NoError(t, err)
	return o.Plan(false)
}
