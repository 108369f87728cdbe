package mysql

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/ledger"
	"plugpull/internal/testserver"
	"plugpull/internal/workload"
	"plugpull/verifier"
)

// fill commits operations 1..n of streams 1..streams.
func fill(t testing.TB, d *DB, p workload.Params, streams workload.Stream, n workload.Seq) {
	for s := workload.Stream(1); s <= streams; s++ {
		c := dial(t, d, p)
		for i := workload.Seq(1); i <= n; i++ {
			r := c.Commit(ctx(t), workload.Op{Stream: s, Seq: i, First: 1})
			require.Equal(t, ledger.Acked, r.Outcome, "%v", r.Err)
		}
		require.NoError(t, c.Close())
	}
}

func survivors(t testing.TB, d *DB) *Survivors {
	sv, err := d.Survivors(1)
	require.NoError(t, err)
	t.Cleanup(func() { _ = sv.Close() })
	return sv
}

func TestSurvivors(t *testing.T) {
	s := sharedServer(t)
	d, p := prepared(t, s.Port(), workload.Append, Options{})
	sv := survivors(t, d)
	none, err := sv.Streams(ctx(t), workload.TableAppend)
	require.NoError(t, err)
	assert.Empty(t, none)
	assert.Empty(t, readAll(t, sv, workload.TableAppend, 1, 0))

	fill(t, d, p, 3, 20)
	do(t, d, "INSERT INTO "+d.quoted("append_1")+" VALUES (65535, 18446744073709551615, REPEAT('x', 16), 255, 'later')")
	streams, err := sv.Streams(ctx(t), workload.TableAppend)
	require.NoError(t, err)
	assert.Equal(t, []workload.Stream{1, 2, 3, 65535}, streams)

	rows := readAll(t, sv, workload.TableAppend, 2, 15)
	require.Len(t, rows, 6)
	for i, r := range rows {
		assert.EqualValues(t, 15+i, r.Seq)
		assert.EqualValues(t, 2, r.Stream)
		assert.True(t, p.Intact(&r))
	}
	top := readAll(t, sv, workload.TableAppend, 65535, 1<<63+5)
	require.Len(t, top, 1, "numbers beyond int64")
	assert.Equal(t, workload.Seq(1<<64-1), top[0].Seq)
	assert.EqualValues(t, 255, top[0].Version)
	assert.EqualValues(t, 7, sv.RowsRead())
}

func TestCursorsAreIndependent(t *testing.T) {
	s := sharedServer(t)
	d, p := prepared(t, s.Port(), workload.Append, Options{})
	fill(t, d, p, 2, 50)
	sv := survivors(t, d)
	var cursors []verifier.Rows
	for i := range 32 {
		c, err := sv.Rows(ctx(t), workload.TableAppend, workload.Stream(i%2+1), 0)
		require.NoError(t, err)
		cursors = append(cursors, c)
	}
	var r workload.Row
	for n := 1; n <= 50; n++ {
		for i, c := range cursors {
			more, err := c.Next(&r)
			require.NoError(t, err)
			require.True(t, more)
			require.EqualValues(t, n, r.Seq)
			require.EqualValues(t, i%2+1, r.Stream)
		}
	}
	for i, c := range cursors {
		if i%2 == 0 { // half of them are closed without having seen the end
			more, err := c.Next(&r)
			require.NoError(t, err)
			require.False(t, more)
		}
		require.NoError(t, c.Close())
		require.NoError(t, c.Close(), "closing twice does nothing")
	}
	require.Len(t, readAll(t, sv, workload.TableAppend, 2, 0), 50)
}

func TestScanNeitherSortsNorUsesATemporaryTable(t *testing.T) {
	s := sharedServer(t)
	for _, profile := range workload.Profiles() {
		d, p := prepared(t, s.Port(), profile, Options{})
		fill(t, d, p, 2, 30)
		for _, table := range profile.Tables() {
			for _, q := range []string{
				"EXPLAIN SELECT seq, version, run, payload FROM " + d.table(table, 1) + " WHERE stream = 1 AND seq >= 3 ORDER BY seq",
				"EXPLAIN SELECT stream FROM " + d.table(table, 1) + " GROUP BY stream ORDER BY stream",
			} {
				require.NoError(t, d.control(ctx(t), d.dsn.Schema, func(c *sql.Conn) error {
					var id, sel, tab, typ, possible, key, keyLen, ref, rows, extra sql.NullString
					err := c.QueryRowContext(ctx(t), q).Scan(&id, &sel, &tab, &typ, &possible, &key, &keyLen, &ref, &rows, &extra)
					assert.NotContains(t, extra.String, "filesort", q)
					assert.NotContains(t, extra.String, "temporary", q)
					return err
				}))
			}
		}
	}
}

