package loop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"plugpull/internal/campaign"
	"plugpull/internal/mysqld"
)

// Templates holds the files of empty servers, which take seconds to make, for the
// benches of one process. It may be used by one bench at a time.
type Templates struct {
	dir  string
	lock *os.File
	made map[string]string // folder by server and settings
}

// NewTemplates makes a folder for them. The caller must call Close.
func NewTemplates() (*Templates, error) {
	dir, lock, err := newFolder()
	if err != nil {
		return nil, err
	}
	return &Templates{dir: dir, lock: lock, made: map[string]string{}}, nil
}

// Close removes the files.
func (t *Templates) Close() error { return errors.Join(os.RemoveAll(t.dir), t.lock.Close()) }

// of returns the folder with the files of an empty server. A *campaign.RefusedError says that
// the server does not take one of the settings.
func (t *Templates) of(ctx context.Context, in mysqld.Install, settings map[string]string) (string, error) {
	key := templateKey(in, settings)
	if dir, ok := t.made[key]; ok {
		return dir, nil
	}
	dir := filepath.Join(t.dir, fmt.Sprint(len(t.made)))
	if err := in.Initialise(ctx, dir, settings); err != nil {
		return "", errors.Join(t.whyNot(ctx, in, settings, err), os.RemoveAll(dir))
	}
	t.made[key] = dir
	return dir, nil
}

// templateKey names what the files depend on.
func templateKey(in mysqld.Install, settings map[string]string) string {
	shape := mysqld.Shaping(settings)
	key := in.Binary
	for _, name := range slices.Sorted(maps.Keys(shape)) {
		key += "\x00" + name + "\x00" + shape[name]
	}
	return key
}

// whyNot tells a setting that the server does not take from a machine on which none starts.
func (t *Templates) whyNot(ctx context.Context, in mysqld.Install, settings map[string]string, err error) error {
	var refused *mysqld.RefusedError
	if errors.As(in.TrySettings(ctx, t.dir, settings), &refused) {
		return refusal(settings, refused.Name, refused)
	}
	return fmt.Errorf("make the files of a server: %w", err)
}

func refusal(settings map[string]string, name string, err error) error {
	what := "server setting " + name
	if value, ok := settings[name]; ok && !strings.Contains(name, ",") {
		what += "=" + value
	}
	return &campaign.RefusedError{What: what, Err: err}
}
