// Package fuse is the FUSE wire of the simulated drive: a filesystem with one
// regular file, whose contents are the drive. A loop device with direct I/O on that
// file is a block device with the drive's volatile cache.
//
// It guarantees:
//
//   - A write is answered when the drive has taken it, an fsync when the drive's
//     flush is done, and neither otherwise. The kernel sends a loop device's FLUSH,
//     and the second half of a FUA write, as an fsync of the file. A write with
//     O_DSYNC is a write and a flush, and answered after both. Nothing is held
//     back or cached on the way: not here, and not in the host's page cache (every
//     open file is FOPEN_DIRECT_IO, and there is no writeback cache).
//   - Requests do not wait for each other here: each is served while others sleep in
//     the drive, also those of one loop device. The kernel may reorder those that are
//     under way at one time, and holds some back: no write, flush or discard of the
//     file begins beside a flush or a discard, and a loop device begins nothing at all
//     beside its flush. A drive's flush latency therefore stops a loop device.
//   - A file that is opened belongs to the power-on that [Server.Power] named last.
//     Once that names another, every request through the file fails with EIO for
//     ever, reads too, and does not reach a device. This is the second fence: the
//     handle of an older power-on is refused by the drive itself.
//   - Mount, the opening of paths and Close happen on the thread of the caller, so
//     that it may have a mount namespace of its own. What runs on other threads
//     knows the drive by its open /dev/fuse only. No child inherits that.
//   - When this process is killed, a child of its own aborts the connection, also where
//     a thread of this process was waiting for its own drive and could never end.
//
// # Errors
//
// No power, a stale file, a dead drive and any failure of the device are EIO.
// What is not a multiple of a sector, or outside the drive, is EINVAL. The size of
// the file does not change (EPERM). Of the kinds of fallocate, those that leave
// zeros and keep the size (what a loop device makes of DISCARD and WRITE_ZEROES)
// are a discard, the others EOPNOTSUPP. A failure that is none of the drive's own
// is kept for [Server.Err].
//
// # A device that hangs
//
// A process whose request the device does not answer cannot be killed, and neither
// can one that attaches, detaches or closes a loop device then, for that flushes.
// [Server.Abort] fails what they wait for, after which they can.
package fuse
