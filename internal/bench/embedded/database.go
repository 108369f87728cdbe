package embedded

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"plugpull/client"
	"plugpull/internal/campaign"
	words "plugpull/internal/database"
	"plugpull/internal/database/sqlite"
	"plugpull/internal/ledger"
	"plugpull/internal/simdrive"
	"plugpull/internal/simdrive/sqlitevfs"
	"plugpull/internal/workload"
	"plugpull/verifier"
)

// dbFile is the database's name on the drive.
const dbFile = "plugpull.db"

// mounted is a file layer on one generation of the drive, and the database on it.
type mounted struct {
	fs *sqlitevfs.FS
	db *sqlite.DB
}

// device is how the file layer sees a handle.
func (b *Bench) device(h *simdrive.Handle) sqlitevfs.Device {
	if b.c.SyncByFUA {
		return fuaDevice{h}
	}
	return h
}

// fuaDevice writes with FUA and has nothing left to flush.
type fuaDevice struct{ *simdrive.Handle }

func (d fuaDevice) WriteAt(p []byte, off int64) (int, error) { return d.WriteFUA(p, off) }
func (d fuaDevice) Flush() error                             { return nil }

// mountOn mounts the drive. Only a *verifier.UnreadableError is the drive's fault: the WAL index
// lies in a folder of the host, which can fail on its own.
func (b *Bench) mountOn(h *simdrive.Handle) error {
	fs, err := sqlitevfs.Mount(b.device(h))
	if err != nil {
		return &verifier.UnreadableError{Err: fmt.Errorf("mount the drive: %w", err)}
	}
	name, err := fs.Register("")
	if err != nil {
		return err
	}
	b.mount = &mounted{fs, sqlite.Open(name, dbFile, b.c.Pragmas, b.Now)}
	return nil
}

func (b *Bench) unmount() error {
	if b.mount == nil {
		return nil
	}
	m := b.mount
	b.mount = nil
	return m.fs.Unregister()
}

// database is the bench as the campaign sees its database.
type database Bench

var _ campaign.Witnessing = (*database)(nil)

func (d *database) b() *Bench { return (*Bench)(d) }

// Await implements campaign.Server: there is no server to wait for.
func (d *database) Await(context.Context) error { return nil }

// Facts implements campaign.Server. They are read while the database is whole: after a
// cut it may not even open. What the pragmas risk is the scenario's own choice.
func (d *database) Facts(ctx context.Context) (words.Facts, error) {
	if d.facts.Identity != nil {
		return d.facts, nil
	}
	f, err := d.mount.db.Facts(ctx)
	if err != nil {
		return f, err
	}
	f.Problems = nil
	d.facts = f
	return f, nil
}

func (d *database) Dial(ctx context.Context, p workload.Params, epoch uint32) (client.Conn, error) {
	c, err := d.mount.db.Dial(ctx, p, epoch)
	if err != nil {
		return nil, err
	}
	return &cable{c, d.b()}, nil
}

// cable is the way from the device under test to the client: it falls silent with the power.
// SQLite may report a commit although the power failed after it was durable, in a checkpoint
// whose errors it swallows; such a reply would never have reached a client.
type cable struct {
	client.Conn
	b *Bench
}

func (c *cable) Commit(ctx context.Context, op workload.Op) client.Reply {
	r := c.Conn.Commit(ctx, op)
	if _, cut := c.b.drive.Report(); cut && r.Ended == 0 {
		r.Outcome, r.Ended = ledger.Unknown, ledger.EndSilence
	}
	return r
}

func (d *database) Prepare(ctx context.Context, p workload.Params, epoch uint32) error {
	return d.mount.db.Prepare(ctx, p, epoch)
}

// Run implements campaign.Store: the drive is made for this run alone.
func (d *database) Run(context.Context) (uuid.UUID, error) { return uuid.Nil, nil }

// PutToken implements campaign.Store: the drive's generation is the token.
func (d *database) PutToken(context.Context, uint32, uint64) error { return nil }

// Token implements campaign.Store: the session's drive lost its power exactly
// when a cut was reported.
func (d *database) Token(context.Context, uint64) (words.Token, error) {
	if _, cut := d.drive.Report(); cut {
		return words.TokenGone, nil
	}
	return words.TokenThere, nil
}

func (d *database) Survivors(epoch uint32) (verifier.Survivors, func() error, error) {
	if d.mount == nil {
		return nil, nil, errors.New("the drive is not mounted")
	}
	return d.mount.db.Survivors(epoch)
}

func (d *database) DialWitness(_ context.Context, p workload.Params) (client.Conn, error) {
	c, err := d.witness.Dial(p)
	if err != nil {
		return nil, err
	}
	return &cable{c, d.b()}, nil
}

func (d *database) WitnessSurvivors(workload.Params) (verifier.Survivors, error) {
	if d.mount == nil {
		return nil, &verifier.UnreadableError{Table: workload.TableWitness, Err: errors.New("the drive is not mounted")}
	}
	return d.witness.Survivors(), nil
}
