package sqlitevfs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const sqliteSize = offExtents + 2*files*(2<<20)

// machine is a mounted drive with its VFS.
type machine struct {
	d    *device
	fs   *FS
	name string
}

func start(t testing.TB, d *device) *machine {
	t.Helper()
	m := &machine{d: d, fs: mount(t, d)}
	var err error
	m.name, err = m.fs.Register(t.TempDir())
	require.NoError(t, err)
	return m
}

func (m *machine) stop(t testing.TB) {
	t.Helper()
	dir := m.fs.reg.dir
	require.NoError(t, m.fs.Unregister())
	require.NoError(t, m.fs.Unregister(), "again")
	_, err := os.Stat(dir)
	require.ErrorIs(t, err, os.ErrNotExist, "the WAL index is gone")
}

func (m *machine) connect(t testing.TB, pragmas ...string) *sqlite3.Conn {
	t.Helper()
	c, err := sqlite3.Open("file:t.db?vfs=" + m.name)
	require.NoError(t, err)
	for _, p := range pragmas {
		require.NoError(t, c.Exec("PRAGMA "+p))
	}
	return c
}

func number(t testing.TB, c *sqlite3.Conn, q string) int64 {
	t.Helper()
	s, _, err := c.Prepare(q)
	require.NoError(t, err, q)
	require.True(t, s.Step(), "%s: %v", q, s.Err())
	n := s.ColumnInt64(0)
	require.NoError(t, s.Close())
	return n
}

// TestCrashes cuts the power at every kind of request of a load of commits, many
// times. Whatever the drive leaves of what was not flushed, the database must be
// whole, and hold all that was acknowledged where the settings promise it.
func TestCrashes(t *testing.T) {
	for _, c := range []struct {
		journal, synchronous string
		extra                string
		durable              bool
	}{
		{"wal", "full", "wal_autocheckpoint=8", true},
		{"wal", "normal", "wal_autocheckpoint=8", false},
		{"wal", "full", "locking_mode=exclusive", true},
		{"delete", "extra", "cache_size=4", true},
		{"delete", "full", "cache_size=4", false},
		{"truncate", "full", "cache_size=4", true},
		{"truncate", "normal", "cache_size=4", false},
		{"delete", "normal", "cache_size=4", false},
		{"persist", "full", "cache_size=4", true},
	} {
		t.Run(strings.Join([]string{c.journal, c.synchronous, c.extra}, " "), func(t *testing.T) {
			pragmas := []string{c.extra, "synchronous=" + c.synchronous, "journal_mode=" + c.journal}
			lost := 0
			for seed := range uint64(20) {
				if testing.Short() && seed >= 5 {
					break
				}
				r := rand.New(rand.NewPCG(seed, 1))
				lost += crash(t, r, seed, c.durable, pragmas)
			}
			t.Logf("%d commits lost", lost)
			if !c.durable {
				assert.NotZero(t, lost, "a cut shows what these settings lose")
			}
		})
	}
}

// crash runs three cuts on one drive and returns how many commits were lost.
func crash(t *testing.T, r *rand.Rand, seed uint64, durable bool, pragmas []string) (lost int) {
	d := newDevice(sqliteSize)
	require.NoError(t, Format(d))
	m := start(t, d)
	c := m.connect(t, pragmas...)
	require.NoError(t, c.Exec("CREATE TABLE t (n INTEGER PRIMARY KEY, p BLOB) STRICT"))
	require.NoError(t, m.fs.Sync())
	acked, sent := int64(0), int64(0)
	for range 3 {
		m.d.ops, m.d.trap = 0, 1+r.IntN(120)
		for {
			sent++
			err := c.Exec(fmt.Sprintf("INSERT INTO t VALUES (%d, randomblob(%d))", sent, 50+r.IntN(6000)))
			if err != nil {
				require.True(t, m.d.off, "seed %d: %v", seed, err)
				require.True(t, errors.Is(err, sqlite3.IOERR) || errors.Is(err, sqlite3.CANTOPEN), "seed %d: %v", seed, err)
				break
			}
			acked = sent
		}
		_ = c.Close() // fails, and must not panic
		m.stop(t)

		m = start(t, m.d.cut(some(r)))
		c = m.connect(t, pragmas...)
		s, _, err := c.Prepare("PRAGMA integrity_check")
		require.NoError(t, err, "seed %d", seed)
		require.True(t, s.Step())
		require.Equal(t, "ok", s.ColumnText(0), "seed %d", seed)
		require.NoError(t, s.Close())
		last := number(t, c, "SELECT coalesce(max(n), 0) FROM t")
		require.Equal(t, last, number(t, c, "SELECT count(*) FROM t"), "seed %d: only the last may be missing", seed)
		require.LessOrEqual(t, last, sent)
		if durable {
			require.GreaterOrEqual(t, last, acked, "seed %d", seed)
		}
		lost += int(max(0, acked-last))
		sent, acked = last, last
	}
	require.NoError(t, c.Close())
	m.stop(t)
	return lost
}

