package verifier_test

import (
	"context"
	"errors"
	"maps"
	"slices"

	"plugpull/internal/ledger"
	"plugpull/internal/workload"
	"plugpull/verifier"
)

// damage is what happened to the bytes of a row.
type damage uint8

const (
	whole damage = iota
	flipped
	foreignRun
	shortened
	noVersion
	damages
)

// row is a row of the simulated database; its payload follows from its number.
type row struct {
	version workload.Version
	damage  damage
}

type rows map[workload.Seq]row

// database is what a simulated server holds. The head table has at most one
// row a stream, under the number that it says.
type database map[workload.Table]map[workload.Stream]rows

func (d database) rows(t workload.Table, s workload.Stream) rows {
	if d[t] == nil {
		d[t] = map[workload.Stream]rows{}
	}
	if d[t][s] == nil {
		d[t][s] = rows{}
	}
	return d[t][s]
}

func (d database) clone() database {
	c := database{}
	for t, streams := range d {
		c[t] = map[workload.Stream]rows{}
		for s, r := range streams {
			c[t][s] = maps.Clone(r)
		}
	}
	return c
}

// apply executes one transaction.
func (d database) apply(p workload.Params, op workload.Op) {
	for _, st := range p.Steps(nil, op) {
		r := d.rows(st.Table, st.Stream)
		switch st.Action {
		case workload.Insert:
			r[st.Seq] = row{version: st.Version}
		case workload.Update:
			if _, ok := r[st.Seq]; ok {
				r[st.Seq] = row{version: st.Version}
			}
		case workload.Delete:
			delete(r, st.Seq)
		case workload.SetHead:
			clear(r)
			r[st.Seq] = row{version: st.Version}
		}
	}
}

// taken reports whether a row that op inserts is already there, so that an
// honest server refuses it.
func (d database) taken(p workload.Params, op workload.Op) bool {
	for _, st := range p.Steps(nil, op) {
		if _, there := d.rows(st.Table, st.Stream)[st.Seq]; there && st.Action == workload.Insert {
			return true
		}
	}
	return false
}

// scan reads a database as a survivor scan does, and fails as planted.
type scan struct {
	p      workload.Params
	db     database
	tables map[workload.Table]bool // tables that cannot be read at all
	breaks map[place]scanBreak
	lost   bool // the connection is lost at the first row
}

type place struct {
	table  workload.Table
	stream workload.Stream
}

// scanBreak ends a scan after the last key up to after.
type scanBreak struct {
	after    workload.Seq
	opening  bool // already Rows fails
	disorder bool // by returning the last key again, where there was one
}

var errConnection = errors.New("connection lost")

func unreadable(t workload.Table) error {
	return &verifier.UnreadableError{Table: t, Errno: 1034, Err: errors.New("index is corrupted")}
}

func (s *scan) Streams(_ context.Context, t workload.Table) ([]workload.Stream, error) {
	if s.tables[t] {
		return nil, unreadable(t)
	}
	var out []workload.Stream
	for n, r := range s.db[t] {
		if len(r) > 0 {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out, nil
}

func (s *scan) Rows(_ context.Context, t workload.Table, n workload.Stream, from workload.Seq) (verifier.Rows, error) {
	b, broken := s.breaks[place{t, n}]
	if broken && b.opening {
		return nil, unreadable(t)
	}
	c := &scanRows{scan: s, table: t, stream: n, rows: s.db[t][n], broken: broken, disorder: b.disorder}
	for seq := range c.rows {
		if seq >= from && (!broken || seq <= b.after) {
			c.keys = append(c.keys, seq)
		}
	}
	slices.Sort(c.keys)
	return c, nil
}

type scanRows struct {
	scan             *scan
	table            workload.Table
	stream           workload.Stream
	rows             rows
	keys             []workload.Seq
	at               int
	payload          []byte
	broken, disorder bool
}

func (c *scanRows) Next(r *workload.Row) (bool, error) {
	switch {
	case c.scan.lost:
		return false, errConnection
	case c.at < len(c.keys):
		c.fill(r, c.keys[c.at])
		c.at++
		return true, nil
	case c.broken && c.disorder && c.at > 0:
		c.fill(r, c.keys[c.at-1])
		return true, nil
	case c.broken:
		return false, unreadable(c.table)
	}
	return false, nil
}

func (c *scanRows) Close() error { return nil }

func (c *scanRows) fill(r *workload.Row, n workload.Seq) {
	is := c.rows[n]
	c.payload = c.scan.p.AppendPayload(c.payload[:0], c.table, c.stream, n, is.version)
	*r = workload.Row{Table: c.table, Stream: c.stream, Seq: n, Version: is.version, Run: c.scan.p.Run}
	switch is.damage {
	case flipped:
		c.payload[n%workload.Seq(len(c.payload))] ^= 0x10
	case foreignRun:
		r.Run[15] ^= 1
	case shortened:
		c.payload = c.payload[:len(c.payload)-1]
	case noVersion:
		r.Version = 3
	}
	r.Payload = c.payload
}

// pass reads a ledger that is held in memory. Positions are not indices, as in
// a ledger whose texts take several records.
type pass struct {
	recs []ledger.Record
	at   int
}

func (p *pass) Next(r *ledger.Record) (bool, error) {
	if p.at == len(p.recs) {
		return false, nil
	}
	*r = p.recs[p.at]
	p.at++
	return true, nil
}

func (p *pass) Index() ledger.LSN { return ledger.LSN(5 + 2*p.at) }

func (p *pass) Close() error { return nil }

func passAt(recs []ledger.Record, at ledger.LSN) *pass { return &pass{recs, int(at-5) / 2} }
