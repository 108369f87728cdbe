package mysql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/uuid"

	"plugpull/internal/workload"
)

// Tables beside those with data.
const (
	runTable   = "run"
	tokenTable = "token"
)

// GrantText returns the statement that grants user, as in 'plugpull'@'%', the
// least that everything plugpull does in the schema needs. An underscore in the
// schema's name is escaped, since GRANT takes it for any letter (not so in MySQL with
// partial_revokes on: drop the backslash there).
func GrantText(schema, user string) string {
	return "GRANT CREATE, DROP, SELECT, INSERT, UPDATE, DELETE ON `" + strings.ReplaceAll(schema, "_", `\_`) + "`.* TO " + user
}

// PrivilegeError says that the user may not do what plugpull needs.
type PrivilegeError struct {
	Grant string // the statement that an administrator executes
	Err   error
}

func (e *PrivilegeError) Error() string {
	return fmt.Sprintf("%v; an administrator can allow it with: %s", e.Err, e.Grant)
}

func (e *PrivilegeError) Unwrap() error { return e.Err }

// OtherRunError says that the schema belongs to another run.
type OtherRunError struct {
	Schema     string
	Have, Want uuid.UUID
}

func (e *OtherRunError) Error() string {
	return fmt.Sprintf("schema %s holds run %v, not run %v: name another schema in the DSN, or remove it with `plugpull clean`", e.Schema, e.Have, e.Want)
}

// ForeignTableError says that the schema holds a table, view, routine or event
// that is not plugpull's.
type ForeignTableError struct {
	Schema string
	Table  string // its name
}

func (e *ForeignTableError) Error() string {
	return fmt.Sprintf("schema %s holds %s, which is not plugpull's: name a schema of plugpull's own in the DSN", e.Schema, e.Table)
}

// ReadOnlyError says that the server takes no writes.
type ReadOnlyError struct{ Variable string }

func (e *ReadOnlyError) Error() string {
	return fmt.Sprintf("the server is read-only: %s is on", e.Variable)
}

// EngineError says that a table is not kept by the engine that it was made with.
type EngineError struct{ Table, Have, Want string }

func (e *EngineError) Error() string {
	return fmt.Sprintf("table %s is kept by engine %q, not %s: its commits would prove nothing", e.Table, e.Have, e.Want)
}

// Prepare creates what is missing of the schema and of the tables of an epoch,
// and checks what is there. It returns one of this package's error types where the
// schema or the server cannot be used. It blocks on the database and may be
// repeated.
func (d *DB) Prepare(ctx context.Context, p workload.Params, epoch uint32) error {
	if err := p.Validate(); err != nil {
		return err
	}
	err := d.control(ctx, "", func(c *sql.Conn) error {
		if err := refuseReadOnly(ctx, c); err != nil {
			return err
		}
		if err := d.createSchema(ctx, c); err != nil {
			return err
		}
		if err := d.refuseForeign(ctx, c); err != nil {
			return err
		}
		return d.createTables(ctx, c, p, epoch)
	})
	return d.explain(err)
}

// explain adds the GRANT that is missing and names the read-only case.
func (d *DB) explain(err error) error {
	errno := Errno(err)
	switch {
	case err == nil:
		return nil
	case denied(errno):
		return &PrivilegeError{Grant: GrantText(d.dsn.Schema, "'"+strings.ReplaceAll(d.dsn.User, "'", "''")+"'@'%'"), Err: err}
	case errno == erOptionPrevents, errno == erReadOnlyMode, errno == erOpenAsReadonly:
		return errors.Join(&ReadOnlyError{Variable: "an option of the server"}, err)
	}
	return err
}

