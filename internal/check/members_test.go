package check

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/hostcheck"
	"plugpull/internal/hostcheck/raid"
)

// twoSSDs is a machine whose disk is a write-through mirror of two SSDs with their caches on, as storcli tells it.
func twoSSDs() *host {
	h := newHost("NRWT")
	delete(h.files, "/sys/block/sda/mq/0/cpu_list")
	h.commands["storcli64 /call show J nolog"] = `{"Controllers":[{"Command Status":{"Controller":0,"Status":"Success"},"Response Data":{"Product Name":"MegaRAID 9361-8i","Serial Number":"SK00000000",
"Virtual Drives":1,"VD LIST":[{"DG/VD":"0/0","TYPE":"RAID1","State":"Optl","Access":"RW","Consist":"Yes","Cache":"NRWTD","Cac":"-","sCC":"ON","Size":"100.0 GB","Name":""}],
"Physical Drives":2,"PD LIST":[{"EID:Slt":"252:0","DID":8,"State":"Onln","DG":0,"Model":"SSD"},{"EID:Slt":"252:1","DID":9,"State":"Onln","DG":0,"Model":"SSD"}]}}]}`
	h.commands["storcli64 /c0/vall show all J nolog"] = `{"Controllers":[{"Command Status":{"Controller":0,"Status":"Success"},"Response Data":{
"/c0/v0":[{"DG/VD":"0/0","TYPE":"RAID1","State":"Optl","Cache":"NRWTD","Size":"100.0 GB","Name":""}],
"PDs for VD 0":[{"EID:Slt":"252:0","DID":8,"State":"Onln","DG":0,"Model":"SSD"},{"EID:Slt":"252:1","DID":9,"State":"Onln","DG":0,"Model":"SSD"}],
"VD0 Properties":{"Disk Cache Policy":"Enabled","OS Drive Name":"/dev/sda","Write Cache(initial setting)":"WriteThrough"}}}]}`
	h.commands["storcli64 /c0/eall/sall show all J nolog"] = `{"Controllers":[{"Command Status":{"Controller":0,"Status":"Success"},"Response Data":{
"Drive /c0/e252/s0":[{"EID:Slt":"252:0","DID":8,"State":"Onln","DG":0,"Model":"SSD"}],
"Drive /c0/e252/s0 - Detailed Information":{"Drive /c0/e252/s0 Device attributes":{"SN":"  SER0000A  ","Model Number":"SSD"}},
"Drive /c0/e252/s1":[{"EID:Slt":"252:1","DID":9,"State":"Onln","DG":0,"Model":"SSD"}],
"Drive /c0/e252/s1 - Detailed Information":{"Drive /c0/e252/s1 Device attributes":{"SN":"SER0000B","Model Number":"SSD"}}}}]}`
	for kind, name := range map[string]string{"bbu": "Battery", "cv": "Cachevault"} {
		h.commands["storcli64 /c0/"+kind+" show all J nolog"] = `{"Controllers":[{"Command Status":{"Controller":0,"Status":"Failure","Description":"None",
"Detailed Status":[{"Ctrl":0,"Status":"Failed","Property":"-","ErrMsg":"` + name + ` is absent!","ErrCd":255}]}}]}`
	}
	return h
}

// answer is smartctl's of a drive: capacitors at 100 pass their test, at 1 they fail it, at 0 there are none.
func (h *host) answer(behind, serial string, cacheOn bool, capacitors int) {
	attribute := ""
	if capacitors > 0 {
		attribute = fmt.Sprintf(`{"id":175,"name":"Power_Loss_Cap_Test","value":%d,"thresh":10,"raw":{"value":1}},`, capacitors)
	}
	h.commands["smartctl -j -i -H -A -g wcache -d "+behind+" /dev/sda"] = fmt.Sprintf(`{"device":{"protocol":"ATA"},"model_name":"SSD","serial_number":%q,"firmware_version":"F1",
"write_cache":{"enabled":%t},"ata_smart_attributes":{"table":[%s{"id":174,"name":"Unsafe_Shutdown_Count","value":100,"thresh":0,"raw":{"value":7}}]}}`, serial, cacheOn, attribute)
}

