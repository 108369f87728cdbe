package loop

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"plugpull/internal/usage"
)

const (
	folderPrefix = "plugpull-loop-"
	lockName     = "lock"
	turnName     = "plugpull-loops.lock" // in the folder of the folders
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
	if os.Geteuid() != 0 {
		return "", nil, usage.Errorf("the loop bench needs root, for mounts and loop devices: run it as root, or use the embedded bench; plugpull doctor says what else it needs")
	}
	work := WorkDir()
	// One process at a time makes a folder or looks for dead ones, so that none is taken for
	// dead before it is locked.
	turn, err := os.OpenFile(filepath.Join(work, turnName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "", nil, fmt.Errorf("make the bench's folder: %w", err)
	}
	defer turn.Close()
	if err := unix.Flock(int(turn.Fd()), unix.LOCK_EX); err != nil {
		return "", nil, fmt.Errorf("make the bench's folder: wait for the turn: %w", err)
	}
	if err := clearDead(work); err != nil {
		return "", nil, err
	}
	if dir, err = os.MkdirTemp(work, folderPrefix); err != nil {
		return "", nil, fmt.Errorf("make the bench's folder: %w", err)
	}
	if lock, err = lockFolder(dir, os.O_CREATE); err != nil {
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
func lockFolder(dir string, flags int) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|flags, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the bench's folder: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock the bench's folder %s: %w", dir, err), f.Close())
	}
	return f, nil
}

// clearDead removes the folders whose owners are gone. Mounts, loop devices and servers went with
// them by themselves. A folder without a lock was never finished.
func clearDead(work string) error {
	dirs, err := filepath.Glob(filepath.Join(work, folderPrefix+"*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		lock, err := lockFolder(dir, 0)
		if errors.Is(err, unix.EWOULDBLOCK) {
			continue // its owner lives
		}
		// One that is just being removed by its owner may be gone halfway.
		err = os.RemoveAll(dir)
		if lock != nil {
			err = errors.Join(err, lock.Close())
		}
		if err != nil && !errors.Is(err, unix.ENOTEMPTY) {
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
