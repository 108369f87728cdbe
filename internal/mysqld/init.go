package mysqld

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Initialise makes the files of an empty server in datadir and blocks for a second
// or more. The user root has no password. The folder has to be empty or not there
// (its parent has to be), and should not be the root of a filesystem: MySQL refuses one that
// has lost+found. Settings are given where they shape the files: those of InnoDB and
// Aria, and lower_case_table_names. Nothing is flushed on purpose: the caller
// makes the files durable before the first cut (syncfs(2), or unmounting). A setting that
// the server does not take can fail here already: TrySettings tells which.
func (in Install) Initialise(ctx context.Context, datadir string, settings map[string]string) error {
	if err := CheckSettings(settings); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "plugpull-init-")
	if err != nil {
		return fmt.Errorf("make the files of a server: %w", err)
	}
	defer os.RemoveAll(tmp)
	name, args := in.initArgs(datadir, tmp, Shaping(settings))
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.Dir = environ(), tmp
	// The script's server has to go with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%s: %w:\n%s", filepath.Base(name), err, tail(out, logInError))
	}
	return nil
}

// initArgs returns the command that makes the files.
func (in Install) initArgs(datadir, tmpdir string, settings map[string]string) (string, []string) {
	opts := []option{{"no-defaults", ""}, {"datadir", datadir}, {"tmpdir", tmpdir}}
	name := in.Binary
	if in.Flavour == MariaDB {
		name = in.InstallDB
		opts = append(opts, option{"basedir", filepath.Dir(filepath.Dir(in.Binary))}, option{"skip-test-db", ""},
			option{"auth-root-authentication-method", "normal"})
	} else {
		opts = append(opts, option{"initialize-insecure", ""})
	}
	opts = append(opts, asRoot()...)
	base := slices.Concat(in.files(), in.small(), in.offDevice(datadir, tmpdir), in.quiet())
	return name, slices.Concat(render(opts), render(without(base, settings)), given(settings))
}

// Shaping returns the settings that matter to the files that Initialise makes.
func Shaping(settings map[string]string) map[string]string {
	shape := map[string]string{}
	for name, value := range settings {
		c := canonical(name)
		if strings.HasPrefix(c, "innodb_") || strings.HasPrefix(c, "aria_") || c == "lower_case_table_names" {
			shape[name] = value
		}
	}
	return shape
}

func tail(b []byte, max int) []byte { return b[len(b)-min(max, len(b)):] }
