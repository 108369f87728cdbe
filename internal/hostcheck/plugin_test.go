package hostcheck

import (
	"bytes"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"
)

func example() *Report {
	disk := &Node{Kind: "disk", Name: "sda", Cache: Cache{Volatile: Yes, Protected: No, Flushes: Yes, Why: "the drive says so"},
		Facts: []Fact{{Key: "model", Value: "Example 1"}}, Perf: []Perf{{Name: "drive_unsafe_shutdowns_total", Value: 3}}}
	mount := &Node{Kind: "mount", Name: "/data", Cache: Cache{Volatile: No, Flushes: No, Why: "nobarrier"}, Below: []*Node{disk}}
	mount.Add(Warning, "data_writeback", "data=writeback may show old data | after a crash")
	volume := &Node{Kind: "volume", Name: "c0/v0", Cache: Cache{Volatile: Yes, Protected: Yes, Flushes: No},
		Perf: []Perf{{Name: "raid_backup_capacity_percent", Value: 97.5}, {Name: "not_exported", Value: 1}}}
	return &Report{Host: "here", Tops: []*Node{{Kind: "folder", Name: "/data/mysql", Cache: Cache{Volatile: No, Flushes: Yes}, Below: []*Node{mount}}, volume}}
}

func TestFirstLineAndTree(t *testing.T) {
	r := example()
	r.Judge()
	line := r.FirstLine()
	require.NotContains(t, line, "\n")
	require.Equal(t, 1, strings.Count(line, "|"), line)
	require.True(t, strings.HasPrefix(line, "CRITICAL - an acknowledged commit can be lost in a power cut because disk sda has a volatile cache"), line)
	require.Contains(t, line, "'drive_unsafe_shutdowns_total sda'=3c")
	require.Contains(t, line, "'raid_backup_capacity_percent c0/v0'=97.5%")

	var b bytes.Buffer
	require.NoError(t, r.WriteText(&b, true))
	require.Equal(t, `CRITICAL - an acknowledged commit can be lost in a power cut because disk sda has a volatile cache (the drive says so), and flushes do not take effect in it: mount /data (nobarrier) does not pass them on
  CRITICAL disk sda has a volatile cache (the drive says so), and flushes do not take effect in it: mount /data (nobarrier) does not pass them on
  WARNING  data=writeback may show old data / after a crash

folder /data/mysql
└─ mount /data  [flushes stop here]
   │  WARNING  data=writeback may show old data / after a crash
   └─ disk sda  [volatile cache, not protected]
         model: Example 1

volume c0/v0  [volatile cache, protected; flushes stop here]
`, b.String())
}

func TestVerdictOfAnyLengthIsOneLine(t *testing.T) {
	r := &Report{Level: Unknown, Verdict: strings.Repeat("ä very long\nverdict ", 200)}
	line := r.FirstLine()
	require.LessOrEqual(t, len(line), lineLimit+len("UNKNOWN - "))
	require.NotContains(t, line, "\n")
	require.True(t, strings.HasSuffix(line, "…"))
}

func TestMetrics(t *testing.T) {
	r := example()
	r.Tops[1].Cache.Protected = NotKnown
	r.Judge()
	var b bytes.Buffer
	require.NoError(t, r.WriteMetrics(&b))
	text := b.String()
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
	require.Contains(t, text, "\nplugpull_check_level 2\n")
	require.Contains(t, text, `plugpull_layer_volatile_cache{kind="disk",name="sda"} 1`)
	require.NotContains(t, text, `plugpull_layer_protected_cache{kind="volume"`, "what is not known has no sample")
	require.Contains(t, text, `plugpull_check_cause_info{code="data_writeback",kind="mount",level="WARNING",name="/data"} 1`)
	require.Contains(t, text, `plugpull_drive_unsafe_shutdowns_total{kind="disk",label="",name="sda"} 3`)
	require.NotContains(t, text, "not_exported")
}
