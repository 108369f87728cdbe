package mysqld

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// asUser takes out what depends on who runs the test.
func asUser(args []string) []string {
	var out []string
	for _, a := range args {
		if a != "--user=root" {
			out = append(out, a)
		}
	}
	return out
}

// lines splits a golden list.
func lines(text string) []string { return strings.Fields(text) }

const (
	placeGolden = `--no-defaults --datadir=/dut/data --socket=/run/db/s --pid-file=/run/db/pid
		--bind-address=127.0.0.1 --port=3307 --tmpdir=/run/db/tmp`
	smallGolden = `--innodb-buffer-pool-size=32M --key-buffer-size=1M --performance-schema=OFF
		--innodb-buffer-pool-dump-at-shutdown=OFF --innodb-buffer-pool-load-at-startup=OFF
		--table-open-cache=200 --max-connections=500`
	mariaGolden = `--innodb-log-file-size=16M ` + smallGolden + ` --aria-pagecache-buffer-size=1M
		--innodb-temp-data-file-path=/run/db/tmp/ibtmp1:12M:autoextend
		--skip-name-resolve --loose-feedback=OFF
		--myisam-recover-options=OFF --aria-recover-options=OFF`
	mysqlTmpGolden   = `--innodb-temp-data-file-path=../../run/db/tmp/ibtmp1:12M:autoextend`
	mysqlQuietGolden = `--skip-name-resolve --event-scheduler=OFF --secure-file-priv=NULL
		--log-error-verbosity=3 --myisam-recover-options=OFF`
	mysql8Golden = smallGolden + ` ` + mysqlTmpGolden + ` --innodb-temp-tablespaces-dir=/run/db/tmp ` +
		mysqlQuietGolden + ` --skip-log-bin --mysqlx=OFF`
)

func argsOf(t *testing.T, in Install, settings map[string]string) []string {
	t.Helper()
	s := &Server{in: in, dir: "/run/db", conf: Config{Datadir: "/dut/data", Bind: "127.0.0.1", Settings: settings}}
	s.held = &hold{}
	s.held.addr = mustAddr("127.0.0.1:3307")
	return asUser(s.args())
}

func TestArgumentsByFlavourAndVersion(t *testing.T) {
	tests := []struct {
		name string
		in   Install
		want string
	}{
		{"MySQL 5.7", Install{Flavour: MySQL, Version: Version{5, 7, 44}},
			`--innodb-log-file-size=16M ` + smallGolden + ` ` + mysqlTmpGolden + ` ` + mysqlQuietGolden},
		{"MySQL 8.0 before the redo log's capacity", Install{Flavour: MySQL, Version: Version{8, 0, 29}},
			`--innodb-log-file-size=16M ` + mysql8Golden},
		{"MySQL 8.0", Install{Flavour: MySQL, Version: Version{8, 0, 30}}, `--innodb-redo-log-capacity=32M ` + mysql8Golden},
		{"MySQL 8.4", Install{Flavour: MySQL, Version: Version{8, 4, 6}}, `--innodb-redo-log-capacity=32M ` + mysql8Golden},
		{"MySQL 9", Install{Flavour: MySQL, Version: Version{9, 4, 0}}, `--innodb-redo-log-capacity=32M ` + mysql8Golden},
		{"MariaDB 10.6", Install{Flavour: MariaDB, Version: Version{10, 6, 22}}, mariaGolden},
		{"MariaDB 10.11", Install{Flavour: MariaDB, Version: Version{10, 11, 14}}, mariaGolden},
		{"MariaDB 11.8", Install{Flavour: MariaDB, Version: Version{11, 8, 3}}, mariaGolden + ` --ssl=OFF`},
		{"MariaDB 12", Install{Flavour: MariaDB, Version: Version{12, 0, 2}}, mariaGolden + ` --ssl=OFF`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, append(lines(placeGolden), lines(tt.want)...), argsOf(t, tt.in, nil))
		})
	}
}

func TestSettingsWin(t *testing.T) {
	maria := Install{Flavour: MariaDB, Version: Version{11, 8, 3}}
	mysql := Install{Flavour: MySQL, Version: Version{8, 4, 6}}
	tests := []struct {
		name       string
		in         Install
		settings   map[string]string
		last, gone []string
	}{
		{"in the order of their names, after everything else", maria,
			map[string]string{"sync_binlog": "1", "innodb_flush_log_at_trx_commit": "2"},
			lines("--innodb_flush_log_at_trx_commit=2 --sync_binlog=1"), nil},
		{"in place of this package's choice", maria, map[string]string{"innodb_log_file_size": "1G"},
			lines("--innodb_log_file_size=1G"), lines("--innodb-log-file-size=16M")},
		{"whatever their prefix", maria, map[string]string{"loose-aria_recover_options": "BACKUP"},
			lines("--loose-aria_recover_options=BACKUP"), lines("--aria-recover-options=OFF")},
		{"the binary log", mysql, map[string]string{"log_bin": "binlog"}, lines("--log_bin=binlog"), lines("--skip-log-bin")},
		{"without a value", mysql, map[string]string{"log-bin": ""}, lines("--log-bin"), lines("--skip-log-bin")},
		{"a certificate wants TLS", maria, map[string]string{"ssl_cert": "/c"}, lines("--ssl_cert=/c"), lines("--ssl=OFF")},
		{"name resolution", maria, map[string]string{"skip_name_resolve": "OFF"}, lines("--skip_name_resolve=OFF"), lines("--skip-name-resolve")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			plain, args := argsOf(t, tt.in, nil), argsOf(t, tt.in, tt.settings)
			assert.Equal(t, tt.last, args[len(args)-len(tt.last):])
			for _, gone := range tt.gone {
				require.Contains(t, plain, gone)
				assert.NotContains(t, args, gone)
			}
			assert.Len(t, args, len(plain)+len(tt.last)-len(tt.gone))
		})
	}
}

