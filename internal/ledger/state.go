package ledger

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"plugpull/internal/clock"
	"plugpull/internal/workload"
)

// State sums up a ledger: what the next session has to know to continue it.
// Its size is bounded by the number of streams.
type State struct {
	Header  Header
	Config  Config
	End     LSN  // the position at which the ledger continues
	Dropped Tail // the torn tail that was left out

	Sessions uint64 // session records
	Session  uint32 // of the last session, zero when there is none
	Epoch    uint64 // the last that a session or a mark began
	Cycle    uint32 // the greatest

	// Reserved is, by stream, the last number that may have been sent. The
	// next session of the stream begins after it.
	Reserved map[workload.Stream]workload.Seq

	Acked, Refused, Unknown uint64 // outcomes as recorded; a reservation without an outcome is in none

	Info SessionInfo   // of the last session that has one
	Wall time.Time     // when the last session began, by the wall clock; zero when there is none
	Last clock.Instant // the latest instant of the boot Info.BootID
}

// Scan reads r to its end and sums it up, from where r stands, which has to
// be the beginning. It blocks on the file.
func Scan(r *Reader) (*State, error) {
	st := &State{Header: r.Header(), Config: r.Config(), Reserved: map[workload.Stream]workload.Seq{}}
	var rec Record
	var began clock.Instant // of the last session record
	for {
		at := r.Index()
		ok, err := r.Next(&rec)
		if err != nil {
			return nil, err
		}
		if !ok {
			st.End, st.Dropped = r.Index(), r.Dropped()
			return st, nil
		}
		switch {
		case rec.Kind == KindSession:
			// It may be of another boot: its text, which comes next, tells.
			began = rec.Sent
			st.session(&rec)
		case rec.Kind == KindText && TextKey(rec.Code) == TextSession:
			if err := st.info(&rec, began); err != nil {
				return nil, fmt.Errorf("ledger %s: record %d: %w", r.path, at, err)
			}
		default:
			st.add(&rec)
		}
	}
}

func (st *State) session(r *Record) {
	st.Sessions++
	st.Session = r.Session
	st.Epoch = r.Count
	st.Cycle = max(st.Cycle, r.Cycle)
	st.Wall = time.Unix(0, int64(r.From))
}

// info takes the session's text. Unknown keys are let pass: they describe, and
// decide nothing.
func (st *State) info(r *Record, began clock.Instant) error {
	var info SessionInfo
	if err := json.Unmarshal(r.Text, &info); err != nil {
		return fmt.Errorf("decode the session's text: %w", err)
	}
	if info.BootID != st.Info.BootID {
		st.Last = 0 // instants of two boots cannot be compared
	}
	st.Last = max(st.Last, began)
	st.Info = info
	return nil
}

func (st *State) add(r *Record) {
	st.Last = max(st.Last, r.Sent, r.Answered)
	st.Cycle = max(st.Cycle, r.Cycle)
	switch r.Kind {
	case KindReserve, KindSkip:
		st.reserve(r)
	case KindOutcome:
		st.reserve(r)
		switch Outcome(r.Code) {
		case Acked:
			st.Acked++
		case Refused:
			st.Refused++
		case Unknown:
			st.Unknown++
		}
	case KindMark:
		if Mark(r.Code) == MarkEpoch {
			st.Epoch = r.Count
		}
	}
}

func (st *State) reserve(r *Record) {
	if r.To > st.Reserved[r.Stream] {
		st.Reserved[r.Stream] = r.To
	}
}

// CheckClock compares the clocks of a session that is about to begin with the
// ledger's. It returns ErrClockWentBack when, in the same boot, CLOCK_BOOTTIME
// is behind an instant that was recorded: plugpull runs in another time namespace,
// or a virtual machine was restored, and no time in the ledger could be compared
// any more. wallBack is how far the wall clock is behind the last session's, zero
// when it is not: worth a warning, since nothing is measured with it.
func (st *State) CheckClock(boot uuid.UUID, now clock.Instant, wall time.Time) (wallBack time.Duration, err error) {
	if !st.Wall.IsZero() {
		wallBack = max(st.Wall.Sub(wall), 0)
	}
	if st.Info.BootID == boot.String() && now < st.Last {
		return wallBack, fmt.Errorf("boot %v: it is now %v after the boot, the ledger has an instant %v later (another time namespace or a restored virtual machine?): %w",
			boot, time.Duration(now), st.Last.Sub(now), ErrClockWentBack)
	}
	return wallBack, nil
}
