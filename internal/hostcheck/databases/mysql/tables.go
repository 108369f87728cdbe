package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"plugpull/internal/hostcheck"
	"plugpull/internal/hostcheck/databases"
)

// named is how many tables of an engine a report names, and lookedAt how many Aria tables are looked at one by
// one.
const (
	named    = 5
	lookedAt = 100
)

// tables are those that are not in InnoDB, outside the system's schemas.
type tables struct {
	engines map[string]*engineTables // by the engine's name in small letters
	all     bool                     // the login sees every table
	err     error
}

type engineTables struct {
	count int
	first []string // the first few by name
}

// Keys of tables.engines that are no engine's name.
const (
	noEngine      = ""                    // the server could not open it
	ariaLogged    = "aria, transactional" // with TRANSACTIONAL=1
	ariaNotLooked = "aria, not looked at"
)

func (t *tables) add(engine, name string) {
	if t.engines == nil {
		t.engines = map[string]*engineTables{}
	}
	key := strings.ToLower(engine)
	e := t.engines[key]
	if e == nil {
		e = &engineTables{}
		t.engines[key] = e
	}
	e.count++
	if len(e.first) < named {
		e.first = append(e.first, name)
	}
}

// text names the tables.
func (e *engineTables) text() string {
	names := make([]string, len(e.first))
	for i, n := range e.first {
		names[i] = databases.Quote(n)
	}
	s := strings.Join(names, ", ")
	if more := e.count - len(e.first); more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s
}

func readTables(ctx context.Context, c *sql.Conn) (t tables) {
	grants, err := readGrants(ctx, c)
	if err != nil {
		return tables{err: fmt.Errorf("read the login's privileges: %w", err)}
	}
	t.all = seesAllTables(grants)
	rows, err := c.QueryContext(ctx, `SELECT TABLE_SCHEMA, TABLE_NAME, COALESCE(ENGINE, '') FROM information_schema.TABLES
		WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED') AND COALESCE(ENGINE, '') <> 'InnoDB'
		AND TABLE_SCHEMA NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema') ORDER BY 1, 2`)
	if err != nil {
		return tables{err: fmt.Errorf("list the tables: %w", err)}
	}
	defer rows.Close()
	var aria [][2]string
	for rows.Next() {
		var schema, name, engine string
		if err := rows.Scan(&schema, &name, &engine); err != nil {
			return tables{err: fmt.Errorf("list the tables: %w", err)}
		}
		switch {
		case !strings.EqualFold(engine, "aria"):
			t.add(engine, schema+"."+name)
		case len(aria) < lookedAt:
			aria = append(aria, [2]string{schema, name})
		default:
			t.add(ariaNotLooked, schema+"."+name)
		}
	}
	if err := rows.Err(); err != nil {
		return tables{err: fmt.Errorf("list the tables: %w", err)}
	}
	for _, a := range aria {
		t.add(ariaKind(ctx, c, a[0], a[1]), a[0]+"."+a[1])
	}
	return t
}

// ariaKind tells a table that logs from one that does not. The list of all tables does not ask for it: the
// server would have to open each of them, and not only its definition.
func ariaKind(ctx context.Context, c *sql.Conn, schema, name string) string {
	var options sql.NullString
	err := c.QueryRowContext(ctx, "SELECT CREATE_OPTIONS FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ?", schema, name).Scan(&options)
	switch {
	case err == nil && strings.Contains(options.String, "transactional=1"):
		return ariaLogged
	case err == nil && strings.Contains(options.String, "transactional=0"):
		return "aria"
	}
	return ariaNotLooked
}

func readGrants(ctx context.Context, c *sql.Conn) (grants []string, err error) {
	rows, err := c.QueryContext(ctx, "SHOW GRANTS") // with those of the roles that are active
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var g string
		if err := rows.Scan(&g); err != nil {
			return nil, err
		}
		grants = append(grants, g)
	}
	return grants, rows.Err()
}

var globalGrant = regexp.MustCompile(`^GRANT (.+) ON \*\.\* TO `)

