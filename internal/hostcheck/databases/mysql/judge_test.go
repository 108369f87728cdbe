package mysql

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/hostcheck"
	"plugpull/internal/hostcheck/databases"
)

// server is a server of a version with safe settings. Those of MySQL, and of MariaDB but for 10.11, are
// written after the manuals: no such server was at hand, so that what they show as defaults is untested.
func server(name string) *reading {
	vars := map[string]string{
		"innodb_flush_log_at_trx_commit": "1", "log_bin": "ON", "sync_binlog": "1", "innodb_doublewrite": "ON", "innodb_force_recovery": "0",
		"innodb_checksum_algorithm": "crc32", "relay_log_recovery": "ON", "default_storage_engine": "InnoDB",
		"datadir": "/var/lib/mysql/", "log_bin_basename": "/var/log/mysql/bin", "innodb_log_group_home_dir": "./", "innodb_data_file_path": "ibdata1:12M:autoextend",
	}
	status := map[string]string{"uptime": "5"}
	set := func(more map[string]string) { maps.Copy(vars, more) }
	switch name {
	case "MySQL 5.7":
		set(map[string]string{"version": "5.7.44-log", "version_comment": "MySQL Community Server (GPL)", "innodb_flush_method": "", "innodb_log_checksums": "ON", "innodb_checksums": "ON", "relay_log_info_repository": "TABLE"})
	case "Percona 5.7":
		set(map[string]string{"version": "5.7.44-48", "version_comment": "Percona Server (GPL), Release 48", "innodb_flush_method": "O_DIRECT", "innodb_log_checksums": "ON", "innodb_checksums": "ON", "relay_log_info_repository": "TABLE", "innodb_use_global_flush_log_at_trx_commit": "ON"})
	case "MySQL 8.0":
		set(map[string]string{"version": "8.0.36", "version_comment": "MySQL Community Server - GPL", "innodb_flush_method": "fsync", "innodb_log_checksums": "ON", "innodb_dedicated_server": "OFF", "innodb_doublewrite_dir": "", "innodb_undo_directory": "./"})
		status["innodb_redo_log_enabled"] = "ON"
	case "MySQL 8.4":
		set(map[string]string{"version": "8.4.0", "innodb_flush_method": "O_DIRECT", "innodb_log_checksums": "ON", "innodb_doublewrite": "DETECT_AND_RECOVER"})
		status["innodb_redo_log_enabled"] = "ON"
	case "MySQL 9":
		set(map[string]string{"version": "9.4.0-commercial", "innodb_flush_method": "O_DIRECT"})
		status["innodb_redo_log_enabled"] = "ON"
	case "MariaDB 10.6":
		set(map[string]string{"version": "10.6.18-MariaDB-log", "innodb_flush_method": "O_DIRECT", "innodb_checksum_algorithm": "full_crc32", "aria_group_commit": "none"})
	case "MariaDB 10.11.19":
		set(map[string]string{"version": "10.11.19-MariaDB-0+deb12u1", "version_comment": "Debian 12", "innodb_flush_method": "O_DIRECT", "innodb_checksum_algorithm": "full_crc32", "innodb_log_file_buffering": "OFF"})
	case "MariaDB 11.8":
		set(map[string]string{"version": "5.5.5-11.8.3-MariaDB-ubu2404", "innodb_checksum_algorithm": "full_crc32"})
	case "MariaDB 12.3":
		set(map[string]string{"version": "12.3.1-MariaDB", "innodb_checksum_algorithm": "full_crc32", "binlog_storage_engine": "innodb", "sync_binlog": "0"})
	}
	return &reading{vars: vars, status: status, replica: replica{is: hostcheck.No}, tables: tables{all: true}}
}

var servers = []string{"MySQL 5.7", "Percona 5.7", "MySQL 8.0", "MySQL 8.4", "MySQL 9", "MariaDB 10.6", "MariaDB 10.11.19", "MariaDB 11.8", "MariaDB 12.3"}

