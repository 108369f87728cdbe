package check

import (
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/hostcheck"
	"plugpull/internal/hostcheck/drive"
	"plugpull/internal/hostcheck/raid"
	"plugpull/internal/hostcheck/runner"
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

// cacheWords are what the controller says of its drives' own caches, while the volume's policy has them off.
func (h *host) cacheWords(word string) {
	const all, drives = "storcli64 /c0/vall show all J nolog", "storcli64 /c0/eall/sall show all J nolog"
	h.commands[all] = strings.ReplaceAll(h.commands[all], `"Disk Cache Policy":"Enabled"`, `"Disk Cache Policy":"Disabled"`)
	h.commands[drives] = strings.ReplaceAll(h.commands[drives], `"Model Number":"SSD"`, `"Model Number":"SSD","Write Cache":"`+word+`"`)
}

func TestDrivesBehindAController(t *testing.T) {
	for name, c := range map[string]struct {
		answers func(*host)
		want    hostcheck.Level
		says    string
	}{
		"smartctl is not there": {func(*host) {}, hostcheck.Critical, "drive 252:0: smartctl -d megaraid,8 /dev/sda: smartctl is not installed (package smartmontools) (and 1 more)"},
		"smartctl may not": {func(h *host) {
			h.commands["smartctl -j -i -H -A -g wcache -d megaraid,8 /dev/sda"] = `{"smartctl":{"messages":[{"string":"Smartctl open device: /dev/sda failed: Permission denied"}]}}`
			h.answer("megaraid,9", "SER0000B", true, 100)
		}, hostcheck.Critical, "drive 252:0: smartctl -d megaraid,8 /dev/sda: smartctl may not ask /dev/sda: run as root"},
		"one hangs": {func(h *host) {
			h.hang = "smartctl -j -i -H -A -g wcache -d megaraid,8 /dev/sda"
			h.answer("megaraid,9", "SER0000B", true, 100)
		}, hostcheck.Critical, "drive 252:0: smartctl -d megaraid,8 /dev/sda: no answer within 5s"},
		"the controller says on and both say off": {func(h *host) {
			h.cacheWords("On")
			h.answer("megaraid,8", "SER0000A", false, 0)
			h.answer("megaraid,9", "SER0000B", false, 0)
		}, hostcheck.Unknown, "the controller says that the cache of drive 252:1 is on, and the drive that it is off"},
		"both are protected": {func(h *host) {
			h.answer("megaraid,8", "SER0000A", true, 100)
			h.answer("megaraid,9", "SER0000B", true, 100)
		}, hostcheck.OK, "the cache of drives of volume 0"},
		"one is not": {func(h *host) {
			h.answer("megaraid,8", "SER0000A", true, 100)
			h.answer("megaraid,9", "SER0000B", true, 0)
		}, hostcheck.Critical, "drive 252:1: says that its write cache is on, and shows no test of power-loss protection"},
		"the capacitors of one failed": {func(h *host) {
			h.answer("megaraid,8", "SER0000A", true, 100)
			h.answer("megaraid,9", "SER0000B", true, 1)
		}, hostcheck.Critical, "drive 252:1: attribute 175 Power_Loss_Cap_Test is 1, threshold 10: the test of its capacitors fails"},
		"another drive answers": {func(h *host) {
			h.answer("megaraid,8", "SER0000A", true, 100)
			h.answer("megaraid,9", "SER0000C", true, 100)
		}, hostcheck.Critical, "drive 252:1: smartctl -d megaraid,9 /dev/sda: a drive with the serial number SER0000C answers"},
		"the drives are swapped": {func(h *host) {
			h.answer("megaraid,9", "SER0000A", true, 100)
			h.answer("megaraid,8", "SER0000B", true, 100)
		}, hostcheck.OK, ""},
		"swapped, and a longer serial number": {func(h *host) {
			h.answer("megaraid,9", "SER0000A0000XYZ", true, 100)
			h.answer("megaraid,8", "SER0000B", true, 100)
		}, hostcheck.Critical, "drive 252:0: "},
		"one drive answers for two": {func(h *host) {
			h.answer("megaraid,8", "SER0000A", true, 100)
			h.answer("megaraid,9", "SER0000A", true, 100)
		}, hostcheck.Critical, "drive 252:0: more than one drive answers with its serial number (and 1 more)"},
		"a drive without a serial number": {func(h *host) { h.answer("megaraid,8", "SER0000A", true, 100); h.answer("megaraid,9", "", true, 100) },
			hostcheck.Critical, "write caches of its drives are on"},
		"a longer serial number": {func(h *host) {
			h.answer("megaraid,8", "SER0000A0000XYZ", true, 100)
			h.answer("megaraid,9", "ser0000b", true, 100)
		}, hostcheck.OK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // a drive that hangs is waited for
				h := twoSSDs()
				c.answers(h)
				r := Run(t.Context(), h, Ask{Folders: []string{"/data"}})
				var b strings.Builder
				require.NoError(t, r.WriteText(&b, true))
				require.Equal(t, c.want, r.Level, b.String())
				require.Contains(t, b.String(), c.says)
			})
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
	require.Len(t, drives.Findings, 2)
	assert.Contains(t, drives.Findings[0].Text, "drive 252:1 of storcli controller 0 (MegaRAID 9361-8i) (SSD) has failed")
	require.Len(t, drives.Perf, 2)
	assert.Equal(t, []any{"drive 252:0 of storcli controller 0 (MegaRAID 9361-8i) Unsafe_Shutdown_Count 174", 7.0}, []any{drives.Perf[0].Label, drives.Perf[0].Value})
	var b strings.Builder
	require.NoError(t, r.WriteMetrics(&b))
	assert.Contains(t, b.String(), `plugpull_drive_unsafe_shutdowns_total{kind="drives",label="drive 252:0 of storcli controller 0 (MegaRAID 9361-8i) Unsafe_Shutdown_Count 174"`)
}

// behinds are the addresses alone.
func behinds(list []address) (all []string) {
	for _, a := range list {
		all = append(all, a.behind)
	}
	return all
}

func TestAddresses(t *testing.T) {
	disks := []raid.Disk{{ID: "0,4", DeviceID: "10"}, {ID: "252:1", DeviceID: "-"}, {ID: "2,x", DeviceID: "12"}, {ID: "1,5"}}
	counted := []string{"cciss,0", "cciss,1", "cciss,2", "cciss,3", "cciss,4", "cciss,5", "cciss,6", "cciss,7"} // enclosures too
	for driver, want := range map[string][]string{
		"megaraid_sas": {"megaraid,10", "megaraid,12"},
		"hpsa":         counted,
		"smartpqi":     counted,
		"aacraid":      {"aacraid,0,0,4"}, // smartctl reaches channel 0 alone
		"mpi3mr":       nil,
		"":             nil,
	} {
		assert.Equal(t, want, behinds(addresses(raid.Controller{Number: 1, Disks: disks}, driver)), driver)
	}
	assert.Empty(t, addresses(raid.Controller{}, "hpsa"))
}

func TestWhoseSerialNumber(t *testing.T) {
	c := raid.Controller{Disks: []raid.Disk{{ID: "1", Serial: "6SJ0AAA1"}, {ID: "2", Serial: "6SJ0AAA12345"}, {ID: "3", Serial: "AB"}, {ID: "4", Serial: "0000000000"},
		{ID: "5", Serial: "0000000000"}, {ID: "6"}, {ID: "7", Serial: "TWIN0001"}, {ID: "7", Serial: "TWIN0002"}}}
	for _, w := range []struct {
		serial string
		own    int // the disk by whose address it answered
		want   string
	}{
		{"6SJ0AAA1", 0, "1"}, {" 6sj0aaa1 ", 0, "1"}, {"6SJ0AAA1", anyDrive, "1"}, {"6SJ0AAA1", 4, "1"},
		{"6SJ0AAA1XX", 0, "1"},
		{"6SJ0AAA1XX", 2, ""}, {"6SJ0AAA1XX", anyDrive, ""}, // drives of one batch begin alike
		{"6SJ0AAA12345", 1, ""}, // the whole of one, and the beginning of another
		{"AB", 2, "3"}, {"ABC", 2, ""}, {"0000000000", 3, ""}, {"", 5, ""}, {"6SJ0", 0, ""},
		{"TWIN0001", 6, ""}, // two disks have one ID
	} {
		id, ok := whose(c, w.serial, w.own)
		assert.Equal(t, w.want, id, "%v", w)
		assert.Equal(t, w.want != "", ok, "%v", w)
	}
}

// A Smart Array counts its drives and enclosures in an order of its own.
func TestDrivesThatAreCounted(t *testing.T) {
	h := newHost("")
	h.files["/sys/class/scsi_host/host0/proc_name"] = "hpsa\n"
	c := raid.Controller{Tool: "ssacli", Volumes: []raid.Volume{{ID: "1", Device: "/dev/sda", Members: []string{"1I:1:1", "1I:1:2"}}},
		Disks: []raid.Disk{{ID: "1I:1:1", Serial: "SER0000A"}, {ID: "1I:1:2", Serial: "SER0000B"}, {ID: "1I:1:3"}}}
	h.answer("cciss,1", "SER0000B", true, 100)
	h.answer("cciss,3", "SER0000A", true, 100)
	disk := &hostcheck.Node{Kind: "disk", Name: "sda", Facts: []hostcheck.Fact{{Key: "driver", Value: "hpsa"}}}
	said := members(t.Context(), h, c, []*hostcheck.Node{disk})
	for i, want := range []hostcheck.Cache{
		{Volatile: hostcheck.Yes, Protected: hostcheck.Yes}, {Volatile: hostcheck.Yes, Protected: hostcheck.Yes}, {},
	} {
		got := said.member(c.Disks[i])
		assert.NotEmpty(t, got.Why)
		got.Why = ""
		assert.Equal(t, want, got, c.Disks[i].ID)
	}
	assert.Contains(t, said.member(c.Disks[2]).Why, "lists no serial number")

	delete(h.commands, "smartctl -j -i -H -A -g wcache -d cciss,3 /dev/sda")
	said = members(t.Context(), h, c, []*hostcheck.Node{disk})
	assert.Equal(t, hostcheck.Cache{Why: "smartctl -d cciss,0 /dev/sda and the numbers after it: smartctl is not installed (package smartmontools)"}, said.member(c.Disks[0]))
	assert.Equal(t, hostcheck.Yes, said.member(c.Disks[1]).Protected)
}

// Where no tool names the disk of a controller, the drives are found through the disk that leads to them.
func TestDrivesThroughTheOtherController(t *testing.T) {
	h := newHost("")
	c := raid.Controller{Tool: "megacli", Volumes: []raid.Volume{{ID: "0", Members: []string{"a"}}}, Disks: []raid.Disk{{ID: "a", DeviceID: "5", Serial: "SER0000A"}}}
	h.commands["smartctl -j -i -H -A -g wcache -d megaraid,5 /dev/sdb"] = `{"device":{"protocol":"ATA"},"serial_number":"SER0000A","write_cache":{"enabled":false}}`
	h.answer("megaraid,5", "SER0000Z", true, 100)
	disk := func(name, driver string) *hostcheck.Node {
		return &hostcheck.Node{Kind: "disk", Name: name, Facts: []hostcheck.Fact{{Key: "driver", Value: driver}}}
	}
	said := members(t.Context(), h, c, []*hostcheck.Node{disk("sdc", "hpsa"), disk("sda", "megaraid_sas"), disk("sdb", "megaraid_sas")})
	assert.Equal(t, hostcheck.No, said.member(c.Disks[0]).Volatile)
	h.commands["smartctl -j -i -H -A -g wcache -d megaraid,5 /dev/sdd"] = h.commands["smartctl -j -i -H -A -g wcache -d megaraid,5 /dev/sdb"]
	said = members(t.Context(), h, c, []*hostcheck.Node{disk("sdd", "megaraid_sas"), disk("sdb", "megaraid_sas")})
	assert.Equal(t, hostcheck.No, said.member(c.Disks[0]).Volatile, "two volumes of one controller lead to one drive")
	said = members(t.Context(), h, c, []*hostcheck.Node{disk("sda", "megaraid_sas")})
	assert.Equal(t, hostcheck.Cache{Why: "smartctl -d megaraid,5 /dev/sda: a drive with the serial number SER0000Z answers"}, said.member(c.Disks[0]))
	said = members(t.Context(), h, c, nil)
	assert.Contains(t, said.member(c.Disks[0]).Why, "no disk of the host")
}

// Metrics and graphs tell layers apart by their kind and name.
func TestVolumesOfTwoControllers(t *testing.T) {
	v := raid.Volume{ID: "0", Members: []string{"252:0"}}
	one, two := volume(raid.Controller{Tool: "megacli", Number: 0}, v, raid.VolumeJudgement{}, answers{}), volume(raid.Controller{Tool: "megacli", Number: 1}, v, raid.VolumeJudgement{}, answers{})
	assert.NotEqual(t, one.Name, two.Name)
	assert.NotEqual(t, one.Below[0].Name, two.Below[0].Name)
}

// An NVMe drive whose backup failed and that says it has no volatile cache meant one that is saved.
func TestMemberWhoseBackupFailed(t *testing.T) {
	a := answers{drives: map[string]*drive.Drive{"x": {Protocol: drive.NVMe, WriteCache: hostcheck.No, Protection: hostcheck.No, Evidence: "e"}}}
	assert.Equal(t, hostcheck.Cache{Protected: hostcheck.No, Why: "e"}, a.member(raid.Disk{ID: "x"}))
}

// Saved outputs say the same as the host that they were saved from.
func TestDrivesFromSavedOutputs(t *testing.T) {
	for level, capacitors := range map[hostcheck.Level]int{hostcheck.OK: 100, hostcheck.Critical: 1} {
		h := twoSSDs()
		h.answer("megaraid,8", "SER0000A", true, 100)
		h.answer("megaraid,9", "SER0000B", true, capacitors)
		dir := filepath.Join(t.TempDir(), "saved")
		rec, err := runner.NewRecorder(h, dir)
		require.NoError(t, err)
		texts := []string{}
		want := Run(t.Context(), rec, Ask{Folders: []string{"/data"}})
		require.NoError(t, rec.Err())
		saved, err := runner.OpenSaved(dir)
		require.NoError(t, err)
		for _, r := range []*Result{want, Run(t.Context(), saved, Ask{Folders: []string{"/data"}})} {
			require.Equal(t, level, r.Level, r.Verdict)
			var b strings.Builder
			require.NoError(t, r.WriteText(&b, true))
			texts = append(texts, b.String())
		}
		require.Equal(t, texts[0], texts[1])
	}
}

// A disk that a RAID controller hands through is none of its volumes, and is asked itself.
func TestDiskThatAControllerHandsThrough(t *testing.T) {
	h := twoSSDs()
	maps.Copy(h.files, map[string]string{"/sys/block/sda/device/vendor": "ATA\n", "/sys/block/sda/device/model": "RAID SSD\n"})
	r := Run(t.Context(), h, Ask{Folders: []string{"/data"}})
	r.Tops[0].Walk(func(n *hostcheck.Node) { assert.NotEqual(t, "controller", n.Kind) })
}
