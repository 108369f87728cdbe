package snmp

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Problem is one thing wrong with a profile.
type Problem struct {
	Line int    // from 1 on
	Key  string // with its sections, "command.off"; empty for the file as a whole
	Text string // what is there and what is wanted
}

// FileError holds everything that is wrong with a profile, by line.
type FileError struct {
	File     string
	Problems []Problem
}

func (e *FileError) Error() string {
	var b strings.Builder
	for i, p := range e.Problems {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s:%d: ", e.File, p.Line)
		if p.Key != "" {
			b.WriteString(p.Key + ": ")
		}
		b.WriteString(p.Text)
	}
	return b.String()
}

// maxFile bounds a profile, in bytes.
const maxFile = 64 << 10

func readBounded(r io.Reader) ([]byte, error) { return io.ReadAll(io.LimitReader(r, maxFile+1)) }

// decoder collects the problems of one file.
type decoder struct{ err FileError }

func (d *decoder) problem(line int, key, format string, args ...any) {
	d.err.Problems = append(d.err.Problems, Problem{Line: line, Key: key, Text: fmt.Sprintf(format, args...)})
}

func (d *decoder) result() error {
	if len(d.err.Problems) == 0 {
		return nil
	}
	slices.SortStableFunc(d.err.Problems, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
	return &d.err
}

// parse returns the one mapping of the file, or nil with a problem.
func (d *decoder) parse(data []byte) *yaml.Node {
	if len(data) > maxFile {
		d.problem(1, "", "more than %d bytes", maxFile)
		return nil
	}
	loader, err := yaml.NewLoader(strings.NewReader(string(data)))
	if err != nil {
		d.problem(1, "", "not YAML: %v", err)
		return nil
	}
	var doc, more yaml.Node
	err = loader.Load(&doc)
	switch {
	case errors.Is(err, io.EOF) || err == nil && len(doc.Content) == 0:
		d.problem(1, "", "the file is empty")
		return nil
	case err != nil:
		d.syntax(err)
		return nil
	}
	switch err := loader.Load(&more); {
	case err == nil:
		d.problem(max(1, more.Line), "", "a second document, want one a file")
		return nil
	case !errors.Is(err, io.EOF):
		d.syntax(err)
		return nil
	}
	if root := doc.Content[0]; root.Kind == yaml.MappingNode {
		return root
	}
	d.problem(1, "", "want keys and values")
	return nil
}

// syntax repeats the parser's own words.
func (d *decoder) syntax(err error) {
	var le *yaml.LoadError
	if errors.As(err, &le) {
		d.problem(max(1, le.Mark.Line), "", "not YAML: %s", le.Message)
		return
	}
	d.problem(1, "", "not YAML: %v", err)
}

// section is a mapping whose keys are asked for one by one; done reports the rest.
type section struct {
	d      *decoder
	line   int
	path   string
	values map[string]*yaml.Node
	keys   []*yaml.Node
	known  []string
}

func (d *decoder) section(n *yaml.Node, path string) *section {
	s := &section{d: d, line: n.Line, path: path, values: map[string]*yaml.Node{}}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		switch {
		case k.Kind != yaml.ScalarNode || k.Tag == "!!merge" || k.Anchor != "":
			d.problem(k.Line, path, "want a plain word as a key")
		case s.values[k.Value] != nil:
			d.problem(k.Line, s.full(k.Value), "given twice")
		default:
			s.values[k.Value], s.keys = v, append(s.keys, k)
		}
	}
	return s
}

func (s *section) full(key string) string { return strings.TrimPrefix(s.path+"."+key, ".") }

func (s *section) keyLine(key string) int {
	for _, k := range s.keys {
		if k.Value == key {
			return k.Line
		}
	}
	return s.line
}

func (s *section) problem(key, format string, args ...any) {
	s.d.problem(s.keyLine(key), s.full(key), format, args...)
}

func (s *section) has(key string) bool { return s.values[key] != nil }

// done reports the keys that nobody asked for.
func (s *section) done() {
	for _, k := range s.keys {
		if !slices.Contains(s.known, k.Value) {
			s.problem(k.Value, "unknown key, want one of %s", strings.Join(s.known, ", "))
		}
	}
}

func (s *section) get(key string, kind yaml.Kind, want string) *yaml.Node {
	s.known = append(s.known, key)
	n := s.values[key]
	if n != nil && (n.Kind != kind || n.Anchor != "" || n.Tag == "!!null" || n.Style&yaml.TaggedStyle != 0) {
		s.problem(key, "want %s", want)
		return nil
	}
	return n
}

// sub opens a section; a missing one is nil.
func (s *section) sub(key string) *section {
	n := s.get(key, yaml.MappingNode, "a section of keys and values")
	if n == nil {
		return nil
	}
	sub := s.d.section(n, s.full(key))
	sub.line = s.keyLine(key)
	return sub
}

// text returns a value as it stands in the file, "" for none.
func (s *section) text(key, want string, required bool) string {
	n := s.get(key, yaml.ScalarNode, want)
	switch {
	case n == nil && required && !s.has(key):
		s.problem(key, "missing, want %s", want)
	case n != nil && strings.TrimSpace(n.Value) == "":
		s.problem(key, "empty, want %s", want)
	case n != nil:
		return n.Value
	}
	return ""
}

// integer wants a whole number of 32 bits in its shortest form.
func (s *section) integer(key string, required bool) (int, bool) {
	const want = "a whole number"
	text := s.text(key, want, required)
	if text == "" {
		return 0, false
	}
	n, ok := integer(text)
	if !ok {
		s.problem(key, "%q, want %s", text, want)
	}
	return n, ok
}

func integer(text string) (int, bool) {
	n, err := strconv.ParseInt(text, 10, 32)
	return int(n), err == nil && strconv.FormatInt(n, 10) == text
}

// list wants a list of plain values, not empty.
func (s *section) list(key, want string) []string {
	n := s.get(key, yaml.SequenceNode, want)
	if n == nil {
		return nil
	}
	var list []string
	for _, item := range n.Content {
		if item.Kind != yaml.ScalarNode || item.Tag == "!!null" || item.Anchor != "" {
			s.problem(key, "want %s", want)
			return nil
		}
		list = append(list, item.Value)
	}
	if len(list) == 0 {
		s.problem(key, "an empty list, want %s", want)
	}
	return list
}

// integers is a list of whole numbers.
func (s *section) integers(key string) []int {
	const want = "a list of whole numbers"
	var list []int
	for _, text := range s.list(key, want) {
		n, ok := integer(text)
		if !ok {
			s.problem(key, "%q, want %s", text, want)
		}
		list = append(list, n)
	}
	return list
}