// refuseReadOnly looks at the variables too: an administrator could create the
// tables nevertheless, and the streams' user then could not write.
func refuseReadOnly(ctx context.Context, c *sql.Conn) error {
	vars, err := Variables(ctx, c, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('read_only', 'super_read_only', 'innodb_read_only', 'transaction_read_only', 'tx_read_only')")
	if err != nil {
		return err
	}
	for _, name := range sortedKeys(vars) {
		if v := vars[name]; v != "OFF" && v != "0" && v != "" {
			return &ReadOnlyError{Variable: name}
		}
	}
	return nil
}

func (d *DB) createSchema(ctx context.Context, c *sql.Conn) error {
	var n int
	if err := c.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = ?", d.dsn.Schema).Scan(&n); err != nil {
		return fmt.Errorf("look for the schema: %w", err)
	}
	if n > 0 {
		return nil
	}
	if _, err := c.ExecContext(ctx, "CREATE DATABASE IF NOT EXISTS `"+d.dsn.Schema+"` CHARACTER SET utf8mb4"); err != nil {
		return fmt.Errorf("create the schema %s: %w", d.dsn.Schema, err)
	}
	return nil
}

var ownTable = regexp.MustCompile(`^(run|token|(append|transfer_a|transfer_b|transfer_head|churn)_[0-9]+)$`)

// engines returns the engine of each table of the schema, views included.
func (d *DB) engines(ctx context.Context, c *sql.Conn) (map[string]string, error) {
	rows, err := c.QueryContext(ctx, "SELECT TABLE_NAME, COALESCE(ENGINE, '') FROM information_schema.TABLES WHERE TABLE_SCHEMA = ?", d.dsn.Schema)
	if err != nil {
		return nil, fmt.Errorf("list the tables: %w", err)
	}
	defer rows.Close()
	m := map[string]string{}
	for rows.Next() {
		var name, engine string
		if err := rows.Scan(&name, &engine); err != nil {
			return nil, fmt.Errorf("list the tables: %w", err)
		}
		m[name] = engine
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list the tables: %w", err)
	}
	return m, nil
}

func (d *DB) refuseForeign(ctx context.Context, c *sql.Conn) error {
	engines, err := d.engines(ctx, c)
	if err != nil {
		return err
	}
	for _, name := range sortedKeys(engines) {
		if !ownTable.MatchString(name) {
			return &ForeignTableError{Schema: d.dsn.Schema, Table: name}
		}
	}
	var other string
	err = c.QueryRowContext(ctx, "SELECT ROUTINE_NAME FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = ? UNION ALL "+
		"SELECT EVENT_NAME FROM information_schema.EVENTS WHERE EVENT_SCHEMA = ? LIMIT 1", d.dsn.Schema, d.dsn.Schema).Scan(&other)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list routines and events: %w", err)
	}
	return &ForeignTableError{Schema: d.dsn.Schema, Table: other}
}

func (d *DB) createTables(ctx context.Context, c *sql.Conn, p workload.Params, epoch uint32) error {
	want := map[string]string{runTable: "InnoDB", tokenTable: "MEMORY"}
	create := []string{
		"CREATE TABLE IF NOT EXISTS " + d.quoted(runTable) + " (run CHAR(36) CHARACTER SET ascii NOT NULL, epoch INT UNSIGNED NOT NULL, profile VARCHAR(16) CHARACTER SET ascii NOT NULL, " +
			"created TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (run, epoch)) ENGINE=InnoDB",
		"CREATE TABLE IF NOT EXISTS " + d.quoted(tokenTable) + " (token BIGINT UNSIGNED NOT NULL, session INT UNSIGNED NOT NULL, PRIMARY KEY (token)) ENGINE=MEMORY",
	}
	for _, t := range p.Profile.Tables() {
		key := "stream, seq"
		if t == workload.TableHead {
			key = "stream"
		}
		create = append(create, fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (stream SMALLINT UNSIGNED NOT NULL, seq BIGINT UNSIGNED NOT NULL, run BINARY(16) NOT NULL, "+
			"version TINYINT UNSIGNED NOT NULL, payload VARBINARY(%d) NOT NULL, PRIMARY KEY (%s)) ENGINE=InnoDB", d.table(t, epoch), p.PayloadMax, key))
		want[tableName(t, epoch)] = "InnoDB"
	}
	for i, q := range create {
		if _, err := c.ExecContext(ctx, q); err != nil {
			return fmt.Errorf("create a table: %w", err)
		}
		if i == 0 { // before anything else is added to another run's schema
			if err := d.claim(ctx, c, p, epoch); err != nil {
				return err
			}
		}
	}
	engines, err := d.engines(ctx, c)
	if err != nil {
		return err
	}
	for _, name := range sortedKeys(want) {
		if !strings.EqualFold(engines[name], want[name]) {
			return &EngineError{Table: name, Have: engines[name], Want: want[name]}
		}
	}
	return nil
}

