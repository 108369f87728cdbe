package mysql

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestJudgeSettings(t *testing.T) {
	maria := map[string]string{
		"version": "10.11.6-MariaDB", "innodb_flush_log_at_trx_commit": "1", "log_bin": "OFF", "sync_binlog": "0", "innodb_flush_method": "O_DIRECT",
		"innodb_doublewrite": "ON", "innodb_force_recovery": "0", "innodb_checksum_algorithm": "full_crc32", "read_only": "OFF", "debug_no_sync": "OFF",
	}
	mysql := map[string]string{
		"version": "8.4.0", "version_comment": "MySQL Community Server - GPL", "innodb_flush_log_at_trx_commit": "1", "log_bin": "ON", "sync_binlog": "1",
		"innodb_flush_method": "fsync", "innodb_doublewrite": "DETECT_AND_RECOVER", "innodb_force_recovery": "0", "innodb_log_checksums": "ON",
	}
	mysql57 := map[string]string{
		"version": "5.7.44", "innodb_flush_log_at_trx_commit": "1", "log_bin": "OFF", "sync_binlog": "1", "innodb_flush_method": "",
		"innodb_doublewrite": "ON", "innodb_force_recovery": "0", "innodb_checksums": "ON",
	}
	for name, c := range map[string]struct {
		base map[string]string
		set  map[string]string
		want []string // names of the problems
	}{
		"MariaDB":                         {maria, nil, nil},
		"MySQL 8":                         {mysql, nil, nil},
		"MySQL 5.7":                       {mysql57, nil, nil},
		"MariaDB's 3":                     {maria, map[string]string{"innodb_flush_log_at_trx_commit": "3"}, nil},
		"MySQL's 3":                       {mysql, map[string]string{"innodb_flush_log_at_trx_commit": "3"}, []string{"innodb_flush_log_at_trx_commit"}},
		"2":                               {maria, map[string]string{"innodb_flush_log_at_trx_commit": "2"}, []string{"innodb_flush_log_at_trx_commit"}},
		"binlog not synced":               {maria, map[string]string{"log_bin": "ON"}, []string{"sync_binlog"}},
		"binlog rarely synced":            {mysql, map[string]string{"sync_binlog": "100"}, []string{"sync_binlog"}},
		"binlog in InnoDB":                {maria, map[string]string{"log_bin": "ON", "binlog_storage_engine": "innodb"}, nil},
		"nosync":                          {maria, map[string]string{"innodb_flush_method": "nosync"}, []string{"innodb_flush_method"}},
		"O_DIRECT_NO_FSYNC":               {mysql, map[string]string{"innodb_flush_method": "O_DIRECT_NO_FSYNC"}, []string{"innodb_flush_method"}},
		"no doublewrite":                  {maria, map[string]string{"innodb_doublewrite": "OFF"}, []string{"innodb_doublewrite"}},
		"detect only":                     {mysql, map[string]string{"innodb_doublewrite": "DETECT_ONLY"}, []string{"innodb_doublewrite"}},
		"fast doublewrite":                {maria, map[string]string{"innodb_doublewrite": "fast"}, []string{"innodb_doublewrite"}},
		"forced recovery":                 {maria, map[string]string{"innodb_force_recovery": "3"}, []string{"innodb_force_recovery"}},
		"redo log off":                    {mysql, map[string]string{"@innodb_redo_log_enabled": "OFF"}, []string{"innodb_redo_log_enabled"}},
		"redo log on":                     {mysql, map[string]string{"@innodb_redo_log_enabled": "ON"}, nil},
		"no checksums":                    {maria, map[string]string{"innodb_checksum_algorithm": "strict_none"}, []string{"innodb_checksum_algorithm"}},
		"no checksums in 5.7":             {mysql57, map[string]string{"innodb_checksums": "OFF"}, []string{"innodb_checksums"}},
		"no log checksums":                {mysql, map[string]string{"innodb_log_checksums": "OFF"}, []string{"innodb_log_checksums"}},
		"debug build without flushes":     {maria, map[string]string{"debug_no_sync": "ON"}, []string{"debug_no_sync"}},
		"two at once, in the fixed order": {maria, map[string]string{"innodb_flush_log_at_trx_commit": "0", "log_bin": "ON"}, []string{"innodb_flush_log_at_trx_commit", "sync_binlog"}},
	} {
		t.Run(name, func(t *testing.T) {
			vars, status := maps.Clone(c.base), map[string]string{}
			for k, v := range c.set {
				if k[0] == '@' {
					status[k[1:]] = v
					continue
				}
				vars[k] = v
			}
			s := judgeSettings(vars, status)
			var got []string
			for _, p := range s.Problems {
				got = append(got, p.Name)
				assert.NotEmpty(t, p.Risk)
				assert.NotEmpty(t, p.Safe)
			}
			assert.Equal(t, c.want, got)
			assert.Equal(t, vars["log_bin"] == "ON", s.LogBin)
		})
	}
	assert.NotEmpty(t, judgeSettings(map[string]string{"version": "x"}, nil).Problems, "a server without InnoDB is not durable")
	for _, v := range []string{"ON", "1", "NO_LOCK", "NO_LOCK_NO_ADMIN"} {
		assert.True(t, judgeSettings(map[string]string{"read_only": v}, nil).ReadOnly, v)
	}
}

func TestSettingsOfARealServer(t *testing.T) {
	s := ownServer(t, "--innodb-flush-log-at-trx-commit=2", "--log-bin", "--innodb-doublewrite=0")
	d, err := Open(testDSN(uint16(s.Port())), Options{})
	require.NoError(t, err)
	got, err := d.Settings(ctx(t))
	require.NoError(t, err)
	var names []string
	for _, p := range got.Problems {
		names = append(names, p.Name)
	}
	assert.Equal(t, []string{"innodb_flush_log_at_trx_commit", "sync_binlog", "innodb_doublewrite"}, names)
	assert.True(t, got.LogBin)
	assert.Less(t, got.Uptime.Minutes(), 2.0)
	assert.Equal(t, "2", got.Variables["innodb_flush_log_at_trx_commit"])

	good, err := Open(testDSN(uint16(sharedServer(t).Port())), Options{})
	require.NoError(t, err)
	got, err = good.Settings(ctx(t))
	require.NoError(t, err)
	assert.Empty(t, got.Problems)
	id, err := good.Identity(ctx(t))
	require.NoError(t, err)
	for _, k := range []string{"hostname", "port", "datadir", "version", "version_comment"} {
		assert.NotEmpty(t, id[k], k)
	}
}
