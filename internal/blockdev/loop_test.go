package blockdev

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"plugpull/internal/testskip"
)

// losetup is what losetup(8) says of a device.
type losetup struct {
	BackFile  string `json:"back-file"`
	RO        bool   `json:"ro"`
	DIO       bool   `json:"dio"`
	Autoclear bool   `json:"autoclear"`
	LogSec    int    `json:"log-sec"`
	MajMin    string `json:"maj:min"`
}

func askLosetup(t testing.TB, dev string) losetup {
	t.Helper()
	out, err := exec.Command("losetup", "--list", "--json", "--output", "BACK-FILE,RO,DIO,AUTOCLEAR,LOG-SEC,MAJ:MIN", dev).Output()
	require.NoError(t, err)
	var list struct{ Loopdevices []losetup }
	require.NoError(t, json.Unmarshal(out, &list), "%s", out)
	require.Len(t, list.Loopdevices, 1)
	list.Loopdevices[0].MajMin = strings.TrimSpace(list.Loopdevices[0].MajMin)
	return list.Loopdevices[0]
}

func TestAttachIsWhatWasAsked(t *testing.T) {
	needRoot(t)
	for _, test := range []struct {
		name string
		o    Options
		want losetup
		q    Queue
	}{
		{"zero value", Options{}, losetup{LogSec: 512}, Queue{512, WriteBack, false}},
		{"direct I/O", Options{DirectIO: true}, losetup{DIO: true, LogSec: 512}, Queue{512, WriteBack, false}},
		{"4096-byte blocks", Options{BlockSize: 4096, DirectIO: true}, losetup{DIO: true, LogSec: 4096}, Queue{4096, WriteBack, false}},
		{"read-only", Options{ReadOnly: true}, losetup{RO: true, LogSec: 512}, Queue{512, WriteThrough, false}},
		{"autoclear", Options{Autoclear: true}, losetup{Autoclear: true, LogSec: 512}, Queue{512, WriteBack, false}},
		{"write through", Options{WriteCache: WriteThrough}, losetup{LogSec: 512}, Queue{512, WriteThrough, false}},
		{"write back after write through", Options{}, losetup{LogSec: 512}, Queue{512, WriteBack, false}},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := image(t, 1)
			l, err := Attach(testContext(t), path, test.o)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, l.Detach(testContext(t))) })
			got := askLosetup(t, l.Path())
			test.want.BackFile = path
			test.want.MajMin = fmt.Sprintf("%d:%d", l.Major(), l.Minor())
			require.Equal(t, test.want, got)
			q, err := l.Queue()
			require.NoError(t, err)
			require.Equal(t, test.q, q)
		})
	}
}

func TestAttachRefuses(t *testing.T) {
	needRoot(t)
	for _, o := range []Options{
		{BlockSize: 511}, {BlockSize: 768}, {BlockSize: 1 << 20}, {BlockSize: -512},
		{WriteCache: "writeback"}, {ReadOnly: true, WriteCache: WriteBack},
	} {
		_, err := Attach(testContext(t), image(t, 1), o)
		require.Error(t, err, "%+v", o)
	}
	_, err := Attach(testContext(t), "/nonexistent", Options{})
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = Attach(testContext(t), t.TempDir(), Options{ReadOnly: true})
	require.ErrorIs(t, err, unix.EINVAL, "a folder")
}

// ramfs has no direct I/O: the kernel attaches all the same.
func TestAttachChecksDirectIO(t *testing.T) {
	needRoot(t)
	n, dir := namespace(t), t.TempDir()
	require.NoError(t, n.Do(func() error {
		if err := unix.Mount("none", dir, "ramfs", 0, ""); err != nil {
			return err
		}
		path := filepath.Join(dir, "image")
		if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
			return err
		}
		_, err := Attach(testContext(t), path, Options{DirectIO: true})
		var mismatch *MismatchError
		require.ErrorAs(t, err, &mismatch)
		require.Equal(t, "direct I/O", mismatch.What)
		require.Zero(t, loopsOn(t, dir), "nothing stays attached")
		return nil
	}))
}

