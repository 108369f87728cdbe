package ipmi

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/powerctl"
	"plugpull/powerctl/powertest"
)

func (b *bmc) config() Config {
	return Config{
		Name: "server 7", Address: b.conn.LocalAddr().String(), User: simUser, Password: powerctl.NewSecret(simPassword),
		CipherSuite: b.suite, Timeout: time.Minute, Pin: Pin{GUID: simGUIDText, Serial: simSerial},
	}
}

func (b *bmc) outlet(t testing.TB, change func(*Config)) *Outlet {
	c := b.config()
	if change != nil {
		change(&c)
	}
	o, err := New(c)
	require.NoError(t, err)
	return o
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, suite := range []CipherSuite{SHA256, SHA1} {
		t.Run(fmt.Sprintf("suite %d", suite), func(t *testing.T) {
			t.Parallel()
			powertest.Run(t, func(t *testing.T) powertest.Harness {
				b := startBMC(t, suite)
				return powertest.Harness{
					Outlet: powertest.ShortSilence(b.outlet(t, nil), b.device), Device: b.device,
					Policy:   powerctl.Policy{Deadline: time.Minute, Poll: 5 * time.Millisecond},
					Patience: 100 * time.Millisecond,
				}
			})
		})
	}
}

func policy() powerctl.Policy {
	return powerctl.Policy{Deadline: 300 * time.Millisecond, Poll: 5 * time.Millisecond}
}

func TestWrongBMCIsSentNothing(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*bmc)
		want   IdentityError
	}{
		"guid":        {func(b *bmc) { b.guid[0]++ }, IdentityError{Field: "guid", Want: simGUIDText, Got: "20" + simGUIDText[2:]}},
		"no guid":     {func(b *bmc) { b.guid = [16]byte{} }, IdentityError{Field: "guid", Want: simGUIDText}},
		"guid denied": {func(b *bmc) { b.refuse[getSystemGUID.number] = 0xc1 }, IdentityError{Field: "guid", Want: simGUIDText}},
		"serial":      {func(b *bmc) { b.fru = simFRU("SN-4712") }, IdentityError{Field: "serial", Want: simSerial, Got: "SN-4712"}},
		"no serial":   {func(b *bmc) { b.refuse[getFRUInventory.number] = 0xcb }, IdentityError{Field: "serial", Want: simSerial}},
	} {
		t.Run(name, func(t *testing.T) {
			b := startBMC(t, SHA1)
			b.change(c.change)
			for _, want := range []func(context.Context, powerctl.Outlet, powerctl.Policy) (powerctl.Result, error){powerctl.SwitchOff, powerctl.SwitchOn} {
				res, err := want(t.Context(), b.outlet(t, nil), policy())
				var ie *IdentityError
				require.ErrorAs(t, err, &ie)
				require.Equal(t, c.want, *ie)
				require.ErrorIs(t, err, powerctl.ErrNotSent)
				require.Zero(t, res.Commanded)
			}
			require.Empty(t, b.device.Commands())
			b.device.Force(powerctl.Off) // the off of another machine is no off either
			res, err := b.outlet(t, nil).State(t.Context())
			require.Error(t, err)
			require.Equal(t, powerctl.Unknown, res.State)
		})
	}
}

// TestSwappedAfterTheCommand: another machine that is off takes the address
// between the command and the reading.
func TestSwappedAfterTheCommand(t *testing.T) {
	b := startBMC(t, SHA1)
	b.device.Plant(powertest.StuckOn)
	o := b.outlet(t, nil)
	_, err := o.Off(t.Context())
	require.NoError(t, err)
	b.device.Force(powerctl.Off)
	b.change(func(b *bmc) { b.guid[15]++ })
	_, err = o.State(t.Context())
	var ie *IdentityError
	require.ErrorAs(t, err, &ie)
}

func TestChangedBehindOurBack(t *testing.T) {
	b := startBMC(t, SHA1)
	o := b.outlet(t, nil)
	b.device.Force(powerctl.Off)
	res, err := powerctl.SwitchOff(t.Context(), o, policy())
	require.NoError(t, err)
	require.Equal(t, powerctl.Off, res.Before, "it shows that nothing was cut")
	b.device.Force(powerctl.On)
	res, err = o.State(t.Context())
	require.NoError(t, err)
	require.True(t, res.IsOn())
}

func requireNoSecret(t *testing.T, v any) {
	t.Helper()
	for _, text := range []string{fmt.Sprint(v), fmt.Sprintf("%+v", v), fmt.Sprintf("%#v", v)} {
		for _, secret := range []string{"hunter2", simPassword, simKey} {
			require.NotContains(t, text, secret)
		}
	}
}

// TestGoneAfterTheCommand: the BMC dies between the command and the reading.
func TestGoneAfterTheCommand(t *testing.T) {
	b := startBMC(t, SHA256)
	o := b.outlet(t, nil)
	res, err := o.Off(t.Context())
	require.NoError(t, err)
	require.NotZero(t, res.Acknowledged)
	require.False(t, res.IsOff())
	b.stop()
	res, err = o.State(t.Context())
	require.Error(t, err)
	require.Equal(t, powerctl.Unknown, res.State)
}

