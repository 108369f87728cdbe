package fuse_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"plugpull/internal/simdrive"
)

// BenchmarkFile compares the drive's file, and a loop device on it, with a plain file
// in memory: 4 KiB writes with fdatasync, and 1 MiB writes and reads in order.
func BenchmarkFile(b *testing.B) {
	for _, name := range []string{"shm", "drive", "loop"} {
		for _, c := range []struct {
			name string
			size int
			call func(fd int, p []byte, off int64) error
		}{
			{"4K-fdatasync", 4096, func(fd int, p []byte, off int64) error {
				if _, err := unix.Pwrite(fd, p, off); err != nil {
					return err
				}
				return unix.Fdatasync(fd)
			}},
			{"1M-write", 1 << 20, func(fd int, p []byte, off int64) error { _, err := unix.Pwrite(fd, p, off); return err }},
			{"1M-read", 1 << 20, func(fd int, p []byte, off int64) error { _, err := unix.Pread(fd, p, off); return err }},
		} {
			b.Run(name+"/"+c.name, func(b *testing.B) {
				f := benchFile(b, name)
				p := filled(1, c.size)
				for range 2 { // fill the drive's pools
					for off := int64(0); off < driveSize; off += 1 << 20 {
						f.write(1, off, 1<<20)
					}
					if err := unix.Fsync(f.fd); err != nil {
						b.Fatal(err)
					}
				}
				b.SetBytes(int64(c.size))
				b.ReportAllocs()
				i := int64(0)
				for b.Loop() {
					if err := c.call(f.fd, p, i%(driveSize/int64(c.size))*int64(c.size)); err != nil {
						b.Fatal(err)
					}
					i++
				}
				f.close()
			})
		}
	}
}

func benchFile(b *testing.B, name string) *file {
	if name == "shm" {
		path := filepath.Join("/dev/shm", filepath.Base(b.TempDir())+"-plugpull")
		b.Cleanup(func() { _ = os.Remove(path) })
		return open(b, path, unix.O_CREAT)
	}
	r := mountDrive(b, simdrive.Config{})
	if name == "loop" {
		return open(b, r.loop(), unix.O_DIRECT)
	}
	return r.open()
}
