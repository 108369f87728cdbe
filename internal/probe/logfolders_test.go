package probe

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestLogFolders(t *testing.T) {
	for name, c := range map[string]struct {
		vars map[string]string
		want []string
	}{
		"MariaDB":         {map[string]string{"datadir": "/d/", "innodb_log_group_home_dir": "./", "log_bin": "OFF", "log_bin_basename": "/b/bin"}, []string{"/d"}},
		"of its own":      {map[string]string{"datadir": "/d/", "innodb_log_group_home_dir": "/redo"}, []string{"/redo"}},
		"MySQL 8.4":       {map[string]string{"datadir": "/d/", "innodb_log_group_home_dir": "./", "innodb_redo_log_capacity": "104857600", "log_bin": "ON", "log_bin_basename": "/b/bin"}, []string{"/d/#innodb_redo", "/b"}},
		"binlog in data":  {map[string]string{"datadir": "/d/", "log_bin": "ON", "log_bin_basename": "bin"}, []string{"/d"}},
		"binlog as redo":  {map[string]string{"datadir": "/d/", "log_bin": "ON", "log_bin_basename": "/b/bin", "binlog_storage_engine": "innodb"}, []string{"/d"}},
		"it does not say": {nil, nil},
	} {
		assert.Equal(t, c.want, logFolders(c.vars), name)
	}
}
