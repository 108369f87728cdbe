package mysql

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/client"
	"plugpull/internal/clock"
	"plugpull/internal/ledger"
	"plugpull/internal/workload"
)

func TestEveryProfileCommitsWhatTheVerifierExpects(t *testing.T) {
	s := sharedServer(t)
	for _, profile := range workload.Profiles() {
		t.Run(string(profile), func(t *testing.T) {
			d, p := prepared(t, s.Port(), profile, Options{})
			c := dial(t, d, p)
			assert.NotZero(t, c.ID())
			const last = 40
			for n := workload.Seq(1); n <= last; n++ {
				before := clock.Now()
				r := c.Commit(ctx(t), op(n))
				require.NoError(t, r.Err)
				require.Equal(t, ledger.Acked, r.Outcome)
				require.True(t, before <= r.Sent && r.Sent <= r.Answered && r.Answered <= clock.Now())
			}
			sv, err := d.Survivors(1)
			require.NoError(t, err)
			defer sv.Close()
			for _, table := range profile.Tables() {
				rows := readAll(t, sv, table, 1, 0)
				switch table {
				case workload.TableHead:
					require.Len(t, rows, 1)
					assert.EqualValues(t, last, rows[0].Seq)
				case workload.TableChurn:
					require.Len(t, rows, 2*workload.MinWindow)
					assert.EqualValues(t, 2, rows[0].Version)
					assert.EqualValues(t, 1, rows[len(rows)-1].Version)
				default:
					require.Len(t, rows, last)
				}
				for _, r := range rows {
					assert.True(t, p.Intact(&r), "%+v", r)
				}
			}
		})
	}
}

// The committing packet of each profile, as the proxy sees it.
func committing(p workload.Profile) func([]byte) bool {
	if p == workload.Append {
		return isExecute
	}
	return isText("COMMIT")
}

func TestOutcomeWhenTheCommittingPacketIsDisturbed(t *testing.T) {
	s := sharedServer(t)
	const silence = 400 * time.Millisecond
	for name, c := range map[string]struct {
		fault fault
		end   ledger.End
		there bool // the transaction commits nevertheless
	}{
		"FIN before it reached the server":     {finBefore, ledger.EndFIN, false},
		"RST before it reached the server":     {rstBefore, ledger.EndRST, false},
		"silence before it reached the server": {silentBefore, ledger.EndSilence, false},
		"half of it reached the server":        {halfCommand, ledger.EndSilence, false},
		"reply swallowed":                      {silentAfter, ledger.EndSilence, true},
		"FIN in place of the reply":            {finAfter, ledger.EndFIN, true},
		"RST in place of the reply":            {rstAfter, ledger.EndRST, true},
		"half a reply, then silence":           {halfReply, ledger.EndSilence, true},
		"half a reply, then FIN":               {halfReplyFIN, ledger.EndFIN, true},
	} {
		for _, profile := range []workload.Profile{workload.Append, workload.Transfer} {
			t.Run(name+"/"+string(profile), func(t *testing.T) {
				direct, p := prepared(t, s.Port(), profile, Options{})
				px := newProxy(t, s.Addr())
				conn := dial(t, through(t, direct, px, Options{Silence: silence}), p)
				require.Equal(t, ledger.Acked, conn.Commit(ctx(t), op(1)).Outcome)
				executes, commits := px.count(comStmtExecute), px.countText("COMMIT")

				px.on(c.fault, committing(profile))
				before := clock.Now()
				r := conn.Commit(ctx(t), op(2))
				assert.Equal(t, ledger.Unknown, r.Outcome, "%v", r.Err)
				assert.Equal(t, c.end, r.Ended)
				assert.Error(t, r.Err)
				assert.True(t, before <= r.Sent && r.Sent <= r.Answered)
				if c.end == ledger.EndSilence {
					assert.GreaterOrEqual(t, r.Answered.Sub(r.Sent), silence)
				}

				again := conn.Commit(ctx(t), op(3))
				assert.Equal(t, ledger.Refused, again.Outcome, "an ended connection sends nothing")
				assert.Zero(t, again.Sent)
				require.NoError(t, conn.Close())

				// No packet was sent twice, none after the unknown one.
				assert.Equal(t, executes+len(profile.Tables()), px.count(comStmtExecute))
				if profile != workload.Append {
					assert.Equal(t, commits+1, px.countText("COMMIT"))
				}
				assert.Zero(t, px.count(0x01), "no farewell behind an unknown outcome")
				want := 1
				if c.there {
					want = 2
				}
				table := profile.Tables()[0]
				eventually(t, "the transaction's fate", func() bool {
					return queryInt(t, direct, "SELECT COUNT(*) FROM "+direct.table(table, 1)) == want
				})
			})
		}
	}
}