func TestInitialisationArguments(t *testing.T) {
	settings := map[string]string{
		"innodb_page_size": "8k", "lower_case_table_names": "1", "sync_binlog": "1", "read_only": "ON",
	}
	const place = `--no-defaults --datadir=/dut/data --tmpdir=/t`
	const shape = `--innodb_page_size=8k --lower_case_table_names=1`
	name, args := Install{
		Binary: "/opt/m/sbin/mariadbd", InstallDB: "/opt/m/bin/mariadb-install-db", Flavour: MariaDB, Version: Version{10, 11, 14},
	}.initArgs("/dut/data", "/t", Shaping(settings))
	assert.Equal(t, "/opt/m/bin/mariadb-install-db", name)
	want := place + ` --basedir=/opt/m --skip-test-db --auth-root-authentication-method=normal ` +
		strings.ReplaceAll(mariaGolden, "/run/db/tmp", "/t") + ` ` + shape
	assert.Equal(t, lines(want), asUser(args))

	name, args = Install{Binary: "/usr/sbin/mysqld", Flavour: MySQL, Version: Version{8, 4, 6}}.
		initArgs("/dut/data", "/t", Shaping(settings))
	assert.Equal(t, "/usr/sbin/mysqld", name)
	want = place + ` --initialize-insecure --innodb-redo-log-capacity=32M ` +
		strings.ReplaceAll(mysql8Golden, "/run/db/tmp", "/t") + ` ` + shape
	assert.Equal(t, lines(want), asUser(args))
}

func TestSettingsThatAScenarioMayNotGive(t *testing.T) {
	for _, name := range []string{
		"datadir", "--datadir", "port", "defaults-file", "pid_file", "loose_socket", "user", "SOCKET", "data dir", "a=b", "", "datad",
		"innodb_force_recovery", "innodb-force-recovery", "loose-innodb_force_recovery", "innodb_force_rec",
		"tc_heuristic_recover", "aria_force_start_after_recovery_failures",
	} {
		assert.ErrorIs(t, CheckSettings(map[string]string{"sync_binlog": "1", name: "1"}), ErrSetting, name)
	}
	for _, name := range []string{
		"innodb_flush_log_at_trx_commit", "innodb", "aria_recover_options", "sync-binlog", "mysqlx", "log_bin", "report_port",
	} {
		assert.NoError(t, CheckSettings(map[string]string{name: "1"}), name)
	}
	for setting, ok := range map[[2]string]bool{
		{"innodb_log_group_home_dir", "/tmp/log"}: false, {"log_bin", "/var/log/binlog"}: false, {"innodb_undo_directory", "../undo"}: false,
		{"aria_log_dir_path", "a/../../b"}: false, {"log_bin", "binlog"}: true, {"innodb_undo_directory", "undo"}: true,
		{"ssl_ca", "/etc/ca.pem"}: true, {"plugin_dir", "/usr/lib/plugins"}: true, {"innodb_data_file_path", "ibdata1:10M:autoextend"}: true,
	} {
		err := CheckSettings(map[string]string{setting[0]: setting[1]})
		if ok {
			assert.NoError(t, err, setting)
		} else {
			assert.ErrorIs(t, err, ErrSetting, setting)
		}
	}
}

func TestEnvironment(t *testing.T) {
	for _, name := range []string{"NOTIFY_SOCKET", "LISTEN_FDS", "MYSQL_HOME", "MARIADB_X"} {
		t.Setenv(name, "of the outside")
	}
	t.Setenv("GLIBC_TUNABLES", "")
	require.NoError(t, os.Unsetenv("GLIBC_TUNABLES"))
	t.Setenv("PP_KEPT", "1")
	cmd := exec.Command("env")
	cmd.Env = environ()
	out, err := cmd.Output()
	require.NoError(t, err)
	assert.NotContains(t, string(out), "of the outside")
	assert.Contains(t, string(out), "PP_KEPT=1\n")
	assert.Contains(t, string(out), hugePages+"\n")
	t.Setenv("GLIBC_TUNABLES", "glibc.malloc.check=1")
	cmd = exec.Command("env")
	cmd.Env = environ()
	out, err = cmd.Output()
	require.NoError(t, err)
	assert.Contains(t, string(out), "GLIBC_TUNABLES=glibc.malloc.check=1\n", "the user's own")
	assert.NotContains(t, string(out), hugePages)
}
