package snmp

import (
	"github.com/gosnmp/gosnmp"

	"plugpull/powerctl"
	"plugpull/powerctl/powertest"
)

// spec is one simulated outlet, written from the MIBs and not from the
// profiles, so that a slip in either shows.
type spec struct {
	profile, index, object string
	on, off                write
	cancel                 []write
	state                  string
	values                 map[powerctl.State]int // that the state variable has
	pending, fault         string                 // other variables: 1 is an objection, 2 is none
	name, serial           string
}

const e = ".1.3.6.1.4.1."

func specs() []spec {
	onOff := func(on, off int) map[powerctl.State]int {
		return map[powerctl.State]int{powerctl.On: on, powerctl.Off: off}
	}
	with := func(m map[powerctl.State]int, s powerctl.State, n int) map[powerctl.State]int { m[s] = n; return m }
	one := func(oid string, on, off int) (write, write) { return write{oid, on}, write{oid, off} }
	var list []spec
	add := func(s spec, on, off write) { s.on, s.off = on, off; list = append(list, s) }

	on, off := one(e+"318.1.1.12.3.3.1.1.4.5", 1, 2)
	add(spec{profile: "apc-rpdu", index: "5", object: e + "318.1.3.4.5", cancel: []write{{on.oid, 7}},
		state: e + "318.1.1.12.3.5.1.1.4.5", values: onOff(1, 2), pending: e + "318.1.1.12.3.5.1.1.5.5",
		name: e + "318.1.1.12.3.5.1.1.2.5", serial: e + "318.1.1.12.1.6.0"}, on, off)
	on, off = one(e+"318.1.1.26.9.2.4.1.5.17", 1, 2)
	add(spec{profile: "apc-rpdu2", index: "17", object: e + "318.1.3.4.6", cancel: []write{{on.oid, 8}},
		state: e + "318.1.1.26.9.2.3.1.5.17", values: onOff(2, 1), pending: e + "318.1.1.26.9.2.3.1.6.17",
		name: e + "318.1.1.26.9.2.3.1.3.17", serial: e + "318.1.1.26.2.1.9.1"}, on, off)
	eaton := e + "534.6.6.7.6.6.1."
	add(spec{profile: "eaton-epdu", index: "0.3", object: e + "534.6.6.7", cancel: []write{{eaton + "3.0.3", -1}, {eaton + "4.0.3", -1}},
		state: eaton + "2.0.3", values: with(onOff(1, 0), powerctl.Pending, 2),
		name: e + "534.6.6.7.6.1.1.3.0.3", serial: e + "534.6.6.7.1.2.1.4.0"}, write{eaton + "4.0.3", 0}, write{eaton + "3.0.3", 0})
	on, off = one(e+"318.1.1.4.4.2.1.3.2", 1, 2)
	add(spec{profile: "apc-masterswitch", index: "2", object: e + "318.1.3.4.2",
		state: on.oid, values: with(onOff(1, 2), powerctl.Unknown, 4), pending: e + "318.1.1.4.4.2.1.2.2",
		name: e + "318.1.1.4.4.2.1.4.2", serial: e + "318.1.1.4.1.5.0"}, on, off)
	on, off = one(e+"318.1.1.6.5.1.1.5.4.1.8", 1, 3)
	add(spec{profile: "apc-msp", index: "4.1.8", object: e + "318.1.3.4.4",
		state: e + "318.1.1.6.7.1.1.5.4.1.8", values: onOff(1, 2), name: e + "318.1.1.6.7.1.1.4.4.1.8"}, on, off)
	on, off = one(e+"13742.4.1.2.2.1.3.6", 1, 0)
	add(spec{profile: "raritan-px1", index: "6", object: e + "13742.4",
		state: on.oid, values: with(with(onOff(1, 0), powerctl.Fault, -1), powerctl.Pending, 2),
		name: e + "13742.4.1.2.2.1.2.6", serial: e + "13742.4.1.1.2.0"}, on, off)
	on, off = one(e+"13742.6.4.1.2.1.2.1.6", 1, 0)
	add(spec{profile: "raritan-px2", index: "6", object: e + "13742.6", state: e + "13742.6.4.1.2.1.3.1.6",
		values: with(onOff(7, 8), powerctl.Unknown, -1), name: e + "13742.6.3.5.3.1.3.1.6", serial: e + "13742.6.3.2.1.1.4.1"}, on, off)
	on, off = one(e+"1718.3.2.3.1.11.1.2.8", 1, 2)
	add(spec{profile: "servertech-sentry3", index: "1.2.8", object: e + "1718.3", state: e + "1718.3.2.3.1.5.1.2.8",
		values: with(with(with(onOff(1, 0), powerctl.Pending, 2), powerctl.Fault, 4), powerctl.Unknown, 6),
		name:   e + "1718.3.2.3.1.3.1.2.8", serial: e + "1718.3.2.1.1.6.1"}, on, off)
	on, off = one(e+"1718.4.1.8.5.1.2.1.1.8", 1, 2)
	add(spec{profile: "servertech-sentry4", index: "1.1.8", object: e + "1718.4", state: e + "1718.4.1.8.3.1.1.1.1.8",
		values: with(onOff(1, 2), powerctl.Unknown, 0), name: e + "1718.4.1.8.2.1.3.1.1.8", serial: e + "1718.4.1.2.2.1.4.1"}, on, off)
	on, off = one(e+"3808.1.1.3.3.3.1.1.4.7", 1, 2)
	add(spec{profile: "cyberpower-epdu", index: "7", object: e + "3808.1.1.3", cancel: []write{{on.oid, 7}}, state: e + "3808.1.1.3.3.5.1.1.4.7",
		values: onOff(1, 2), name: e + "3808.1.1.3.3.5.1.1.2.7", serial: e + "3808.1.1.3.1.6.0"}, on, off)
	on, off = one(e+"3808.1.1.6.6.1.5.1.5.7", 1, 2)
	add(spec{profile: "cyberpower-epdu2", index: "7", object: e + "3808.1.1.6", cancel: []write{{on.oid, 7}},
		state: e + "3808.1.1.6.6.1.4.1.5.7", values: onOff(1, 2), name: e + "3808.1.1.6.6.1.4.1.4.7"}, on, off)
	on, off = one(e+"21239.5.2.3.5.1.6.12", 2, 4)
	add(spec{profile: "geist-v5", index: "12", object: e + "21239.5.2", cancel: []write{{on.oid, 1}}, state: e + "21239.5.2.3.5.1.4.12",
		values: with(with(onOff(1, 2), powerctl.Pending, 3), powerctl.Unknown, 7), fault: e + "21239.5.2.3.5.1.5.12",
		name: e + "21239.5.2.3.5.1.3.12", serial: e + "21239.5.2.1.10.0"}, on, off)
	on, off = one(".1.3.6.1.2.1.105.1.1.1.3.1.24", 1, 2)
	add(spec{profile: "poe-rfc3621", index: "1.24", object: e + "9.1.1208", state: ".1.3.6.1.2.1.105.1.1.1.6.1.24",
		values: with(with(onOff(3, 1), powerctl.Fault, 4), powerctl.Pending, 2), name: ".1.3.6.1.2.1.105.1.1.1.9.1.24"}, on, off)
	return list
}

