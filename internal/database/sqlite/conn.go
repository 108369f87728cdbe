package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/ncruces/go-sqlite3"

	"plugpull/client"
	"plugpull/internal/clock"
	"plugpull/internal/ledger"
	"plugpull/internal/workload"
)

// conn is a stream's connection.
type conn struct {
	p     workload.Params
	c     *sqlite3.Conn
	now   func() clock.Instant
	ended ledger.End

	stmts                   map[stepKind]*sqlite3.Stmt
	begin, commit, rollback *sqlite3.Stmt

	// Reused by each operation.
	steps   []workload.Step
	payload []byte
}

type stepKind struct {
	action workload.Action
	table  workload.Table
}

// Dial opens a connection for one stream and prepares every statement of the
// profile. It blocks on the device.
func (d *DB) Dial(ctx context.Context, p workload.Params, epoch uint32) (client.Conn, error) {
	if err := checkParams(p); err != nil {
		return nil, err
	}
	db, err := d.connect(ctx, false)
	if err != nil {
		return nil, err
	}
	c := &conn{p: p, c: db, now: d.now, stmts: map[stepKind]*sqlite3.Stmt{}}
	if err := c.prepare(epoch); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *conn) prepare(epoch uint32) error {
	for _, s := range []struct {
		text string
		stmt **sqlite3.Stmt
	}{{"BEGIN IMMEDIATE", &c.begin}, {"COMMIT", &c.commit}, {"ROLLBACK", &c.rollback}} {
		var err error
		if *s.stmt, _, err = c.c.PrepareFlags(s.text, sqlite3.PREPARE_PERSISTENT); err != nil {
			return fmt.Errorf("prepare %s: %w", s.text, err)
		}
	}
	for kind, q := range statements(c.p.Profile, epoch) {
		stmt, _, err := c.c.PrepareFlags(q, sqlite3.PREPARE_PERSISTENT)
		if err != nil {
			return fmt.Errorf("prepare %q: %w", q, err)
		}
		c.stmts[kind] = stmt
	}
	return nil
}

// statements returns what the steps of a profile execute.
func statements(p workload.Profile, epoch uint32) map[stepKind]string {
	q := map[stepKind]string{}
	for _, t := range p.Tables() {
		insert := "INSERT INTO " + tableName(t, epoch) + " (stream, seq, run, version, payload) VALUES (?1, ?2, ?3, ?4, ?5)"
		if t == workload.TableHead {
			q[stepKind{workload.SetHead, t}] = insert +
				" ON CONFLICT (stream) DO UPDATE SET seq = excluded.seq, run = excluded.run, version = excluded.version, payload = excluded.payload"
			continue
		}
		q[stepKind{workload.Insert, t}] = insert
		if t == workload.TableChurn {
			q[stepKind{workload.Update, t}] = "UPDATE " + tableName(t, epoch) + " SET version = ?4, payload = ?5 WHERE stream = ?1 AND seq = ?2"
			q[stepKind{workload.Delete, t}] = "DELETE FROM " + tableName(t, epoch) + " WHERE stream = ?1 AND seq = ?2"
		}
	}
	return q
}

// ID implements client.Conn: SQLite numbers no connections.
func (c *conn) ID() uint64 { return 0 }

// Commit implements client.Conn. It heeds ctx only before it begins: SQLite
// answers as soon as the device does.
func (c *conn) Commit(ctx context.Context, op workload.Op) client.Reply {
	if c.ended != 0 {
		return client.Reply{Outcome: ledger.Refused, Answered: c.now(), Ended: c.ended, Err: errors.New("the connection has ended")}
	}
	if err := ctx.Err(); err != nil {
		r := client.Reply{Outcome: ledger.Refused, Answered: c.now(), Err: err}
		c.giveUp(&r, ledger.EndStopped)
		return r
	}
	c.steps = c.p.Steps(c.steps[:0], op)
	if c.p.Profile == workload.Append {
		stmt, err := c.bind(&c.steps[0])
		if err != nil {
			return c.refuse(err)
		}
		return c.judge(stmt)
	}
	if err := c.begin.Exec(); err != nil {
		return c.refuse(fmt.Errorf("begin: %w", err))
	}
	for i := range c.steps {
		stmt, err := c.bind(&c.steps[i])
		if err == nil {
			err = stmt.Exec()
		}
		if err != nil {
			return c.refuse(fmt.Errorf("step %d: %w", i+1, err))
		}
	}
	return c.judge(c.commit)
}

// judge executes the committing statement and turns what it returns into a reply.
func (c *conn) judge(stmt *sqlite3.Stmt) client.Reply {
	r := client.Reply{Sent: c.now()}
	err := stmt.Exec()
	r.Answered = c.now()
	if err == nil {
		r.Outcome = ledger.Acked
		return r
	}
	r.Errno, r.Err = Code(err), fmt.Errorf("commit: %w", err)
	if refused(err) && c.over(&r) {
		r.Outcome = ledger.Refused
		return r
	}
	r.Outcome = ledger.Unknown
	c.giveUp(&r, ledger.EndError)
	return r
}

// refuse is the reply to an operation whose committing statement was not begun.
func (c *conn) refuse(err error) client.Reply {
	r := client.Reply{Outcome: ledger.Refused, Answered: c.now(), Errno: Code(err), Err: err}
	if !refused(err) || !c.over(&r) {
		c.giveUp(&r, ledger.EndError)
	}
	return r
}

// over ends the transaction, if SQLite has not, and reports whether it is over.
func (c *conn) over(r *client.Reply) bool {
	if c.c.GetAutocommit() {
		return true
	}
	if err := c.rollback.Exec(); err != nil {
		r.Err = errors.Join(r.Err, fmt.Errorf("roll back: %w", err))
		return false
	}
	return c.c.GetAutocommit()
}

// giveUp ends the connection. An open transaction is rolled back, so nothing is committed later.
func (c *conn) giveUp(r *client.Reply, end ledger.End) {
	r.Ended = end
	if err := c.Close(); err != nil {
		r.Err = errors.Join(r.Err, err)
	}
	c.ended = end
}

// bind fills in the arguments of a step's statement.
func (c *conn) bind(s *workload.Step) (*sqlite3.Stmt, error) {
	stmt := c.stmts[stepKind{s.Action, s.Table}]
	if stmt == nil {
		return nil, fmt.Errorf("no statement for action %d on %v", s.Action, s.Table)
	}
	errs := []error{stmt.BindInt64(1, int64(s.Stream)), stmt.BindInt64(2, int64(s.Seq))}
	if s.Action == workload.Insert || s.Action == workload.SetHead {
		errs = append(errs, stmt.BindBlob(3, c.p.Run[:]))
	}
	if s.Action != workload.Delete {
		// Never nil, which would be NULL.
		c.payload = c.p.AppendPayload(append(c.payload[:0], 0)[:0], s.Table, s.Stream, s.Seq, s.Version)
		errs = append(errs, stmt.BindInt64(4, int64(s.Version)), stmt.BindBlob(5, c.payload))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("bind: %w", err)
	}
	return stmt, nil
}

// Close implements client.Conn.
func (c *conn) Close() error {
	if c.ended != 0 {
		return nil
	}
	c.ended = ledger.EndStopped
	// Closing a statement repeats the error of its last step.
	for _, s := range c.stmts {
		_ = s.Close()
	}
	for _, s := range []*sqlite3.Stmt{c.begin, c.commit, c.rollback} {
		_ = s.Close()
	}
	if err := c.c.Close(); err != nil {
		return fmt.Errorf("close the connection: %w", err)
	}
	return nil
}
