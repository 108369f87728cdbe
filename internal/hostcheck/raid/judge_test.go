package raid

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/hostcheck"
)

// What no tool is known to print together, and must be judged all the same.
func TestJudge(t *testing.T) {
	good := Backup{Present: hostcheck.Yes, Good: hostcheck.Yes}
	off, on := Disk{ID: "1", WriteCache: hostcheck.No}, Disk{ID: "2", WriteCache: hostcheck.Yes}
	for _, tc := range []struct {
		name  string
		c     Controller
		level hostcheck.Level
		code  string // among the findings of the first volume
	}{
		{"the policy turns the members' caches on, and the drives say off",
			Controller{Backup: good, Disks: []Disk{off}, Volumes: []Volume{{CurrentPolicy: WriteBack, DiskCache: hostcheck.Yes, Members: []string{"1"}}}},
			unkn, "raid_members_cache_unknown"},
		{"no members told, all drives off",
			Controller{Backup: good, Disks: []Disk{off}, Volumes: []Volume{{CurrentPolicy: WriteBack}}}, ok, "raid_members_cache_off"},
		{"drives: policy off, one of the controller's says on",
			Controller{Backup: good, Disks: []Disk{off, on}, Volumes: []Volume{{CurrentPolicy: WriteThrough, DiskCache: hostcheck.No}}}, unkn, "raid_members_cache_unknown"},
		{"no members told, and the list of drives may be short",
			Controller{Incomplete: "cut", Backup: good, Disks: []Disk{off}, Volumes: []Volume{{CurrentPolicy: WriteThrough}}},
			unkn, "raid_members_cache_unknown"},
		{"no members told, one drive of two on",
			Controller{Backup: good, Disks: []Disk{off, on}, Volumes: []Volume{{CurrentPolicy: WriteThrough}}}, unkn, "raid_members_cache_unknown"},
		{"no drives at all",
			Controller{Backup: good, Volumes: []Volume{{CurrentPolicy: WriteThrough}}}, unkn, "raid_members_cache_unknown"},
		{"one member on, another not listed",
			Controller{Backup: good, Disks: []Disk{on}, Volumes: []Volume{{CurrentPolicy: WriteThrough, Members: []string{"2", "3"}}}}, crit, "raid_members_cache_on"},
		{"the zero controller with a volume", Controller{Volumes: []Volume{{}}}, unkn, "raid_policy_unknown"},
		{"forced by the setting, cached now",
			Controller{Backup: good, Disks: []Disk{off}, Volumes: []Volume{{DefaultPolicy: ForcedWriteBack, CurrentPolicy: WriteBack}}}, warn, "raid_write_back_forced"},
		{"forced, and a learn cycle that hides whether the backup is good",
			Controller{Backup: Backup{Present: hostcheck.Yes, Learning: hostcheck.Yes}, Disks: []Disk{off}, Volumes: []Volume{{CurrentPolicy: ForcedWriteBack}}},
			unkn, "raid_write_back_protection_unknown"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			j := Judge(tc.c, Options{})
			var codes []string
			for _, f := range j.Volumes[0].Findings {
				codes = append(codes, f.Code)
			}
			assert.Contains(t, codes, tc.code)
			assert.Equal(t, tc.level, j.Worst())
		})
	}
}

func TestMegaCliWithoutVolumes(t *testing.T) {
	x := load(t, "megacli-healthy").megaCli()
	x.Volumes = nil
	list, err := ParseMegaCli(x)
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.NotEmpty(t, list[0].Incomplete, "no volumes were asked for, which is not that there are none")
	assert.Equal(t, unkn, Judge(list[0], Options{}).Worst())
}

func TestCacheLetters(t *testing.T) {
	for words, want := range map[string]Policy{
		"RWBD": WriteBack, "NRWTD": WriteThrough, "RAWBD": ForcedWriteBack, "NRAWBC": ForcedWriteBack, "RFWBD": ForcedWriteBack,
		"NR,WB": WriteBack, "RA,WT": WriteThrough, "NR,AWB": ForcedWriteBack,
		"": PolicyNotKnown, "-": PolicyNotKnown, "R": PolicyNotKnown, "RXBD": PolicyNotKnown, "WB?": PolicyNotKnown,
	} {
		assert.Equal(t, want, cacheLetters(words), words)
	}
}

func TestInitialSetting(t *testing.T) {
	for words, want := range map[string]Policy{
		"WriteBack": WriteBack, "WriteThrough": WriteThrough, "Always WriteBack": ForcedWriteBack, "Force WriteBack": ForcedWriteBack, "": PolicyNotKnown, "Smart": PolicyNotKnown,
	} {
		var v storVolume
		v.properties(object{"Write Cache(initial setting)": words})
		assert.Equal(t, want, v.DefaultPolicy, words)
	}
}
