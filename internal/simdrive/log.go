package simdrive

import "time"

// EntryKind says what an Entry records.
type EntryKind string

// The kinds of log entries.
const (
	EntryPowerOn   EntryKind = "power-on"
	EntryWrite     EntryKind = "write"      // a completed write; Data is what it wrote
	EntryFUA       EntryKind = "fua"        // a completed FUA write
	EntryDiscard   EntryKind = "discard"    // a completed discard of Len bytes
	EntryFlush     EntryKind = "flush"      // a flush arrived: it covers all writes above
	EntryFlushDone EntryKind = "flush-done" // the flush that arrived as entry Of was acknowledged
	EntryInFlight  EntryKind = "in-flight"  // a write that the cut caught
	EntryCut       EntryKind = "cut"
	EntryMark      EntryKind = "mark" // Text is the caller's
)

// Entry is one line of the log. The order is that in which things took effect.
type Entry struct {
	At         time.Duration
	Generation uint64
	Kind       EntryKind
	Off, Len   int64  // of a write or discard, in bytes
	Data       []byte // not to be changed
	Of         int    // index of an entry
	Text       string
}

// Mark puts a text into the log, if there is one.
func (d *Drive) Mark(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.note(Entry{Kind: EntryMark, Text: text})
}

// Entries returns the log since New; nil unless Config.Log. It holds a copy of
// all that was ever written.
func (d *Drive) Entries() []Entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]Entry(nil), d.log...)
}

// note appends to the log and returns the index.
func (d *Drive) note(e Entry) int {
	if !d.cfg.Log {
		return -1
	}
	e.At, e.Generation = d.clock.Now(), d.generation
	if e.Data != nil {
		e.Len = int64(len(e.Data))
		e.Data = append([]byte(nil), e.Data...)
	}
	d.log = append(d.log, e)
	return len(d.log) - 1
}
