package mysql

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"net"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"plugpull/client"
	"plugpull/internal/clock"
	"plugpull/internal/ledger"
	"plugpull/internal/workload"
)

const sqlMode = "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION"

// conn is a stream's connection. It uses the driver's connection without the
// pool of database/sql, so nothing is sent again behind its back.
type conn struct {
	p     workload.Params
	w     *wire
	dc    sqldriver.Conn
	exec  sqldriver.ExecerContext
	stmts map[stepKind]sqldriver.StmtExecContext
	id    uint64
	ended ledger.End

	// Reused by each operation.
	steps   []workload.Step
	payload []byte
	args    []sqldriver.NamedValue
	run     sqldriver.Value
}

type stepKind struct {
	action workload.Action
	table  workload.Table
}

// Dial opens a connection for one stream, sets its session up and prepares
// every statement of the profile. It blocks for at most the DSN's connect timeout
// to reach the server and the silence deadline for each answer.
func (d *DB) Dial(ctx context.Context, p workload.Params, epoch uint32) (client.Conn, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	c := &conn{p: p, stmts: map[stepKind]sqldriver.StmtExecContext{}, run: append([]byte(nil), p.Run[:]...)}
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		// The kernel's timeout must not come before the silence deadline.
		s, err := dialSocket(ctx, network, addr, 2*d.silence+time.Second)
		if err != nil {
			return nil, err
		}
		c.w = &wire{Conn: s, silence: d.silence}
		return c.w, nil
	}
	connector, err := d.connector(d.dsn.Schema, dial)
	if err != nil {
		return nil, err
	}
	if c.dc, err = connector.Connect(ctx); err != nil {
		return nil, &ConnectError{DSN: d.dsn, Err: err}
	}
	if err := c.setUp(ctx, d, epoch); err != nil {
		return nil, errors.Join(&ConnectError{DSN: d.dsn, Err: err}, c.Close())
	}
	return c, nil
}

func (c *conn) setUp(ctx context.Context, d *DB, epoch uint32) error {
	var ok bool
	if c.exec, ok = c.dc.(sqldriver.ExecerContext); !ok {
		return errors.New("the driver's connection executes no text")
	}
	// Below the silence deadline, so that a lock is never taken for silence.
	lock := max(1, min(5, int(d.silence.Seconds()/2)))
	for _, q := range []string{
		fmt.Sprintf("SET SESSION autocommit=1, completion_type='NO_CHAIN', sql_mode='%s', wait_timeout=2147483, net_write_timeout=3600, innodb_lock_wait_timeout=%d, lock_wait_timeout=%d", sqlMode, lock, lock),
		"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
	} {
		if _, err := c.exec.ExecContext(ctx, q, nil); err != nil {
			return fmt.Errorf("set up the session: %w", err)
		}
	}
	var err error
	if c.id, err = connectionID(ctx, c.dc); err != nil {
		return err
	}
	for kind, q := range statements(d, c.p.Profile, epoch) {
		stmt, err := prepare(ctx, c.dc, q)
		if err != nil {
			return fmt.Errorf("prepare %q: %w", q, err)
		}
		if c.stmts[kind], ok = stmt.(sqldriver.StmtExecContext); !ok {
			return errors.New("the driver's statement takes no context")
		}
	}
	return nil
}

func prepare(ctx context.Context, dc sqldriver.Conn, q string) (sqldriver.Stmt, error) {
	p, ok := dc.(sqldriver.ConnPrepareContext)
	if !ok {
		return nil, errors.New("the driver's connection prepares no statement")
	}
	return p.PrepareContext(ctx, q)
}

