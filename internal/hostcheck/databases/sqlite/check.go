// Package sqlite says what a SQLite file tells of its durability, which is little: the file keeps whether its
// journal is a WAL, and each connection chooses the rest for itself.
//
// It guarantees that it changes nothing: it reads the file's first 100 bytes and the names beside it, and opens
// no database, which could make, recover or delete a -wal, -shm or -journal file.
//
// It must not run in a process that has the same file open through SQLite: closing a file drops the locks that
// the process has on it.
package sqlite

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	sqlitedb "plugpull/internal/database/sqlite"
	"plugpull/internal/hostcheck"
	"plugpull/internal/hostcheck/databases"
)

// DSN is a file, and what is said of the connections that its program makes; use ParseDSN.
type DSN struct {
	Path        string
	Journal     sqlitedb.Journal     // "" where nothing is said
	Synchronous sqlitedb.Synchronous // likewise
}

// ParseDSN parses sqlite:PATH[?journal_mode=…&synchronous=…]. The parameters say what the program that uses the
// file sets on every connection; they are believed, and judged. What is behind the last ? of a path that has
// one is taken for parameters.
func ParseDSN(s string) (DSN, error) {
	path, ok := strings.CutPrefix(s, "sqlite:")
	var params string
	if i := strings.LastIndexByte(path, '?'); i >= 0 {
		path, params = path[:i], path[i+1:]
		if params == "" {
			return DSN{}, errors.New("sqlite DSN: nothing is behind the ?")
		}
	}
	if !ok || path == "" || strings.HasPrefix(path, "//") || strings.ContainsRune(path, 0) {
		return DSN{}, errors.New("sqlite DSN: want sqlite:PATH[?journal_mode=…&synchronous=…]")
	}
	d := DSN{Path: path}
	if params == "" {
		return d, nil
	}
	for p := range strings.SplitSeq(params, "&") {
		name, value, _ := strings.Cut(p, "=")
		value = strings.ToLower(value)
		journals := []sqlitedb.Journal{sqlitedb.WAL, sqlitedb.Delete, sqlitedb.Truncate, sqlitedb.Persist, sqlitedb.Memory, sqlitedb.NoJournal}
		switch {
		case name == "journal_mode" && d.Journal == "" && slices.Contains(journals, sqlitedb.Journal(value)):
			d.Journal = sqlitedb.Journal(value)
		case name == "synchronous" && d.Synchronous == "" && slices.Contains(levels, sqlitedb.Synchronous(value)):
			d.Synchronous = sqlitedb.Synchronous(value)
		default:
			return DSN{}, fmt.Errorf("sqlite DSN: %q: want once journal_mode=wal, delete, truncate, persist, memory or off, and synchronous=off, normal, full or extra", p)
		}
	}
	return d, nil
}

var levels = []sqlitedb.Synchronous{sqlitedb.Off, sqlitedb.Normal, sqlitedb.Full, sqlitedb.Extra}

func (d DSN) String() string {
	var params []string
	if d.Journal != "" {
		params = append(params, "journal_mode="+string(d.Journal))
	}
	if d.Synchronous != "" {
		params = append(params, "synchronous="+string(d.Synchronous))
	}
	if len(params) == 0 {
		return "sqlite:" + d.Path
	}
	return "sqlite:" + d.Path + "?" + strings.Join(params, "&")
}

// headerSize is that of a database file's header, in bytes.
const headerSize = 100

// reading is what there is to see of a file.
type reading struct {
	path   string   // absolute, links resolved, as SQLite does for the files beside it
	header []byte   // up to headerSize
	beside []string // the names that SQLite would give to its other files, those that are there
}

