package scenarios

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// Problem is one thing wrong with a file.
type Problem struct {
	Line int    // from 1 on
	Key  string // with its sections, "load.profile"; empty for the file as a whole
	Text string // what is there and what is wanted
}

// FileError holds everything that is wrong with a file, by line.
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

// maxFile bounds a file, in bytes: a scenario has some dozen lines.
const maxFile = 256 << 10

// decoder collects the problems of one file.
type decoder struct{ err FileError }

func (d *decoder) problem(line int, key, format string, args ...any) {
	d.err.Problems = append(d.err.Problems, Problem{Line: line, Key: key, Text: fmt.Sprintf(format, args...)})
}

// result returns the problems in the order of their lines, or nil.
func (d *decoder) result() error {
	if len(d.err.Problems) == 0 {
		return nil
	}
	slices.SortStableFunc(d.err.Problems, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
	return &d.err
}

// decode parses data and hands its one top-level section to fill.
func decode(file string, data []byte, fill func(*section)) error {
	d := &decoder{err: FileError{File: file}}
	if root := d.parse(data); root != nil {
		top := d.section(root, "")
		fill(top)
		top.done()
	}
	return d.result()
}

func (d *decoder) parse(data []byte) *yaml.Node {
	if len(data) > maxFile {
		d.problem(1, "", "%d bytes, want at most %d", len(data), maxFile)
		return nil
	}
	loader, err := yaml.NewLoader(strings.NewReader(string(data)))
	if err != nil {
		d.problem(1, "", "not YAML: %v", err)
		return nil
	}
	var doc, more yaml.Node
	err = loader.Load(&doc)
	if errors.Is(err, io.EOF) || err == nil && (len(doc.Content) == 0 || doc.Content[0].Tag == "!!null") {
		d.problem(1, "", "the file is empty")
		return nil
	}
	if err != nil {
		d.syntax(err)
		return nil
	}
	if err := loader.Load(&more); err == nil {
		d.problem(more.Line, "", "a second document, want one a file")
	} else if !errors.Is(err, io.EOF) {
		d.syntax(err)
		return nil
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		d.problem(root.Line, "", "%s, want keys and values", kindName(root))
		return nil
	}
	return root
}

// syntax repeats the parser's own words, which hold no value of the file.
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
			d.problem(k.Line, path, "%s as a key, want a plain word", kindName(k))
		case s.values[k.Value] != nil:
			d.problem(k.Line, s.full(k.Value), "given twice, want it once (first in line %d)", s.keyLine(k.Value))
		default:
			s.values[k.Value], s.keys = v, append(s.keys, k)
		}
	}
	return s
}

func (s *section) full(key string) string {
	if s.path == "" {
		return key
	}
	return s.path + "." + key
}

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
	if n == nil {
		return nil
	}
	if n.Kind != kind || n.Anchor != "" || n.Tag == "!!null" || n.Style&yaml.TaggedStyle != 0 {
		s.problem(key, "%s, want %s", kindName(n), want)
		return nil
	}
	return n
}

// sub opens a section; a missing one is an empty section, so that its required
// keys are reported.
func (s *section) sub(key string) *section {
	n := s.get(key, yaml.MappingNode, "a section of keys and values")
	if n == nil {
		return &section{d: s.d, line: s.keyLine(key), path: s.full(key), values: map[string]*yaml.Node{}}
	}
	sub := s.d.section(n, s.full(key))
	sub.line = s.keyLine(key)
	return sub
}

// require reports a key that is missing.
func (s *section) require(key, want string) {
	if !s.has(key) {
		s.problem(key, "missing, want %s", want)
	}
}

// text returns the value of a key as it stands in the file, "" for none.
func (s *section) text(key, want string) string {
	n := s.get(key, yaml.ScalarNode, want)
	if n == nil {
		return ""
	}
	if strings.TrimSpace(n.Value) == "" {
		s.problem(key, "empty, want %s", want)
		return ""
	}
	return n.Value
}

// parsed hands the text of a key, if there is one, to parse; what parse refuses is a
// problem that repeats the text.
func parsed[T any](s *section, key, want string, otherwise T, parse func(string) (T, bool)) T {
	text := s.text(key, want)
	if text == "" {
		return otherwise
	}
	v, ok := parse(text)
	if !ok {
		s.problem(key, "%q, want %s", text, want)
		return otherwise
	}
	return v
}

// choice wants one of the given words.
func choice[T ~string](s *section, key string, otherwise T, words ...T) T {
	list := make([]string, len(words))
	for i, w := range words {
		list[i] = string(w)
	}
	return parsed(s, key, strings.Join(list, " or "), otherwise, func(text string) (T, bool) {
		return T(text), slices.Contains(words, T(text))
	})
}

// number wants a whole number between least and most.
func (s *section) number(key string, otherwise, least, most int) int {
	return parsed(s, key, fmt.Sprintf("a whole number from %d to %d", least, most), otherwise, func(text string) (int, bool) {
		v, err := strconv.Atoi(text)
		return v, err == nil && v >= least && v <= most
	})
}

// flag wants true or false; yes, on and their like are refused.
func (s *section) flag(key string) bool {
	return parsed(s, key, "true or false", false, func(text string) (bool, bool) {
		return text == "true", text == "true" || text == "false"
	})
}

// duration wants a time with its unit between least and most.
func (s *section) duration(key string, otherwise, least, most time.Duration) time.Duration {
	example := otherwise
	if example == 0 {
		example = 10 * least
	}
	return parsed(s, key, fmt.Sprintf("a time from %s to %s, such as %s", short(least), short(most), short(example)),
		otherwise, func(text string) (time.Duration, bool) {
			v, err := time.ParseDuration(text)
			return v, err == nil && v >= least && v <= most
		})
}

// words wants a list of plain values.
func (s *section) words(key, want string) []string {
	n := s.get(key, yaml.SequenceNode, want)
	if n == nil {
		return nil
	}
	var list []string
	for _, item := range n.Content {
		if item.Kind != yaml.ScalarNode || item.Tag == "!!null" || item.Anchor != "" {
			s.d.problem(item.Line, s.full(key), "%s in the list, want %s", kindName(item), want)
			return nil
		}
		list = append(list, item.Value)
	}
	if len(list) == 0 {
		s.problem(key, "an empty list, want %s", want)
	}
	return list
}

// short prints a duration without the zero units of Duration.String.
func short(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

func kindName(n *yaml.Node) string {
	switch {
	case n.Anchor != "":
		return "an anchor"
	case n.Tag == "!!null":
		return "nothing"
	case n.Kind == yaml.MappingNode:
		return "a section"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.AliasNode:
		return "an alias"
	case n.Tag == "!!merge":
		return "a merge"
	case n.Style&yaml.TaggedStyle != 0:
		return "a tagged value"
	}
	return "a plain value"
}
