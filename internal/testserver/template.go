package testserver

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"plugpull/internal/testskip"
)

// templateLogSize keeps the copies small; a server that is to be measured is
// given a larger log by Options.Args.
const templateLogSize = "10M"

// template returns a data folder that is copied for each server, since making
// one takes seconds. It is made once for each version and user and kept in the
// system's temporary folder.
func template(ctx context.Context) (string, error) {
	version, err := exec.CommandContext(ctx, "mariadbd", "--no-defaults", "--version").Output()
	if err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return "", fmt.Errorf("%w: %w", ErrNotInstalled, err)
		}
		return "", fmt.Errorf("ask mariadbd for its version: %w", err)
	}
	sum := sha256.Sum256(append(version, templateLogSize...))
	final := filepath.Join(os.TempDir(), fmt.Sprintf("plugpull-db-template-%x-%d", sum[:6], os.Getuid()))
	if own, err := ownFolder(final); own || err != nil {
		return final, err
	}
	work, err := os.MkdirTemp("", "plugpull-db-template-")
	if err != nil {
		return "", fmt.Errorf("make the data template: %w", err)
	}
	if err := install(ctx, work); err != nil {
		return "", errors.Join(err, os.RemoveAll(work))
	}
	if err := os.Rename(work, final); err != nil {
		// Another process was first: its template is as good.
		rmErr := os.RemoveAll(work)
		if own, _ := ownFolder(final); own {
			return final, rmErr
		}
		return "", fmt.Errorf("put the data template in place: %w", err)
	}
	return final, nil
}

// ownFolder reports whether path is a folder of this user that nobody else can
// write to: the temporary folder is open to everyone.
func ownFolder(path string) (bool, error) {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at the data template: %w", err)
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || !st.IsDir() || st.Mode().Perm()&0o022 != 0 || int(sys.Uid) != os.Getuid() {
		return false, fmt.Errorf("the data template %s is not a private folder of this user: remove it", path)
	}
	return true, nil
}

func install(ctx context.Context, dir string) error {
	args := append([]string{
		"--no-defaults", "--datadir=" + dir, "--skip-test-db", "--auth-root-authentication-method=normal",
		"--skip-name-resolve", "--innodb-log-file-size=" + templateLogSize,
	}, asRoot()...)
	out, err := exec.CommandContext(ctx, "mariadb-install-db", args...).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%w: %w", ErrNotInstalled, err)
	}
	if err != nil {
		return fmt.Errorf("mariadb-install-db: %w:\n%s", err, out)
	}
	return nil
}

// asRoot returns the option without which mariadbd refuses to run as root.
func asRoot() []string {
	if os.Getuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}

// NeedMariaDB skips a test where there is no MariaDB server, and fails it
// instead when the environment says PLUGPULL_NO_SKIP=1.
func NeedMariaDB(t testskip.TB) {
	t.Helper()
	for _, name := range []string{"mariadbd", "mariadb-install-db"} {
		testskip.Program(t, name, "mariadb-server-core mariadb-client")
	}
}
