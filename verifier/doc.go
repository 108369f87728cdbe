// Package verifier compares what survived a power cut with what the ledger says
// was acknowledged, and judges what the difference proves.
//
// It is pure: it opens no connection, reads no clock and writes no log. Given the same
// ledger, rows and evidence it gives the same findings and the same verdict.
// It guarantees that each commit is charged with at most one finding, that a
// commit charged in one verification is not charged again in a later one, and
// that memory is bounded by streams, sessions and pins, never by rows.
//
// A verification is two passes over the ledger: the first collects sessions,
// reservations and pins, the second walks the outcomes beside one cursor of surviving rows a
// table and stream. Only where a trailing loss must be split into holes and a tail
// is the ledger read a third time.
package verifier