// tablePrivileges are those with which information_schema shows a table.
var tablePrivileges = [...]string{"ALL PRIVILEGES", "SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "REFERENCES", "INDEX", "ALTER", "CREATE VIEW", "SHOW VIEW", "TRIGGER", "DELETE HISTORY"}

// seesAllTables reads it from the lines of SHOW GRANTS. MySQL can take a schema out of a global grant
// again, with a line that begins with REVOKE: then tables may be hidden.
func seesAllTables(grants []string) bool {
	sees := false
	for _, g := range grants {
		if strings.HasPrefix(g, "REVOKE ") {
			return false
		}
		if m := globalGrant.FindStringSubmatch(g); m != nil {
			for p := range strings.SplitSeq(m[1], ", ") {
				sees = sees || slices.Contains(tablePrivileges[:], p)
			}
		}
	}
	return sees
}

// engine is what is known of a storage engine's durability.
type engine struct {
	code  string
	name  string
	level hostcheck.Level
	risk  string
}

const notFlushed = "nothing is flushed when a statement is acknowledged"

// known returns what is known of a key of tables.engines. RocksDB has settings of its own, and a Merge table is
// judged by its members.
//
// That Aria's tables with TRANSACTIONAL=1 flush their log before a statement is acknowledged was seen on
// MariaDB 10.11.19 (fdatasync before the reply, one sync of the log a statement), and that the others do not.
func known(key string) engine {
	const warning, unknown = hostcheck.Warning, hostcheck.Unknown
	switch key {
	case "aria":
		return engine{"mysql_tables_aria", "Aria with TRANSACTIONAL=0", warning, notFlushed + ", and a power cut can leave a table that needs repair"}
	case ariaLogged:
		return engine{"", "Aria with TRANSACTIONAL=1", hostcheck.OK, "a statement is flushed before it is acknowledged, but several are never one transaction"}
	case ariaNotLooked:
		return engine{"mysql_tables_aria_not_known", "Aria", unknown, "whether they are made with TRANSACTIONAL=1 was not found out"}
	case "myisam":
		return engine{"mysql_tables_myisam", "MyISAM", warning, notFlushed + ", and a power cut can leave a table that needs repair"}
	case "memory":
		return engine{"mysql_tables_memory", "MEMORY", warning, "every row is gone after a restart"}
	case "csv":
		return engine{"mysql_tables_csv", "CSV", warning, notFlushed + ", and a power cut can leave a torn file"}
	case "archive":
		return engine{"mysql_tables_archive", "ARCHIVE", warning, notFlushed + ", and a power cut can leave a torn file"}
	case "rocksdb", "mrg_myisam", "blackhole", "sequence", "performance_schema":
		return engine{"", key, hostcheck.OK, ""}
	case "federated", "connect", "spider", "s3", "ndbcluster":
		return engine{"mysql_tables_elsewhere", key, unknown, "their rows are on other servers or in another kind of store, which this check does not see"}
	case noEngine:
		return engine{"mysql_tables_unreadable", "no engine", unknown, "the server could not open them, or has not loaded their engine"}
	}
	return engine{"mysql_tables_other_engine", databases.Quote(key), unknown, "nothing is known of this engine's durability"}
}

const wantGrant = "; GRANT REFERENCES ON *.* shows them and not their rows"

func judgeTables(r *databases.Report, t *tables) {
	switch {
	case t.err != nil:
		r.Find(hostcheck.Unknown, "mysql_tables_not_known", "whether tables lie outside InnoDB is not known, "+why(t.err)+wantGrant)
		return
	case !t.all:
		r.Find(hostcheck.Unknown, "mysql_tables_not_known", "this login does not see every table, so those outside InnoDB are not all known"+wantGrant)
	}
	for _, key := range slices.Sorted(maps.Keys(t.engines)) {
		e, what := t.engines[key], known(key)
		s := databases.Setting{Name: "tables in " + what.name, Value: strconv.Itoa(e.count), Risk: what.risk, Level: what.level, Where: e.text()}
		text := fmt.Sprintf("%d of the tables are in %s (%s): %s", e.count, what.name, e.text(), what.risk)
		if e.count == 1 {
			text = fmt.Sprintf("a table is in %s (%s): %s", what.name, e.text(), what.risk)
		}
		if what.level == hostcheck.Warning {
			s.Safe = "0"
			text += "; move what must not be lost to InnoDB"
		}
		r.Settings = append(r.Settings, s)
		if what.level != hostcheck.OK {
			r.Find(what.level, what.code, text)
		}
	}
}