// Check reads a file of this machine. The error is that the file cannot be read, or ctx's.
func Check(ctx context.Context, dsn DSN) (*databases.Report, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	path, err := filepath.EvalSymlinks(dsn.Path)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return nil, fmt.Errorf("find the database file: %w", err)
	}
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("find the database file: %w", err)
	}
	if !st.Mode().IsRegular() { // reading from a pipe could block, and would take from it
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	read := reading{path: path}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the database file: %w", err)
	}
	defer f.Close()
	if read.header, err = io.ReadAll(io.LimitReader(f, headerSize)); err != nil {
		return nil, fmt.Errorf("read the database file: %w", err)
	}
	for _, end := range []string{"-journal", "-wal", "-shm"} {
		switch _, err := os.Lstat(path + end); {
		case err == nil:
			read.beside = append(read.beside, end)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("look for %s%s: %w", path, end, err)
		}
	}
	return judge(dsn, &read), nil
}

// CheckOn reads a file of the runner's host: head(1) reads the header.
func CheckOn(ctx context.Context, host hostcheck.Runner, dsn DSN) (*databases.Report, error) {
	path, err := host.RealPath(ctx, dsn.Path)
	if err != nil {
		return nil, fmt.Errorf("find the database file: %w", err)
	}
	// A pipe would be emptied by reading it.
	kind, err := host.Run(ctx, "stat", "-c", "%F", "--", path)
	if err == nil && kind.Code == 0 && !bytes.HasPrefix(kind.Stdout, []byte("regular")) {
		return nil, fmt.Errorf("the database file: %s is a %s", path, bytes.TrimSpace(kind.Stdout))
	}
	out, err := host.Run(ctx, "head", "-c", fmt.Sprint(headerSize), "--", path)
	if err == nil && out.Code != 0 {
		err = fmt.Errorf("head: %s", bytes.TrimSpace(out.Stderr))
	}
	if err != nil {
		return nil, fmt.Errorf("read the database file: %w", err)
	}
	names, err := host.ReadDir(ctx, filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("look beside the database file: %w", err)
	}
	read := reading{path: path, header: out.Stdout}
	for _, end := range []string{"-journal", "-wal", "-shm"} {
		if slices.Contains(names, filepath.Base(path)+end) {
			read.beside = append(read.beside, end)
		}
	}
	return judge(dsn, &read), nil
}

// mode is what bytes 18 and 19 of the header say.
type mode string

const (
	wal      mode = "wal"
	rollback mode = "a rollback journal"
	none     mode = "not kept yet" // an empty file is a database without a page
)

// parse reads a header; see https://www.sqlite.org/fileformat2.html, section 1.3.
func parse(header []byte) (m mode, version uint32, err error) {
	if len(header) == 0 {
		return none, 0, nil
	}
	if len(header) < headerSize || !bytes.HasPrefix(header, []byte("SQLite format 3\x00")) {
		return "", 0, errors.New("it has no header of a SQLite database; one that is encrypted has none that can be read")
	}
	if header[21] != 64 || header[22] != 32 || header[23] != 32 {
		return "", 0, errors.New("its header has values that SQLite never writes")
	}
	version = binary.BigEndian.Uint32(header[96:])
	switch [2]byte(header[18:20]) {
	case [2]byte{1, 1}:
		return rollback, version, nil
	case [2]byte{2, 2}:
		return wal, version, nil
	}
	return "", version, fmt.Errorf("its file format is %d for writing and %d for reading, and only 1 (rollback journal) and 2 (WAL) are known", header[18], header[19])
}

