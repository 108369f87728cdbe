package mysqld

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// RefusedError says that a server does not take a setting.
type RefusedError struct {
	Name string // of the setting; several with commas when only their combination is refused
	Log  string // of a start with it
}

// Error returns the name and the log.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("the server does not take the setting %s; the end of its log:\n%s", e.Name, e.Log)
}

// TrySettings finds out by experiment whether the server takes settings: it makes the
// files of an empty server with them in a folder below dir (at most 60 bytes; about 30 MB), starts it, and
// kills it when it greets. A server that does not come so far is tried without each
// setting in turn, and then with each alone; a try takes a second or two. A
// *RefusedError is a setting that it does not take; any other error says nothing about
// the settings. Values that the server corrects, as it does with numbers out of
// range, are not found: read them back.
//
// Asking the server to check its options (--validate-config, --help) would be faster
// and not enough: MariaDB says yes to InnoDB options that InnoDB then refuses.
func (in Install) TrySettings(ctx context.Context, dir string, settings map[string]string) (err error) {
	if err := CheckSettings(settings); err != nil {
		return err
	}
	work, err := os.MkdirTemp(dir, "try-")
	if err != nil {
		return fmt.Errorf("try the settings: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	t := trial{in: in, dir: work, made: map[string]string{}}
	log, err := t.run(ctx, settings)
	if err != nil || log == "" {
		return err
	}
	bare, err := t.run(ctx, nil)
	if err != nil {
		return err
	}
	if bare != "" {
		return fmt.Errorf("the server does not start on new files without any setting:\n%s", bare)
	}
	return t.culprit(ctx, settings, log)
}

// trial is a series of starts of empty servers.
type trial struct {
	in   Install
	dir  string
	made map[string]string // new files by the settings that shape them
}

// culprit finds the setting without which the server starts, or else the first that it
// does not start with alone.
func (t trial) culprit(ctx context.Context, settings map[string]string, log string) error {
	names := slices.Sorted(maps.Keys(settings))
	if len(names) > 1 {
		for _, name := range names {
			rest := maps.Clone(settings)
			delete(rest, name)
			left, err := t.run(ctx, rest)
			if err != nil {
				return err
			}
			if left == "" {
				return &RefusedError{Name: name, Log: log}
			}
		}
		for _, name := range names {
			alone, err := t.run(ctx, map[string]string{name: settings[name]})
			if err != nil {
				return err
			}
			if alone != "" {
				return &RefusedError{Name: name, Log: alone}
			}
		}
	}
	return &RefusedError{Name: strings.Join(names, ", "), Log: log}
}

// run starts a server with settings on new files. An empty log: it greeted.
func (t trial) run(ctx context.Context, settings map[string]string) (log string, err error) {
	data := filepath.Join(t.dir, "data")
	defer func() { err = errors.Join(err, os.RemoveAll(data)) }()
	if log, err := t.files(ctx, data, settings); err != nil || log != "" {
		return log, err
	}
	s, err := New(t.in, Config{Datadir: data, Dir: t.dir, Settings: settings})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	s.settled.Store(true) // no experiments about an experiment
	p, err := s.Start(ctx)
	if err != nil {
		return "", err
	}
	var se *StartError
	err = p.Await(ctx)
	if errors.As(err, &se) && se.Exited && se.End.Cause == ByItself && !se.PortTaken {
		return se.Error(), nil
	}
	return "", err
}

// files makes new files in data, from a copy when they were made before. A log says
// that the server would not make them.
func (t trial) files(ctx context.Context, data string, settings map[string]string) (log string, err error) {
	key := fmt.Sprint(Shaping(settings)) // maps print in the order of their keys
	if t.made[key] == "" {
		from := filepath.Join(t.dir, fmt.Sprintf("new-%d", len(t.made)))
		if err := t.in.Initialise(ctx, from, settings); err != nil {
			if ctx.Err() != nil {
				return "", err
			}
			return err.Error(), os.RemoveAll(from)
		}
		t.made[key] = from
	}
	if err := os.CopyFS(data, os.DirFS(t.made[key])); err != nil {
		return "", fmt.Errorf("copy the files of an empty server: %w", err)
	}
	return "", nil
}

// refused returns the setting because of which a server does not start, if that can be. One
// that has greeted before takes its settings.
func (s *Server) refused(ctx context.Context) (string, error) {
	if len(s.conf.Settings) == 0 || s.settled.Swap(true) {
		return "", nil
	}
	var refused *RefusedError
	err := s.in.TrySettings(ctx, s.dir, s.conf.Settings)
	if errors.As(err, &refused) {
		return refused.Name, nil
	}
	if err != nil {
		return "", fmt.Errorf("find out whether the server takes its settings: %w", err)
	}
	return "", nil
}
