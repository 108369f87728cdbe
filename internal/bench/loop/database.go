package loop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"

	"plugpull/client"
	"plugpull/internal/campaign"
	"plugpull/internal/database/mysql"
	"plugpull/internal/ledger"
	"plugpull/internal/witness"
	"plugpull/internal/workload"
	"plugpull/verifier"
)

// Schema is plugpull's schema on the bench's server.
const Schema = mysql.DefaultSchema

// database is the bench as the campaign sees its database: the server of the present, which keeps
// its address, and the witness file beside it.
type database struct {
	mysql.Target
	b *Bench
}

var (
	_ campaign.Database   = (*database)(nil)
	_ campaign.Witnessing = (*database)(nil)
)

func (b *Bench) openDatabase() (*database, error) {
	dsn, err := mysql.ParseDSN("mysql://root@" + b.server.Addr() + "/" + Schema)
	if err != nil {
		return nil, err
	}
	db, err := mysql.Open(dsn, mysql.Options{Silence: b.c.Silence})
	if err != nil {
		return nil, err
	}
	return &database{mysql.Target{DB: db}, b}, nil
}

// Dial implements campaign.Server.
func (d *database) Dial(ctx context.Context, p workload.Params, epoch uint32) (client.Conn, error) {
	c, err := d.Target.Dial(ctx, p, epoch)
	if err != nil {
		return nil, err
	}
	return &cable{c, d.b}, nil
}

// cable is the way from the device under test to the client: it falls silent with the power.
// The server lives on for a moment after the drive's cut and may answer; no host without
// power could.
type cable struct {
	client.Conn
	b *Bench
}

func (c *cable) Commit(ctx context.Context, op workload.Op) client.Reply {
	r := c.Conn.Commit(ctx, op)
	if c.b.cut.Load() {
		r.Outcome = ledger.Unknown
		if r.Ended == 0 {
			r.Ended = ledger.EndSilence
		}
	}
	return r
}

// DialWitness implements campaign.Witnessing.
func (d *database) DialWitness(_ context.Context, p workload.Params) (client.Conn, error) {
	c, err := d.b.witness.Dial(p)
	if err != nil {
		return nil, err
	}
	return &cable{c, d.b}, nil
}

// WitnessSurvivors implements campaign.Witnessing.
func (d *database) WitnessSurvivors(workload.Params) (verifier.Survivors, error) {
	if d.b.stack == nil || d.b.stack.mount == nil {
		return nil, &verifier.UnreadableError{Table: workload.TableWitness, Err: errors.New("the filesystem does not mount")}
	}
	return d.b.witness.Survivors(), nil
}

func (b *Bench) witnessPath() string { return b.path("mnt/witness") }

// openWitness opens the witness file on the thread that sees the mount. What the filesystem cannot
// read of it is lost.
func (b *Bench) openWitness() (f witness.File, err error) {
	err = b.ns.Do(func() error {
		f, err = witness.OpenFile(b.witnessPath())
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, b.unreadable(err)
	}
	return witnessFile{f, b}, err
}

// unreadable tells what the filesystem cannot read from what this machine cannot do.
func (b *Bench) unreadable(err error) error {
	var errno unix.Errno
	switch {
	case b.wire.Err() != nil:
		return fmt.Errorf("the drive's image on this machine failed: %w", b.wire.Err())
	case b.hung.Load() || !errors.As(err, &errno) || !slices.Contains(damage, errno):
		return err
	}
	return &verifier.UnreadableError{Table: workload.TableWitness, Err: err}
}

type witnessFile struct {
	witness.File
	b *Bench
}

func (f witnessFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	if err != nil && !errors.Is(err, io.EOF) {
		err = f.b.unreadable(err)
	}
	return n, err
}
