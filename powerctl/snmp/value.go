package snmp

import (
	"fmt"
	"strings"

	"github.com/gosnmp/gosnmp"

	"plugpull/powerctl"
)

// value is one variable as the device returned it.
type value struct {
	kind gosnmp.Asn1BER
	v    any
	// absent is the error that the device answered with instead of a value.
	absent string
}

func valueOf(p gosnmp.SnmpPDU) value { return value{kind: p.Type, v: p.Value} }

// integer accepts an INTEGER and no other type, since every state and pending
// variable of a profile is one. RFC 2578 limits it to 32 bits.
func (v value) integer() (int, bool) {
	n, ok := v.v.(int)
	if v.absent != "" || v.kind != gosnmp.Integer || !ok || int64(n) != int64(int32(n)) {
		return 0, false
	}
	return n, true
}

// text accepts an OCTET STRING. Devices pad with blanks and NULs.
func (v value) text() (string, bool) {
	b, ok := v.v.([]byte)
	if v.absent != "" || v.kind != gosnmp.OctetString || !ok {
		return "", false
	}
	s := strings.Trim(string(b), " \t\r\n\x00")
	return s, s != ""
}

// oid accepts an OBJECT IDENTIFIER.
func (v value) oid() (string, bool) {
	s, ok := v.v.(string)
	if v.absent != "" || v.kind != gosnmp.ObjectIdentifier || !ok || s == "" {
		return "", false
	}
	return dotted(s), true
}

// said is what the device calls itself, empty when it does not say.
func (v value) said() string {
	if v.absent != "" || v.v == nil {
		return ""
	}
	if text, ok := v.text(); ok || v.kind == gosnmp.OctetString {
		return text
	}
	if oid, ok := v.oid(); ok {
		return oid
	}
	return v.String()
}

// String is the raw evidence: type and value.
func (v value) String() string {
	switch {
	case v.absent != "":
		return v.absent
	case v.v == nil:
		return v.kind.String()
	}
	if b, ok := v.v.([]byte); ok {
		return fmt.Sprintf("%v %q", v.kind, b[:min(len(b), 64)])
	}
	return fmt.Sprintf("%v %v", v.kind, v.v)
}

// judge says what a variable means; a value that is not listed means unknown.
func (c column) judge(v value) reading {
	n, ok := v.integer()
	if !ok {
		return unknown
	}
	return c.values[n]
}

// combine is the state of an outlet from all its variables, the first of which
// is the state. Any objection wins: on and off need every other variable clear.
func combine(columns []column, values []value) powerctl.State {
	if len(columns) == 0 || len(columns) != len(values) {
		return powerctl.Unknown
	}
	seen := map[reading]bool{}
	for i, c := range columns {
		r := c.judge(values[i])
		if i > 0 && (r == on || r == off) || i == 0 && r == noObjection {
			r = unknown
		}
		seen[r] = true
	}
	switch {
	case seen[fault]:
		return powerctl.Fault
	case seen[unknown]:
		return powerctl.Unknown
	case seen[pending]:
		return powerctl.Pending
	case seen[on]:
		return powerctl.On
	case seen[off]:
		return powerctl.Off
	}
	return powerctl.Unknown
}

// raw puts the evidence into one line.
func raw(columns []column, values []value) string {
	parts := make([]string, len(columns))
	for i, c := range columns {
		parts[i] = c.what + "=" + values[i].String()
	}
	line := strings.Join(parts, "; ")
	return line[:min(len(line), powerctl.MaxRaw)]
}
