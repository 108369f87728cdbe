package mysql

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"sync/atomic"

	"plugpull/internal/workload"
	"plugpull/verifier"
)

// Survivors reads what is left of an epoch; it implements verifier.Survivors.
// Each open cursor has a connection of its own, which is used again once the
// cursor has been read to its end.
type Survivors struct {
	d         *DB
	epoch     uint32
	connector sqldriver.Connector
	idle      []*scan
	rows      atomic.Uint64
}

var _ verifier.Survivors = (*Survivors)(nil)

// Survivors returns a reader of the tables of an epoch. The caller must call
// its Close.
func (d *DB) Survivors(epoch uint32) (*Survivors, error) {
	connector, err := d.connector(d.dsn.Schema, dialScan)
	if err != nil {
		return nil, err
	}
	return &Survivors{d: d, epoch: epoch, connector: connector}, nil
}

// RowsRead returns how many rows all cursors have read so far. It may be called
// at any time.
func (s *Survivors) RowsRead() uint64 { return s.rows.Load() }

// Close closes the connections that no cursor uses.
func (s *Survivors) Close() error {
	var errs []error
	for _, c := range s.idle {
		errs = append(errs, c.dc.Close())
	}
	s.idle = nil
	return errors.Join(errs...)
}

// classify turns an error of the server that is evidence of damage into a
// *verifier.UnreadableError and returns any other as it is. dc is the connection
// that brought it, nil if it was not made.
func classify(ctx context.Context, dc sqldriver.Conn, t workload.Table, err error) error {
	err = sharpen(ctx, dc, err)
	if errno := Errno(err); unreadable(errno) {
		return &verifier.UnreadableError{Table: t, Errno: errno, Err: err}
	}
	return err
}

// sharpenedError is error 1030 with the number that says what it means.
type sharpenedError struct {
	number uint32
	err    error
}

func (e *sharpenedError) Error() string {
	return fmt.Sprintf("%v (error %d beside it)", e.err, e.number)
}
func (e *sharpenedError) Unwrap() error { return e.err }

// sharpen looks for the meaning of error 1030, which can be anything: InnoDB
// reports a lost data file with it and puts the certain number into the
// connection's warnings.
func sharpen(ctx context.Context, dc sqldriver.Conn, err error) error {
	if dc == nil || Errno(err) != erGetErrno {
		return err
	}
	for _, n := range warnings(ctx, dc) {
		if unreadable(n) {
			return &sharpenedError{number: n, err: err}
		}
	}
	return err
}

// warnings returns the numbers that the server's last answer left behind, none
// where they cannot be had.
func warnings(ctx context.Context, dc sqldriver.Conn) (numbers []uint32) {
	_ = query(ctx, dc, "SHOW WARNINGS", func(row []sqldriver.Value) error {
		if n, ok := number(row[1]); ok && len(row) == 3 { // level, code, message
			numbers = append(numbers, uint32(n))
		}
		return nil
	})
	return numbers
}

// query calls f for each row of a statement without arguments.
func query(ctx context.Context, dc sqldriver.Conn, q string, f func([]sqldriver.Value) error) error {
	qc, ok := dc.(sqldriver.QueryerContext)
	if !ok {
		return errors.New("the driver's connection has no queries")
	}
	rows, err := qc.QueryContext(ctx, q, nil)
	if err != nil {
		return err
	}
	defer rows.Close()
	dest := make([]sqldriver.Value, len(rows.Columns()))
	for {
		if err := rows.Next(dest); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := f(dest); err != nil {
			return err
		}
	}
}

// connect opens a connection for reading.
func (s *Survivors) connect(ctx context.Context) (sqldriver.Conn, error) {
	dc, err := s.connector.Connect(ctx)
	if err != nil {
		return nil, &ConnectError{DSN: s.d.dsn, Err: err}
	}
	exec, ok := dc.(sqldriver.ExecerContext)
	if !ok {
		return nil, errors.Join(errors.New("the driver's connection executes no text"), dc.Close())
	}
	for _, q := range []string{scanSession, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"} {
		if _, err := exec.ExecContext(ctx, q, nil); err != nil {
			_ = dc.Close()
			return nil, fmt.Errorf("set up the session: %w", err)
		}
	}
	return dc, nil
}

// Streams implements verifier.Survivors.
func (s *Survivors) Streams(ctx context.Context, t workload.Table) (streams []workload.Stream, err error) {
	dc, err := s.connect(ctx)
	if err != nil {
		return nil, classify(ctx, nil, t, err)
	}
	defer func() { _ = dc.Close() }()
	// By the primary key: neither sorted nor kept in a temporary table.
	err = query(ctx, dc, "SELECT stream FROM "+s.d.table(t, s.epoch)+" GROUP BY stream ORDER BY stream", func(row []sqldriver.Value) error {
		n, ok := number(row[0])
		if !ok || n > math.MaxUint16 {
			return fmt.Errorf("stream %v: the table is not as plugpull made it", row[0])
		}
		streams = append(streams, workload.Stream(n))
		return nil
	})
	if err != nil {
		return nil, classify(ctx, dc, t, fmt.Errorf("list the streams of %s: %w", tableName(t, s.epoch), err))
	}
	return streams, nil
}

// scanSession lets a cursor wait: the verifier reads many in turn, and the
// server would give up on one that is not read for a minute. The comments hold
// what only MariaDB or only MySQL has.
const scanSession = "SET SESSION autocommit=1, net_write_timeout=31536000, wait_timeout=2147483 /*M!100101 , max_statement_time=0 */ /*!50708 , max_execution_time=0 */"

