package sqlite

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ncruces/go-sqlite3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/hostcheck"
	"plugpull/internal/hostcheck/databases"
)

type findings = map[string]hostcheck.Level

func codes(r *databases.Report) findings {
	m := findings{}
	for _, f := range r.Findings {
		m[f.Code] = f.Level
	}
	return m
}

// open opens a file as a program would, and closes it with the test.
func open(t *testing.T, path string, statements ...string) *sqlite3.Conn {
	t.Helper()
	c, err := sqlite3.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	for _, q := range statements {
		require.NoError(t, c.Exec(q), q)
	}
	return c
}

func made(t *testing.T, statements ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shop.db")
	require.NoError(t, open(t, path, statements...).Close())
	return path
}

const (
	c = hostcheck.Critical
	w = hostcheck.Warning
	u = hostcheck.Unknown
)

func TestRealFiles(t *testing.T) {
	wal := made(t, "PRAGMA journal_mode=wal", "CREATE TABLE t(i)")
	rollback := made(t, "CREATE TABLE t(i)")
	for name, tt := range map[string]struct {
		dsn  string
		want findings
	}{
		"a WAL":                  {wal, findings{"sqlite_synchronous_not_known": u}},
		"a rollback journal":     {rollback, findings{"sqlite_rollback_journal": w, "sqlite_synchronous_not_known": u}},
		"WAL, FULL":              {wal + "?synchronous=full", findings{}},
		"WAL, EXTRA":             {wal + "?journal_mode=wal&synchronous=extra", findings{}},
		"WAL, NORMAL":            {wal + "?synchronous=normal", findings{"sqlite_synchronous": c}},
		"WAL, OFF":               {wal + "?synchronous=off", findings{"sqlite_synchronous": c}},
		"DELETE, EXTRA":          {rollback + "?journal_mode=delete&synchronous=extra", findings{}},
		"DELETE, FULL":           {rollback + "?journal_mode=delete&synchronous=full", findings{"sqlite_synchronous": c}},
		"DELETE, not known":      {rollback + "?journal_mode=delete", findings{"sqlite_synchronous_not_known": u}},
		"TRUNCATE, FULL":         {rollback + "?journal_mode=TRUNCATE&synchronous=FULL", findings{}},
		"PERSIST, FULL":          {rollback + "?journal_mode=persist&synchronous=full", findings{}},
		"PERSIST, NORMAL":        {rollback + "?journal_mode=persist&synchronous=normal", findings{"sqlite_synchronous": c}},
		"MEMORY":                 {rollback + "?journal_mode=memory&synchronous=full", findings{"sqlite_journal_mode": c}},
		"no journal, no flush":   {rollback + "?journal_mode=off&synchronous=off", findings{"sqlite_journal_mode": c, "sqlite_synchronous": c}},
		"only synchronous, OFF":  {rollback + "?synchronous=off", findings{"sqlite_rollback_journal": w, "sqlite_synchronous": c}},
		"only synchronous, FULL": {rollback + "?synchronous=full", findings{"sqlite_rollback_journal": w}},
		"said and not so":        {rollback + "?journal_mode=wal&synchronous=full", findings{"sqlite_journal_mode_contradicted": u}},
		"said and not so, WAL":   {wal + "?journal_mode=delete&synchronous=extra", findings{"sqlite_journal_mode_contradicted": u}},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := ParseDSN("sqlite:" + tt.dsn)
			require.NoError(t, err)
			r, err := Check(context.Background(), d)
			require.NoError(t, err)
			assert.Equal(t, tt.want, codes(r))
			assert.Len(t, r.Settings, map[bool]int{true: 1, false: 2}[len(tt.want) > 0 && codes(r)["sqlite_journal_mode_contradicted"] != 0])
			assert.Regexp(t, `^3\.\d+\.\d+$`, r.Version)

			remote, err := CheckOn(context.Background(), local{}, d)
			require.NoError(t, err)
			assert.Equal(t, r, remote, "asked through a runner it is the same")
		})
	}
}

// A check changes no byte, no name and no time beside the database, while a program has it open, and where one
// was killed.
func TestChangesNothing(t *testing.T) {
	inUse := filepath.Join(t.TempDir(), "a.db")
	open(t, inUse, "PRAGMA journal_mode=wal", "PRAGMA wal_autocheckpoint=0", "CREATE TABLE t(i)", "INSERT INTO t VALUES (1)")
	crashed := filepath.Join(t.TempDir(), "a.db")
	for _, end := range []string{"", "-wal"} { // what a crash leaves: a log that is not in the file yet
		b, err := os.ReadFile(inUse + end)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(crashed+end, b, 0o600))
	}
	transaction := filepath.Join(t.TempDir(), "a.db")
	open(t, transaction, "CREATE TABLE t(i)", "PRAGMA cache_size=1", "BEGIN", "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) INSERT INTO t SELECT i FROM n")
	require.FileExists(t, transaction+"-journal")
	locked := made(t, "CREATE TABLE t(i)")
	require.NoError(t, os.Chmod(locked, 0o400))

	for name, tt := range map[string]struct {
		path   string
		beside []string
	}{
		"in use":      {inUse, []string{"a.db-wal", "a.db-shm"}},
		"crashed":     {crashed, []string{"a.db-wal"}},
		"transaction": {transaction, []string{"a.db-journal"}},
		"read-only":   {locked, nil},
		"no -wal yet": {made(t, "PRAGMA journal_mode=wal", "CREATE TABLE t(i)"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			before := snapshot(t, filepath.Dir(tt.path))
			r, err := Check(context.Background(), DSN{Path: tt.path})
			require.NoError(t, err)
			_, err = CheckOn(context.Background(), local{}, DSN{Path: tt.path})
			require.NoError(t, err)
			assert.Equal(t, before, snapshot(t, filepath.Dir(tt.path)))
			var beside []string
			for _, f := range r.Facts {
				if f.Key == "beside" {
					beside = append(beside, f.Value)
				}
			}
			assert.Equal(t, tt.beside, beside)
		})
	}
	// The proof can fail: a plain read through SQLite does change a folder.
	before := snapshot(t, filepath.Dir(crashed))
	open(t, crashed, "SELECT * FROM t")
	assert.NotEqual(t, before, snapshot(t, filepath.Dir(crashed)))
}