// race is what the clean twin of 10.11.19 has.
var race = map[string]hostcheck.Level{"mariadb_redo_log_race": hostcheck.Warning}

func codes(r *databases.Report) map[string]hostcheck.Level {
	m := map[string]hostcheck.Level{}
	for _, f := range r.Findings {
		m[f.Code] = f.Level
	}
	return m
}

func TestSafeServersHaveNoFindings(t *testing.T) {
	for _, name := range servers {
		r := judge(server(name))
		want := map[string]hostcheck.Level{}
		if name == "MariaDB 10.11.19" {
			want = race
		}
		assert.Equal(t, want, codes(r), name)
		assert.NotEmpty(t, r.Settings)
		assert.NotEmpty(t, r.Folders)
	}
}

func TestEachDangerousSetting(t *testing.T) {
	const c, w, u = hostcheck.Critical, hostcheck.Warning, hostcheck.Unknown
	denied := replica{err: &mysql.MySQLError{Number: 1227}}
	for name, tt := range map[string]struct {
		server string
		change func(*reading)
		code   string
		level  hostcheck.Level
		says   string // a part of the finding's text
	}{
		"commit not flushed":             {"MySQL 8.0", set("innodb_flush_log_at_trx_commit", "2"), "mysql_innodb_flush_log_at_trx_commit", c, "safe: 1"},
		"commit not written":             {"MariaDB 10.6", set("innodb_flush_log_at_trx_commit", "0"), "mysql_innodb_flush_log_at_trx_commit", c, ""},
		"MariaDB's 3 in MySQL":           {"MySQL 8.4", set("innodb_flush_log_at_trx_commit", "3"), "mysql_innodb_flush_log_at_trx_commit", c, ""},
		"binlog not synced":              {"MariaDB 11.8", set("sync_binlog", "0"), "mysql_sync_binlog", c, "binary log"},
		"binlog rarely synced":           {"MySQL 5.7", set("sync_binlog", "100"), "mysql_sync_binlog", c, ""},
		"no doublewrite":                 {"MySQL 5.7", set("innodb_doublewrite", "OFF"), "mysql_innodb_doublewrite", c, "ZFS"},
		"detect only":                    {"MySQL 9", set("innodb_doublewrite", "DETECT_ONLY"), "mysql_innodb_doublewrite", c, ""},
		"fast doublewrite":               {"MariaDB 11.8", set("innodb_doublewrite", "fast"), "mysql_innodb_doublewrite_fast", w, "volatile cache"},
		"doublewrite, new value":         {"MySQL 9", set("innodb_doublewrite", "MAYBE"), "mysql_value_not_known", u, ""},
		"nosync":                         {"MySQL 8.0", set("innodb_flush_method", "nosync"), "mysql_innodb_flush_method", c, ""},
		"littlesync":                     {"MySQL 5.7", set("innodb_flush_method", "littlesync"), "mysql_innodb_flush_method", c, ""},
		"no fsync":                       {"MySQL 8.0", set("innodb_flush_method", "O_DIRECT_NO_FSYNC", "innodb_dedicated_server", "ON"), "mysql_innodb_flush_method_no_fsync", w, "innodb_dedicated_server"},
		"flush method, new value":        {"MySQL 8.4", set("innodb_flush_method", "io_uring"), "mysql_value_not_known", u, ""},
		"redo log off":                   {"MySQL 8.4", status("innodb_redo_log_enabled", "OFF"), "mysql_innodb_redo_log", c, ""},
		"redo log not said":              {"MySQL 8.0", func(r *reading) { delete(r.status, "innodb_redo_log_enabled") }, "mysql_setting_missing", u, "Innodb_redo_log_enabled"},
		"page checksums off":             {"MySQL 8.0", set("innodb_checksum_algorithm", "none"), "mysql_innodb_checksum_algorithm", w, ""},
		"page checksums off in 5.7":      {"MySQL 5.7", set("innodb_checksums", "OFF"), "mysql_innodb_checksums", w, ""},
		"log checksums off":              {"MySQL 8.0", set("innodb_log_checksums", "OFF"), "mysql_innodb_log_checksums", c, ""},
		"forced recovery":                {"MariaDB 10.6", set("innodb_force_recovery", "1"), "mysql_innodb_force_recovery", c, ""},
		"debug build":                    {"MariaDB 10.6", set("debug_no_sync", "ON"), "mysql_debug_no_sync", c, ""},
		"sessions choose":                {"Percona 5.7", set("innodb_use_global_flush_log_at_trx_commit", "OFF"), "mysql_session_flush_log", w, ""},
		"MyRocks not flushed":            {"MariaDB 10.6", set("rocksdb_flush_log_at_trx_commit", "2"), "mysql_rocksdb_flush_log_at_trx_commit", c, ""},
		"MyRocks not logged":             {"MariaDB 10.6", set("rocksdb_write_disable_wal", "ON"), "mysql_rocksdb_write_disable_wal", c, ""},
		"new tables":                     {"MySQL 8.0", set("default_storage_engine", "MyISAM"), "mysql_default_storage_engine", w, ""},
		"soft group commit":              {"MariaDB 10.6", set("aria_group_commit", "soft"), "mysql_aria_group_commit", w, ""},
		"replica":                        {"MySQL 8.0", both(set("relay_log_recovery", "OFF"), func(r *reading) { r.replica.is = hostcheck.Yes }), "mysql_relay_log_recovery", w, ""},
		"perhaps a replica, MySQL":       {"MySQL 8.0", both(set("relay_log_recovery", "OFF"), func(r *reading) { r.replica = denied }), "mysql_relay_log_recovery", u, "GRANT REPLICATION CLIENT"},
		"perhaps a replica, MariaDB":     {"MariaDB 10.6", both(set("relay_log_recovery", "OFF"), func(r *reading) { r.replica = denied }), "mysql_relay_log_recovery", u, "lacks the privilege: GRANT SLAVE MONITOR"},
		"replica's position in a file":   {"MySQL 5.7", both(set("relay_log_info_repository", "FILE"), func(r *reading) { r.replica.is = hostcheck.Yes }), "mysql_relay_log_info_repository", w, ""},
		"no InnoDB":                      {"MariaDB 10.6", unset("innodb_flush_log_at_trx_commit"), "mysql_setting_missing", u, "innodb_flush_log_at_trx_commit"},
		"log_bin not said":               {"MySQL 8.0", unset("log_bin"), "mysql_setting_missing", u, "log_bin"},
		"log_bin is nonsense":            {"MySQL 8.0", set("log_bin", "perhaps"), "mysql_log_bin", u, ""},
		"flush method not said":          {"MariaDB 10.6", unset("innodb_flush_method"), "mysql_setting_missing", u, ""},
		"relay_log_recovery not said":    {"MySQL 9", unset("relay_log_recovery"), "mysql_setting_missing", u, ""},
		"version not said":               {"MySQL 8.0", unset("version"), "mysql_version_not_known", u, ""},
		"version is nonsense":            {"MySQL 8.0", set("version", "8.x"), "mysql_version_not_known", u, ""},
		"too old":                        {"MySQL 5.7", set("version", "5.6.51"), "mysql_version_not_known", u, ""},
		"too old a MariaDB":              {"MariaDB 10.6", set("version", "10.5.27-MariaDB"), "mysql_version_not_known", u, ""},
		"too new":                        {"MySQL 9", set("version", "10.0.0"), "mysql_version_not_known", u, ""},
		"too new a MariaDB":              {"MariaDB 12.3", set("version", "13.0.1-MariaDB"), "mysql_version_not_known", u, ""},
		"Aurora":                         {"MySQL 8.0", set("aurora_version", "3.05.2"), "mysql_storage_not_known", u, "Aurora"},
		"TiDB":                           {"MySQL 8.0", set("version", "8.0.11-TiDB-v7.5.1"), "mysql_storage_not_known", u, "TiDB"},
		"MyISAM tables":                  {"MySQL 8.0", table("MyISAM", 2), "mysql_tables_myisam", w, "2 of the tables are in MyISAM (shop.t1, shop.t2)"},
		"an Aria table":                  {"MariaDB 10.6", table("aria", 1), "mysql_tables_aria", w, "a table is in Aria with TRANSACTIONAL=0 (shop.t1)"},
		"Aria tables not looked at":      {"MariaDB 10.6", table(ariaNotLooked, 1), "mysql_tables_aria_not_known", u, ""},
		"MEMORY tables":                  {"MySQL 8.0", table("MEMORY", 1), "mysql_tables_memory", w, ""},
		"CSV tables":                     {"MySQL 8.0", table("CSV", 1), "mysql_tables_csv", w, ""},
		"ARCHIVE tables, very many":      {"MySQL 8.0", table("ARCHIVE", 1000), "mysql_tables_archive", w, "shop.t5 and 995 more)"},
		"remote tables":                  {"MySQL 8.0", table("FEDERATED", 1), "mysql_tables_elsewhere", u, ""},
		"an engine of tomorrow":          {"MySQL 8.0", table("Quantum", 1), "mysql_tables_other_engine", u, "quantum"},
		"tables that cannot be opened":   {"MySQL 8.0", table("", 1), "mysql_tables_unreadable", u, ""},
		"tables not all visible":         {"MySQL 8.0", func(r *reading) { r.tables.all = false }, "mysql_tables_not_known", u, "GRANT REFERENCES"},
		"tables not readable":            {"MySQL 8.0", func(r *reading) { r.tables = tables{err: errors.New("broken")} }, "mysql_tables_not_known", u, "broken"},
		"a Galera node":                  {"MariaDB 10.6", both(set("innodb_flush_log_at_trx_commit", "2"), status("wsrep_cluster_size", "3")), "mysql_innodb_flush_log_at_trx_commit", c, "of 3 nodes"},
		"set while running":              {"MySQL 8.0", both(set("sync_binlog", "0"), func(r *reading) { r.origins = map[string]string{"sync_binlog": "set in /etc/my.cnf"} }), "mysql_sync_binlog", c, "(set in /etc/my.cnf)"},
		"checksum algorithm, new value":  {"MariaDB 11.8", set("innodb_checksum_algorithm", "xxh3"), "mysql_value_not_known", u, ""},
		"redo log status is nonsense":    {"MySQL 8.0", status("innodb_redo_log_enabled", "?"), "mysql_innodb_redo_log", u, ""},
		"relay_log_recovery is nonsense": {"MySQL 8.0", set("relay_log_recovery", "?"), "mysql_relay_log_recovery", u, ""},
	} {
		t.Run(name, func(t *testing.T) {
			read := server(tt.server)
			tt.change(read)
			r := judge(read)
			require.Len(t, r.Findings, 1, "the planted one and no other")
			f := r.Findings[0]
			assert.Equal(t, tt.code, f.Code)
			assert.Equal(t, tt.level, f.Level)
			assert.Contains(t, f.Text, tt.says)
			assert.NotRegexp(t, `\.$`, f.Text)
			assert.Equal(t, tt.level, r.Level())
		})
	}
}

