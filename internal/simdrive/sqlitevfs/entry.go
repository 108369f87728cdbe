package sqlitevfs

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

const (
	sector  = 512
	files   = 16
	maxName = 64

	offSuper   = 0
	offCopyA   = 4096
	offCopyB   = 12288
	offExtents = 65536
	grain      = 4096 // extents are a multiple of it

	version    = 1
	superMagic = "plugpuFS"
	entryMagic = "PPde"
	offHalf    = 88
	offCRC     = sector - 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// entry is what the directory says of one file.
type entry struct {
	exists bool
	seq    uint64
	size   int64
	half   uint8  // which of its two extents
	name   string // empty when it does not exist
}

// entryAt returns the offset of one of the two copies of an entry.
func entryAt(slot int, copy uint8) int64 {
	if copy == 0 {
		return offCopyA + int64(slot)*sector
	}
	return offCopyB + int64(slot)*sector
}

func seal(b []byte) {
	binary.LittleEndian.PutUint32(b[offCRC:], crc32.Checksum(b[:offCRC], castagnoli))
}

func sealed(b []byte) bool {
	return len(b) == sector && binary.LittleEndian.Uint32(b[offCRC:]) == crc32.Checksum(b[:offCRC], castagnoli)
}

// encode fills b, one sector.
func (e *entry) encode(b []byte, slot int) {
	clear(b)
	copy(b, entryMagic)
	if e.exists {
		b[4] = 1
	}
	b[5] = byte(slot)
	binary.LittleEndian.PutUint16(b[6:], uint16(len(e.name)))
	binary.LittleEndian.PutUint64(b[8:], e.seq)
	binary.LittleEndian.PutUint64(b[16:], uint64(e.size))
	copy(b[24:24+maxName], e.name)
	b[offHalf] = e.half
	seal(b)
}

// decodeEntry accepts only what encode can have written for this slot.
func decodeEntry(b []byte, slot int, extent int64) (entry, error) {
	if !sealed(b) || string(b[:4]) != entryMagic {
		return entry{}, fmt.Errorf("%w: entry %d has no valid checksum", ErrDamaged, slot)
	}
	e := entry{
		exists: b[4] == 1,
		seq:    binary.LittleEndian.Uint64(b[8:]),
		size:   int64(binary.LittleEndian.Uint64(b[16:])),
		half:   b[offHalf],
	}
	n := int(binary.LittleEndian.Uint16(b[6:]))
	switch {
	case b[4] > 1, int(b[5]) != slot, n > maxName, e.size < 0 || e.size > extent,
		e.half > 1, !e.exists && (n != 0 || e.size != 0 || e.half != 0),
		len(bytes.Trim(b[24+min(n, maxName):offHalf], "\x00")) != 0,
		len(bytes.Trim(b[offHalf+1:offCRC], "\x00")) != 0:
		return entry{}, fmt.Errorf("%w: entry %d makes no sense", ErrDamaged, slot)
	}
	e.name = string(b[24 : 24+n])
	if e.exists && checkName(e.name) != nil {
		return entry{}, fmt.Errorf("%w: entry %d has the name %q", ErrDamaged, slot, e.name)
	}
	return e, nil
}

// checkName keeps names to what needs no quoting anywhere.
func checkName(name string) error {
	if len(name) == 0 || len(name) > maxName {
		return fmt.Errorf("file name %q: want 1 to %d bytes", name, maxName)
	}
	for i := range len(name) {
		c := name[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '-' || c == '_') {
			return fmt.Errorf("file name %q: want only letters, digits, '.', '-' and '_'", name)
		}
	}
	return nil
}

func encodeSuper(b []byte, extent int64) {
	clear(b)
	copy(b, superMagic)
	binary.LittleEndian.PutUint32(b[8:], version)
	binary.LittleEndian.PutUint32(b[12:], files)
	binary.LittleEndian.PutUint64(b[16:], uint64(extent))
	seal(b)
}

// decodeSuper returns the size of an extent.
func decodeSuper(b []byte, size int64) (int64, error) {
	if !sealed(b) || string(b[:8]) != superMagic {
		return 0, fmt.Errorf("%w: no superblock", ErrDamaged)
	}
	v, n := binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:])
	extent := binary.LittleEndian.Uint64(b[16:])
	switch {
	case v != version || n != files:
		return 0, fmt.Errorf("%w: version %d with %d files, want version %d with %d", ErrDamaged, v, n, version, files)
	case extent == 0 || extent%grain != 0 || extent > uint64(max(0, size-offExtents))/(2*files),
		len(bytes.Trim(b[24:offCRC], "\x00")) != 0:
		return 0, fmt.Errorf("%w: extents of %d bytes on a device of %d", ErrDamaged, extent, size)
	}
	return int64(extent), nil
}