// statements returns what the steps of a profile execute.
func statements(d *DB, p workload.Profile, epoch uint32) map[stepKind]string {
	insert := func(t workload.Table) string {
		return "INSERT INTO " + d.table(t, epoch) + " (stream, seq, run, version, payload) VALUES (?, ?, ?, ?, ?)"
	}
	q := map[stepKind]string{}
	for _, t := range p.Tables() {
		if t == workload.TableHead {
			q[stepKind{workload.SetHead, t}] = insert(t) +
				" ON DUPLICATE KEY UPDATE seq = VALUES(seq), run = VALUES(run), version = VALUES(version), payload = VALUES(payload)"
			continue
		}
		q[stepKind{workload.Insert, t}] = insert(t)
	}
	if p == workload.Churn {
		t := workload.TableChurn
		q[stepKind{workload.Update, t}] = "UPDATE " + d.table(t, epoch) + " SET version = ?, payload = ? WHERE stream = ? AND seq = ?"
		q[stepKind{workload.Delete, t}] = "DELETE FROM " + d.table(t, epoch) + " WHERE stream = ? AND seq = ?"
	}
	return q
}

// ID implements client.Conn.
func (c *conn) ID() uint64 { return c.id }

// Commit implements client.Conn.
func (c *conn) Commit(ctx context.Context, op workload.Op) client.Reply {
	if c.ended != 0 {
		return client.Reply{Outcome: ledger.Refused, Answered: clock.Now(), Ended: c.ended, Err: errors.New("the connection has ended")}
	}
	if err := ctx.Err(); err != nil {
		c.w.aborted.Store(true)
		return c.refuse(err, true)
	}
	if ctx.Done() != nil {
		// Cheaper than the driver's own watcher, which costs two switches of
		// goroutine for each statement.
		stop := context.AfterFunc(ctx, c.w.abort)
		defer stop()
	}
	c.steps = c.p.Steps(c.steps[:0], op)
	if c.p.Profile == workload.Append {
		c.w.arm()
		err := c.step(&c.steps[0])
		return c.judge(err, statementRefused)
	}
	return c.transaction()
}

// transaction executes c.steps as one transaction: only COMMIT commits.
func (c *conn) transaction() client.Reply {
	if err := c.text("START TRANSACTION"); err != nil {
		return c.refuse(err, true)
	}
	for i := range c.steps {
		if err := c.step(&c.steps[i]); err != nil {
			return c.refuse(err, !statementRefused(Errno(err)))
		}
	}
	c.w.arm()
	err := c.text("COMMIT")
	r := c.judge(err, commitRefused)
	if r.Outcome == ledger.Refused && r.Ended == 0 {
		return c.rollback(r)
	}
	return r
}

// judge turns the answer to the committing packet into a reply.
func (c *conn) judge(err error, refused func(uint32) bool) client.Reply {
	r := client.Reply{Answered: clock.Now()}
	if c.w.written > 0 {
		r.Sent = c.w.sent
	}
	c.w.disarm()
	if err == nil {
		r.Outcome = ledger.Acked
		return r
	}
	r.Errno, r.Err = Errno(err), fmt.Errorf("commit: %w", c.cause(err))
	switch {
	case c.w.written == 0:
		r.Outcome = ledger.Refused
	case r.Errno != 0 && refused(r.Errno) && c.inStep():
		r.Outcome = ledger.Refused
		return r
	default:
		r.Outcome = ledger.Unknown
	}
	r.Ended = c.giveUp(r.Errno)
	return r
}

// refuse is the reply to an operation whose committing packet was not written.
// The transaction, if one was begun, is rolled back here or by the server when
// it notices the end of the connection.
func (c *conn) refuse(err error, end bool) client.Reply {
	r := client.Reply{Outcome: ledger.Refused, Answered: clock.Now(), Errno: Errno(err), Err: c.cause(err)}
	if end || !c.inStep() {
		r.Ended = c.giveUp(r.Errno)
		return r
	}
	return c.rollback(r)
}

func (c *conn) rollback(r client.Reply) client.Reply {
	if err := c.text("ROLLBACK"); err != nil {
		r.Err = errors.Join(r.Err, fmt.Errorf("roll back: %w", c.cause(err)))
		r.Ended = c.giveUp(Errno(err))
	}
	return r
}

// inStep reports whether the driver holds the connection for usable: an error
// packet out of sequence, as a notice of shutdown is, makes it close it, and
// then the error was not the answer to what was sent.
func (c *conn) inStep() bool {
	v, ok := c.dc.(sqldriver.Validator)
	return ok && v.IsValid()
}