func TestScanErrorsThatAreNoEvidence(t *testing.T) {
	s := ownServer(t)
	root, p := prepared(t, s.Port(), workload.Append, Options{})
	fill(t, root, p, 1, 200)
	do(t, root, "ALTER TABLE "+root.quoted("append_1")+" MODIFY payload LONGBLOB NOT NULL", "UPDATE "+root.quoted("append_1")+" SET payload = REPEAT('x', 100000)")
	var unreadableErr *verifier.UnreadableError
	var r workload.Row

	t.Run("missing privilege", func(t *testing.T) {
		do(t, root, "CREATE USER nobody@'127.0.0.1'", "GRANT SELECT ON "+root.quoted(runTable)+" TO nobody@'127.0.0.1'")
		dsn := root.DSN()
		dsn.User = "nobody"
		d, err := Open(dsn, Options{})
		require.NoError(t, err)
		_, err = survivors(t, d).Rows(ctx(t), workload.TableAppend, 1, 0)
		require.Error(t, err)
		assert.NotErrorAs(t, err, &unreadableErr)
	})
	t.Run("too many connections", func(t *testing.T) {
		do(t, root, "SET GLOBAL max_connections=10")
		defer do(t, root, "SET GLOBAL max_connections=300")
		sv := survivors(t, root)
		var open []verifier.Rows
		defer func() {
			for _, c := range open {
				_ = c.Close()
			}
			eventually(t, "connections", func() bool { _, err := sv.Streams(context.Background(), workload.TableAppend); return err == nil })
		}()
		for range 20 {
			c, err := sv.Rows(ctx(t), workload.TableAppend, 1, 0)
			if err != nil {
				assert.NotErrorAs(t, err, &unreadableErr)
				assert.EqualValues(t, 1040, Errno(err))
				assert.Contains(t, err.Error(), "max_connections")
				return
			}
			open = append(open, c)
		}
		t.Fatal("20 connections where 10 are allowed")
	})
	t.Run("connection lost in mid-scan", func(t *testing.T) {
		sv := survivors(t, root)
		c, err := sv.Rows(ctx(t), workload.TableAppend, 1, 0)
		require.NoError(t, err)
		defer c.Close()
		more, err := c.Next(&r)
		require.NoError(t, err)
		require.True(t, more)
		require.NoError(t, s.Kill())
		for more && err == nil {
			more, err = c.Next(&r)
		}
		require.Error(t, err, "the end of a connection is not the end of the rows")
		assert.NotErrorAs(t, err, &unreadableErr)
		_, again := c.Next(&r)
		assert.Equal(t, err, again, "an error stays")
		_, err = sv.Streams(ctx(t), workload.TableAppend)
		require.Error(t, err)
		assert.NotErrorAs(t, err, &unreadableErr)
		require.NoError(t, s.Restart(ctx(t)))
	})
	t.Run("not plugpull's table", func(t *testing.T) {
		do(t, root, "ALTER TABLE "+root.quoted("append_1")+" MODIFY payload LONGBLOB NULL", "UPDATE "+root.quoted("append_1")+" SET payload=NULL")
		c, err := survivors(t, root).Rows(ctx(t), workload.TableAppend, 1, 0)
		require.NoError(t, err)
		defer c.Close()
		_, err = c.Next(&r)
		require.Error(t, err)
		assert.NotErrorAs(t, err, &unreadableErr)
	})
}

const pageSize = 16 << 10

