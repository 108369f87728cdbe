package snmp

import (
	"context"
	"testing"

	"github.com/gosnmp/gosnmp"
	"github.com/stretchr/testify/require"

	"plugpull/powerctl"
	"plugpull/powerctl/powertest"
)

func versions() []Version { return []Version{V1, V2c, V3} }

// start returns an rPDU and its driver, after the first contact when met.
func start(t *testing.T, v Version, met bool, change func(*Config)) (*agent, *Outlet) {
	return startOne(t, specs()[0], v, met, change)
}

func startOne(t *testing.T, sp spec, v Version, met bool, change func(*Config)) (*agent, *Outlet) {
	a := startAgent(t, sp)
	c := config(t, sp, a.address(), v)
	if change != nil {
		change(&c)
	}
	o := outlet(t, c)
	if met {
		r, err := o.State(t.Context())
		require.NoError(t, err)
		require.True(t, r.IsOn())
	}
	return a, o
}

// withAndWithoutCancel: a device whose pending commands are cancelled is looked at
// once more before the command; the other is not, so that each check must hold alone.
func withAndWithoutCancel() []spec { return []spec{specs()[0], specs()[6]} }

func TestAnotherDeviceIsNeverSwitched(t *testing.T) {
	for _, sp := range withAndWithoutCancel() {
		t.Run(sp.profile, func(t *testing.T) { anotherDevice(t, sp) })
	}
}

func anotherDevice(t *testing.T, sp spec) {
	for name, c := range map[string]struct {
		pin    Pin
		change func(*agent)
		want   powerctl.IdentityError
	}{
		"serial pinned": {Pin{Serial: "ZA0001"}, nil, powerctl.IdentityError{What: "serial", Want: "ZA0001", Got: "ZA4711"}},
		"model pinned":  {Pin{SysObjectID: e + "318.1.3.4.9"}, nil, powerctl.IdentityError{What: "sysObjectID", Want: e + "318.1.3.4.9", Got: sp.object}},
		"name pinned":   {Pin{OutletName: "db2"}, nil, powerctl.IdentityError{What: "outlet name", Want: "db2", Got: "db1 psu a"}},
		"serial gone": {Pin{Serial: "ZA4711"}, func(a *agent) { a.put(sp.serial, gosnmp.OctetString, "") },
			powerctl.IdentityError{What: "serial", Want: "ZA4711"}},
		"name is a number": {Pin{OutletName: "db1 psu a"}, func(a *agent) { a.put(sp.name, gosnmp.Integer, 5) },
			powerctl.IdentityError{What: "outlet name", Want: "db1 psu a", Got: "Integer 5"}},
	} {
		for _, v := range versions() {
			t.Run(name+"/v"+string(v), func(t *testing.T) {
				a, o := startOne(t, sp, v, false, func(cfg *Config) { cfg.Pin = c.pin })
				if c.change != nil {
					c.change(a)
				}
				refusesToSwitch(t, a, o, c.want)
			})
		}
	}
}

// refusesToSwitch: neither a command nor a cancel leaves, and no state is told.
func refusesToSwitch(t *testing.T, a *agent, o *Outlet, want powerctl.IdentityError) {
	t.Helper()
	for _, do := range []func(context.Context) (powerctl.Result, error){o.Off, o.On} {
		res, err := do(t.Context())
		var identity *powerctl.IdentityError
		require.ErrorAs(t, err, &identity)
		require.Equal(t, want, *identity)
		require.ErrorIs(t, err, powerctl.ErrNotSent)
		require.Zero(t, res.Commanded)
	}
	res, err := o.State(t.Context())
	var identity *powerctl.IdentityError
	require.ErrorAs(t, err, &identity)
	require.Equal(t, powerctl.Unknown, res.State)
	require.Zero(t, res.Observed)
	require.Empty(t, a.writes())
}

func TestDeviceChangedBehindOurBackIsNoticedWithoutAPin(t *testing.T) {
	for _, sp := range withAndWithoutCancel() {
		t.Run(sp.profile, func(t *testing.T) { changedBehindOurBack(t, sp) })
	}
}

