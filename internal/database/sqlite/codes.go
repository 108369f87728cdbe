package sqlite

import (
	"errors"

	"github.com/ncruces/go-sqlite3"
)

// Code returns SQLite's extended result code of an error, zero if it has none.
func Code(err error) uint32 {
	var x sqlite3.ExtendedErrorCode
	if errors.As(err, &x) {
		return uint32(x)
	}
	return 0
}

func primary(err error) sqlite3.ErrorCode { return sqlite3.ErrorCode(Code(err)) }

// refused reports whether SQLite gives the code of err only before the commit is
// in the file: a lock that was not got, a constraint, or no room for the pages
// before the last, which is what makes a transaction committed. It needs the
// transaction to be over besides.
func refused(err error) bool {
	switch primary(err) {
	case sqlite3.BUSY, sqlite3.LOCKED, sqlite3.CONSTRAINT, sqlite3.FULL:
		return true
	}
	return false
}

// unreadableAtOpen is unreadable for an error of connect. Its pragmas are right, so
// that SQLITE_ERROR can only be SQLite's word on the format of the file.
func unreadableAtOpen(err error) bool {
	var s *setUpError
	return unreadable(err) || errors.As(err, &s) && primary(err) == sqlite3.ERROR
}

// unreadable reports whether SQLite itself says with err that what it read is no
// database, or a damaged one. Of the I/O errors only those say so that a device
// which answers causes; a device that fails gives others, which say nothing of
// what is on it.
func unreadable(err error) bool {
	switch primary(err) {
	case sqlite3.CORRUPT, sqlite3.NOTADB:
		return true
	}
	switch sqlite3.ExtendedErrorCode(Code(err)) {
	case sqlite3.IOERR_SHORT_READ, sqlite3.IOERR_DATA:
		return true
	}
	return false
}
