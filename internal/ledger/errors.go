package ledger

import (
	"errors"
	"fmt"
)

// Errors that say why a ledger cannot be used. All are returned wrapped, with
// the ledger's path.
var (
	// ErrNotLedger: the file does not begin as a ledger does.
	ErrNotLedger = errors.New("not a plugpull ledger")
	// ErrShortHeader: the file is empty or ends within the header.
	ErrShortHeader = errors.New("the file ends within the ledger's header, so nothing was ever recorded in it: remove it and start again")
	// ErrHeader: the header's checksum does not match.
	ErrHeader = errors.New("the ledger's header is damaged")
	// ErrNoConfig: the file ends before the configuration that Create writes first.
	ErrNoConfig = errors.New("the ledger ends before its configuration, so nothing was ever recorded in it: remove it and start again")
	// ErrConfig: the configuration is not valid.
	ErrConfig = errors.New("the ledger's configuration is not valid")
	// ErrPosition: the ledger ends before the position asked for.
	ErrPosition = errors.New("the ledger ends before this position")
	// ErrRecord: a record that the file format cannot hold was appended. The
	// writer goes on without it.
	ErrRecord = errors.New("the record is not valid")
	// ErrClosed: the writer was closed.
	ErrClosed = errors.New("the ledger was closed")
	// ErrClockWentBack: CLOCK_BOOTTIME is behind an instant that the ledger
	// recorded during the same boot.
	ErrClockWentBack = errors.New("the clock went back")
)

// VersionError says that the ledger has a version which this plugpull does not read.
type VersionError struct {
	Path             string
	Found, Supported uint32
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("ledger %s: file format version %d, this plugpull reads version %d", e.Path, e.Found, e.Supported)
}

// LockedError says that the ledger has a writer already.
type LockedError struct{ Path string }

func (e *LockedError) Error() string {
	return fmt.Sprintf("ledger %s: another plugpull writes this ledger", e.Path)
}

// DamagedError says that a record is bad and that it is not a torn tail: what
// follows it is valid, or its own checksum is. No verdict can be drawn from
// such a ledger.
type DamagedError struct {
	Path   string
	Index  LSN   // of the bad record
	Offset int64 // of the bad record in the file, in bytes
	Reason string
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("ledger %s: record %d at byte %d is damaged: %s", e.Path, e.Index, e.Offset, e.Reason)
}