func TestIdentify(t *testing.T) {
	b := startBMC(t, SHA256)
	o := b.outlet(t, nil)
	device := func() string {
		id, err := o.Identify(t.Context())
		require.NoError(t, err)
		require.Equal(t, powerctl.Identity{Driver: "ipmi", Device: id.Device, Name: "server 7"}, id)
		return id.Device
	}
	require.Equal(t, "guid "+simGUIDText+" serial "+simSerial+" manufacturer 343 product 4660", device())

	o = b.outlet(t, func(c *Config) { c.Pin = Pin{} })
	b.change(func(b *bmc) { b.guid, b.refuse[getFRUInventory.number] = [16]byte{}, 0xcb })
	require.Regexp(t, `^manufacturer 343 product 4660 address [0-9a-f]{8}$`, device())

	b.change(func(b *bmc) { b.refuse[getFRUInventory.number] = codeBusy })
	_, err := o.Identify(t.Context())
	require.Error(t, err, "a BMC that is busy now must not get another identity")
}

func TestSerialOfTheBoard(t *testing.T) {
	b := startBMC(t, SHA256)
	fru := simFRU("")
	b.change(func(b *bmc) { b.fru = fru })
	id, err := b.outlet(t, func(c *Config) { c.Pin = Pin{} }).Identify(t.Context())
	require.NoError(t, err)
	require.Contains(t, id.Device, "serial BOARD-SN")
}

func TestWarnings(t *testing.T) {
	b := startBMC(t, SHA256)
	for policy, want := range map[byte][]Warning{0: nil, 1: {{LastState}}, 2: {{AlwaysOn}}, 3: {{UnknownPolicy}}} {
		b.change(func(b *bmc) { b.policy = policy })
		got, err := b.outlet(t, nil).Warnings(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	require.Empty(t, b.device.Commands())
	require.Contains(t, Warning{AlwaysOn}.String(), "always on")
}

func TestParseStatus(t *testing.T) {
	for _, c := range []struct {
		in   []byte
		want powerctl.State
	}{
		{[]byte{0x00, 0, 0}, powerctl.Off}, {[]byte{0x01, 0, 0, 0}, powerctl.On}, {[]byte{0x60, 0xff, 0xff, 0xff}, powerctl.Off},
		{[]byte{0x02, 0, 0}, powerctl.Fault}, {[]byte{0x04, 0, 0}, powerctl.Fault}, {[]byte{0x08, 0, 0}, powerctl.Fault},
		{[]byte{0x11, 0, 0}, powerctl.Fault}, {[]byte{0x80, 0, 0}, powerctl.Unknown},
		{nil, powerctl.Unknown}, {[]byte{0, 0}, powerctl.Unknown}, {make([]byte, 5), powerctl.Unknown},
	} {
		assert.Equal(t, c.want, parseStatus(c.in).state, "% x", c.in)
	}
}

func TestSecretsNeverPrint(t *testing.T) {
	c := Config{Name: "a", Address: "b", Password: powerctl.NewSecret("hunter2"), BMCKey: powerctl.NewSecret(simKey), Timeout: time.Second}
	o, err := New(c)
	require.NoError(t, err)
	for _, v := range []any{c, &c, c.Password, &c.Password, *o, o} {
		requireNoSecret(t, v)
		b, err := json.Marshal(v)
		require.NoError(t, err)
		requireNoSecret(t, string(b))
	}
	for _, verb := range []string{"%s", "%q", "%x", "%d", "%v"} {
		require.Equal(t, "(secret)", fmt.Sprintf(verb, c.Password))
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "password", c.Password, "config", c)
	requireNoSecret(t, log.String())
}

func TestNewReportsEverything(t *testing.T) {
	long := strings.Repeat("x", 21)
	_, err := New(Config{User: long, Password: powerctl.NewSecret(long), BMCKey: powerctl.NewSecret(long), CipherSuite: 1, Pin: Pin{GUID: "12"}, Address: "h:0"})
	for _, text := range []string{"name is missing", "timeout is missing", "16 bytes", "password has more", "BMC key has more", "cipher suite 1", "32 hexadecimal", "host:port"} {
		require.ErrorContains(t, err, text)
	}
	require.NotErrorIs(t, err, powerctl.ErrNotSent)
	requireNoSecret(t, err)
	for in, want := range map[string]string{"bmc7": "bmc7:623", "10.0.0.7:6230": "10.0.0.7:6230", "fe80::1": "[fe80::1]:623"} {
		o, err := New(Config{Name: "a", Address: in, Timeout: time.Second})
		require.NoError(t, err)
		require.Equal(t, want, o.c.Address)
		require.Equal(t, SHA256, o.c.CipherSuite, "the default")
	}
}
