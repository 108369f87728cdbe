package drive

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/hostcheck"
)

const (
	unknown = hostcheck.NotKnown
	no      = hostcheck.No
	yes     = hostcheck.Yes
)

func p(n uint64) *uint64 { return &n }

const ataJSON = `{"json_format_version":[1,0],"smartctl":{"exit_status":0},"device":{"name":"/dev/sda","protocol":"ATA"},
"model_name":"EXAMPLE SSD 480","serial_number":"EX0001","firmware_version":"F1","write_cache":{"enabled":true},
"ata_smart_attributes":{"table":[
 {"id":12,"name":"Power_Cycle_Count","value":100,"worst":100,"thresh":0,"raw":{"value":26,"string":"26"}},
 {"id":174,"name":"Unsafe_Shutdown_Count","value":100,"worst":100,"thresh":0,"raw":{"value":14,"string":"14"}},
 {"id":175,"name":"Power_Loss_Cap_Test","value":CAP,"worst":100,"thresh":10,"raw":{"value":2533275471,"string":"633 (237 447)"}},
 {"id":192,"name":"Unsafe_Shutdown_Count","value":100,"worst":100,"thresh":0,"raw":{"value":14,"string":"14"}}]},
"power_cycle_count":26}`

func ata(capTest string) string {
	b := []byte(ataJSON)
	for i := range b[:len(b)-3] {
		if string(b[i:i+3]) == "CAP" {
			return string(b[:i]) + capTest + string(b[i+3:])
		}
	}
	panic("no CAP")
}

func TestParseSmartctl(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want Smartctl
	}{
		"nothing": {`{}`, Smartctl{}},
		"SCSI, which has no write cache in JSON": {`{"device":{"protocol":"SCSI"},"scsi_vendor":"EXAMPLE","scsi_product":"SAS600","scsi_revision":"A1","serial_number":"S1"}`,
			Smartctl{Protocol: SCSI, Vendor: "EXAMPLE", Model: "SAS600", Firmware: "A1", Serial: "S1"}},
		"NVMe": {`{"device":{"protocol":"NVMe"},"model_name":"EXAMPLE NV","nvme_smart_health_information_log":{"critical_warning":0,"unsafe_shutdowns":8,"power_cycles":22},"power_cycle_count":22}`,
			Smartctl{Protocol: NVMe, Model: "EXAMPLE NV", UnsafeShutdowns: []Counter{{Name: "unsafe_shutdowns", Value: 8}}, PowerCycles: p(22)}},
		"NVMe whose backup failed": {`{"device":{"protocol":"NVMe"},"nvme_smart_health_information_log":{"critical_warning":20}}`,
			Smartctl{Protocol: NVMe, Protection: no, Evidence: "critical warning 0x14: the backup of its volatile memory has failed"}},
		"NVMe with other warnings": {`{"nvme_smart_health_information_log":{"critical_warning":15}}`, Smartctl{}},
		"impossible numbers":       {`{"nvme_smart_health_information_log":{"critical_warning":4112,"unsafe_shutdowns":-1,"power_cycles":1.5},"power_cycle_count":99999999999}`, Smartctl{}},
		"fields of other kinds": {`{"device":7,"smartctl":[],"model_name":["x"],"write_cache":{"enabled":"yes"},"ata_smart_attributes":{"table":{"id":1}},"serial_number":"S1"}`,
			Smartctl{Serial: "S1"}},
		"a write cache that is neither on nor off": {`{"write_cache":{"enabled":null}}`, Smartctl{}},
		"one that is a number":                     {`{"write_cache":{"enabled":0}}`, Smartctl{}},
		"write cache off":                          {`{"write_cache":{"available":true,"enabled":false}}`, Smartctl{WriteCache: no}},
		"no permission": {`{"smartctl":{"exit_status":2,"messages":[{"string":"Smartctl open device: /dev/sda failed: Permission denied","severity":"error"}]}}`,
			Smartctl{Denied: true, Messages: []string{"Smartctl open device: /dev/sda failed: Permission denied"}}},
		"a warning before it": {"smartctl 7.3 something\n{\"serial_number\":\"S\\n1\\u0000\"}", Smartctl{Serial: "S 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseSmartctl([]byte(c.in))
			require.NoError(t, err)
			got.Attributes = nil
			assert.Equal(t, &c.want, got)
		})
	}
	for _, bad := range []string{"", "{", "null garbage", "smartctl: command line error"} {
		_, err := ParseSmartctl([]byte(bad))
		require.Error(t, err, bad)
	}
}

