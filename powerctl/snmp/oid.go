package snmp

import (
	"slices"
	"strconv"
	"strings"
)

// template is an OID with a leading dot in which letters in braces stand for
// parts of the outlet's index: ".1.3.6.1.4.1.318.1.1.6.5.1.1.5.{S}.1.{N}".
type template string

// outletIndex gives each letter of a profile's index its number.
type outletIndex map[string]string

// fill replaces every letter.
func (t template) fill(x outletIndex) string {
	parts := strings.Split(string(t), ".")
	for i, p := range parts {
		if l, ok := letter(p); ok {
			parts[i] = x[l]
		}
	}
	return strings.Join(parts, ".")
}

// column is the part before the first letter.
func (t template) column() string {
	before, _, _ := strings.Cut(string(t), ".{")
	return before
}

// match takes the letters' numbers from an OID of the template's form.
func (t template) match(oid string) (outletIndex, bool) {
	want, got := strings.Split(string(t), "."), strings.Split(oid, ".")
	if len(want) != len(got) {
		return nil, false
	}
	x := outletIndex{}
	for i, p := range want {
		l, ok := letter(p)
		switch {
		case ok && x[l] == "":
			x[l] = got[i]
		case ok && x[l] != got[i], !ok && p != got[i]:
			return nil, false
		}
	}
	return x, true
}

// mayBe says whether the template can mean a variable below column, whatever
// its letters stand for.
func (t template) mayBe(column string) bool {
	parts, want := strings.Split(string(t), "."), strings.Split(column, ".")
	if len(parts) < len(want) {
		return false
	}
	for i, w := range want {
		if _, ok := letter(parts[i]); !ok && parts[i] != w {
			return false
		}
	}
	return true
}

func letter(part string) (string, bool) {
	if len(part) == 3 && part[0] == '{' && part[1] >= 'A' && part[1] <= 'Z' && part[2] == '}' {
		return part[1:2], true
	}
	return "", false
}

// letters lists the letters in their order.
func (t template) letters() []string {
	var list []string
	for _, p := range strings.Split(string(t), ".") {
		if l, ok := letter(p); ok {
			list = append(list, l)
		}
	}
	return list
}

// valid wants a leading dot, at least three parts, each a number without
// leading zeros or a letter.
func (t template) valid() bool {
	rest, ok := strings.CutPrefix(string(t), ".")
	parts := strings.Split(rest, ".")
	if !ok || len(parts) < 3 || len(parts) > 64 {
		return false
	}
	for _, p := range parts {
		if _, isLetter := letter(p); !isLetter && !isNumber(p) {
			return false
		}
	}
	return parts[0] == "1"
}

func isNumber(s string) bool {
	n, err := strconv.ParseUint(s, 10, 32)
	return err == nil && strconv.FormatUint(n, 10) == s
}

// parseIndex reads "1.3" as the form "S.N" says. Digits of the form must be met.
func parseIndex(form, text string) (outletIndex, bool) {
	want, got := strings.Split(form, "."), strings.Split(text, ".")
	if len(want) != len(got) {
		return nil, false
	}
	x := outletIndex{}
	for i, w := range want {
		switch {
		case isNumber(w) && w != got[i], !isNumber(got[i]):
			return nil, false
		case !isNumber(w):
			x[w] = got[i]
		}
	}
	return x, true
}

// format is parseIndex's counterpart.
func (x outletIndex) format(form string) string {
	parts := strings.Split(form, ".")
	for i, p := range parts {
		if !isNumber(p) {
			parts[i] = x[p]
		}
	}
	return strings.Join(parts, ".")
}

// under says whether oid is prefix or lies below it.
func under(oid, prefix string) bool {
	return oid == prefix || strings.HasPrefix(oid, prefix+".")
}

// lessOID compares numerically, part by part.
func lessOID(a, b string) bool {
	return slices.Compare(numbers(a), numbers(b)) < 0
}

func numbers(oid string) []uint64 {
	parts := strings.Split(strings.TrimPrefix(oid, "."), ".")
	list := make([]uint64, len(parts))
	for i, p := range parts {
		list[i], _ = strconv.ParseUint(p, 10, 64)
	}
	return list
}

// dotted gives an OID its leading dot.
func dotted(oid string) string {
	if oid == "" || oid[0] == '.' {
		return oid
	}
	return "." + oid
}
