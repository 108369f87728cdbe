package mysql

import (
	"fmt"
	"slices"
	"strings"

	mydb "plugpull/internal/database/mysql"
	"plugpull/internal/hostcheck"
	"plugpull/internal/hostcheck/databases"
)

// detail is what this check adds to a rule of database/mysql, which says which values are bad.
type detail struct {
	name  string
	code  string
	level hostcheck.Level // of a bad value
	good  []string        // a value that is neither bad nor here is Unknown; nil: every other value is good
	note  string          // appended to the rule's risk
}

const (
	// atomic is what else may hold where the doublewrite buffer is off.
	atomic = ", unless the filesystem or the drive writes whole pages or nothing (ZFS with records of a page or more, some cloud disks)"
	// noFsync: MariaDB flushes no data file at all with it; MySQL does when a file was made, has grown or is closed.
	noFsync = ", so that a volatile cache under the data can lose pages that the redo log no longer has; MySQL's manual, of 5.7.25 and 8.0.14 on, sees the danger only where data and redo log are on different drives"
)

// details are of Rules, by name; where a variable has two rules, by the bad value.
func details() []detail {
	on := []string{"ON", "1"}
	return []detail{
		{"innodb_flush_log_at_trx_commit", "mysql_innodb_flush_log_at_trx_commit", hostcheck.Critical, []string{"1", "3"}, ""},
		{"sync_binlog", "mysql_sync_binlog", hostcheck.Critical, nil, ""},
		{"innodb_flush_method", "mysql_innodb_flush_method", hostcheck.Critical,
			[]string{"", "fsync", "fdatasync", "O_DSYNC", "O_DIRECT", "ALL_O_DIRECT"}, ""},
		{"innodb_doublewrite", "mysql_innodb_doublewrite", hostcheck.Critical, []string{"ON", "1", "DETECT_AND_RECOVER"}, ""},
		{"innodb_force_recovery", "mysql_innodb_force_recovery", hostcheck.Critical, []string{"0"}, ""},
		{"innodb_checksum_algorithm", "mysql_innodb_checksum_algorithm", hostcheck.Warning,
			[]string{"crc32", "strict_crc32", "full_crc32", "strict_full_crc32", "innodb", "strict_innodb"}, ""},
		{"innodb_checksums", "mysql_innodb_checksums", hostcheck.Warning, on, ""},
		{"innodb_log_checksums", "mysql_innodb_log_checksums", hostcheck.Critical, on, ""},
		{"debug_no_sync", "mysql_debug_no_sync", hostcheck.Critical, []string{"OFF", "0"}, ""},
	}
}

// refine gives a bad value its own code, level and note, where the rule's are too coarse.
func refine(d detail, value string) detail {
	switch {
	case d.name == "innodb_flush_method" && strings.HasSuffix(strings.ToUpper(value), "NO_FSYNC"):
		d.code, d.level, d.note = "mysql_innodb_flush_method_no_fsync", hostcheck.Warning, noFsync
	case d.name == "innodb_doublewrite" && strings.EqualFold(value, "fast"):
		d.code, d.level, d.note = "mysql_innodb_doublewrite_fast", hostcheck.Warning, ", so that a volatile cache under the data can lose pages that the redo log no longer has"
	case d.name == "innodb_doublewrite":
		d.note = atomic
	}
	return d
}

// expected are the variables without which there is no verdict, for the versions that have them.
func (j *judging) expected() []string {
	names := []string{"innodb_flush_log_at_trx_commit", "log_bin", "sync_binlog", "innodb_doublewrite", "innodb_force_recovery"}
	if !j.maria || j.v.before(version{11, 0, 0}) { // MariaDB 11.0 began to replace it
		names = append(names, "innodb_flush_method")
	}
	if !j.maria && j.v.before(version{9, 0, 0}) {
		names = append(names, "innodb_log_checksums", "innodb_checksum_algorithm")
	}
	return names
}

func (j *judging) missing(name string) {
	j.r.Judge("mysql_setting_missing", databases.Setting{Name: name, Value: "not shown", Level: hostcheck.Unknown,
		Risk: "the server does not show it, though a server of its version has it"})
}

