// Package mysql asks a MySQL or MariaDB server about its durability. It knows MySQL 5.7 to 9 and MariaDB
// 10.6 to 12, which is what database/mysql has rules for; it was run against MariaDB 10.11 alone, and the
// rest rests on the vendors' manuals.
//
// It guarantees that it only reads. These privileges suffice, none of which reads a row or a password:
//
//	CREATE USER 'plugpull_check'@'localhost' IDENTIFIED BY '…';
//	GRANT REFERENCES, SLAVE MONITOR ON *.* TO …;        -- MariaDB
//	GRANT REFERENCES, REPLICATION CLIENT ON *.* TO …;   -- MySQL
//
// REFERENCES is the least that lets information_schema show every table (without CREATE it permits nothing
// else), the other one shows whether the server is a replica. Without them, what they show is Unknown.
//
// Behind a proxy that spreads connections over several servers, the report is of whichever answered.
package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	mydb "plugpull/internal/database/mysql"
	"plugpull/internal/hostcheck"
	"plugpull/internal/hostcheck/databases"
)

// Check connects, reads and judges. It blocks until the server has answered or ctx is done. The error is one
// of connecting, of ctx, or of reading the server's variables, without which there is nothing to judge;
// whatever else cannot be read is in the report.
func Check(ctx context.Context, dsn mydb.DSN) (*databases.Report, error) {
	db, err := mydb.Open(dsn, mydb.Options{})
	if err != nil {
		return nil, err
	}
	var read reading
	if err := db.Control(ctx, func(c *sql.Conn) error { return read.all(ctx, c) }); err != nil {
		return nil, err
	}
	r := judge(&read)
	r.Where = dsn.String()
	switch direct, err := db.Direct(ctx); {
	case err != nil:
		r.Apart = "whether it is reached directly could not be read (" + why(err) + ")"
	case !direct:
		r.Apart = databases.NotDirect
	}
	return r, nil
}

// reading is what a server said.
type reading struct {
	vars    map[string]string
	status  map[string]string
	origins map[string]string // what set a variable, for those where the server says so
	replica replica
	tables  tables
}

// replica is what the server says of being one.
type replica struct {
	is   hostcheck.Tri
	gtid bool  // every connection to a source goes by MariaDB's GTIDs
	err  error // why it is not known
}

func (r *reading) all(ctx context.Context, c *sql.Conn) (err error) {
	if r.vars, err = mydb.Variables(ctx, c, "SHOW GLOBAL VARIABLES"); err != nil {
		return err
	}
	if r.status, err = mydb.Variables(ctx, c, "SHOW GLOBAL STATUS WHERE Variable_name IN ('Uptime', 'Innodb_redo_log_enabled', 'wsrep_cluster_size')"); err != nil {
		return err
	}
	maria := mydb.IsMariaDB(r.vars)
	r.origins = origins(ctx, c, maria)
	r.replica = readReplica(ctx, c, maria)
	r.tables = readTables(ctx, c)
	return ctx.Err()
}

// origins returns what set the variables. It decorates the report only: a server that does not say is no
// fault, and MySQL says it only to who may read performance_schema.
func origins(ctx context.Context, c *sql.Conn, maria bool) map[string]string {
	q := "SELECT VARIABLE_NAME, CONCAT(VARIABLE_SOURCE, ' ', COALESCE(VARIABLE_PATH, '')) FROM performance_schema.variables_info"
	if maria {
		q = "SELECT VARIABLE_NAME, CONCAT(GLOBAL_VALUE_ORIGIN, ' ', COALESCE(GLOBAL_VALUE_PATH, '')) FROM information_schema.SYSTEM_VARIABLES WHERE GLOBAL_VALUE_ORIGIN IS NOT NULL"
	}
	m, err := mydb.Variables(ctx, c, q)
	if err != nil {
		return nil
	}
	for name, v := range m {
		source, file, _ := strings.Cut(v, " ")
		switch source {
		case "COMPILE-TIME", "COMPILED":
			m[name] = "the server's default"
		case "SQL", "DYNAMIC":
			m[name] = "set while the server runs: another value may apply after a restart, which a power cut brings"
		default:
			m[name] = "set by " + strings.ToLower(source)
			if file != "" {
				m[name] = "set in " + file
			}
		}
	}
	return m
}

// readReplica asks whether the server copies from another one.
func readReplica(ctx context.Context, c *sql.Conn, maria bool) (r replica) {
	statements := []string{"SHOW REPLICA STATUS", "SHOW SLAVE STATUS"} // the former since MySQL 8.0.22, the latter until 8.4
	if maria {
		statements = []string{"SHOW ALL SLAVES STATUS"}
	}
	for _, q := range statements {
		if r = showReplica(ctx, c, q); r.err == nil || mydb.Errno(r.err) != erParse {
			break
		}
	}
	return r
}

const erParse = 1064

func showReplica(ctx context.Context, c *sql.Conn, q string) (r replica) {
	rows, err := c.QueryContext(ctx, q)
	if err != nil {
		return replica{err: fmt.Errorf("%s: %w", q, err)}
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return replica{err: fmt.Errorf("%s: %w", q, err)}
	}
	r = replica{is: hostcheck.No, gtid: true}
	values := make([]sql.NullString, len(columns))
	dest := make([]any, len(columns))
	for i := range values {
		dest[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return replica{err: fmt.Errorf("%s: %w", q, err)}
		}
		r.is = hostcheck.Yes
		gtid := false
		for i, name := range columns {
			if strings.EqualFold(name, "Using_Gtid") {
				gtid = strings.EqualFold(values[i].String, "Slave_Pos") || strings.EqualFold(values[i].String, "Current_Pos")
			}
		}
		r.gtid = r.gtid && gtid
	}
	if err := rows.Err(); err != nil {
		return replica{err: fmt.Errorf("%s: %w", q, err)}
	}
	return r
}

// denied reports whether the server refused for want of a privilege.
func denied(err error) bool {
	switch mydb.Errno(err) {
	case 1044, 1045, 1142, 1143, 1227: // database, user, table, column, SUPER or the like
		return true
	}
	return false
}

// why says in a few words why something was not read.
func why(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "the server did not answer in time"
	case denied(err):
		return "the login lacks the privilege"
	}
	return err.Error()
}