func TestConnectionLostBeforeTheCommittingPacketIsRefused(t *testing.T) {
	s := sharedServer(t)
	t.Run("reset between two commits", func(t *testing.T) {
		d, p := prepared(t, s.Port(), workload.Append, Options{})
		px := newProxy(t, s.Addr())
		conn := dial(t, through(t, d, px, Options{}), p)
		require.Equal(t, ledger.Acked, conn.Commit(ctx(t), op(1)).Outcome)
		px.reset()
		awaitReset(t, conn)
		r := conn.Commit(ctx(t), op(2))
		assert.Equal(t, ledger.Refused, r.Outcome, "the kernel took no byte: %v", r.Err)
		assert.Zero(t, r.Sent)
		assert.Equal(t, ledger.EndRST, r.Ended)
	})
	for name, c := range map[string]struct {
		fault fault
		end   ledger.End
	}{
		"silence": {silentAfter, ledger.EndSilence},
		"FIN":     {finAfter, ledger.EndFIN},
		"RST":     {rstBefore, ledger.EndRST},
	} {
		t.Run("a step of a transaction, "+name, func(t *testing.T) {
			d, p := prepared(t, s.Port(), workload.Transfer, Options{})
			px := newProxy(t, s.Addr())
			conn := dial(t, through(t, d, px, Options{Silence: 400 * time.Millisecond}), p)
			px.on(c.fault, isExecute)
			r := conn.Commit(ctx(t), op(1))
			assert.Equal(t, ledger.Refused, r.Outcome)
			assert.Zero(t, r.Sent)
			assert.Equal(t, c.end, r.Ended)
			assert.Zero(t, px.countText("COMMIT"))
		})
	}
}

// awaitReset waits until the kernel knows that the peer has reset the
// connection, without reading from it.
func awaitReset(t *testing.T, cc client.Conn) {
	raw, err := cc.(*conn).w.Conn.(*net.TCPConn).SyscallConn()
	require.NoError(t, err)
	eventually(t, "the reset", func() bool {
		state := 0
		require.NoError(t, raw.Control(func(fd uintptr) { state = tcpState(int(fd)) }))
		return state == 7 // TCP_CLOSE
	})
}