func (j *judging) settings() {
	for _, name := range j.expected() {
		if _, ok := j.read.vars[name]; !ok {
			j.missing(name)
		}
	}
	if v, ok := j.read.vars["log_bin"]; ok {
		s := databases.Setting{Name: "log_bin", Value: v, Where: j.where("log_bin"), Risk: "with a binary log each commit depends on a second file"}
		if !isSwitch(v) {
			s.Level = hostcheck.Unknown
		}
		j.r.Judge("mysql_log_bin", s)
	}
	for _, d := range details() {
		j.rules(d)
	}
	j.redoLog()
	j.sessions()
	j.rocksdb()
	j.defaults()
	for _, n := range notes() {
		if v, ok := j.read.vars[n[0]]; ok {
			j.r.Settings = append(j.r.Settings, databases.Setting{Name: n[0], Value: v, Where: j.where(n[0]), Risk: n[1]})
		}
	}
}

// rules applies what database/mysql says of a variable.
func (j *judging) rules(d detail) {
	v, ok := j.read.vars[d.name]
	if !ok {
		return
	}
	var s databases.Setting
	for _, rule := range mydb.Rules() {
		if rule.Name != d.name {
			continue
		}
		if bad := rule.Bad(v, j.read.vars); bad || s.Name == "" {
			s = databases.Setting{Name: d.name, Value: v, Safe: rule.Safe, Risk: rule.Risk, Where: j.where(d.name)}
			if bad {
				d = refine(d, v)
				s.Level, s.Risk = d.level, s.Risk+d.note
				j.dependsOnStack(d)
				break
			}
		}
	}
	if s.Level == hostcheck.OK && d.good != nil && !slices.ContainsFunc(d.good, func(g string) bool { return strings.EqualFold(g, v) }) {
		d.code, s.Level, s.Risk = "mysql_value_not_known", hostcheck.Unknown, "nothing is known of this value"
	}
	if d.name == "sync_binlog" && !mydb.IsOn(j.read.vars["log_bin"]) {
		s.Risk = "there is no binary log that it could be about"
	}
	if d.name == "innodb_flush_method" && mydb.IsOn(j.read.vars["innodb_dedicated_server"]) {
		s.Where = strings.TrimPrefix(s.Where+"; innodb_dedicated_server is on and chooses it unless it is set", "; ")
	}
	if w, ok := j.read.status["wsrep_cluster_size"]; ok && s.Level != hostcheck.OK && w != "0" && w != "" {
		s.Risk += fmt.Sprintf("; a Galera cluster (of %s nodes now) gets such commits back from its other nodes only while one of them keeps its power", databases.Quote(w))
	}
	j.r.Judge(d.code, s)
}

// dependsOnStack says what of a bad value the layers below decide.
func (j *judging) dependsOnStack(d detail) {
	switch d.code {
	case "mysql_innodb_flush_method_no_fsync", "mysql_innodb_doublewrite_fast":
		j.r.Unflushed = d.name + "=" + j.read.vars[d.name]
	case "mysql_innodb_doublewrite":
		j.r.TornPage = d.code
	}
}

// redoLog judges a status that MySQL has since 8.0.21.
func (j *judging) redoLog() {
	v, ok := j.read.status["innodb_redo_log_enabled"]
	if !ok {
		if !j.maria && !j.v.before(version{8, 0, 21}) {
			j.missing("Innodb_redo_log_enabled")
		}
		return
	}
	s := databases.Setting{Name: "Innodb_redo_log_enabled", Value: v, Safe: "ON", Where: "status",
		Risk: "commits are not logged at all, and after a crash the data is lost; ALTER INSTANCE ENABLE INNODB REDO_LOG turns it on"}
	switch {
	case !isSwitch(v):
		s.Level = hostcheck.Unknown
	case !mydb.IsOn(v):
		s.Level = hostcheck.Critical
	}
	j.r.Judge("mysql_innodb_redo_log", s)
}

