// Package hostcheck asks a host what its storage stack and its database say of themselves, and reasons
// over the whole of it: can an acknowledged commit be lost in a power cut?
//
// It guarantees that what could not be read is Unknown, and that nothing Unknown is ever called OK. It
// changes nothing on the host. It never asks a host itself: a Runner does, which may be this machine, one
// behind SSH, or a folder of outputs that were saved elsewhere.
//
// The rooms: raid/ and drive/ read what controllers' tools and drives say, layers/ walks from a folder
// through mounts and layers to the drives, databases/ judges servers' settings. This package owns the words
// that they share.
package hostcheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Level is how bad something is, with the numbers of monitoring plugins.
type Level uint8

// The levels.
const (
	OK       Level = 0
	Warning  Level = 1
	Critical Level = 2
	Unknown  Level = 3
)

var levelNames = [...]string{"OK", "WARNING", "CRITICAL", "UNKNOWN"}

func (l Level) String() string {
	if int(l) < len(levelNames) {
		return levelNames[l]
	}
	return fmt.Sprintf("LEVEL(%d)", uint8(l))
}

// MarshalText writes the level's name.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText accepts exactly the names that MarshalText writes.
func (l *Level) UnmarshalText(b []byte) error {
	i := slices.Index(levelNames[:], string(b))
	if i < 0 {
		return fmt.Errorf("unknown level %q", b)
	}
	*l = Level(i)
	return nil
}

// Worst returns the level that stands for all: what is known to be critical outranks what is unknown, and
// that outranks a warning.
func Worst(levels ...Level) Level {
	order := []Level{OK, Warning, Unknown, Critical}
	worst := OK
	for _, l := range levels {
		if slices.Index(order, l) > slices.Index(order, worst) {
			worst = l
		}
	}
	return worst
}

// Tri is yes, no, or not known. The zero value is not known.
type Tri uint8

// The values.
const (
	NotKnown Tri = iota
	No
	Yes
)

var triNames = [...]string{"unknown", "no", "yes"}

func (t Tri) String() string {
	if int(t) < len(triNames) {
		return triNames[t]
	}
	return fmt.Sprintf("tri(%d)", uint8(t))
}

// MarshalText writes the value's name.
func (t Tri) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText accepts exactly the names that MarshalText writes.
func (t *Tri) UnmarshalText(b []byte) error {
	i := slices.Index(triNames[:], string(b))
	if i < 0 {
		return fmt.Errorf("unknown value %q", b)
	}
	*t = Tri(i)
	return nil
}

// Is turns a truth into a Tri.
func Is(b bool) Tri {
	if b {
		return Yes
	}
	return No
}

// Finding is one judgement.
type Finding struct {
	Level Level `json:"level"`
	// Code is the same for the same thing in every version, for machines: small letters and underscores.
	Code string `json:"code"`
	// Text is a sentence without a full stop, for a person who has to act: what is there, what it risks, and
	// what to do where that is not plain.
	Text string `json:"text"`
}

// Fact is something that was read, as it was read.
type Fact struct {
	Key   string `json:"key"` // as the documentation of the source calls it, in small letters
	Value string `json:"value"`
	From  string `json:"from,omitempty"` // the command or file
}

// Perf is a number for graphs.
type Perf struct {
	Name  string  `json:"name"` // small letters and underscores, with the unit as its end: _percent, _seconds, _total
	Label string  `json:"label,omitempty"`
	Value float64 `json:"value"`
}

// Cache is what the reasoning needs to know of a layer.
type Cache struct {
	// Volatile: the layer may acknowledge a write, or with Flushes No a flush, that exists only in a memory
	// which needs power.
	Volatile Tri `json:"volatile"`
	// Protected: that memory is saved when power is lost (capacitors, a battery that is good now).
	Protected Tri `json:"protected"`
	// Flushes: a flush that comes in is passed down, or carried out where nothing is below.
	Flushes Tri `json:"flushes"`
	// Why says what each of these rests on, a sentence fragment.
	Why string `json:"why,omitempty"`
}

// Note is the kind of a node that holds findings and is no layer.
const Note = "note"

// Node is a layer of the stack with what lies below it.
type Node struct {
	Kind     string    `json:"kind"` // folder, mount, lvm, crypt, raid, loop, partition, disk, controller, volume …
	Name     string    `json:"name"`
	Facts    []Fact    `json:"facts,omitempty"`
	Findings []Finding `json:"findings,omitempty"`
	Perf     []Perf    `json:"perf,omitempty"`
	Cache    Cache     `json:"cache"`
	Below    []*Node   `json:"below,omitempty"`
}

// Add appends a finding.
func (n *Node) Add(l Level, code, format string, args ...any) {
	n.Findings = append(n.Findings, Finding{l, code, fmt.Sprintf(format, args...)})
}

// Walk calls f for the node and everything below it, each node once, upper ones first.
func (n *Node) Walk(f func(*Node)) {
	seen := map[*Node]bool{}
	var walk func(*Node)
	walk = func(n *Node) {
		if n == nil || seen[n] {
			return
		}
		seen[n] = true
		f(n)
		for _, b := range n.Below {
			walk(b)
		}
	}
	walk(n)
}

// Output is what a command left.
type Output struct {
	Stdout []byte
	Stderr []byte
	Code   int // exit status
}

// Runner asks a host. Each call blocks until the host has answered or ctx is done; calls may be made
// concurrently.
type Runner interface {
	// Run runs a program and returns its output also when it exits with another status than 0, which is no
	// error: the tools of storage say much by it. ErrNotInstalled when there is no such program.
	Run(ctx context.Context, name string, args ...string) (Output, error)
	// ReadFile reads a file, of at most 1 MiB. The error matches fs.ErrNotExist when there is none.
	ReadFile(ctx context.Context, path string) ([]byte, error)
	// ReadDir returns the names in a folder, sorted. Links to folders count as folders.
	ReadDir(ctx context.Context, path string) ([]string, error)
	// RealPath resolves the links of a path.
	RealPath(ctx context.Context, path string) (string, error)
	// Describe names the host for a person.
	Describe() string
}

// ErrNotInstalled: the host has no such program.
var ErrNotInstalled = errors.New("not installed")

// ErrNotSaved: the folder of saved outputs has nothing of this command or file, which says nothing of the host.
var ErrNotSaved = errors.New("not among the saved outputs")

// CommandLine is how a command is named in facts and in folders of saved outputs.
func CommandLine(name string, args ...string) string {
	return strings.Join(append([]string{name}, args...), " ")
}
