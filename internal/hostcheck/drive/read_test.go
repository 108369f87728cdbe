package drive

import (
	"context"
	"io/fs"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/hostcheck"
)

// answers is a host: files by their path, commands by their line. An answer of a command that begins with
// "! " is on stderr, with exit status 1; a program without an answer is not installed.
type answers map[string]string

func (a answers) Run(_ context.Context, name string, args ...string) (hostcheck.Output, error) {
	text, ok := a[hostcheck.CommandLine(name, args...)]
	if !ok {
		return hostcheck.Output{}, hostcheck.ErrNotInstalled
	}
	if said, failed := strings.CutPrefix(text, "! "); failed {
		return hostcheck.Output{Stderr: []byte(said), Code: 1}, nil
	}
	out := hostcheck.Output{Stdout: []byte(text)}
	if strings.Contains(text, `"exit_status":2`) {
		out.Code = 2
	}
	return out, nil
}

func (a answers) ReadFile(_ context.Context, path string) ([]byte, error) {
	text, ok := a[strings.TrimPrefix(path, "/sys/class/block/")]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return []byte(text), nil
}

func (a answers) ReadDir(context.Context, string) ([]string, error) { return nil, fs.ErrNotExist }
func (a answers) RealPath(context.Context, string) (string, error)  { return "", fs.ErrNotExist }
func (a answers) Describe() string                                  { return "test" }
func (a answers) with(key, value string) answers                    { return a.merge(answers{key: value}) }
func (a answers) merge(b answers) answers                           { return merge(merge(answers{}, a), b) }
func merge(into, from answers) answers {
	for k, v := range from {
		into[k] = v
	}
	return into
}

const (
	smartSDA  = "smartctl -j -i -H -A -g wcache /dev/sda"
	smartNVMe = "smartctl -j -i -H -A -g wcache /dev/nvme0n1"
	idNVMe    = "nvme id-ctrl /dev/nvme0n1 -o json"
	featNVMe  = "nvme get-feature /dev/nvme0n1 -f 6"
	logNVMe   = "nvme smart-log /dev/nvme0n1 -o json"
)