func TestAttributesCountByIDAndName(t *testing.T) {
	parse := func(rows string) *Smartctl {
		s, err := ParseSmartctl([]byte(`{"device":{"protocol":"ATA"},"ata_smart_attributes":{"table":[` + rows + `]}}`))
		require.NoError(t, err)
		return s
	}
	for name, c := range map[string]struct {
		row  string
		want []Counter
	}{
		"174":                             {`{"id":174,"name":"Unexpect_Power_Loss_Ct","value":100,"raw":{"value":3}}`, []Counter{{174, "Unexpect_Power_Loss_Ct", 3}}},
		"192 of an SSD":                   {`{"id":192,"name":"Unsafe_Shutdown_Count","value":100,"raw":{"value":3}}`, []Counter{{192, "Unsafe_Shutdown_Count", 3}}},
		"192 of a disk":                   {`{"id":192,"name":"Power-Off_Retract_Count","value":100,"raw":{"value":3}}`, nil},
		"235":                             {`{"id":235,"name":"POR_Recovery_Count","value":100,"raw":{"value":1}}`, []Counter{{235, "POR_Recovery_Count", 1}}},
		"the name at another id":          {`{"id":5,"name":"Unsafe_Shutdown_Count","value":100,"raw":{"value":3}}`, nil},
		"the id of an unknown name":       {`{"id":174,"name":"Unknown_Attribute","value":100,"raw":{"value":3}}`, nil},
		"numbers packed into one":         {`{"id":174,"name":"Unsafe_Shutdown_Count","value":100,"raw":{"value":281474976710655}}`, nil},
		"without a raw value":             {`{"id":174,"name":"Unsafe_Shutdown_Count","value":100}`, nil},
		"as text and as float":            {`{"id":"174","name":"Unsafe_Shutdown_Count","value":100,"raw":{"value":3.0}}`, []Counter{{174, "Unsafe_Shutdown_Count", 3}}},
		"an id that is none":              {`{"id":430,"name":"Unsafe_Shutdown_Count","raw":{"value":3}}`, nil},
		"beside one that is out of order": {`7,{"id":235,"name":"POR_Recovery_Count","raw":{"value":1}}`, []Counter{{235, "POR_Recovery_Count", 1}}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, parse(c.row).UnsafeShutdowns) })
	}

	for name, c := range map[string]struct {
		value string
		want  hostcheck.Tri
	}{
		"passes": {"100", yes}, "fails": {"1", no}, "at the threshold": {"10", no}, "too hot to tell": {"11", unknown},
		"not said": {"null", unknown}, "zero": {"0", unknown}, "more than can be": {"253", unknown},
	} {
		t.Run("capacitor test "+name, func(t *testing.T) {
			s, err := ParseSmartctl([]byte(ata(c.value)))
			require.NoError(t, err)
			assert.Equal(t, c.want, s.Protection)
			assert.Equal(t, c.want != unknown, s.Evidence != "")
			assert.Equal(t, []Counter{{174, "Unsafe_Shutdown_Count", 14}, {192, "Unsafe_Shutdown_Count", 14}}, s.UnsafeShutdowns)
		})
	}
	other := parse(`{"id":175,"name":"Program_Fail_Count_Chip","value":100,"thresh":10,"raw":{"value":0}}`)
	assert.Equal(t, unknown, other.Protection, "175 is something else on other drives")
}

func TestParseWriteCaches(t *testing.T) {
	for name, c := range map[string]struct {
		parse func([]byte) hostcheck.Tri
		in    string
		want  hostcheck.Tri
	}{
		"smartctl SCSI on":            {ParseSmartctlText, "Read Cache is:        Enabled\nWriteback Cache is:   Enabled\n", yes},
		"smartctl SCSI off":           {ParseSmartctlText, "Read Cache is:        Enabled\nWriteback Cache is:   Disabled\n", no},
		"smartctl SCSI no answer":     {ParseSmartctlText, "Read Cache is:        Unavailable\nWriteback Cache is:   Unavailable\n", unknown},
		"smartctl ATA":                {ParseSmartctlText, "Write cache is:   Enabled\n", yes},
		"smartctl other":              {ParseSmartctlText, "Wt Cache Reorder: Enabled\nWrite SCT (Get) Feature Control Command: Disabled\n", unknown},
		"smartctl twice":              {ParseSmartctlText, "Write cache is: Enabled\nWrite cache is: Disabled\n", unknown},
		"hdparm on":                   {ParseHdparm, "\n/dev/sda:\n write-caching =  1 (on)\n", yes},
		"hdparm off":                  {ParseHdparm, "\n/dev/sda:\n write-caching =  0 (off)\n", no},
		"hdparm not supported":        {ParseHdparm, "\n/dev/sda:\n write-caching = not supported\n", unknown},
		"hdparm that would set it":    {ParseHdparm, " setting drive write-caching to 0 (off)\n", unknown},
		"hdparm odd":                  {ParseHdparm, " write-caching = 1 (off)\n", unknown},
		"sdparm on":                   {ParseSdparm, "    /dev/sda: EXAMPLE   SAS600            A1\nWCE           1  [cha: y, def:  0, sav:  0]\n", yes},
		"sdparm off":                  {ParseSdparm, "    /dev/sda: EXAMPLE   SAS600            A1\nWCE           0  [cha: y, def:  1, sav:  1]\n", no},
		"sdparm short":                {ParseSdparm, "WCE 1\n", yes},
		"sdparm other":                {ParseSdparm, "RCD 1\nWCE\nWCE 2\n", unknown},
		"nvme on":                     {ParseNVMeFeature, "get-feature:0x06 (Volatile Write Cache), Current value:0x00000001\n", yes},
		"nvme old off":                {ParseNVMeFeature, "get-feature:0x6 (Volatile Write Cache), Current value:00000000\n", no},
		"nvme short":                  {ParseNVMeFeature, "get-feature:0x6 (Volatile Write Cache), Current value:0x000001\n", yes},
		"nvme -H":                     {ParseNVMeFeature, "get-feature:0x06 (Volatile Write Cache), Current value:0x00000001\n\tVolatile Write Cache Enable (WCE): Enabled\n", yes},
		"nvme of another feature":     {ParseNVMeFeature, "get-feature:0x07 (Number of Queues), Current value:0x00000001\n", unknown},
		"nvme the default only":       {ParseNVMeFeature, "get-feature:0x06 (Volatile Write Cache), Default value:0x00000001\n", unknown},
		"nvme impossible":             {ParseNVMeFeature, "get-feature:0x06 (Volatile Write Cache), Current value:0xffffffff\n", unknown},
		"nvme an error":               {ParseNVMeFeature, "NVMe status: Invalid Field in Command(0x2002)\n", unknown},
		"smartctl nothing at all":     {ParseSmartctlText, "", unknown},
		"hdparm nothing at all":       {ParseHdparm, "", unknown},
		"sdparm nothing at all":       {ParseSdparm, "", unknown},
		"nvme feature nothing at all": {ParseNVMeFeature, "", unknown},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, c.parse([]byte(c.in))) })
	}
}

