// Package testskip skips tests that this machine cannot run, and makes programs for others.
//
// It guarantees that a test which may not be skipped fails instead: with
// PLUGPULL_NO_SKIP=1, as where changes are let in.
package testskip

import (
	"os"
	"os/exec"
	"syscall"
)

// TB is what it needs of testing.TB.
type TB interface {
	Helper()
	Skipf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Skip skips a test, and fails it where skipping is forbidden. The text says how to run it.
func Skip(t TB, format string, args ...any) {
	t.Helper()
	if Forbidden() {
		t.Fatalf("PLUGPULL_NO_SKIP=1 forbids to skip: "+format, args...)
	}
	t.Skipf(format, args...)
}

// Forbidden reports whether no test may be skipped.
func Forbidden() bool { return os.Getenv("PLUGPULL_NO_SKIP") == "1" }

// Program returns the path of a program, and skips the test where it is missing; pkg is the
// Debian package that has it.
func Program(t TB, name, pkg string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Skip(t, "%s is missing; to run this test: make deps (Debian: apt-get install %s), with /usr/sbin in PATH", name, pkg)
	}
	return path
}

// LoopBench skips where a server on a filesystem on the simulated drive cannot run.
func LoopBench(t TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		Skip(t, "not root: run it with sudo")
	}
	for _, path := range []string{"/dev/fuse", "/dev/loop-control"} {
		if _, err := os.Stat(path); err != nil {
			Skip(t, "no %s: modprobe fuse loop", path)
		}
	}
	for _, need := range [][2]string{{"mariadbd", "mariadb-server-core"}, {"mariadb-install-db", "mariadb-server-core"},
		{"mkfs.ext4", "e2fsprogs"}, {"mkfs.xfs", "xfsprogs"}, {"mkfs.btrfs", "btrfs-progs"}} {
		Program(t, need[0], need[1])
	}
}

// Script writes a program that is run at once. While a file is open for writing nobody can run it, and a child
// between fork and exec has everything open: so that no process is made meanwhile.
func Script(t TB, path, text string) {
	t.Helper()
	syscall.ForkLock.RLock()
	err := os.WriteFile(path, []byte(text), 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatalf("write a script: %v", err)
	}
}
