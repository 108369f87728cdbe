package snmp

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"plugpull/internal/strictyaml"
	"plugpull/powerctl"
	"plugpull/powerctl/internal/profilefile"
)

// FileError holds everything that is wrong with a profile, by line.
type FileError = strictyaml.FileError

// Problem is one thing wrong with a profile.
type Problem = strictyaml.Problem

type section = strictyaml.Section

// maxFile bounds a profile, in bytes.
const maxFile = 64 << 10

// Profile says how the outlets of one family of devices are switched and read.
// It is data: see profiles/*.yaml and the table in read.go. Only Load and
// LoadFile make one, so that every profile has passed the guard.
type Profile struct {
	Name   string
	Vendor string
	Models []string
	// SysObjectID are the prefixes by which "auto" knows the family; empty
	// means that it must be named.
	SysObjectID []string
	// Index is the form of an outlet's index, "N" or "S.1.N".
	Index string
	Class powerctl.Class
	// Tried says against what the profile was run: peer (somebody else's
	// SNMP agent that plays the device), simulator (our own) or nothing.
	Tried powerctl.Tried
	// Sources names the document behind each fact, by key.
	Sources map[string]string

	on, off command
	cancel  []command
	state   column
	extra   []column
	name    template
	serial  template
	model   template
	restore []restore
}

// command is one INTEGER written to one variable.
type command struct {
	oid   template
	value int
}

// reading is what a value of a variable means.
type reading uint8

const (
	unknown reading = iota
	on
	off
	pending
	fault
	noObjection // of an extra variable: "clear"
)

var readingNames = map[string]reading{
	"unknown": unknown, "on": on, "off": off, "pending": pending, "fault": fault, "clear": noObjection,
}

// column is an INTEGER variable and what its values mean; others mean unknown.
type column struct {
	what   string // state, pending, fault
	oid    template
	values map[int]reading
}

// restore is a setting that can bring power back without a command.
type restore struct {
	what  string
	oid   template
	stays []int // values that bring nothing back
}

//go:embed profiles/*.yaml
var embedded embed.FS

// Load reads the profiles that come with plugpull, by name.
func Load() ([]*Profile, error) { return profilefile.Load(embedded, "SNMP", parseProfile) }

// LoadFile reads a user's own profile. A *FileError holds everything that is
// wrong with it.
func LoadFile(file string) (*Profile, error) {
	return profilefile.LoadFile(file, "SNMP", maxFile, parseProfile)
}

// Named returns the profile of that name from list.
func Named(list []*Profile, name string) (*Profile, error) {
	var known []string
	for _, p := range list {
		if p.Name == name {
			return p, nil
		}
		known = append(known, p.Name)
	}
	return nil, fmt.Errorf("no SNMP profile is named %q, want one of %s", name, strings.Join(known, ", "))
}

// detect returns the profile with the longest prefix of sysObjectID. Two of the
// same length, and none, are errors: a guess could switch the wrong thing.
func detect(list []*Profile, sysObjectID string) (*Profile, error) {
	var best []string
	var found *Profile
	longest := 0
	for _, p := range list {
		for _, prefix := range p.SysObjectID {
			n := strings.Count(prefix, ".")
			switch {
			case !under(sysObjectID, prefix) || n < longest:
			case n > longest:
				longest, found, best = n, p, []string{p.Name}
			case p != found:
				best = append(best, p.Name)
			}
		}
	}
	switch {
	case found == nil:
		return nil, fmt.Errorf("no SNMP profile is for a device with the sysObjectID %s: name one", sysObjectID)
	case len(best) > 1:
		slices.Sort(best)
		return nil, fmt.Errorf("several SNMP profiles are for the sysObjectID %s: name one of %s", sysObjectID, strings.Join(best, ", "))
	}
	return found, nil
}

// knowsPending says whether the device tells that a command is pending.
func (p *Profile) knowsPending() bool {
	for _, c := range append([]column{p.state}, p.extra...) {
		for _, r := range c.values {
			if r == pending {
				return true
			}
		}
	}
	return false
}

// columns are all variables that say something about the outlet's state.
func (p *Profile) columns() []column { return append([]column{p.state}, p.extra...) }