// claim writes the run into the run table, or finds that another has.
func (d *DB) claim(ctx context.Context, c *sql.Conn, p workload.Params, epoch uint32) error {
	runs, err := d.runs(ctx, c)
	if err != nil {
		return err
	}
	for _, run := range runs {
		if run != p.Run {
			return &OtherRunError{Schema: d.dsn.Schema, Have: run, Want: p.Run}
		}
	}
	_, err = c.ExecContext(ctx, "INSERT INTO "+d.quoted(runTable)+" (run, epoch, profile) VALUES (?, ?, ?) ON DUPLICATE KEY UPDATE epoch = epoch",
		p.Run.String(), epoch, string(p.Profile))
	if err != nil {
		return fmt.Errorf("write the run's number: %w", err)
	}
	return nil
}

func (d *DB) runs(ctx context.Context, c *sql.Conn) ([]uuid.UUID, error) {
	rows, err := c.QueryContext(ctx, "SELECT DISTINCT run FROM "+d.quoted(runTable))
	if err != nil {
		return nil, fmt.Errorf("read the run's number: %w", err)
	}
	defer rows.Close()
	var runs []uuid.UUID
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, fmt.Errorf("read the run's number: %w", err)
		}
		id, err := uuid.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("read the run's number: %w", err)
		}
		runs = append(runs, id)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read the run's number: %w", err)
	}
	return runs, nil
}

// Runs returns the runs whose tables the schema holds. A verification of
// another run there is a mistake of usage. The error can wrap a server error
// that says that the schema or its run table is gone.
func (d *DB) Runs(ctx context.Context) (runs []uuid.UUID, err error) {
	err = d.control(ctx, "", func(c *sql.Conn) error {
		if runs, err = d.runs(ctx, c); err == nil {
			return nil
		}
		cause := err
		if e := c.Raw(func(dc any) error {
			if dc, ok := dc.(sqldriver.Conn); ok {
				err = sharpen(ctx, dc, cause)
			}
			return nil
		}); e != nil {
			return cause // the connection is lost, and with it the warnings
		}
		return err
	})
	return runs, d.explain(err)
}

// Drop removes the schema if it holds nothing but plugpull's tables; a schema
// that does not exist is no error.
func (d *DB) Drop(ctx context.Context) error {
	return d.explain(d.control(ctx, "", func(c *sql.Conn) error {
		engines, err := d.engines(ctx, c)
		if err != nil {
			return err
		}
		if err := d.refuseForeign(ctx, c); err != nil {
			return err
		}
		// Empty, or with tables that only look like plugpull's, it is someone else's.
		if _, ok := engines[runTable]; len(engines) > 0 && !ok {
			return &ForeignTableError{Schema: d.dsn.Schema, Table: sortedKeys(engines)[0]}
		}
		if _, err := c.ExecContext(ctx, "DROP DATABASE IF EXISTS `"+d.dsn.Schema+"`"); err != nil {
			return fmt.Errorf("drop the schema %s: %w", d.dsn.Schema, err)
		}
		return nil
	}))
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
