// Package sqlite runs the experiment on SQLite: tables, commits and the scan of
// what survived, on any VFS that is registered with the library.
//
// It guarantees that a commit is acked only when SQLite returned success from the
// committing statement; refused only when it certainly is not in the database,
// which for SQLite means an error before COMMIT began, or a listed code with
// the transaction seen to be over; and unknown in every other case: when the sync of a
// commit fails, the commit may still be found after the next start.
//
// One connection of SQLite is used by one goroutine at a time; a DB may be used
// by many, since every method opens its own.
package sqlite