// giveUp ends the connection at once and says how it ended.
func (c *conn) giveUp(errno uint32) ledger.End {
	switch {
	case saysShutdown(errno):
		c.ended = ledger.EndShutdown
	case c.w.aborted.Load():
		c.ended = ledger.EndStopped
	case c.w.end != 0:
		c.ended = c.w.end
	default:
		c.ended = ledger.EndError
	}
	_ = c.w.Close() // first, so that the driver's farewell cannot be sent
	_ = c.dc.Close()
	return c.ended
}

// cause replaces the driver's words for a lost connection, which hide how it
// was lost.
func (c *conn) cause(err error) error {
	if Errno(err) != 0 {
		return err
	}
	switch {
	case c.w.aborted.Load():
		return errors.Join(errAborted, err)
	case c.w.end == ledger.EndSilence:
		return fmt.Errorf("no answer within %v: %w", c.w.silence, err)
	case c.w.end != 0:
		return fmt.Errorf("connection lost (%v): %w", c.w.end, err)
	}
	return err
}

// text executes a statement without arguments: one round trip. The driver
// gets no context: the wire has the deadlines and heeds the caller's.
func (c *conn) text(q string) error {
	_, err := c.exec.ExecContext(context.Background(), q, nil)
	return err
}

// step executes one step by its prepared statement: one round trip.
func (c *conn) step(s *workload.Step) error {
	if s.Action != workload.Delete {
		c.payload = c.p.AppendPayload(c.payload[:0], s.Table, s.Stream, s.Seq, s.Version)
	}
	c.args = c.args[:0]
	switch s.Action {
	case workload.Insert, workload.SetHead:
		c.bind(int64(s.Stream), uint64(s.Seq), c.run, int64(s.Version), c.payload)
	case workload.Update:
		c.bind(int64(s.Version), c.payload, int64(s.Stream), uint64(s.Seq))
	case workload.Delete:
		c.bind(int64(s.Stream), uint64(s.Seq))
	}
	stmt := c.stmts[stepKind{s.Action, s.Table}]
	if stmt == nil {
		return fmt.Errorf("no statement for action %d on %v", s.Action, s.Table)
	}
	_, err := stmt.ExecContext(context.Background(), c.args)
	return err
}

func (c *conn) bind(values ...sqldriver.Value) {
	for i, v := range values {
		// An empty payload is a value, and the driver takes a nil slice for NULL.
		if b, ok := v.([]byte); ok && b == nil {
			v = []byte{}
		}
		c.args = append(c.args, sqldriver.NamedValue{Ordinal: i + 1, Value: v})
	}
}

// Close implements client.Conn.
func (c *conn) Close() error {
	if c.ended != 0 {
		return nil
	}
	c.ended = ledger.EndStopped
	c.w.graceful.Store(true)
	if err := c.dc.Close(); err != nil && !errors.Is(err, driver.ErrInvalidConn) {
		return fmt.Errorf("close the connection: %w", err)
	}
	return nil
}

// connectionID asks for the server's number of the connection, which the
// driver reads in the greeting and keeps to itself.
func connectionID(ctx context.Context, dc sqldriver.Conn) (uint64, error) {
	q, ok := dc.(sqldriver.QueryerContext)
	if !ok {
		return 0, errors.New("the driver's connection has no queries")
	}
	rows, err := q.QueryContext(ctx, "SELECT CONNECTION_ID()", nil)
	if err != nil {
		return 0, fmt.Errorf("ask for the connection's number: %w", err)
	}
	dest := make([]sqldriver.Value, 1)
	if err := rows.Next(dest); err != nil {
		return 0, errors.Join(fmt.Errorf("ask for the connection's number: %w", err), rows.Close())
	}
	id, ok := number(dest[0])
	if !ok {
		return 0, errors.Join(fmt.Errorf("ask for the connection's number: unexpected type %T", dest[0]), rows.Close())
	}
	return id, rows.Close()
}
