package sqlite

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"plugpull/client"
	"plugpull/internal/clock"
	"plugpull/internal/ledger"
	"plugpull/internal/simdrive/sqlitevfs"
	"plugpull/internal/workload"
	"plugpull/verifier"
)

var (
	run         = uuid.MustParse("6f1d0c1e-3b7a-4c55-9a0e-5d2f8b7c4a19")
	errPowerOff = errors.New("the power is off")
	bg          = context.Background()
)

const sector = 512

// device is an honest drive: at a cut, all that was not flushed is gone, or all is there.
type device struct {
	mu              sync.Mutex
	size            int64
	durable, newest map[int64][sector]byte
	dirty           map[int64]bool
	off             bool
	ops, trap       int // the power fails as op number trap arrives
}

func newDevice() *device {
	return &device{size: 256 << 20, durable: map[int64][sector]byte{}, newest: map[int64][sector]byte{}, dirty: map[int64]bool{}}
}

func (d *device) Size() int64 { return d.size }

func (d *device) ReadAt(p []byte, off int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.off {
		return 0, errPowerOff
	}
	for n := 0; n < len(p); {
		at := off + int64(n)
		s := d.newest[at/sector]
		n += copy(p[n:], s[at%sector:])
	}
	return len(p), nil
}

func (d *device) op() bool {
	d.ops++
	d.off = d.off || d.ops == d.trap
	return !d.off
}

func (d *device) WriteAt(p []byte, off int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.op() {
		return 0, errPowerOff
	}
	for i := 0; i < len(p); i += sector {
		at := (off + int64(i)) / sector
		d.newest[at], d.dirty[at] = [sector]byte(p[i:i+sector]), true
	}
	return len(p), nil
}

func (d *device) Flush() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.op() {
		return errPowerOff
	}
	for at := range d.dirty {
		d.durable[at] = d.newest[at]
	}
	clear(d.dirty)
	return nil
}

// restart returns the drive after a cut.
func (d *device) restart(keep bool) *device {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.off = true
	left := d.durable
	if keep {
		left = d.newest
	}
	return &device{size: d.size, durable: maps.Clone(left), newest: maps.Clone(left), dirty: map[int64]bool{}}
}

// bench is a mounted drive and a database on it.
type bench struct {
	*DB
	d    *device
	fs   *sqlitevfs.FS
	tick clock.Instant
}

func mount(t testing.TB, d *device, p Pragmas) *bench {
	t.Helper()
	fs, err := sqlitevfs.Mount(d)
	require.NoError(t, err)
	name, err := fs.Register(t.TempDir())
	require.NoError(t, err)
	b := &bench{d: d, fs: fs}
	var mu sync.Mutex
	b.DB = Open(name, "test.db", p, func() clock.Instant {
		mu.Lock()
		defer mu.Unlock()
		b.tick++
		return b.tick
	})
	b.busy = 0
	t.Cleanup(func() { require.NoError(t, fs.Unregister()) })
	return b
}

// prepared is a fresh database with the tables of epoch 1.
func prepared(t testing.TB, p Pragmas, w workload.Params) *bench {
	t.Helper()
	return preparedOn(t, newDevice(), p, w)
}

func preparedOn(t testing.TB, d *device, p Pragmas, w workload.Params) *bench {
	t.Helper()
	require.NoError(t, sqlitevfs.Format(d))
	b := mount(t, d, p)
	require.NoError(t, b.Prepare(bg, w, 1))
	require.NoError(t, b.fs.Sync())
	return b
}

func params(profile workload.Profile) workload.Params {
	p := workload.Params{Run: run, Profile: profile, PayloadMin: 0, PayloadMax: 900}
	if profile == workload.Churn {
		p.Window = workload.MinWindow
	}
	return p
}

func dial(t testing.TB, b *bench, w workload.Params) client.Conn {
	t.Helper()
	c, err := b.Dial(bg, w, 1)
	require.NoError(t, err)
	return c
}

// fill commits n operations of a stream, from number 1 on.
func fill(t testing.TB, b *bench, w workload.Params, s workload.Stream, n workload.Seq) {
	t.Helper()
	c := dial(t, b, w)
	for i := workload.Seq(1); i <= n; i++ {
		r := c.Commit(bg, workload.Op{Stream: s, Seq: i, First: 1})
		require.Equal(t, ledger.Acked, r.Outcome, "%v", r.Err)
	}
	require.NoError(t, c.Close())
}

// rows reads a stream of a table and checks each row's bytes.
func rows(t testing.TB, s verifier.Survivors, w workload.Params, table workload.Table, stream workload.Stream) (seqs []workload.Seq) {
	t.Helper()
	c, err := s.Rows(bg, table, stream, 0)
	require.NoError(t, err)
	for {
		var r workload.Row
		ok, err := c.Next(&r)
		require.NoError(t, err)
		if !ok {
			break
		}
		require.True(t, w.Intact(&r), "%v %d", table, r.Seq)
		seqs = append(seqs, r.Seq)
	}
	require.NoError(t, c.Close())
	return seqs
}

func survivorsOf(t testing.TB, b *bench) verifier.Survivors {
	t.Helper()
	s, release, err := b.Survivors(1)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, release()) })
	return s
}
