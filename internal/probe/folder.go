package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"plugpull/internal/usage"
)

// Folder probes a folder: each commit appends a record to a file and calls fdatasync. It makes a file of its own there and
// removes it, and those that killed probes have left.
type Folder struct{ Dir string }

const (
	filePrefix = ".plugpull-probe-"
	fileMark   = "plugpull probe: a file of a probe that was killed; remove it\n"
	recordSize = 512 // bytes: what a small transaction writes to a redo log
)

func (f Folder) measure(ctx context.Context, r *Result, g *goal) (err error) {
	r.Kind, r.Where = KindFolder, f.Dir
	if r.Version, r.InMemory, err = filesystem(f.Dir); err != nil {
		return usage.Errorf("the folder %s: %w", f.Dir, err)
	}
	if err := clearFolder(f.Dir); err != nil {
		return err
	}
	file, err := makeFile(f.Dir)
	if err != nil {
		return err
	}
	defer func() {
		// While it is locked, so that another probe does not take it for a leftover.
		err = errors.Join(err, os.Remove(file.Name()), file.Close())
	}()
	return g.run(func() error { return appendTo(ctx, file, func() error { return fdatasync(file) }, g) })
}

// appendTo appends a record after the other, and flushes each.
func appendTo(ctx context.Context, f io.Writer, flush func() error, g *goal) error {
	record := make([]byte, recordSize)
	for last := time.Now(); !g.reached(); {
		if err := ctx.Err(); err != nil {
			return err
		}
		sent := time.Now()
		if _, err := f.Write(record); err != nil {
			return fmt.Errorf("append to the probe's file: %w", err)
		}
		if err := flush(); err != nil {
			return fmt.Errorf("flush the probe's file: %w", err)
		}
		now := time.Now()
		g.add(now.Sub(sent), now.Sub(last))
		last = now
	}
	return nil
}

// makeFile makes, marks and locks a file. It keeps its name while it is used: filesystems flush a file without one
// in another way, and a database's files have names.
func makeFile(dir string) (_ *os.File, err error) {
	f, err := os.CreateTemp(dir, filePrefix)
	if err != nil {
		return nil, fmt.Errorf("make the probe's file: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()), f.Close())
		}
	}()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, fmt.Errorf("lock the probe's file: %w", err)
	}
	if _, err := f.WriteString(fileMark); err != nil {
		return nil, fmt.Errorf("write to the probe's file: %w", err)
	}
	// The first flush makes the file itself durable, which is not a commit's work.
	if err := f.Sync(); err != nil {
		return nil, fmt.Errorf("flush the probe's file: %w", err)
	}
	return f, nil
}

func fdatasync(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// clearFolder removes what probes that are dead have left: files with the probe's name and mark that nobody
// has locked. An empty one was left before it was marked, and holds nothing.
func clearFolder(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return usage.Errorf("read the folder: %w", err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), filePrefix) || !e.Type().IsRegular() {
			continue
		}
		if err := clearFile(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("remove what an earlier probe has left: %w", err)
		}
	}
	return nil
}

func clearFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil // gone, or another user's
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil // a probe that lives
	}
	head := make([]byte, len(fileMark))
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	if n > 0 && string(head) != fileMark {
		return nil // someone else's
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// filesystem names the filesystem of a folder where it lies in memory.
func filesystem(dir string) (name string, inMemory bool, err error) {
	st, err := os.Stat(dir)
	if err != nil {
		return "", false, err
	}
	if !st.IsDir() {
		return "", false, errors.New("not a folder")
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return "", false, err
	}
	switch fs.Type {
	case unix.TMPFS_MAGIC:
		return "tmpfs", true, nil
	case unix.RAMFS_MAGIC:
		return "ramfs", true, nil
	}
	return "", false, nil
}
