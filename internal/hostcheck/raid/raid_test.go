package raid

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/hostcheck"
)

const (
	ok   = hostcheck.OK
	warn = hostcheck.Warning
	crit = hostcheck.Critical
	unkn = hostcheck.Unknown
)

// Every fixture of testdata, with the level that stands for all and each code that is not OK.
var expected = []struct {
	fixture string
	level   hostcheck.Level
	codes   []string
}{
	{"arcconf-battery-healthy", ok, nil},
	{"arcconf-battery-failed-members-on", crit, []string{"CRITICAL raid_members_cache_on", "WARNING raid_backup_bad", "WARNING raid_write_through_now"}},
	{"arcconf-battery-charging", warn, []string{"WARNING raid_write_through_now"}},
	{"arcconf-battery-impossible", warn, []string{"WARNING raid_gauge_impossible"}},
	{"arcconf-battery-hot-short", warn, []string{"WARNING raid_backup_hot"}},
	{"arcconf-member-missing-in-list", unkn, []string{"UNKNOWN raid_members_cache_unknown"}},
	{"arcconf-truncated", unkn, []string{"UNKNOWN raid_members_cache_unknown", "UNKNOWN raid_output_incomplete", "UNKNOWN raid_write_back_protection_unknown"}},
	{"arcconf-garbage", unkn, []string{"UNKNOWN raid_tool_unreadable"}},
	{"arcconf-none", ok, nil},
	{"arcconf-cache-unsupported", unkn, []string{"UNKNOWN raid_policy_unknown"}},
	{"arcconf-flash-healthy", ok, nil},
	{"arcconf-missing-forced", crit, []string{"CRITICAL raid_backup_missing", "CRITICAL raid_members_cache_on", "CRITICAL raid_write_back_forced_unprotected"}},
	{"arcconf-flash-fatal", crit, []string{"CRITICAL raid_backup_bad", "CRITICAL raid_write_back_forced_unprotected"}},
	{"arcconf-forced-good", warn, []string{"WARNING raid_write_back_forced"}},
	{"arcconf-members-on", crit, []string{"CRITICAL raid_members_cache_on"}},
	{"arcconf-count-short", unkn, []string{"UNKNOWN raid_output_incomplete", "UNKNOWN raid_write_back_protection_unknown"}},
	{"arcconf-smartraid-healthy", ok, nil},
	{"arcconf-smartraid-charge-low", warn, []string{"WARNING raid_backup_bad", "WARNING raid_write_through_now"}},
	{"arcconf-smartraid-forced", crit, []string{"CRITICAL raid_backup_bad", "CRITICAL raid_write_back_forced_unprotected"}},
	{"megacli-healthy", ok, nil},
	{"megacli-silently-write-through", warn, []string{"WARNING raid_backup_capacity_low", "WARNING raid_backup_replace", "WARNING raid_write_through_now"}},
	{"megacli-replace-but-write-back", crit, []string{"CRITICAL raid_backup_capacity_low", "CRITICAL raid_backup_replace", "CRITICAL raid_write_back_unprotected"}},
	{"megacli-learning", warn, []string{"WARNING raid_learn_cycle", "WARNING raid_write_through_learning"}},
	{"megacli-learning-write-back", warn, []string{"WARNING raid_learn_cycle", "WARNING raid_write_back_learning"}},
	{"megacli-forced-bad", crit, []string{"CRITICAL raid_backup_bad", "CRITICAL raid_write_back_forced_unprotected"}},
	{"megacli-forced-good", warn, []string{"WARNING raid_write_back_forced"}},
	{"megacli-about-to-fail", warn, []string{"WARNING raid_backup_failing"}},
	{"megacli-gauge-impossible", warn, []string{"WARNING raid_gauge_impossible"}},
	{"megacli-no-bbu", unkn, []string{"UNKNOWN raid_backup_unknown", "UNKNOWN raid_write_back_protection_unknown"}},
	{"megacli-default-drives-off", ok, nil},
	{"megacli-default-drives-silent", unkn, []string{"UNKNOWN raid_members_cache_unknown"}},
	{"megacli-i2c-errors", unkn, []string{"UNKNOWN raid_backup_unknown", "UNKNOWN raid_write_back_protection_unknown"}},
	{"megacli-truncated", unkn, []string{"UNKNOWN raid_backup_unknown", "UNKNOWN raid_output_incomplete", "UNKNOWN raid_write_back_protection_unknown"}},
	{"megacli-empty", unkn, []string{"UNKNOWN raid_tool_failed"}},
	{"storcli-cachevault-healthy", ok, nil},
	{"perccli-battery-healthy", ok, nil},
	{"storcli-learning", warn, []string{"WARNING raid_learn_cycle", "WARNING raid_write_through_learning"}},
	{"storcli-always-no-battery", crit, []string{"CRITICAL raid_backup_missing", "CRITICAL raid_write_back_forced_unprotected"}},
	{"storcli-silently-write-through", warn, []string{"WARNING raid_backup_replace", "WARNING raid_write_through_now"}},
	{"storcli-write-through", ok, nil},
	{"storcli-members-on", crit, []string{"CRITICAL raid_members_cache_on"}},
	{"storcli-members-default", unkn, []string{"UNKNOWN raid_members_cache_unknown"}},
	{"storcli-not-json", unkn, []string{"UNKNOWN raid_tool_unreadable"}},
	{"storcli-truncated", unkn, []string{"UNKNOWN raid_output_incomplete", "UNKNOWN raid_tool_unreadable", "UNKNOWN raid_write_back_protection_unknown"}},
	{"storcli-no-controller", ok, nil},
	{"storcli-unknown-words", unkn, []string{"UNKNOWN raid_backup_unknown", "UNKNOWN raid_members_cache_unknown", "UNKNOWN raid_policy_unknown"}},
	{"storcli2-healthy", ok, nil},
	{"perccli2-no-pack", unkn, []string{"UNKNOWN raid_backup_unknown", "UNKNOWN raid_write_back_protection_unknown"}},
	{"storcli2-pack-failed", warn, []string{"WARNING raid_backup_bad", "WARNING raid_write_through_now"}},
	{"storcli2-always", warn, []string{"WARNING raid_write_back_forced"}},
	{"ssacli-healthy", ok, nil},
	{"hpssacli-battery-failed", warn, []string{"WARNING raid_backup_replace", "WARNING raid_write_through_now"}},
	{"ssacli-forced", crit, []string{"CRITICAL raid_backup_replace", "CRITICAL raid_write_back_forced_unprotected"}},
	{"ssacli-forced-good", warn, []string{"WARNING raid_write_back_forced"}},
	{"ssacli-no-battery", crit, []string{"CRITICAL raid_backup_missing", "CRITICAL raid_write_back_forced_unprotected"}},
	{"ssacli-drives-on", crit, []string{"CRITICAL raid_members_cache_on"}},
	{"ssacli-drives-default", unkn, []string{"UNKNOWN raid_members_cache_unknown"}},
	{"ssacli-read-only-cache", ok, nil},
	{"ssacli-ratio-missing", unkn, []string{"UNKNOWN raid_policy_unknown"}},
	{"hpacucli-old", ok, nil},
	{"ssacli-truncated", unkn, []string{"UNKNOWN raid_backup_unknown", "UNKNOWN raid_output_incomplete"}},
	{"ssacli-none", ok, nil},
	{"nothing-installed", ok, nil},
}

