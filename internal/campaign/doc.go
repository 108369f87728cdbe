// Package campaign runs the experiment: it begins sessions of streams, has the bench cut the
// power, and has what survived compared, cycle by cycle.
//
// It guarantees that the streams run through the cut, that what is about to be
// done to the power is on disk before it is done, that every finding and
// every unknown commit is recorded in the ledger before the next cycle begins, and that a
// run killed at any instant can be carried on. It owns the interfaces of the
// benches and databases it drives, and knows none of them.
package campaign