func changedBehindOurBack(t *testing.T, sp spec) {
	for name, c := range map[string]struct {
		oid  string
		kind gosnmp.Asn1BER
		v    any
		want powerctl.IdentityError
	}{
		"another serial": {sp.serial, gosnmp.OctetString, "ZA0001", powerctl.IdentityError{What: "serial", Want: "ZA4711", Got: "ZA0001"}},
		"renamed outlet": {sp.name, gosnmp.OctetString, "mail", powerctl.IdentityError{What: "outlet name", Want: "db1 psu a", Got: "mail"}},
		"another model":  {sysObjectID, gosnmp.ObjectIdentifier, e + "318.1.3.4.9", powerctl.IdentityError{What: "sysObjectID", Want: sp.object, Got: e + "318.1.3.4.9"}},
	} {
		for _, v := range versions() {
			t.Run(name+"/v"+string(v), func(t *testing.T) {
				a, o := startOne(t, sp, v, true, nil)
				a.d.Force(powerctl.Off) // the other device happens to be off
				a.put(c.oid, c.kind, c.v)
				refusesToSwitch(t, a, o, c.want)
			})
		}
	}
}

// only lets a fault happen to one kind of request.
func only(kind gosnmp.PDUType, f func(reply *gosnmp.SnmpPacket)) func(req, reply *gosnmp.SnmpPacket) bool {
	return func(req, reply *gosnmp.SnmpPacket) bool {
		if req.PDUType == kind && len(req.Variables) > 0 {
			f(reply)
		}
		return true
	}
}

func TestReplyThatIsNoAnswerIsNoAcknowledgementAndNoState(t *testing.T) {
	status := func(s gosnmp.SNMPError) func(*gosnmp.SnmpPacket) {
		return func(r *gosnmp.SnmpPacket) { r.Error, r.ErrorIndex = s, 1 }
	}
	faults := map[string]func(*gosnmp.SnmpPacket){
		"tooBig": func(r *gosnmp.SnmpPacket) { r.Error, r.Variables = gosnmp.TooBig, nil },
		"genErr": status(gosnmp.GenErr), "noAccess": status(gosnmp.NoAccess), "resourceUnavailable": status(gosnmp.ResourceUnavailable),
		"an echo of the request": func(r *gosnmp.SnmpPacket) { r.PDUType = gosnmp.SetRequest },
		"request id 0":           func(r *gosnmp.SnmpPacket) { r.RequestID = 0 },
		"another community": func(r *gosnmp.SnmpPacket) {
			if r.Community += "x"; r.Version == gosnmp.Version3 {
				r.RequestID = 0 // it has none
			}
		},
		"no variables":      func(r *gosnmp.SnmpPacket) { r.Variables = nil },
		"another variable":  func(r *gosnmp.SnmpPacket) { r.Variables = renamed(r.Variables) },
		"one variable more": func(r *gosnmp.SnmpPacket) { r.Variables = append(r.Variables, r.Variables...) },
		"another version": func(r *gosnmp.SnmpPacket) {
			r.Community = community
			r.Version = map[gosnmp.SnmpVersion]gosnmp.SnmpVersion{0: gosnmp.Version2c, 1: gosnmp.Version1, 3: gosnmp.Version2c}[r.Version]
		},
	}
	for name, f := range faults {
		for _, v := range versions() {
			t.Run(name+"/v"+string(v), func(t *testing.T) {
				a, o := start(t, v, true, nil)
				a.onReply(only(gosnmp.SetRequest, f))
				res, err := o.Off(t.Context())
				require.Error(t, err)
				require.NotErrorIs(t, err, powerctl.ErrNotSent, "the device had it")
				require.NotZero(t, res.Commanded)
				require.Zero(t, res.Acknowledged)
				require.Equal(t, []powerctl.State{powerctl.Off}, a.d.Commands())

				a.onReply(only(gosnmp.GetRequest, f))
				res, err = o.State(t.Context())
				require.Error(t, err)
				require.Equal(t, powerctl.Unknown, res.State)
				require.Zero(t, res.Observed)

				a.onReply(nil)
				res, err = o.State(t.Context())
				require.NoError(t, err)
				require.True(t, res.IsOff(), "the reading back finds it")
			})
		}
	}
}

