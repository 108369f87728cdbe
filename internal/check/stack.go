package check

import (
	"fmt"
	"slices"
	"strconv"

	"plugpull/internal/hostcheck"
	"plugpull/internal/hostcheck/databases"
	"plugpull/internal/hostcheck/layers"
)

// onStack judges again what of a database's settings the layers below it decide. The nodes below n are those of
// the report's folders, in their order.
func onStack(n *hostcheck.Node, db *databases.Report) {
	unflushed(n, db)
	wholePages(n, db)
}

// unflushed: a database that sends no flush for its data files leaves them in a drive's cache when its log no
// longer has them. A flush of the log covers whatever else its drives have in their caches, so that only data on
// other drives is in danger.
func unflushed(n *hostcheck.Node, db *databases.Report) {
	log := slices.IndexFunc(db.Folders, func(f databases.Folder) bool { return f.Path == db.Log })
	if db.Unflushed == "" || log < 0 {
		return
	}
	flushed := caches(n.Below[log])
	for i, f := range db.Folders {
		if !f.Pages || !slices.ContainsFunc(caches(n.Below[i]), func(b *hostcheck.Node) bool { return !slices.Contains(flushed, b) }) {
			continue
		}
		c := &n.Below[i].Cache
		c.Flushes = hostcheck.No
		c.Why = "with " + db.Unflushed + " the database sends no flush for the data files, which lie on other drives than its log"
	}
}

// caches are the layers below a node that may keep something, and the lowest ones.
func caches(n *hostcheck.Node) (all []*hostcheck.Node) {
	n.Walk(func(b *hostcheck.Node) {
		if len(b.Below) == 0 || b.Cache.Volatile != hostcheck.No {
			all = append(all, b)
		}
	})
	return all
}

// wholePages: ZFS writes a record or nothing, so that it tears no page where a record holds whole ones. A file keeps
// the records that it was made with, which cannot be seen here.
func wholePages(n *hostcheck.Node, db *databases.Report) {
	if db.TornPage == "" || db.PageSize <= 0 {
		return
	}
	pages := false
	for i, f := range db.Folders {
		if !f.Pages {
			continue
		}
		if record := recordSize(n.Below[i]); record < db.PageSize || record%db.PageSize != 0 {
			return
		}
		pages = true
	}
	if !pages {
		return
	}
	for i := range n.Findings {
		if f := &n.Findings[i]; f.Code == db.TornPage {
			f.Level = hostcheck.Warning
			f.Text += fmt.Sprintf("; the data is on ZFS, which writes its pages of %d bytes whole in every file that was made since recordsize was set to what it is", db.PageSize)
		}
	}
}

// recordSize is that of the filesystem that a folder is in, 0 where it has none.
func recordSize(folder *hostcheck.Node) int {
	if len(folder.Below) != 1 {
		return 0
	}
	n, _ := strconv.Atoi(value(folder.Below[0], layers.RecordSize)) // 0 is no size
	return n
}