func TestServerErrorsAndOutcomes(t *testing.T) {
	s := sharedServer(t)
	for name, c := range map[string]struct {
		profile workload.Profile
		break_  func(t *testing.T, d *DB, id uint64)
		absent  bool // look that row 2 is not there once the locks are gone
		outcome ledger.Outcome
		errno   uint32
		end     ledger.End
	}{
		"duplicate key, autocommit": {
			profile: workload.Append,
			break_: func(t *testing.T, d *DB, _ uint64) {
				do(t, d, "INSERT INTO "+d.quoted("append_1")+" VALUES (1, 2, REPEAT('x', 16), 1, 'x')")
			},
			outcome: ledger.Unknown, errno: 1062, end: ledger.EndError, // the row is there: it must not become a phantom
		},
		"duplicate key, in a transaction": {
			profile: workload.Transfer,
			break_: func(t *testing.T, d *DB, _ uint64) {
				do(t, d, "INSERT INTO "+d.quoted("transfer_b_1")+" VALUES (1, 2, REPEAT('x', 16), 1, 'x')")
			},
			outcome: ledger.Refused, errno: 1062, end: ledger.EndError,
		},
		"table dropped": {
			profile: workload.Append,
			break_:  func(t *testing.T, d *DB, _ uint64) { do(t, d, "DROP TABLE "+d.quoted("append_1")) },
			outcome: ledger.Refused, errno: 1146,
		},
		"column gone": {
			profile: workload.Transfer,
			break_: func(t *testing.T, d *DB, _ uint64) {
				do(t, d, "ALTER TABLE "+d.quoted("transfer_b_1")+" DROP COLUMN payload")
			},
			outcome: ledger.Refused, errno: 1054,
		},
		"column too short": {
			profile: workload.Append,
			break_: func(t *testing.T, d *DB, _ uint64) {
				do(t, d, "DELETE FROM "+d.quoted("append_1"), "ALTER TABLE "+d.quoted("append_1")+" MODIFY run BINARY(3) NOT NULL")
			},
			outcome: ledger.Refused, errno: 1406,
		},
		"lock wait timeout": {
			profile: workload.Append,
			break_: func(t *testing.T, d *DB, _ uint64) {
				open(t, d, "BEGIN", "SELECT * FROM "+d.quoted("append_1")+" FOR UPDATE")
			},
			outcome: ledger.Refused, errno: 1205, absent: true,
		},
		"lock wait timeout in a transaction": {
			profile: workload.Transfer,
			break_: func(t *testing.T, d *DB, _ uint64) {
				open(t, d, "BEGIN", "SELECT * FROM "+d.quoted("transfer_b_1")+" FOR UPDATE")
			},
			outcome: ledger.Refused, errno: 1205, absent: true,
		},
		"commit blocked by a backup": {
			profile: workload.Transfer,
			break_: func(t *testing.T, d *DB, _ uint64) {
				open(t, d, "BACKUP STAGE START", "BACKUP STAGE FLUSH", "BACKUP STAGE BLOCK_DDL", "BACKUP STAGE BLOCK_COMMIT")
			},
			outcome: ledger.Refused, errno: 1205, absent: true,
		},
		"connection killed while idle": {
			profile: workload.Append,
			break_: func(t *testing.T, d *DB, id uint64) {
				do(t, d, sprintf("KILL %d", id))
				eventually(t, "the kill", func() bool {
					left, err := d.ConnectionsLeft(context.Background(), []uint64{id})
					return err == nil && len(left) == 0
				})
			},
			outcome: ledger.Unknown, end: ledger.EndFIN,
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, p := prepared(t, s.Port(), c.profile, Options{Silence: 3 * time.Second})
			conn := dial(t, d, p)
			require.Equal(t, ledger.Acked, conn.Commit(ctx(t), op(1)).Outcome)
			var r client.Reply
			t.Run("broken", func(t *testing.T) { // its end closes the connections that break_ holds
				c.break_(t, d, conn.ID())
				r = conn.Commit(ctx(t), op(2))
			})
			assert.Equal(t, c.outcome, r.Outcome, "%v", r.Err)
			if c.errno != 0 || c.end != ledger.EndFIN {
				assert.Equal(t, c.errno, r.Errno, "%v", r.Err)
				assert.Equal(t, c.end, r.Ended)
			}
			assert.Error(t, r.Err)
			if c.absent {
				require.Equal(t, ledger.Acked, conn.Commit(ctx(t), op(3)).Outcome)
				assert.Equal(t, 4, queryInt(t, d, "SELECT SUM(seq) FROM "+d.table(c.profile.Tables()[0], 1)))
			}
		})
	}
}

func TestARefusedTransactionLeavesNothingBehind(t *testing.T) {
	d, p := prepared(t, sharedServer(t).Port(), workload.Transfer, Options{})
	conn := dial(t, d, p)
	do(t, d, "ALTER TABLE "+d.quoted("transfer_b_1")+" RENAME TO "+d.quoted("transfer_b_9"))
	r := conn.Commit(ctx(t), op(1))
	require.Equal(t, ledger.Refused, r.Outcome)
	require.Zero(t, r.Ended)
	do(t, d, "ALTER TABLE "+d.quoted("transfer_b_9")+" RENAME TO "+d.quoted("transfer_b_1"))
	require.Equal(t, ledger.Acked, conn.Commit(ctx(t), op(2)).Outcome, "the connection goes on")
	assert.Equal(t, 1, queryInt(t, d, "SELECT COUNT(*) FROM "+d.quoted("transfer_a_1")))
}

func TestDeadlockIsRefusedAndTheConnectionGoesOn(t *testing.T) {
	d, p := prepared(t, sharedServer(t).Port(), workload.Transfer, Options{})
	conn := dial(t, d, p)
	require.Equal(t, ledger.Acked, conn.Commit(ctx(t), op(1)).Outcome)
	// Two operations that want each other's row: the stream writes a and then
	// wants b, the other one holds b and, having written more, is spared.
	other := open(t, d, "BEGIN", "INSERT INTO "+d.quoted("transfer_b_1")+" SELECT 9, seq, '', 1, '' FROM seq_1_to_100",
		"INSERT INTO "+d.quoted("transfer_b_1")+" VALUES (1, 2, '', 1, '')")
	done := make(chan client.Reply, 1)
	go func() { done <- conn.Commit(context.Background(), op(2)) }()
	eventually(t, "the stream waits", func() bool {
		return queryInt(t, d, "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT'") > 0
	})
	_, err := other.ExecContext(ctx(t), "INSERT INTO "+d.quoted("transfer_a_1")+" VALUES (1, 2, '', 1, '')")
	require.NoError(t, err)
	r := <-done
	assert.Equal(t, ledger.Refused, r.Outcome)
	assert.EqualValues(t, 1213, r.Errno)
	require.Zero(t, r.Ended)
	_, err = other.ExecContext(ctx(t), "ROLLBACK")
	require.NoError(t, err)
	require.Equal(t, ledger.Acked, conn.Commit(ctx(t), op(3)).Outcome)
}

