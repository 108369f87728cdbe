package main

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	_ "github.com/go-sql-driver/mysql"

	"plugpull/internal/clock"
	"plugpull/internal/ledger"
	"plugpull/internal/testserver"
	"plugpull/internal/testserver/pgserver"
	"plugpull/internal/testskip"
	"plugpull/internal/workload"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"plugpull": main})
}

// scriptParams has the commands of all scripts:
//
//	exits CODE plugpull …   runs it, and wants this exit code
//	ledger FILE [newer]     makes an empty ledger; newer: of a version that nobody has written yet
//	lock FILE               holds a ledger's lock until the script ends
//	tmpfs DIR SIZE          mounts a file system of this size, or resizes it
//
// and the condition root: the test may mount and make namespaces. Where skipping is
// forbidden it fails the script instead of being false.
func scriptParams(dir string) testscript.Params {
	return testscript.Params{
		Dir:                 dir,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Condition:           condition,
		Setup:               ownState,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "ledger": makeLedger, "lock": lockLedger, "tmpfs": mountTmpfs,
		},
	}
}

// ownState keeps the outlets' records of a script with it.
func ownState(env *testscript.Env) error {
	env.Setenv("XDG_STATE_HOME", filepath.Join(env.WorkDir, ".state"))
	return nil
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND …")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	code := 0
	var ex *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &ex) {
		code = ex.ExitCode()
	} else {
		ts.Check(err)
	}
	if code != want {
		ts.Fatalf("%s: exit code %d, want %d", strings.Join(args[1:], " "), code, want)
	}
}

func makeLedger(ts *testscript.TestScript, _ bool, args []string) {
	run := uuid.New()
	boot, err := clock.BootID()
	ts.Check(err)
	path := ts.MkAbs(args[0])
	w, err := ledger.Create(path, run, boot, ledger.Config{Database: "mysql", Schema: "plugpull",
		Params: workload.Params{Run: run, Profile: workload.Append, PayloadMin: 100, PayloadMax: 400}})
	ts.Check(err)
	ts.Check(w.Close())
	if len(args) == 1 {
		return
	}
	b, err := os.ReadFile(path)
	ts.Check(err)
	binary.LittleEndian.PutUint32(b[16:], 77)
	binary.LittleEndian.PutUint32(b[60:], crc32.Checksum(b[:60], crc32.MakeTable(crc32.Castagnoli)))
	ts.Check(os.WriteFile(path, b, 0o600))
}

func lockLedger(ts *testscript.TestScript, _ bool, args []string) {
	w, _, err := ledger.Open(ts.MkAbs(args[0]))
	ts.Check(err)
	ts.Defer(func() { _ = w.Close() })
}

// TestScripts tells of everything that needs no server.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, scriptParams("testdata/script"))
}

// scriptPassword is the password of the scripts' user; a file pw holds it.
const scriptPassword = "s3cret-of-the-test"

// scriptServers are what the scripts with a server share.
type scriptServers struct{ main, unsafe, binlog *testserver.Server }

// TestScriptsWithServer runs each script with a schema of its own, $SCHEMA, on
// the same server. $DSN names it, $SECRET_DSN with the password; $UNSAFE_DSN and
// $BINLOG_DSN are servers with settings that can lose commits, and with a binary log.
// The command sql executes a statement as root.
func TestScriptsWithServer(t *testing.T) {
	t.Parallel()
	s := scriptServers{
		main:   startServer(t),
		unsafe: startServer(t, "--innodb-flush-log-at-trx-commit=2", "--skip-innodb-doublewrite"),
		binlog: startServer(t, "--log-bin", "--sync-binlog=1", "--server-id=1"),
	}
	p := scriptParams("testdata/script/server")
	p.Cmds["sql"] = s.sql
	p.Setup = s.setUp
	testscript.Run(t, p)
}

func (s scriptServers) setUp(env *testscript.Env) error {
	if err := ownState(env); err != nil {
		return err
	}
	schema := "plugpull_" + strings.ReplaceAll(strings.TrimPrefix(filepath.Base(env.WorkDir), "script-"), "-", "_")
	dsn := func(s *testserver.Server, user string) string {
		return "mysql://" + user + "@" + s.Addr() + "/" + schema
	}
	const withPassword = "plugpull:" + scriptPassword
	env.Setenv("SCHEMA", schema)
	env.Setenv("ADDR", s.main.Addr())
	env.Setenv("DSN", dsn(s.main, "plugpull"))
	env.Setenv("SECRET_DSN", dsn(s.main, withPassword))
	env.Setenv("UNSAFE_DSN", dsn(s.unsafe, withPassword))
	env.Setenv("BINLOG_DSN", dsn(s.binlog, withPassword))
	return os.WriteFile(filepath.Join(env.WorkDir, "pw"), []byte(scriptPassword+"\n"), 0o600)
}

// TestScriptsWithPostgres runs each script with $DSN, whose password is in the file pw and in $PASSWORD, and
// $UNSAFE_DSN, a server with settings that can lose commits.
func TestScriptsWithPostgres(t *testing.T) {
	t.Parallel()
	safe := pgserver.New(t, "", false)
	unsafe := pgserver.New(t, "", false, "-c", "fsync=off", "-c", "synchronous_commit=off")
	p := scriptParams("testdata/script/postgres")
	p.Setup = func(env *testscript.Env) error {
		env.Setenv("DSN", safe.URL(pgserver.Super, ""))
		env.Setenv("UNSAFE_DSN", unsafe.URL(pgserver.Super, pgserver.Password))
		env.Setenv("PASSWORD", pgserver.Password)
		return errors.Join(ownState(env), os.WriteFile(filepath.Join(env.WorkDir, "pw"), []byte(pgserver.Password+"\n"), 0o600))
	}
	testscript.Run(t, p)
}

func startServer(t *testing.T, args ...string) *testserver.Server {
	t.Helper()
	testserver.NeedMariaDB(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := testserver.Start(ctx, testserver.Options{Dir: t.TempDir(), Args: args, Init: []string{
		"CREATE USER IF NOT EXISTS 'plugpull'@'%' IDENTIFIED BY '" + scriptPassword + "'",
		"GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP ON `plugpull\\_%`.* TO 'plugpull'@'%'",
	}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func condition(cond string) (bool, error) {
	if cond != "root" {
		return false, fmt.Errorf("unknown condition %q", cond)
	}
	ok := os.Getuid() == 0
	if !ok && testskip.Forbidden() {
		return false, errors.New("PLUGPULL_NO_SKIP=1 forbids to skip, and this script must be run by root")
	}
	return ok, nil
}

func mountTmpfs(ts *testscript.TestScript, _ bool, args []string) {
	dir, flags := ts.MkAbs(args[0]), uintptr(0)
	if err := os.Mkdir(dir, 0o700); errors.Is(err, os.ErrExist) {
		flags = unix.MS_REMOUNT
	} else {
		ts.Check(err)
		ts.Defer(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	}
	ts.Check(unix.Mount("tmpfs", dir, "tmpfs", flags, "size="+args[1]))
}

func (s scriptServers) sql(ts *testscript.TestScript, _ bool, args []string) {
	db, err := sql.Open("mysql", "root@unix("+s.main.Socket()+")/")
	ts.Check(err)
	defer db.Close()
	_, err = db.Exec(strings.Join(args, " "))
	ts.Check(err)
}
