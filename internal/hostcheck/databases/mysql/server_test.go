package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mydb "plugpull/internal/database/mysql"
	"plugpull/internal/hostcheck"
	"plugpull/internal/hostcheck/databases"
	"plugpull/internal/testserver"
)

// safe are the options of the clean twin.
var safe = []string{"--log-bin=bin", "--sync-binlog=1", "--relay-log-recovery=ON"}

const setUp = `CREATE USER low@localhost IDENTIFIED BY 'pw';
GRANT REFERENCES, SLAVE MONITOR ON *.* TO low@localhost;
CREATE USER none@localhost IDENTIFIED BY 'pw';
CREATE DATABASE shop;
CREATE TABLE shop.orders (i INT) ENGINE=InnoDB;
CREATE TABLE shop.log (i INT) ENGINE=Aria`

// Every dangerous setting is planted in turn in a real server, and asked for with the least privileges; the
// clean twin has none.
func TestRealServer(t *testing.T) {
	testserver.NeedMariaDB(t)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	s, err := testserver.Start(ctx, testserver.Options{Dir: t.TempDir(), Args: safe})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	root := dsn(t, s, "root", "")
	do(t, root, strings.Split(setUp, ";\n")...)
	low := dsn(t, s, "low", "pw")

	clean := map[string]hostcheck.Level{}
	r := check(t, low)
	if strings.HasPrefix(r.Version, "10.11.19-") {
		clean = race
	}
	require.Equal(t, clean, codes(r), "the clean twin")
	assert.Equal(t, databases.MariaDB, r.Kind)
	assert.NotContains(t, r.Where, "pw")
	assert.Equal(t, []databases.Folder{{Path: s.Datadir(), What: "data", From: "datadir", Pages: true}}, r.Folders)
	row := settingOf(t, r, "tables in Aria with TRANSACTIONAL=1")
	assert.Equal(t, "shop.log", row.Where)
	assert.Equal(t, "1", settingOf(t, r, "sync_binlog").Value)
	assert.Equal(t, "set by command-line", settingOf(t, r, "sync_binlog").Where)
	assert.Equal(t, "the server's default", settingOf(t, r, "innodb_flush_log_at_trx_commit").Where)

	planted := func(t *testing.T, want map[string]hostcheck.Level) {
		t.Helper()
		got := codes(check(t, low))
		for code, level := range want {
			assert.Equal(t, level, got[code], code)
		}
		assert.Len(t, got, len(want)+len(clean), "%v", got)
	}
	t.Run("while it runs", func(t *testing.T) { plantRunning(t, root, planted) })
	t.Run("privileges", func(t *testing.T) { privileges(t, s, root) })
	t.Run("at the start", func(t *testing.T) { plantStart(ctx, t, s, planted) })
}

func plantRunning(t *testing.T, root mydb.DSN, planted func(*testing.T, map[string]hostcheck.Level)) {
	const c, w = hostcheck.Critical, hostcheck.Warning
	for code, p := range map[string]struct {
		plant, undo string
		level       hostcheck.Level
	}{
		"mysql_innodb_flush_log_at_trx_commit": {"SET GLOBAL innodb_flush_log_at_trx_commit = 2", "SET GLOBAL innodb_flush_log_at_trx_commit = 1", c},
		"mysql_sync_binlog":                    {"SET GLOBAL sync_binlog = 0", "SET GLOBAL sync_binlog = 1", c},
		"mysql_default_storage_engine":         {"SET GLOBAL default_storage_engine = MyISAM", "SET GLOBAL default_storage_engine = InnoDB", w},
		"mysql_aria_group_commit":              {"SET GLOBAL aria_group_commit = soft", "SET GLOBAL aria_group_commit = none", w},
		"mysql_tables_myisam":                  {"CREATE TABLE shop.x (i INT) ENGINE=MyISAM", "DROP TABLE shop.x", w},
		"mysql_tables_memory":                  {"CREATE TABLE shop.x (i INT) ENGINE=MEMORY", "DROP TABLE shop.x", w},
		"mysql_tables_csv":                     {"CREATE TABLE shop.x (i INT NOT NULL) ENGINE=CSV", "DROP TABLE shop.x", w},
		"mysql_tables_aria":                    {"CREATE TABLE shop.x (i INT) ENGINE=Aria TRANSACTIONAL=0", "DROP TABLE shop.x", w},
	} {
		t.Run(code, func(t *testing.T) {
			do(t, root, p.plant)
			defer do(t, root, p.undo)
			planted(t, map[string]hostcheck.Level{code: p.level})
		})
	}
	// What the code says of sessions: there is no such variable of a session.
	err := try(root, "SET SESSION innodb_flush_log_at_trx_commit = 2")
	assert.Equal(t, uint32(1229), mydb.Errno(err), "%v", err)
}

