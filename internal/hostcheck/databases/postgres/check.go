// Package postgres asks a PostgreSQL server about its durability. It knows PostgreSQL 13 to 18; it was run
// against 15 alone, and the rest rests on the manual.
//
// It guarantees that it only reads. This role suffices; it can read no table of yours:
//
//	CREATE ROLE plugpull_check LOGIN PASSWORD '…' IN ROLE pg_read_all_settings;
//
// It must be let into each database (CONNECT, which PUBLIC has unless it was revoked, and pg_hba.conf):
// UNLOGGED tables are listed only there. A database that it cannot enter is Unknown. Without
// pg_read_all_settings the server does not say where its folders are.
//
// Where the login may read pg_file_settings (superusers may; others need GRANT SELECT on it and GRANT EXECUTE
// on pg_show_all_file_settings()), settings that wait in the files for a reload or a restart are judged too.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"plugpull/internal/hostcheck/databases"
)

// Check connects to each database, reads and judges. It blocks until the server has answered or ctx is done. The
// error is one of connecting, of ctx, or of reading the server's settings, without which there is nothing to
// judge; whatever else cannot be read is in the report.
func Check(ctx context.Context, dsn DSN) (*databases.Report, error) {
	cfg, err := dsn.Config("plugpull check")
	if err != nil {
		return nil, err
	}
	read, err := readAll(ctx, cfg)
	if err != nil {
		return nil, err
	}
	r := judge(read)
	r.Where = dsn.String()
	if !read.direct {
		r.Apart = databases.NotDirect
	}
	return r, nil
}

// mostDatabases bounds how many databases are connected to.
const mostDatabases = 200

// reading is what a server said.
type reading struct {
	direct      bool
	version     string // version()
	recovery    bool   // a standby, or still recovering
	fork        string // a key of forks, by what only that server has; "" for none
	settings    map[string]setting
	overrides   []override
	inFiles     map[string]fileSetting // the last one in the files of each name
	filesErr    error
	tablespaces map[string]string // those that are not in the data folder
	databases   []database
	left        int // databases beyond mostDatabases
}

// setting is a row of pg_settings.
type setting struct {
	name, value, unit, source, file string
	pending                         bool // it waits for a restart
}

// override is what a role or a database starts its sessions with.
type override struct {
	role, database string // "" for all
	name, value    string
}

// fileSetting is a setting as the configuration files have it.
type fileSetting struct{ value, file string }

// database is what was found in one of the databases.
type database struct {
	name     string
	unlogged int
	first    []string // the first few UNLOGGED tables
	methods  []string // table access methods other than heap
	err      error
}

// A Query's error is its rows' as well: where it is not looked at, ForEachRow or CollectRows returns it.

func readAll(ctx context.Context, cfg *pgx.ConnConfig) (*reading, error) {
	c, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err) // the driver's error has no password in it
	}
	defer closeConn(c)
	read := &reading{}
	if read.direct, err = Direct(ctx, c); err != nil {
		return nil, fmt.Errorf("ask for the connection's ends: %w", err)
	}
	if err := read.server(ctx, c); err != nil {
		return nil, err
	}
	names, err := read.names(ctx, c)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if name == cfg.Database {
			read.databases = append(read.databases, readDatabase(ctx, c, name))
			continue
		}
		read.databases = append(read.databases, enterDatabase(ctx, cfg, name))
	}
	return read, ctx.Err()
}

// Direct reports whether the server is at the other end of the connection: not so through a tunnel, a proxy or the
// published port of a container, where it sees other addresses or ports than ours. A Unix socket is direct.
func Direct(ctx context.Context, c *pgx.Conn) (bool, error) {
	local, localOK := c.PgConn().Conn().LocalAddr().(*net.TCPAddr)
	remote, remoteOK := c.PgConn().Conn().RemoteAddr().(*net.TCPAddr)
	if !localOK || !remoteOK {
		return true, nil
	}
	var server string
	var port, ours int
	err := c.QueryRow(ctx, "SELECT coalesce(host(inet_server_addr()), ''), coalesce(inet_server_port(), 0), coalesce(inet_client_port(), 0)").Scan(&server, &port, &ours)
	return err == nil && remote.IP.Equal(net.ParseIP(server)) && remote.Port == port && local.Port == ours, err
}

// closeConn says goodbye for at most a second, also when the context is over.
func closeConn(c *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.Close(ctx)
}

func (r *reading) server(ctx context.Context, c *pgx.Conn) error {
	err := c.QueryRow(ctx, `SELECT version(), pg_is_in_recovery(),
		CASE WHEN to_regproc('pg_catalog.aurora_version') IS NOT NULL THEN 'aurora'
		ELSE (SELECT min(substring(name from '^(neon|polar|yb|gp|alloydb)[._]')) FROM pg_settings) END`).
		Scan(&r.version, &r.recovery, (*nullString)(&r.fork))
	if err != nil {
		return fmt.Errorf("read the server's version: %w", err)
	}
	r.settings = map[string]setting{}
	rows, _ := c.Query(ctx, "SELECT name, setting, coalesce(unit, ''), source, coalesce(sourcefile, ''), pending_restart FROM pg_settings WHERE name IN ("+quotedNames()+")")
	var s setting
	if _, err := pgx.ForEachRow(rows, []any{&s.name, &s.value, &s.unit, &s.source, &s.file, &s.pending}, func() error {
		r.settings[s.name] = s
		return nil
	}); err != nil {
		return fmt.Errorf("read the server's settings: %w", err)
	}
	if err := r.readOverrides(ctx, c); err != nil {
		return err
	}
	r.filesErr = r.files(ctx, c)
	return r.spaces(ctx, c)
}

