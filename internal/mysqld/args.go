package mysqld

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// ErrSetting says that a setting is not one a scenario may give.
var ErrSetting = errors.New("not a setting for a server that plugpull runs")

// The settings that are refused, by the name without dashes and prefixes.
var (
	// own are what ties the server to its place.
	own = []string{
		"basedir", "bind_address", "chroot", "daemonize", "datadir", "defaults_extra_file", "defaults_file",
		"defaults_group_suffix", "init_file", "initialize", "initialize_insecure", "no_defaults", "pid_file", "port",
		"print_defaults", "socket", "tmpdir", "user", "help", "version", "bootstrap", "validate_config", "log_error",
		"skip_networking", "skip_grant_tables",
	}
	// repairing change or pass over the evidence.
	repairing = []string{"innodb_force_recovery", "aria_force_start_after_recovery_failures", "tc_heuristic_recover"}

	settingName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]*$`)
	modifier    = regexp.MustCompile(`^(loose|skip|disable|enable|maximum|autoset)_`)
)

// CheckSettings reports the first setting that is not a scenario's to give, as ErrSetting.
func CheckSettings(settings map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		bare := canonical(name)
		switch {
		case !settingName.MatchString(name):
			return fmt.Errorf("%w: %q is no name of an option", ErrSetting, name)
		case names(own, bare):
			return fmt.Errorf("%w: %s is plugpull's own to set", ErrSetting, name)
		case names(repairing, bare):
			return fmt.Errorf("%w: %s repairs or passes over what a power cut damaged", ErrSetting, name)
		case leadsAway(bare, settings[name]):
			return fmt.Errorf("%w: %s=%s leads outside of the data folder: what lies there is not on the drive that is cut", ErrSetting, name, settings[name])
		}
	}
	return nil
}

// leadsAway reports whether a value is a path out of the data folder, for an option whose files
// are data.
func leadsAway(option, value string) bool {
	away := filepath.IsAbs(value) || slices.Contains(strings.Split(value, "/"), "..")
	reads := strings.HasPrefix(option, "ssl_") || slices.Contains([]string{"plugin_dir", "lc_messages_dir", "character_sets_dir"}, option)
	return away && !reads
}

// names reports whether a setting means one of options. MariaDB takes any unique
// beginning of a name; innodb and aria are options of their own.
func names(options []string, setting string) bool {
	return setting != "innodb" && setting != "aria" && slices.ContainsFunc(options, func(o string) bool {
		return strings.HasPrefix(o, setting)
	})
}

// canonical returns the name of the variable that an option sets.
func canonical(option string) string {
	name := strings.ReplaceAll(strings.ToLower(option), "-", "_")
	for modifier.MatchString(name) && !slices.Contains(whole, name) {
		name = modifier.ReplaceAllString(name, "")
	}
	return name
}

// whole are names that only look as if they had a modifier.
var whole = []string{"skip_name_resolve", "skip_networking", "skip_show_database", "skip_grant_tables"}

// option is an option and its value; an empty value stands for none.
type option struct{ name, value string }

func (o option) String() string {
	if o.value == "" {
		return "--" + o.name
	}
	return "--" + o.name + "=" + o.value
}

// args returns the command line: the place, this package's choices that no setting
// overrides, the settings in the order of their names.
func (s *Server) args() []string {
	opts := []option{
		{"no-defaults", ""}, // has to be the first
		{"datadir", s.conf.Datadir}, {"socket", s.Socket()}, {"pid-file", s.pidFile()},
		{"bind-address", s.conf.Bind}, {"port", fmt.Sprint(s.Port())},
		{"tmpdir", s.tmpdir()}, // its own: a server removes the temporary tables of others when it starts
	}
	if len(s.conf.Init) > 0 {
		opts = append(opts, option{"init-file", s.initFile()})
	}
	opts = append(opts, asRoot()...)
	base := slices.Concat(s.in.files(), s.in.small(), s.in.offDevice(s.conf.Datadir, s.tmpdir()), s.in.quiet())
	return slices.Concat(render(opts), render(without(base, s.conf.Settings)), given(s.conf.Settings))
}

// asRoot returns the option without which a server refuses to run as root.
func asRoot() []option {
	if os.Getuid() == 0 {
		return []option{{"user", "root"}}
	}
	return nil
}

// files are the options that shape the files: Initialise has to give them too.
func (in Install) files() []option {
	// The size makes no difference to recovery; a small log is soon made and copied.
	if in.Flavour == MySQL && in.Version.AtLeast(8, 0, 30) {
		return []option{{"innodb-redo-log-capacity", "32M"}}
	}
	return []option{{"innodb-log-file-size", "16M"}}
}

// small keeps memory small and the start fast. Without huge pages the performance
// schema makes a start of MariaDB 10.11 three to four times as long, its default key buffer
// half as long again; what else there is to turn (buffer pool, threads, log
// buffer, other caches) gains nothing that shows.
func (in Install) small() []option {
	opts := []option{
		{"innodb-buffer-pool-size", "32M"}, {"key-buffer-size", "1M"}, {"performance-schema", "OFF"},
		{"innodb-buffer-pool-dump-at-shutdown", "OFF"}, {"innodb-buffer-pool-load-at-startup", "OFF"},
		{"table-open-cache", "200"}, {"max-connections", "500"},
	}
	if in.Flavour == MariaDB {
		opts = append(opts, option{"aria-pagecache-buffer-size", "1M"})
	}
	return opts
}

// offDevice keeps what is not data off the device under test.
func (in Install) offDevice(datadir, tmpdir string) []option {
	const size = ":12M:autoextend" // the default's
	if in.Flavour == MariaDB {
		return []option{{"innodb-temp-data-file-path", filepath.Join(tmpdir, "ibtmp1") + size}}
	}
	var opts []option
	// MySQL puts the data folder in front of the path.
	if rel, err := filepath.Rel(datadir, tmpdir); err == nil {
		opts = append(opts, option{"innodb-temp-data-file-path", filepath.Join(rel, "ibtmp1") + size})
	}
	if in.Version.AtLeast(8, 0, 13) {
		opts = append(opts, option{"innodb-temp-tablespaces-dir", tmpdir})
	}
	return opts
}

// quiet turns off what a bench has no use for, and every repair.
func (in Install) quiet() []option {
	if in.Flavour == MySQL {
		opts := []option{
			{"skip-name-resolve", ""}, {"event-scheduler", "OFF"},
			{"secure-file-priv", "NULL"}, // the built-in default may be a folder that is not there
			{"log-error-verbosity", "3"}, // or crash recovery is not in the log
			{"myisam-recover-options", "OFF"},
		}
		if in.Version.AtLeast(8, 0, 0) {
			// Both are on unless told otherwise, since 8.0.
			opts = append(opts, option{"skip-log-bin", ""}, option{"mysqlx", "OFF"})
		}
		return opts
	}
	opts := []option{
		{"skip-name-resolve", ""}, {"loose-feedback", "OFF"},
		// BACKUP,QUICK by default: a table that was not closed is checked when it is opened, and
		// rewritten when it is bad. A server that starts with that starts without.
		{"myisam-recover-options", "OFF"}, {"aria-recover-options", "OFF"},
	}
	if in.Version.AtLeast(11, 4, 0) {
		// Since 11.4 a server makes itself a key at every start.
		opts = append(opts, option{"ssl", "OFF"})
	}
	return opts
}

// without drops from base what a setting decides.
func without(base []option, settings map[string]string) []option {
	var names []string
	for name := range settings {
		names = append(names, canonical(name))
	}
	return slices.DeleteFunc(slices.Clone(base), func(o option) bool {
		name := canonical(o.name)
		return slices.ContainsFunc(names, func(set string) bool {
			return set == name || name == "ssl" && strings.HasPrefix(set, "ssl_")
		})
	})
}

func given(settings map[string]string) []string {
	var args []string
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, option{name, settings[name]}.String())
	}
	return args
}

func render(opts []option) []string {
	var args []string
	for _, o := range opts {
		args = append(args, o.String())
	}
	return args
}
