package blockdev

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// Namespace is a private mount namespace on an OS thread of its own. What is mounted in it
// is seen by nobody else, and the kernel unmounts it when the last process or thread in it
// has ended: when Close is called, or when this process dies by whatever means.
//
// Its mounts are private, not slave. A slave would still be told of the host's mounts: one
// that the host makes later, over a folder above ours, would hide our mount points
// in the middle of a run. The price: what was mounted on the host when the
// namespace was made stays in use until the namespace ends, even after the host has
// unmounted it. So a Namespace lives as long as a run, no longer, and nothing that belongs to
// a run is mounted outside of one.
type Namespace struct {
	calls chan call
	stop  chan struct{}
	once  sync.Once
	ended chan struct{} // closed when the goroutine has left the namespace
	err   error         // of leaving it; valid once ended is closed
	path  string
}

type call struct {
	fn   func() error
	done chan error // room for one
}

// NewNamespace makes a mount namespace with the mounts of this process, also when it is called
// inside another one's Do. It needs CAP_SYS_ADMIN.
func NewNamespace() (*Namespace, error) {
	n := &Namespace{calls: make(chan call), stop: make(chan struct{}), ended: make(chan struct{})}
	ready := make(chan error, 1)
	go n.lock(ready)
	if err := <-ready; err != nil {
		<-n.ended
		return nil, err
	}
	return n, nil
}

// Do runs fn in the namespace and returns what it returns. Calls run one at a time: fn must
// not call Do, and its goroutine must not be left by runtime.Goexit, which ends the namespace.
//
// A process that fn starts lives in the namespace. It was forked from the namespace's thread,
// so that its Pdeathsig, which it should have, is sent when the namespace is closed or this
// process dies. It holds the namespace, and with it every mount, until it ends.
// A goroutine that fn starts is not in the namespace.
func (n *Namespace) Do(fn func() error) error {
	c := call{fn: fn, done: make(chan error, 1)}
	select {
	case n.calls <- c:
	case <-n.ended:
		return fmt.Errorf("mount namespace: %w", fs.ErrClosed)
	}
	return <-c.done
}

// Path names the namespace for setns(2): nsenter --mount=PATH shows what is mounted in it.
func (n *Namespace) Path() string { return n.path }

// Close waits for a running Do, leaves the namespace and ends its thread. When no process
// lives in the namespace any more, its mounts are gone when Close returns. May be called
// more than once, and at the same time as Do.
func (n *Namespace) Close() error {
	n.once.Do(func() { close(n.stop) })
	<-n.ended
	return n.err
}

// lock gives the namespace a thread that is not the process's main thread: /proc/self
// shows the mounts of that one, and it is never ended.
func (n *Namespace) lock(ready chan<- error) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	if unix.Gettid() != unix.Getpid() {
		n.serve(ready)
		return
	}
	locked := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		close(locked)
		n.serve(ready)
	}()
	<-locked // until then this goroutine occupies the main thread
	runtime.UnlockOSThread()
}

// serve runs on the namespace's thread until it is stopped.
func (n *Namespace) serve(ready chan<- error) {
	defer close(n.ended)
	home, err := enterPrivate()
	if err != nil {
		ready <- err
		return
	}
	defer func() { n.err = leave(home) }()
	n.path = fmt.Sprintf("/proc/%d/task/%d/ns/mnt", os.Getpid(), unix.Gettid())
	ready <- nil
	for {
		select {
		case c := <-n.calls:
			c.run()
		case <-n.stop:
			return
		}
	}
}

// run answers also when fn is left by Goexit, as by a failed require in a test.
func (c call) run() {
	err := errors.New("mount namespace: the function ended its goroutine")
	defer func() { c.done <- err }()
	err = c.fn()
}

// enterPrivate moves the calling thread into a new mount namespace and returns the old one.
func enterPrivate() (home int, err error) {
	home, err = open("/proc/thread-self/ns/mnt", unix.O_RDONLY)
	if err != nil {
		return -1, fmt.Errorf("open the mount namespace: %w", err)
	}
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return -1, errors.Join(fmt.Errorf("make a mount namespace: %w", err), unix.Close(home))
	}
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return -1, errors.Join(fmt.Errorf("make the mounts private: %w", err), unix.Close(home))
	}
	return home, nil
}

// leave drops the thread's hold on its namespace. The thread ends soon anyway; by going home
// first, the mounts are gone when this returns and not some time after.
func leave(home int) error {
	err := unix.Setns(home, unix.CLONE_NEWNS)
	if err != nil {
		err = fmt.Errorf("leave the mount namespace: %w", err)
	}
	return errors.Join(err, unix.Close(home))
}
