package check

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/hostcheck"
	"plugpull/internal/hostcheck/databases"
	"plugpull/internal/hostcheck/layers"
)

// twoDrives are a database's folders on the drives that are given by name. Flushes reach them all.
func twoDrives(cache hostcheck.Cache, names ...string) []*hostcheck.Node {
	drives := map[string]*hostcheck.Node{}
	var all []*hostcheck.Node
	for _, name := range names {
		if drives[name] == nil {
			drives[name] = &hostcheck.Node{Kind: "disk", Name: name, Cache: cache}
		}
		through := hostcheck.Cache{Volatile: hostcheck.No, Flushes: hostcheck.Yes}
		mount := &hostcheck.Node{Kind: "mount", Name: "/" + name, Cache: through, Below: []*hostcheck.Node{drives[name]}}
		all = append(all, &hostcheck.Node{Kind: "folder", Name: "/" + name, Cache: through, Below: []*hostcheck.Node{mount}})
	}
	return all
}

func TestDataThatIsNotFlushed(t *testing.T) {
	folders := []databases.Folder{{Path: "/data", Pages: true}, {Path: "/redo"}}
	caching := hostcheck.Cache{Volatile: hostcheck.Yes, Flushes: hostcheck.Yes}
	saved := hostcheck.Cache{Volatile: hostcheck.Yes, Protected: hostcheck.Yes, Flushes: hostcheck.Yes}
	off := hostcheck.Cache{Volatile: hostcheck.No, Flushes: hostcheck.Yes}
	for name, c := range map[string]struct {
		cache     hostcheck.Cache
		on        []string
		unflushed string
		log       string
		want      hostcheck.Level
	}{
		"data on another drive with a cache":    {caching, []string{"sda", "sdb"}, "innodb_flush_method=O_DIRECT_NO_FSYNC", "/redo", hostcheck.Critical},
		"the log's flush covers the data":       {caching, []string{"sda", "sda"}, "innodb_flush_method=O_DIRECT_NO_FSYNC", "/redo", hostcheck.OK},
		"another drive whose cache is saved":    {saved, []string{"sda", "sdb"}, "innodb_doublewrite=fast", "/redo", hostcheck.OK},
		"another drive without a cache":         {off, []string{"sda", "sdb"}, "innodb_doublewrite=fast", "/redo", hostcheck.OK},
		"data that is flushed":                  {caching, []string{"sda", "sdb"}, "", "/redo", hostcheck.OK},
		"the log lies in the data's own folder": {caching, []string{"sda", "sdb"}, "innodb_doublewrite=fast", "/data", hostcheck.OK},
	} {
		t.Run(name, func(t *testing.T) {
			db := &databases.Report{Folders: folders, Log: c.log, Unflushed: c.unflushed}
			n := &hostcheck.Node{Kind: databases.MariaDB, Name: "db", Cache: off, Below: twoDrives(c.cache, c.on...)}
			onStack(n, db)
			r := hostcheck.Report{Tops: []*hostcheck.Node{n}}
			r.Judge()
			require.Equal(t, c.want, r.Level, r.Verdict)
			if c.want == hostcheck.Critical {
				require.Contains(t, r.Verdict, "disk sda has a volatile cache")
				require.Contains(t, r.Verdict, c.unflushed)
			}
		})
	}
}

// A cache in between is one too: data in an image file on the log's own drive.
func TestDataBehindACacheOfItsOwn(t *testing.T) {
	through := hostcheck.Cache{Volatile: hostcheck.No, Flushes: hostcheck.Yes}
	folders := twoDrives(hostcheck.Cache{Volatile: hostcheck.Yes, Flushes: hostcheck.Yes}, "sda", "sda")
	loop := &hostcheck.Node{Kind: "loop", Name: "loop0", Cache: hostcheck.Cache{Volatile: hostcheck.Yes, Flushes: hostcheck.Yes}, Below: folders[0].Below}
	folders[0].Below = []*hostcheck.Node{loop}
	n := &hostcheck.Node{Kind: databases.MariaDB, Name: "db", Cache: through, Below: folders}
	onStack(n, &databases.Report{Folders: []databases.Folder{{Path: "/data", Pages: true}, {Path: "/redo"}}, Log: "/redo", Unflushed: "innodb_doublewrite=fast"})
	r := hostcheck.Report{Tops: []*hostcheck.Node{n}}
	r.Judge()
	require.Equal(t, hostcheck.Critical, r.Level, r.Verdict)
}

func TestPagesThatAreWrittenWhole(t *testing.T) {
	for name, c := range map[string]struct {
		records []string // of the filesystems of the data
		page    int
		want    hostcheck.Level
	}{
		"records hold pages":               {[]string{"131072", "16384"}, 16384, hostcheck.Warning},
		"one of them does not":             {[]string{"131072", "8192"}, 16384, hostcheck.Critical},
		"a page lies across records":       {[]string{"24576"}, 16384, hostcheck.Critical},
		"the page's size is not known":     {[]string{"131072"}, 0, hostcheck.Critical},
		"the record's size is not known":   {[]string{"x"}, 16384, hostcheck.Critical},
		"one filesystem has no records":    {[]string{"131072", ""}, 16384, hostcheck.Critical},
		"it is not said where the data is": {nil, 16384, hostcheck.Critical},
	} {
		t.Run(name, func(t *testing.T) {
			db := &databases.Report{TornPage: "torn", PageSize: c.page, Folders: []databases.Folder{{Path: "/log"}}}
			n := &hostcheck.Node{Below: twoDrives(hostcheck.Cache{}, "log"), Findings: []hostcheck.Finding{
				{Level: hostcheck.Critical, Code: "torn", Text: "doublewrite is OFF"}, {Level: hostcheck.Critical, Code: "other", Text: "x"}}}
			for _, record := range c.records {
				below := twoDrives(hostcheck.Cache{}, "zfs")[0]
				if record != "" {
					below.Below[0].Facts = []hostcheck.Fact{{Key: layers.RecordSize, Value: record}}
				}
				n.Below = append(n.Below, below)
				db.Folders = append(db.Folders, databases.Folder{Path: "/zfs", Pages: true})
			}
			onStack(n, db)
			require.Equal(t, c.want, n.Findings[0].Level)
			require.Equal(t, c.want == hostcheck.Warning, strings.Contains(n.Findings[0].Text, "recordsize"))
			assert.Equal(t, hostcheck.Critical, n.Findings[1].Level, "another finding is not about pages")
		})
	}
}