func TestParseNVMe(t *testing.T) {
	for in, want := range map[string]hostcheck.Tri{
		`{"vwc":0}`: no, `{"vwc":1}`: yes, `{"vwc":7}`: yes, `{"vwc":6}`: no, `{"vwc":1.0}`: yes, `{"vwc":"0x1"}`: yes, `{"vwc":"0"}`: no,
		`{}`: unknown, `{"vwc":-1}`: unknown, `{"vwc":"on"}`: unknown, `{"vwc":256}`: unknown, `{"vwc":null}`: unknown, `{"vwc":[0]}`: unknown, `{"vwc":0.5}`: unknown,
	} {
		id, err := ParseNVMeID([]byte(in))
		require.NoError(t, err, in)
		assert.Equal(t, want, id.VolatileCache, in)
	}
	id, err := ParseNVMeID([]byte(`{"vid":1,"sn":"NV0001              ","mn":"EXAMPLE NV                              ","fr":"F2      "}`))
	require.NoError(t, err)
	assert.Equal(t, &NVMeID{"EXAMPLE NV", "NV0001", "F2", unknown}, id)
	_, err = ParseNVMeID([]byte("Usage: nvme id-ctrl <device>"))
	require.Error(t, err)

	for in, want := range map[string]hostcheck.Tri{
		`{"critical_warning":0}`: unknown, `{"critical_warning":16}`: no, `{"critical_warning":"0x10"}`: no,
		`{"critical_warning":{"value":16,"vmbu_failed":1}}`: no, `{"critical_warning":{"value":0,"vmbu_failed":0}}`: unknown, `{"critical_warning":{"value":{"value":16}}}`: unknown,
	} {
		h, err := ParseNVMeHealth([]byte(in))
		require.NoError(t, err, in)
		assert.Equal(t, want, h.Protection, in)
	}
	h, err := ParseNVMeHealth([]byte(`{"critical_warning":{"value":0},"unsafe_shutdowns":"12","power_cycles":30.0}`))
	require.NoError(t, err)
	assert.Equal(t, []Counter{{Name: "unsafe_shutdowns", Value: 12}}, h.UnsafeShutdowns)
	assert.Equal(t, p(30), h.PowerCycles)
	_, err = ParseNVMeHealth(nil)
	require.Error(t, err)
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(ata("100")))
	f.Add([]byte(`{"vwc":1,"critical_warning":{"value":"0x10"},"unsafe_shutdowns":1e3}`))
	f.Add([]byte("get-feature:0x06 (Volatile Write Cache), Current value:0x00000001\nwrite-caching = 1 (on)\nWCE 1\nWriteback Cache is: Enabled\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, parse := range []func([]byte) hostcheck.Tri{ParseSmartctlText, ParseHdparm, ParseSdparm, ParseNVMeFeature} {
			parse(b)
		}
		_, _ = ParseNVMeID(b)
		_, _ = ParseNVMeHealth(b)
		s, err := ParseSmartctl(b)
		if err != nil {
			return
		}
		for _, c := range s.UnsafeShutdowns {
			if c.Value > most {
				t.Fatalf("an impossible counter: %+v", c)
			}
		}
		d := &Drive{Device: "sda", WriteCache: s.WriteCache, Protection: s.Protection, Evidence: s.Evidence}
		_, findings := d.Judge()
		if s.WriteCache == unknown && s.Protection == unknown && findings[0].Level != hostcheck.Unknown {
			t.Fatalf("%v from what is not known", findings[0])
		}
	})
}
