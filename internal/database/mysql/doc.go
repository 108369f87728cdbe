// Package mysql speaks to MySQL and MariaDB: schema, commit streams, survivor
// scan, and what the server says of itself.
//
// It guarantees that a stream sends each operation once, on one connection,
// with no pool, resend or reconnect behind it; that an outcome is called
// refused only where it certainly did not happen; that only errors which the
// server cannot give for a harmless reason count as evidence of damage; and
// that no password is ever part of a text, an error or a log line.
//
// It judges nothing: that is the verifier's.
package mysql
