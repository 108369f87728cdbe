package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/ncruces/go-sqlite3"

	"plugpull/internal/database"
)

// Facts reads what SQLite says of itself: its version, and the pragmas as a
// connection has them.
func (d *DB) Facts(ctx context.Context) (f database.Facts, err error) {
	c, err := d.connect(ctx, false)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	f.Settings = map[string]string{}
	for _, name := range []string{"journal_mode", "synchronous", "wal_autocheckpoint", "cache_size", "page_size", "locking_mode"} {
		if f.Settings[name], err = pragma(c, name); err != nil {
			return f, err
		}
	}
	f.Settings["synchronous"] = synchronousName(f.Settings["synchronous"])
	f.Identity = map[string]string{"datadir": d.path}
	err = query(c, "SELECT sqlite_version()", func(s *sqlite3.Stmt) error {
		f.Identity["version"] = "SQLite " + s.ColumnText(0)
		return nil
	})
	f.Problems = Problems(Journal(f.Settings["journal_mode"]), Synchronous(f.Settings["synchronous"]))
	return f, err
}

// synchronousName translates the number that SQLite answers with.
func synchronousName(n string) string {
	for i, s := range []Synchronous{Off, Normal, Full, Extra} {
		if n == fmt.Sprint(i) {
			return string(s)
		}
	}
	return n
}

// Problems lists what can lose an acknowledged commit by itself, with the values that
// a connection has. A value that is none of the constants is not judged.
func Problems(j Journal, s Synchronous) (p []database.Problem) {
	switch j {
	case Memory, NoJournal:
		p = append(p, database.Problem{Name: "journal_mode", Value: string(j), Safe: "wal or truncate",
			Risk: "a power cut during a commit damages the database"})
	}
	risk := ""
	safe := Full
	switch {
	case s == Off:
		risk = "nothing is ever flushed: a power cut loses commits and can damage the database"
	case s == Normal && j == WAL:
		risk = "the WAL is not flushed at a commit: a power cut loses the last commits"
	case s == Normal:
		risk = "the end of the journal is not flushed: a power cut can roll back the last commit, and can damage the database"
	case s == Full && j == Delete:
		risk = "the journal's deletion is not made durable: a power cut can roll back the last commit"
	default:
		return p
	}
	if j == Delete {
		safe = Extra
	}
	return append(p, database.Problem{Name: "synchronous", Value: string(s), Safe: string(safe), Risk: risk})
}
