package ledger

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"plugpull/internal/workload"
)

// Nobody asks, and still a record is durable within 10 ms of the first of its
// group, in one write and one sync.
func TestGroupCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &memFile{}
		w := memWriter(t, f, bufferLimit)
		start := time.Now()
		for n := range 5 {
			_, err := w.Append(acked(workload.Seq(n + 1)))
			require.NoError(t, err)
			time.Sleep(time.Millisecond)
		}
		w.mu.Lock()
		end := w.next
		w.mu.Unlock()
		assert.Less(t, w.Durable(), end)
		require.NoError(t, w.SyncTo(t.Context(), end))
		assert.LessOrEqual(t, time.Since(start), 10*time.Millisecond)
		assert.Equal(t, 1, f.syncs)
		assert.Equal(t, len(f.data), f.durable)

		// Sync does not wait for the group to fill.
		_, err := w.Append(acked(6))
		require.NoError(t, err)
		now := time.Now()
		require.NoError(t, w.Sync(t.Context()))
		assert.Equal(t, now, time.Now())
		require.NoError(t, w.Sync(t.Context()), "nothing to do")
		assert.Equal(t, 2, f.syncs)
		require.NoError(t, w.Close())
	})
}

// A slow disk does not hold up appending until the buffer is full; then
// appending waits, loses nothing and goes on.
func TestSlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 100 * recordSize
		f := &memFile{gate: make(chan struct{})}
		w := memWriter(t, f, limit)
		_, err := w.Append(acked(1))
		require.NoError(t, err)
		time.Sleep(time.Second) // the first group is stuck in its sync
		for n := range 100 {
			_, err := w.Append(acked(workload.Seq(n + 2)))
			require.NoError(t, err)
		}
		var last LSN
		go func() { last, _ = w.Append(acked(102)) }()
		synctest.Wait()
		assert.Zero(t, last, "the buffer is not bounded")

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		require.ErrorIs(t, w.Sync(ctx), context.DeadlineExceeded)
		cancel()

		close(f.gate)
		synctest.Wait()
		require.NotZero(t, last)
		require.NoError(t, w.Close())
		got, err := readAll(readerOf(t, f.bytes()))
		require.NoError(t, err)
		require.Len(t, got, 102)
		require.Equal(t, acked(102), got[101])
	})
}

// After the disk's first error nothing is written or confirmed any more, even
// when the disk would take it again.
func TestDiskErrorIsSticky(t *testing.T) {
	for name, tc := range map[string]struct {
		write, sync, want error
		says              string
	}{
		"sync":       {nil, unix.EIO, unix.EIO, "fdatasync"},
		"write":      {unix.EIO, nil, unix.EIO, "write"},
		"disk full":  {unix.ENOSPC, nil, unix.ENOSPC, "make room"},
		"full quota": {nil, unix.EDQUOT, unix.EDQUOT, "make room"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &memFile{}
				w := memWriter(t, f, bufferLimit)
				good, err := w.Append(acked(1))
				require.NoError(t, err)
				require.NoError(t, w.Sync(t.Context()))

				f.mu.Lock()
				f.writeErr, f.syncErr = tc.write, tc.sync
				f.mu.Unlock()
				bad, err := w.Append(acked(2))
				require.NoError(t, err)
				<-w.Failed() // without anybody asking
				f.mu.Lock()
				f.writeErr, f.syncErr = nil, nil
				writes, syncs := f.writes, f.syncs
				f.mu.Unlock()

				_, errAppend := w.Append(acked(3))
				_, errAll := w.AppendAll([]Record{acked(3)})
				for what, err := range map[string]error{
					"Err": w.Err(), "Append": errAppend, "AppendAll": errAll,
					"Sync": w.Sync(t.Context()), "SyncTo": w.SyncTo(t.Context(), bad), "Close": w.Close(),
				} {
					require.ErrorIs(t, err, tc.want, what)
					require.ErrorContains(t, err, "ledger mem", what)
					require.ErrorContains(t, err, tc.says, what)
				}
				require.NoError(t, w.SyncTo(t.Context(), good), "it was durable before")
				require.Equal(t, good, w.Durable())
				require.Equal(t, [2]int{writes, syncs}, [2]int{f.writes, f.syncs})

				// The short write is a torn tail for the reader.
				got, err := readAll(readerOf(t, f.bytes()))
				require.NoError(t, err)
				require.Equal(t, acked(1), got[0])
				if tc.write != nil {
					require.Len(t, got, 1)
				}
			})
		})
	}
}

// Those who wait for the disk, or for room, are woken by its error.
func TestDiskErrorWakesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &memFile{gate: make(chan struct{}), syncErr: unix.EIO}
		w := memWriter(t, f, recordSize)
		end, err := w.Append(acked(1))
		require.NoError(t, err)
		time.Sleep(time.Second)
		_, err = w.Append(acked(2))
		require.NoError(t, err)
		errs := make(chan error, 3)
		go func() { errs <- w.Sync(t.Context()) }()
		go func() { errs <- w.SyncTo(t.Context(), end) }()
		go func() { _, err := w.Append(acked(3)); errs <- err }()
		synctest.Wait()
		assert.Empty(t, errs)
		close(f.gate)
		for range 3 {
			require.ErrorIs(t, <-errs, unix.EIO)
		}
		require.ErrorIs(t, w.Close(), unix.EIO)
	})
}

