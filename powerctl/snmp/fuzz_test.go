package snmp

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/gosnmp/gosnmp"
	"github.com/stretchr/testify/require"

	"plugpull/powerctl"
)

// FuzzProfile: whatever is accepted has one on, one off and no forbidden order.
func FuzzProfile(f *testing.F) {
	f.Add([]byte(good))
	names, err := embedded.ReadDir("profiles")
	require.NoError(f, err)
	for _, n := range names {
		b, err := embedded.ReadFile("profiles/" + n.Name())
		require.NoError(f, err)
		f.Add(b)
		f.Add([]byte(strings.ReplaceAll(string(b), "off: 2", "off: 3")))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := parseProfile("fuzz", data)
		if err != nil {
			require.Nil(t, p)
			return
		}
		require.NotEqual(t, p.on, p.off)
		for _, c := range p.cancel {
			require.NotEqual(t, p.off, c)
			require.NotEqual(t, p.on, c)
		}
		for _, oid := range []template{p.on.oid, p.off.oid, p.state.oid} {
			require.True(t, oid.valid())
			require.NotEmpty(t, oid.letters(), "it means one outlet")
		}
		require.NoError(t, guarded(func(s *section) { guardCommands(s, p) }))
	})
}

// FuzzReply feeds the library's decoder and the mapping: nothing but an INTEGER
// of the listed value is off.
func FuzzReply(f *testing.F) {
	packet := func(v gosnmp.SnmpPDU) []byte {
		v.Name = ".1.3.6.1.4.1.318.1.1.12.3.5.1.1.4.5"
		b, err := (&gosnmp.SnmpPacket{Version: gosnmp.Version2c, Community: community, PDUType: gosnmp.GetResponse, RequestID: 7, Variables: []gosnmp.SnmpPDU{v}}).MarshalMsg()
		require.NoError(f, err)
		return b
	}
	for n := range 15 {
		v := specs()[0].nonsense(n)
		f.Add(packet(v))
	}
	f.Add(packet(gosnmp.SnmpPDU{Type: gosnmp.Integer, Value: 2}))
	five, err := hex.DecodeString("302f02010104096330" + "6d6d756e697479a21f0201070201000201003014301206072b060104018240020501000000020500")
	require.NoError(f, err)
	f.Add(five)
	list, err := Load()
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, data []byte) {
		reply, err := (&gosnmp.GoSNMP{Version: gosnmp.Version2c}).SnmpDecodePacket(data)
		if err != nil {
			return
		}
		for _, p := range list {
			for _, pdu := range reply.Variables {
				v := valueOf(pdu)
				_ = v.String()
				columns := []column{p.state}
				require.LessOrEqual(t, len(raw(columns, []value{v})), powerctl.MaxRaw)
				got := combine(columns, []value{v})
				if got == powerctl.Off {
					require.Equal(t, gosnmp.Integer, pdu.Type)
					require.Equal(t, off, p.state.values[pdu.Value.(int)])
				}
			}
		}
	})
}

// FuzzValue maps every type with every Go value that the library may hand over.
func FuzzValue(f *testing.F) {
	for kind := range 256 {
		f.Add(byte(kind), int64(2), []byte{2})
	}
	f.Fuzz(func(t *testing.T, kind byte, n int64, b []byte) {
		c := column{what: "state", values: map[int]reading{1: on, 2: off}}
		for _, v := range []any{int(n), n, uint(n), uint32(n), uint64(n), float32(n), float64(n), b, string(b), nil} {
			val := value{kind: gosnmp.Asn1BER(kind), v: v}
			if s := combine([]column{c}, []value{val}); s == powerctl.Off {
				require.Equal(t, gosnmp.Integer, gosnmp.Asn1BER(kind))
				require.Equal(t, 2, v)
			}
			_, _ = val.text()
			_, _ = val.oid()
		}
	})
}
