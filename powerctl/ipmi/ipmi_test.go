package ipmi

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
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
					// A datagram has no connection that could be cut.
					Faults: slices.DeleteFunc(powertest.Faults(), func(f powertest.Fault) bool { return f == powertest.Reset }),
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
		want   powerctl.IdentityError
	}{
		"guid":        {func(b *bmc) { b.guid[0]++ }, powerctl.IdentityError{What: "guid", Want: simGUIDText, Got: "20" + simGUIDText[2:]}},
		"no guid":     {func(b *bmc) { b.guid = [16]byte{} }, powerctl.IdentityError{What: "guid", Want: simGUIDText}},
		"guid denied": {func(b *bmc) { b.refuse[getSystemGUID.number] = 0xc1 }, powerctl.IdentityError{What: "guid", Want: simGUIDText}},
		"serial":      {func(b *bmc) { b.fru = simFRU("SN-4712") }, powerctl.IdentityError{What: "serial", Want: simSerial, Got: "SN-4712"}},
		"no serial":   {func(b *bmc) { b.refuse[getFRUInventory.number] = 0xcb }, powerctl.IdentityError{What: "serial", Want: simSerial}},
	} {
		t.Run(name, func(t *testing.T) {
			b := startBMC(t, SHA1)
			b.change(c.change)
			for _, want := range []func(context.Context, powerctl.Outlet, powerctl.Policy) (powerctl.Result, error){powerctl.SwitchOff, powerctl.SwitchOn} {
				res, err := want(t.Context(), b.outlet(t, nil), policy())
				var ie *powerctl.IdentityError
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
	var ie *powerctl.IdentityError
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
	restores := func(how string) []powerctl.Warning {
		return []powerctl.Warning{{Text: "the BMC switches the host on by itself when mains returns " + how}}
	}
	for policy, want := range map[byte][]powerctl.Warning{
		0: nil, 1: restores("and it was on (restore policy last state)"), 2: restores("(restore policy always on)"),
		3: {{Text: "the BMC does not say whether it switches the host on by itself when mains returns"}},
	} {
		b.change(func(b *bmc) { b.policy = policy })
		got, err := b.outlet(t, nil).Warnings(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	require.Empty(t, b.device.Commands())
}

func TestWatchdogThatRunsSwitches(t *testing.T) {
	b := startBMC(t, SHA256)
	for name, c := range map[string]struct {
		answer   []byte
		refuse   byte
		text     string // empty: no warning
		switches bool
	}{
		"stopped":           {answer: []byte{0x04, 3, 0, 0, 10, 0, 10, 0}},
		"no action":         {answer: []byte{0x44, 0, 0, 0, 10, 0, 10, 0}},
		"reset":             {answer: []byte{0x44, 1, 0, 0, 10, 0, 10, 0}, text: "its action is a reset"},
		"something else":    {answer: []byte{0x44, 7, 0, 0, 10, 0, 10, 0}, text: "its action is unknown (7)", switches: true},
		"power down":        {answer: []byte{0x44, 2, 0, 0, 10, 0, 10, 0}, text: "its action is power down", switches: true},
		"power cycle":       {answer: []byte{0xc4, 0x13, 0, 0, 10, 0, 10, 0}, text: "its action is a power cycle", switches: true},
		"too short":         {answer: []byte{0x44}, text: "cannot be read (44)"},
		"there is none":     {refuse: 0xc1},
		"never initialised": {refuse: 0x80, text: "cannot be read (get watchdog timer: completion code 0x80)"},
	} {
		t.Run(name, func(t *testing.T) {
			b.change(func(b *bmc) { b.policy, b.watchdog, b.refuse[getWatchdog.number] = 0, c.answer, c.refuse })
			got, err := b.outlet(t, nil).Warnings(t.Context())
			require.NoError(t, err)
			if c.text == "" {
				require.Empty(t, got)
				return
			}
			require.Len(t, got, 1)
			require.Contains(t, got[0].Text, c.text)
			require.Equal(t, c.switches, got[0].Switches)
		})
	}
}

func TestPinsAreWhatTheBMCSaysNow(t *testing.T) {
	b := startBMC(t, SHA256)
	o := b.outlet(t, func(c *Config) { c.Pin = Pin{GUID: strings.Repeat("ab", 16), Serial: "another"} })
	got, err := o.Pins(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]string{"guid": simGUIDText, "serial": simSerial}, got)
	b.change(func(b *bmc) { b.guid, b.refuse[getFRUInventory.number] = [16]byte{}, 0xcb })
	got, err = o.Pins(t.Context())
	require.NoError(t, err)
	require.Empty(t, got)
	_, err = o.Identify(t.Context())
	require.Error(t, err, "the pins still hold")
}

// What was planned is what arrives.
func TestPlan(t *testing.T) {
	b := startBMC(t, SHA256)
	o := b.outlet(t, nil)
	to := " to " + o.c.Address
	require.Equal(t, []string{
		"Open Session (cipher suite 17)" + to, "RAKP 1 and RAKP 3" + to, "Set Session Privilege Level operator (0x03)" + to,
		"Get System GUID" + to, "Get FRU Inventory Area Info and Read FRU Data of FRU 0 (serial)" + to,
		"Chassis Control power down (0x00)" + to, "Close Session" + to,
	}, o.Plan(false))
	o = b.outlet(t, func(c *Config) { c.Pin = Pin{} })
	require.Equal(t, "Chassis Control power up (0x01)"+to, o.Plan(true)[3])
	_, err := o.On(t.Context())
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.closed == 1
	}, time.Minute, time.Millisecond)
	var numbers []byte
	for _, c := range b.log {
		numbers = append(numbers, c.number)
	}
	require.Equal(t, []byte{setPrivilege.number, chassisControl.number, closeSession.number}, numbers)
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
