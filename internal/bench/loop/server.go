package loop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	words "plugpull/internal/database"
	"plugpull/internal/mysqld"
	"plugpull/internal/simdrive"
	"plugpull/verifier"
)

// Renew implements campaign.Renewing: a new drive with a new filesystem and a new server on it.
func (b *Bench) Renew(ctx context.Context, cycle uint32) error {
	if err := b.tearDown(ctx); err != nil {
		return err
	}
	if err := b.newDrive(cycle); err != nil {
		return err
	}
	if err := b.powerOn(ctx); err != nil {
		return err
	}
	if err := b.makeFilesystem(ctx); err != nil {
		return err
	}
	if err := b.initialise(ctx); err != nil {
		return err
	}
	err := b.start(ctx)
	var serr *mysqld.StartError
	if errors.As(err, &serr) && serr.Refused != "" {
		return refusal(b.c.Settings, serr.Refused, serr)
	}
	if err != nil {
		return err
	}
	b.before = nil
	// A base that has no room for the drive shows itself here, not as a server that hangs later.
	return b.Settle(ctx)
}

// newDrive replaces the drive. Its first power-on has the cycle's number, so that faults with a
// schedule count cycles.
func (b *Bench) newDrive(cycle uint32) error {
	b.broken = nil
	cfg := b.c.Drive
	cfg.Clock, cfg.Seed, cfg.FirstGeneration = simdrive.RealClock(), b.rand(cycle).Uint64(), uint64(cycle)
	cfg.KeepCut, cfg.Log = true, simdrive.LogHeads
	if b.base != nil {
		if err := b.base.Truncate(0); err != nil {
			return fmt.Errorf("empty the drive's file: %w", err)
		}
		cfg.Base = b.base
	}
	var err error
	b.drive, err = simdrive.New(cfg)
	b.witness.Forget()
	return err
}

// initialise puts the files of an empty server, and an empty witness file, on the filesystem.
func (b *Bench) initialise(ctx context.Context) error {
	template, err := b.c.Templates.of(ctx, b.install, b.c.Settings)
	if err != nil {
		return err
	}
	if b.server == nil {
		b.server, err = mysqld.New(b.install, mysqld.Config{Datadir: b.path("mnt/data"), Dir: b.dir, Settings: b.c.Settings, Spawn: b.ns.Do})
		if err != nil {
			return err
		}
		if b.db, err = b.openDatabase(); err != nil {
			return err
		}
	}
	return b.limited(ctx, "copy the server's files to the filesystem", func(context.Context) error {
		if err := os.CopyFS(b.path("mnt/data"), os.DirFS(template)); err != nil {
			return err
		}
		return os.WriteFile(b.witnessPath(), nil, 0o600)
	})
}

// Settle implements campaign.Settling.
func (b *Bench) Settle(ctx context.Context) error {
	if err := b.syncFilesystem(ctx); err != nil {
		return err
	}
	if err := b.drive.Settle(); err != nil {
		return err
	}
	return b.wire.Err()
}

func (b *Bench) start(ctx context.Context) error {
	p, err := b.server.Start(ctx)
	if err != nil {
		return err
	}
	b.proc = p
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	return p.Await(ctx)
}

// restart starts the server after a cut. That it does not come is a finding when it ended by
// itself twice, and another with the same settings comes up in between on files that no cut has
// touched: what failed only for a moment is the machine's.
func (b *Bench) restart(ctx context.Context) error {
	for try := 1; ; try++ {
		err := b.start(ctx)
		if err == nil {
			return nil
		}
		if werr := b.wire.Err(); werr != nil {
			return fmt.Errorf("the drive's image on this machine failed: %w", werr)
		}
		var serr *mysqld.StartError
		switch {
		case !errors.As(err, &serr), serr.PortTaken, b.hung.Load():
			return err
		case serr.Exited && serr.End.Cause == mysqld.ByItself && try == 1:
			if herr := b.healthy(ctx); herr != nil {
				return fmt.Errorf("the server does not start, and neither does one on untouched files, so nothing follows from it: %w; %w", err, herr)
			}
		case serr.Exited && serr.End.Cause == mysqld.ByItself:
			return &verifier.UnreadableError{Err: fmt.Errorf("the server does not start again: %w", serr)}
		case !serr.Exited && errors.Is(err, context.DeadlineExceeded):
			return fmt.Errorf("%w: %w", words.ErrNoServer, err)
		default:
			return err
		}
	}
}

// healthy starts another server on files that were never on the drive.
func (b *Bench) healthy(ctx context.Context) (err error) {
	template, err := b.c.Templates.of(ctx, b.install, b.c.Settings)
	if err != nil {
		return err
	}
	data := b.path("healthy")
	defer func() { err = errors.Join(err, os.RemoveAll(data)) }()
	if err := os.CopyFS(data, os.DirFS(template)); err != nil {
		return err
	}
	s, err := mysqld.New(b.install, mysqld.Config{Datadir: data, Dir: b.dir, Settings: b.c.Settings})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	p, err := s.Start(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	return p.Await(ctx)
}

// killServer kills the server and waits until it is gone. One that hangs in a request to the
// drive is freed by aborting the drive's connection.
func (b *Bench) killServer(ctx context.Context) error {
	if b.proc == nil {
		return nil
	}
	kill := func() error {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.c.Limit)
		defer cancel()
		_, err := b.proc.Kill(limited)
		return err
	}
	err := kill()
	if err != nil {
		err = errors.Join(fmt.Errorf("kill the server: %w (after %v): %v", errHung, b.c.Limit, err), b.abort())
		if kerr := kill(); kerr != nil {
			return errors.Join(err, kerr)
		}
	}
	b.proc = nil
	return err
}

// dyingTime is how long a server may take from failing its clients to its end: it writes a
// stack trace in between.
const dyingTime = 3 * time.Second

// Revive implements campaign.Mortal.
func (b *Bench) Revive(ctx context.Context) (died string, err error) {
	if b.proc == nil {
		return "", nil
	}
	t := time.NewTimer(dyingTime)
	defer t.Stop()
	select {
	case <-b.proc.Exited():
	case <-t.C:
	case <-ctx.Done():
	}
	end, over := b.proc.End()
	if !over || end.Cause != mysqld.ByItself || b.wire.Err() != nil || b.hung.Load() || noRoom(b.dir) {
		return "", nil
	}
	died = fmt.Sprintf("the server ended by itself after it had recovered: %v; the end of its log:\n%s", end, b.proc.Log(4<<10))
	return died, b.restart(ctx)
}

// noRoom reports whether the server's temporary files had no room, of which it might have died.
func noRoom(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) != nil || st.Bavail*uint64(st.Bsize) < 32<<20
}
