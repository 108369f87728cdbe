package fuse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"path/filepath"
	"sync"
	"time"

	gofuse "github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

const (
	fsName = "plugpull"
	// maxRequest is the most that one read or write carries: the kernel's own limit.
	maxRequest = 1 << 20
	// background is how many asynchronous reads and writes the kernel has under way
	// at most; a loop device's queue is of 128.
	background = 128
	// retry is how often Close tries while files are open.
	retry = 2 * time.Millisecond
)

// Server is a mounted drive. Methods may be called concurrently and from any
// thread but for Close.
type Server struct {
	dir        string
	connection int
	files      *files
	done       chan struct{} // closed when nothing is served any more

	closing sync.Mutex // held while unmounting, which Abort must not wait for
	mounted bool

	mu      sync.Mutex // held for no longer than a system call that does not block
	ctl     int        // the connection's abort file; -1: closed
	guard   *guard
	aborted bool
}

// Mount mounts, on the folder dir, a filesystem whose one file is a drive of size
// bytes, a multiple of 4096, without power. It needs CAP_SYS_ADMIN and Linux 5.2.
// All paths are opened on the calling thread and in its mount namespace: a goroutine
// in one of its own must be locked to its thread. The caller must call Close.
func Mount(dir string, size int64) (*Server, error) {
	if size <= 0 || size%blockSize != 0 {
		return nil, fmt.Errorf("mount a drive: size %d is not a positive multiple of %d", size, blockSize)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("mount a drive: %w", err)
	}
	s := &Server{dir: dir, files: newFiles(size), ctl: -1, done: make(chan struct{})}
	if err := s.mount(); err != nil {
		return nil, fmt.Errorf("mount a drive on %s: %w", dir, err)
	}
	return s, nil
}

func (s *Server) mount() error {
	fd, err := mountFuse(s.dir)
	if err != nil {
		return err
	}
	s.mounted = true
	conn, err := s.connect(fd)
	if err != nil {
		return errors.Join(err, s.undo())
	}
	go func() {
		defer close(s.done)
		conn.Serve()
	}()
	if err := forestallPoll(s.dir); err != nil {
		err = errors.Join(err, s.undo())
		<-s.done
		return err
	}
	return nil
}

// connect opens the way to abort the connection, then answers its first request.
// It owns fd.
func (s *Server) connect(fd int) (*gofuse.Server, error) {
	var err error
	if s.connection, err = connection(s.dir); err == nil {
		s.ctl, err = openAbort(s.connection)
	}
	if err == nil {
		s.guard, err = startGuard(s.ctl)
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	// go-fuse does not know where this is mounted, so it opens no path in it.
	conn, err := gofuse.NewServer(s.files, fmt.Sprintf("/dev/fd/%d", fd), &gofuse.MountOptions{
		Name:               fsName,
		MaxWrite:           maxRequest,
		MaxBackground:      background,
		DisableSplice:      true, // of use to replies from a file
		DisableReadDirPlus: true,
		ExtraCapabilities:  gofuse.CAP_ASYNC_DIO,
		PanicHandler:       s.files.panicked,
		Logger:             log.New(io.Discard, "", 0), // of replies to aborted requests
	})
	if err != nil {
		return nil, fmt.Errorf("answer the kernel: %w", err)
	}
	return conn, nil
}

// undo takes back what a Mount that failed has done.
func (s *Server) undo() error {
	err := errors.Join(s.Abort(), s.closeAbort())
	if e := unix.Unmount(s.dir, unix.MNT_DETACH); e != nil {
		err = errors.Join(err, fmt.Errorf("unmount: %w", e))
	}
	return err
}

// Path returns the path of the drive's file, in the mount namespace of Mount.
func (s *Server) Path() string { return filepath.Join(s.dir, driveName) }

// Connection returns the number of the FUSE connection, as in
// /sys/fs/fuse/connections.
func (s *Server) Connection() int { return s.connection }

// Power names the power-on that files opened from now on belong to; files that are
// open fail for ever. Nil is no power: opening fails too.
// Requests that are under way in the device before go on.
func (s *Server) Power(dev Device) {
	for {
		old := s.files.power.Load()
		if s.files.power.CompareAndSwap(old, &power{number: old.number + 1, dev: dev}) {
			return
		}
	}
}

// Err returns the first failure of the device that is none of a drive's own (power,
// staleness, death, alignment, range), such as that of the drive's base, or a panic.
// Nothing that was seen after it says anything about a drive.
func (s *Server) Err() error {
	if err := s.files.first.Load(); err != nil {
		return *err
	}
	return nil
}

// Abort ends the connection: every request that is under way or to come fails at
// once with ECONNABORTED or ENOTCONN, also where the device never returns, so that
// processes waiting for it can be killed. It blocks on nothing that the device
// holds, and needs no path. It may be repeated.
func (s *Server) Abort() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.aborted || s.ctl < 0 {
		return nil
	}
	if _, err := unix.Write(s.ctl, []byte("1")); err != nil {
		return fmt.Errorf("abort FUSE connection %d: %w", s.connection, err)
	}
	s.aborted = true
	return nil
}

// Close unmounts the drive, ends the connection, and waits until nothing is served
// any more. It must be called in the mount namespace of Mount. While a file is open it
// tries again until ctx is done, and returns EBUSY with the drive mounted and served;
// what has been aborted is unmounted at once. A device that does not return
// keeps it waiting until ctx is done. It may be called again, also after an error.
func (s *Server) Close(ctx context.Context) error {
	for {
		err := s.unmount()
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("unmount the drive on %s: %w", s.dir, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("unmount the drive on %s: %w: %w", s.dir, err, context.Cause(ctx))
		case <-time.After(retry):
		}
	}
	// A mount namespace that anybody copied from this one meanwhile has the drive too.
	if err := s.Abort(); err != nil {
		return err
	}
	select {
	case <-s.done:
	case <-ctx.Done():
		return fmt.Errorf("wait for %d requests to the drive: %w", s.files.inFlight.Load(), context.Cause(ctx))
	}
	return s.closeAbort()
}

func (s *Server) unmount() error {
	s.closing.Lock()
	defer s.closing.Unlock()
	if !s.mounted {
		return nil
	}
	flags := unix.UMOUNT_NOFOLLOW
	s.mu.Lock()
	if s.aborted {
		flags |= unix.MNT_DETACH
	}
	s.mu.Unlock()
	if err := unix.Unmount(s.dir, flags); err != nil {
		return err
	}
	s.mounted = false
	return nil
}

func (s *Server) closeAbort() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctl < 0 {
		return nil
	}
	err := unix.Close(s.ctl)
	s.ctl = -1
	if err != nil {
		err = fmt.Errorf("close the connection's control file: %w", err)
	}
	err = errors.Join(err, s.guard.stop())
	s.guard = nil
	return err
}
