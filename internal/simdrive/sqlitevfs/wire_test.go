package sqlitevfs_test

import (
	"fmt"
	"testing"

	"github.com/ncruces/go-sqlite3"
	"github.com/stretchr/testify/require"

	"plugpull/internal/simdrive"
	"plugpull/internal/simdrive/sqlitevfs"
)

// TestSimulatedDrive runs SQLite on the drive that the layer is made for: cuts
// with random leftovers lose nothing, at either unit of tearing.
func TestSimulatedDrive(t *testing.T) {
	for _, tear := range []int{512, 4096} {
		for _, journal := range []string{"wal", "truncate"} {
			t.Run(fmt.Sprint(journal, tear), func(t *testing.T) {
				d, err := simdrive.New(simdrive.Config{Size: 64 << 20, Survive: simdrive.SurviveRandom, Tear: tear, Seed: 1})
				require.NoError(t, err)
				h, err := d.PowerOn()
				require.NoError(t, err)
				require.NoError(t, sqlitevfs.Format(h))
				n := 0
				for cut := range uint64(10) {
					fs, err := sqlitevfs.Mount(h)
					require.NoError(t, err)
					name, err := fs.Register(t.TempDir())
					require.NoError(t, err)
					c, err := sqlite3.Open("file:t.db?vfs=" + name)
					require.NoError(t, err)
					require.NoError(t, c.Exec("PRAGMA synchronous=full; PRAGMA wal_autocheckpoint=8; PRAGMA journal_mode="+journal))
					require.NoError(t, c.Exec("CREATE TABLE IF NOT EXISTS t (n INTEGER PRIMARY KEY, p BLOB)"))
					s, _, err := c.Prepare("SELECT count(*), max(n), (SELECT group_concat(integrity_check) FROM pragma_integrity_check) FROM t")
					require.NoError(t, err)
					require.True(t, s.Step(), "%v", s.Err())
					require.Equal(t, "ok", s.ColumnText(2))
					require.GreaterOrEqual(t, s.ColumnInt(0), n, "cut %d", cut)
					require.Equal(t, s.ColumnInt(0), s.ColumnInt(1))
					n = s.ColumnInt(0)
					require.NoError(t, s.Close())

					d.CutAt(20 + 17*cut)
					for err == nil {
						if err = c.Exec(fmt.Sprintf("INSERT INTO t VALUES (%d, randomblob(3000))", n+1)); err == nil {
							n++
						}
					}
					_ = c.Close()
					require.NoError(t, fs.Unregister())
					_, off := d.Report()
					require.True(t, off, "%v", err)
					h, err = d.PowerOn()
					require.NoError(t, err)
				}
				require.Greater(t, n, 20)
			})
		}
	}
}
