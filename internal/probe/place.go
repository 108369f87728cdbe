package probe

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/uuid"

	"plugpull/internal/database/mysql"
	"plugpull/internal/usage"
)

// Names in the probe's schema.
const (
	markTable   = "plugpull_probe_mark" // by which a later probe knows that the schema is a probe's
	commitTable = "commits"
	chunkName   = "commit_chunk"
)

// filler is the same row each time, of about the size that mysqlslap writes.
var filler = strings.Repeat("plugpull", 16)

// place is the probe's schema on a server.
type place struct {
	schema  string
	user    string
	token   string // of this probe, in the mark
	chunk   bool   // with the procedure
	made    bool   // CREATE DATABASE succeeded
	touched bool   // there may be something to remove
}

func newPlace(s Server) (*place, error) {
	id, err := uuid.NewRandom()
	if err != nil {
		return nil, fmt.Errorf("make the probe's number: %w", err)
	}
	return &place{schema: s.Schema, user: s.DB.DSN().User, token: id.String(), chunk: s.InServer}, nil
}

// Small letters alone: whether others are told apart depends on the server.
var schemaName = regexp.MustCompile(`^[a-z0-9_$-]{1,64}$`)

func validSchema(s string) bool {
	return schemaName.MatchString(s) && !slices.Contains([]string{"mysql", "sys", "information_schema", "performance_schema"}, s)
}

func (p *place) quoted(name string) string { return "`" + p.schema + "`.`" + name + "`" }

func (p *place) insert(value string) string {
	return "INSERT INTO " + p.quoted(commitTable) + " (filler) VALUES (" + value + ")"
}

// ForeignError says that the schema is not a probe's, or holds what is not.
type ForeignError struct {
	Schema string
	What   string // something in it; empty: there is nothing in it
}

func (e *ForeignError) Error() string {
	if e.What == "" {
		return fmt.Sprintf("the schema %s exists and is empty, so nothing shows that it is a probe's: drop it if you know that nobody wants it, or name another", e.Schema)
	}
	return fmt.Sprintf("the schema %s exists and holds %s, which is not a probe's: name another", e.Schema, e.What)
}

// GrantText returns the statement that grants user, as in 'plugpull'@'%', the least that a probe needs.
func GrantText(schema, user string, inServer bool) string {
	more := ""
	if inServer {
		more = ", CREATE ROUTINE, EXECUTE"
	}
	return "GRANT SELECT, INSERT, CREATE, DROP" + more + " ON `" + strings.ReplaceAll(schema, "_", `\_`) + "`.* TO " + user
}

// Server error numbers of privileges that are missing: to a schema, a table, a column, anything, a routine, and of the definer.
var deniedErrnos = []uint32{1044, 1142, 1143, 1227, 1370}

const errnoExists = 1007 // the database exists

func (p *place) explain(err error) error {
	if slices.Contains(deniedErrnos, mysql.Errno(err)) {
		return usage.Wrap(&mysql.PrivilegeError{Grant: GrantText(p.schema, "'"+strings.ReplaceAll(p.user, "'", "''")+"'@'%'", p.chunk), Err: err})
	}
	return err
}

// make creates the schema, on a connection that holds the lock. It removes what a dead probe has left first.
func (p *place) make(ctx context.Context, c *sql.Conn) error {
	there, err := p.look(ctx, c)
	if err != nil {
		return p.explain(err)
	}
	if there != nil {
		if err := there.refuse(p.schema); err != nil {
			return err
		}
		if err := p.drop(ctx, c, there); err != nil {
			return p.explain(err)
		}
	}
	return p.explain(p.create(ctx, c))
}

func (p *place) create(ctx context.Context, c *sql.Conn) error {
	p.touched = true // also when the answer is lost
	if _, err := c.ExecContext(ctx, "CREATE DATABASE `"+p.schema+"` CHARACTER SET utf8mb4"); err != nil {
		if n := mysql.Errno(err); n != 0 {
			p.touched = false
			if n == errnoExists {
				return usage.Wrap(&ForeignError{Schema: p.schema})
			}
		}
		return fmt.Errorf("create the schema %s: %w", p.schema, err)
	}
	p.made = true
	for _, step := range []struct{ what, q string }{
		{"the mark", "CREATE TABLE " + p.quoted(markTable) + " (token CHAR(36) CHARACTER SET ascii NOT NULL PRIMARY KEY, " +
			"made TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP) ENGINE=InnoDB COMMENT='made and removed by plugpull probe'"},
		{"the mark", "INSERT INTO " + p.quoted(markTable) + " (token) VALUES ('" + p.token + "')"},
		{"the table", "CREATE TABLE " + p.quoted(commitTable) + " (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, filler VARCHAR(128) NOT NULL) ENGINE=InnoDB"},
	} {
		if _, err := c.ExecContext(ctx, step.q); err != nil {
			return fmt.Errorf("create %s: %w", step.what, err)
		}
	}
	if p.chunk {
		if _, err := c.ExecContext(ctx, p.procedure()); err != nil {
			return fmt.Errorf("create the probe's procedure: %w", err)
		}
	}
	return p.checkEngine(ctx, c)
}

