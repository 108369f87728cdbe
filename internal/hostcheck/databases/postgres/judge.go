package postgres

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"plugpull/internal/hostcheck"
	"plugpull/internal/hostcheck/databases"
)

// rule says what is known of a setting's values.
type rule struct {
	name string
	code string // its ending
	safe string
	risk string
	good []string
	bad  []string // neither here nor in good: Unknown
	// level is of a bad value.
	level hostcheck.Level
	// session: a role, a database and each session may have their own.
	session bool
}

var (
	on  = []string{"on"}
	off = []string{"off"}
)

// rules are of settings that PostgreSQL 13 to 18 have all.
func rules() []rule {
	const critical, warning = hostcheck.Critical, hostcheck.Warning
	return []rule{
		{"fsync", "fsync", "on", "nothing is flushed: a power cut loses commits and can damage the whole cluster", on, off, critical, false},
		{"synchronous_commit", "synchronous_commit", "on", "a commit is acknowledged before its WAL is on the drive", []string{"on", "local", "remote_write", "remote_apply"}, off, critical, true},
		{"full_page_writes", "full_page_writes", "on", "a page torn by a power cut cannot be repaired, unless the filesystem or the drive writes whole pages or nothing (ZFS with records of a page or more)", on, off, critical, false},
		{"wal_sync_method", "wal_sync_method", "", "how the WAL is flushed; each of these makes a commit durable on Linux", []string{"fsync", "fdatasync", "open_sync", "open_datasync", "fsync_writethrough"}, nil, warning, false},
		{"data_sync_retry", "data_sync_retry", "off", "a write of data that failed is taken for done when a second flush succeeds, though the kernel may have dropped it", off, on, warning, false},
		{"zero_damaged_pages", "zero_damaged_pages", "off", "a damaged page, as after a power cut, is emptied without more than a warning, and its rows are lost", off, on, critical, true},
		{"ignore_invalid_pages", "ignore_invalid_pages", "off", "recovery goes on over changes to pages that are missing or damaged, and leaves them out", off, on, critical, false},
		{"ignore_checksum_failure", "ignore_checksum_failure", "off", "damaged pages are read as if they were whole", off, on, warning, true},
		{"wal_level", "wal_level", "", "minimal: bulk loads into new tables bypass the WAL and are flushed when they commit, which is as durable; backups by WAL and replicas need replica or logical", []string{"minimal", "replica", "logical"}, nil, warning, false},
		{"data_checksums", "data_checksums", "", "checksums detect damaged pages and repair none; without them damage is found late or never", []string{"on", "off"}, nil, warning, false},
	}
}

// others are settings that are read beside those with a rule.
var others = []string{"wal_writer_delay", "commit_delay", "data_directory", "server_version_num", "synchronous_standby_names", "recovery_init_sync_method", "block_size"}

func quotedNames() string {
	var all []string
	for _, r := range rules() {
		all = append(all, "'"+r.name+"'")
	}
	for _, n := range others {
		all = append(all, "'"+n+"'")
	}
	return strings.Join(all, ", ")
}

func overridable(name string) bool {
	return slices.ContainsFunc(rules(), func(r rule) bool { return r.session && r.name == strings.ToLower(name) })
}

// canonical turns the ways of writing a switch in a file or an ALTER ROLE into the one that pg_settings has.
func canonical(value string) string {
	v := strings.ToLower(strings.TrimSpace(value))
	switch {
	case v == "1", v == "y", v == "t", v == "on":
		return "on"
	case v == "0", v == "n", v == "f", v == "of":
		return "off"
	case len(v) > 1 && (strings.HasPrefix("yes", v) || strings.HasPrefix("true", v)):
		return "on"
	case len(v) > 1 && (strings.HasPrefix("no", v) || strings.HasPrefix("false", v)):
		return "off"
	}
	return v
}

// judge gives the level of a value in canonical form.
func (r rule) judge(value string) hostcheck.Level {
	switch {
	case slices.Contains(r.good, value):
		return hostcheck.OK
	case slices.Contains(r.bad, value):
		return r.level
	}
	return hostcheck.Unknown
}

var versionForm = regexp.MustCompile(`^PostgreSQL \d+`)