func TestFixtures(t *testing.T) {
	files, err := os.ReadDir("testdata")
	require.NoError(t, err)
	names := map[string]bool{}
	for _, f := range files {
		if name, is := strings.CutSuffix(f.Name(), ".txtar"); is {
			names[name] = true
		}
	}
	for _, want := range expected {
		t.Run(want.fixture, func(t *testing.T) {
			controllers, trouble := Collect(t.Context(), load(t, want.fixture))
			level, codes := verdict(controllers, trouble, Options{})
			assert.ElementsMatch(t, want.codes, codes)
			assert.Equal(t, want.level, level)
		})
		delete(names, want.fixture)
	}
	assert.Empty(t, names, "fixtures without an expectation")
}

func TestOptions(t *testing.T) {
	plp := func(Disk) hostcheck.Cache {
		return hostcheck.Cache{Volatile: hostcheck.Yes, Protected: hostcheck.Yes}
	}
	off := func(Disk) hostcheck.Cache { return hostcheck.Cache{Volatile: hostcheck.No} }
	oneOn := func(d Disk) hostcheck.Cache {
		return hostcheck.Cache{Volatile: hostcheck.Is(d.ID == "252:1"), Protected: hostcheck.No}
	}
	for _, tc := range []struct {
		name, fixture string
		o             Options
		level         hostcheck.Level
		codes         []string
	}{
		{"an accepted learn cycle", "megacli-learning", Options{AcceptLearn: true}, ok, nil},
		{"an accepted learn cycle with the cache on", "megacli-learning-write-back", Options{AcceptLearn: true}, ok, nil},
		{"an accepted learn cycle does not accept a failed battery", "megacli-forced-bad", Options{AcceptLearn: true}, crit,
			[]string{"CRITICAL raid_backup_bad", "CRITICAL raid_write_back_forced_unprotected"}},
		{"hold-up time that suffices", "arcconf-battery-healthy", Options{MinHoldup: 72 * time.Hour}, ok, nil},
		{"hold-up time too short", "arcconf-battery-healthy", Options{MinHoldup: 74 * time.Hour}, crit, []string{"CRITICAL raid_holdup_short"}},
		{"hold-up time too short while nothing is cached", "arcconf-battery-charging", Options{MinHoldup: 48 * time.Hour}, warn,
			[]string{"WARNING raid_holdup_short", "WARNING raid_write_through_now"}},
		{"hold-up time of a battery that does not say", "perccli-battery-healthy", Options{MinHoldup: time.Hour}, unkn, []string{"UNKNOWN raid_holdup_unknown"}},
		{"hold-up time does not matter to flash", "storcli-cachevault-healthy", Options{MinHoldup: 1000 * time.Hour}, ok, nil},
		{"worn", "megacli-healthy", Options{MinCapacityPercent: 90}, warn, []string{"WARNING raid_backup_worn"}},
		{"members that save their caches", "arcconf-members-on", Options{Member: plp}, ok, nil},
		{"policy on, members that save their caches", "storcli-members-on", Options{Member: plp}, ok, nil},
		{"members that are off by smartctl", "storcli-members-default", Options{Member: off}, ok, nil},
		{"one member that is on by smartctl", "storcli-members-default", Options{Member: oneOn}, crit, []string{"CRITICAL raid_members_cache_on"}},
		{"a policy that says off does not outrank a drive that says on", "storcli-cachevault-healthy", Options{Member: oneOn}, crit, []string{"CRITICAL raid_members_cache_on"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			controllers, trouble := Collect(t.Context(), load(t, tc.fixture))
			level, codes := verdict(controllers, trouble, tc.o)
			assert.ElementsMatch(t, tc.codes, codes)
			assert.Equal(t, tc.level, level)
		})
	}
}