func plantStart(ctx context.Context, t *testing.T, s *testserver.Server, planted func(*testing.T, map[string]hostcheck.Level)) {
	const c, w = hostcheck.Critical, hostcheck.Warning
	for name, p := range map[string]struct {
		args []string
		want map[string]hostcheck.Level
	}{
		"nosync":            {[]string{"--innodb-flush-method=nosync"}, map[string]hostcheck.Level{"mysql_innodb_flush_method": c}},
		"littlesync":        {[]string{"--innodb-flush-method=littlesync"}, map[string]hostcheck.Level{"mysql_innodb_flush_method": c}},
		"no fsync":          {[]string{"--innodb-flush-method=O_DIRECT_NO_FSYNC"}, map[string]hostcheck.Level{"mysql_innodb_flush_method_no_fsync": w}},
		"no doublewrite":    {[]string{"--skip-innodb-doublewrite"}, map[string]hostcheck.Level{"mysql_innodb_doublewrite": c}},
		"forced recovery":   {[]string{"--innodb-force-recovery=1"}, map[string]hostcheck.Level{"mysql_innodb_force_recovery": c}},
		"MariaDB's default": {[]string{"--sync-binlog=0"}, map[string]hostcheck.Level{"mysql_sync_binlog": c}},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, s.Restart(ctx, append(append([]string{}, safe...), p.args...)...))
			planted(t, p.want)
		})
	}
	t.Run("a replica", func(t *testing.T) {
		require.NoError(t, s.Restart(ctx, "--log-bin=bin", "--sync-binlog=1", "--server-id=2"))
		planted(t, nil)
		root := dsn(t, s, "root", "")
		do(t, root, "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=1, MASTER_USER='x', MASTER_USE_GTID=no")
		planted(t, map[string]hostcheck.Level{"mysql_relay_log_recovery": w})
		do(t, root, "CHANGE MASTER TO MASTER_USE_GTID=slave_pos")
		planted(t, nil)
	})
}

// privileges: with none, what they would show is unknown, and the settings are judged all the same.
func privileges(t *testing.T, s *testserver.Server, root mydb.DSN) {
	do(t, root, "SET GLOBAL innodb_flush_log_at_trx_commit = 0")
	defer do(t, root, "SET GLOBAL innodb_flush_log_at_trx_commit = 1")
	none := dsn(t, s, "none", "pw")
	got := codes(check(t, none))
	assert.Equal(t, hostcheck.Unknown, got["mysql_tables_not_known"])
	assert.Equal(t, hostcheck.Critical, got["mysql_innodb_flush_log_at_trx_commit"])
	assert.NotContains(t, got, "mysql_relay_log_recovery", "it is on, and so it does not matter whether this is a replica")
	for _, user := range []string{"low", "none"} {
		err := try(dsn(t, s, user, "pw"), "SELECT * FROM shop.orders")
		assert.Equal(t, uint32(1142), mydb.Errno(err), "%s reads rows: %v", user, err)
	}

	_, err := Check(context.Background(), dsn(t, s, "none", "wr0ng"))
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "wr0ng")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = Check(ctx, none)
	assert.ErrorIs(t, err, context.Canceled)
}

func settingOf(t *testing.T, r *databases.Report, name string) databases.Setting {
	t.Helper()
	for _, s := range r.Settings {
		if s.Name == name {
			return s
		}
	}
	require.Fail(t, "no such setting", name)
	return databases.Setting{}
}

func check(t *testing.T, d mydb.DSN) *databases.Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := Check(ctx, d)
	require.NoError(t, err)
	return r
}

func dsn(t *testing.T, s *testserver.Server, user, password string) mydb.DSN {
	t.Helper()
	d, err := mydb.ParseDSN(fmt.Sprintf("mysql://%s@/?socket=%s", user, path.Clean(s.Socket())))
	require.NoError(t, err)
	if password != "" {
		d.SetPassword(password)
	}
	return d
}

func do(t *testing.T, d mydb.DSN, statements ...string) {
	t.Helper()
	for _, q := range statements {
		require.NoError(t, try(d, q), q)
	}
}

func try(d mydb.DSN, q string) error {
	db, err := mydb.Open(d, mydb.Options{})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return db.Control(ctx, func(c *sql.Conn) error {
		_, err := c.ExecContext(ctx, q)
		return err
	})
}
