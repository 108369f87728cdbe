package scenarios

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"plugpull/internal/strictyaml"
)

//go:embed builtin/*.yaml
var builtin embed.FS

//go:embed samples/scenario.yaml
var sampleScenario []byte

//go:embed samples/bench.yaml
var sampleBench []byte

//go:embed samples/loop.yaml
var sampleLoop []byte

// SampleLoop returns the commented sample of a scenario file of the loop bench.
func SampleLoop() []byte { return append([]byte(nil), sampleLoop...) }

// SampleScenario returns the commented sample of a scenario file.
func SampleScenario() []byte { return append([]byte(nil), sampleScenario...) }

// SampleBench returns the commented sample of a bench file.
func SampleBench() []byte { return append([]byte(nil), sampleBench...) }

// ErrUnknown: no built-in scenario has the name.
var ErrUnknown = errors.New("unknown scenario")

// Builtin returns the built-in scenarios in the order of their names.
func Builtin() ([]Scenario, error) {
	entries, err := builtin.ReadDir("builtin")
	if err != nil {
		return nil, fmt.Errorf("built-in scenarios: %w", err)
	}
	var list []Scenario
	for _, e := range entries {
		name := path.Join("builtin", e.Name())
		data, err := builtin.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("built-in scenarios: %w", err)
		}
		sc, err := Parse(name, data)
		if err != nil {
			return nil, err
		}
		list = append(list, sc)
	}
	slices.SortFunc(list, func(a, b Scenario) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}

// Load returns a built-in scenario by its name, or reads a file: anything with
// a slash or a .yaml or .yml at its end is a path. ErrUnknown for a name that
// is none; *FileError for what is wrong in a file.
func Load(nameOrPath string) (Scenario, error) {
	if isPath(nameOrPath) {
		data, err := strictyaml.ReadFile(nameOrPath, maxFile)
		if err != nil {
			return Scenario{}, fmt.Errorf("scenario file: %w", err)
		}
		return Parse(nameOrPath, data)
	}
	list, err := Builtin()
	if err != nil {
		return Scenario{}, err
	}
	names := make([]string, len(list))
	for i, sc := range list {
		if sc.Name == nameOrPath {
			return sc, nil
		}
		names[i] = sc.Name
	}
	hint := ""
	if _, err := os.Stat(nameOrPath); err == nil {
		hint = fmt.Sprintf("; for the file of this name write ./%s", nameOrPath)
	}
	return Scenario{}, fmt.Errorf("%w %q, want a file or one of %s%s", ErrUnknown, nameOrPath, strings.Join(names, ", "), hint)
}

func isPath(s string) bool {
	return strings.Contains(s, "/") || strings.HasSuffix(s, ".yaml") || strings.HasSuffix(s, ".yml")
}
