package probe

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"plugpull/internal/usage"
)

// postgresNames are the settings that are kept beside a rate.
var postgresNames = []string{"fsync", "synchronous_commit", "wal_sync_method", "full_page_writes", "commit_delay", "commit_siblings",
	"synchronous_standby_names", "wal_level", "wal_compression", "server_version", "server_version_num"}

// storageName is the key under which the settings hold whose storage it is, where that is not PostgreSQL's own.
const storageName = "plugpull.storage"

// LogicalError says that logical replication would take the probe's rows.
type LogicalError struct {
	Publications []string // FOR ALL TABLES
	Slots        []string // logical ones with a plugin that goes by no publication
}

func (e *LogicalError) Error() string {
	var who []string
	if len(e.Publications) > 0 {
		who = append(who, "publications FOR ALL TABLES: "+strings.Join(e.Publications, ", "))
	}
	if len(e.Slots) > 0 {
		who = append(who, "logical replication slots that no publication limits: "+strings.Join(e.Slots, ", "))
	}
	return "the database has " + strings.Join(who, "; and ") + ": every row of the probe would be sent to the subscribers, and the replication of one that has no such table stops; allow it if that may be"
}

// ask reads what the server says of itself into the result, and refuses one that is not to be probed.
func (s Postgres) ask(ctx context.Context, c *pgx.Conn, r *Result) error {
	var recovery, readOnly bool
	var number int
	var pid uint32
	var storage *string
	err := c.QueryRow(ctx, `SELECT pg_is_in_recovery(), current_setting('transaction_read_only')::bool, current_setting('server_version_num')::int, version(), pg_backend_pid(),
		CASE WHEN to_regproc('pg_catalog.aurora_version') IS NOT NULL THEN 'aurora'
		ELSE (SELECT min(substring(name from '^(neon|polar|yb|gp|alloydb)[._]')) FROM pg_settings) END`).
		Scan(&recovery, &readOnly, &number, &r.Version, &pid, &storage)
	if err != nil {
		return fmt.Errorf("ask what the server is: %w", err)
	}
	switch {
	case number < 120000:
		return usage.Errorf("the server is %s, and a probe needs PostgreSQL 12 or later", r.Version)
	case recovery:
		return usage.Errorf("the server is a standby (pg_is_in_recovery() is true), where nothing can be committed: probe its primary")
	case readOnly:
		return usage.Errorf("this login's transactions are read-only (default_transaction_read_only)")
	case pid != c.PgConn().PID():
		return usage.Errorf("there is a pooler or proxy before the server, which may give each commit to another session, and whose time would be counted: connect to the server itself")
	}
	if r.Settings, err = postgresSettings(ctx, c, postgresNames...); err != nil {
		return err
	}
	if storage != nil {
		r.Settings[storageName] = *storage
	}
	if s.AllowLogical {
		return nil
	}
	return logical(ctx, c)
}

// postgresSettings reads settings as this session has them, by name. Those that the login may not see are left out.
func postgresSettings(ctx context.Context, c *pgx.Conn, names ...string) (map[string]string, error) {
	rows, _ := c.Query(ctx, "SELECT name, setting FROM pg_catalog.pg_settings WHERE name = ANY($1)", names) // its error is its rows' as well
	var name, value string
	settings := map[string]string{}
	if _, err := pgx.ForEachRow(rows, []any{&name, &value}, func() error {
		settings[name] = value
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read the server's settings: %w", err)
	}
	return settings, nil
}

// logical returns an error where logical replication takes each new table. A publication of a schema is none: this one is the
// probe's own.
func logical(ctx context.Context, c *pgx.Conn) error {
	var e LogicalError
	for _, q := range []struct {
		into  *[]string
		query string
	}{
		{&e.Publications, "SELECT pubname FROM pg_catalog.pg_publication WHERE puballtables ORDER BY 1"},
		// pgoutput sends what publications name.
		{&e.Slots, "SELECT slot_name FROM pg_catalog.pg_replication_slots WHERE slot_type = 'logical' AND database = current_database() AND plugin <> 'pgoutput' ORDER BY 1"},
	} {
		rows, _ := c.Query(ctx, q.query)
		var err error
		if *q.into, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			return fmt.Errorf("look for logical replication: %w", err)
		}
	}
	if len(e.Publications)+len(e.Slots) > 0 {
		return usage.Wrap(&e)
	}
	return nil
}

// SettingsText lists the settings of a result that decide what its rate means, in a fixed order, as name = value.
func SettingsText(r *Result) (lines []string) {
	names := []string{"innodb_flush_log_at_trx_commit", "sync_binlog", "log_bin", "innodb_flush_method", "innodb_doublewrite"}
	if _, ok := r.Settings["fsync"]; ok {
		names = slices.Clone(postgresNames[:8])
	}
	for _, name := range names {
		if v, ok := r.Settings[name]; ok {
			lines = append(lines, name+" = "+v)
		}
	}
	return lines
}
