package ledger

import (
	"fmt"

	"plugpull/internal/clock"
	"plugpull/internal/workload"
)

// Kind says what a record tells.
type Kind uint8

// The kinds of record. The package comment has the byte table.
const (
	KindSession Kind = iota + 1 // a session of streams begins
	KindStream                  // a stream of the session begins
	KindReserve                 // the stream may send From..To
	KindOutcome                 // what became of From (= To)
	KindSkip                    // From..To were certainly not sent
	KindEnd                     // how the stream ended
	KindMark                    // a step of a cycle
	KindPin                     // what a verification found of From..To
	KindText                    // a named text, in chunks
)

// Outcome is what the client knows of a commit.
type Outcome uint8

// The outcomes.
const (
	Acked   Outcome = iota + 1 // the server acknowledged it
	Refused                    // it certainly did not happen
	Unknown                    // everything else
)

// StreamKind tells a database stream from a witness.
type StreamKind uint8

// The kinds of stream.
const (
	DatabaseStream StreamKind = iota
	WitnessStream             // appends to a file beside the database
)

// End is the way in which a stream ended.
type End uint8

// The ends of a stream. Only Silence is what a power cut looks like.
const (
	EndStopped  End = iota + 1 // plugpull stopped it between two commits
	EndSilence                 // no byte until the deadline
	EndFIN                     // the peer closed the connection
	EndRST                     // the peer, or a device on the way, reset it
	EndShutdown                // the server said that it shuts down (1053) or ended the connection on request (1927)
	EndError                   // any other error
	EndRefusals                // too many refusals in a row
	EndLedger                  // the ledger could not be written
)

// Mark is a step of a cycle.
type Mark uint8

// The marks of a cycle.
const (
	MarkCycle        Mark = iota + 1 // a cycle begins
	MarkCutCommanded                 // Answered: just before the outlet was told
	MarkCutObserved                  // Answered: when off was read back
	MarkRestored                     // Answered: when power was read back on
	MarkRecovered                    // Answered: when the server greeted
	MarkVerified                     // the pins before it are complete
	MarkEpoch                        // Count: the epoch that begins; older ones are not judged again
	MarkVoid                         // the cycle was interrupted and counts for nothing but its findings
)

// PinClass is what a verification recorded of a range of commits.
type PinClass uint8

// The classes of pins: two for unknown commits, the rest findings.
const (
	PinPresent PinClass = iota + 1
	PinAbsent
	PinLostTail
	PinLostHole
	PinTorn
	PinCorrupt
	PinStale
	PinResurrected
	PinPhantom
	PinUnreadable
)

// Record is one record, of any kind; which fields a kind uses is in the
// package comment's table. It holds no pointer but Text.
type Record struct {
	Kind     Kind
	Code     uint8 // Outcome, StreamKind, End, Mark, PinClass or TextKey, by Kind
	Stream   workload.Stream
	Session  uint32
	From, To workload.Seq
	Sent     clock.Instant
	Answered clock.Instant
	Errno    uint32 // the server's error number, zero for none
	Cycle    uint32
	Count    uint64
	Text     []byte // KindText only: the whole value
}

// TextKey names a text.
type TextKey uint8

// The texts.
const (
	TextConfig  TextKey = iota + 1 // JSON of Config: once, first record of the file
	TextSession                    // JSON of SessionInfo: after each session record
	TextNote                       // a sentence for people
)

// Config is fixed for the life of a ledger.
type Config struct {
	workload.Params
	Database string `json:"database"` // driver: mysql, sqlite
	Schema   string `json:"schema"`
}

// SessionInfo describes a session.
type SessionInfo struct {
	BootID   string            `json:"boot_id"` // of the control host
	Wall     string            `json:"wall"`    // RFC 3339 with nanoseconds, the control host's
	Plugpull string            `json:"plugpull"`
	Server   map[string]string `json:"server"`             // identity and settings as the server says them
	Bench    string            `json:"bench,omitempty"`    // run only
	Scenario string            `json:"scenario,omitempty"` // run only
}

func (o Outcome) String() string {
	return name(uint8(o), "acked", "refused", "unknown")
}

func (e End) String() string {
	return name(uint8(e), "stopped", "silence", "fin", "rst", "shutdown", "error", "refusals", "ledger")
}

func (m Mark) String() string {
	return name(uint8(m), "cycle", "cut commanded", "cut observed", "restored", "recovered", "verified", "epoch", "void")
}

func (c PinClass) String() string {
	return name(uint8(c), "present", "absent", "lost_tail", "lost_hole", "torn", "corrupt", "stale", "resurrected", "phantom", "unreadable")
}

func (k Kind) String() string {
	return name(uint8(k), "session", "stream", "reserve", "outcome", "skip", "end", "mark", "pin", "text")
}

func (s StreamKind) String() string {
	return name(uint8(s)+1, "database", "witness")
}

func (k TextKey) String() string {
	return name(uint8(k), "config", "session", "note")
}

// codes holds, by kind, the least and the greatest code. Never written to.
var codes = [...]struct{ min, max uint8 }{
	KindStream:  {uint8(DatabaseStream), uint8(WitnessStream)},
	KindOutcome: {uint8(Acked), uint8(Unknown)},
	KindEnd:     {uint8(EndStopped), uint8(EndLedger)},
	KindMark:    {uint8(MarkCycle), uint8(MarkVoid)},
	KindPin:     {uint8(PinPresent), uint8(PinUnreadable)},
	KindText:    {uint8(TextConfig), uint8(TextNote)},
}

// check reports what no writer may append and no reader may believe: kinds and
// codes that are not in the table, ranges that are none, fields that the kind
// cannot store. Both sides check, because a record that is believed wrongly
// accuses somebody.
func (r *Record) check() error {
	if r.Kind < KindSession || r.Kind > KindText {
		return fmt.Errorf("%w: unknown kind %d", ErrRecord, r.Kind)
	}
	if c := codes[r.Kind]; r.Code < c.min || r.Code > c.max {
		return fmt.Errorf("%w: unknown code %d of kind %v", ErrRecord, r.Code, r.Kind)
	}
	bad := false
	switch r.Kind {
	case KindReserve, KindSkip:
		bad = r.From < 1 || r.From > r.To
	case KindOutcome:
		bad = r.From < 1 || r.From != r.To
	case KindPin: // a phantom may have any number, also zero
		bad = r.From > r.To
	case KindText:
		return r.checkText()
	}
	if bad {
		return fmt.Errorf("%w: %v of %d..%d", ErrRecord, r.Kind, r.From, r.To)
	}
	if len(r.Text) != 0 {
		return fmt.Errorf("%w: %v with a text", ErrRecord, r.Kind)
	}
	return nil
}

func (r *Record) checkText() error {
	if len(r.Text) > MaxText {
		return fmt.Errorf("%w: a text of %d bytes, at most %d", ErrRecord, len(r.Text), MaxText)
	}
	if r.Stream != 0 || r.From|r.To != 0 || r.Sent|r.Answered != 0 || r.Errno|r.Cycle != 0 || r.Count != 0 {
		return fmt.Errorf("%w: a text has only code, session and text", ErrRecord)
	}
	return nil
}

func name(v uint8, names ...string) string {
	if v >= 1 && int(v) <= len(names) {
		return names[v-1]
	}
	return fmt.Sprintf("?%d", v)
}
