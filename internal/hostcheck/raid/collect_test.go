package raid

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/hostcheck"
)

func tools(list []Controller) (names []string) {
	for _, c := range list {
		names = append(names, c.Tool)
	}
	return names
}

func TestCollectOneHangs(t *testing.T) {
	f := load(t, "arcconf-flash-healthy").with(load(t, "megacli-healthy")).with(load(t, "ssacli-healthy"))
	f.hang = "arcconf"
	list, trouble := collector{f, 20 * time.Millisecond}.collect(t.Context(), nil)
	assert.Equal(t, []string{"megacli", "ssacli"}, tools(list))
	level, codes := verdict(list, trouble, Options{})
	assert.Equal(t, unkn, level)
	assert.Equal(t, []string{"UNKNOWN raid_tool_timeout"}, codes)
}

func TestCollectHangIsSaidOnce(t *testing.T) {
	f := load(t, "megacli-healthy")
	f.hang = "MegaCli64"
	list, trouble := collector{f, 20 * time.Millisecond}.collect(t.Context(), nil)
	assert.Empty(t, list)
	require.Len(t, trouble, 1, "said once, not for every command")
	assert.Equal(t, "raid_tool_timeout", trouble[0].Code)
	assert.Contains(t, trouble[0].Text, "MegaCli64 -AdpAllInfo -aALL -NoLog", "what a person can run by hand")
}

func TestCollectCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f := load(t, "ssacli-healthy")
	f.hang = "ssacli"
	list, trouble := Collect(ctx, f)
	level, _ := verdict(list, trouble, Options{})
	assert.Equal(t, unkn, level)
}

func TestCollectSameControllerTwice(t *testing.T) {
	t.Run("storcli before megacli", func(t *testing.T) {
		f := load(t, "storcli-cachevault-healthy").with(load(t, "megacli-forced-bad"))
		list, trouble := Collect(t.Context(), f)
		assert.Equal(t, []string{"storcli"}, tools(list))
		assert.Empty(t, trouble)
	})
	t.Run("megacli where storcli cannot", func(t *testing.T) {
		f := load(t, "storcli-not-json").with(load(t, "megacli-healthy"))
		list, trouble := Collect(t.Context(), f)
		assert.Equal(t, []string{"megacli"}, tools(list))
		assert.Empty(t, trouble, "what storcli could not say, MegaCli did")
	})
	t.Run("arcconf and ssacli, by the serial number", func(t *testing.T) {
		f := load(t, "arcconf-smartraid-healthy").with(load(t, "ssacli-healthy"))
		f.outputs["ssacli ctrl all show config detail"] = strings.ReplaceAll(f.outputs["ssacli ctrl all show config detail"], "PEYHC0000001", "7A3300BB002")
		list, _ := Collect(t.Context(), f)
		assert.Equal(t, []string{"arcconf"}, tools(list))
	})
}

func TestCollectNamed(t *testing.T) {
	f := load(t, "arcconf-members-on").with(load(t, "megacli-healthy"))
	list, trouble := Collect(t.Context(), f, "megacli")
	assert.Equal(t, []string{"megacli"}, tools(list))
	assert.Empty(t, trouble)
	list, trouble = Collect(t.Context(), f, "ssacli", "megasr")
	assert.Empty(t, list)
	_, codes := verdict(nil, trouble, Options{})
	assert.Equal(t, []string{"UNKNOWN raid_tool_missing", "UNKNOWN raid_tool_unknown"}, codes)
}

func TestCollectSecondController(t *testing.T) {
	f := load(t, "arcconf-flash-healthy")
	two := strings.Replace(f.outputs["arcconf GETCONFIG 1 AL"], "Controllers found: 1", "Controllers found: 2", 1)
	f.outputs["arcconf GETCONFIG 1 AL"] = two
	t.Run("missing", func(t *testing.T) {
		list, trouble := Collect(t.Context(), f)
		level, codes := verdict(list, trouble, Options{})
		assert.Len(t, list, 1)
		assert.Equal(t, unkn, level)
		assert.Equal(t, []string{"UNKNOWN raid_tool_failed"}, codes)
	})
	t.Run("there", func(t *testing.T) {
		f.outputs["arcconf GETCONFIG 2 AL"] = strings.Replace(two, "6B2200EE001", "6B2200EE002", 1)
		list, trouble := Collect(t.Context(), f)
		assert.Empty(t, trouble)
		require.Len(t, list, 2)
		assert.Equal(t, []int{1, 2}, []int{list[0].Number, list[1].Number})
	})
}

// Only commands that list are run, and none that stops a controller's IO, as `/cX show all` does.
func TestCollectRunsOnlyLists(t *testing.T) {
	lists := regexp.MustCompile(`^\S+ (GETCONFIG \d+ AL|-AdpAllInfo -aALL -NoLog|-LDInfo -Lall -aALL -NoLog|-AdpBbuCmd -aALL -NoLog|-PDList -aALL -NoLog|` +
		`/call show J nolog|/c\d+/(vall|bbu|cv|eall/sall|sall) show all J nolog|ctrl all show config detail)$`)
	for _, want := range expected {
		f := load(t, want.fixture)
		Collect(t.Context(), f)
		close(f.ran)
		for command := range f.ran {
			assert.Regexp(t, lists, command)
		}
	}
}

func TestCaches(t *testing.T) {
	type caches struct{ volatile, protected, flushes, members hostcheck.Tri }
	const yes, no, dunno = hostcheck.Yes, hostcheck.No, hostcheck.NotKnown
	for _, tc := range []struct {
		fixture string
		want    caches
	}{
		{"storcli-cachevault-healthy", caches{yes, yes, no, no}},
		{"megacli-learning-write-back", caches{yes, yes, no, no}},
		{"storcli-write-through", caches{no, no, yes, no}},
		{"ssacli-read-only-cache", caches{no, yes, yes, no}},
		{"storcli-members-on", caches{no, no, dunno, yes}},
		{"storcli-members-default", caches{yes, yes, no, dunno}},
		{"megacli-replace-but-write-back", caches{yes, no, no, no}},
		{"megacli-no-bbu", caches{dunno, dunno, no, no}},
		{"megacli-truncated", caches{dunno, dunno, no, no}},
		{"storcli-unknown-words", caches{dunno, dunno, dunno, dunno}},
		{"ssacli-forced", caches{yes, no, no, no}},
	} {
		t.Run(tc.fixture, func(t *testing.T) {
			list, _ := Collect(t.Context(), load(t, tc.fixture))
			v := Judge(list[0], Options{}).Volumes[0]
			assert.Equal(t, tc.want, caches{v.Cache.Volatile, v.Cache.Protected, v.Cache.Flushes, v.Members.Volatile})
			assert.NotEmpty(t, v.Cache.Why)
		})
	}
}

// A text is a sentence without a full stop that names what it is about.
func TestTexts(t *testing.T) {
	for _, want := range expected {
		list, trouble := Collect(t.Context(), load(t, want.fixture))
		for _, c := range list {
			j := Judge(c, Options{})
			for i, v := range j.Volumes {
				require.GreaterOrEqual(t, len(v.Findings), 2)
				for _, f := range v.Findings {
					assert.True(t, strings.HasPrefix(f.Text, c.Volumes[i].Label()+": "), f.Text)
				}
				trouble = append(trouble, v.Findings...)
			}
			trouble = append(trouble, j.Findings...)
		}
		for _, f := range trouble {
			assert.Regexp(t, `^[a-z0-9_]+$`, f.Code)
			assert.NotRegexp(t, `\.$|%!|\n|  `, f.Text)
		}
	}
}