// judge turns what a server said into a report. It is pure.
func judge(read *reading) *databases.Report {
	r := &databases.Report{Kind: databases.Postgres, Version: read.version}
	r.Fact("version", read.version, "version()")
	r.Fact("pg_is_in_recovery", strconv.FormatBool(read.recovery), "pg_is_in_recovery()")
	folders(r, read)
	if fork := otherServer(read); fork != "" {
		r.Find(hostcheck.Unknown, "postgres_storage_not_known", "this is "+databases.Quote(fork)+", whose storage is not PostgreSQL's, so that the settings say nothing of its durability; ask its maker")
		return r
	}
	num, err := strconv.Atoi(read.settings["server_version_num"].value)
	if major := num / 10000; err != nil || major < 13 || major > 18 || !versionForm.MatchString(read.version) {
		r.Find(hostcheck.Unknown, "postgres_version_not_known", "the server's version is "+databases.Quote(read.version)+", and the rules of this check are for PostgreSQL 13 to 18")
	}
	for _, rule := range rules() {
		judgeSetting(r, read, rule)
	}
	delay := read.settings["commit_delay"]
	if delay.name != "" {
		r.Settings = append(r.Settings, databases.Setting{Name: delay.name, Value: delay.value, Where: where(delay), Risk: "a delay before the flush, in microseconds, that groups commits; it loses nothing"})
	}
	if s := read.settings["synchronous_standby_names"]; s.value != "" {
		r.Settings = append(r.Settings, databases.Setting{Name: s.name, Value: s.value, Where: where(s), Risk: "a commit also waits for standbys; where they share this server's power they lose it too"})
	}
	judgeOverrides(r, read)
	judgeFiles(r, read)
	judgeDatabases(r, read)
	return r
}

// forks are named by what only they have among their functions and settings.
var forks = map[string]string{"aurora": "Aurora", "neon": "Neon", "polar": "PolarDB", "yb": "YugabyteDB", "gp": "Greenplum", "alloydb": "AlloyDB"}

// otherServer names forks that keep their data otherwise.
func otherServer(read *reading) string {
	if read.fork != "" {
		return cmp.Or(forks[read.fork], read.fork)
	}
	for _, name := range []string{"CockroachDB", "-YB-", "Greenplum", "Redshift", "Materialize", "CrateDB", "QuestDB", "OpenGauss", "GaussDB"} {
		if strings.Contains(strings.ToLower(read.version), strings.ToLower(name)) {
			return strings.Trim(name, "-")
		}
	}
	return ""
}

func folders(r *databases.Report, read *reading) {
	data := read.settings["data_directory"].value
	if data == "" {
		r.Find(hostcheck.Unknown, "postgres_folders_not_known", "the server does not tell this login where its data is; GRANT pg_read_all_settings to it shows it")
	} else {
		r.PagesIn(data, "data", "data_directory")
		r.Log = path.Join(data, "pg_wal")
		r.Folder(r.Log, "WAL, often a link", "data_directory")
	}
	for _, name := range slices.Sorted(maps.Keys(read.tablespaces)) {
		p := read.tablespaces[name]
		if !path.IsAbs(p) && data != "" {
			p = path.Join(data, p)
		}
		r.PagesIn(p, "tablespace "+databases.Quote(name), "pg_tablespace_location")
	}
}

// hidden: sources that stand before the server's own value in this session.
var hidden = []string{"database", "user", "database user", "client", "session", "interactive"}

func judgeSetting(r *databases.Report, read *reading, rule rule) {
	s, ok := read.settings[rule.name]
	if !ok {
		r.Judge("postgres_setting_missing", databases.Setting{Name: rule.name, Value: "not shown", Level: hostcheck.Unknown, Risk: "the server does not show it, though every server of PostgreSQL 13 to 18 has it"})
		return
	}
	if slices.Contains(hidden, s.source) {
		r.Judge("postgres_server_value_hidden", databases.Setting{Name: rule.name, Value: s.value, Safe: rule.safe, Where: where(s), Level: hostcheck.Unknown,
			Risk: "this login's sessions have a value of their own, so that the server's is not seen; check with another login"})
		return
	}
	code := "postgres_" + rule.code
	row := databases.Setting{Name: rule.name, Value: s.value, Safe: rule.safe, Risk: rule.risk, Level: rule.judge(s.value), Where: where(s)}
	if row.Level == hostcheck.Unknown {
		code, row.Risk = "postgres_value_not_known", "nothing is known of this value"
	}
	if rule.name == "synchronous_commit" && row.Level != hostcheck.Unknown {
		row.Risk += ", which may be up to " + window(read.settings["wal_writer_delay"]) + " later; a session may turn it off for itself, which no other session sees"
	}
	if rule.name == "full_page_writes" && row.Level == hostcheck.Critical {
		r.TornPage = code
		r.PageSize, _ = strconv.Atoi(read.settings["block_size"].value) // 0 where it is not shown
	}
	r.Judge(code, row)
	if s.pending && rule.bad != nil {
		judgePending(r, read, rule)
	}
}

// window says how long an asynchronous commit may wait: three times wal_writer_delay.
func window(s setting) string {
	n, err := strconv.ParseInt(s.value, 10, 32)
	if err != nil || n <= 0 || s.unit != "ms" {
		return "three times wal_writer_delay"
	}
	return (3 * time.Duration(n) * time.Millisecond).String()
}