// TestTwoConnections share a WAL index, see each other's commits, and keep each
// other from writing at the same time.
func TestTwoConnections(t *testing.T) {
	for _, journal := range []string{"wal", "delete", "truncate"} {
		t.Run(journal, func(t *testing.T) {
			d := newDevice(sqliteSize)
			require.NoError(t, Format(d))
			m := start(t, d)
			a := m.connect(t, "journal_mode="+journal)
			require.NoError(t, a.Exec("CREATE TABLE t (n INTEGER PRIMARY KEY)"))
			b := m.connect(t)

			require.NoError(t, a.Exec("BEGIN IMMEDIATE; INSERT INTO t VALUES (1)"))
			assert.ErrorIs(t, b.Exec("BEGIN IMMEDIATE"), sqlite3.BUSY)
			assert.EqualValues(t, 0, number(t, b, "SELECT count(*) FROM t"), "not committed yet")
			require.NoError(t, a.Exec("COMMIT"))
			assert.EqualValues(t, 1, number(t, b, "SELECT count(*) FROM t"))

			require.NoError(t, b.Exec("BEGIN; SELECT * FROM t"))
			err := a.Exec("INSERT INTO t VALUES (2)")
			if journal == "wal" {
				assert.NoError(t, err, "a reader does not stop a writer")
				assert.EqualValues(t, 1, number(t, b, "SELECT count(*) FROM t"), "its snapshot")
			} else {
				assert.ErrorIs(t, err, sqlite3.BUSY)
			}
			require.NoError(t, b.Exec("COMMIT"))
			require.NoError(t, b.Exec("INSERT INTO t VALUES (3)"))

			done := make(chan error)
			write := func(c *sqlite3.Conn, from int) {
				for n := range 50 {
					err := c.Exec(fmt.Sprintf("INSERT INTO t VALUES (%d)", from+n))
					for errors.Is(err, sqlite3.BUSY) {
						err = c.Exec(fmt.Sprintf("INSERT INTO t VALUES (%d)", from+n))
					}
					if err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}
			before := number(t, a, "SELECT count(*) FROM t")
			go write(a, 1000)
			go write(b, 2000)
			require.NoError(t, errors.Join(<-done, <-done))
			assert.Equal(t, before+100, number(t, a, "SELECT count(*) FROM t"))
			require.NoError(t, errors.Join(a.Close(), b.Close()))
			m.stop(t)
		})
	}
}

// TestLocks is SQLite's table of locks between two connections.
func TestLocks(t *testing.T) {
	const (
		none      = vfs.LOCK_NONE
		shared    = vfs.LOCK_SHARED
		reserved  = vfs.LOCK_RESERVED
		pending   = vfs.LOCK_PENDING
		exclusive = vfs.LOCK_EXCLUSIVE
	)
	raise := func(f *sqliteFile, to vfs.LockLevel) (err error) {
		for _, level := range []vfs.LockLevel{shared, reserved, exclusive} {
			if level <= to && err == nil {
				err = f.Lock(level)
			}
		}
		return err
	}
	for _, c := range []struct {
		a, b vfs.LockLevel // a holds, b wants
		busy bool
		have vfs.LockLevel // by b in the end
	}{
		{none, exclusive, false, exclusive},
		{shared, shared, false, shared},
		{shared, reserved, false, reserved},
		{shared, exclusive, true, pending},
		{reserved, shared, false, shared},
		{reserved, reserved, true, shared},
		{reserved, exclusive, true, shared},
		{exclusive, shared, true, none},
	} {
		t.Run(fmt.Sprintf("%d against %d", c.b, c.a), func(t *testing.T) {
			_, fs := format(t)
			a := &sqliteFile{File: file(t, fs, "f")}
			b := &sqliteFile{File: file(t, fs, "f")}
			require.NoError(t, raise(a, c.a))
			err := raise(b, c.b)
			assert.Equal(t, c.busy, errors.Is(err, sqlite3.BUSY), "%v", err)
			assert.Equal(t, c.have, b.LockState())
			held, _ := a.CheckReservedLock()
			assert.Equal(t, c.a >= reserved || c.have >= reserved, held)

			if c.have == pending { // no new reader, until the old one is gone
				late := &sqliteFile{File: file(t, fs, "f")}
				assert.ErrorIs(t, late.Lock(shared), sqlite3.BUSY)
				require.NoError(t, a.Unlock(none))
				require.NoError(t, b.Lock(exclusive))
			}
			require.NoError(t, a.Close())
			require.NoError(t, b.Close())
			late := &sqliteFile{File: file(t, fs, "f")}
			assert.NoError(t, raise(late, exclusive), "closing releases everything")
		})
	}
	// Two readers that find a hot journal both want EXCLUSIVE: one gets in.
	_, fs := format(t)
	a, b := &sqliteFile{File: file(t, fs, "f")}, &sqliteFile{File: file(t, fs, "f")}
	require.NoError(t, errors.Join(a.Lock(shared), b.Lock(shared)))
	assert.ErrorIs(t, a.Lock(exclusive), sqlite3.BUSY)
	assert.ErrorIs(t, b.Lock(exclusive), sqlite3.BUSY)
	require.NoError(t, b.Unlock(none))
	assert.NoError(t, a.Lock(exclusive))
	// A reader of a read-only file takes no write lock.
	a = &sqliteFile{File: file(t, fs, "g"), readOnly: true}
	require.NoError(t, a.Lock(shared))
	assert.ErrorIs(t, a.Lock(reserved), sqlite3.IOERR_LOCK)
}

// TestErrorsOfTheDevice: SQLite says which request failed; a full extent is SQLITE_FULL.
func TestErrorsOfTheDevice(t *testing.T) {
	d := newDevice(sqliteSize)
	require.NoError(t, Format(d))
	m := start(t, d)
	defer m.stop(t)
	c := m.connect(t, "journal_mode=wal", "synchronous=full", "cache_size=1")
	require.NoError(t, c.Exec("CREATE TABLE t (p BLOB)"))
	assert.ErrorIs(t, c.Exec("INSERT INTO t VALUES (randomblob(3000000))"), sqlite3.FULL)
	assert.True(t, c.GetAutocommit())
	require.NoError(t, c.Exec("INSERT INTO t VALUES (randomblob(100))"))

	d.ops, d.trap = 0, 1
	err := c.Exec("INSERT INTO t VALUES (randomblob(100))")
	assert.ErrorIs(t, err, sqlite3.IOERR_WRITE)
	_ = c.Close()

	_, err = sqlite3.Open("file:a%2fb?vfs=" + m.name)
	assert.ErrorIs(t, err, sqlite3.CANTOPEN, "there are no folders")
	_, err = sqlite3.OpenFlags("file:none?vfs="+m.name, sqlite3.OPEN_READWRITE|sqlite3.OPEN_URI)
	assert.ErrorIs(t, err, sqlite3.CANTOPEN)
}

func BenchmarkCommit(b *testing.B) {
	for _, journal := range []string{"wal", "truncate"} {
		b.Run(journal, func(b *testing.B) {
			d := newDevice(offExtents + 2*files*(8<<20))
			require.NoError(b, Format(d))
			m := start(b, d)
			defer m.stop(b)
			c := m.connect(b, "journal_mode="+journal, "synchronous=full")
			require.NoError(b, c.Exec("CREATE TABLE t (n INTEGER PRIMARY KEY, p BLOB)"))
			s, _, err := c.Prepare("INSERT INTO t VALUES (?, randomblob(200))")
			require.NoError(b, err)
			n := int64(0)
			for b.Loop() {
				if n++; n%10000 == 0 { // keep it small
					require.NoError(b, c.Exec("DELETE FROM t"))
				}
				require.NoError(b, s.BindInt64(1, n))
				require.NoError(b, s.Exec())
			}
			require.NoError(b, errors.Join(s.Close(), c.Close()))
		})
	}
}