func (r *reading) readOverrides(ctx context.Context, c *pgx.Conn) error {
	rows, _ := c.Query(ctx, `SELECT CASE s.setrole WHEN 0 THEN '' ELSE coalesce(o.rolname::text, s.setrole::text) END,
		CASE s.setdatabase WHEN 0 THEN '' ELSE coalesce(d.datname::text, s.setdatabase::text) END, unnest(s.setconfig)
		FROM pg_db_role_setting s LEFT JOIN pg_roles o ON o.oid = s.setrole LEFT JOIN pg_database d ON d.oid = s.setdatabase ORDER BY 1, 2, 3`)
	var o override
	var config string
	if _, err := pgx.ForEachRow(rows, []any{&o.role, &o.database, &config}, func() error {
		o.name, o.value, _ = strings.Cut(config, "=")
		if overridable(o.name) {
			r.overrides = append(r.overrides, o)
		}
		return nil
	}); err != nil {
		return fmt.Errorf("read the settings of roles and databases: %w", err)
	}
	return nil
}

// files reads what the configuration files have now, where the login may.
func (r *reading) files(ctx context.Context, c *pgx.Conn) error {
	rows, _ := c.Query(ctx, "SELECT name, setting, coalesce(sourcefile, '') FROM pg_file_settings WHERE setting IS NOT NULL AND lower(name) IN ("+quotedNames()+") ORDER BY seqno")
	found := map[string]fileSetting{}
	var name string
	var f fileSetting
	if _, err := pgx.ForEachRow(rows, []any{&name, &f.value, &f.file}, func() error {
		found[strings.ToLower(name)] = f
		return nil
	}); err != nil {
		return err
	}
	r.inFiles = found
	return nil
}

func (r *reading) spaces(ctx context.Context, c *pgx.Conn) error {
	rows, _ := c.Query(ctx, "SELECT spcname, pg_tablespace_location(oid) FROM pg_tablespace")
	r.tablespaces = map[string]string{}
	var name, location string
	if _, err := pgx.ForEachRow(rows, []any{&name, &location}, func() error {
		if location != "" {
			r.tablespaces[name] = location
		}
		return nil
	}); err != nil {
		return fmt.Errorf("read where the tablespaces are: %w", err)
	}
	return nil
}

// names lists the databases to look into. Templates are left alone: a connection to one would make a CREATE
// DATABASE of that moment wait or fail, and nothing is kept in them.
func (r *reading) names(ctx context.Context, c *pgx.Conn) (names []string, err error) {
	rows, _ := c.Query(ctx, "SELECT datname FROM pg_database WHERE datallowconn AND NOT datistemplate ORDER BY datname")
	var name string
	if _, err := pgx.ForEachRow(rows, []any{&name}, func() error {
		if len(names) < mostDatabases {
			names = append(names, name)
		} else {
			r.left++
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("list the databases: %w", err)
	}
	return names, nil
}

// named is how many UNLOGGED tables of a database a report names.
const named = 5

func enterDatabase(ctx context.Context, cfg *pgx.ConnConfig, name string) database {
	cfg = cfg.Copy()
	cfg.Database = name
	c, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return database{name: name, err: err}
	}
	defer closeConn(c)
	return readDatabase(ctx, c, name)
}

func readDatabase(ctx context.Context, c *pgx.Conn, name string) (d database) {
	d.name = name
	rows, _ := c.Query(ctx, `SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relpersistence = 'u' AND c.relkind IN ('r', 'm') ORDER BY 1`)
	var table string
	if _, d.err = pgx.ForEachRow(rows, []any{&table}, func() error {
		if d.unlogged++; d.unlogged <= named {
			d.first = append(d.first, table)
		}
		return nil
	}); d.err != nil {
		return d
	}
	rows, _ = c.Query(ctx, "SELECT DISTINCT a.amname FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE c.relkind IN ('r', 'm') AND a.amname <> 'heap' ORDER BY 1")
	d.methods, d.err = pgx.CollectRows(rows, pgx.RowTo[string])
	return d
}

// why says in a few words why something was not read.
func why(err error) string {
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg) && (pg.Code == "42501" || pg.Code == "28000" || pg.Code == "28P01"):
		return "the login may not: " + databases.Quote(pg.Message)
	case errors.As(err, &pg):
		return databases.Quote(pg.Message)
	case errors.Is(err, context.DeadlineExceeded):
		return "the server did not answer in time"
	}
	return err.Error()
}

// nullString reads NULL as the empty string.
type nullString string

// Scan implements sql.Scanner.
func (n *nullString) Scan(v any) error {
	s, _ := v.(string)
	*n = nullString(s)
	return nil
}
