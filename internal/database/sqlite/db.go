package sqlite

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/ncruces/go-sqlite3"

	"plugpull/internal/clock"
)

// Journal is a journal_mode.
type Journal string

// The journal modes.
const (
	WAL       Journal = "wal"
	Delete    Journal = "delete"
	Truncate  Journal = "truncate"
	Persist   Journal = "persist"
	Memory    Journal = "memory" // a power cut damages the database
	NoJournal Journal = "off"    // likewise
)

// Synchronous is a value of the pragma synchronous.
type Synchronous string

// The values of synchronous.
const (
	Off    Synchronous = "off"
	Normal Synchronous = "normal"
	Full   Synchronous = "full"
	Extra  Synchronous = "extra"
)

// Pragmas are set on every connection.
type Pragmas struct {
	Journal           Journal
	Synchronous       Synchronous
	WALAutocheckpoint int    // pages; zero is SQLite's own default, less than zero never
	CacheSize         int    // pages, or KiB where negative; zero is SQLite's own default
	LockingMode       string // "normal" (or empty) or "exclusive": one connection only
}

// Validate reports every bad value at once.
func (p Pragmas) Validate() error {
	var errs []error
	switch p.Journal {
	case WAL, Delete, Truncate, Persist, Memory, NoJournal:
	default:
		errs = append(errs, fmt.Errorf("unknown journal mode %q: want wal, delete, truncate, persist, memory or off", p.Journal))
	}
	switch p.Synchronous {
	case Off, Normal, Full, Extra:
	default:
		errs = append(errs, fmt.Errorf("unknown value of synchronous %q: want off, normal, full or extra", p.Synchronous))
	}
	switch p.LockingMode {
	case "", "normal", "exclusive":
	default:
		errs = append(errs, fmt.Errorf("unknown locking mode %q: want normal or exclusive", p.LockingMode))
	}
	return errors.Join(errs...)
}

// DB is a database file on a VFS.
type DB struct {
	vfs, path string
	pragmas   Pragmas
	now       func() clock.Instant
	busy      time.Duration // how long to wait for another connection's lock, in real time
}

// Open describes the database file at path on a registered VFS, and opens nothing
// yet. now stamps the commits.
func Open(vfs, path string, p Pragmas, now func() clock.Instant) *DB {
	return &DB{vfs: vfs, path: path, pragmas: p, now: now, busy: busyTimeout}
}

const busyTimeout = 5 * time.Second

// connect opens a connection as a program with these pragmas would. A reader
// does not set the journal mode of a WAL database, which the file itself has:
// setting it would write where the header was damaged.
func (d *DB) connect(ctx context.Context, reader bool) (*sqlite3.Conn, error) {
	if err := d.pragmas.Validate(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	name := (&url.URL{Scheme: "file", Opaque: url.PathEscape(d.path), RawQuery: url.Values{"vfs": {d.vfs}}.Encode()}).String()
	c, err := sqlite3.OpenFlags(name, sqlite3.OPEN_READWRITE|sqlite3.OPEN_CREATE|sqlite3.OPEN_URI)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", d.path, err)
	}
	if err := d.setUp(c, reader); err != nil {
		return nil, errors.Join(&setUpError{err}, c.Close())
	}
	return c, nil
}

// setUpError says that the file was opened and its first page or its schema, which
// the pragmas need, was not understood.
type setUpError struct{ error }

func (e *setUpError) Unwrap() error { return e.error }

func (d *DB) setUp(c *sqlite3.Conn, reader bool) error {
	if err := c.BusyTimeout(d.busy); err != nil {
		return fmt.Errorf("set the busy timeout: %w", err)
	}
	p := d.pragmas
	set := []string{"PRAGMA temp_store=memory", "PRAGMA synchronous=" + string(p.Synchronous)}
	if p.LockingMode != "" {
		set = append(set, "PRAGMA locking_mode="+p.LockingMode)
	}
	if p.CacheSize != 0 {
		set = append(set, fmt.Sprintf("PRAGMA cache_size=%d", p.CacheSize))
	}
	if p.WALAutocheckpoint != 0 {
		set = append(set, fmt.Sprintf("PRAGMA wal_autocheckpoint=%d", max(0, p.WALAutocheckpoint)))
	}
	for _, q := range set {
		if err := c.Exec(q); err != nil {
			return fmt.Errorf("%s: %w", q, err)
		}
	}
	if reader {
		// The verification must not move what the WAL holds.
		if _, err := c.Config(sqlite3.DBCONFIG_NO_CKPT_ON_CLOSE, true); err != nil {
			return fmt.Errorf("set up a reader: %w", err)
		}
		if p.Journal == WAL {
			return nil
		}
	}
	got, err := pragma(c, "journal_mode="+string(p.Journal))
	if err != nil {
		return err
	}
	if got != string(p.Journal) {
		return fmt.Errorf("journal_mode is %q and cannot be made %q", got, p.Journal)
	}
	return nil
}

// pragma executes a pragma and returns the text of its answer.
func pragma(c *sqlite3.Conn, q string) (value string, err error) {
	err = query(c, "PRAGMA "+q, func(s *sqlite3.Stmt) error {
		value = strings.ToLower(s.ColumnText(0))
		return nil
	})
	return value, err
}

// query calls f for each row of a statement.
func query(c *sqlite3.Conn, q string, f func(*sqlite3.Stmt) error, args ...string) (err error) {
	s, _, err := c.Prepare(q)
	if err != nil {
		return fmt.Errorf("%s: %w", q, err)
	}
	defer func() { _ = s.Close() }() // repeats the error of the last step
	for i, a := range args {
		if err := s.BindText(i+1, a); err != nil {
			return fmt.Errorf("%s: %w", q, err)
		}
	}
	for s.Step() {
		if err := f(s); err != nil {
			return err
		}
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("%s: %w", q, err)
	}
	return nil
}
