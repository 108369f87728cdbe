package snmp

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gosnmp/gosnmp"
	"github.com/stretchr/testify/require"

	"plugpull/powerctl"
	"plugpull/powerctl/powertest"
)

func TestOutletIsLookedUpByName(t *testing.T) {
	base := e + "318.1.1.12.3.5.1.1.2."
	for _, v := range versions() {
		t.Run("v"+string(v), func(t *testing.T) {
			a, o := start(t, v, false, func(c *Config) { c.Index, c.Name = "", "db1 psu a" })
			a.put(base+"4", gosnmp.OctetString, "db1 psu")
			a.put(base+"12", gosnmp.OctetString, "mail")
			id, err := o.Identify(t.Context())
			require.NoError(t, err)
			require.Equal(t, powerctl.Identity{Driver: "snmp", Device: "serial ZA4711", Part: "5", Name: "5 db1 psu a"}, id)

			a, o = start(t, v, false, func(c *Config) { c.Index, c.Name = "", "db1 psu a" })
			a.put(base+"12", gosnmp.OctetString, "db1 psu a ")
			_, err = o.Off(t.Context())
			require.ErrorContains(t, err, `2 outlets are named "db1 psu a", want one`)
			require.ErrorIs(t, err, powerctl.ErrNotSent)

			_, o = start(t, v, false, func(c *Config) { c.Index, c.Name = "", "db9" })
			_, err = o.Off(t.Context())
			require.ErrorContains(t, err, `0 outlets are named "db9", want one`)
		})
	}
}

func TestTableThatRunsBackwardsEnds(t *testing.T) {
	a, o := start(t, V2c, false, func(c *Config) { c.Index, c.Name = "", "db1 psu a" })
	a.onReply(func(req, r *gosnmp.SnmpPacket) bool {
		if req.PDUType == gosnmp.GetNextRequest {
			r.Variables = []gosnmp.SnmpPDU{{Name: e + "318.1.1.12.3.5.1.1.2.1", Type: gosnmp.OctetString, Value: "x"}}
		}
		return true
	})
	_, err := o.State(t.Context())
	require.ErrorIs(t, err, ErrBadReply)
	require.ErrorContains(t, err, "runs backwards")
}

func TestNoErrorAndNoPrintHoldsASecret(t *testing.T) {
	var texts []string
	for _, v := range versions() {
		a, o := start(t, v, true, func(c *Config) { c.Timeout = 50 * time.Millisecond })
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			texts = append(texts, fmt.Sprintf(verb, o.c), fmt.Sprintf(verb, o), fmt.Sprintf(verb, struct{ o Outlet }{*o}))
		}
		b, err := json.Marshal(o.c)
		require.NoError(t, err)
		texts = append(texts, string(b))
		for _, f := range []func(*gosnmp.SnmpPacket, []byte) [][]byte{
			func(*gosnmp.SnmpPacket, []byte) [][]byte { return nil },
			func(*gosnmp.SnmpPacket, []byte) [][]byte { return [][]byte{[]byte("junk")} },
			func(_ *gosnmp.SnmpPacket, out []byte) [][]byte { return [][]byte{out[:len(out)-1]} },
		} {
			a.onSend(f)
			_, err := o.Off(t.Context())
			texts = append(texts, err.Error())
			_, err = o.State(t.Context())
			texts = append(texts, err.Error())
		}
	}
	for _, text := range texts {
		for _, secret := range []string{community, authPass, privPass} {
			require.NotContains(t, text, secret)
		}
	}
	require.Contains(t, texts[0], "(secret)")
}

func TestNewReportsEverything(t *testing.T) {
	_, err := New(Config{Version: "4", Profile: "apc-rpdu", Profiles: profiles(t), Index: "1.2", Name: "x", Retries: -1})
	require.EqualError(t, err, "snmp outlet: the address is missing\nthe version is \"4\", want 1, 2c or 3\nthe community is missing or longer than 127 bytes\n"+
		"want either the outlet's index or its name\nthe timeout is missing\nthe retries are -1, want 0 to 20")
	_, err = New(Config{Address: "pdu:x", Version: V3, Profile: "apc-rpdu", Profiles: profiles(t), Index: "1.2", Timeout: 1, User: User{Name: "u", Auth: "sha"}})
	require.EqualError(t, err, "snmp outlet: the port of the address \"pdu:x\" is not a number\nan SNMPv3 passphrase has at least 8 characters\n"+
		"the outlet's index is \"1.2\", want the form N")
	_, err = New(Config{Address: "pdu", Version: V2c, Community: powerctl.NewSecret("x"), Profile: "apc-msp", Profiles: profiles(t), Index: "1.2.3", Timeout: 1})
	require.ErrorContains(t, err, "want the form S.1.N")
	_, err = New(Config{Address: "pdu", Version: V2c, Community: powerctl.NewSecret("x"), Profile: "apc-msp", Profiles: profiles(t), Index: "1.1.3", Timeout: 1, Pin: Pin{Serial: "1"}})
	require.ErrorContains(t, err, "knows no serial number")
}