func set(pairs ...string) func(*reading) {
	return func(r *reading) {
		for p := range slices.Chunk(pairs, 2) {
			r.vars[p[0]] = p[1]
		}
	}
}

func unset(name string) func(*reading) { return func(r *reading) { delete(r.vars, name) } }

func status(name, value string) func(*reading) { return func(r *reading) { r.status[name] = value } }

func both(a, b func(*reading)) func(*reading) { return func(r *reading) { a(r); b(r) } }

func table(engine string, n int) func(*reading) {
	return func(r *reading) {
		for i := range n {
			r.tables.add(engine, "shop.t"+strconv.Itoa(i+1))
		}
	}
}

func TestHarmlessSettings(t *testing.T) {
	for name, tt := range map[string]struct {
		server string
		change func(*reading)
	}{
		"MariaDB's 3":                 {"MariaDB 10.6", set("innodb_flush_log_at_trx_commit", "3")},
		"no binary log":               {"MariaDB 11.8", set("log_bin", "OFF", "sync_binlog", "0")},
		"no replica":                  {"MySQL 8.0", set("relay_log_recovery", "OFF")},
		"a GTID replica of MariaDB":   {"MariaDB 10.6", both(set("relay_log_recovery", "OFF"), func(r *reading) { r.replica = replica{is: hostcheck.Yes, gtid: true} })},
		"a safe replica, not known":   {"MySQL 8.0", func(r *reading) { r.replica = replica{err: errors.New("x")} }},
		"MyRocks":                     {"MariaDB 10.6", both(set("rocksdb_flush_log_at_trx_commit", "1", "rocksdb_write_disable_wal", "OFF"), table("ROCKSDB", 3))},
		"Aria tables that log":        {"MariaDB 10.6", table(ariaLogged, 3)},
		"a position file, no replica": {"MySQL 5.7", set("relay_log_info_repository", "FILE")},
		"no flush method in 11":       {"MariaDB 11.8", unset("innodb_flush_method")},
		"before the redo log status":  {"MySQL 8.0", both(set("version", "8.0.20"), func(r *reading) { delete(r.status, "innodb_redo_log_enabled") })},
	} {
		read := server(tt.server)
		tt.change(read)
		assert.Empty(t, judge(read).Findings, name)
	}
}

