package e2e

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"plugpull/internal/clock"
	"plugpull/internal/ledger"
	"plugpull/internal/workload"
	"plugpull/verifier"
)

// commit is what the ledger says of one that was sent.
type commit struct {
	seq            workload.Seq
	sent, answered clock.Instant
	acked          bool
}

// history is the last session of a ledger, with a hand in the database: it plants
// damage, and works out from ledger and rows alone what a right verification has to say of it.
type history struct {
	t        *testing.T
	db       *sql.DB
	p        workload.Params
	epoch    uint64
	commits  map[workload.Stream][]commit // acked and unknown, in order
	reserved map[workload.Stream]workload.Seq
	first    map[workload.Stream]workload.Seq
	want     verifier.Counts
}

func readHistory(t *testing.T, h *hand) *history {
	t.Helper()
	y := &history{t: t, db: root(t, h.Server)}
	r, err := ledger.OpenReader(h.ledger)
	require.NoError(t, err)
	y.p = r.Config().Params
	require.NoError(t, r.Close())
	records(t, h.ledger, y.add)
	return y
}

func (y *history) add(r *ledger.Record) {
	switch r.Kind {
	case ledger.KindSession:
		y.epoch = r.Count
		y.commits, y.reserved, y.first = map[workload.Stream][]commit{}, map[workload.Stream]workload.Seq{}, map[workload.Stream]workload.Seq{}
	case ledger.KindStream:
		y.first[r.Stream] = r.From
	case ledger.KindReserve:
		y.reserved[r.Stream] = r.To
	case ledger.KindOutcome:
		if ledger.Outcome(r.Code) != ledger.Refused {
			y.commits[r.Stream] = append(y.commits[r.Stream], commit{r.From, r.Sent, r.Answered, ledger.Outcome(r.Code) == ledger.Acked})
		}
	}
}

// acked are a stream's acknowledged commits.
func (y *history) acked(s workload.Stream) (out []commit) {
	for _, c := range y.commits[s] {
		if c.acked {
			out = append(out, c)
		}
	}
	require.GreaterOrEqual(y.t, len(out), 60, "stream %d has too few commits for this test", s)
	return out
}

// at is the number of the commit that lies so far along the stream, 0 to 1.
func (y *history) at(s workload.Stream, along float64) workload.Seq {
	a := y.acked(s)
	return a[int(float64(len(a))*along)].seq
}

// last is the stream's last acknowledged number.
func (y *history) last(s workload.Stream) workload.Seq {
	a := y.acked(s)
	return a[len(a)-1].seq
}

func (y *history) table(t workload.Table) string { return fmt.Sprintf("`%s_%d`", t, y.epoch) }

// exec executes a statement that must touch one row (two, where MariaDB counts a replacement so).
func (y *history) exec(query string, args ...any) {
	y.t.Helper()
	res, err := y.db.Exec(query, args...)
	require.NoError(y.t, err, query)
	n, err := res.RowsAffected()
	require.NoError(y.t, err)
	require.Contains(y.t, []int64{1, 2}, n, "%s %v", query, args)
}

func (y *history) remove(t workload.Table, s workload.Stream, n workload.Seq) {
	y.t.Helper()
	y.exec("DELETE FROM "+y.table(t)+" WHERE stream = ? AND seq = ?", s, n)
}

// put writes the row as plugpull would have.
func (y *history) put(t workload.Table, s workload.Stream, n workload.Seq, v workload.Version) {
	y.t.Helper()
	y.exec("REPLACE INTO "+y.table(t)+" (stream, seq, run, version, payload) VALUES (?, ?, ?, ?, ?)",
		s, n, y.p.Run[:], v, append([]byte{}, y.p.AppendPayload(nil, t, s, n, v)...))
}

// spoil flips one bit of the row's payload.
func (y *history) spoil(t workload.Table, s workload.Stream, n workload.Seq) {
	y.t.Helper()
	var b []byte
	require.NoError(y.t, y.db.QueryRow("SELECT payload FROM "+y.table(t)+" WHERE stream = ? AND seq = ?", s, n).Scan(&b))
	b[len(b)/2] ^= 0x10
	y.exec("UPDATE "+y.table(t)+" SET payload = ? WHERE stream = ? AND seq = ?", b, s, n)
}

func (y *history) there(t workload.Table, s workload.Stream, n workload.Seq) bool {
	y.t.Helper()
	var k int
	require.NoError(y.t, y.db.QueryRow("SELECT COUNT(*) FROM "+y.table(t)+" WHERE stream = ? AND seq = ?", s, n).Scan(&k))
	return k > 0
}

// rowTable is the table in which operation n leaves row n.
func (y *history) rowTable() workload.Table { return y.p.Profile.Tables()[0] }

// tail removes the stream's last k acknowledged commits as if they had never been made, with
// the unknown one after them.
func (y *history) tail(s workload.Stream, k int) []commit {
	y.t.Helper()
	a := y.acked(s)
	gone := a[len(a)-k:]
	for i := len(y.commits[s]) - 1; i >= 0; i-- {
		c := y.commits[s][i]
		if c.seq < gone[0].seq {
			break
		}
		if y.there(y.rowTable(), s, c.seq) {
			y.undo(s, c.seq)
		}
	}
	return gone
}

// undo takes operation n back, the latest of its stream.
func (y *history) undo(s workload.Stream, n workload.Seq) {
	y.t.Helper()
	switch y.p.Profile {
	case workload.Append:
		y.remove(workload.TableAppend, s, n)
	case workload.Transfer:
		y.remove(workload.TableA, s, n)
		y.remove(workload.TableB, s, n)
		y.put(workload.TableHead, s, n-1, 1)
	case workload.Churn:
		w := y.p.Window
		y.remove(workload.TableChurn, s, n)
		if n >= y.first[s]+w {
			y.put(workload.TableChurn, s, n-w, 1)
		}
		if n >= y.first[s]+2*w {
			y.put(workload.TableChurn, s, n-2*w, 2)
		}
	}
}

// charge adds commits that are gone to what is wanted: a hole where a later commit
// of the stream survived, or one that another stream sent after the
// acknowledgement; a tail otherwise. It returns the loss window.
func (y *history) charge(s workload.Stream, gone []commit) time.Duration {
	y.t.Helper()
	rows, err := y.db.Query("SELECT stream, seq FROM " + y.table(y.rowTable()))
	require.NoError(y.t, err)
	defer rows.Close()
	there := map[workload.Stream]map[workload.Seq]bool{}
	for rows.Next() {
		var s workload.Stream
		var n workload.Seq
		require.NoError(y.t, rows.Scan(&s, &n))
		if there[s] == nil {
			there[s] = map[workload.Seq]bool{}
		}
		there[s][n] = true
	}
	require.NoError(y.t, rows.Err())
	var window time.Duration
	for _, c := range gone {
		hole, lastAck := false, clock.Instant(0)
		for other, commits := range y.commits {
			for _, o := range commits {
				if o.acked {
					lastAck = max(lastAck, o.answered)
				}
				if there[other][o.seq] && (other == s && o.seq > c.seq || o.sent > c.answered) {
					hole = true
				}
			}
		}
		if hole {
			y.want.LostHole++
			continue
		}
		y.want.LostTail++
		window = max(window, lastAck.Sub(c.answered))
	}
	return window
}
