// Package databases holds the words that mysql/, postgres/ and sqlite/ share: what a database says of its
// own durability, as findings, as a table of settings, and as the folders that its durability rests on.
//
// It guarantees that a setting which could not be read, or whose value is not known, is Unknown and never
// OK, and that no report and no error shows a password. Its checks change nothing on the server or in the
// file.
//
// No check sees what a single session does: a client that turns synchronous_commit off for itself, or opens
// a SQLite file with PRAGMA synchronous=OFF, leaves no trace that another connection could read.
package databases

import (
	"path"
	"slices"
	"strconv"

	"plugpull/internal/hostcheck"
)

// The kinds of databases.
const (
	MySQL    = "mysql"
	MariaDB  = "mariadb"
	Postgres = "postgres"
	SQLite   = "sqlite"
)

// Setting is a row of the report's table of settings.
type Setting struct {
	Name  string `json:"name"` // as the database calls it
	Value string `json:"value"`
	Safe  string `json:"safe,omitempty"` // the value to set; empty: any is, and the row is there to be read
	// Risk says what another value than the safe one risks, or what else there is to know: a sentence
	// fragment.
	Risk string `json:"risk,omitempty"`
	// Level is of this value. Unknown: it could not be read, or nothing is known of it.
	Level hostcheck.Level `json:"level"`
	Where string          `json:"where,omitempty"` // where the value is, and what set it, as far as the database says
}

// Folder is a folder on the database's host that durability depends on: whoever asks for the whole stack walks
// down from each.
type Folder struct {
	Path string `json:"path"` // absolute, as the database says it; links are not resolved
	What string `json:"what"` // what lives there: data, redo log, binary log …
	From string `json:"from"` // the setting that says so
	// Pages: files are there whose pages are written over in place.
	Pages bool `json:"pages,omitempty"`
}

// Report is what one database says of itself.
type Report struct {
	Kind     string              `json:"kind"`
	Where    string              `json:"where"` // the DSN without its password
	Version  string              `json:"version,omitempty"`
	Facts    []hostcheck.Fact    `json:"facts,omitempty"`
	Settings []Setting           `json:"settings"`
	Findings []hostcheck.Finding `json:"findings,omitempty"` // none of them is OK
	// Folders has each path once, the data first; none where the database does not say.
	Folders []Folder `json:"folders,omitempty"`
	// Apart says why the folders may not be those of the machine that the server was reached on; empty: nothing speaks
	// for that.
	Apart string `json:"apart,omitempty"`
	// What follows is judged by whoever knows the layers below the folders.

	// Log is the path of the folder with the log from which a crash is recovered.
	Log string `json:"log,omitempty"`
	// Unflushed is the setting with which no flush is sent for the files with Pages; empty: they are flushed.
	Unflushed string `json:"unflushed,omitempty"`
	// TornPage is the code of a finding that a page torn in a power cut cannot be repaired, and PageSize the bytes
	// of a page, 0 where that is not known: a filesystem that writes pages whole tears none.
	TornPage string `json:"torn_page,omitempty"`
	PageSize int    `json:"page_size,omitempty"`
}

// NotDirect is Apart of a server that is not at the other end of the connection to it.
const NotDirect = "it is reached through a tunnel, a proxy or the port of a container"

// Level is the worst of the findings.
func (r *Report) Level() hostcheck.Level {
	worst := hostcheck.OK
	for _, f := range r.Findings {
		worst = hostcheck.Worst(worst, f.Level)
	}
	return worst
}

// Find adds a finding.
func (r *Report) Find(l hostcheck.Level, code, text string) {
	r.Findings = append(r.Findings, hostcheck.Finding{Level: l, Code: code, Text: text})
}

// Judge adds a setting, and a finding about it where its level is not OK.
func (r *Report) Judge(code string, s Setting) {
	r.Settings = append(r.Settings, s)
	if s.Level == hostcheck.OK {
		return
	}
	text := s.Name + " is " + Quote(s.Value)
	if s.Where != "" {
		text += " (" + s.Where + ")"
	}
	if s.Risk != "" {
		text += ": " + s.Risk
	}
	if s.Safe != "" {
		text += "; safe: " + s.Safe
	}
	r.Find(s.Level, code, text)
}

// Fact adds a fact, where there is something to it.
func (r *Report) Fact(key, value, from string) {
	if value != "" {
		r.Facts = append(r.Facts, hostcheck.Fact{Key: key, Value: value, From: from})
	}
}

// Folder adds a folder, unless its path is there already or is not absolute.
func (r *Report) Folder(p, what, from string) {
	p = path.Clean(p)
	if !path.IsAbs(p) || slices.ContainsFunc(r.Folders, func(f Folder) bool { return f.Path == p }) {
		return
	}
	r.Folders = append(r.Folders, Folder{Path: p, What: what, From: from})
}

// PagesIn adds a folder with files whose pages are written over in place.
func (r *Report) PagesIn(p, what, from string) {
	r.Folder(p, what, from)
	for i := range r.Folders {
		if r.Folders[i].Path == path.Clean(p) {
			r.Folders[i].Pages = true
		}
	}
}

// Quote makes a value of a database fit for a sentence: plain words stay as they are, what has anything else
// in it is quoted and cut after some 60 bytes.
func Quote(v string) string {
	if v == "" {
		return "empty"
	}
	const most = 60
	plain := len(v) <= most
	for _, c := range []byte(v) {
		plain = plain && c > ' ' && c < 0x7f && c != '"'
	}
	if plain {
		return v
	}
	if len(v) > most {
		return strconv.QuoteToASCII(v[:most]) + "…"
	}
	return strconv.QuoteToASCII(v)
}
