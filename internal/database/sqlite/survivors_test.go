package sqlite

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/ncruces/go-sqlite3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/workload"
	"plugpull/verifier"
)

const page = 4096

// root returns the offset of a table's first page in the file, whose contents
// are moved there from a WAL.
func root(t testing.TB, b *bench, table workload.Table) int64 {
	t.Helper()
	c, err := b.connect(bg, true)
	require.NoError(t, err)
	if b.pragmas.Journal == WAL {
		require.NoError(t, c.Exec("PRAGMA wal_checkpoint(TRUNCATE)"))
	}
	n := int64(0)
	require.NoError(t, query(c, "SELECT rootpage FROM sqlite_schema WHERE name = ?", func(s *sqlite3.Stmt) error {
		n = s.ColumnInt64(0)
		return nil
	}, tableName(table, 1)))
	require.NoError(t, c.Close())
	require.NotZero(t, n)
	return (n - 1) * page
}

// edit changes bytes of the database file behind SQLite's back.
func edit(t testing.TB, b *bench, off int64, change func(p []byte)) {
	t.Helper()
	f, err := b.fs.File("test.db")
	require.NoError(t, err)
	p := make([]byte, page)
	_, err = f.ReadAt(p, off)
	require.NoError(t, err)
	change(p)
	_, err = f.WriteAt(p, off)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// wipe zeroes a table's first page.
func wipe(t testing.TB, b *bench, table workload.Table) {
	t.Helper()
	edit(t, b, root(t, b, table), func(p []byte) { clear(p) })
}

func TestSurvivors(t *testing.T) {
	for _, journal := range []Journal{WAL, Truncate} {
		t.Run(string(journal), func(t *testing.T) {
			w := params(workload.Transfer)
			b := prepared(t, Pragmas{Journal: journal, Synchronous: Full}, w)
			s := survivorsOf(t, b)
			streams, err := s.Streams(bg, workload.TableA)
			require.NoError(t, err)
			assert.Empty(t, streams)

			b2 := mount(t, b.d, b.pragmas)
			for _, stream := range []workload.Stream{65535, 3, 1} {
				fill(t, b2, w, stream, 300)
			}
			s, release, err := b2.Survivors(1)
			require.NoError(t, err)
			for _, table := range w.Profile.Tables() {
				streams, err = s.Streams(bg, table)
				require.NoError(t, err)
				assert.Equal(t, []workload.Stream{1, 3, 65535}, streams)
			}
			assert.Len(t, rows(t, s, w, workload.TableA, 3), 300)
			assert.Equal(t, []workload.Seq{300}, rows(t, s, w, workload.TableHead, 3))
			assert.Empty(t, rows(t, s, w, workload.TableA, 4))

			// Cursors are used in turn and start where they are told to.
			one, err := s.Rows(bg, workload.TableA, 1, 200)
			require.NoError(t, err)
			other, err := s.Rows(bg, workload.TableA, 3, 250)
			require.NoError(t, err)
			var r, o workload.Row
			for i := range workload.Seq(50) {
				ok, err := one.Next(&r)
				require.NoError(t, err)
				require.True(t, ok)
				ok, err = other.Next(&o)
				require.NoError(t, err)
				require.True(t, ok)
				require.Equal(t, 200+i, r.Seq)
				require.Equal(t, 250+i, o.Seq)
				require.True(t, w.Intact(&r) && w.Intact(&o), "a row is valid until its own cursor goes on")
			}
			require.NoError(t, one.Close())
			require.NoError(t, one.Close())
			_, err = one.Next(&r)
			assert.Error(t, err, "closed")
			require.NoError(t, other.Close())
			assert.Len(t, rows(t, s, w, workload.TableA, 1), 300, "a cursor that was not read to its end is used again")

			ctx, cancel := context.WithCancel(bg)
			one, err = s.Rows(ctx, workload.TableA, 1, 1<<63)
			require.NoError(t, err)
			cancel()
			_, err = one.Next(&r)
			assert.ErrorIs(t, err, context.Canceled)
			require.NoError(t, one.Close())
			require.NoError(t, release())
			require.NoError(t, release(), "again")
		})
	}
}

// TestReaderMovesNothing: a verification leaves the WAL as the cut left it.
func TestReaderMovesNothing(t *testing.T) {
	w := params(workload.Append)
	b := prepared(t, Pragmas{Journal: WAL, Synchronous: Full}, w)
	c := dial(t, b, w)
	for n := range workload.Seq(20) {
		c.Commit(bg, workload.Op{Stream: 1, Seq: n + 1, First: 1})
	}
	after := mount(t, b.d.restart(true), b.pragmas)
	s, release, err := after.Survivors(1)
	require.NoError(t, err)
	assert.Len(t, rows(t, s, w, workload.TableAppend, 1), 20)
	require.NoError(t, release())
	assert.Zero(t, after.d.ops, "it has written and flushed nothing")
	_ = c.Close()
}

// TestDamage plants what a drive may do to the file: what SQLite declares
// damaged is unreadable, a changed row is a row that is not intact.
func TestDamage(t *testing.T) {
	schema := func(text, by string) func(*testing.T, *bench) {
		return func(t *testing.T, b *bench) {
			require.Len(t, by, len(text))
			root(t, b, workload.TableAppend)
			edit(t, b, 0, func(p []byte) {
				for i := range p[:len(p)-len(text)] {
					if string(p[i:i+len(text)]) == text {
						copy(p[i:], by)
					}
				}
			})
		}
	}
	for _, c := range []struct {
		name  string
		plant func(t *testing.T, b *bench)
		code  sqlite3.ErrorCode
		run   bool // the run can still be read
	}{
		{"first page of the table zeroed", func(t *testing.T, b *bench) { wipe(t, b, workload.TableAppend) }, sqlite3.CORRUPT, true},
		{"leaf zeroed", func(t *testing.T, b *bench) {
			at := int64(binary.BigEndian.Uint32(pageOf(t, b, root(t, b, workload.TableAppend))[8:])-1) * page
			edit(t, b, at, func(p []byte) { clear(p) })
		}, sqlite3.CORRUPT, true},
		{"header garbled", func(t *testing.T, b *bench) {
			root(t, b, workload.TableAppend)
			edit(t, b, 0, func(p []byte) { p[0]++ })
		}, sqlite3.NOTADB, false},
		{"first page zeroed", func(t *testing.T, b *bench) {
			root(t, b, workload.TableAppend)
			edit(t, b, 0, func(p []byte) { clear(p) })
		}, sqlite3.NOTADB, false},
		{"schema tree garbled", func(t *testing.T, b *bench) {
			root(t, b, workload.TableAppend)
			edit(t, b, 0, func(p []byte) { clear(p[100:]) })
		}, sqlite3.CORRUPT, false},
		{"table renamed in the schema", schema("append_1", "append_2"), sqlite3.ERROR, true},
		{"column renamed in the schema", schema("payload BLOB", "paylord BLOB"), sqlite3.ERROR, true},
		{"schema text garbled", schema("CREATE TABLE append_1", "CRE\x00TE TABLE append_1"), sqlite3.CORRUPT, false},
		{"schema format from the future", func(t *testing.T, b *bench) {
			root(t, b, workload.TableAppend)
			edit(t, b, 0, func(p []byte) { p[47] = 9 })
		}, sqlite3.ERROR, false},
		{"file gone", func(t *testing.T, b *bench) { require.NoError(t, b.fs.Delete("test.db", true)) }, sqlite3.ERROR, false},
		{"file empty", func(t *testing.T, b *bench) {
			f, err := b.fs.File("test.db")
			require.NoError(t, err)
			require.NoError(t, f.Truncate(0))
			require.NoError(t, f.Close())
		}, sqlite3.ERROR, false},
		{"file cut short", func(t *testing.T, b *bench) {
			root(t, b, workload.TableAppend)
			f, err := b.fs.File("test.db")
			require.NoError(t, err)
			require.NoError(t, f.Truncate(3*page))
			require.NoError(t, f.Close())
		}, sqlite3.CORRUPT, false},
	} {
		for _, journal := range []Journal{WAL, Truncate} {
			t.Run(fmt.Sprint(c.name, " ", journal), func(t *testing.T) {
				w := params(workload.Append)
				b := prepared(t, Pragmas{Journal: journal, Synchronous: Full}, w)
				fill(t, b, w, 1, 100)
				c.plant(t, b)
				s := survivorsOf(t, b)
				err := readAll(s)
				var u *verifier.UnreadableError
				require.ErrorAs(t, err, &u)
				assert.Equal(t, workload.TableAppend, u.Table)
				assert.Equal(t, c.code, sqlite3.ErrorCode(u.Errno), "%v", err)

				id, err := b.Run(bg)
				require.NoError(t, err)
				assert.Equal(t, c.run, id == run)
			})
		}
	}
}

func pageOf(t testing.TB, b *bench, off int64) (p []byte) {
	edit(t, b, off, func(q []byte) { p = append(p, q...) })
	return p
}

// readAll reads every row of the append table.
func readAll(s verifier.Survivors) error {
	streams, err := s.Streams(bg, workload.TableAppend)
	if err != nil {
		return err
	}
	for _, stream := range streams {
		c, err := s.Rows(bg, workload.TableAppend, stream, 0)
		if err != nil {
			return err
		}
		defer c.Close()
		var r workload.Row
		for ok := true; ok; {
			if ok, err = c.Next(&r); err != nil {
				if _, again := c.Next(&r); again == nil {
					return fmt.Errorf("after %w the cursor has an end", err)
				}
				return err
			}
		}
	}
	return nil
}

// TestDamagedRow: every byte of a row's cell, changed, is a row that is not
// intact, is missing, or makes the table unreadable; it is never an error that says
// nothing. Behind the key no other row is touched; a damaged key may hide some.
func TestDamagedRow(t *testing.T) {
	w := params(workload.Append)
	w.PayloadMin, w.PayloadMax = 40, 40
	b := prepared(t, Pragmas{Journal: Truncate, Synchronous: Full}, w)
	fill(t, b, w, 7, 3)
	at := root(t, b, workload.TableAppend)
	before := pageOf(t, b, at)
	cell := int(binary.BigEndian.Uint16(before[8+2:])) // of row 2
	size := int(before[cell]) + 1
	require.Less(t, size, 100)
	const key = 9 // bytes: sizes and types, stream, seq
	damaged, unreadable := 0, 0
	for i := cell; i < cell+size; i++ {
		for _, flip := range []byte{1, 4, 0x80} {
			edit(t, b, at, func(p []byte) { p[i] ^= flip })
			s, release, err := b.Survivors(1)
			require.NoError(t, err)
			err = readAll(s)
			var u *verifier.UnreadableError
			switch {
			case err != nil:
				require.ErrorAs(t, err, &u, "byte %d", i-cell)
				unreadable++
			default:
				require.False(t, intact(t, s, w, 2), "byte %d", i-cell)
				if i-cell >= key {
					require.True(t, intact(t, s, w, 1) && intact(t, s, w, 3), "byte %d", i-cell)
				}
				damaged++
			}
			require.NoError(t, release())
			edit(t, b, at, func(p []byte) { p[i] ^= flip })
		}
	}
	t.Logf("%d times a damaged or missing row, %d times unreadable", damaged, unreadable)
	assert.NotZero(t, damaged)
	assert.NotZero(t, unreadable)
}

// intact reports whether row n of stream 7 is there as it was sent.
func intact(t testing.TB, s verifier.Survivors, w workload.Params, n workload.Seq) bool {
	c, err := s.Rows(bg, workload.TableAppend, 7, n)
	require.NoError(t, err)
	defer c.Close()
	var r workload.Row
	ok, err := c.Next(&r)
	if err != nil {
		var u *verifier.UnreadableError
		require.ErrorAs(t, err, &u)
	}
	return ok && r.Seq == n && w.Intact(&r)
}

// TestDeadDevice: that nothing can be read is no word of SQLite's on the data.
func TestDeadDevice(t *testing.T) {
	w := params(workload.Append)
	b := prepared(t, Pragmas{Journal: WAL, Synchronous: Full}, w)
	fill(t, b, w, 1, 100)
	b.d.off = true
	err := readAll(survivorsOf(t, b))
	require.Error(t, err)
	var u *verifier.UnreadableError
	assert.NotErrorAs(t, err, &u)
	_, err = b.Run(bg)
	assert.Error(t, err)
	_, err = b.Dial(bg, w, 1)
	assert.Error(t, err)
	assert.Error(t, b.Prepare(bg, w, 2))
}

func TestPrepare(t *testing.T) {
	w := params(workload.Churn)
	b := prepared(t, Pragmas{Journal: WAL, Synchronous: Full}, w)
	fill(t, b, w, 1, 20)
	require.NoError(t, b.Prepare(bg, w, 1), "again")
	require.NoError(t, b.Prepare(bg, w, 2))
	id, err := b.Run(bg)
	require.NoError(t, err)
	assert.Equal(t, run, id)
	assert.Contains(t, rows(t, survivorsOf(t, b), w, workload.TableChurn, 1), workload.Seq(20), "what is there stays")

	other := w
	other.Run = uuid.MustParse("00000000-0000-4000-8000-000000000001")
	var e *OtherRunError
	require.ErrorAs(t, b.Prepare(bg, other, 3), &e)
	assert.Equal(t, OtherRunError{Path: "test.db", Have: run, Want: other.Run}, *e)
	_, err = b.Dial(bg, w, 3)
	assert.Error(t, err, "its tables were not made")

	assert.Error(t, b.Prepare(bg, w.ForWitness(), 1), "the witness has no table")
	_, err = b.Dial(bg, w.ForWitness(), 1)
	assert.Error(t, err)
	assert.Error(t, b.Prepare(bg, workload.Params{}, 1))
}

func TestFacts(t *testing.T) {
	for _, c := range []struct {
		p    Pragmas
		want []string // name=value (safe
	}{
		{Pragmas{Journal: WAL, Synchronous: Full}, nil},
		{Pragmas{Journal: WAL, Synchronous: Extra}, nil},
		{Pragmas{Journal: WAL, Synchronous: Normal}, []string{"synchronous=normal (safe: full)"}},
		{Pragmas{Journal: WAL, Synchronous: Off}, []string{"synchronous=off (safe: full)"}},
		{Pragmas{Journal: Delete, Synchronous: Full}, []string{"synchronous=full (safe: extra)"}},
		{Pragmas{Journal: Delete, Synchronous: Normal}, []string{"synchronous=normal (safe: extra)"}},
		{Pragmas{Journal: Delete, Synchronous: Extra}, nil},
		{Pragmas{Journal: Truncate, Synchronous: Full}, nil},
		{Pragmas{Journal: Truncate, Synchronous: Normal}, []string{"synchronous=normal (safe: full)"}},
		{Pragmas{Journal: Persist, Synchronous: Full}, nil},
		{Pragmas{Journal: Memory, Synchronous: Full}, []string{"journal_mode=memory (safe: wal or truncate)"}},
		{Pragmas{Journal: NoJournal, Synchronous: Off}, []string{"journal_mode=off (safe: wal or truncate)", "synchronous=off (safe: full)"}},
	} {
		b := prepared(t, c.p, params(workload.Append))
		f, err := b.Facts(bg)
		require.NoError(t, err)
		var got []string
		for _, p := range f.Problems {
			require.NotEmpty(t, p.Risk)
			got = append(got, fmt.Sprintf("%s=%s (safe: %s)", p.Name, p.Value, p.Safe))
		}
		assert.Equal(t, c.want, got, "%+v", c.p)
		assert.Equal(t, string(c.p.Journal), f.Settings["journal_mode"])
		assert.Equal(t, string(c.p.Synchronous), f.Settings["synchronous"])
		assert.Contains(t, f.Identity["version"], "SQLite 3.")
	}
	err := Pragmas{Journal: "x", Synchronous: "y", LockingMode: "z"}.Validate()
	for _, want := range []string{`"x"`, `"y"`, `"z"`} {
		assert.ErrorContains(t, err, want)
	}
	_, _, err = Open("none", "t.db", Pragmas{}, nil).Survivors(1)
	assert.Error(t, err)
	wrong := Open("no-such-vfs", "t.db", Pragmas{Journal: WAL, Synchronous: Full}, nil)
	_, err = wrong.Run(bg)
	assert.Error(t, err)
	s, _, err := wrong.Survivors(1)
	require.NoError(t, err)
	_, err = s.Streams(bg, workload.TableAppend)
	require.Error(t, err)
	var u *verifier.UnreadableError
	assert.NotErrorAs(t, err, &u, "a mistake of ours accuses nobody")
}
