package simdrive

import (
	"hash/crc32"
	"time"
)

// Log says what a drive keeps of what is done to it.
type Log string

// What can be kept.
const (
	LogNothing Log = ""
	LogAll     Log = "all"   // every entry since New, with a copy of every byte written
	LogHeads   Log = "heads" // the entries of the last two power-ons, with checksums in place of data
)

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
	Data       []byte // not to be changed; nil with LogHeads
	Sum        uint32 // CRC-32C of what was written, with LogHeads
	Of         int    // index of an entry
	Text       string
}

// Mark puts a text into the log, if there is one.
func (d *Drive) Mark(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.note(Entry{Kind: EntryMark, Text: text})
}

// Entries returns the log; nil without one.
func (d *Drive) Entries() []Entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]Entry(nil), d.log...)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// note appends to the log and returns the index.
func (d *Drive) note(e Entry) int {
	if d.cfg.Log == LogNothing {
		return -1
	}
	e.At, e.Generation = d.clock.Now(), d.generation
	if e.Data != nil {
		e.Len = int64(len(e.Data))
		if d.cfg.Log == LogHeads {
			e.Sum, e.Data = crc32.Checksum(e.Data, castagnoli), nil
		} else {
			e.Data = append([]byte(nil), e.Data...)
		}
	}
	d.log = append(d.log, e)
	return len(d.log) - 1
}

// trimLog forgets the entries before the last power-on, as LogHeads asks for.
func (d *Drive) trimLog() {
	if d.cfg.Log != LogHeads {
		return
	}
	keep := 0
	for i, e := range d.log {
		if e.Kind == EntryPowerOn {
			keep = i
		}
	}
	n := copy(d.log, d.log[keep:])
	clear(d.log[n:])
	d.log = d.log[:n]
	for i := range d.log {
		if d.log[i].Kind == EntryFlushDone {
			d.log[i].Of -= keep
		}
	}
}
