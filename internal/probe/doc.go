// Package probe commits with one client for some seconds, on a database server or to a plain file, and
// says how fast that goes and what the rate can and cannot mean.
//
// It guarantees that it leaves nothing behind: its schema or file is its own, is removed at the end also
// after an error or an interruption, and what a probe that was killed left is removed by the next one, which
// knows it by a mark; that it touches nothing without that mark; and that no rate is turned into
// a verdict: where the settings do not flush, the rate says nothing of the drive, and where the flushes were not
// seen to reach it, that is said.
//
// One client only: with more, one flush serves many commits, and the rate says nothing of a flush.
package probe
