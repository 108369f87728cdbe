package sqlite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ncruces/go-sqlite3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/client"
	"plugpull/internal/ledger"
	"plugpull/internal/workload"
)

// TestCut cuts the power at each of the first requests of a load and compares
// the outcomes with what is left, by profile and by settings that are durable.
func TestCut(t *testing.T) {
	for _, c := range []struct {
		profile workload.Profile
		pragmas Pragmas
	}{
		{workload.Append, Pragmas{Journal: WAL, Synchronous: Full, WALAutocheckpoint: 4}},
		{workload.Transfer, Pragmas{Journal: WAL, Synchronous: Full, WALAutocheckpoint: 4}},
		{workload.Churn, Pragmas{Journal: Truncate, Synchronous: Full}},
		{workload.Transfer, Pragmas{Journal: Delete, Synchronous: Extra}},
		{workload.Append, Pragmas{Journal: Persist, Synchronous: Full}},
	} {
		t.Run(fmt.Sprint(c.profile, " ", c.pragmas.Journal), func(t *testing.T) {
			seen := map[ledger.Outcome]int{}
			for trap := 1; trap <= 40; trap++ {
				cutAt(t, c.pragmas, params(c.profile), trap, trap%2 == 0, seen)
			}
			assert.NotZero(t, seen[ledger.Acked])
			assert.NotZero(t, seen[ledger.Unknown], "a cut in the committing statement")
		})
	}
}

func cutAt(t *testing.T, p Pragmas, w workload.Params, trap int, keep bool, seen map[ledger.Outcome]int) {
	b := prepared(t, p, w)
	c := dial(t, b, w)
	b.d.ops, b.d.trap = 0, trap
	var acked, refused []workload.Seq
	n := workload.Seq(1)
	for ; n < 100; n++ {
		r := c.Commit(bg, workload.Op{Stream: 1, Seq: n, First: 1})
		seen[r.Outcome]++
		assert.NotZero(t, r.Answered)
		switch r.Outcome {
		case ledger.Acked:
			acked = append(acked, n)
			assert.Less(t, r.Sent, r.Answered)
			assert.NoError(t, r.Err)
		case ledger.Refused:
			refused = append(refused, n)
			assert.Zero(t, r.Sent, "%v", r.Err)
		case ledger.Unknown:
			assert.NotZero(t, r.Sent)
			assert.Equal(t, uint32(sqlite3.IOERR), r.Errno&255, "%v", r.Err)
		}
		if r.Ended != 0 {
			assert.Equal(t, ledger.EndError, r.Ended)
			assert.Error(t, r.Err)
			break
		}
	}
	require.Less(t, n, workload.Seq(100), "trap %d did not act", trap)
	assert.NoError(t, c.Close(), "again")

	after := mount(t, b.d.restart(keep), p)
	s := survivorsOf(t, after)
	table := w.Profile.Tables()[0]
	got := rows(t, s, w, table, 1)
	if w.Profile != workload.Churn {
		assert.Subset(t, got, acked, "trap %d", trap)
	} else if k := len(acked); k > 0 {
		assert.Contains(t, got, acked[k-1], "trap %d", trap)
	}
	for _, n := range refused {
		assert.NotContains(t, got, n, "trap %d", trap)
	}
	assert.True(t, slices.IsSorted(got))
	if w.Profile == workload.Transfer {
		assert.Equal(t, got, rows(t, s, w, workload.TableB, 1), "trap %d: not torn", trap)
	}
}

// TestRefused: what certainly is not in the database is refused, and the
// connection goes on.
func TestRefused(t *testing.T) {
	for _, profile := range workload.Profiles() {
		t.Run(string(profile), func(t *testing.T) {
			w := params(profile)
			b := prepared(t, Pragmas{Journal: WAL, Synchronous: Full}, w)
			c := dial(t, b, w)
			commit := func(n workload.Seq) client.Reply {
				return c.Commit(bg, workload.Op{Stream: 1, Seq: n, First: 1})
			}
			require.Equal(t, ledger.Acked, commit(1).Outcome)

			r := commit(1)
			assert.Equal(t, ledger.Refused, r.Outcome)
			assert.Equal(t, uint32(sqlite3.CONSTRAINT_PRIMARYKEY), r.Errno)
			assert.Zero(t, r.Ended)

			other, err := b.connect(bg, false)
			require.NoError(t, err)
			require.NoError(t, other.Exec("BEGIN IMMEDIATE"))
			r = commit(2)
			assert.Equal(t, ledger.Refused, r.Outcome)
			assert.Equal(t, uint32(sqlite3.BUSY), r.Errno)
			assert.Zero(t, r.Ended)
			require.NoError(t, other.Close())

			assert.Equal(t, ledger.Acked, commit(3).Outcome, "the transaction was rolled back")
			require.NoError(t, c.Close())
			assert.Equal(t, []workload.Seq{1, 3}, rows(t, survivorsOf(t, b), w, w.Profile.Tables()[0], 1))

			r = commit(4)
			assert.Equal(t, ledger.Refused, r.Outcome, "after Close")
			assert.Equal(t, ledger.EndStopped, r.Ended)
		})
	}
}