func where(s setting) string {
	switch {
	case s.source == "default":
		return "the server's default"
	case s.file != "":
		return "set in " + s.file
	case s.source == "global":
		return "set for all roles"
	case s.source == "user":
		return "set for this login's role"
	case s.source == "":
		return ""
	}
	return "set by " + s.source
}

// judgePending is about a setting that waits for a restart.
func judgePending(r *databases.Report, read *reading, rule rule) {
	f, ok := read.inFiles[rule.name]
	level := hostcheck.Unknown
	next := "which value is not shown to this login"
	if ok {
		level = rule.judge(canonical(f.value))
		next = "to " + databases.Quote(f.value) + " (" + f.file + ")"
	}
	if level == hostcheck.OK {
		return
	}
	if level == hostcheck.Critical {
		level = hostcheck.Warning // it is not so yet
	}
	r.Find(level, "postgres_pending_restart", rule.name+" changes when the server starts again, as it does after a power cut: "+next+"; "+rule.risk)
}

// judgeFiles is about settings that wait in the files for a reload. Those that wait for a restart have been
// judged.
func judgeFiles(r *databases.Report, read *reading) {
	for _, rule := range rules() {
		f, ok := read.inFiles[rule.name]
		s, has := read.settings[rule.name]
		if !ok || !has || s.pending || rule.judge(canonical(f.value)) == hostcheck.OK || canonical(f.value) == s.value {
			continue
		}
		if s.source == "command line" || s.source == "environment variable" {
			continue // it stands before the files at the next start too, unless the start is another one
		}
		r.Find(hostcheck.Warning, "postgres_pending_reload", rule.name+" is "+databases.Quote(f.value)+" in "+f.file+" and not yet in the server, which takes it at the next reload or start: "+rule.risk)
	}
}

// mostOverrides bounds how many roles and databases are named one by one.
const mostOverrides = 20

func judgeOverrides(r *databases.Report, read *reading) {
	byName := map[string]rule{}
	for _, rule := range rules() {
		byName[rule.name] = rule
	}
	named := 0
	for _, o := range read.overrides {
		rule := byName[strings.ToLower(o.name)]
		value := canonical(o.value)
		s := databases.Setting{Name: rule.name, Value: o.value, Safe: rule.safe, Risk: rule.risk, Level: rule.judge(value), Where: whose(o)}
		code := "postgres_override_" + rule.code
		switch {
		case s.Level == hostcheck.Unknown:
			code, s.Risk = "postgres_value_not_known", "nothing is known of this value"
		case s.Level == hostcheck.Critical && (o.role != "" || o.database != ""):
			s.Level = hostcheck.Warning // it is of some sessions, and someone chose it for them
		}
		if s.Level != hostcheck.OK {
			if named++; named > mostOverrides {
				continue
			}
		}
		r.Judge(code, s)
	}
	if named > mostOverrides {
		r.Find(hostcheck.Warning, "postgres_override_more", fmt.Sprintf("%d more roles and databases have such a setting of their own; pg_db_role_setting lists them", named-mostOverrides))
	}
}

func whose(o override) string {
	switch {
	case o.role == "" && o.database == "":
		return "for all roles"
	case o.database == "":
		return "for role " + databases.Quote(o.role)
	case o.role == "":
		return "for database " + databases.Quote(o.database)
	}
	return "for role " + databases.Quote(o.role) + " in database " + databases.Quote(o.database)
}

func judgeDatabases(r *databases.Report, read *reading) {
	if read.left > 0 {
		r.Find(hostcheck.Unknown, "postgres_database_not_read", fmt.Sprintf("%d databases beyond the first %d were not looked into", read.left, mostDatabases))
	}
	for _, d := range read.databases {
		name := databases.Quote(d.name)
		if d.err != nil {
			r.Find(hostcheck.Unknown, "postgres_database_not_read", "whether database "+name+" has UNLOGGED tables is not known, "+why(d.err))
			continue
		}
		if d.unlogged > 0 {
			text := make([]string, len(d.first))
			for i, t := range d.first {
				text[i] = databases.Quote(t)
			}
			list := strings.Join(text, ", ")
			if more := d.unlogged - len(d.first); more > 0 {
				list += fmt.Sprintf(" and %d more", more)
			}
			const risk = "a crash empties them"
			r.Settings = append(r.Settings, databases.Setting{Name: "UNLOGGED tables", Value: strconv.Itoa(d.unlogged), Safe: "0", Risk: risk, Level: hostcheck.Warning, Where: "database " + name + ": " + list})
			r.Find(hostcheck.Warning, "postgres_unlogged_tables", "database "+name+" has UNLOGGED tables ("+list+"): "+risk+"; ALTER TABLE … SET LOGGED keeps them")
		}
		for _, m := range d.methods {
			r.Find(hostcheck.Unknown, "postgres_table_access_method", "database "+name+" has tables of the access method "+databases.Quote(m)+", of whose durability nothing is known")
		}
	}
}
