package main

import (
	"fmt"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"

	"plugpull/internal/database/mysql"
	"plugpull/internal/secretfile"
	"plugpull/internal/usage"
)

// dsnFlags are the flags of every subcommand that talks to a database.
type dsnFlags struct {
	dsn, passwordFile string
}

func (f *dsnFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.dsn, "dsn", "", "database under test: mysql://USER@HOST[:PORT][/SCHEMA][?tls=true&tls-ca=FILE&socket=PATH…];\nthe environment's PLUGPULL_DSN, which may hold a password, when not given")
	c.Flags().StringVar(&f.passwordFile, "password-file", "", "file with the password, readable by its owner only")
}

// grantHelp is the least privilege, for --help.
const grantHelp = `
The database user needs no more than:

  GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP ON plugpull.* TO 'plugpull'@'%';

A password never goes onto the command line: use PLUGPULL_DSN or --password-file.`

// parse finds the DSN and its password.
func (f *dsnFlags) parse() (mysql.DSN, error) {
	text, fromFlag := f.dsn, true
	if text == "" {
		text, fromFlag = os.Getenv("PLUGPULL_DSN"), false
	}
	if text == "" {
		return mysql.DSN{}, usage.Errorf("no database: give --dsn mysql://USER@HOST/SCHEMA or set PLUGPULL_DSN")
	}
	return parseDSN(text, !fromFlag, f.passwordFile)
}

func parseDSN(text string, passwordAllowed bool, passwordFile string) (mysql.DSN, error) {
	dsn, err := mysql.ParseDSN(text)
	if err != nil {
		return dsn, usage.Wrap(err)
	}
	if dsn.HasPassword() && !passwordAllowed {
		return dsn, usage.Errorf("the DSN holds a password, which everybody on this machine can read there: set PLUGPULL_DSN instead, or use --password-file (password_file in a bench file)")
	}
	if passwordFile != "" {
		if dsn.HasPassword() {
			return dsn, usage.Errorf("there is a password in the DSN and one in %s: give one of the two", passwordFile)
		}
		p, err := secretfile.Read(passwordFile)
		if err != nil {
			return dsn, usage.Wrap(err)
		}
		dsn.SetPassword(p)
	}
	return dsn, nil
}

func openTarget(dsn mysql.DSN, silence time.Duration) (mysql.Target, error) {
	db, err := mysql.Open(dsn, mysql.Options{Silence: silence})
	if err != nil {
		return mysql.Target{}, usage.Wrap(err)
	}
	return mysql.Target{DB: db}, nil
}

// warnLocal warns when the database runs on the machine that keeps the ledger.
func warnLocal(dsn mysql.DSN, serverHost string) string {
	const proves = "a ledger that loses power together with the database proves nothing: run plugpull on another machine"
	own, err := os.Hostname()
	switch {
	case dsn.Socket != "":
		return fmt.Sprintf("the database is on this machine (socket %s), and so is the ledger; %s", dsn.Socket, proves)
	case err == nil && own == serverHost:
		return fmt.Sprintf("the database's host name is this machine's (%s); %s", own, proves)
	case ownAddress(dsn.Host):
		return fmt.Sprintf("%s is this machine; unless that is a tunnel, %s", dsn.Host, proves)
	}
	return ""
}

// ownAddress reports whether a host is one of this machine's addresses.
func ownAddress(host string) bool {
	ips, err := net.LookupIP(host)
	if err != nil {
		return false
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, ip := range ips {
		if ip.IsLoopback() {
			return true
		}
		for _, a := range own {
			if n, ok := a.(*net.IPNet); ok && n.IP.Equal(ip) {
				return true
			}
		}
	}
	return false
}
