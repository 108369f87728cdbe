package verifier

import (
	"errors"
	"fmt"
	"math"

	"plugpull/internal/workload"
)

// cursor reads one table of one stream, one row ahead.
type cursor struct {
	v          *verification
	rows       Rows
	row        workload.Row
	table      workload.Table
	stream     workload.Stream
	last       workload.Seq // the number before row
	begun      bool         // there is a row before row
	ok         bool         // row is valid
	unreadable bool         // nothing after last can be read
}

// cursor opens a cursor; where the table cannot be read, one that is unreadable from its start.
func (j *judge) cursor(t workload.Table, whole *UnreadableError, from workload.Seq) (*cursor, error) {
	c := &cursor{v: j.v, table: t, stream: j.ix.stream}
	if whole != nil {
		c.unreadable = true
		return c, nil
	}
	rows, err := j.v.in.Survivors.Rows(j.v.ctx, t, j.ix.stream, from)
	if err != nil {
		return c, c.failed(err)
	}
	c.rows = rows
	j.v.opened = append(j.v.opened, c)
	return c, c.advance()
}

func (v *verification) closeRows() {
	for _, c := range v.opened {
		c.rows.Close()
	}
}

// advance reads the next row.
func (c *cursor) advance() error {
	if c.ok {
		c.last, c.begun = c.row.Seq, true
	}
	ok, err := c.rows.Next(&c.row)
	if err != nil {
		c.ok = false
		return c.failed(err)
	}
	c.ok = ok
	if ok {
		c.v.res.Rows++
		c.row.Table, c.row.Stream = c.table, c.stream
		if c.begun && c.row.Seq <= c.last {
			// An index that returns its keys out of order or twice is damaged,
			// and says nothing of the rows behind it.
			c.ok = false
			return c.failed(&UnreadableError{Table: c.table,
				Err: fmt.Errorf("stream %d: key %d after key %d", c.stream, c.row.Seq, c.last)})
		}
	}
	return nil
}

// failed turns an unreadable table into a state of the cursor; other errors end the verification.
func (c *cursor) failed(err error) error {
	var u *UnreadableError
	if errors.As(err, &u) {
		c.v.noteUnreadable(u)
		c.unreadable = true
		return nil
	}
	return &ScanError{fmt.Sprintf("read stream %d of table %s", c.stream, c.table), err}
}

// at reports whether the row at hand has number n.
func (c *cursor) at(n workload.Seq) bool { return c.ok && c.row.Seq == n }

// seq is the number of the row at hand; beyond every number when there is none.
func (c *cursor) seq() workload.Seq {
	if !c.ok {
		return math.MaxUint64
	}
	return c.row.Seq
}

// intact reports whether the row at hand has the bytes that were sent.
func (c *cursor) intact() bool { return c.v.in.Params.Intact(&c.row) }
