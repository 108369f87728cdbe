package raid

import (
	"context"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"plugpull/internal/hostcheck"
)

// fixture is a host whose tools answer what an archive of testdata has; each file is named by its command.
type fixture struct {
	outputs map[string]string
	hang    string // a program that answers nothing until its time is over
	ran     chan string
}

func load(t testing.TB, name string) *fixture {
	t.Helper()
	a, err := txtar.ParseFile("testdata/" + name + ".txtar")
	require.NoError(t, err)
	f := &fixture{outputs: map[string]string{}, ran: make(chan string, 1000)}
	for _, file := range a.Files {
		f.outputs[file.Name] = string(file.Data)
	}
	return f
}

func (f *fixture) with(more *fixture) *fixture {
	for k, v := range more.outputs {
		f.outputs[k] = v
	}
	return f
}

func (f *fixture) commands() []string {
	var list []string
	for c := range f.outputs {
		list = append(list, c)
	}
	slices.Sort(list)
	return list
}

func (f *fixture) Run(ctx context.Context, name string, args ...string) (hostcheck.Output, error) {
	command := hostcheck.CommandLine(name, args...)
	f.ran <- command
	if name == f.hang {
		<-ctx.Done()
		return hostcheck.Output{}, ctx.Err()
	}
	if out, ok := f.outputs[command]; ok {
		return hostcheck.Output{Stdout: []byte(out)}, nil
	}
	for known := range f.outputs {
		if strings.HasPrefix(known, name+" ") {
			return hostcheck.Output{}, hostcheck.ErrNotSaved
		}
	}
	return hostcheck.Output{}, hostcheck.ErrNotInstalled
}

func (f *fixture) ReadFile(context.Context, string) ([]byte, error) { return nil, fs.ErrNotExist }
func (f *fixture) ReadDir(context.Context, string) ([]string, error) {
	return nil, fs.ErrNotExist
}
func (f *fixture) RealPath(_ context.Context, path string) (string, error) { return path, nil }
func (f *fixture) Describe() string                                        { return "the fixture" }

// verdict collects and judges, and returns the level for all with every code that is not OK.
func verdict(controllers []Controller, trouble []hostcheck.Finding, o Options) (hostcheck.Level, []string) {
	all := slices.Clone(trouble)
	for _, c := range controllers {
		j := Judge(c, o)
		all = append(all, j.Findings...)
		for _, v := range j.Volumes {
			all = append(all, v.Findings...)
		}
	}
	level, codes := hostcheck.OK, []string{}
	for _, f := range all {
		level = hostcheck.Worst(level, f.Level)
		if f.Level != hostcheck.OK {
			codes = append(codes, f.Level.String()+" "+f.Code)
		}
	}
	slices.Sort(codes)
	return level, slices.Compact(codes)
}
