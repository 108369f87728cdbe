package mysql

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	mydb "plugpull/internal/database/mysql"
	"plugpull/internal/hostcheck"
	"plugpull/internal/hostcheck/databases"
)

// version is a server's version.
type version struct{ major, minor, patch int }

func (v version) before(o version) bool {
	return cmp.Or(cmp.Compare(v.major, o.major), cmp.Compare(v.minor, o.minor), cmp.Compare(v.patch, o.patch)) < 0
}

// MariaDB puts 5.5.5- before its version where a client may be of the time before 10.0.
var versionForm = regexp.MustCompile(`^(?:5\.5\.5-)?(\d{1,3})\.(\d{1,3})\.(\d{1,3})(?:[^\d]|$)`)

func parseVersion(s string) (v version, ok bool) {
	m := versionForm.FindStringSubmatch(s)
	if m == nil {
		return v, false
	}
	for i, p := range []*int{&v.major, &v.minor, &v.patch} {
		*p, _ = strconv.Atoi(m[i+1]) // at most three digits
	}
	return v, true
}

// known reports whether the rules are about this version.
func (v version) known(maria bool) bool {
	if maria {
		return !v.before(version{10, 6, 0}) && v.before(version{13, 0, 0})
	}
	return !v.before(version{5, 7, 0}) && v.before(version{10, 0, 0})
}

// judge turns what a server said into a report. It is pure.
func judge(read *reading) *databases.Report {
	vars := read.vars
	maria := mydb.IsMariaDB(vars)
	r := &databases.Report{Kind: databases.MySQL, Version: vars["version"]}
	if maria {
		r.Kind = databases.MariaDB
	}
	for _, k := range []string{"version", "version_comment", "hostname", "server_uuid", "read_only"} {
		r.Fact(k, vars[k], "SHOW GLOBAL VARIABLES")
	}
	folders(r, vars)
	if read.replica.is == hostcheck.No { // nothing that was acknowledged here depends on it
		r.Folders = slices.DeleteFunc(r.Folders, func(f databases.Folder) bool { return f.What == "relay log" })
	}
	if other := otherServer(vars); other != "" {
		r.Find(hostcheck.Unknown, "mysql_storage_not_known", "this is "+other+", whose storage is not InnoDB on a drive, so that the settings say nothing of its durability; ask its maker")
		return r
	}
	v, ok := parseVersion(vars["version"])
	if !ok || !v.known(maria) {
		r.Find(hostcheck.Unknown, "mysql_version_not_known", "the server's version is "+databases.Quote(vars["version"])+", and the rules of this check are for MySQL 5.7 to 9 and MariaDB 10.6 to 12")
	}
	j := judging{r, read, maria, v}
	j.settings()
	j.replication()
	j.race()
	judgeTables(r, &read.tables)
	return r
}

// otherServer names servers that speak the protocol and keep their rows otherwise.
func otherServer(vars map[string]string) string {
	if _, ok := vars["aurora_version"]; ok {
		return "Aurora"
	}
	text := strings.ToLower(vars["version"] + " " + vars["version_comment"])
	for _, name := range []string{"TiDB", "Vitess", "OceanBase", "SingleStore", "MemSQL", "Dolt", "StarRocks", "Doris", "ClickHouse", "PolarDB", "Xpand", "Clustrix"} {
		if strings.Contains(text, strings.ToLower(name)) {
			return name
		}
	}
	return ""
}

// folders lists what the server says of where its files are. Tables with a DATA DIRECTORY of their own and links
// below the data folder are not among them.
func folders(r *databases.Report, vars map[string]string) {
	data := vars["datadir"]
	at := func(p string) string { // relative ones are below the data folder, which is the server's working folder
		if p == "" || path.IsAbs(p) {
			return p
		}
		return path.Join(data, p)
	}
	r.PagesIn(data, "data", "datadir")
	home := at(vars["innodb_data_home_dir"])
	r.PagesIn(home, "InnoDB's system tablespace", "innodb_data_home_dir")
	for file := range strings.SplitSeq(vars["innodb_data_file_path"], ";") {
		if name, _, _ := strings.Cut(file, ":"); path.IsAbs(name) && home == "" {
			r.PagesIn(path.Dir(name), "InnoDB's system tablespace", "innodb_data_file_path")
		}
	}
	redo := at(vars["innodb_log_group_home_dir"])
	r.Folder(redo, "redo log", "innodb_log_group_home_dir")
	r.Log = redo
	r.PageSize, _ = strconv.Atoi(vars["innodb_page_size"]) // 0 where it is not shown
	if v, ok := parseVersion(vars["version"]); ok && !mydb.IsMariaDB(vars) && !v.before(version{8, 0, 30}) && redo != "" {
		r.Log = path.Join(redo, "#innodb_redo")
		r.Folder(r.Log, "redo log", "innodb_log_group_home_dir")
	}
	r.PagesIn(at(vars["innodb_undo_directory"]), "undo log", "innodb_undo_directory")
	for _, f := range [][2]string{{"innodb_doublewrite_dir", "doublewrite buffer"}, {"binlog_directory", "binary log"},
		{"aria_log_dir_path", "Aria's log, which holds the users and their rights"}, {"rocksdb_datadir", "RocksDB"}, {"rocksdb_wal_dir", "RocksDB's log"}} {
		r.Folder(at(vars[f[0]]), f[1], f[0])
	}
	for _, f := range [][2]string{{"log_bin_basename", "binary log"}, {"relay_log_basename", "relay log"}} {
		if p := at(vars[f[0]]); p != "" {
			r.Folder(path.Dir(p), f[1], f[0])
		}
	}
}