// fsyncFlushes makes a file durable and returns how many flushes the device got meanwhile.
func fsyncFlushes(t testing.TB, l *Loop, dir string) int {
	t.Helper()
	count := func() int {
		stat, err := readSys(l.Name(), "stat")
		require.NoError(t, err)
		fields := bytes.Fields([]byte(stat))
		n, err := strconv.Atoi(string(fields[15])) // Documentation/block/stat.rst
		require.NoError(t, err)
		return n
	}
	before := count()
	f, err := os.Create(filepath.Join(dir, "file"))
	require.NoError(t, err)
	defer f.Close()
	_, err = f.Write(make([]byte, 4096))
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	return count() - before
}

// The write cache decides whether the device is flushed, also under a mounted filesystem.
func TestWriteCacheDecidesOverFlushes(t *testing.T) {
	needRoot(t)
	l, _ := device(t, "ext4")
	n, dir := namespace(t), t.TempDir()
	require.NoError(t, n.Do(func() error {
		_, err := Mount(l.Path(), dir, FS{Type: "ext4"})
		require.NoError(t, err)
		require.Positive(t, fsyncFlushes(t, l, dir))
		require.NoError(t, l.SetWriteCache(WriteThrough))
		require.Zero(t, fsyncFlushes(t, l, dir))
		require.NoError(t, l.SetWriteCache(WriteBack))
		require.Positive(t, fsyncFlushes(t, l, dir))
		return Unmount(testContext(t), dir)
	}))
	require.Error(t, l.SetWriteCache("none"))
	require.NoError(t, l.Detach(testContext(t)))
	require.ErrorIs(t, l.SetWriteCache(WriteBack), fs.ErrClosed)
	require.NoError(t, l.Detach(testContext(t)), "again")
}

// A loop device keeps the write cache of its last user: none may be left without flushes.
func TestDetachResetsTheWriteCache(t *testing.T) {
	needRoot(t)
	free := func(name string) bool {
		_, err := os.Stat(sysPath(name, "loop"))
		return errors.Is(err, fs.ErrNotExist)
	}
	for range 100 { // until nobody else takes the device while it is looked at
		l, err := Attach(testContext(t), image(t, 1), Options{WriteCache: WriteThrough})
		require.NoError(t, err)
		require.NoError(t, l.Detach(testContext(t)))
		before := free(l.Name())
		cache, err := readSys(l.Name(), "queue/write_cache")
		require.NoError(t, err)
		if before && free(l.Name()) {
			require.Equal(t, string(WriteBack), cache)
			return
		}
	}
	t.Fatal("somebody always takes the device")
}

func TestDetachWaitsForOtherUsers(t *testing.T) {
	needRoot(t)
	path := image(t, 1)
	l, err := Attach(testContext(t), path, Options{})
	require.NoError(t, err)
	other, err := open(l.Path(), unix.O_RDONLY)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	err = l.Detach(ctx)
	require.ErrorIs(t, err, ErrBusy)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, 1, loopsOn(t, filepath.Dir(path)))
	require.NoError(t, unix.Close(other))
	require.NoError(t, l.Detach(testContext(t)))
	require.Zero(t, loopsOn(t, filepath.Dir(path)))
}

// The next user of the same device does not keep Detach waiting, and keeps it.
func TestDetachKnowsItsOwnAttachment(t *testing.T) {
	needRoot(t)
	path := image(t, 1)
	next := attached(t, path, Options{})
	if next.seq == "" {
		testskip.Skip(t, "needs diskseq: Linux 5.15; to run it: boot one")
	}
	earlier := &Loop{number: next.number, seq: "0", backing: next.backing, fd: -1}
	require.NoError(t, earlier.Detach(testContext(t)))
	require.Equal(t, path, askLosetup(t, next.Path()).BackFile)
}

