package probe

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"plugpull/internal/database/mysql"
)

// flushing is what a server's settings say of the flushes that a commit waits for.
type flushing struct {
	known   bool
	never   []string // settings because of which it waits for none
	per     int      // flushes a commit, at least
	binlog  string   // why the binary log is not flushed at each commit; empty: it is, or is off
	remote  []string // settings because of which it waits for other servers, too
	byWrite bool     // the log is made durable by its writes (O_DSYNC), which a drive may take without a flush
}

// noFlush are the settings with which a commit is acknowledged without a flush. It is not all that can lose a
// commit: check tells that. MariaDB and MySQL, and PostgreSQL's two.
var noFlush = []struct {
	name string
	safe string
	bad  func(v string, all map[string]string) bool
}{
	{"innodb_flush_log_at_trx_commit", "1", func(v string, all map[string]string) bool {
		return v != "1" && !(v == "3" && mysql.IsMariaDB(all))
	}},
	{"innodb_flush_method", "O_DIRECT or fsync", func(v string, _ map[string]string) bool {
		return strings.EqualFold(v, "nosync") || strings.EqualFold(v, "littlesync")
	}},
	{"innodb_redo_log_enabled", "ON", func(v string, _ map[string]string) bool { return isOff(v) }},
	{"debug_no_sync", "OFF", func(v string, _ map[string]string) bool { return mysql.IsOn(v) }},
	{"fsync", "on", func(v string, _ map[string]string) bool { return isOff(v) }},
	{"synchronous_commit", "on", func(v string, _ map[string]string) bool { return isOff(v) }},
}

func isOff(v string) bool { return strings.EqualFold(v, "OFF") || v == "0" }

// flushesOf reads the settings. They are known where the one is there that rules the log's flush.
func flushesOf(settings map[string]string) flushing {
	all := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		all[strings.ToLower(name)] = settings[name]
	}
	if all[storageName] != "" {
		return flushing{per: 1}
	}
	_, innodb := all["innodb_flush_log_at_trx_commit"]
	f := flushing{known: innodb || postgresFlushes(all), per: 1}
	for _, s := range noFlush {
		if v, ok := all[s.name]; ok && s.bad(v, all) {
			f.never = append(f.never, fmt.Sprintf("%s=%s (want %s)", s.name, v, s.safe))
		}
	}
	if mysql.IsOn(all["log_bin"]) && !strings.EqualFold(all["binlog_storage_engine"], "innodb") {
		n, err := strconv.Atoi(all["sync_binlog"])
		switch {
		case err != nil:
			f.binlog = "sync_binlog was not read"
		case n == 1:
			f.per = 2
		default:
			f.binlog = fmt.Sprintf("sync_binlog=%d (want 1)", n)
		}
	}
	for _, name := range []string{"rpl_semi_sync_master_enabled", "rpl_semi_sync_source_enabled", "wsrep_on"} {
		if mysql.IsOn(all[name]) {
			f.remote = append(f.remote, name+"="+all[name])
		}
	}
	if v := all["synchronous_commit"]; all["synchronous_standby_names"] != "" && v != "local" && !isOff(v) {
		f.remote = append(f.remote, "synchronous_standby_names="+all["synchronous_standby_names"]+", synchronous_commit="+v)
	}
	f.byWrite = strings.EqualFold(all["innodb_flush_method"], "O_DSYNC") || mysql.IsOn(all["innodb_log_file_write_through"]) ||
		strings.EqualFold(all["wal_sync_method"], "open_datasync") || strings.EqualFold(all["wal_sync_method"], "open_sync")
	return f
}

// postgresFlushes reports whether the settings are PostgreSQL's, and of values whose meaning is known: each of
// these flushes the WAL here before the commit is acknowledged, or is among noFlush.
func postgresFlushes(all map[string]string) bool {
	switch all["synchronous_commit"] {
	case "on", "local", "remote_write", "remote_apply", "off":
		return all["fsync"] == "on" || all["fsync"] == "off"
	}
	return false
}
