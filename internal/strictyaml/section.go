package strictyaml

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// Section is a mapping whose keys are asked for one by one. A method that reads a key
// reports what is wrong with it and then returns what it returns for a missing key;
// whether a key must be there is up to Require.
type Section struct {
	d      *decoder
	line   int
	path   string
	values map[string]*yaml.Node
	keys   []*yaml.Node
	known  []string
}

func (d *decoder) section(n *yaml.Node, path string) *Section {
	s := &Section{d: d, line: n.Line, path: path, values: map[string]*yaml.Node{}}
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

func (s *Section) full(key string) string { return strings.TrimPrefix(s.path+"."+key, ".") }

func (s *Section) keyLine(key string) int {
	for _, k := range s.keys {
		if k.Value == key {
			return k.Line
		}
	}
	return s.line
}

// Problem reports something wrong with a key, at its line, or at the section's when it
// is missing.
func (s *Section) Problem(key, format string, args ...any) {
	s.d.problem(s.keyLine(key), s.full(key), format, args...)
}

// Has says whether the key is given; it does not ask for it.
func (s *Section) Has(key string) bool { return s.values[key] != nil }

// Keys returns the keys that are given, in the order of the file, without asking for them.
func (s *Section) Keys() []string {
	list := make([]string, len(s.keys))
	for i, k := range s.keys {
		list[i] = k.Value
	}
	return list
}

// Know asks for keys without reading them.
func (s *Section) Know(keys ...string) { s.known = append(s.known, keys...) }

// Known reports whether somebody has asked for the key.
func (s *Section) Known(key string) bool { return slices.Contains(s.known, key) }

// Require reports a key that is missing; it does not ask for it.
func (s *Section) Require(key, want string) {
	if !s.Has(key) {
		s.Problem(key, "missing, want %s", want)
	}
}

// Done reports the keys that nobody asked for. Who opens a section with Sub calls it;
// for the top level Decode does.
func (s *Section) Done() {
	for _, k := range s.keys {
		if !slices.Contains(s.known, k.Value) {
			s.Problem(k.Value, "unknown key, want one of %s", strings.Join(s.known, ", "))
		}
	}
}

func is(n *yaml.Node, kind yaml.Kind) bool {
	return n.Kind == kind && n.Anchor == "" && n.Tag != "!!null" && n.Style&yaml.TaggedStyle == 0
}

func (s *Section) get(key string, kind yaml.Kind, want string) *yaml.Node {
	s.Know(key)
	n := s.values[key]
	if n != nil && !is(n, kind) {
		s.Problem(key, "%s, want %s", kindName(n), want)
		return nil
	}
	return n
}

// Sub opens a section; a missing one is an empty section, so that its required
// keys are reported.
func (s *Section) Sub(key string) *Section {
	n := s.get(key, yaml.MappingNode, "a section of keys and values")
	if n == nil {
		n = &yaml.Node{}
	}
	sub := s.d.section(n, s.full(key))
	sub.line = s.keyLine(key)
	return sub
}

// Subs opens each section of a list, none where the key is missing. Who opens them calls
// Done on each.
func (s *Section) Subs(key string) []*Section {
	const want = "a list of sections of keys and values"
	n := s.get(key, yaml.SequenceNode, want)
	if n == nil {
		return nil
	}
	var list []*Section
	for i, item := range n.Content {
		if !is(item, yaml.MappingNode) {
			s.d.problem(item.Line, s.full(key), "%s in the list, want %s", kindName(item), want)
			continue
		}
		list = append(list, s.d.section(item, fmt.Sprintf("%s[%d]", s.full(key), i+1)))
	}
	if len(n.Content) == 0 {
		s.Problem(key, "an empty list, want %s", want)
	}
	return list
}

// Line returns where a key stands in the file, or where the section begins when it is missing.
func (s *Section) Line(key string) int { return s.keyLine(key) }

// Plain returns a value as it stands in the file where it is a plain one; it reports
// nothing and does not ask for the key.
func (s *Section) Plain(key string) (string, bool) {
	if n := s.values[key]; n != nil && is(n, yaml.ScalarNode) {
		return n.Value, true
	}
	return "", false
}

// Text returns the value of a key as it stands in the file, "" for none. A blank one is
// a problem.
func (s *Section) Text(key, want string) string {
	n := s.get(key, yaml.ScalarNode, want)
	if n == nil {
		return ""
	}
	if strings.TrimSpace(n.Value) == "" {
		s.Problem(key, "empty, want %s", want)
		return ""
	}
	return n.Value
}

// Parsed hands the text of a key, if there is one, to parse; what parse refuses is a
// problem that repeats the text. Without a good value it returns otherwise.
func Parsed[T any](s *Section, key, want string, otherwise T, parse func(string) (T, bool)) T {
	text := s.Text(key, want)
	if text == "" {
		return otherwise
	}
	v, ok := parse(text)
	if !ok {
		s.Problem(key, "%q, want %s", text, want)
		return otherwise
	}
	return v
}

// Choice wants one of the given words.
func Choice[T ~string](s *Section, key string, otherwise T, words ...T) T {
	list := make([]string, len(words))
	for i, w := range words {
		list[i] = string(w)
	}
	return Parsed(s, key, strings.Join(list, " or "), otherwise, func(text string) (T, bool) {
		return T(text), slices.Contains(words, T(text))
	})
}

// Number wants a whole number between least and most.
func (s *Section) Number(key string, otherwise, least, most int) int {
	return Parsed(s, key, fmt.Sprintf("a whole number from %d to %d", least, most), otherwise, func(text string) (int, bool) {
		v, err := strconv.Atoi(text)
		return v, err == nil && v >= least && v <= most
	})
}

// Flag wants true or false; yes, on and their like are refused.
func (s *Section) Flag(key string) bool {
	return Parsed(s, key, "true or false", false, func(text string) (bool, bool) {
		return text == "true", text == "true" || text == "false"
	})
}

// Duration wants a time with its unit between least and most.
func (s *Section) Duration(key string, otherwise, least, most time.Duration) time.Duration {
	example := otherwise
	if example == 0 {
		example = 10 * least
	}
	return Parsed(s, key, fmt.Sprintf("a time from %s to %s, such as %s", short(least), short(most), short(example)),
		otherwise, func(text string) (time.Duration, bool) {
			v, err := time.ParseDuration(text)
			return v, err == nil && v >= least && v <= most
		})
}

// Words wants a list of plain values, not an empty one; nil for none.
func (s *Section) Words(key, want string) []string {
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
		s.Problem(key, "an empty list, want %s", want)
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