// sessions judges whether a session may choose its own durability. In MySQL and MariaDB none can: the
// variable is global. Percona Server 5.7 has a switch for it.
func (j *judging) sessions() {
	v, ok := j.read.vars["innodb_use_global_flush_log_at_trx_commit"]
	if !ok {
		return
	}
	s := databases.Setting{Name: "innodb_use_global_flush_log_at_trx_commit", Value: v, Safe: "ON", Where: j.where("innodb_use_global_flush_log_at_trx_commit"),
		Risk: "each session may set innodb_flush_log_at_trx_commit for itself, which no other session sees"}
	switch {
	case !isSwitch(v):
		s.Level = hostcheck.Unknown
	case !mydb.IsOn(v):
		s.Level = hostcheck.Warning
	}
	j.r.Judge("mysql_session_flush_log", s)
}

// rocksdb judges MyRocks where it is loaded.
func (j *judging) rocksdb() {
	if v, ok := j.read.vars["rocksdb_flush_log_at_trx_commit"]; ok {
		s := databases.Setting{Name: "rocksdb_flush_log_at_trx_commit", Value: v, Safe: "1", Where: j.where("rocksdb_flush_log_at_trx_commit"),
			Risk: "commits to RocksDB tables are only in memory when they are acknowledged"}
		if v != "1" {
			s.Level = hostcheck.Critical
		}
		j.r.Judge("mysql_rocksdb_flush_log_at_trx_commit", s)
	}
	if v, ok := j.read.vars["rocksdb_write_disable_wal"]; ok {
		s := databases.Setting{Name: "rocksdb_write_disable_wal", Value: v, Safe: "OFF", Where: j.where("rocksdb_write_disable_wal"),
			Risk: "writes to RocksDB tables are not logged; a session may also set it for itself, which no other session sees"}
		switch {
		case !isSwitch(v):
			s.Level = hostcheck.Unknown
		case mydb.IsOn(v):
			s.Level = hostcheck.Critical
		}
		j.r.Judge("mysql_rocksdb_write_disable_wal", s)
	}
}

// defaults judges what new tables become, and Aria's group commit.
func (j *judging) defaults() {
	if v, ok := j.read.vars["default_storage_engine"]; ok {
		s := databases.Setting{Name: "default_storage_engine", Value: v, Safe: "InnoDB", Where: j.where("default_storage_engine"),
			Risk: "new tables are made in an engine that may not keep what it acknowledged"}
		if !strings.EqualFold(v, "InnoDB") && !strings.EqualFold(v, "ROCKSDB") {
			s.Level = hostcheck.Warning
		}
		j.r.Judge("mysql_default_storage_engine", s)
	}
	if v, ok := j.read.vars["aria_group_commit"]; ok {
		s := databases.Setting{Name: "aria_group_commit", Value: v, Safe: "none", Where: j.where("aria_group_commit"),
			Risk: "statements on Aria tables, those with the users and their rights among them, are acknowledged before they are flushed"}
		switch strings.ToLower(v) {
		case "none", "hard":
		case "soft":
			s.Level = hostcheck.Warning
		default:
			s.Level = hostcheck.Unknown
		}
		j.r.Judge("mysql_aria_group_commit", s)
	}
}

// notes are variables that are worth reading beside the others and lose nothing by themselves.
func notes() [][2]string {
	return [][2]string{
		{"innodb_flush_log_at_timeout", "seconds between flushes where innodb_flush_log_at_trx_commit does not flush each commit"},
		{"innodb_log_file_buffering", "ON writes the redo log through the page cache, and flushes it all the same"},
		{"innodb_log_file_write_through", "ON makes each write of the redo log durable by itself"},
		{"innodb_data_file_buffering", "ON writes the data through the page cache, and flushes it all the same"},
		{"innodb_data_file_write_through", "ON makes each write of the data durable by itself"},
		{"innodb_log_file_mmap", "ON maps the log where it is in persistent memory or, of some versions, for reading in recovery"},
		{"innodb_use_fdatasync", "fdatasync does for data files what fsync does"},
		{"binlog_storage_engine", "innodb: the binary log is under the redo log, and sync_binlog has no meaning"},
		{"sql_log_bin", "a session that turns it off keeps its commits here and from the replicas"},
		{"wsrep_on", "ON: a node of a Galera cluster"},
		{"tc_heuristic_recover", "a start with it decides prepared transactions without asking the binary log"},
	}
}
