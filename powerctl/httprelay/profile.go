package httprelay

import (
	"embed"
	"fmt"
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

// maxOutlet is the highest outlet that a profile may speak of.
const maxOutlet = 64

// Auth is how a device wants its password, when one is set.
type Auth string

// The ways. Query is user and password among the parameters of the address.
const (
	NoAuth Auth = "none"
	Basic  Auth = "basic"
	Digest Auth = "digest"
	Query  Auth = "query"
)

// Profile says how the outlets of one family of devices are switched and read. It is
// data: see profiles/*.yaml and profiles/README.md. Only Load and LoadFile make one, so that
// every profile has passed the guard. It is never changed after that and may be shared.
type Profile struct {
	Name   string
	Vendor string
	Models []string
	Class  powerctl.Class
	// Outlets is the highest outlet, counted from 1.
	Outlets int
	Auth    Auth
	// ReplyType is the media type that every answer must have; empty for any.
	ReplyType string
	// Notes are warnings about what cannot be read from the device.
	Notes []string
	// Tried says against what the profile was run.
	Tried powerctl.Tried
	// Sources names the document behind each fact, by key.
	Sources map[string]string

	queryUser, queryPassword string // the names of the parameters
	headers                  map[string]template
	never                    []string
	off, on                  command
	state                    stateRule
	serial, outletName       *reading
	checks                   []*check
}

// command is one request that switches.
type command struct {
	method      string
	path        template
	body        template
	contentType string
	statuses    []int       // those of success
	reply       []condition // what the answer must say; none: the status is enough
}

//go:embed profiles/*.yaml
var embedded embed.FS

// Load reads the profiles that come with plugpull, by name.
func Load() ([]*Profile, error) { return profilefile.Load(embedded, "HTTP", parseProfile) }

// LoadFile reads a user's own profile. A *FileError holds everything that is wrong with it.
func LoadFile(file string) (*Profile, error) {
	return profilefile.LoadFile(file, "HTTP", maxFile, parseProfile)
}

// Named returns the profile of that name from list; of two, the later one.
func Named(list []*Profile, name string) (*Profile, error) {
	var known []string
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].Name == name {
			return list[i], nil
		}
	}
	for _, p := range list {
		known = append(known, p.Name)
	}
	return nil, fmt.Errorf("no HTTP profile is named %q, want one of %s", name, strings.Join(known, ", "))
}
