package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// event is a line of go test -json; see go doc test2json.
type event struct {
	Action     string
	Package    string
	ImportPath string // of a package that is built
	Test       string
	Elapsed    float64 // seconds
	Output     string
}

// summary counts leaves: a test with subtests is not counted beside them.
type summary struct {
	passed, failed, skipped int
	skips                   []string
	open                    map[string]*pkg
	build                   map[string]*strings.Builder
}

// pkg is a package whose tests are running.
type pkg struct {
	name   string
	output strings.Builder // of the package itself
	tests  map[string]*test
}

type test struct {
	output strings.Builder
	result string
	parent bool
}

// flusher lets progress be seen while the tests run.
type flusher interface{ Flush() error }

// summarise reads events to the end and prints packages as they finish. It
// blocks on r.
func summarise(r io.Reader, w io.Writer) (*summary, error) {
	s := &summary{open: map[string]*pkg{}, build: map[string]*strings.Builder{}}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil || e.Action == "" {
				// go itself complains outside the JSON.
				fmt.Fprintf(w, "%s", line)
			} else {
				s.take(e, w)
			}
			if f, ok := w.(flusher); ok {
				if err := f.Flush(); err != nil {
					return s, err
				}
			}
		}
		if errors.Is(err, io.EOF) {
			return s, s.finish(w)
		}
		if err != nil {
			return s, fmt.Errorf("read the test output: %w", err)
		}
	}
}

func (s *summary) take(e event, w io.Writer) {
	switch e.Action {
	case "build-output":
		if s.build[e.ImportPath] == nil {
			s.build[e.ImportPath] = &strings.Builder{}
		}
		s.build[e.ImportPath].WriteString(e.Output)
		return
	case "build-fail":
		if b := s.build[e.ImportPath]; b != nil {
			fmt.Fprint(w, b.String())
			delete(s.build, e.ImportPath)
		}
		return
	}
	p := s.open[e.Package]
	if p == nil {
		p = &pkg{name: e.Package, tests: map[string]*test{}}
		s.open[e.Package] = p
	}
	if e.Test == "" {
		s.takePackage(p, e, w)
		return
	}
	t := p.test(e.Test)
	switch e.Action {
	case "output":
		t.output.WriteString(e.Output)
	case "pass", "fail", "skip":
		t.result = e.Action
	}
}

func (p *pkg) test(name string) *test {
	t := p.tests[name]
	if t == nil {
		t = &test{}
		p.tests[name] = t
		if i := strings.LastIndexByte(name, '/'); i > 0 {
			p.test(name[:i]).parent = true
		}
	}
	return t
}

func (s *summary) takePackage(p *pkg, e event, w io.Writer) {
	switch e.Action {
	case "output":
		p.output.WriteString(e.Output)
	case "pass", "fail", "skip":
		delete(s.open, p.name)
		s.count(p, e.Action == "fail", w)
		if len(p.tests) == 0 && e.Action != "fail" {
			return // no test files
		}
		word := map[string]string{"pass": "ok", "fail": "FAIL", "skip": "none"}[e.Action]
		fmt.Fprintf(w, "%-4s %s %.1fs\n", word, p.name, e.Elapsed)
	}
}

// count adds the package's tests and prints what failed.
func (s *summary) count(p *pkg, packageFailed bool, w io.Writer) {
	failed := 0
	for _, name := range slices.Sorted(maps.Keys(p.tests)) {
		t := p.tests[name]
		switch {
		case t.result == "skip":
			s.skipped++
			s.skips = append(s.skips, fmt.Sprintf("%s %s: %s", p.name, name, reason(t.output.String())))
		case t.result == "pass" && !t.parent:
			s.passed++
		case t.result == "pass":
		default: // failed, or cut off by a panic or a timeout
			fmt.Fprint(w, t.output.String())
			if !t.parent || t.own() {
				failed++
			}
		}
	}
	if packageFailed && failed == 0 {
		failed = 1
	}
	if packageFailed {
		fmt.Fprint(w, closingLines.ReplaceAllString(p.output.String(), ""))
	}
	s.failed += failed
}

// own reports whether a test with subtests says something itself.
func (t *test) own() bool { return sourceLine.MatchString(t.output.String()) }

// closingLines say once more what the package's own line says.
var closingLines = regexp.MustCompile(`(?m)^FAIL(\t.*)?\n`)

var sourceLine = regexp.MustCompile(`(?m)^ +[^ :]+_test\.go:\d+: (.*)$`)

// reason is what the test said when it skipped.
func reason(output string) string {
	found := sourceLine.FindAllStringSubmatch(output, -1)
	if len(found) == 0 || found[len(found)-1][1] == "" {
		return "no reason given"
	}
	return found[len(found)-1][1]
}

// finish counts the packages that never ended: go test was killed.
func (s *summary) finish(w io.Writer) error {
	var unfinished []string
	for _, name := range slices.Sorted(maps.Keys(s.open)) {
		s.count(s.open[name], true, w)
		unfinished = append(unfinished, name)
	}
	if len(unfinished) > 0 {
		return fmt.Errorf("the test output ends before these packages do: %s", strings.Join(unfinished, ", "))
	}
	return nil
}

// print ends the report and says whether all is well.
func (s *summary) print(w io.Writer, noSkip bool) bool {
	if len(s.skips) > 0 {
		fmt.Fprintln(w, "skipped:")
		for _, line := range s.skips {
			fmt.Fprintln(w, "  "+line)
		}
	}
	ok := s.failed == 0
	if s.skipped > 0 && noSkip {
		fmt.Fprintln(w, "a test was skipped and PLUGPULL_NO_SKIP=1 allows none")
		ok = false
	}
	if s.passed+s.failed+s.skipped == 0 {
		fmt.Fprintln(w, "no test was run")
		ok = false
	}
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", s.passed, s.failed, s.skipped)
	return ok
}
