package loop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"plugpull/internal/blockdev"
	"plugpull/internal/campaign"
	"plugpull/internal/simdrive/fuse"
	"plugpull/internal/usage"
	"plugpull/verifier"
)

// stack is what lies between the drive and the server.
type stack struct {
	loop    *blockdev.Loop
	mount   *blockdev.MountInfo // nil while nothing is mounted
	stopped bool                // the filesystem was shut down
}

// errHung: a step did not end, and the drive's connection was aborted. Nothing that failed
// after it says anything about the drive.
var errHung = errors.New("it hung, so the drive's connection was aborted")

// limited runs a step on the namespace's thread. Its context ends after the limit; when it has
// not ended a second later, the FUSE connection is aborted: every request that hangs then
// fails, and with it the step. Only time in which this process runs counts, so that a
// process that was stopped for a while does not blame the drive.
func (b *Bench) limited(ctx context.Context, step string, f func(context.Context) error) error {
	if b.hung.Load() {
		return fmt.Errorf("%s: %w before", step, errHung)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done, watched := make(chan struct{}), make(chan error, 1)
	go func() { watched <- b.watch(done, cancel) }()
	err := b.ns.Do(func() error { return f(ctx) })
	close(done)
	abortErr := <-watched
	cancel()
	switch {
	case b.hung.Load():
		// Its own errors are those of the abort, and are not to be taken for the drive's.
		return errors.Join(fmt.Errorf("%s: %w (after %v): %v", step, errHung, b.c.Limit, err), abortErr)
	case err != nil:
		return fmt.Errorf("%s: %w", step, err)
	}
	return nil
}

// watch cancels a step after the limit, and aborts the connection a second later.
func (b *Bench) watch(done <-chan struct{}, cancel func()) error {
	const beat = 50 * time.Millisecond
	t := time.NewTicker(beat) // it drops the beats that nobody could hear
	defer t.Stop()
	for ran := time.Duration(0); ran < b.c.Limit+time.Second; ran += beat {
		if ran >= b.c.Limit {
			cancel()
		}
		select {
		case <-done:
			return nil
		case <-t.C:
		}
	}
	return b.abort()
}

func (b *Bench) abort() error {
	b.hung.Store(true)
	if b.wire == nil {
		return nil
	}
	return b.wire.Abort()
}

// powerOn starts a new generation of the drive and attaches a loop device to it.
func (b *Bench) powerOn(ctx context.Context) error {
	h, err := b.drive.PowerOn()
	if err != nil {
		return fmt.Errorf("power the drive: %w", err)
	}
	b.cut.Store(false)
	if b.c.Device != nil {
		b.wire.Power(b.c.Device(h))
	} else {
		b.wire.Power(fuse.Device(h))
	}
	return b.limited(ctx, "attach a loop device", func(ctx context.Context) error {
		l, err := blockdev.Attach(ctx, b.wire.Path(), blockdev.Options{BlockSize: 512, DirectIO: true, Autoclear: true, WriteCache: b.c.WriteCache})
		if err != nil {
			return err
		}
		b.stack = &stack{loop: l}
		if b.kernel != nil {
			_, _, _ = b.kernel.Read() // what was said of another's device of this number
		}
		return nil
	})
}

func (b *Bench) mount(ctx context.Context, options []string) error {
	return b.limited(ctx, "mount", func(context.Context) error {
		info, err := blockdev.Mount(b.stack.loop.Path(), b.path("mnt"), blockdev.FS{Type: b.c.Filesystem, Options: options})
		if err != nil {
			return err
		}
		b.stack.mount = info
		return nil
	})
}

// remount mounts the filesystem after a cut. That it cannot be mounted is a finding when the
// filesystem itself is what the kernel objects to.
func (b *Bench) remount(ctx context.Context) error {
	err := b.mount(ctx, b.c.Mount)
	if errors.Is(err, errHung) {
		return err
	}
	if werr := b.wire.Err(); werr != nil {
		return fmt.Errorf("the drive's image on this machine failed: %w", werr)
	}
	var merr *blockdev.MountError
	if errors.As(err, &merr) && slices.Contains(damage, merr.Errno) {
		return &verifier.UnreadableError{Err: fmt.Errorf("the filesystem does not mount again: %w", merr)}
	}
	return err
}

// damage are the errors of a mount that speak of what is on the device: the same options
// on the same device worked before the cut. EINVAL is a superblock that is none, EROFS a
// journal that cannot be replayed.
var damage = []unix.Errno{unix.EINVAL, unix.EUCLEAN, unix.EIO, unix.EBADMSG, unix.EROFS, unix.ENODATA, unix.ENOENT, unix.ERANGE,
	unix.EFBIG, unix.EOVERFLOW, unix.EILSEQ}

// makeFilesystem makes the filesystem and mounts it with the scenario's options.
func (b *Bench) makeFilesystem(ctx context.Context) error {
	err := b.limited(ctx, "make the filesystem", func(ctx context.Context) error {
		return blockdev.Make(ctx, blockdev.FS{Type: b.c.Filesystem, Options: b.c.Mkfs}, b.stack.loop.Path())
	})
	if err != nil {
		if b.wire.Err() != nil {
			return errors.Join(err, b.wire.Err())
		}
		return usage.Wrap(err)
	}
	err = b.mount(ctx, b.c.Mount)
	var merr *blockdev.MountError
	if !errors.As(err, &merr) || len(b.c.Mount) == 0 {
		return err
	}
	if plain := b.mount(ctx, nil); plain != nil {
		return fmt.Errorf("%w (and without the scenario's options: %w)", err, plain)
	}
	return &campaign.RefusedError{What: fmt.Sprintf("mount option of %s %v", b.c.Filesystem, b.c.Mount), Err: merr}
}

// tearDown kills the server, unmounts and detaches. What is dirty goes nowhere once the drive
// is cut. It does nothing where nothing is up.
func (b *Bench) tearDown(ctx context.Context) error {
	if b.drive != nil && b.stack != nil {
		// Also when no cycle has cut it: what would be written now is of no use to anyone.
		b.cut.Store(true)
		b.drive.Cut()
	}
	if err := b.killServer(ctx); err != nil {
		return err
	}
	if b.stack == nil {
		return nil
	}
	if err := b.unmount(ctx); err != nil {
		return err
	}
	b.hear()
	if err := b.limited(ctx, "detach the loop device", b.stack.loop.Detach); err != nil {
		return err
	}
	b.stack = nil
	return nil
}

// abandon takes down what can be taken down after the connection was aborted: each request
// fails at once by now, so that nothing waits.
func (b *Bench) abandon() error {
	ctx, cancel := context.WithTimeout(context.Background(), b.c.Limit)
	defer cancel()
	var errs []error
	if b.proc != nil {
		_, err := b.proc.Kill(ctx)
		errs = append(errs, err)
		b.proc = nil
	}
	if b.stack == nil {
		return errors.Join(errs...)
	}
	if b.stack.mount != nil {
		// It may be unmounted already: the step that hung has gone on since.
		if err := b.ns.Do(func() error { return blockdev.UnmountLazily(b.path("mnt")) }); !errors.Is(err, unix.EINVAL) {
			errs = append(errs, err)
		}
	}
	errs = append(errs, b.stack.loop.Detach(ctx))
	b.stack = nil
	return errors.Join(errs...)
}

func (b *Bench) unmount(ctx context.Context) error {
	if b.stack.mount == nil {
		return nil
	}
	err := b.limited(ctx, "unmount", func(ctx context.Context) error {
		// xfs goes on trying to write its log for a long time otherwise.
		if b.c.Filesystem == "xfs" && !b.stack.stopped {
			// EIO: it has noticed by itself that its device is gone.
			if err := blockdev.Shutdown(b.path("mnt")); err != nil && !errors.Is(err, unix.EIO) {
				return err
			}
			b.stack.stopped = true
		}
		return blockdev.Unmount(ctx, b.path("mnt"))
	})
	if err == nil {
		b.stack.mount = nil
	}
	return err
}

// Full implements campaign.Filling: a filesystem that runs full would refuse commits.
func (b *Bench) Full(context.Context) (bool, error) {
	var st unix.Statfs_t
	err := b.ns.Do(func() error { return unix.Statfs(b.path("mnt"), &st) })
	if err != nil {
		return false, fmt.Errorf("read how full the filesystem is: %w", err)
	}
	return st.Bavail < st.Blocks*2/5, nil
}

// syncFilesystem makes everything on the filesystem durable, as far as the drive is honest.
func (b *Bench) syncFilesystem(ctx context.Context) error {
	return b.limited(ctx, "sync the filesystem", func(context.Context) error {
		dir, err := os.Open(b.path("mnt"))
		if err != nil {
			return err
		}
		return errors.Join(unix.Syncfs(int(dir.Fd())), dir.Close())
	})
}
