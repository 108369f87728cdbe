package client

import (
	"context"

	"plugpull/internal/clock"
	"plugpull/internal/ledger"
	"plugpull/internal/workload"
)

// Conn is one connection to the database, pinned to one stream. Its methods
// are called by one goroutine at a time.
type Conn interface {
	// Commit performs op as one transaction, sends nothing twice, and blocks
	// until the server has answered, the silence deadline has passed or the
	// connection is lost. Cancelling ctx abandons the operation: its outcome is
	// then unknown unless no byte of the committing packet was written.
	Commit(ctx context.Context, op workload.Op) Reply
	// ID is the server's number for this connection, zero where it has none.
	ID() uint64
	// Close ends the connection. After an unknown outcome it discards what the
	// control host has not sent yet, so that no commit arrives later.
	Close() error
}

// Reply is what became of one operation.
type Reply struct {
	Outcome ledger.Outcome
	// Sent is stamped before the first byte of the committing packet is written; zero
	// when none was.
	Sent clock.Instant
	// Answered is stamped after the reply has been read, or when the
	// connection was given up.
	Answered clock.Instant
	// Errno is the server's error number, zero for none.
	Errno uint32
	// Ended says how the connection ended; zero when it can go on.
	Ended ledger.End
	// Err is what went wrong; nil when acked. Never holds a secret.
	Err error
}
