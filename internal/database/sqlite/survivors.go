package sqlite

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/ncruces/go-sqlite3"

	"plugpull/internal/workload"
	"plugpull/verifier"
)

// survivors reads what is left of an epoch in one read transaction. It is opened
// by the first question, so that damage which shows at once is told of a table.
type survivors struct {
	d     *DB
	epoch uint32
	c     *sqlite3.Conn
	idle  map[workload.Table][]*sqlite3.Stmt
}

// Survivors returns a reader of the tables of an epoch. Opening the file lets SQLite
// recover it, as every program would. release closes the connection and moves nothing
// out of a WAL; cursors must be closed before.
func (d *DB) Survivors(epoch uint32) (verifier.Survivors, func() error, error) {
	if err := d.pragmas.Validate(); err != nil {
		return nil, nil, err
	}
	s := &survivors{d: d, epoch: epoch, idle: map[workload.Table][]*sqlite3.Stmt{}}
	return s, s.release, nil
}

func (s *survivors) release() error {
	if s.c == nil {
		return nil
	}
	for _, stmts := range s.idle {
		for _, stmt := range stmts {
			_ = stmt.Close()
		}
	}
	clear(s.idle)
	err := s.c.Close()
	s.c = nil
	if err != nil {
		return fmt.Errorf("close the reader: %w", err)
	}
	return nil
}

func (s *survivors) connect(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.c != nil {
		return nil
	}
	c, err := s.d.connect(ctx, true)
	if err != nil {
		return err
	}
	if err := c.Exec("BEGIN"); err != nil {
		return errors.Join(fmt.Errorf("begin: %w", err), c.Close())
	}
	s.c = c
	return nil
}

// classify turns an error that is evidence of damage into a
// *verifier.UnreadableError and returns any other with the step that failed.
func (s *survivors) classify(t workload.Table, step string, err error) error {
	name := tableName(t, s.epoch)
	wrapped := fmt.Errorf("%s %s: %w", step, name, err)
	damaged, why := unreadableAtOpen(err), error(nil)
	if s.c != nil {
		damaged, why = tableDamaged(s.c, name, createTable(t, s.epoch), err)
	}
	if why != nil {
		wrapped = errors.Join(wrapped, why)
	}
	if damaged {
		return &verifier.UnreadableError{Table: t, Errno: Code(err), Err: wrapped}
	}
	return wrapped
}

// impossible says that a column holds what a STRICT table takes from nobody:
// SQLite read a damaged page without noticing.
func (s *survivors) impossible(t workload.Table, column string, stmt *sqlite3.Stmt, i int) error {
	return &verifier.UnreadableError{Table: t, Errno: uint32(sqlite3.CORRUPT),
		Err: fmt.Errorf("table %s: a row has %s %q (%v), which was never written", tableName(t, s.epoch), column, stmt.ColumnText(i), stmt.ColumnType(i))}
}

// Streams implements verifier.Survivors. It seeks from stream to stream.
func (s *survivors) Streams(ctx context.Context, t workload.Table) (streams []workload.Stream, err error) {
	const step = "list the streams of"
	if err := s.connect(ctx); err != nil {
		return nil, s.classify(t, step, err)
	}
	stmt, _, err := s.c.Prepare("SELECT stream FROM " + tableName(t, s.epoch) + " WHERE stream > ? ORDER BY stream LIMIT 1")
	if err != nil {
		return nil, s.classify(t, step, err)
	}
	defer func() { _ = stmt.Close() }()
	for last := int64(-1); ; {
		if err := errors.Join(ctx.Err(), stmt.BindInt64(1, last)); err != nil {
			return nil, fmt.Errorf("%s %s: %w", step, tableName(t, s.epoch), err)
		}
		if !stmt.Step() {
			break
		}
		n := stmt.ColumnInt64(0)
		if stmt.ColumnType(0) != sqlite3.INTEGER || n <= last || n > math.MaxUint16 {
			return nil, s.impossible(t, "stream", stmt, 0)
		}
		streams, last = append(streams, workload.Stream(n)), n
		if err := stmt.Reset(); err != nil {
			return nil, s.classify(t, step, err)
		}
	}
	if err := stmt.Err(); err != nil {
		return nil, s.classify(t, step, err)
	}
	return streams, nil
}

