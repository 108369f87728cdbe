package mysqld

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Flavour says whose server it is.
type Flavour string

// The flavours. What is neither is refused.
const (
	MariaDB Flavour = "MariaDB"
	MySQL   Flavour = "MySQL" // also Percona's
)

// Version is the version number of a server.
type Version struct{ Major, Minor, Patch int }

// String returns the version as 10.11.6.
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// AtLeast reports whether v is major.minor.patch or later.
func (v Version) AtLeast(major, minor, patch int) bool {
	a, b := [3]int{v.Major, v.Minor, v.Patch}, [3]int{major, minor, patch}
	for i := range a {
		if a[i] != b[i] {
			return a[i] > b[i]
		}
	}
	return true
}

// Install is a server that is installed on this machine.
type Install struct {
	Binary    string // absolute path of mariadbd or mysqld
	InstallDB string // absolute path of mariadb-install-db; empty for MySQL
	Flavour   Flavour
	Version   Version
	Text      string // what --version printed, one line
}

// ErrNotInstalled says that no server was found, or not all of it.
var ErrNotInstalled = errors.New("no MariaDB or MySQL server is installed (Debian: apt-get install mariadb-server-core mariadb-client)")

// ErrUnknownServer says that a program's --version is not that of a MariaDB or
// MySQL server.
var ErrUnknownServer = errors.New("not a MariaDB or MySQL server")

// places are searched after PATH, which often lacks them for a user who is not
// root.
var places = []string{
	"/usr/sbin", "/usr/libexec", "/usr/local/sbin", "/usr/local/bin", "/usr/local/libexec",
	"/usr/local/mysql/bin", "/usr/local/mariadb/bin",
}

// Find looks for a server and asks it for its version. With an empty binary it
// takes the first mariadbd in PATH and the usual places, then the first mysqld; a
// binary without a slash is searched in the same way. Errors: ErrNotInstalled,
// ErrUnknownServer.
func Find(ctx context.Context, binary string) (Install, error) {
	names := []string{binary}
	if binary == "" {
		names = []string{"mariadbd", "mysqld"}
	}
	path := lookUp(names...)
	if path == "" {
		return Install{}, fmt.Errorf("%w: %s not found", ErrNotInstalled, strings.Join(names, " or "))
	}
	cmd := exec.CommandContext(ctx, path, "--no-defaults", "--version")
	cmd.WaitDelay = time.Second // a wrapper's child may hold the pipe
	out, err := cmd.Output()
	if err != nil {
		return Install{}, fmt.Errorf("ask %s for its version: %w", path, err)
	}
	in := Install{Binary: path, Text: strings.TrimSpace(string(out))}
	if in.Flavour, in.Version, err = parseVersion(in.Text); err != nil {
		return Install{}, fmt.Errorf("%s: %w", path, err)
	}
	if in.Flavour == MariaDB {
		if in.InstallDB = installDB(path); in.InstallDB == "" {
			return Install{}, fmt.Errorf("%w: %s is there, mariadb-install-db is not", ErrNotInstalled, path)
		}
	}
	return in, nil
}

// lookUp returns the absolute path of the first of names that is a program.
func lookUp(names ...string) string {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			if abs, err := filepath.Abs(path); err == nil {
				return abs
			}
		}
		if strings.Contains(name, "/") {
			continue
		}
		for _, dir := range places {
			if path := filepath.Join(dir, name); isProgram(path) {
				return path
			}
		}
	}
	return ""
}

// installDB looks beside the binary first, where a tarball has it (scripts/ in
// old ones), so that two installs do not get mixed.
func installDB(binary string) string {
	names := []string{"mariadb-install-db", "mysql_install_db"}
	if real, err := filepath.EvalSymlinks(binary); err == nil {
		binary = real
	}
	dir := filepath.Dir(binary)
	for _, beside := range []string{dir, filepath.Join(dir, "../bin"), filepath.Join(dir, "../scripts")} {
		for _, name := range names {
			if path := filepath.Join(beside, name); isProgram(path) {
				return path
			}
		}
	}
	return lookUp(names...)
}

func isProgram(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular() && st.Mode()&fs.FileMode(0o111) != 0
}

// versionLine matches "mariadbd  Ver 10.11.6-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)"
// and "/usr/sbin/mysqld  Ver 8.0.36 for Linux on x86_64 (MySQL Community Server - GPL)".
var versionLine = regexp.MustCompile(`(?:Ver|from) (\d+)\.(\d+)\.(\d+)(\S*) `)

func parseVersion(text string) (Flavour, Version, error) {
	m := versionLine.FindStringSubmatch(text + " ")
	if m == nil {
		return "", Version{}, fmt.Errorf("%w: %q", ErrUnknownServer, text)
	}
	var n [3]int
	for i := range n {
		v, err := strconv.Atoi(m[i+1])
		if err != nil {
			return "", Version{}, fmt.Errorf("%w: %q", ErrUnknownServer, text)
		}
		n[i] = v
	}
	v := Version{n[0], n[1], n[2]}
	switch {
	case strings.Contains(m[4], "MariaDB"):
		return MariaDB, v, nil
	case strings.Contains(text, "MySQL") || strings.Contains(text, "Percona") || strings.Contains(text, "mysqld"):
		return MySQL, v, nil
	}
	return "", Version{}, fmt.Errorf("%w: %q", ErrUnknownServer, text)
}
