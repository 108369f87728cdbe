package postgres

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/hostcheck"
)

// recorded is a server of a major version with safe settings. All but 15 are written after the manual: no
// such server was at hand.
func recorded(major int) *reading {
	r := &reading{version: fmt.Sprintf("PostgreSQL %d.3 on x86_64-pc-linux-gnu, compiled by gcc", major), settings: map[string]setting{}, databases: []database{{name: "postgres"}}}
	for name, value := range map[string]string{
		"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "wal_sync_method": "fdatasync", "data_sync_retry": "off", "zero_damaged_pages": "off",
		"ignore_invalid_pages": "off", "ignore_checksum_failure": "off", "wal_level": "replica", "data_checksums": "off", "commit_delay": "0",
		"data_directory": "/pg", "server_version_num": fmt.Sprint(major*10000 + 3),
	} {
		r.settings[name] = setting{name: name, value: value, source: "default"}
	}
	r.settings["wal_writer_delay"] = setting{name: "wal_writer_delay", value: "200", unit: "ms", source: "default"}
	return r
}

// Whether a page can be torn, the layers below decide.
func TestPagesLeftToTheLayers(t *testing.T) {
	read := recorded(16)
	read.settings["block_size"] = setting{name: "block_size", value: "8192"}
	assert.Empty(t, judge(read).TornPage)
	read.change("full_page_writes", func(s *setting) { s.value = "off" })
	r := judge(read)
	assert.Equal(t, "postgres_full_page_writes", r.TornPage)
	assert.Equal(t, 8192, r.PageSize)
	assert.Equal(t, "/pg/pg_wal", r.Log)
}

func (r *reading) change(name string, f func(*setting)) {
	s := r.settings[name]
	f(&s)
	r.settings[name] = s
}

func TestSafeServersHaveNoFindings(t *testing.T) {
	for major := 13; major <= 18; major++ {
		r := judge(recorded(major))
		assert.Empty(t, r.Findings, major)
		assert.Len(t, r.Folders, 2)
	}
}

// What the real server of the other test does not bring about.
func TestJudge(t *testing.T) {
	const c, w, u = hostcheck.Critical, hostcheck.Warning, hostcheck.Unknown
	value := func(name, v string) func(*reading) {
		return func(r *reading) { r.change(name, func(s *setting) { s.value = v }) }
	}
	for name, tt := range map[string]struct {
		change func(*reading)
		code   string
		level  hostcheck.Level
		says   string
	}{
		"a value of tomorrow":     {value("synchronous_commit", "quantum"), "postgres_value_not_known", u, "quantum"},
		"fsync is nonsense":       {value("fsync", ""), "postgres_value_not_known", u, "fsync is empty"},
		"a method of tomorrow":    {value("wal_sync_method", "io_uring"), "postgres_value_not_known", u, ""},
		"not shown":               {func(r *reading) { delete(r.settings, "full_page_writes") }, "postgres_setting_missing", u, "full_page_writes"},
		"hidden by the database":  {func(r *reading) { r.change("synchronous_commit", func(s *setting) { s.source = "database" }) }, "postgres_server_value_hidden", u, ""},
		"too old":                 {func(r *reading) { *r = *recorded(12) }, "postgres_version_not_known", u, ""},
		"too new":                 {func(r *reading) { *r = *recorded(19) }, "postgres_version_not_known", u, ""},
		"version not said":        {func(r *reading) { delete(r.settings, "server_version_num") }, "postgres_version_not_known", u, ""},
		"another program":         {func(r *reading) { r.version = "Fancy 15" }, "postgres_version_not_known", u, ""},
		"Neon, with fsync off":    {func(r *reading) { r.fork = "neon"; value("fsync", "off")(r) }, "postgres_storage_not_known", u, "Neon"},
		"Yugabyte":                {func(r *reading) { r.version = "PostgreSQL 15.2-YB-2.25 on x86_64" }, "postgres_storage_not_known", u, "YB"},
		"an override of nonsense": {func(r *reading) { r.overrides = []override{{role: "a", name: "synchronous_commit", value: "?"}} }, "postgres_value_not_known", u, "for role a"},
		"a database that refuses": {func(r *reading) {
			r.databases = []database{{name: "x", err: &pgconn.PgError{Code: "42501", Message: "permission denied"}}}
		}, "postgres_database_not_read", u, "the login may not"},
		"too many databases":      {func(r *reading) { r.left = 3 }, "postgres_database_not_read", u, "3 databases"},
		"very many tables":        {func(r *reading) { r.databases = []database{{name: "x y", unlogged: 9, first: []string{"a.b"}}} }, "postgres_unlogged_tables", w, `"x y" has UNLOGGED tables (a.b and 8 more)`},
		"another access method":   {func(r *reading) { r.databases = []database{{name: "x", methods: []string{"columnar"}}} }, "postgres_table_access_method", u, "columnar"},
		"an error of the network": {func(r *reading) { r.databases = []database{{name: "x", err: errors.New("cut")}} }, "postgres_database_not_read", u, "cut"},
		"off, delay not known":    {func(r *reading) { value("synchronous_commit", "off")(r); delete(r.settings, "wal_writer_delay") }, "postgres_synchronous_commit", c, "three times wal_writer_delay"},
	} {
		t.Run(name, func(t *testing.T) {
			read := recorded(15)
			tt.change(read)
			r := judge(read)
			require.Len(t, r.Findings, 1, "the planted one and no other")
			assert.Equal(t, tt.code, r.Findings[0].Code)
			assert.Equal(t, tt.level, r.Findings[0].Level)
			assert.Contains(t, r.Findings[0].Text, tt.says)
		})
	}
}

func TestManyOverridesAreCounted(t *testing.T) {
	read := recorded(16)
	for i := range mostOverrides + 5 {
		read.overrides = append(read.overrides, override{role: fmt.Sprint("r", i), name: "synchronous_commit", value: "off"})
	}
	r := judge(read)
	require.Len(t, r.Findings, mostOverrides+1)
	assert.Contains(t, r.Findings[mostOverrides].Text, "5 more")
}

func TestCanonical(t *testing.T) {
	for want, ways := range map[string][]string{
		"on":           {"on", "ON", "true", "tr", "t", "yes", "y", "1"},
		"off":          {"off", "Off", "of", "false", "f", "no", "n", "0"},
		"remote_write": {"remote_write"},
		"o":            {"o"}, // as the server: neither
		"":             {"", " "},
		"truely":       {"truely"},
	} {
		for _, way := range ways {
			assert.Equal(t, want, canonical(way), "%q", way)
		}
	}
}

// Whatever a server says, nothing panics, and no value that is not known is OK.
func FuzzJudge(f *testing.F) {
	f.Add("PostgreSQL 15.1", "150001", "fsync", "on", "default")
	f.Add("PostgreSQL 9.6", "x", "synchronous_commit", "", "client")
	f.Fuzz(func(t *testing.T, version, num, name, value, source string) {
		read := recorded(15)
		read.version = version
		read.settings["server_version_num"] = setting{name: "server_version_num", value: num}
		read.settings[name] = setting{name: name, value: value, source: source}
		read.overrides = []override{{role: name, name: "synchronous_commit", value: value}}
		for _, s := range judge(read).Settings {
			if s.Name == "fsync" && s.Level == hostcheck.OK {
				assert.Equal(t, "on", s.Value)
			}
		}
	})
}
