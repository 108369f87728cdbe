package httprelay

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"plugpull/powerctl"
)

// template is a text with {outlet}, counted from 1, and {outlet0}, counted from 0.
type template string

var placeholder = regexp.MustCompile(`\{[A-Za-z_][A-Za-z0-9_]*\}`)

// strange returns a placeholder that is none of the two, as a slip makes it.
func (t template) strange() string {
	for _, p := range placeholder.FindAllString(string(t), -1) {
		if p != "{outlet}" && p != "{outlet0}" {
			return p
		}
	}
	return ""
}

func (t template) fill(outlet int) string {
	return strings.NewReplacer("{outlet}", strconv.Itoa(outlet), "{outlet0}", strconv.Itoa(outlet-1)).Replace(string(t))
}

// kind is a type of JSON values.
type kind string

const (
	textKind    kind = "text"
	numberKind  kind = "number"
	booleanKind kind = "boolean"
)

// rule finds one value of one type in an answer.
type rule struct {
	path template
	kind kind
}

var (
	pathForm = regexp.MustCompile(`^(\$|[A-Za-z0-9_:-]+)?(\[([0-9]{1,4}|\*)\])*(\.[A-Za-z0-9_:-]+(\[([0-9]{1,4}|\*)\])*)*$`)
	pathStep = regexp.MustCompile(`[A-Za-z0-9_:-]+|\[[0-9*]+\]`)
)

// validPath wants keys with dots between them and [n] for the n-th of a list, from 0; $ is the
// whole answer, and [*] everything in a list.
func validPath(path string) bool { return path != "" && path[0] != '.' && pathForm.MatchString(path) }

// findAll follows a path with [*]; whole is false where a branch leads nowhere.
func findAll(v any, path string) (found []any, whole bool) {
	before, after, star := strings.Cut(path, "[*]")
	if before != "" {
		var ok bool
		if v, ok = find(v, before); !ok {
			return nil, false
		}
	}
	if !star {
		return []any{v}, true
	}
	list, ok := v.([]any)
	whole = ok
	for _, item := range list {
		below, ok := findAll(item, strings.TrimPrefix(after, "."))
		found, whole = append(found, below...), whole && ok
	}
	return found, whole
}

// find follows a path; false where it leads nowhere.
func find(v any, path string) (any, bool) {
	for _, step := range pathStep.FindAllString(strings.TrimPrefix(path, "$"), -1) {
		if step[0] != '[' {
			object, ok := v.(map[string]any)
			if !ok {
				return nil, false
			}
			if v, ok = object[step]; !ok {
				return nil, false
			}
			continue
		}
		list, ok := v.([]any)
		n, err := strconv.Atoi(step[1 : len(step)-1])
		if !ok || err != nil || n >= len(list) {
			return nil, false
		}
		v = list[n]
	}
	return v, true
}

// text returns the value as text, in exactly the form of the answer; false where it is
// missing or of another type.
func (r rule) text(v any, outlet int) (string, bool) {
	found, ok := find(v, r.path.fill(outlet))
	if !ok {
		return "", false
	}
	return r.kind.text(found)
}

func (k kind) text(v any) (string, bool) {
	switch x := v.(type) {
	case string:
		return x, k == textKind
	case json.Number:
		return x.String(), k == numberKind
	case bool:
		return strconv.FormatBool(x), k == booleanKind
	}
	return "", false
}

// reading is a rule and the path of the GET whose answer it looks at.
type reading struct {
	rule
	get template
}

// condition is what must hold beside.
type condition struct {
	rule
	is []template
}

func (k condition) holds(v any, outlet int) bool {
	got, ok := k.text(v, outlet)
	return ok && slices.ContainsFunc(k.is, func(t template) bool { return t.fill(outlet) == got })
}

// stateRule says what a value means. A value that it does not know means unknown.
type stateRule struct {
	reading
	meaning    map[string]powerctl.State
	conditions []condition
}

// read returns the state and what it looked at, empty where the value is missing.
func (s *stateRule) read(v any, outlet int) (powerctl.State, string) {
	got, ok := s.text(v, outlet)
	if !ok {
		return powerctl.Unknown, ""
	}
	state := s.meaning[got]
	seen := fmt.Sprintf("%s=%.200s", s.path.fill(outlet), line(got))
	for _, k := range s.conditions {
		beside, _ := k.text(v, outlet)
		seen += fmt.Sprintf(" %s=%.100s", k.path.fill(outlet), line(beside))
		if !k.holds(v, outlet) {
			state = powerctl.Unknown
		}
	}
	return state, seen
}

// check is a setting that should have a safe value.
type check struct {
	reading
	name          string
	words         string // what it means when it has not
	safe          []template
	missingIsSafe bool
	switches      bool
}

// isSafe compares numbers by value: a timer of 0.00 s is one of 0.
func (k *check) isSafe(got string, outlet int) bool {
	return slices.ContainsFunc(k.safe, func(t template) bool {
		want := t.fill(outlet)
		if k.kind != numberKind || got == want {
			return got == want
		}
		a, errA := strconv.ParseFloat(got, 64)
		b, errB := strconv.ParseFloat(want, 64)
		return errA == nil && errB == nil && a == b
	})
}