func TestWarningsOfWhatSwitchesByItself(t *testing.T) {
	const setting = e + "318.1.1.12.3.4.1.1.4.5"
	for _, v := range versions() {
		a, o := start(t, v, false, nil)
		a.put(setting, gosnmp.Integer, 0)
		got, err := o.Warnings(t.Context())
		require.NoError(t, err)
		require.Equal(t, []powerctl.Warning{{Text: "rPDUOutletConfigPowerOnTime is 0: the device may turn the outlet on by itself after a power cut of its own"}}, got)
		a.put(setting, gosnmp.Integer, -1)
		got, err = o.Warnings(t.Context())
		require.NoError(t, err)
		require.Empty(t, got)
		a.d.Plant(powertest.PendingReads)
		got, err = o.Warnings(t.Context())
		require.NoError(t, err)
		require.Len(t, got, 1)
		require.Contains(t, got[0].Text, "a command is pending (state=Integer 2; pending=Integer 1): it is cancelled")
		require.False(t, got[0].Switches)
		require.Empty(t, a.writes())
	}
	a, o := start(t, V2c, false, nil)
	a.put(a.spec.name, gosnmp.OctetString, "")
	a.put(a.spec.serial, gosnmp.OctetString, "")
	got, err := o.Warnings(t.Context())
	require.NoError(t, err)
	require.Len(t, got, 3)
	require.Contains(t, got[0].Text, "rPDUOutletConfigPowerOnTime cannot be read (NoSuchInstance)")
	require.Contains(t, got[1].Text, "no serial number")
	require.Contains(t, got[2].Text, "no name")

	a, o = startOne(t, specs()[3], V2c, false, nil) // a MasterSwitch has no cancel
	a.d.Plant(powertest.PendingReads)
	got, err = o.Warnings(t.Context())
	require.NoError(t, err)
	require.Contains(t, got[0].Text, "a command is pending")
	require.True(t, got[0].Switches)
	a.d.Plant(powertest.FailedReads)
	got, err = o.Warnings(t.Context())
	require.NoError(t, err)
	require.Contains(t, got[0].Text, "whether a command is pending is not known")
}

func TestPinsAreWhatTheDeviceSaysNow(t *testing.T) {
	for _, v := range versions() {
		a, o := start(t, v, false, func(c *Config) { c.Pin = Pin{Serial: "another", OutletName: "another"} })
		want := map[string]string{"sysobjectid": e + "318.1.3.4.5", "serial": "ZA4711", "outlet_name": "db1 psu a"}
		got, err := o.Pins(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, got)
		_, err = o.Identify(t.Context())
		require.Error(t, err, "the pins still hold")
		a.put(a.spec.serial, gosnmp.OctetString, "")
		delete(want, "serial")
		got, err = o.Pins(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestAutoChoosesBySysObjectID(t *testing.T) {
	for _, sp := range specs() {
		a := startAgent(t, sp)
		c := config(t, sp, a.address(), V2c)
		c.Profile = Auto
		o := outlet(t, c)
		require.Equal(t, powerctl.TriedSimulator, o.Capabilities().Tried, "the least tried one that may be chosen")
		require.Contains(t, strings.Join(o.Plan(false), "\n"), "the SNMP profile is chosen on contact")
		_, err := o.Identify(t.Context())
		if sp.profile == "poe-rfc3621" {
			require.ErrorContains(t, err, "no SNMP profile is for a device with the sysObjectID")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, sp.profile, o.target.p.Name)
		require.Contains(t, o.Plan(false)[len(o.Plan(false))-1], ", profile "+sp.profile+")")
	}
	one, two := &Profile{Name: "b", SysObjectID: []string{".1.3.6"}}, &Profile{Name: "a", SysObjectID: []string{".1.3.6"}}
	_, err := detect([]*Profile{one, two}, ".1.3.6.1")
	require.ErrorContains(t, err, "name one of a, b")
	_, err = detect([]*Profile{{Name: "x", SysObjectID: []string{".1.3.6.1.4.1.318.1.3.4.5"}}}, ".1.3.6.1.4.1.318.1.3.4.55")
	require.Error(t, err, "a prefix ends at a dot")
	require.False(t, errors.Is(err, ErrBadReply))

}
