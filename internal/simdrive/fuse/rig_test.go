package fuse_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"plugpull/internal/simdrive"
	"plugpull/internal/simdrive/fuse"
	"plugpull/internal/testskip"
)

// limit bounds whatever a test waits for: a test that reaches it has failed.
const limit = 30 * time.Second

// driveSize is the size of the tests' drives in bytes.
const driveSize = 64 << 20

func needFUSE(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		testskip.Skip(t, "mounting needs root: sudo go test ./internal/simdrive/fuse")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		testskip.Skip(t, "needs FUSE: %v", err)
	}
}

// rig is a mounted drive.
type rig struct {
	t testing.TB
	s *fuse.Server
	d *simdrive.Drive // nil: the test has its own device
}

// mount mounts a drive without power. The test's end unmounts it whatever happens.
func mount(t testing.TB) *rig {
	t.Helper()
	needFUSE(t)
	s, err := fuse.Mount(t.TempDir(), driveSize)
	require.NoError(t, err)
	r := &rig{t: t, s: s}
	t.Cleanup(func() {
		if t.Failed() {
			_ = s.Abort() // whatever the test left hanging
		}
		r.close()
	})
	return r
}

// unshare gives the calling thread, to which the goroutine must be locked for good, a
// mount namespace of its own.
func unshare() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
}

// mountDrive mounts a drive that has power.
func mountDrive(t testing.TB, cfg simdrive.Config) *rig {
	t.Helper()
	r := mount(t)
	cfg.Size = driveSize
	var err error
	r.d, err = simdrive.New(cfg)
	require.NoError(t, err)
	r.powerOn()
	return r
}

func (r *rig) powerOn() {
	r.t.Helper()
	h, err := r.d.PowerOn()
	require.NoError(r.t, err)
	r.s.Power(h)
}

func (r *rig) close() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	require.NoError(r.t, r.s.Close(ctx))
}

// file is a file opened for direct I/O with plain system calls.
type file struct {
	t  testing.TB
	fd int
}

func open(t testing.TB, path string, flags int) *file {
	t.Helper()
	fd, err := unix.Open(path, flags|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	require.NoError(t, err)
	f := &file{t, fd}
	t.Cleanup(f.close)
	return f
}

func (r *rig) open() *file {
	r.t.Helper()
	return open(r.t, r.s.Path(), unix.O_DIRECT)
}

func (f *file) close() {
	if f.fd >= 0 {
		_ = unix.Close(f.fd)
		f.fd = -1
	}
}

// write writes n bytes v at off.
func (f *file) write(v byte, off int64, n int) {
	f.t.Helper()
	m, err := unix.Pwrite(f.fd, filled(v, n), off)
	require.NoError(f.t, err)
	require.Equal(f.t, n, m)
}

// at returns the byte at off.
func (f *file) at(off int64) byte {
	f.t.Helper()
	p := aligned(512)
	n, err := unix.Pread(f.fd, p, off/512*512)
	require.NoError(f.t, err)
	require.Equal(f.t, 512, n)
	return p[off%512]
}

// requests returns one request of each kind, by name.
func (f *file) requests() map[string]func() error {
	return map[string]func() error{
		"read":    func() error { _, err := unix.Pread(f.fd, aligned(4096), 0); return err },
		"write":   func() error { _, err := unix.Pwrite(f.fd, filled(9, 4096), 0); return err },
		"flush":   func() error { return unix.Fsync(f.fd) },
		"discard": func() error { return unix.Fallocate(f.fd, punch, 0, 4096) },
	}
}

const punch = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE

// aligned returns n bytes that direct I/O takes as they are.
func aligned(n int) []byte {
	p := make([]byte, n+4096)
	skew := int(-uintptr(unsafe.Pointer(&p[0])) & 4095)
	return p[skew : skew+n]
}

func filled(v byte, n int) []byte {
	p := aligned(n)
	copy(p, bytes.Repeat([]byte{v}, n))
	return p
}

// within runs f and fails the test if it does not return in time.
func within(t testing.TB, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	wait(t, what, done)
}

func wait[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case v := <-c:
		return v
	case <-timer.C:
		require.FailNow(t, "nothing within "+limit.String(), what)
		panic("unreachable")
	}
}

// mountOf returns the line of /proc/self/mountinfo for a folder, empty if it has none.
func mountOf(t testing.TB, dir string) string {
	t.Helper()
	table, err := os.ReadFile("/proc/thread-self/mountinfo")
	require.NoError(t, err)
	for line := range strings.Lines(string(table)) {
		if strings.Contains(line, fmt.Sprintf(" %s ", dir)) {
			return line
		}
	}
	return ""
}

// gate is a device whose requests wait at it.
type gate struct {
	arrived chan string   // a request's kind, when it arrives
	open    chan struct{} // closed: all may go
	once    sync.Once
}

func newGate() *gate { return &gate{arrived: make(chan string, 64), open: make(chan struct{})} }

// let lets all go.
func (g *gate) let() { g.once.Do(func() { close(g.open) }) }

func (g *gate) pass(kind string) { g.arrived <- kind; <-g.open }

func (g *gate) ReadAt(p []byte, _ int64) (int, error)  { g.pass("read"); return len(p), nil }
func (g *gate) WriteAt(p []byte, _ int64) (int, error) { g.pass("write"); return len(p), nil }
func (g *gate) Flush() error                           { g.pass("flush"); return nil }
func (g *gate) Discard(_, _ int64) error               { g.pass("discard"); return nil }