// Rows implements verifier.Survivors. Cancelling ctx ends the cursor.
func (s *survivors) Rows(ctx context.Context, t workload.Table, stream workload.Stream, from workload.Seq) (verifier.Rows, error) {
	const step = "read the rows of"
	if err := s.connect(ctx); err != nil {
		return nil, s.classify(t, step, err)
	}
	stmt, err := s.take(t)
	if err != nil {
		return nil, s.classify(t, step, err)
	}
	first := int64(min(from, math.MaxInt64))
	if err := errors.Join(stmt.BindInt64(1, int64(stream)), stmt.BindInt64(2, first)); err != nil {
		return nil, errors.Join(fmt.Errorf("%s %s: %w", step, tableName(t, s.epoch), err), stmt.Close())
	}
	return &scan{s: s, ctx: ctx, table: t, stream: stream, stmt: stmt}, nil
}

func (s *survivors) take(t workload.Table) (*sqlite3.Stmt, error) {
	if idle := s.idle[t]; len(idle) > 0 {
		s.idle[t] = idle[:len(idle)-1]
		return idle[len(idle)-1], nil
	}
	stmt, _, err := s.c.PrepareFlags("SELECT seq, version, run, payload FROM "+tableName(t, s.epoch)+
		" WHERE stream = ? AND seq >= ? ORDER BY seq", sqlite3.PREPARE_PERSISTENT)
	return stmt, err
}

// scan is a cursor over the rows of a stream, by the primary key.
type scan struct {
	s       *survivors
	ctx     context.Context // Next has none of its own
	table   workload.Table
	stream  workload.Stream
	stmt    *sqlite3.Stmt
	payload []byte
	over    bool
	err     error // what ended the cursor: it has no further row and no end either
}

// Next implements verifier.Rows.
func (c *scan) Next(r *workload.Row) (bool, error) {
	if c.over || c.err != nil {
		return false, c.err
	}
	if c.stmt == nil {
		return false, errors.New("the cursor is closed")
	}
	if c.err = c.ctx.Err(); c.err != nil {
		return false, c.err
	}
	if !c.stmt.Step() {
		if err := c.stmt.Err(); err != nil {
			c.err = c.s.classify(c.table, fmt.Sprintf("read stream %d of", c.stream), err)
			return false, c.err
		}
		c.over = true
		return false, nil
	}
	if c.err = c.decode(r); c.err != nil {
		return false, c.err
	}
	return true, nil
}

// decode reads the row at hand. A row with values of types that were never
// written has version zero, and one with what cannot be a run, run zero: no
// intact row has those.
func (c *scan) decode(r *workload.Row) error {
	seq, version := c.stmt.ColumnInt64(0), c.stmt.ColumnInt64(1)
	if c.stmt.ColumnType(0) != sqlite3.INTEGER || seq < 0 {
		return c.s.impossible(c.table, "seq", c.stmt, 0)
	}
	*r = workload.Row{Table: c.table, Stream: c.stream, Seq: workload.Seq(seq)}
	if version > 0 && version <= math.MaxUint8 && c.stmt.ColumnType(1) == sqlite3.INTEGER &&
		c.stmt.ColumnType(2) == sqlite3.BLOB && c.stmt.ColumnType(3) == sqlite3.BLOB {
		r.Version = workload.Version(version)
	}
	if run := c.stmt.ColumnRawBlob(2); len(run) == len(r.Run) {
		copy(r.Run[:], run)
	}
	// Copied: another cursor's step may move what SQLite owns.
	c.payload = append(c.payload[:0], c.stmt.ColumnRawBlob(3)...)
	r.Payload = c.payload
	if err := c.stmt.Err(); err != nil { // of the values
		return c.s.classify(c.table, fmt.Sprintf("read stream %d of", c.stream), err)
	}
	return nil
}

// Close implements verifier.Rows.
func (c *scan) Close() error {
	if c.stmt == nil {
		return nil
	}
	stmt := c.stmt
	c.stmt = nil
	if err := stmt.Reset(); err != nil { // the error of the last step, which Next has returned
		_ = stmt.Close()
		return nil
	}
	c.s.idle[c.table] = append(c.s.idle[c.table], stmt)
	return nil
}