// snapshot has the names, contents, modes and times of a folder, its own among them.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	m := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		var sum [32]byte
		if !d.IsDir() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			sum = sha256.Sum256(b)
		}
		m[path] = fmt.Sprintf("%x %v %v", sum, st.Mode(), st.ModTime())
		return nil
	}))
	return m
}

func TestWhatIsNoDatabase(t *testing.T) {
	valid, err := os.ReadFile(made(t, "CREATE TABLE t(i)"))
	require.NoError(t, err)
	with := func(at int, b ...byte) []byte {
		c := slices.Clone(valid)
		copy(c[at:], b)
		return c
	}
	for name, tt := range map[string]struct {
		contents []byte
		code     string
	}{
		"garbage":               {[]byte("hello, this is a text and no database, though it is quite long, longer indeed than a header has to be"), "sqlite_header_not_known"},
		"cut short":             {valid[:99], "sqlite_header_not_known"},
		"a format of tomorrow":  {with(18, 3, 3), "sqlite_header_not_known"},
		"formats that disagree": {with(18, 2, 1), "sqlite_header_not_known"},
		"format 0":              {with(18, 0, 0), "sqlite_header_not_known"},
		"damaged":               {with(21, 1), "sqlite_header_not_known"},
		"empty":                 {nil, "sqlite_synchronous_not_known"},
	} {
		path := filepath.Join(t.TempDir(), "f")
		require.NoError(t, os.WriteFile(path, tt.contents, 0o600))
		r, err := Check(context.Background(), DSN{Path: path})
		require.NoError(t, err, name)
		assert.Equal(t, u, r.Level(), name)
		assert.Contains(t, codes(r), tt.code, name)
	}
	wal := made(t, "PRAGMA journal_mode=wal", "CREATE TABLE t(i)")
	require.NoError(t, os.WriteFile(wal+"-journal", []byte("x"), 0o600))
	r, err := Check(context.Background(), DSN{Path: wal, Synchronous: "full"})
	require.NoError(t, err)
	assert.Equal(t, findings{"sqlite_header_not_known": u}, codes(r), "the journal may hold another header")

	_, err = Check(context.Background(), DSN{Path: filepath.Join(t.TempDir(), "none")})
	assert.ErrorIs(t, err, fs.ErrNotExist)
	_, err = Check(context.Background(), DSN{Path: t.TempDir()})
	assert.Error(t, err, "a folder")
	_, err = CheckOn(context.Background(), local{}, DSN{Path: t.TempDir()})
	assert.Error(t, err, "a folder, asked through a runner")
}

func TestLinkIsFollowed(t *testing.T) {
	path := made(t, "PRAGMA journal_mode=wal")
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(path, link))
	r, err := Check(context.Background(), DSN{Path: link})
	require.NoError(t, err)
	assert.Equal(t, filepath.Dir(path), r.Folders[0].Path, "SQLite puts its other files beside the file, not beside the link")
}

func TestParseDSN(t *testing.T) {
	for _, s := range []string{"sqlite:/a b.db", "sqlite:rel", "sqlite:/x?journal_mode=wal&synchronous=full", "sqlite:/what?.db?synchronous=off"} {
		d, err := ParseDSN(s)
		require.NoError(t, err, s)
		assert.Equal(t, s, d.String())
	}
	for _, s := range []string{"", "sqlite:", "/x", "sqlite://host/x", "sqlite:/x?", "sqlite:/x?synchronous=3", "sqlite:/x?journal_mode=wal2", "sqlite:/x?cache=shared",
		"sqlite:/x?synchronous=full&synchronous=off", "sqlite:/x?journal_mode"} {
		_, err := ParseDSN(s)
		assert.Error(t, err, s)
	}
}

// Without the whole header of a known format there is a level, and it is never OK; with it alone neither.
func FuzzJudge(f *testing.F) {
	f.Add([]byte("SQLite format 3\x00"), true)
	f.Add(make([]byte, headerSize), false)
	f.Fuzz(func(t *testing.T, header []byte, journal bool) {
		read := reading{path: "/x/y", header: header[:min(len(header), headerSize)]}
		if journal {
			read.beside = []string{"-journal"}
		}
		require.NotEqual(t, hostcheck.OK, judge(DSN{Path: "/x/y"}, &read).Level())
		if _, _, err := parse(read.header); err != nil {
			require.NotEqual(t, hostcheck.OK, judge(DSN{Path: "/x/y", Journal: "wal", Synchronous: "full"}, &read).Level())
		}
	})
}

// local is a runner for this machine, as far as a check needs one.
type local struct{}

func (local) Run(ctx context.Context, name string, args ...string) (hostcheck.Output, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return hostcheck.Output{Stdout: out, Stderr: exit.Stderr, Code: exit.ExitCode()}, nil
	}
	return hostcheck.Output{Stdout: out}, err
}

func (local) ReadFile(_ context.Context, path string) ([]byte, error) { return os.ReadFile(path) }

func (local) ReadDir(_ context.Context, path string) (names []string, err error) {
	entries, err := os.ReadDir(path)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

func (local) RealPath(_ context.Context, path string) (string, error) {
	return filepath.EvalSymlinks(path)
}

func (local) Describe() string { return "this machine" }
