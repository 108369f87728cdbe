// Package profilefile loads device profiles: those that come with plugpull, and a user's own.
//
// It guarantees that each has passed its driver's parser, and that none is left out: one that does not parse
// is an error of the whole.
package profilefile

import (
	"fmt"
	"io/fs"
	"path"

	"plugpull/internal/strictyaml"
)

// Load parses every file of profiles/*.yaml in files, by name. what says in errors whose profiles they are.
func Load[P any](files fs.FS, what string, parse func(file string, data []byte) (P, error)) ([]P, error) {
	names, err := fs.Glob(files, "profiles/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("list the %s profiles: %w", what, err)
	}
	var list []P
	for _, name := range names {
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, fmt.Errorf("read the %s profile %s: %w", what, name, err)
		}
		p, err := parse(path.Base(name), data)
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

// LoadFile parses a user's own file, of which at most limit bytes and one are read.
func LoadFile[P any](file, what string, limit int, parse func(file string, data []byte) (P, error)) (P, error) {
	data, err := strictyaml.ReadFile(file, limit)
	if err != nil {
		var none P
		return none, fmt.Errorf("read the %s profile: %w", what, err)
	}
	return parse(file, data)
}
