package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Identity returns what the server says it is: hostname, port, datadir,
// server_uuid (MySQL, and MariaDB where it has one), version, version_comment. A
// variable that the server lacks is left out.
func (d *DB) Identity(ctx context.Context) (id map[string]string, err error) {
	err = d.control(ctx, "", func(c *sql.Conn) error {
		id, err = Variables(ctx, c, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('hostname', 'port', 'datadir', 'server_uuid', 'version', 'version_comment')")
		return err
	})
	return id, err
}

// Variables runs a statement that returns names and values; the names are in
// small letters.
func Variables(ctx context.Context, c *sql.Conn, q string) (map[string]string, error) {
	rows, err := c.QueryContext(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("read the server's variables: %w", err)
	}
	defer rows.Close()
	m := map[string]string{}
	for rows.Next() {
		var name string
		var value sql.NullString
		if err := rows.Scan(&name, &value); err != nil {
			return nil, fmt.Errorf("read the server's variables: %w", err)
		}
		m[strings.ToLower(name)] = value.String
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read the server's variables: %w", err)
	}
	return m, nil
}

// Problem is a setting with which an acknowledged commit can be lost.
type Problem struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Safe  string `json:"safe"`
	Risk  string `json:"risk"`
}

// Settings is what the server says of its durability.
type Settings struct {
	Problems  []Problem         // in a fixed order; empty: durable as far as settings go
	LogBin    bool              // the binary log is on: a second file that each commit depends on
	ReadOnly  bool              // no stream could write
	Uptime    time.Duration     // since the server's start, to the second
	Variables map[string]string // every variable that was judged and that the server has
}

// Settings reads the server's global variables and status.
func (d *DB) Settings(ctx context.Context) (s Settings, err error) {
	err = d.control(ctx, "", func(c *sql.Conn) error {
		vars, err := Variables(ctx, c, "SHOW GLOBAL VARIABLES")
		if err != nil {
			return err
		}
		status, err := Variables(ctx, c, "SHOW GLOBAL STATUS WHERE Variable_name IN ('Uptime', 'Innodb_redo_log_enabled')")
		if err != nil {
			return err
		}
		up, err := strconv.ParseUint(status["uptime"], 10, 32)
		if err != nil {
			return errors.New("the server does not say how long it has been up")
		}
		s = judgeSettings(vars, status)
		s.Uptime = time.Duration(up) * time.Second
		return nil
	})
	return s, err
}

// Rule says which values of a global variable can lose a commit.
type Rule struct {
	Name string // of the variable, in small letters
	Safe string // the value to set
	Risk string // a sentence fragment
	// Bad judges a value; vars has every variable of the server.
	Bad func(value string, vars map[string]string) bool
}

func in(values ...string) func(string, map[string]string) bool {
	return func(v string, _ map[string]string) bool {
		for _, x := range values {
			if strings.EqualFold(v, x) {
				return true
			}
		}
		return false
	}
}

func notIn(values ...string) func(string, map[string]string) bool {
	bad := in(values...)
	return func(v string, vars map[string]string) bool { return !bad(v, vars) }
}

// IsOn reports whether a switch is on.
func IsOn(v string) bool { return strings.EqualFold(v, "ON") || v == "1" }

// Rules covers MariaDB 10.6 to 12 and MySQL 5.7 to 9, in a fixed order. A
// variable that a server lacks is not judged, and a variable may have two rules.
func Rules() []Rule {
	return []Rule{
		{"innodb_flush_log_at_trx_commit", "1", "commits of the last second or more are only in memory when they are acknowledged", func(v string, vars map[string]string) bool {
			// MariaDB's 3 flushes at prepare and at commit.
			return v != "1" && !(v == "3" && IsMariaDB(vars))
		}},
		{"sync_binlog", "1", "after a crash transactions missing from the binary log are rolled back, acknowledged or not", func(v string, vars map[string]string) bool {
			// In MariaDB 12.3 and later the binary log can live in InnoDB, under its redo log.
			return IsOn(vars["log_bin"]) && v != "1" && !strings.EqualFold(vars["binlog_storage_engine"], "innodb")
		}},
		{"innodb_flush_method", "O_DIRECT or fsync", "data files are not flushed before the log that could restore them is overwritten", in("nosync", "littlesync", "O_DIRECT_NO_FSYNC", "NO_FSYNC")},
		{"innodb_doublewrite", "ON", "a page torn by the power cut cannot be repaired", in("OFF", "0", "DETECT_ONLY")},
		{"innodb_doublewrite", "ON", "data files are not flushed at a checkpoint", in("fast")},
		{"innodb_force_recovery", "0", "parts of crash recovery are left out", notIn("0")},
		{"innodb_checksum_algorithm", "crc32 or full_crc32", "damaged pages are not noticed", in("none", "strict_none")},
		{"innodb_checksums", "ON", "damaged pages are not noticed", in("OFF", "0")},
		{"innodb_log_checksums", "ON", "a torn log is not noticed in recovery", in("OFF", "0")},
		{"debug_no_sync", "OFF", "the server makes no flush at all", in("ON", "1")},
	}
}

// recorded are variables that are worth keeping beside those with a rule.
var recorded = [...]string{"log_bin", "read_only", "super_read_only", "innodb_read_only", "innodb_data_file_write_through", "innodb_log_file_write_through",
	"innodb_data_file_buffering", "innodb_log_file_buffering", "innodb_log_file_mmap", "binlog_storage_engine", "innodb_fast_shutdown", "innodb_page_size",
	"innodb_use_native_aio", "rpl_semi_sync_master_enabled", "wsrep_on", "innodb_version", "version", "version_comment"}

// IsMariaDB tells MariaDB from MySQL by the variables version and version_comment.
func IsMariaDB(vars map[string]string) bool {
	return strings.Contains(strings.ToLower(vars["version"]+vars["version_comment"]), "mariadb")
}

func judgeSettings(vars, status map[string]string) Settings {
	s := Settings{LogBin: IsOn(vars["log_bin"]), Variables: map[string]string{}}
	for _, r := range Rules() {
		v, ok := vars[r.Name]
		if !ok {
			continue
		}
		s.Variables[r.Name] = v
		if r.Bad(v, vars) {
			s.Problems = append(s.Problems, Problem{r.Name, v, r.Safe, r.Risk})
		}
	}
	if _, ok := vars["innodb_flush_log_at_trx_commit"]; !ok {
		s.Problems = append(s.Problems, Problem{"innodb_flush_log_at_trx_commit", "", "1", "the server has no InnoDB"})
	}
	if v, ok := status["innodb_redo_log_enabled"]; ok {
		s.Variables["innodb_redo_log_enabled"] = v
		if !IsOn(v) {
			s.Problems = append(s.Problems, Problem{"innodb_redo_log_enabled", v, "ON", "commits are not logged at all"})
		}
	}
	for _, name := range recorded {
		if v, ok := vars[name]; ok {
			s.Variables[name] = v
		}
	}
	for _, name := range []string{"read_only", "super_read_only", "innodb_read_only"} {
		if v, ok := vars[name]; ok && v != "OFF" && v != "0" && v != "" {
			s.ReadOnly = true
		}
	}
	return s
}
