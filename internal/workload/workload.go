// Package workload defines what plugpull commits: the profiles, the rows that
// operation n of a stream touches, and every byte of each row.
//
// It guarantees that rows and payloads are pure functions of the run's
// parameters, stream, number and version, so that the client can write them and
// the verifier can prove each byte without either storing any. It knows neither
// SQL nor the ledger.
package workload

import (
	"errors"
	"fmt"

	"github.com/google/uuid"
)

// Stream numbers a connection that commits 1, 2, 3 …; the first is 1.
type Stream uint16

// Seq numbers a commit within its stream; the first is 1, zero is none.
type Seq uint64

// Version numbers the states of a row: 1 as inserted, 2 as updated.
type Version uint8

// Profile names the shape of a stream's transactions.
type Profile string

// The profiles.
const (
	// Append inserts one row an autocommit statement: the original test.
	Append Profile = "append"
	// Transfer inserts a row into each of two tables and moves the stream's head row in
	// one transaction: it shows torn ones.
	Transfer Profile = "transfer"
	// Churn inserts key n, updates key n−W and deletes key n−2W in one
	// transaction; only keys of the same session are touched.
	Churn Profile = "churn"
)

// Witness is the profile of witness streams: checksummed records appended to a file
// beside the database, one a commit. It is not for users to choose.
const Witness Profile = "witness"

// FirstWitness is the first number of a witness stream; streams below it
// commit to the database.
const FirstWitness Stream = 0xff00

// IsWitness reports whether a stream appends to a file beside the database.
func (s Stream) IsWitness() bool { return s >= FirstWitness }

// Profiles returns every profile in the order of the documentation.
func Profiles() []Profile { return []Profile{Append, Transfer, Churn} }

// Table names one of the tables of a profile.
type Table uint8

// The tables.
const (
	TableAppend Table = iota + 1
	TableA            // the first half of a transfer
	TableB            // the second half of a transfer
	TableHead         // the head row of a transfer stream: one row a stream
	TableChurn
	TableWitness // no table: records of a file beside the database
)

// String returns the table's base name, to which a schema adds the epoch.
func (t Table) String() string {
	switch t {
	case TableAppend:
		return "append"
	case TableA:
		return "transfer_a"
	case TableB:
		return "transfer_b"
	case TableHead:
		return "transfer_head"
	case TableChurn:
		return "churn"
	case TableWitness:
		return "witness"
	}
	return fmt.Sprintf("table(%d)", uint8(t))
}

// Tables returns the tables of a profile; empty for an unknown profile.
func (p Profile) Tables() []Table {
	switch p {
	case Append:
		return []Table{TableAppend}
	case Transfer:
		return []Table{TableA, TableB, TableHead}
	case Churn:
		return []Table{TableChurn}
	case Witness:
		return []Table{TableWitness}
	}
	return nil
}

// Limits of the parameters.
const (
	MaxPayload    = 16 << 10
	MinWindow     = 8
	MaxWindow     = 1 << 16
	DefaultWindow = 256
)

// Params fix the contents of a run. They are recorded in the ledger and never
// change during it.
type Params struct {
	Run        uuid.UUID `json:"run"`
	Profile    Profile   `json:"profile"`
	PayloadMin int       `json:"payload_min"` // bytes
	PayloadMax int       `json:"payload_max"` // bytes
	Window     Seq       `json:"window"`      // W of churn; zero for the other profiles
}

// Validate reports every bad field at once.
func (p Params) Validate() error {
	var errs []error
	if p.Run == uuid.Nil {
		errs = append(errs, errors.New("the run id is missing"))
	}
	if p.Profile.Tables() == nil {
		errs = append(errs, fmt.Errorf("unknown profile %q: want append, transfer or churn", p.Profile))
	}
	if p.PayloadMin < 0 || p.PayloadMax < p.PayloadMin || p.PayloadMax > MaxPayload {
		errs = append(errs, fmt.Errorf("payload %d..%d: want 0 ≤ least ≤ most ≤ %d bytes", p.PayloadMin, p.PayloadMax, MaxPayload))
	}
	if p.Profile == Churn && (p.Window < MinWindow || p.Window > MaxWindow) {
		errs = append(errs, fmt.Errorf("churn window %d: want %d to %d", p.Window, MinWindow, MaxWindow))
	}
	return errors.Join(errs...)
}

// ForWitness returns the parameters of the run's witness streams: fixed sizes, so
// that a record's place in its file follows from its number.
func (p Params) ForWitness() Params {
	return Params{Run: p.Run, Profile: Witness, PayloadMin: WitnessPayload, PayloadMax: WitnessPayload}
}

// WitnessPayload is the size of a witness record's payload, in bytes: with its head a
// record fills a block of 4 KiB, so that what befalls whole blocks befalls it too.
const WitnessPayload = 4096 - 112

// Op is one operation of a stream: one transaction.
type Op struct {
	Stream Stream
	Seq    Seq
	First  Seq // the first number of the stream's session: no key below it is touched
}

// Action is what a step does to its row.
type Action uint8

// The actions.
const (
	Insert Action = iota + 1
	Update
	Delete
	SetHead // insert the stream's head row, or move it to Seq
)

// Step is one statement of an operation.
type Step struct {
	Action  Action
	Table   Table
	Stream  Stream
	Seq     Seq
	Version Version
}

// Steps appends to dst the statements of op in the order in which they are sent.
func (p Params) Steps(dst []Step, op Op) []Step {
	s, n := op.Stream, op.Seq
	switch p.Profile {
	case Append:
		return append(dst, Step{Insert, TableAppend, s, n, 1})
	case Witness:
		return append(dst, Step{Insert, TableWitness, s, n, 1})
	case Transfer:
		return append(dst,
			Step{Insert, TableA, s, n, 1},
			Step{Insert, TableB, s, n, 1},
			Step{SetHead, TableHead, s, n, 1})
	case Churn:
		dst = append(dst, Step{Insert, TableChurn, s, n, 1})
		if n >= op.First+p.Window {
			dst = append(dst, Step{Update, TableChurn, s, n - p.Window, 2})
		}
		if n >= op.First+2*p.Window {
			dst = append(dst, Step{Delete, TableChurn, s, n - 2*p.Window, 2})
		}
	}
	return dst
}

// Row is a row as a survivor scan reads it.
type Row struct {
	Table   Table
	Stream  Stream
	Seq     Seq
	Version Version
	Run     [16]byte
	Payload []byte // valid until the next row is read
}
