package probe

import (
	"context"
	"database/sql"
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"plugpull/internal/database/mysql"
	"plugpull/internal/hostcheck/databases/postgres"
)

// The folders that commits wait for are those of logs alone: a drive that holds tables sees their writes later, and
// that no flush reaches it while commits are acknowledged accuses nobody.

// ErrApart: the server is not at the other end of the connection, so that its folders may be another machine's.
var ErrApart = errors.New("the server's folders may be another machine's or a container's")

// LogFolders returns the folders that commits wait for, as a server on this machine names them; ErrApart where it may
// be on another one. It blocks until the server has answered or ctx is done.
func (s Server) LogFolders(ctx context.Context) (folders []string, err error) {
	switch direct, err := s.DB.Direct(ctx); {
	case err != nil:
		return nil, err
	case !direct:
		return nil, ErrApart
	}
	err = s.DB.Control(ctx, func(c *sql.Conn) error {
		vars, err := mysql.Variables(ctx, c, "SHOW GLOBAL VARIABLES WHERE Variable_name IN "+
			"('datadir', 'innodb_log_group_home_dir', 'innodb_redo_log_capacity', 'log_bin', 'log_bin_basename', 'binlog_storage_engine')")
		folders = logFolders(vars)
		return err
	})
	return folders, err
}

func logFolders(vars map[string]string) (folders []string) {
	data := vars["datadir"]
	add := func(p, below string) {
		if p == "" {
			return
		}
		if !path.IsAbs(p) { // the data folder is the server's working folder
			p = path.Join(data, p)
		}
		if p = path.Join(p, below); path.IsAbs(p) && !slices.Contains(folders, p) {
			folders = append(folders, p)
		}
	}
	redo := vars["innodb_log_group_home_dir"]
	if redo == "" {
		redo = data
	}
	below := ""
	if vars["innodb_redo_log_capacity"] != "" { // MySQL from 8.0.30 on
		below = "#innodb_redo"
	}
	add(redo, below)
	if binlog := vars["log_bin_basename"]; binlog != "" && mysql.IsOn(vars["log_bin"]) && !strings.EqualFold(vars["binlog_storage_engine"], "innodb") {
		add(path.Dir(binlog), "")
	}
	return folders
}

// LogFolders returns the folder that commits wait for, as a server on this machine names it; ErrApart where it may be on
// another one, none where the login is not told, which pg_read_all_settings changes. It blocks until the server has answered or ctx is done.
func (s Postgres) LogFolders(ctx context.Context) (folders []string, err error) {
	s.limits = s.limits.orDefault()
	err = s.control(ctx, func(c *pgx.Conn) error {
		switch direct, err := postgres.Direct(ctx, c); {
		case err != nil:
			return err
		case !direct:
			return ErrApart
		}
		settings, err := postgresSettings(ctx, c, "data_directory")
		if data := settings["data_directory"]; data != "" {
			folders = append(folders, path.Join(data, "pg_wal"))
		}
		return err
	})
	return folders, err
}
