package blockdev

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// WriteCache is what the kernel believes of a device's cache, in the words of
// /sys/block/*/queue/write_cache.
type WriteCache string

const (
	// WriteBack: the device has a volatile cache; the kernel sends it flushes.
	WriteBack WriteCache = "write back"
	// WriteThrough: what is written is durable; the kernel sends no flush, whatever
	// the filesystem asks for.
	WriteThrough WriteCache = "write through"
)

// Queue is what the kernel believes of a block device.
type Queue struct {
	LogicalBlockSize int // bytes
	WriteCache       WriteCache
	FUA              bool // false: the kernel sends a write and a flush instead
}

// ReadQueue reads /sys/block/NAME/queue.
func ReadQueue(name string) (Queue, error) {
	var q Queue
	size, err := readSys(name, "queue/logical_block_size")
	if err != nil {
		return q, err
	}
	if q.LogicalBlockSize, err = strconv.Atoi(size); err != nil {
		return q, fmt.Errorf("%s: logical block size: %w", name, err)
	}
	cache, err := readSys(name, "queue/write_cache")
	if err != nil {
		return q, err
	}
	q.WriteCache = WriteCache(cache)
	fua, err := readSys(name, "queue/fua")
	if err != nil {
		return q, err
	}
	q.FUA = fua == "1"
	return q, nil
}

// setWriteCache tells the kernel what to believe and reads it back.
func setWriteCache(name string, w WriteCache) error {
	if w != WriteBack && w != WriteThrough {
		return fmt.Errorf("%s: write cache %q: want %q or %q", name, w, WriteBack, WriteThrough)
	}
	got, err := readSys(name, "queue/write_cache")
	if err != nil || WriteCache(got) == w { // setting it stops the queue for a moment
		return err
	}
	if err := os.WriteFile(sysPath(name, "queue/write_cache"), []byte(w), 0); err != nil {
		return fmt.Errorf("%s: set the write cache: %w", name, err)
	}
	if got, err = readSys(name, "queue/write_cache"); err != nil {
		return err
	}
	if WriteCache(got) != w {
		return &MismatchError{Device: name, What: "write cache", Asked: string(w), Got: got}
	}
	return nil
}

func sysPath(name, attribute string) string { return filepath.Join("/sys/block", name, attribute) }

// readSys reads an attribute of a block device, without its newline.
func readSys(name, attribute string) (string, error) {
	b, err := os.ReadFile(sysPath(name, attribute))
	if err != nil {
		return "", fmt.Errorf("%s: read %s: %w", name, attribute, err)
	}
	return strings.TrimSpace(string(b)), nil
}