// TestUnreadable damages what InnoDB keeps and looks at what the server
// then says.
func TestUnreadable(t *testing.T) {
	s := ownServer(t)
	for name, c := range map[string]struct {
		damage  func(t *testing.T, s *testserver.Server, d *DB)
		errnos  []uint32
		partial bool // some rows come before the error
	}{
		"table dropped":     {damage: func(t *testing.T, _ *testserver.Server, d *DB) { do(t, d, "DROP TABLE "+d.quoted("append_1")) }, errnos: []uint32{1146}},
		"schema dropped":    {damage: func(t *testing.T, _ *testserver.Server, d *DB) { do(t, d, "DROP DATABASE "+d.dsn.Schema) }, errnos: []uint32{1049}},
		"data file missing": {damage: offline(func(t *testing.T, path string) { require.NoError(t, os.Remove(path+".ibd")) }), errnos: []uint32{1812, 1932}},
		"data file empty":   {damage: offline(func(t *testing.T, path string) { require.NoError(t, os.Truncate(path+".ibd", 0)) }), errnos: []uint32{1812, 1932}},
		"data file of zeros": {damage: offline(func(t *testing.T, path string) {
			st, err := os.Stat(path + ".ibd")
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path+".ibd", make([]byte, st.Size()), 0o600))
		}), errnos: []uint32{1812, 1877, 1932}},
		"first page garbled": {damage: offline(garble(0)), errnos: []uint32{1812, 1877, 1932}},
		"root page garbled":  {damage: offline(garble(3)), errnos: []uint32{1034, 1712, 1877, 1932}},
		"leaf page garbled":  {damage: offline(garble(8)), errnos: []uint32{1034, 1712, 1877, 1932}, partial: true},
		"leaf page zeroed":   {damage: offline(zero(8)), errnos: []uint32{1034, 1712, 1877, 1932}, partial: true},
		"file cut in half":   {damage: offline(func(t *testing.T, path string) { require.NoError(t, os.Truncate(path+".ibd", 8*pageSize)) }), errnos: []uint32{1034, 1712, 1877, 1932, 1812}, partial: true},
		"definition garbled": {damage: offline(func(t *testing.T, path string) {
			require.NoError(t, os.WriteFile(path+".frm", []byte("garbage, garbage"), 0o600))
		}), errnos: []uint32{1033}},
		"definition missing": {damage: offline(func(t *testing.T, path string) { require.NoError(t, os.Remove(path+".frm")) }), errnos: []uint32{1146}},
	} {
		t.Run(name, func(t *testing.T) {
			d, p := prepared(t, s.Port(), workload.Append, Options{})
			fill(t, d, p, 1, 1)
			do(t, d, "INSERT INTO "+d.quoted("append_1")+" SELECT 1, seq, '', 1, REPEAT('x', 60) FROM "+d.quoted("seq_2_to_5000"))
			c.damage(t, s, d)
			t.Cleanup(func() { require.NoError(t, s.Restart(ctx(t))) })
			n, err := scanAll(t, survivors(t, d), workload.TableAppend, 1)
			t.Logf("%d rows, then %v", n, err)
			var u *verifier.UnreadableError
			require.ErrorAs(t, err, &u)
			assert.Contains(t, c.errnos, u.Errno)
			assert.Equal(t, workload.TableAppend, u.Table)
			if c.partial {
				assert.NotZero(t, n)
			}
			if n == 0 { // the list of the streams fails in the same way
				_, err := survivors(t, d).Streams(ctx(t), workload.TableAppend)
				require.ErrorAs(t, err, &u)
			}
		})
	}
}

func TestADamagedRunTableIsToldByNumber(t *testing.T) {
	s := ownServer(t)
	d, _ := prepared(t, s.Port(), workload.Append, Options{})
	require.NoError(t, s.Stop(ctx(t)))
	require.NoError(t, os.Remove(filepath.Join(s.Datadir(), d.dsn.Schema, runTable+".ibd")))
	require.NoError(t, s.Restart(ctx(t)))
	_, err := d.Runs(ctx(t))
	require.Error(t, err)
	assert.True(t, unreadable(Errno(err)), "%v", err)
}

func scanAll(t *testing.T, sv *Survivors, table workload.Table, s workload.Stream) (n int, err error) {
	rows, err := sv.Rows(ctx(t), table, s, 0)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var r workload.Row
	for {
		more, err := rows.Next(&r)
		if err != nil || !more {
			return n, err
		}
		n++
	}
}

// offline shuts the server down, damages the files of append_1 and starts it.
func offline(damage func(t *testing.T, path string)) func(*testing.T, *testserver.Server, *DB) {
	return func(t *testing.T, s *testserver.Server, d *DB) {
		require.NoError(t, s.Stop(ctx(t)))
		damage(t, filepath.Join(s.Datadir(), d.dsn.Schema, "append_1"))
		require.NoError(t, s.Restart(ctx(t)))
	}
}

func garble(page int64) func(*testing.T, string) { return overwrite(page, 0xa5) }
func zero(page int64) func(*testing.T, string)   { return overwrite(page, 0) }

func overwrite(page int64, b byte) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		f, err := os.OpenFile(path+".ibd", os.O_RDWR, 0)
		require.NoError(t, err)
		defer f.Close()
		buf := make([]byte, pageSize)
		_, err = f.ReadAt(buf, page*pageSize)
		require.NoError(t, err)
		for i := 100; i < pageSize-200; i++ {
			buf[i] = b
		}
		if b == 0 {
			clear(buf)
		}
		_, err = f.WriteAt(buf, page*pageSize)
		require.NoError(t, err)
	}
}
