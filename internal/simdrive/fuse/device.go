package fuse

import (
	"io"

	"plugpull/internal/simdrive"
)

// Device is one power-on's way to a drive, as *simdrive.Handle is. All methods are
// called concurrently and may block; a read or write is of all of p or fails. p is
// not used after the call. Errors are simdrive's or, if none of these,
// a failure that the server keeps.
type Device interface {
	io.ReaderAt
	io.WriterAt
	// Flush makes durable what completed before it was called.
	Flush() error
	// Discard makes n bytes at off read as zeros.
	Discard(off, n int64) error
}

var _ Device = (*simdrive.Handle)(nil)
