package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"plugpull/client"
	"plugpull/internal/ledger"
)

// statusLine is a line that is written over itself on a terminal, and one after
// the other elsewhere.
type statusLine struct {
	w     io.Writer
	tty   bool
	width int
	shown bool
}

func newStatusLine(w io.Writer) *statusLine {
	l := &statusLine{w: w}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		l.tty = true
		if width, _, err := term.GetSize(int(f.Fd())); err == nil {
			l.width = width
		}
	}
	return l
}

// every is how often to show something.
func (l *statusLine) every() time.Duration {
	if l.tty {
		return 500 * time.Millisecond
	}
	return 5 * time.Second
}

func (l *statusLine) show(s string) {
	if !l.tty {
		fmt.Fprintln(l.w, s)
		return
	}
	if r := []rune(s); l.width > 1 && len(r) >= l.width {
		s = string(r[:l.width-1])
	}
	fmt.Fprint(l.w, "\r\x1b[K"+s)
	l.shown = true
}

// end leaves the last line standing.
func (l *statusLine) end() {
	if l.shown {
		fmt.Fprintln(l.w)
	}
	l.shown = false
}

func streamLine(st *client.Stats) string {
	return fmt.Sprintf("%s  %d of %d streams  %d acked  %.0f/s  p50 %v p99 %v  refused %d unknown %d  last %s",
		clockText(st.Elapsed), st.Running, len(st.Streams), st.Acked, st.PerSecond(),
		st.P50, st.P99, st.Refused, st.Unknown, lastAcked(st))
}

func clockText(d time.Duration) string {
	s := int(d.Seconds())
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}

// lastAcked lists the streams' last acknowledged numbers, or their span where they are many.
func lastAcked(st *client.Stats) string {
	if len(st.Streams) > 12 {
		least, most := st.Streams[0].LastAcked, st.Streams[0].LastAcked
		for _, s := range st.Streams {
			least, most = min(least, s.LastAcked), max(most, s.LastAcked)
		}
		return fmt.Sprintf("%d to %d on %d streams", least, most, len(st.Streams))
	}
	parts := make([]string, len(st.Streams))
	for i, s := range st.Streams {
		parts[i] = fmt.Sprintf("%d:%d", s.Stream, s.LastAcked)
	}
	return strings.Join(parts, " ")
}

func endsText(ends map[ledger.End]int) string {
	if len(ends) == 0 {
		return "none recorded"
	}
	var parts []string
	for _, e := range slices.Sorted(maps.Keys(ends)) {
		parts = append(parts, fmt.Sprintf("%d by %s", ends[e], e))
	}
	return strings.Join(parts, ", ")
}