func TestCloseFlushes(t *testing.T) {
	w, path := create(t)
	end, err := w.Append(acked(1))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.NoError(t, w.Close())
	assert.Equal(t, end, w.Durable())
	assert.Equal(t, []Record{acked(1)}, readFile(t, path))
	_, err = w.Append(acked(2))
	require.ErrorIs(t, err, ErrClosed)
	require.NoError(t, w.Sync(t.Context()))
	require.ErrorIs(t, w.SyncTo(t.Context(), end+1), ErrPosition)
}

// Streams append at once: no record is lost, none mixed with another's, each
// stream's order is kept, and each position says when it is durable.
func TestConcurrentStreams(t *testing.T) {
	const streams, each = 8, 2000
	w, path := create(t)
	var wg sync.WaitGroup
	errs := make([]error, streams)
	for s := range streams {
		wg.Go(func() {
			for n := workload.Seq(1); n <= each && errs[s] == nil; n++ {
				r := acked(n)
				r.Stream = workload.Stream(s + 1)
				note := text(TextNote, uint32(s+1), "a note that takes more than one record: 0123456789012345678901234567890123456789")
				end, err := w.AppendAll([]Record{r, note})
				if err == nil && n%500 == 0 {
					err = w.SyncTo(t.Context(), end)
				}
				errs[s] = err
			}
		})
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	require.NoError(t, w.Close())

	next := map[workload.Stream]workload.Seq{}
	all := readFile(t, path)
	require.Len(t, all, 2*streams*each)
	for i := 0; i < len(all); i += 2 {
		next[all[i].Stream]++
		require.Equal(t, next[all[i].Stream], all[i].From)
		require.Equal(t, KindText, all[i+1].Kind)
		require.Equal(t, uint32(all[i].Stream), all[i+1].Session)
	}
}

func TestCreate(t *testing.T) {
	w, path := create(t)
	st, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o644), st.Mode().Perm())

	_, err = Create(path, testRun, testBoot, testConfig())
	require.ErrorIs(t, err, os.ErrExist)
	require.ErrorContains(t, err, path)
	_, err = w.Append(acked(1))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	assert.Equal(t, []Record{acked(1)}, readFile(t, path), "the ledger that exists was left alone")

	_, err = Create(filepath.Join(t.TempDir(), "missing", "ledger"), testRun, testBoot, testConfig())
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestOneWriter(t *testing.T) {
	w, path := create(t)
	_, _, err := Open(path)
	var locked *LockedError
	require.ErrorAs(t, err, &locked)
	assert.Equal(t, "ledger "+path+": another plugpull writes this ledger", err.Error())
	require.NoError(t, w.Close())

	w, _, err = Open(path)
	require.NoError(t, err)
	_, _, err = Open(path)
	require.ErrorAs(t, err, &locked)
	require.NoError(t, w.Close())
}

// A torn tail is gone before the first append, so that it can never be taken
// for damage in the middle; what is dropped is said.
func TestResumeAfterTornTail(t *testing.T) {
	for name, tail := range map[string][]byte{
		"nothing":           nil,
		"half a record":     make([]byte, 30),
		"three bad records": make([]byte, 3*recordSize+5),
		"half a text":       encoded(t, acked(1), text(TextNote, 1, string(make([]byte, 120))))[len(encoded(t, acked(1))):][:2*recordSize],
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ledger")
			require.NoError(t, os.WriteFile(path, append(encoded(t, acked(1)), tail...), 0o600))
			w, st, err := Open(path)
			require.NoError(t, err)
			assert.Equal(t, Tail{int64(len(tail)), int64(len(tail)+recordSize-1) / recordSize}, st.Dropped)
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.True(t, bytes.Equal(encoded(t, acked(1)), b))
			assert.Equal(t, st.End, w.Durable())

			_, err = w.Append(acked(2))
			require.NoError(t, err)
			require.NoError(t, w.Close())
			assert.Equal(t, []Record{acked(1), acked(2)}, readFile(t, path))
		})
	}
}

// A damaged ledger is evidence: Open leaves it as it is.
func TestOpenLeavesDamage(t *testing.T) {
	b := encoded(t, acked(1), acked(2))
	b[len(b)-100] ^= 1
	path := filepath.Join(t.TempDir(), "ledger")
	require.NoError(t, os.WriteFile(path, b, 0o600))
	_, _, err := Open(path)
	var damaged *DamagedError
	require.ErrorAs(t, err, &damaged)
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(b, after))
}

func TestAllocations(t *testing.T) {
	w := memWriter(t, &memFile{}, bufferLimit)
	r := acked(1)
	n := testing.AllocsPerRun(1000, func() { _, _ = w.Append(r) })
	assert.Less(t, n, 1.0)
	require.NoError(t, w.Close())

	src := readerOf(t, encoded(t, make100()...))
	var rec Record
	n = testing.AllocsPerRun(90, func() { _, _ = src.Next(&rec) })
	assert.Zero(t, n)
}

func make100() []Record {
	rs := make([]Record, 100)
	for i := range rs {
		rs[i] = acked(workload.Seq(i + 1))
	}
	return rs
}