// judging is a judgement in progress.
type judging struct {
	r     *databases.Report
	read  *reading
	maria bool
	v     version
}

func (j *judging) where(name string) string { return j.read.origins[name] }

// replication judges what a replica needs to go on after a power cut. It loses nothing that this server
// acknowledged, but a replica that cannot go on has to be made anew.
func (j *judging) replication() {
	v, ok := j.read.vars["relay_log_recovery"]
	s := databases.Setting{Name: "relay_log_recovery", Value: v, Safe: "ON", Where: j.where("relay_log_recovery"),
		Risk: "a replica whose relay log a power cut damages does not go on by itself"}
	rep := j.read.replica
	switch {
	case !ok:
		j.missing("relay_log_recovery")
		return
	case mydb.IsOn(v):
	case !isSwitch(v):
		s.Level = hostcheck.Unknown
	case rep.is == hostcheck.No:
		s.Risk = "this server is no replica now"
	case rep.is == hostcheck.NotKnown:
		s.Level = hostcheck.Unknown
		s.Risk += "; whether this server is a replica is not known, " + why(rep.err) + ": GRANT " + j.replicaGrant() + " ON *.* shows it"
	case j.maria && rep.gtid:
		s.Risk = "replication goes by GTIDs, and the relay log is fetched again"
	default:
		s.Level = hostcheck.Warning
	}
	j.r.Judge("mysql_relay_log_recovery", s)
	if v := j.read.vars["relay_log_info_repository"]; strings.EqualFold(v, "FILE") {
		s := databases.Setting{Name: "relay_log_info_repository", Value: v, Safe: "TABLE", Where: j.where("relay_log_info_repository"),
			Risk: "where the replica stands is kept in a file that is not flushed together with the transactions, so that after a power cut some are applied twice or left out"}
		if rep.is == hostcheck.Yes {
			s.Level = hostcheck.Warning
		}
		j.r.Judge("mysql_relay_log_info_repository", s)
	}
}

func (j *judging) replicaGrant() string {
	if j.maria {
		return "SLAVE MONITOR"
	}
	return "REPLICATION CLIENT"
}

// race is about a fault of one release. What is known of it: it was seen after kill -9 in this project's own
// tests, with Debian's build of 10.11.19, and docs/loop.md has the numbers. It has not been confirmed by the
// server's developers, no other version has been looked at, and so no other version is accused, nor cleared.
func (j *judging) race() {
	if !j.maria || j.v.before(version{10, 8, 0}) { // since 10.8 the redo log has the format without blocks
		return
	}
	s := databases.Setting{Name: "version", Value: j.read.vars["version"], Where: "the server's redo log writer"}
	if j.v != (version{10, 11, 19}) {
		s.Risk = "10.11.19 can leave old records behind the end of its redo log, seen in tests with kill -9; whether this version does has not been looked at"
		j.r.Settings = append(j.r.Settings, s)
		return
	}
	s.Level = hostcheck.Warning
	s.Risk = "in this tool's own tests Debian's build of 10.11.19, ended by kill -9 under load, came up with damaged data about once in a thousand to some thousands, and a power cut leaves the same file: its redo log writer can leave old records behind the log's end, and recovery applies them again"
	buffering := "; innodb_log_file_buffering=ON, which can be set while the server runs, makes it much rarer"
	if mydb.IsOn(j.read.vars["innodb_log_file_buffering"]) {
		buffering = "; innodb_log_file_buffering is ON, which makes it much rarer"
	}
	s.Risk += buffering + " and does not rule it out; the server's developers have not confirmed it, and which other versions do it is not known"
	j.r.Judge("mariadb_redo_log_race", s)
}

func isSwitch(v string) bool {
	return slices.Contains([]string{"ON", "OFF", "1", "0"}, strings.ToUpper(v))
}
