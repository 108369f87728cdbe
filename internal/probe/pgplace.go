package probe

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"plugpull/internal/database/mysql"
	"plugpull/internal/usage"
)

// postgresPlace is the probe's schema on a PostgreSQL server. It is made, and removed, in one transaction each, and
// without CASCADE: what is not the probe's keeps it from being dropped.
type postgresPlace struct {
	schema, database, user string
	token                  string // of this probe, in the mark
	chunk                  bool   // with the procedure
	touched                bool   // there may be something to remove
}

func newPostgresPlace(s Postgres) (*postgresPlace, error) {
	if s.Schema == "" {
		s.Schema = DefaultSchema
	}
	if err := validPostgresSchema(s.Schema); err != nil {
		return nil, err
	}
	id, err := uuid.NewRandom()
	if err != nil {
		return nil, fmt.Errorf("make the probe's number: %w", err)
	}
	return &postgresPlace{schema: s.Schema, database: s.DSN.Database, user: s.DSN.User, token: id.String(), chunk: s.InServer}, nil
}

// quoted quotes the schema, or what is in it.
func (p *postgresPlace) quoted(names ...string) string {
	return pgx.Identifier(append([]string{p.schema}, names...)).Sanitize()
}

func (p *postgresPlace) insert(value string) string {
	return "INSERT INTO " + p.quoted(commitTable) + " (filler) VALUES (" + value + ")"
}

// PostgresGrantText returns the statement that grants a role the least that a probe needs: the schema will be its own.
func PostgresGrantText(database, role string) string {
	return "GRANT CREATE ON DATABASE " + pgx.Identifier{database}.Sanitize() + " TO " + pgx.Identifier{role}.Sanitize()
}

// make creates the schema, on a connection that holds the lock. It removes what a dead probe has left first.
func (p *postgresPlace) make(ctx context.Context, c *pgx.Conn) error {
	if err := p.drop(ctx, c, ""); err != nil {
		return err
	}
	p.touched = true // also when the answer is lost
	err := pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error { return p.create(ctx, tx) })
	switch sqlstate(err) {
	case stateExists:
		p.touched = false
		return usage.Wrap(&ForeignError{Schema: p.schema})
	case stateDenied:
		p.touched = false
		return usage.Wrap(&mysql.PrivilegeError{Grant: PostgresGrantText(p.database, p.user), Err: err})
	}
	return err
}

func (p *postgresPlace) create(ctx context.Context, tx pgx.Tx) error {
	type step struct{ what, q string }
	steps := []step{
		{"the schema " + p.schema, "CREATE SCHEMA " + p.quoted()},
		{"the mark", "CREATE TABLE " + p.quoted(markTable) + " (token char(36) PRIMARY KEY, made timestamptz NOT NULL DEFAULT now()) USING heap"},
		{"the mark", "COMMENT ON TABLE " + p.quoted(markTable) + " IS 'made and removed by plugpull probe'"},
		{"the mark", "INSERT INTO " + p.quoted(markTable) + " (token) VALUES ('" + p.token + "')"},
		// Without the vacuum that would begin in the midst of it.
		{"the table", "CREATE TABLE " + p.quoted(commitTable) + " (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, filler varchar(128) NOT NULL) USING heap WITH (autovacuum_enabled = off)"},
	}
	if p.chunk {
		steps = append(steps, step{"the probe's procedure", p.procedure()})
	}
	for _, s := range steps {
		if _, err := tx.Exec(ctx, s.q); err != nil {
			return fmt.Errorf("create %s: %w", s.what, err)
		}
	}
	return nil
}

// look returns nil where there is no such schema.
func (p *postgresPlace) look(ctx context.Context, tx pgx.Tx) (*contents, error) {
	var oid uint32
	err := tx.QueryRow(ctx, "SELECT oid FROM pg_namespace WHERE nspname = $1", p.schema).Scan(&oid)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for the schema: %w", err)
	}
	rows, _ := tx.Query(ctx, `SELECT coalesce(c.relkind::text || ' ' || c.relname, p.prokind::text || ' ' || p.proname, ''), pg_describe_object(d.classid, d.objid, d.objsubid)
		FROM pg_depend d LEFT JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
		LEFT JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
		WHERE d.refclassid = 'pg_namespace'::regclass AND d.refobjid = $1 ORDER BY 2`, oid) // its error is its rows' as well
	there := &contents{}
	var object, text string
	if _, err := pgx.ForEachRow(rows, []any{&object, &text}, func() error {
		there.any = text
		switch object {
		case "r " + markTable:
			there.marked = true
		case "r " + commitTable, "S " + commitTable + "_id_seq":
		case "p " + chunkName:
			there.chunk = true
		default:
			there.other = text
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("list what is in the schema: %w", err)
	}
	return there, nil
}

// remove drops the schema that this probe made, on a connection that holds the lock.
func (p *postgresPlace) remove(ctx context.Context, c *pgx.Conn) error {
	return p.drop(ctx, c, p.token)
}

// drop drops a schema that is a probe's, where there is one; with a token, of that probe alone.
func (p *postgresPlace) drop(ctx context.Context, c *pgx.Conn, token string) error {
	err := pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		there, err := p.look(ctx, tx)
		if err != nil || there == nil {
			return err
		}
		if err := there.refuse(p.schema); err != nil {
			return err
		}
		if token != "" {
			var n int
			if err := tx.QueryRow(ctx, "SELECT count(*) FROM "+p.quoted(markTable)+" WHERE token <> $1", token).Scan(&n); err != nil {
				return fmt.Errorf("read the mark: %w", err)
			}
			if n > 0 {
				return errors.New("it is another probe's by now")
			}
		}
		for _, q := range []string{
			"DROP PROCEDURE IF EXISTS " + p.quoted(chunkName),
			"DROP TABLE IF EXISTS " + p.quoted(commitTable) + ", " + p.quoted(markTable),
			"DROP SCHEMA IF EXISTS " + p.quoted(),
		} {
			if _, err := tx.Exec(ctx, q); err != nil {
				return fmt.Errorf("drop the schema %s: %w", p.schema, err)
			}
		}
		return nil
	})
	switch sqlstate(err) {
	case stateDependents:
		return usage.Wrap(fmt.Errorf("%w: %w", &ForeignError{Schema: p.schema, What: "something others rest on"}, err))
	case stateDenied:
		return usage.Errorf("the schema %s was left by a probe of another role, and this one may not drop it: let that role or a superuser drop it: %w", p.schema, err)
	}
	return err
}