func one(t *testing.T, fixture string) Controller {
	t.Helper()
	list, trouble := Collect(context.Background(), load(t, fixture))
	require.Empty(t, trouble)
	require.Len(t, list, 1)
	require.Empty(t, list[0].Incomplete)
	return list[0]
}

func TestFacts(t *testing.T) {
	t.Run("arcconf, battery", func(t *testing.T) {
		c := one(t, "arcconf-battery-healthy")
		assert.Equal(t, "0C1111A0F2B", c.Serial)
		assert.Equal(t, "5.2-0 (18948)", c.Firmware)
		assert.Equal(t, Backup{Kind: Battery, Present: hostcheck.Yes, Status: "Optimal", Good: hostcheck.Yes, Hot: hostcheck.No,
			ChargePercent: new(99.0), Remaining: new(73*time.Hour + 11*time.Minute)}, c.Backup)
		assert.Equal(t, []string{"0,0", "0,1", "0,2", "0,3"}, c.Volumes[0].Members)
		assert.Equal(t, Disk{ID: "0,2", Model: "ST3300657SS", Serial: "6SJ0AAA3", Firmware: "0008", WriteCache: hostcheck.No, State: "Online"}, c.Disks[2])
		assert.Len(t, c.Disks, 4, "an enclosure is no drive")
	})
	t.Run("arcconf, flash module", func(t *testing.T) {
		c := one(t, "arcconf-flash-healthy")
		assert.Equal(t, Backup{Kind: FlashModule, Present: hostcheck.Yes, Status: "Ready, Ready, Ready", Good: hostcheck.Yes,
			ChargePercent: new(100.0), CapacityPercent: new(94.0), TemperatureCelsius: new(29.0)}, c.Backup)
		require.Len(t, c.Volumes, 2)
		assert.Equal(t, Volume{ID: "1", Name: "log", Level: "6 Reed-Solomon", Size: "22886390 MB", DefaultPolicy: WriteBack, CurrentPolicy: WriteBack,
			PolicyWords: "On", Members: []string{"0,2", "0,3"}}, c.Volumes[1])
	})
	t.Run("arcconf, SmartRAID", func(t *testing.T) {
		c := one(t, "arcconf-smartraid-healthy")
		assert.Equal(t, Capacitor, c.Backup.Kind)
		assert.Equal(t, "/dev/sdd", c.Volumes[0].Device)
		assert.Equal(t, hostcheck.No, c.Volumes[0].DiskCache, "the controller's policy for configured drives")
		assert.Equal(t, []string{"0,0", "0,1"}, c.Volumes[0].Members)
		assert.Equal(t, "63M0A0AAAAA2", c.Disks[1].Serial)
	})
	t.Run("megacli", func(t *testing.T) {
		c := one(t, "megacli-healthy")
		assert.Equal(t, "SV00000042", c.Serial)
		assert.Equal(t, "LSI MegaRAID SAS 9260-8i", c.Model)
		require.Len(t, c.Disks, 2)
		assert.Equal(t, Disk{ID: "252:0", Model: "SAMSUNG MZ7WD960HMHP-00003", Serial: "S1E4AAA0000001", Firmware: "DXV8C03Q", WriteCache: hostcheck.No, DeviceID: "10", State: "Online, Spun Up"}, c.Disks[0])
		assert.Equal(t, "S0M0BBBB", c.Disks[1].Serial, "a SCSI drive's inquiry has other columns")
		b := c.Backup
		assert.InDelta(t, 100*1324.0/1500, *b.CapacityPercent, 0.01)
		assert.InDelta(t, 89, *b.ChargePercent, 0)
		assert.Equal(t, 48*time.Hour, *b.Remaining)
		assert.InDelta(t, 3, *b.CycleCount, 0)
		assert.Equal(t, "Thu Mar 31 15:16:22 2016", b.NextLearn)
	})
	t.Run("storcli", func(t *testing.T) {
		c := one(t, "storcli-cachevault-healthy")
		assert.Equal(t, []string{"SP80000000", "MegaRAID 9460-8i", "51.19.0-4532"}, []string{c.Serial, c.Model, c.Firmware})
		assert.Equal(t, FlashModule, c.Backup.Kind)
		assert.InDelta(t, 98, *c.Backup.CapacityPercent, 0)
		assert.Equal(t, hostcheck.No, c.Backup.ReplacementRequired)
		require.Len(t, c.Volumes, 2)
		assert.Equal(t, Volume{ID: "1", Name: "vd1", Device: "/dev/sdb", Level: "RAID1", Size: "893.750 GB", DefaultPolicy: WriteBack, CurrentPolicy: WriteBack,
			PolicyWords: "RWBD", DiskCache: hostcheck.No, Members: []string{"252:2", "252:3"}}, c.Volumes[1])
		assert.Equal(t, Disk{ID: "252:3", Model: "MICRON 5200", Serial: "2013AAA00003", Firmware: "D1MU020", DeviceID: "13", State: "Onln"}, c.Disks[3])
	})
	t.Run("perccli, gauges that do not measure", func(t *testing.T) {
		b := one(t, "perccli-battery-healthy").Backup
		assert.Equal(t, Battery, b.Kind)
		assert.Nil(t, b.CapacityPercent, "a design capacity of 0")
		assert.Nil(t, b.Remaining, "a charge time of 0 hours")
		assert.Nil(t, b.CycleCount, "N/A")
	})
	t.Run("storcli2", func(t *testing.T) {
		c := one(t, "storcli2-healthy")
		assert.Equal(t, "storcli2", c.Tool)
		assert.Equal(t, Capacitor, c.Backup.Kind)
		assert.Equal(t, "/dev/sdg", c.Volumes[0].Device)
		assert.Equal(t, Disk{ID: "306:1", Model: "ST10000NM018B", Serial: "WP00AAA1", Firmware: "E002", State: "Online"}, c.Disks[1])
	})
	t.Run("ssacli", func(t *testing.T) {
		c := one(t, "ssacli-healthy")
		assert.Equal(t, "PEYHC0000001", c.Serial, "not the host's, nor the drive cage's")
		assert.Equal(t, "5.00", c.Firmware)
		require.Len(t, c.Volumes, 2)
		assert.Equal(t, []string{"1I:1:1", "1I:1:2"}, c.Volumes[0].Members)
		assert.Equal(t, []string{"1I:1:3", "1I:1:4"}, c.Volumes[1].Members, "without mirror groups, the drives of its array")
		assert.Equal(t, "/dev/sdb", c.Volumes[1].Device)
		assert.Equal(t, Disk{ID: "1I:1:4", Model: "HP EG0600JEHMA", Serial: "W7A00AA4", Firmware: "HPDA", State: "OK"}, c.Disks[3])
	})
}

func TestPerf(t *testing.T) {
	assert.Equal(t, []hostcheck.Perf{
		{Name: "raid_backup_charge_percent", Label: "arcconf_c1", Value: 99},
		{Name: "raid_backup_remaining_seconds", Label: "arcconf_c1", Value: 263460},
	}, Judge(one(t, "arcconf-battery-healthy"), Options{}).Perf)
}