func TestDrivesBehindAController(t *testing.T) {
	for name, c := range map[string]struct {
		answers func(*host)
		want    hostcheck.Level
		says    string
	}{
		"nobody can ask them": {func(*host) {}, hostcheck.Critical, "write caches of its drives are on"},
		"both are protected": {func(h *host) {
			h.answer("megaraid,8", "SER0000A", true, 100)
			h.answer("megaraid,9", "SER0000B", true, 100)
		}, hostcheck.OK, "the cache of drives of volume 0"},
		"one is not": {func(h *host) {
			h.answer("megaraid,8", "SER0000A", true, 100)
			h.answer("megaraid,9", "SER0000B", true, 0)
		}, hostcheck.Critical, "write caches of its drives are on"},
		"the capacitors of one failed": {func(h *host) {
			h.answer("megaraid,8", "SER0000A", true, 100)
			h.answer("megaraid,9", "SER0000B", true, 1)
		}, hostcheck.Critical, "of its drives are on"},
		"another drive answers": {func(h *host) {
			h.answer("megaraid,8", "SER0000A", true, 100)
			h.answer("megaraid,9", "SER0000C", true, 100)
		}, hostcheck.Critical, "write caches of its drives are on"},
		"one drive answers for two": {func(h *host) {
			h.answer("megaraid,8", "SER0000A", true, 100)
			h.answer("megaraid,9", "SER0000A", true, 100)
		}, hostcheck.Critical, "write caches of its drives are on"},
		"a drive without a serial number": {func(h *host) { h.answer("megaraid,8", "SER0000A", true, 100); h.answer("megaraid,9", "", true, 100) },
			hostcheck.Critical, "write caches of its drives are on"},
		"a longer serial number": {func(h *host) {
			h.answer("megaraid,8", "SER0000A0000XYZ", true, 100)
			h.answer("megaraid,9", "ser0000b", true, 100)
		}, hostcheck.OK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := twoSSDs()
			c.answers(h)
			r := Run(t.Context(), h, Ask{Folders: []string{"/data"}})
			var b strings.Builder
			require.NoError(t, r.WriteText(&b, true))
			require.Equal(t, c.want, r.Level, b.String())
			require.Contains(t, b.String(), c.says)
		})
	}
}

// What the drives say is in the report, and a failed protection is a finding of its own.
func TestDrivesInTheReport(t *testing.T) {
	h := twoSSDs()
	h.answer("megaraid,8", "SER0000A", true, 100)
	h.answer("megaraid,9", "SER0000B", true, 1)
	r := Run(t.Context(), h, Ask{Folders: []string{"/data"}})
	var drives *hostcheck.Node
	r.Tops[0].Walk(func(n *hostcheck.Node) {
		if n.Kind == "drives" {
			drives = n
		}
	})
	require.NotNil(t, drives)
	assert.Contains(t, value(drives, "drive 252:0"), "serial SER0000A, firmware F1, write cache on: yes, power-loss protection: yes")
	require.Len(t, drives.Findings, 1)
	assert.Contains(t, drives.Findings[0].Text, "drive 252:1 of storcli controller 0 (MegaRAID 9361-8i) (SSD) has failed")
	require.Len(t, drives.Perf, 2)
	assert.Equal(t, []any{"drive 252:0 of storcli controller 0 (MegaRAID 9361-8i) Unsafe_Shutdown_Count", 7.0}, []any{drives.Perf[0].Label, drives.Perf[0].Value})
}

func TestAddresses(t *testing.T) {
	disks := []raid.Disk{{ID: "0,4", DeviceID: "10"}, {ID: "252:1", DeviceID: "-"}, {ID: "2,x", DeviceID: "12"}}
	for driver, want := range map[string][]string{
		"megaraid_sas": {"megaraid,10", "megaraid,12"},
		"hpsa":         {"cciss,0", "cciss,1", "cciss,2"},
		"smartpqi":     {"cciss,0", "cciss,1", "cciss,2"},
		"aacraid":      {"aacraid,0,0,4"},
		"mpi3mr":       nil,
		"":             nil,
	} {
		assert.Equal(t, want, addresses(raid.Controller{Number: 1, Disks: disks}, driver), driver)
	}
}

func TestWhoseSerialNumber(t *testing.T) {
	c := raid.Controller{Disks: []raid.Disk{{ID: "1", Serial: "6SJ0AAA1"}, {ID: "2", Serial: "6SJ0AAA12345"}, {ID: "3", Serial: "AB"}, {ID: "4", Serial: "0000000000"}, {ID: "5", Serial: "0000000000"}, {ID: "6"}}}
	for serial, want := range map[string]string{
		"6SJ0AAA1": "1", " 6sj0aaa1 ": "1", "6SJ0AAA1XX": "1",
		"6SJ0AAA12345": "", // the whole of one, and the beginning of another
		"AB":           "3", "ABC": "", "0000000000": "", "": "", "6SJ0": "",
	} {
		id, ok := memberOf(c, serial)
		assert.Equal(t, want, id, serial)
		assert.Equal(t, want != "", ok, serial)
	}
}

// A disk that a RAID controller hands through is none of its volumes, and is asked itself.
func TestDiskThatAControllerHandsThrough(t *testing.T) {
	h := twoSSDs()
	maps.Copy(h.files, map[string]string{"/sys/block/sda/device/vendor": "ATA\n", "/sys/block/sda/device/model": "RAID SSD\n"})
	r := Run(t.Context(), h, Ask{Folders: []string{"/data"}})
	r.Tops[0].Walk(func(n *hostcheck.Node) { assert.NotEqual(t, "controller", n.Kind) })
}