// attachOften attaches files of a size that nobody else has, and checks each device's size.
func attachOften(ctx context.Context, dir string, id, rounds int) error {
	path := filepath.Join(dir, fmt.Sprint("image", id))
	size := (1<<20 + id<<12)
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, int64(size))); err != nil {
		return err
	}
	for range rounds {
		l, err := Attach(ctx, path, Options{Autoclear: true})
		if err != nil {
			return err
		}
		sectors, err := readSys(l.Name(), "size")
		if err == nil && sectors != fmt.Sprint(size/512) {
			err = fmt.Errorf("%s of %s has %s sectors, want %d", l.Path(), path, sectors, size/512)
		}
		if err := errors.Join(err, l.Detach(ctx)); err != nil {
			return err
		}
	}
	return nil
}

func childAttach(args []string) error {
	id, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	return attachOften(context.Background(), args[0], id, 50)
}

func TestParallelAttach(t *testing.T) {
	needRoot(t)
	dir, ctx := t.TempDir(), testContext(t)
	var all sync.WaitGroup
	errs := make(chan error, 10)
	for id := range 8 {
		all.Go(func() { errs <- attachOften(ctx, dir, id, 50) })
	}
	for id := 8; id < 10; id++ {
		all.Go(func() {
			out, err := child(t, "attach", dir, fmt.Sprint(id)).CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			errs <- err
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	require.Zero(t, loopsOn(t, dir))
}

// bareDev mounts an empty folder on /dev, with the given nodes in it.
func bareDev(nodes map[string]uint64) error {
	if err := unix.Mount("none", "/dev", "tmpfs", 0, "size=1m"); err != nil {
		return err
	}
	for name, dev := range nodes {
		if err := unix.Mknod("/dev/"+name, unix.S_IFCHR|0o600, int(dev)); err != nil {
			return err
		}
	}
	return nil
}

func TestAttachWithoutDeviceNodes(t *testing.T) {
	needRoot(t)
	path := image(t, 1)
	var st unix.Stat_t
	require.NoError(t, unix.Stat("/dev/loop-control", &st))

	n := namespace(t)
	require.NoError(t, n.Do(func() error {
		require.NoError(t, bareDev(nil))
		_, err := Attach(testContext(t), path, Options{})
		require.ErrorIs(t, err, ErrNoLoopDriver)
		require.ErrorIs(t, err, fs.ErrNotExist)
		return nil
	}))

	n = namespace(t)
	require.NoError(t, n.Do(func() error {
		require.NoError(t, bareDev(map[string]uint64{"loop-control": st.Rdev}))
		l, err := Attach(testContext(t), path, Options{})
		require.NoError(t, err)
		require.FileExists(t, l.Path(), "made where the kernel does not make it")
		require.NoError(t, l.Detach(testContext(t)))

		require.NoError(t, os.Remove(l.Path()))
		for number := range 64 {
			require.NoError(t, os.WriteFile("/dev/"+loopName(number), nil, 0o600))
		}
		_, err = Attach(testContext(t), path, Options{})
		require.ErrorContains(t, err, "is not block device", "it is not written to")
		return nil
	}))
}

func TestWithoutRoot(t *testing.T) {
	needRoot(t)
	path := image(t, 1)
	out, err := child(t, "nobody", path).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// childNobody tries everything as a user without privileges.
func childNobody(args []string) error {
	if err := errors.Join(os.Chmod(args[0], 0o666), os.Chmod(filepath.Dir(args[0]), 0o777),
		os.Chmod(filepath.Dir(filepath.Dir(args[0])), 0o777),
		syscall.Setgroups(nil), syscall.Setgid(65534), syscall.Setuid(65534)); err != nil {
		return err
	}
	dir := filepath.Dir(args[0])
	steps := map[string]func() error{
		"namespace": func() error { _, err := NewNamespace(); return err },
		"attach":    func() error { _, err := Attach(context.Background(), args[0], Options{}); return err },
		"mount":     func() error { _, err := Mount("/dev/loop0", dir, FS{Type: "ext4"}); return err },
		"unmount":   func() error { return Unmount(context.Background(), "/proc") },
		"shutdown":  func() error { return Shutdown("/") },
	}
	for name, step := range steps {
		if err := step(); !errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("%s: %v is no lack of permission", name, err)
		}
	}
	return nil
}