func TestReadOnlyServer(t *testing.T) {
	s := ownServer(t)
	for _, profile := range []workload.Profile{workload.Append, workload.Transfer} {
		t.Run(string(profile), func(t *testing.T) {
			root, p := prepared(t, s.Port(), profile, Options{})
			do(t, root, "CREATE OR REPLACE USER w@'127.0.0.1'", GrantText(root.dsn.Schema, "w@'127.0.0.1'"))
			dsn := root.DSN()
			dsn.User = "w"
			d, err := Open(dsn, Options{})
			require.NoError(t, err)
			conn := dial(t, d, p)
			require.Equal(t, ledger.Acked, conn.Commit(ctx(t), op(1)).Outcome)
			do(t, root, "SET GLOBAL read_only=1")
			defer do(t, root, "SET GLOBAL read_only=0")
			r := conn.Commit(ctx(t), op(2))
			assert.Equal(t, ledger.Refused, r.Outcome)
			assert.EqualValues(t, 1290, r.Errno)
			assert.Zero(t, r.Ended)
			var ro *ReadOnlyError
			assert.ErrorAs(t, d.Prepare(ctx(t), p, 1), &ro)
			set, err := d.Settings(ctx(t))
			require.NoError(t, err)
			assert.True(t, set.ReadOnly)
		})
	}
}

func TestFullTableIsRefused(t *testing.T) {
	s := ownServer(t, "--innodb-data-file-path=ibdata1:12M", "--innodb-file-per-table=0")
	d, p := prepared(t, s.Port(), workload.Append, Options{})
	p.PayloadMin, p.PayloadMax = 8000, 8000
	do(t, d, "ALTER TABLE "+d.quoted("append_1")+" MODIFY payload VARBINARY(8000) NOT NULL")
	conn := dial(t, d, p)
	for n := workload.Seq(1); n < 5000; n++ {
		if r := conn.Commit(ctx(t), op(n)); r.Outcome != ledger.Acked {
			assert.Equal(t, ledger.Refused, r.Outcome, "%v", r.Err)
			assert.EqualValues(t, 1114, r.Errno)
			assert.Zero(t, r.Ended)
			return
		}
	}
	t.Fatal("12 MB hold 40 MB")
}

// The numbers of acknowledged rows must all be there after shutdown, kill or
// a killed connection in the middle of the load.
func TestEndsDuringLoad(t *testing.T) {
	s := ownServer(t)
	for name, c := range map[string]struct {
		end     func(t *testing.T, d *DB, ids []uint64)
		allowed []ledger.End
		restart bool
	}{
		"SHUTDOWN":        {func(t *testing.T, d *DB, _ []uint64) { do(t, d, "SHUTDOWN") }, []ledger.End{ledger.EndShutdown, ledger.EndFIN, ledger.EndRST}, true},
		"SIGKILL":         {func(t *testing.T, _ *DB, _ []uint64) { require.NoError(t, s.Kill()) }, []ledger.End{ledger.EndFIN, ledger.EndRST}, true},
		"KILL CONNECTION": {func(t *testing.T, d *DB, ids []uint64) { killAll(t, d, "CONNECTION", ids) }, []ledger.End{ledger.EndShutdown, ledger.EndFIN, ledger.EndRST}, false},
		"SIGSTOP":         {func(t *testing.T, _ *DB, _ []uint64) { require.NoError(t, s.Signal(syscall.SIGSTOP)) }, []ledger.End{ledger.EndSilence}, true},
	} {
		t.Run(name, func(t *testing.T) {
			d, p := prepared(t, s.Port(), workload.Transfer, Options{Silence: time.Second})
			const streams = 4
			acked := make([]workload.Seq, streams)
			ends := make([]client.Reply, streams)
			ids := make([]uint64, streams)
			var wg sync.WaitGroup
			for i := range streams {
				conn := dial(t, d, p)
				ids[i] = conn.ID()
				wg.Go(func() {
					for n := workload.Seq(1); ends[i].Ended == 0; n++ {
						ends[i] = conn.Commit(context.Background(), workload.Op{Stream: workload.Stream(i + 1), Seq: n, First: 1})
						if ends[i].Outcome == ledger.Acked {
							acked[i] = n
						}
					}
				})
			}
			eventually(t, "load", func() bool { return queryInt(t, d, "SELECT COUNT(*) FROM "+d.quoted("transfer_b_1")) > 200 })
			c.end(t, d, ids)
			wg.Wait()
			for _, r := range ends {
				assert.Contains(t, c.allowed, r.Ended, "%v", r.Err)
				if r.Sent != 0 {
					assert.Equal(t, ledger.Unknown, r.Outcome, "COMMIT was sent: %v", r.Err)
				}
			}
			if c.restart {
				require.NoError(t, s.Restart(ctx(t)))
			}
			sv, err := d.Survivors(1)
			require.NoError(t, err)
			defer sv.Close()
			for i, last := range acked {
				rows := readAll(t, sv, workload.TableB, workload.Stream(i+1), 0)
				require.GreaterOrEqual(t, len(rows), int(last))
				require.LessOrEqual(t, len(rows), int(last)+1, "only the unknown one may be there beside")
				if ends[i].Outcome == ledger.Refused {
					require.Len(t, rows, int(last), "refused is absent")
				}
			}
		})
	}
}