// judge is pure.
func judge(dsn DSN, read *reading) *databases.Report {
	r := &databases.Report{Kind: databases.SQLite, Where: dsn.String()}
	r.Folder(filepath.Dir(read.path), "the database file and its journal", "the path")
	for _, end := range read.beside {
		r.Fact("beside", filepath.Base(read.path)+end, filepath.Dir(read.path))
	}
	m, version, err := parse(read.header)
	if err != nil {
		r.Find(hostcheck.Unknown, "sqlite_header_not_known", databases.Quote(read.path)+": "+err.Error())
		return r
	}
	if version != 0 {
		r.Version = fmt.Sprintf("%d.%d.%d", version/1_000_000, version/1000%1000, version%1000)
		r.Fact("version", r.Version, "the last writer, in the file's header")
	}
	if slices.Contains(read.beside, "-journal") && m == wal {
		// It may hold another header: a change from or to WAL that a crash cut short.
		r.Find(hostcheck.Unknown, "sqlite_header_not_known", "a rollback journal lies beside this WAL database: which of the two holds is decided when SQLite opens it next")
		return r
	}
	if said := dsn.Journal; said != "" && m != none && (said == sqlitedb.WAL) != (m == wal) {
		r.Judge("sqlite_journal_mode_contradicted", databases.Setting{Name: "journal_mode", Value: string(m), Level: hostcheck.Unknown, Where: "the file's header",
			Risk: "the connections were said to use " + string(said) + ", and the file says otherwise"})
		return r
	}
	judgeModes(r, m, dsn)
	return r
}

func judgeModes(r *databases.Report, m mode, dsn DSN) {
	journal, whence := dsn.Journal, "as was said of its connections"
	if m == wal {
		journal, whence = sqlitedb.WAL, "the file's header"
	}
	if journal != "" && dsn.Synchronous != "" {
		judgeBoth(r, journal, dsn.Synchronous, whence)
		return
	}
	if journal == "" {
		value, from := string(m), "the file's header; which kind of rollback journal each connection chooses"
		if m == none {
			from = "an empty file"
		}
		r.Judge("sqlite_rollback_journal", databases.Setting{Name: "journal_mode", Value: value, Safe: "wal, truncate or persist with synchronous=FULL, or delete with EXTRA", Level: hostcheck.Warning, Where: from,
			Risk: "SQLite's defaults, DELETE with FULL, do not make the journal's deletion durable, so that a power cut can roll back the last commit; MEMORY and OFF can damage the database"})
	} else {
		r.Settings = append(r.Settings, databases.Setting{Name: "journal_mode", Value: string(journal), Where: whence, Risk: "the log of a WAL database is flushed as synchronous says"})
	}
	safe, risk := "FULL", "NORMAL can lose the last commits, and OFF can damage the database"
	if m != wal {
		safe, risk = "EXTRA, or FULL where the journal is truncated or persists", "less can lose commits, and OFF can damage the database"
	}
	s := databases.Setting{Name: "synchronous", Value: "not in the file", Safe: safe, Risk: "each connection chooses it for itself: " + risk, Level: hostcheck.Unknown}
	if dsn.Synchronous != "" {
		s.Value, s.Where, s.Level, s.Risk = string(dsn.Synchronous), "as was said of its connections", hostcheck.OK, risk
		if dsn.Synchronous == sqlitedb.Off {
			s.Level = hostcheck.Critical
		}
		r.Judge("sqlite_synchronous", s)
		return
	}
	r.Judge("sqlite_synchronous_not_known", s)
}

// judgeBoth judges what was said of the connections by the rules that the project's own runs go by.
func judgeBoth(r *databases.Report, j sqlitedb.Journal, s sqlitedb.Synchronous, whence string) {
	rows := []databases.Setting{
		{Name: "journal_mode", Value: string(j), Safe: "wal, truncate or persist", Where: whence},
		{Name: "synchronous", Value: string(s), Safe: "full", Where: "as was said of its connections"},
	}
	if j == sqlitedb.Delete {
		rows[1].Safe = string(sqlitedb.Extra)
	}
	codes := map[string]string{"journal_mode": "sqlite_journal_mode", "synchronous": "sqlite_synchronous"}
	for _, p := range sqlitedb.Problems(j, s) {
		for i := range rows {
			if rows[i].Name == p.Name {
				rows[i].Safe, rows[i].Risk, rows[i].Level = p.Safe, p.Risk, hostcheck.Critical
			}
		}
	}
	for _, row := range rows {
		r.Judge(codes[row.Name], row)
	}
}