// checkEngine finds a server that puts another engine in the place of InnoDB.
func (p *place) checkEngine(ctx context.Context, c *sql.Conn) error {
	var engine sql.NullString
	err := c.QueryRowContext(ctx, "SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ?", p.schema, commitTable).Scan(&engine)
	if err != nil {
		return fmt.Errorf("look at the probe's table: %w", err)
	}
	if !strings.EqualFold(engine.String, "InnoDB") {
		return &mysql.EngineError{Table: commitTable, Have: engine.String, Want: "InnoDB"}
	}
	return nil
}

// contents is what a schema holds.
type contents struct {
	marked bool
	chunk  bool   // the probe's procedure
	other  string // something that no probe makes
	any    string // something
}

// look returns nil where there is no such schema. A user without rights to it sees none either, and then
// cannot create it.
func (p *place) look(ctx context.Context, c *sql.Conn) (*contents, error) {
	var n int
	if err := c.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = ?", p.schema).Scan(&n); err != nil {
		return nil, fmt.Errorf("look for the schema: %w", err)
	}
	if n == 0 {
		return nil, nil
	}
	rows, err := c.QueryContext(ctx, "SELECT TABLE_NAME, TABLE_TYPE FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? UNION ALL "+
		"SELECT ROUTINE_NAME, ROUTINE_TYPE FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = ? UNION ALL "+
		"SELECT EVENT_NAME, 'EVENT' FROM information_schema.EVENTS WHERE EVENT_SCHEMA = ?", p.schema, p.schema, p.schema)
	if err != nil {
		return nil, fmt.Errorf("list what is in the schema: %w", err)
	}
	defer rows.Close()
	there := &contents{}
	for rows.Next() {
		var name, kind string
		if err := rows.Scan(&name, &kind); err != nil {
			return nil, fmt.Errorf("list what is in the schema: %w", err)
		}
		there.any = name
		switch kind + " " + name {
		case "BASE TABLE " + markTable:
			there.marked = true
		case "BASE TABLE " + commitTable:
		case "PROCEDURE " + chunkName:
			there.chunk = true
		default:
			there.other = name
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list what is in the schema: %w", err)
	}
	return there, nil
}

// refuse returns why a schema is not to be dropped.
func (there *contents) refuse(schema string) error {
	switch {
	case there.other != "":
		return usage.Wrap(&ForeignError{Schema: schema, What: there.other})
	case !there.marked:
		return usage.Wrap(&ForeignError{Schema: schema, What: there.any})
	}
	return nil
}

func (p *place) drop(ctx context.Context, c *sql.Conn, there *contents) error {
	if there.chunk {
		// By itself, since with the schema the rights would stay that its making gave its maker. A user whom it
		// gave none may not be allowed to, and then there are none.
		_, err := c.ExecContext(ctx, "DROP PROCEDURE IF EXISTS "+p.quoted(chunkName))
		if err != nil && !slices.Contains(deniedErrnos, mysql.Errno(err)) {
			return fmt.Errorf("drop the probe's procedure: %w", err)
		}
	}
	if _, err := c.ExecContext(ctx, "DROP DATABASE IF EXISTS `"+p.schema+"`"); err != nil {
		return fmt.Errorf("drop the schema %s: %w", p.schema, err)
	}
	return nil
}

// remove drops the schema that this probe made, on a connection that holds the lock.
func (p *place) remove(ctx context.Context, c *sql.Conn) error {
	there, err := p.look(ctx, c)
	if err != nil || there == nil {
		return err
	}
	// It failed before the mark was there.
	if !there.marked && there.any == "" && p.made {
		return p.drop(ctx, c, there)
	}
	if err := there.refuse(p.schema); err != nil {
		return err
	}
	var n int
	err = c.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+p.quoted(markTable)+" WHERE token <> ?", p.token).Scan(&n)
	if err != nil {
		return fmt.Errorf("read the mark: %w", err)
	}
	if n > 0 {
		return errors.New("it is another probe's by now")
	}
	return p.drop(ctx, c, there)
}