func TestCancelledContext(t *testing.T) {
	s := sharedServer(t)
	d, p := prepared(t, s.Port(), workload.Append, Options{})
	t.Run("before anything is sent", func(t *testing.T) {
		conn := dial(t, d, p)
		c, cancel := context.WithCancel(context.Background())
		cancel()
		r := conn.Commit(c, op(1))
		assert.Equal(t, ledger.Refused, r.Outcome)
		assert.Equal(t, ledger.EndStopped, r.Ended)
		assert.ErrorIs(t, r.Err, context.Canceled)
	})
	t.Run("after the operation", func(t *testing.T) {
		conn := dial(t, d, p)
		c, cancel := context.WithCancel(context.Background())
		require.Equal(t, ledger.Acked, conn.Commit(c, op(10)).Outcome)
		cancel()
		assert.Equal(t, ledger.Acked, conn.Commit(ctx(t), op(11)).Outcome, "the context of an operation is none of the next one's")
	})
	t.Run("while the reply is awaited", func(t *testing.T) {
		px := newProxy(t, s.Addr())
		conn := dial(t, through(t, d, px, Options{Silence: time.Minute}), p)
		c, cancel := context.WithCancel(context.Background())
		defer cancel()
		require.Equal(t, ledger.Acked, conn.Commit(c, op(1)).Outcome)
		px.on(silentAfter, func(cmd []byte) bool {
			if isExecute(cmd) {
				cancel()
			}
			return isExecute(cmd)
		})
		r := conn.Commit(c, op(2))
		assert.Equal(t, ledger.Unknown, r.Outcome)
		assert.Equal(t, ledger.EndStopped, r.Ended)
		assert.NotZero(t, r.Sent)
	})
}

func TestErrorNumbersThatMustNeverCountAsCertain(t *testing.T) {
	for _, n := range []uint32{0, 1180, 1317, 1053, 1026, 1021, 1030, 1105, 1927, 1969, 3169, 1040, 1045, 1062, 2006, 2013, 1296, 1015} {
		assert.False(t, statementRefused(n), n)
		assert.False(t, commitRefused(n), n)
	}
	for n := range uint32(5000) {
		if commitRefused(n) {
			assert.True(t, statementRefused(n), "COMMIT's list is the shorter one: %d", n)
		}
	}
	for _, n := range []uint32{0, 1016, 1017, 1030, 1037, 1040, 1044, 1045, 1053, 1105, 1142, 1205, 1213, 1286, 1296, 1317, 1969, 2013} {
		assert.False(t, unreadable(n), "%d can be harmless", n)
	}
}

func TestDialErrors(t *testing.T) {
	s := sharedServer(t)
	d, p := prepared(t, s.Port(), workload.Append, Options{})
	bad := d.DSN()
	bad.SetPassword("hunter2")
	bd, err := Open(bad, Options{})
	require.NoError(t, err)
	_, err = bd.Dial(ctx(t), p, 1)
	var ce *ConnectError
	require.ErrorAs(t, err, &ce)
	assert.EqualValues(t, 1045, Errno(err))
	assert.NotContains(t, err.Error(), "hunter2")

	_, err = d.Dial(ctx(t), p, 7)
	assert.EqualValues(t, 1146, Errno(err), "an epoch that was not prepared")
	assert.False(t, errors.Is(err, context.Canceled))
}