func TestRaceAccusesOneVersionAndClearsNone(t *testing.T) {
	text := func(r *databases.Report) string {
		i := slices.IndexFunc(r.Findings, func(f hostcheck.Finding) bool { return f.Code == "mariadb_redo_log_race" })
		if i < 0 {
			return ""
		}
		return r.Findings[i].Text
	}
	read := server("MariaDB 10.11.19")
	off := text(judge(read))
	assert.Contains(t, off, "not confirmed")
	assert.Contains(t, off, "which other versions do it is not known")
	assert.Contains(t, off, "can be set")
	read.vars["innodb_log_file_buffering"] = "ON"
	assert.Contains(t, text(judge(read)), "does not rule it out", "it is rarer, not gone")

	read = server("MariaDB 11.8")
	r := judge(read)
	assert.Empty(t, text(r))
	i := slices.IndexFunc(r.Settings, func(s databases.Setting) bool { return s.Name == "version" })
	require.GreaterOrEqual(t, i, 0)
	assert.Contains(t, r.Settings[i].Risk, "has not been looked at")
	assert.Empty(t, text(judge(server("MySQL 8.0"))))
}

func TestFolders(t *testing.T) {
	read := server("MySQL 8.0")
	maps.Copy(read.vars, map[string]string{"innodb_log_group_home_dir": "/fast/redo", "innodb_undo_directory": "undo", "innodb_doublewrite_dir": "/dw/",
		"innodb_data_file_path": "/raw/ibdata1:12M;ibdata2:12M:autoextend", "relay_log_basename": "/relay/r"})
	var paths, pages []string
	for _, f := range judge(read).Folders { // of no replica, on whose relay log nothing depends
		assert.NotEqual(t, "/relay", f.Path)
	}
	read.replica.is = hostcheck.Yes
	r := judge(read)
	for _, f := range r.Folders {
		paths = append(paths, f.Path)
		if f.Pages {
			pages = append(pages, f.Path)
		}
	}
	assert.Equal(t, "/fast/redo/#innodb_redo", r.Log)
	assert.Equal(t, []string{"/var/lib/mysql", "/raw", "/var/lib/mysql/undo"}, pages)
	assert.Equal(t, []string{"/var/lib/mysql", "/raw", "/fast/redo", "/fast/redo/#innodb_redo", "/var/lib/mysql/undo", "/dw", "/var/log/mysql", "/relay"}, paths)
}