func renamed(vars []gosnmp.SnmpPDU) []gosnmp.SnmpPDU {
	list := append([]gosnmp.SnmpPDU(nil), vars...)
	for i := range list {
		list[i].Name += ".1"
	}
	return list
}

func TestAcknowledgementOfAnotherValueIsAnError(t *testing.T) {
	for _, v := range versions() {
		a, o := start(t, v, true, nil)
		a.onReply(only(gosnmp.SetRequest, func(r *gosnmp.SnmpPacket) {
			r.Variables = []gosnmp.SnmpPDU{{Name: r.Variables[0].Name, Type: gosnmp.Integer, Value: 5}}
		}))
		res, err := o.Off(t.Context())
		require.ErrorIs(t, err, ErrBadReply)
		require.Zero(t, res.Acknowledged)
	}
}

func TestStatusOfTheDeviceIsTyped(t *testing.T) {
	a, o := start(t, V2c, true, nil)
	a.onReply(only(gosnmp.SetRequest, func(r *gosnmp.SnmpPacket) { r.Error, r.ErrorIndex = gosnmp.NotWritable, 1 }))
	_, err := o.Off(t.Context())
	var status *StatusError
	require.ErrorAs(t, err, &status)
	require.Equal(t, StatusError{Status: 17, OID: e + "318.1.1.12.3.3.1.1.4.5"}, *status)
	require.EqualError(t, err, `outlet "db1 psu a": off: have the command acknowledged: the device answered NotWritable (17) for .1.3.6.1.4.1.318.1.1.12.3.3.1.1.4.5`)
}

func TestPendingCommandIsCancelledFirst(t *testing.T) {
	for _, sp := range specs() {
		if len(sp.cancel) == 0 {
			continue
		}
		t.Run(sp.profile, func(t *testing.T) {
			a := startAgent(t, sp)
			o := outlet(t, config(t, sp, a.address(), V2c))
			tells := sp.pending != "" || sp.values[powerctl.Pending] != 0
			_, err := o.Off(t.Context())
			require.NoError(t, err)
			if tells {
				require.Equal(t, []write{sp.off}, a.writes(), "nothing was pending")
			} else {
				require.Equal(t, append(sp.cancel, sp.off), a.writes(), "it cannot say whether anything is pending")
			}
			a.d.Plant(powertest.PendingReads)
			before := len(a.writes())
			_, err = o.On(t.Context())
			require.NoError(t, err)
			require.Equal(t, append(sp.cancel, sp.on), a.writes()[before:])
		})
	}
}

func TestRefusedCancelOfAPendingCommandSendsNoOff(t *testing.T) {
	a, o := start(t, V2c, true, nil)
	a.d.Plant(powertest.PendingReads)
	a.onReply(only(gosnmp.SetRequest, func(r *gosnmp.SnmpPacket) { r.Error, r.ErrorIndex = gosnmp.GenErr, 1 }))
	_, err := o.Off(t.Context())
	require.ErrorIs(t, err, powerctl.ErrNotSent)
	require.Empty(t, a.d.Commands())
	require.Equal(t, a.spec.cancel, a.writes())
}

func TestAbsentVariablesAreUnknownWithTheirName(t *testing.T) {
	for v, want := range map[Version]string{V1: "state=NoSuchName; pending=Integer 2", V2c: "state=NoSuchInstance; pending=Integer 2", V3: "state=NoSuchInstance; pending=Integer 2"} {
		a, o := start(t, v, false, func(c *Config) { c.Index = "6"; c.Pin = Pin{} })
		a.put(a.spec.pending[:len(a.spec.pending)-1]+"6", gosnmp.Integer, 2)
		res, err := o.State(t.Context())
		require.NoError(t, err)
		require.Equal(t, powerctl.Unknown, res.State)
		require.Zero(t, res.Observed)
		require.Equal(t, want, res.Raw)
	}
}
