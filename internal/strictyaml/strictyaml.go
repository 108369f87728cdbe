// Package strictyaml reads YAML files that a person writes, key by key, and says what
// is wrong with them by line.
//
// It guarantees that a file is taken as it stands or refused: a file holds one document
// of keys and values; a key that nobody asks for or that is given twice, an anchor, an
// alias, a merge, a tag and a value of the wrong kind are problems, and all of them are
// reported at once. Values are text until the caller parses them: no word turns into a
// truth value, and no number loses its form. Nothing of a file beside its keys is
// repeated in a problem, except the text that a Parsed value refuses.
//
// Nothing here blocks but ReadFile. Files may be decoded concurrently; a Section belongs
// to the one goroutine that decodes its file.
package strictyaml

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

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

// ReadFile reads at most limit+1 bytes, so that Decode refuses what is longer than limit
// and nobody has to hold it. Its errors are those of the file system.
func ReadFile(path string, limit int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, int64(limit)+1))
}

// Decode parses data, of at most limit bytes, and hands its top level to fill, which asks
// for the keys; then it reports those that fill did not ask for. file names the data in
// the error, which is a *FileError. fill is not called for data that holds no section.
func Decode(file string, data []byte, limit int, fill func(*Section)) error {
	d := &decoder{err: FileError{File: file}}
	if root := d.parse(data, limit); root != nil {
		top := d.section(root, "")
		fill(top)
		top.Done()
	}
	return d.result()
}

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

func (d *decoder) parse(data []byte, limit int) *yaml.Node {
	if len(data) > limit {
		d.problem(1, "", "%d bytes, want at most %d", len(data), limit)
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
		d.problem(max(1, more.Line), "", "a second document, want one a file")
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
