package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/ncruces/go-sqlite3"

	"plugpull/internal/workload"
)

const runTable = "run"

const createRun = "CREATE TABLE " + runTable + " (run TEXT NOT NULL, epoch INTEGER NOT NULL, profile TEXT NOT NULL, PRIMARY KEY (run, epoch)) STRICT, WITHOUT ROWID"

func tableName(t workload.Table, epoch uint32) string { return fmt.Sprintf("%v_%d", t, epoch) }

// createTable is the text that sqlite_schema must hold.
func createTable(t workload.Table, epoch uint32) string {
	key := "stream, seq"
	if t == workload.TableHead {
		key = "stream"
	}
	return fmt.Sprintf("CREATE TABLE %s (stream INTEGER NOT NULL, seq INTEGER NOT NULL, run BLOB NOT NULL, version INTEGER NOT NULL, payload BLOB NOT NULL, PRIMARY KEY (%s)) STRICT, WITHOUT ROWID",
		tableName(t, epoch), key)
}

// OtherRunError says that the file belongs to another run.
type OtherRunError struct {
	Path       string
	Have, Want uuid.UUID
}

func (e *OtherRunError) Error() string {
	return fmt.Sprintf("database %s holds run %v, not run %v", e.Path, e.Have, e.Want)
}

func checkParams(p workload.Params) error {
	if err := p.Validate(); err != nil {
		return err
	}
	for _, t := range p.Profile.Tables() {
		if t == workload.TableWitness {
			return fmt.Errorf("profile %q has no tables in a database", p.Profile)
		}
	}
	return nil
}

// Prepare creates what is missing of the file, the run table and the tables of
// an epoch, in one transaction. It returns *OtherRunError where the file holds
// another run. It blocks on the device and may be repeated.
func (d *DB) Prepare(ctx context.Context, p workload.Params, epoch uint32) (err error) {
	if err := checkParams(p); err != nil {
		return err
	}
	c, err := d.connect(ctx, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := c.Exec("BEGIN IMMEDIATE"); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	if err := d.create(c, p, epoch); err != nil {
		if !c.GetAutocommit() {
			err = errors.Join(err, c.Exec("ROLLBACK"))
		}
		return err
	}
	if err := c.Exec("COMMIT"); err != nil {
		return fmt.Errorf("commit the tables: %w", err)
	}
	return nil
}

func (d *DB) create(c *sqlite3.Conn, p workload.Params, epoch uint32) error {
	want := map[string]string{runTable: createRun}
	order := []string{runTable}
	for _, t := range p.Profile.Tables() {
		want[tableName(t, epoch)] = createTable(t, epoch)
		order = append(order, tableName(t, epoch))
	}
	for i, name := range order {
		found, _, err := schemaOf(c, name)
		if err != nil {
			return err
		}
		if !found {
			if err := c.Exec(want[name]); err != nil {
				return fmt.Errorf("create table %s: %w", name, err)
			}
		}
		if i > 0 {
			continue
		}
		have, err := runs(c) // before anything is added to another run's file
		if err != nil {
			return err
		}
		for _, id := range have {
			if id != p.Run {
				return &OtherRunError{Path: d.path, Have: id, Want: p.Run}
			}
		}
	}
	q := fmt.Sprintf("INSERT OR IGNORE INTO %s (run, epoch, profile) VALUES (?, %d, ?)", runTable, epoch)
	return query(c, q, func(*sqlite3.Stmt) error { return nil }, p.Run.String(), string(p.Profile))
}

// schemaOf looks a table up in sqlite_schema and returns the text that made it.
func schemaOf(c *sqlite3.Conn, name string) (found bool, text string, err error) {
	err = query(c, "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?", func(s *sqlite3.Stmt) error {
		found, text = true, s.ColumnText(0)
		return nil
	}, name)
	return found, text, err
}

// runs returns the runs that the run table names.
func runs(c *sqlite3.Conn) (ids []uuid.UUID, err error) {
	err = query(c, "SELECT DISTINCT run FROM "+runTable+" ORDER BY run", func(s *sqlite3.Stmt) error {
		id, err := uuid.Parse(s.ColumnText(0))
		if err != nil {
			return fmt.Errorf("read the run's number: %w", err)
		}
		ids = append(ids, id)
		return nil
	})
	return ids, err
}

// Run returns the run that the file belongs to; uuid.Nil where there is no file, or
// the run table is empty, gone or damaged.
func (d *DB) Run(ctx context.Context) (id uuid.UUID, err error) {
	c, err := d.connect(ctx, true)
	if unreadableAtOpen(err) {
		return uuid.Nil, nil
	}
	if err != nil {
		return uuid.Nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	ids, err := runs(c)
	if err != nil {
		if damaged, _ := tableDamaged(c, runTable, createRun, err); damaged {
			return uuid.Nil, nil
		}
		return uuid.Nil, err
	}
	if len(ids) == 0 {
		return uuid.Nil, nil
	}
	return ids[0], nil
}

// tableDamaged reports whether err, which a statement on a table brought, is
// SQLite's word that the table cannot be read: by its code, or, since code 1 can
// mean anything, because the table is not in the schema as it was made, or the
// schema cannot be read. When that cannot be found out, it returns why.
func tableDamaged(c *sqlite3.Conn, name, made string, err error) (bool, error) {
	if unreadable(err) {
		return true, nil
	}
	if primary(err) != sqlite3.ERROR {
		return false, nil
	}
	found, text, e := schemaOf(c, name)
	if e != nil {
		return unreadable(e) || primary(e) == sqlite3.ERROR, e
	}
	return !found || text != made, nil
}
