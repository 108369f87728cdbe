// Package sqlitevfs is a small, honest file layer on a block device, and its
// SQLite VFS.
//
// It guarantees what an ordinary journalling filesystem with ordered data
// guarantees, and nothing more:
//
//   - What is written to a file reaches the device at once (there is no page
//     cache), but is durable only when a Sync of any file has returned.
//   - That a file exists, and its size, are durable only when a Sync of that file
//     has returned; that it is gone, only when Delete with syncDir, or a later
//     Sync of any file, has. Before that either state may be found after a power
//     cut. Creation and size stay in memory until the Sync; a deletion is written
//     at once and not flushed, so that the drive decides.
//   - Sync flushes the data before it writes a new size, and flushes again after
//     it. A size therefore never survives without its data, and no extent shows
//     what an earlier file left in it. SQLite needs that: the remains of an older
//     rollback journal, bared in a new one, pass every check, and would
//     roll back transactions that were committed long ago. Appending thus costs two
//     flushes and overwriting one, as on ext4.
//   - The room of a file that was deleted or truncated to nothing is not used
//     again before that is durable: until then the whole old file may be found, but
//     never a mixture of it and what was written after.
//   - Else a file is overwritten in place. Of a truncation to another size than
//     zero that was not synced, the file may be found with its old size and, beyond
//     the new one, with any mixture of the old bytes and those written after.
//   - Extending beyond the end, also after a truncation, reads as zeros.
//
// A write that is not a multiple of a 512-byte sector reads the rest of the
// sector and writes the whole one. Power loss can then touch neighbouring bytes
// within that sector, and only if the device tears within a sector. The layer
// tells SQLite of a sector of 512 bytes and of IOCAP_POWERSAFE_OVERWRITE, which is
// SQLite's default on Unix and true of a device whose sectors are atomic; it
// declares no atomic writes, no safe append and no sequential order.
//
// Layout (integers are little-endian, sectors are of 512 bytes):
//
//	    0  superblock, one sector
//	 4096  directory, copy A: 16 entries of one sector
//	12288  directory, copy B
//	65536  32 extents of equal size, a multiple of 4096; entry n has 2n and 2n+1
//
// Superblock:
//
//	 0   8  magic "plugpuFS"
//	 8   4  version, 1
//	12   4  number of files, 16
//	16   8  bytes of an extent
//	24 484  zero
//	508  4  CRC-32C of bytes 0–507
//
// Directory entry:
//
//	 0   4  magic "PPde"
//	 4   1  1: the file exists, 0: its extents are free
//	 5   1  index of the entry
//	 6   2  length of the name
//	 8   8  sequence number; of the two copies the valid one with the greater number stands
//	16   8  size of the file in bytes
//	24  64  name, padded with zeros
//	88   1  which of its two extents the file is in, 0 or 1
//	89 419  zero
//	508  4  CRC-32C of bytes 0–507
//
// An entry is written over the copy that is not the durable one, so a write that
// is torn or lost never takes the durable one with it.
package sqlitevfs
