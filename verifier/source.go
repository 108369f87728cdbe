package verifier

import (
	"context"
	"fmt"

	"plugpull/internal/workload"
)

// Survivors reads what is left in the database. Implementations must read only
// what is committed, and may be used by one goroutine at a time; the cursors
// that Rows returns are independent of each other and are used in turn.
type Survivors interface {
	// Streams returns the number of every stream that has a row in t, ascending.
	Streams(ctx context.Context, t workload.Table) ([]workload.Stream, error)
	// Rows opens a cursor over the rows of one stream with numbers ≥ from, ascending.
	Rows(ctx context.Context, t workload.Table, s workload.Stream, from workload.Seq) (Rows, error)
}

// Rows is a cursor.
type Rows interface {
	// Next reads the next row into r, whose payload is valid until the next
	// call; false at the end. It blocks on the database.
	Next(r *workload.Row) (bool, error)
	Close() error
}

// UnreadableError says that the database itself declared a table or a part of it
// lost: the evidence behind the class unreadable. Every other error leaves
// the verification without a result.
type UnreadableError struct {
	Table workload.Table
	Errno uint32 // the server's error number
	Err   error
}

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("table %s cannot be read (error %d): %v", e.Table, e.Errno, e.Err)
}

func (e *UnreadableError) Unwrap() error { return e.Err }

// ScanError says that the survivors could not be read for a reason that proves
// nothing of them: the connection was lost, the server was busy.
type ScanError struct {
	Step string
	Err  error
}

func (e *ScanError) Error() string { return e.Step + ": " + e.Err.Error() }
func (e *ScanError) Unwrap() error { return e.Err }
