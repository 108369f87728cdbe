// Package blockdev asks the Linux kernel for what a bench on a loop device needs: loop
// devices, filesystems made and mounted in a private mount namespace, a filesystem shut
// down as by a power cut, and the kernel's own words about all of it.
//
// What it guarantees:
//
//   - A request is carried out as asked or it is an error. Attach reads back the backing
//     file, direct I/O, the block size and the write cache; Mount reads back the device and
//     refuses a superblock that is already in use elsewhere. What a loop device or a
//     mount kept from an earlier user must not become a finding about a drive.
//   - A refusal carries the kernel's reason where it gives one.
//   - Only what was attached here is detached here, however many processes attach.
//   - With a Namespace and Options.Autoclear, the kernel takes mounts and loop devices away
//     when the process ends, also by kill -9, provided that the processes started in
//     the namespace end too (Pdeathsig).
//
// It needs root and Linux 5.8 (LOOP_CONFIGURE). Errors wrap the errno: errors.Is with
// fs.ErrPermission tells a lack of privilege, with errors.ErrUnsupported a kernel that
// cannot do it.
//
// Mount, ReadMount, Unmount, Make and Attach work on the mounts that the calling thread
// sees: call them inside Namespace.Do.
package blockdev
