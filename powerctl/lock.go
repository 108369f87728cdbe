package powerctl

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Lock keeps other processes of this machine away from one outlet. The kernel
// releases it when the process ends, however that happens.
type Lock struct{ file *os.File }

// LockedError says who holds an outlet.
type LockedError struct {
	Outlet Identity
	PID    int // of the holder, zero when it is not known
}

func (e *LockedError) Error() string {
	who := "another process"
	if e.PID != 0 {
		who = "process " + strconv.Itoa(e.PID)
	}
	return fmt.Sprintf("%v is in use by %s on this machine", e.Outlet, who)
}

// Acquire locks the outlet or returns a *LockedError at once. Two calls
// conflict also within one process. Different users of the machine conflict too.
func Acquire(id Identity) (*Lock, error) { return acquireIn(lockDir(), id) }

// lockDir is the same for every user of the machine, which rules out
// $TMPDIR and $XDG_RUNTIME_DIR, and to ask whether this user may write there.
func lockDir() string {
	const shared, forAll = "/run/lock", unix.S_ISVTX | 0o777
	var st unix.Stat_t
	if unix.Stat(shared, &st) == nil && st.Mode&forAll == forAll {
		return shared
	}
	return "/tmp"
}

// key tells outlets apart, whatever they are called.
func (i Identity) key() string { return i.Driver + "\x00" + i.Device + "\x00" + i.Part }

const lockMagic = "plugpull outlet lock, held by process "

func acquireIn(dir string, id Identity) (*Lock, error) {
	sum := sha256.Sum256([]byte(id.key()))
	path := filepath.Join(dir, "plugpull-outlet-"+hex.EncodeToString(sum[:12])+".lock")
	f, err := openLock(path)
	if err != nil {
		return nil, fmt.Errorf("lock %v: %w", id, err)
	}
	content, err := ownContent(f)
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = &LockedError{Outlet: id, PID: holder(content)}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock file %s: %w", path, err)
	}
	writeHolder(f)
	return &Lock{file: f}, nil
}

// Release gives the outlet up. The file stays: removing it would let two
// processes lock two files of one name.
func (l *Lock) Release() error {
	_ = l.file.Truncate(0)
	return l.file.Close()
}

// openLock opens a file in a folder that anybody can write to. It creates with
// O_EXCL only, since the kernel refuses O_CREAT on another user's file in a sticky
// folder (fs.protected_regular).
func openLock(path string) (*os.File, error) {
	const flags = os.O_RDWR | unix.O_NOFOLLOW | unix.O_NONBLOCK
	for range 3 {
		f, err := os.OpenFile(path, flags, 0)
		if !errors.Is(err, os.ErrNotExist) {
			return f, err
		}
		f, err = os.OpenFile(path, flags|os.O_CREATE|os.O_EXCL, 0o666)
		if errors.Is(err, os.ErrExist) {
			continue // somebody else was faster
		}
		if err != nil {
			return nil, err
		}
		if err := f.Chmod(0o666); err != nil { // the umask must not keep other users out
			f.Close()
			return nil, err
		}
		return f, nil
	}
	return nil, fmt.Errorf("%s comes and goes", path)
}

// ownContent returns the file's text and refuses to write over anything that
// is not a lock file of plugpull, such as a hard link that somebody planted.
func ownContent(f *os.File) ([]byte, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, err
	}
	b, magic := make([]byte, 128), []byte(lockMagic)
	n, _ := f.ReadAt(b, 0)
	b = b[:n]
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 || !bytes.HasPrefix(b, magic[:min(n, len(magic))]) {
		return nil, errors.New("the file is not a lock file of plugpull: look at it and remove it")
	}
	return b, nil
}

func holder(content []byte) int {
	digits, _, _ := bytes.Cut(bytes.TrimPrefix(content, []byte(lockMagic)), []byte("\n"))
	pid, err := strconv.Atoi(string(digits))
	if err != nil {
		return 0
	}
	return pid
}

// writeHolder is a courtesy to the one who finds the outlet locked: the lock
// holds without it, so that a full disk stops nobody from switching.
func writeHolder(f *os.File) {
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt([]byte(lockMagic+strconv.Itoa(os.Getpid())+"\n"), 0)
	}
}