// tells says whether a variable says something about the state.
func (s spec) tells(oid string) bool { return oid == s.state || oid == s.pending || oid == s.fault }

// live reads the device and turns its answer into variables; nil is an error.
func (s spec) live(d *powertest.Device, asked bool) map[string]gosnmp.SnmpPDU {
	a := powertest.Answer{State: d.Contacts()}
	if asked {
		a = d.Read()
	}
	if a.Failed {
		return nil
	}
	n, ok := s.values[a.State]
	objectPending, objectFault := 2, 2
	switch {
	case !ok && a.State == powerctl.Pending && s.pending != "":
		n, objectPending = s.values[powerctl.Off], 1 // off so far, and about to change
	case !ok && a.State == powerctl.Fault && s.fault != "":
		n, objectFault = s.values[powerctl.Off], 1
	case !ok:
		n = 99
	}
	vars := map[string]gosnmp.SnmpPDU{s.state: {Name: s.state, Type: gosnmp.Integer, Value: n}}
	if a.Garbage > 0 {
		vars[s.state] = s.nonsense(a.Garbage)
	}
	for oid, v := range map[string]int{s.pending: objectPending, s.fault: objectFault} {
		if oid != "" {
			vars[oid] = gosnmp.SnmpPDU{Name: oid, Type: gosnmp.Integer, Value: v}
		}
	}
	return vars
}

// nonsense is a state variable that means nothing, some of it like off.
func (s spec) nonsense(n int) gosnmp.SnmpPDU {
	off := s.values[powerctl.Off]
	kinds := []gosnmp.SnmpPDU{
		{Type: gosnmp.OctetString, Value: []byte{byte(off)}},
		{Type: gosnmp.OctetString, Value: "off"},
		{Type: gosnmp.Gauge32, Value: uint32(off)},
		{Type: gosnmp.Counter32, Value: uint32(off)},
		{Type: gosnmp.TimeTicks, Value: uint32(off)},
		{Type: gosnmp.Counter64, Value: uint64(off)},
		{Type: gosnmp.Null},
		{Type: gosnmp.NoSuchObject},
		{Type: gosnmp.NoSuchInstance},
		{Type: gosnmp.EndOfMibView},
		{Type: gosnmp.Integer, Value: -off - 100},
		{Type: gosnmp.Integer, Value: off + 256},
		{Type: gosnmp.ObjectIdentifier, Value: ".1.3.6.1"},
		{Type: gosnmp.IPAddress, Value: "0.0.0.2"},
		{Name: s.state + ".1", Type: gosnmp.Integer, Value: off}, // of another outlet
	}
	v := kinds[n%len(kinds)]
	if v.Name == "" {
		v.Name = s.state
	}
	return v
}