// TestBusyAtCommit: with a rollback journal a reader makes the commit itself
// fail, and it must not stay behind as a transaction that the next one commits.
func TestBusyAtCommit(t *testing.T) {
	w := params(workload.Transfer)
	b := prepared(t, Pragmas{Journal: Truncate, Synchronous: Full}, w)
	c := dial(t, b, w)
	reader, err := b.connect(bg, true)
	require.NoError(t, err)
	require.NoError(t, reader.Exec("BEGIN; SELECT * FROM transfer_a_1"))

	r := c.Commit(bg, workload.Op{Stream: 1, Seq: 1, First: 1})
	assert.Equal(t, ledger.Refused, r.Outcome)
	assert.NotZero(t, r.Sent, "COMMIT was begun")
	assert.Zero(t, r.Ended)
	require.NoError(t, reader.Close())
	r = c.Commit(bg, workload.Op{Stream: 1, Seq: 2, First: 1})
	require.Equal(t, ledger.Acked, r.Outcome)
	require.NoError(t, c.Close())
	assert.Equal(t, []workload.Seq{2}, rows(t, survivorsOf(t, b), w, workload.TableB, 1))
}

// TestFull: no room for a page of the transaction refuses it.
func TestFull(t *testing.T) {
	for _, journal := range []Journal{WAL, Truncate} {
		w := params(workload.Append)
		w.PayloadMin, w.PayloadMax = workload.MaxPayload, workload.MaxPayload
		b := prepared(t, Pragmas{Journal: journal, Synchronous: Full, WALAutocheckpoint: -1}, w)
		c := dial(t, b, w)
		var acked []workload.Seq
		var r client.Reply
		n := workload.Seq(1)
		for ; n < 2000; n++ {
			if r = c.Commit(bg, workload.Op{Stream: 1, Seq: n, First: 1}); r.Outcome != ledger.Acked {
				break
			}
			acked = append(acked, n)
		}
		assert.Equal(t, ledger.Refused, r.Outcome, "%v", r.Err)
		assert.Equal(t, uint32(sqlite3.FULL), r.Errno)
		assert.Zero(t, r.Ended)
		require.NoError(t, c.Close())
		assert.Equal(t, acked, rows(t, survivorsOf(t, b), w, workload.TableAppend, 1))
	}
}

func TestCancelled(t *testing.T) {
	w := params(workload.Append)
	b := prepared(t, Pragmas{Journal: WAL, Synchronous: Full}, w)
	c := dial(t, b, w)
	ctx, cancel := context.WithCancel(bg)
	cancel()
	r := c.Commit(ctx, workload.Op{Stream: 1, Seq: 1, First: 1})
	assert.Equal(t, ledger.Refused, r.Outcome)
	assert.Equal(t, ledger.EndStopped, r.Ended)
	assert.Zero(t, r.Sent)
	assert.ErrorIs(t, r.Err, context.Canceled)
	_, err := b.Dial(ctx, w, 1)
	assert.ErrorIs(t, err, context.Canceled)
	assert.ErrorIs(t, b.Prepare(ctx, w, 1), context.Canceled)
}

// TestDamagedInsert: a table that SQLite finds damaged while it inserts ends
// the stream.
func TestDamagedInsert(t *testing.T) {
	w := params(workload.Append)
	b := prepared(t, Pragmas{Journal: Truncate, Synchronous: Full}, w)
	c := dial(t, b, w)
	require.Equal(t, ledger.Acked, c.Commit(bg, workload.Op{Stream: 1, Seq: 1, First: 1}).Outcome)
	require.NoError(t, c.Close())
	c = dial(t, b, w)
	wipe(t, b, workload.TableAppend)
	r := c.Commit(bg, workload.Op{Stream: 1, Seq: 2, First: 1})
	assert.Equal(t, ledger.Unknown, r.Outcome)
	assert.Equal(t, uint32(sqlite3.CORRUPT), r.Errno&255)
	assert.Equal(t, ledger.EndError, r.Ended)
}

func TestErrorsHaveCodes(t *testing.T) {
	for _, err := range []error{sqlite3.BUSY_SNAPSHOT, fmt.Errorf("commit: %w", sqlite3.FULL), sqlite3.CONSTRAINT_PRIMARYKEY, sqlite3.LOCKED} {
		assert.True(t, refused(err), "%v", err)
		assert.False(t, unreadable(err), "%v", err)
	}
	for _, err := range []error{sqlite3.CORRUPT_INDEX, sqlite3.NOTADB, fmt.Errorf("x: %w", sqlite3.IOERR_SHORT_READ)} {
		assert.True(t, unreadable(err), "%v", err)
		assert.False(t, refused(err), "%v", err)
	}
	for _, err := range []error{nil, errors.New("x"), sqlite3.IOERR_READ, sqlite3.IOERR_FSYNC, sqlite3.CANTOPEN, sqlite3.ERROR, sqlite3.INTERRUPT} {
		assert.False(t, refused(err) || unreadable(err), "%v", err)
	}
}

func BenchmarkCommit(b *testing.B) {
	for _, profile := range workload.Profiles() {
		for _, p := range []Pragmas{{Journal: WAL, Synchronous: Full}, {Journal: Truncate, Synchronous: Full}} {
			b.Run(fmt.Sprint(profile, " ", p.Journal), func(b *testing.B) {
				w := params(profile)
				w.PayloadMin, w.PayloadMax = 100, 400
				d := newDevice()
				d.size = 64 << 30
				e := preparedOn(b, d, p, w)
				n := workload.Seq(0)
				c := dial(b, e, w)
				for b.Loop() {
					n++
					if r := c.Commit(bg, workload.Op{Stream: 1, Seq: n, First: 1}); r.Outcome != ledger.Acked {
						b.Fatal(r.Err)
					}
				}
				require.NoError(b, c.Close())
			})
		}
	}
}

// BenchmarkDial opens and closes a stream's connection.
func BenchmarkDial(b *testing.B) {
	w := params(workload.Append)
	e := prepared(b, Pragmas{Journal: WAL, Synchronous: Full}, w)
	keep := dial(b, e, w)
	for b.Loop() {
		require.NoError(b, dial(b, e, w).Close())
	}
	require.NoError(b, keep.Close())
}