// What the layers below decide is left to who knows them.
func TestLeftToTheLayers(t *testing.T) {
	for name, tt := range map[string]struct {
		change            func(*reading)
		unflushed, tornBy string
	}{
		"data not flushed":            {set("innodb_flush_method", "O_DIRECT_NO_FSYNC"), "innodb_flush_method=O_DIRECT_NO_FSYNC", ""},
		"data not flushed, MariaDB's": {set("innodb_doublewrite", "fast"), "innodb_doublewrite=fast", ""},
		"pages may be torn":           {set("innodb_doublewrite", "OFF"), "", "mysql_innodb_doublewrite"},
		"nothing of it":               {set("innodb_page_size", "16384"), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			read := server("MariaDB 11.8")
			set("innodb_page_size", "16384")(read)
			tt.change(read)
			r := judge(read)
			assert.Equal(t, []string{tt.unflushed, tt.tornBy}, []string{r.Unflushed, r.TornPage})
			assert.Equal(t, 16384, r.PageSize)
		})
	}
}

func TestSeesAllTables(t *testing.T) {
	for name, tt := range map[string]struct {
		grants []string
		want   bool
	}{
		"nothing":             {[]string{"GRANT USAGE ON *.* TO `u`@`%`"}, false},
		"one schema":          {[]string{"GRANT USAGE ON *.* TO `u`@`%`", "GRANT SELECT ON `shop`.* TO `u`@`%`"}, false},
		"the least":           {[]string{"GRANT REFERENCES, SLAVE MONITOR ON *.* TO `u`@`%`"}, true},
		"not of tables":       {[]string{"GRANT PROCESS, REPLICATION CLIENT ON *.* TO `u`@`%`"}, false},
		"everything":          {[]string{"GRANT ALL PRIVILEGES ON *.* TO `root`@`localhost` WITH GRANT OPTION"}, true},
		"of a role":           {[]string{"GRANT `r` TO `u`@`%`", "GRANT USAGE ON *.* TO `u`@`%`", "GRANT REFERENCES ON *.* TO `r`"}, true},
		"a schema taken away": {[]string{"GRANT SELECT ON *.* TO `u`@`%`", "REVOKE SELECT ON `shop`.* FROM `u`@`%`"}, false},
	} {
		assert.Equal(t, tt.want, seesAllTables(tt.grants), name)
	}
}

// Whatever a server says, nothing panics, and what is not a known version is never OK.
func FuzzJudge(f *testing.F) {
	f.Add("8.0.36", "innodb_doublewrite", "ON", "ON")
	f.Add("10.11.19-MariaDB", "sync_binlog", "\x00", "")
	f.Add("5.5.5-", "log_bin", "maybe", "9")
	f.Fuzz(func(t *testing.T, v, name, value, redo string) {
		read := server("MySQL 8.0")
		read.vars["version"], read.vars[name], read.status["innodb_redo_log_enabled"] = v, value, redo
		r := judge(read)
		if _, ok := parseVersion(read.vars["version"]); !ok {
			assert.NotEqual(t, hostcheck.OK, r.Level())
		}
		for _, s := range r.Settings {
			if known := map[string][]string{"innodb_doublewrite": {"ON", "1", "DETECT_AND_RECOVER"}, "innodb_force_recovery": {"0"}}[s.Name]; known != nil && s.Level == hostcheck.OK {
				assert.Contains(t, known, strings.ToUpper(s.Value))
			}
		}
	})
}
