package fuse

import (
	gofuse "github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

func (f *files) attr(inode uint64, out *gofuse.Attr) gofuse.Status {
	switch inode {
	case gofuse.FUSE_ROOT_ID:
		*out = gofuse.Attr{Ino: inode, Mode: unix.S_IFDIR | 0o700, Nlink: 2}
	case driveInode:
		*out = gofuse.Attr{
			Ino: inode, Mode: unix.S_IFREG | 0o600, Nlink: 1,
			Size: uint64(f.size), Blocks: uint64(f.size / 512), Blksize: blockSize,
		}
	default:
		return gofuse.ENOENT
	}
	return gofuse.OK
}

// Lookup implements gofuse.RawFileSystem.
func (f *files) Lookup(_ <-chan struct{}, in *gofuse.InHeader, name string, out *gofuse.EntryOut) gofuse.Status {
	if in.NodeId != gofuse.FUSE_ROOT_ID || name != driveName {
		return gofuse.ENOENT
	}
	out.NodeId = driveInode
	out.SetEntryTimeout(forever)
	out.SetAttrTimeout(forever)
	return f.attr(driveInode, &out.Attr)
}

// GetAttr implements gofuse.RawFileSystem.
func (f *files) GetAttr(_ <-chan struct{}, in *gofuse.GetAttrIn, out *gofuse.AttrOut) gofuse.Status {
	out.SetTimeout(forever)
	return f.attr(in.NodeId, &out.Attr)
}

// SetAttr implements gofuse.RawFileSystem: nothing can be set.
func (f *files) SetAttr(<-chan struct{}, *gofuse.SetAttrIn, *gofuse.AttrOut) gofuse.Status {
	return gofuse.EPERM
}

// Open implements gofuse.RawFileSystem. Parallel direct writes, and asynchronous
// direct I/O (see Mount), are what lets a loop device have more than one request
// under way.
func (f *files) Open(_ <-chan struct{}, in *gofuse.OpenIn, out *gofuse.OpenOut) gofuse.Status {
	if in.NodeId != driveInode {
		return gofuse.ENOENT
	}
	p := f.power.Load()
	if p.dev == nil {
		return gofuse.EIO
	}
	f.opens.Add(1)
	out.Fh = p.number
	out.OpenFlags = gofuse.FOPEN_DIRECT_IO | gofuse.FOPEN_PARALLEL_DIRECT_WRITES | gofuse.FOPEN_NOFLUSH
	return gofuse.OK
}

// OpenDir implements gofuse.RawFileSystem.
func (f *files) OpenDir(<-chan struct{}, *gofuse.OpenIn, *gofuse.OpenOut) gofuse.Status {
	return gofuse.OK
}

// ReadDir implements gofuse.RawFileSystem.
func (f *files) ReadDir(_ <-chan struct{}, in *gofuse.ReadIn, out *gofuse.DirEntryList) gofuse.Status {
	if in.Offset == 0 {
		out.AddDirEntry(gofuse.DirEntry{Name: driveName, Mode: unix.S_IFREG, Ino: driveInode})
	}
	return gofuse.OK
}

// StatFs implements gofuse.RawFileSystem. Without an answer a loop device has no
// discard.
func (f *files) StatFs(_ <-chan struct{}, _ *gofuse.InHeader, out *gofuse.StatfsOut) gofuse.Status {
	*out = gofuse.StatfsOut{Blocks: uint64(f.size / blockSize), Bsize: blockSize, Frsize: blockSize, Files: 1, NameLen: 255}
	return gofuse.OK
}