func TestReadAndJudge(t *testing.T) {
	sata := answers{"sda/device/vendor": "ATA     \n", "sda/device/model": "EXAMPLE SSD 480 \n", "sda/device/rev": "F1\n", "sda/queue/fua": "0\n"}
	back, through := sata.with("sda/queue/write_cache", "write back\n"), sata.with("sda/queue/write_cache", "write through\n")
	sas := answers{"sda/device/vendor": "EXAMPLE\n", "sda/device/model": "SAS600\n", "sda/queue/write_cache": "write back\n",
		smartSDA: `{"device":{"protocol":"SCSI"},"scsi_vendor":"EXAMPLE","scsi_product":"SAS600","serial_number":"S1"}`}
	nvme := answers{"nvme0n1/device/model": "EXAMPLE NV\n", "nvme0n1/device/serial": "NV0001\n", "nvme0n1/device/firmware_rev": "F2\n", "nvme0n1/queue/write_cache": "write back\n"}
	nvmeOff := nvme.merge(answers{"nvme0n1/queue/write_cache": "write through\n", idNVMe: `{"vwc":0}`})
	denied := `{"smartctl":{"exit_status":2,"messages":[{"string":"Smartctl open device: /dev/sda failed: Permission denied"}]}}`
	type want struct {
		level   hostcheck.Level
		code    string
		cache   hostcheck.Cache
		says    string
		problem int
	}
	for name, c := range map[string]struct {
		host   answers
		device string
		want   want
	}{
		"on, flushed":                              {back.with(smartSDA, ata("11")), "sda", want{hostcheck.OK, CodeCacheFlushed, hostcheck.Cache{Volatile: yes, Flushes: yes}, "only a pulled plug", 0}},
		"on, not flushed":                          {through.with(smartSDA, ata("11")), "sda", want{hostcheck.Critical, CodeCacheNotFlushed, hostcheck.Cache{Volatile: yes, Flushes: no}, "hdparm -W 0 /dev/sda", 0}},
		"on, not flushed, protected":               {through.with(smartSDA, ata("100")), "sda", want{hostcheck.OK, CodeCacheProtected, hostcheck.Cache{Volatile: yes, Protected: yes, Flushes: no}, "175 Power_Loss_Cap_Test", 0}},
		"on, flushed, protection failed":           {back.with(smartSDA, ata("1")), "sda", want{hostcheck.Critical, CodeProtectionFailed, hostcheck.Cache{Volatile: yes, Protected: no, Flushes: yes}, "replace", 0}},
		"off, protection failed":                   {back.with(smartSDA, strings.Replace(ata("1"), `"enabled":true`, `"enabled":false`, 1)), "sda", want{hostcheck.Warning, CodeProtectionFailed, hostcheck.Cache{Volatile: no, Protected: no, Flushes: yes}, "replace", 0}},
		"off, not flushed":                         {through.with(smartSDA, strings.Replace(ata("11"), `"enabled":true`, `"enabled":false`, 1)), "sda", want{hostcheck.OK, CodeCacheOff, hostcheck.Cache{Volatile: no, Flushes: no}, "smartctl", 0}},
		"on, and the kernel's view is not known":   {sata.with(smartSDA, ata("11")), "sda", want{hostcheck.Unknown, CodeCacheUnknown, hostcheck.Cache{Volatile: yes}, "queue/write_cache", 0}},
		"no tools":                                 {back, "sda", want{hostcheck.Unknown, CodeCacheUnknown, hostcheck.Cache{Flushes: yes}, "smartctl is not installed (package smartmontools); hdparm is not installed", 2}},
		"no permission":                            {back.merge(answers{smartSDA: denied, "hdparm -W /dev/sda": "! /dev/sda: Permission denied"}), "sda", want{hostcheck.Unknown, CodeCacheUnknown, hostcheck.Cache{Flushes: yes}, "run as root", 2}},
		"smartctl fails, hdparm knows":             {through.merge(answers{smartSDA: `{"smartctl":{"exit_status":2,"messages":[{"string":"/dev/sda: Unable to detect device type"}]}}`, "hdparm -W /dev/sda": "\n/dev/sda:\n write-caching =  1 (on)\n"}), "sda", want{hostcheck.Critical, CodeCacheNotFlushed, hostcheck.Cache{Volatile: yes, Flushes: no}, "", 1}},
		"garbage":                                  {back.merge(answers{smartSDA: "\x00\xff{", "hdparm -W /dev/sda": "write-caching = 7 (maybe)"}), "sda", want{hostcheck.Unknown, CodeCacheUnknown, hostcheck.Cache{Flushes: yes}, "does not say", 2}},
		"nothing at all":                           {answers{}, "sda", want{hostcheck.Unknown, CodeCacheUnknown, hostcheck.Cache{}, "not installed", 2}},
		"SAS on":                                   {sas.with("smartctl -g wcache /dev/sda", "Writeback Cache is:   Enabled\n"), "sda", want{hostcheck.OK, CodeCacheFlushed, hostcheck.Cache{Volatile: yes, Flushes: yes}, "", 0}},
		"SAS, of which only sdparm knows":          {sas.with("sdparm --get=WCE /dev/sda", "WCE           0  [cha: y, def:  1, sav:  1]\n"), "sda", want{hostcheck.OK, CodeCacheOff, hostcheck.Cache{Volatile: no, Flushes: yes}, "sdparm --get=WCE", 1}},
		"NVMe without a cache":                     {nvmeOff.with(logNVMe, `{"critical_warning":0,"unsafe_shutdowns":3,"power_cycles":9}`), "nvme0n1", want{hostcheck.OK, CodeCacheOff, hostcheck.Cache{Volatile: no, Flushes: no}, "vwc is 0", 1}},
		"NVMe without a cache whose backup failed": {nvmeOff.with(logNVMe, `{"critical_warning":{"value":16},"unsafe_shutdowns":3}`), "nvme0n1", want{hostcheck.Critical, CodeProtectionFailed, hostcheck.Cache{Protected: no, Flushes: no}, "0x10", 1}},
		"NVMe on":                                  {nvme.merge(answers{smartNVMe: `{"device":{"protocol":"NVMe"},"nvme_smart_health_information_log":{"critical_warning":0,"unsafe_shutdowns":3}}`, idNVMe: `{"vwc":7}`, featNVMe: "get-feature:0x06 (Volatile Write Cache), Current value:0x00000001\n"}), "nvme0n1", want{hostcheck.OK, CodeCacheFlushed, hostcheck.Cache{Volatile: yes, Flushes: yes}, "", 0}},
		"NVMe turned off":                          {nvme.merge(answers{idNVMe: `{"vwc":1}`, featNVMe: "get-feature:0x06 (Volatile Write Cache), Current value:00000000\n", logNVMe: "{}"}), "nvme0n1", want{hostcheck.OK, CodeCacheOff, hostcheck.Cache{Volatile: no, Flushes: yes}, "get-feature", 1}},
		"NVMe without nvme":                        {nvme.with(smartNVMe, `{"device":{"protocol":"NVMe"}}`), "nvme0n1", want{hostcheck.Unknown, CodeCacheUnknown, hostcheck.Cache{Flushes: yes}, "package nvme-cli", 1}},
		"NVMe that does not say":                   {nvme.merge(answers{smartNVMe: `{}`, idNVMe: `{"vwc":"on"}`, logNVMe: "{}"}), "nvme0n1", want{hostcheck.Unknown, CodeCacheUnknown, hostcheck.Cache{Flushes: yes}, "does not say whether there is a volatile write cache", 1}},
	} {
		t.Run(name, func(t *testing.T) {
			d := Read(t.Context(), c.host, c.device)
			cache, findings := d.Judge()
			require.Len(t, findings, 1)
			assert.Equal(t, c.want.level, findings[0].Level, findings[0].Text)
			assert.Equal(t, c.want.code, findings[0].Code)
			assert.Contains(t, findings[0].Text, c.want.says)
			assert.NotRegexp(t, `\.$|%!`, findings[0].Text)
			assert.NotEmpty(t, cache.Why)
			cache.Why = ""
			assert.Equal(t, c.want.cache, cache)
			assert.Len(t, d.Problems, c.want.problem, "%v", d.Problems)
		})
	}
}

