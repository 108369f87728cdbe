package scenarios

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"plugpull/internal/strictyaml"
	"plugpull/powerctl"
)

// Bench is a device under test with its power and its way in.
type Bench struct {
	Name     string
	Kind     BenchKind
	Database Database
	Outlet   Outlet
	// Attest is what a person vouches for where the bench cannot prove it; empty
	// for nothing.
	Attest Attest
	Timing Timing
	// File names it in errors.
	File string
	// Source is the file as it was read; it holds no password.
	Source []byte
}

// Attest is what a person vouches for.
type Attest string

// What can be vouched for.
const (
	AttestMains Attest = "mains" // the host loses its mains power at each cut
	AttestDrive Attest = "drive" // the drive loses its power at each cut
)

// Database is the way to the server.
type Database struct {
	DSN          string // mysql://user@host:port/schema, without a password
	PasswordFile string // a path that needs no further resolving, empty for none
}

// Timing is how long to wait for what.
type Timing struct {
	Silence     time.Duration // without a byte from the server before a stream is given up
	OffDeadline time.Duration // for off, or on, to be read back
	MinOff      time.Duration // of power off, for what the supplies hold up
	ServerWait  time.Duration // for the server's greeting after power on
}

// ParseBench reads a bench file; file names it in errors, which are *FileError. Beside an error the bench
// holds what could be read, for others to find more that is wrong with it.
// Relative paths in it, of the password file and of programs with a slash in
// their name, are taken from the file's folder.
func ParseBench(file string, data []byte) (Bench, error) {
	b := Bench{File: file, Source: data}
	err := strictyaml.Decode(file, data, maxFile, func(s *section) {
		b.Name = name(s, "bench")
		s.Require("kind", "lab")
		b.Kind = kind(s)
		b.Database = database(s.Sub("database"), filepath.Dir(file))
		b.Outlet = outlet(s.Sub("outlet"), filepath.Dir(file))
		b.Attest = strictyaml.Choice(s, "attest", "", AttestMains, AttestDrive)
		b.Timing = timing(s.Sub("timing"))
		if c := b.Outlet.Class; b.Attest == AttestMains && c != "" && c != powerctl.Mains {
			s.Problem("attest", "mains contradicts outlet.class %s, want drive or none", c)
		}
	})
	return b, err
}

// LoadBench reads a bench file. An error of its contents is a *FileError.
func LoadBench(path string) (Bench, error) {
	data, err := strictyaml.ReadFile(path, maxFile)
	if err != nil {
		return Bench{}, fmt.Errorf("bench file: %w", err)
	}
	return ParseBench(path, data)
}

func kind(s *section) BenchKind {
	k := BenchKind(s.Text("kind", "lab"))
	switch {
	case k == Lab || k == "":
	case slices.Contains([]BenchKind{Embedded, Loop, VM}, k):
		s.Problem("kind", "%q is not in this version, want lab", k)
	default:
		s.Problem("kind", "%q, want lab", k)
	}
	return k
}

func database(s *section, folder string) Database {
	defer s.Done()
	var d Database
	s.Require("dsn", dsnWant)
	d.DSN = s.Text("dsn", dsnWant)
	if d.DSN != "" {
		if err := checkDSN(d.DSN); err != nil {
			s.Problem("dsn", "%v", err)
			d.DSN = ""
		}
	}
	d.PasswordFile = resolve(folder, s.Text("password_file", "the path of a file that holds the password"))
	return d
}

const dsnWant = "mysql://user@host:port/schema"

// checkDSN never repeats the text: it may hold a password.
func checkDSN(dsn string) error {
	u, err := url.Parse(dsn)
	if err != nil || u.Opaque != "" || u.Scheme != "mysql" {
		return errors.New("not a database address of this version, want " + dsnWant)
	}
	if _, has := u.User.Password(); has {
		return errors.New("holds a password, want it in password_file or in the environment (PLUGPULL_DSN)")
	}
	for key := range u.Query() {
		switch strings.ToLower(key) {
		case "password", "passwd", "pwd", "pass":
			return errors.New("holds a password in its parameters, want it in password_file or in the environment (PLUGPULL_DSN)")
		}
	}
	if u.User.Username() == "" || u.Hostname() == "" || strings.Trim(u.Path, "/") == "" || u.Fragment != "" {
		return errors.New("the user, the host or the schema is missing, want " + dsnWant)
	}
	return nil
}

const argvWant = "a list of a program and its arguments, such as [/usr/local/bin/pdu, outlet, 3]"

// argv takes a relative program with a slash from the file's folder; one
// without a slash is looked up in PATH when it is run.
func argv(s *section, key, folder string) []string {
	list := s.Words(key, argvWant)
	if len(list) == 0 {
		return nil
	}
	if strings.TrimSpace(list[0]) == "" {
		s.Problem(key, "the program is empty, want %s", argvWant)
		return nil
	}
	if strings.Contains(list[0], "/") {
		list[0] = resolve(folder, list[0])
	}
	return list
}

// resolve keeps a slash in the result: a bare name would be looked up in PATH.
func resolve(folder, path string) string {
	switch {
	case path == "" || filepath.IsAbs(path):
		return path
	case folder == ".":
		return "./" + filepath.Clean(path)
	}
	return filepath.Join(folder, path)
}

func timing(s *section) Timing {
	defer s.Done()
	return Timing{
		Silence:     s.Duration("silence", 10*time.Second, 500*time.Millisecond, time.Hour),
		OffDeadline: s.Duration("off_deadline", 30*time.Second, 500*time.Millisecond, time.Hour),
		MinOff:      s.Duration("min_off", 10*time.Second, 0, time.Hour),
		ServerWait:  s.Duration("server_wait", 10*time.Minute, time.Second, 24*time.Hour),
	}
}
