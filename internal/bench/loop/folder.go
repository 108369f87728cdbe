package loop

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	folderPrefix = "plugpull-loop-"
	lockName     = "lock"
)

// WorkDir is where the benches' folders lie: in memory where that can be, since servers
// keep temporary files in them.
func WorkDir() string {
	const shm = "/dev/shm"
	var st unix.Statfs_t
	if err := unix.Statfs(shm, &st); err == nil && st.Type == unix.TMPFS_MAGIC && unix.Access(shm, unix.W_OK) == nil {
		return shm
	}
	return os.TempDir()
}

// newFolder makes and locks a folder of this process, and takes away those of processes that are dead.
func newFolder() (dir string, lock *os.File, err error) {
	work := WorkDir()
	if err := clearDead(work); err != nil {
		return "", nil, err
	}
	if dir, err = os.MkdirTemp(work, folderPrefix); err != nil {
		return "", nil, fmt.Errorf("make the bench's folder: %w", err)
	}
	if lock, err = lockFolder(dir); err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, lock, nil
}

func (b *Bench) makeFolder() (err error) {
	if b.dir, b.lock, err = newFolder(); err != nil {
		return err
	}
	for _, name := range []string{"drive", "mnt"} {
		if err := os.Mkdir(b.path(name), 0o700); err != nil {
			return fmt.Errorf("make the bench's folder: %w", err)
		}
	}
	return nil
}

// lockFolder takes the lock by which a folder's owner is known to live.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the bench's folder: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock the bench's folder %s: %w", dir, err), f.Close())
	}
	return f, nil
}

// clearDead removes the folders whose owners are gone. Mounts, loop devices and servers went with
// them by themselves. A folder without a lock file is one that is being made.
func clearDead(work string) error {
	dirs, err := filepath.Glob(filepath.Join(work, folderPrefix+"*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, lockName)); err != nil {
			continue
		}
		lock, err := lockFolder(dir)
		if err != nil {
			continue // its owner lives
		}
		if err := errors.Join(os.RemoveAll(dir), lock.Close()); err != nil {
			return fmt.Errorf("remove what a dead run left: %w", err)
		}
	}
	return nil
}

func (b *Bench) removeFolder() error {
	if b.dir == "" {
		return nil
	}
	err := os.RemoveAll(b.dir)
	if b.lock != nil {
		err = errors.Join(err, b.lock.Close())
	}
	b.dir = ""
	return err
}