func TestFill(t *testing.T) {
	host := answers{"sda/device/vendor": "ATA", "sda/queue/write_cache": "write back", smartSDA: ata("100")}
	n := &hostcheck.Node{Kind: "disk", Name: "sda"}
	d := Read(t.Context(), host, "sda")
	d.Fill(n)
	assert.Equal(t, ATA, d.Protocol)
	assert.Equal(t, "EX0001", d.Serial)
	assert.Equal(t, []hostcheck.Perf{
		{Name: "drive_unsafe_shutdowns_total", Label: "sda Unsafe_Shutdown_Count 174", Value: 14},
		{Name: "drive_unsafe_shutdowns_total", Label: "sda Unsafe_Shutdown_Count 192", Value: 14},
		{Name: "drive_power_cycles_total", Label: "sda", Value: 26},
	}, n.Perf)
	assert.Contains(t, n.Facts, hostcheck.Fact{Key: "write cache on", Value: "yes", From: smartSDA})
	assert.Contains(t, n.Facts, hostcheck.Fact{Key: "queue/write_cache", Value: "write back", From: "/sys/class/block/sda/queue/write_cache"})
	assert.Len(t, n.Findings, 1)
	assert.Equal(t, hostcheck.Yes, n.Cache.Volatile)
}

// The names that the kernel cannot write as a folder's have ! for /.
func TestReadDeviceWithASlash(t *testing.T) {
	d := Read(t.Context(), answers{"smartctl -j -i -H -A -g wcache /dev/cciss/c0d0": ata("100")}, "cciss!c0d0")
	assert.Equal(t, hostcheck.Yes, d.WriteCache)
}