// scan is a connection with at most one open cursor.
type scan struct {
	s     *Survivors
	dc    sqldriver.Conn
	table workload.Table
	stmt  sqldriver.Stmt // prepared for table

	ctx    context.Context // of the open cursor: Next has none of its own
	stream workload.Stream
	rows   sqldriver.Rows
	dest   [4]sqldriver.Value
	over   bool  // every row has been read
	err    error // what ended the cursor; it has no further row and no end either
}

func scanQuery(d *DB, t workload.Table, epoch uint32) string {
	return "SELECT seq, version, run, payload FROM " + d.table(t, epoch) + " WHERE stream = ? AND seq >= ? ORDER BY seq"
}

// Rows implements verifier.Survivors. Cancelling ctx ends the cursor.
func (s *Survivors) Rows(ctx context.Context, t workload.Table, stream workload.Stream, from workload.Seq) (verifier.Rows, error) {
	c, err := s.take(ctx, t)
	if err != nil {
		return nil, err
	}
	if err := c.open(ctx, stream, from); err != nil {
		err = classify(ctx, c.dc, t, fmt.Errorf("read stream %d of %s: %w", stream, tableName(t, s.epoch), err))
		_ = c.dc.Close()
		return nil, err
	}
	return c, nil
}

// take returns an idle connection that has the table's scan prepared, or a new
// one.
func (s *Survivors) take(ctx context.Context, t workload.Table) (*scan, error) {
	for i, c := range s.idle {
		if c.table == t {
			s.idle = append(s.idle[:i], s.idle[i+1:]...)
			return c, nil
		}
	}
	dc, err := s.connect(ctx)
	if err != nil {
		return nil, classify(ctx, nil, t, err)
	}
	stmt, err := prepare(ctx, dc, scanQuery(s.d, t, s.epoch))
	if err != nil {
		err = classify(ctx, dc, t, fmt.Errorf("prepare the scan of %s: %w", tableName(t, s.epoch), err))
		_ = dc.Close()
		return nil, err
	}
	return &scan{s: s, dc: dc, table: t, stmt: stmt}, nil
}

func (c *scan) open(ctx context.Context, stream workload.Stream, from workload.Seq) error {
	q, ok := c.stmt.(sqldriver.StmtQueryContext)
	if !ok {
		return errors.New("the driver's statement takes no context")
	}
	args := []sqldriver.NamedValue{{Ordinal: 1, Value: int64(stream)}, {Ordinal: 2, Value: uint64(from)}}
	rows, err := q.QueryContext(ctx, args)
	if err != nil {
		return err
	}
	if n := len(rows.Columns()); n != len(c.dest) {
		return errors.Join(fmt.Errorf("the scan has %d columns", n), rows.Close())
	}
	c.ctx, c.stream, c.rows = ctx, stream, rows
	return nil
}

// Next implements verifier.Rows.
func (c *scan) Next(r *workload.Row) (bool, error) {
	if c.over || c.err != nil {
		return false, c.err
	}
	if c.rows == nil {
		return false, errors.New("the cursor is closed")
	}
	if err := c.rows.Next(c.dest[:]); err == io.EOF {
		c.over = true
		return false, nil
	} else if err != nil {
		// Kept: the driver would call the next attempt the end of the rows.
		_ = c.rows.Close() // lets the connection be asked for its warnings
		c.err = classify(c.ctx, c.dc, c.table, fmt.Errorf("read stream %d of %s: %w", c.stream, tableName(c.table, c.s.epoch), err))
		return false, c.err
	}
	c.s.rows.Add(1)
	seq, okSeq := number(c.dest[0])
	version, okVersion := number(c.dest[1])
	run, okRun := c.dest[2].([]byte)
	payload, okPayload := c.dest[3].([]byte)
	if !okSeq || !okVersion || !okRun || !okPayload || version > 255 {
		c.err = fmt.Errorf("read stream %d of %s: a row of types %T, %T, %T, %T: the table is not as plugpull made it",
			c.stream, tableName(c.table, c.s.epoch), c.dest[0], c.dest[1], c.dest[2], c.dest[3])
		return false, c.err
	}
	*r = workload.Row{Table: c.table, Stream: c.stream, Seq: workload.Seq(seq), Version: workload.Version(version), Payload: payload}
	if len(run) == len(r.Run) { // of another length it stays zero, which is no run
		copy(r.Run[:], run)
	}
	return true, nil
}

// number converts an integer column: the driver gives numbers beyond int64 as text.
func number(v sqldriver.Value) (uint64, bool) {
	switch v := v.(type) {
	case int64:
		return uint64(v), v >= 0
	case uint64:
		return v, true
	case []byte:
		n, err := strconv.ParseUint(string(v), 10, 64)
		return n, err == nil
	}
	return 0, false
}

// Close implements verifier.Rows. A cursor that was not read to its end gives
// its connection up, since the rest would have to be read.
func (c *scan) Close() error {
	if c.rows == nil {
		return nil
	}
	rows := c.rows
	c.rows = nil
	if c.over {
		if err := rows.Close(); err == nil {
			c.s.idle = append(c.s.idle, &scan{s: c.s, dc: c.dc, table: c.table, stmt: c.stmt})
			return nil
		}
	}
	_ = c.dc.Close() // in the middle of a result it cannot say goodbye
	return nil
}
