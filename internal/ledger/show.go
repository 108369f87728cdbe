package ledger

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"plugpull/internal/clock"
)

// Show writes the ledger as text: the header in lines that begin with #, a line a
// record from where r stands, and a sentence about a torn tail. Times are
// relative to the beginning of their session; before the first session, and where
// the control host was booted since, to its boot. What was read before an
// error has been written.
func Show(w io.Writer, r *Reader) error {
	out := bufio.NewWriterSize(w, 64<<10)
	err := show(out, r)
	if ferr := out.Flush(); err == nil && ferr != nil {
		err = fmt.Errorf("write the ledger's text: %w", ferr)
	}
	return err
}

func show(out *bufio.Writer, r *Reader) error {
	cfg, err := json.Marshal(r.Config())
	if err != nil {
		return fmt.Errorf("encode the configuration: %w", err)
	}
	h := r.Header()
	fmt.Fprintf(out, "# plugpull ledger, version %d\n# run    %v\n# boot   %v\n# config %s\n", version, h.Run, h.Boot, printable(cfg))
	fmt.Fprintf(out, "# %8s %17s  %-8s %6s\n", "record", "time", "kind", "stream")

	var rec Record
	var began clock.Instant
	var line []byte
	for {
		at := r.Index()
		ok, err := r.Next(&rec)
		if err != nil {
			return err
		}
		if !ok {
			if tail := r.Dropped().String(); tail != "" {
				fmt.Fprintf(out, "# %s\n", tail)
			}
			return nil
		}
		if rec.Kind == KindSession {
			began = rec.Sent
		}
		line = appendLine(line[:0], at, &rec, began)
		if _, err := out.Write(line); err != nil {
			return fmt.Errorf("write the ledger's text: %w", err)
		}
	}
}

func appendLine(dst []byte, at LSN, r *Record, began clock.Instant) []byte {
	stream := ""
	if r.Stream != 0 {
		stream = strconv.Itoa(int(r.Stream))
	}
	instant := r.Answered
	if instant == 0 {
		instant = r.Sent
	}
	dst = fmt.Appendf(dst, "%10d %17s  %-8v %6s  ", at, since(instant, began), r.Kind, stream)
	return append(appendDetail(dst, r), '\n')
}

// since prints an instant relative to began, or to the boot.
func since(t, began clock.Instant) string {
	switch {
	case t == 0:
		return ""
	case began == 0 || t < began:
		return fmt.Sprintf("boot+%.6fs", time.Duration(t).Seconds())
	}
	return fmt.Sprintf("+%.6fs", t.Sub(began).Seconds())
}

func appendDetail(dst []byte, r *Record) []byte {
	switch r.Kind {
	case KindSession:
		wall := time.Unix(0, int64(r.From)).UTC().Format("2006-01-02T15:04:05.000000000Z07:00")
		return fmt.Appendf(dst, "%d  %s  cycle %d  epoch %d  token %d", r.Session, wall, r.Cycle, r.Count, uint64(r.To))
	case KindStream:
		return fmt.Appendf(dst, "%v  from %d  connection %d", StreamKind(r.Code), r.From, uint64(r.To))
	case KindReserve, KindSkip:
		return fmt.Appendf(dst, "%d..%d", r.From, r.To)
	case KindOutcome:
		dst = fmt.Appendf(dst, "%-10d %-8v", r.From, Outcome(r.Code))
		if r.Sent == 0 {
			dst = append(dst, "not sent"...)
		} else if r.Answered != 0 {
			dst = fmt.Appendf(dst, "after %.3f ms", r.Answered.Sub(r.Sent).Seconds()*1e3)
		}
		return appendErrno(dst, r)
	case KindEnd:
		dst = fmt.Appendf(dst, "%v  last sent %d", End(r.Code), r.From)
		return appendErrno(dst, r)
	case KindMark:
		dst = fmt.Appendf(dst, "%v  session %d  cycle %d", Mark(r.Code), r.Session, r.Cycle)
		if r.Count != 0 {
			dst = fmt.Appendf(dst, "  count %d", r.Count)
		}
		return dst
	case KindPin:
		return fmt.Appendf(dst, "%v  %d..%d  session %d  cycle %d  charged %d", PinClass(r.Code), r.From, r.To, r.Session, r.Cycle, r.Count)
	case KindText:
		return fmt.Appendf(dst, "%v  session %d  %s", TextKey(r.Code), r.Session, printable(r.Text))
	}
	return dst
}

func appendErrno(dst []byte, r *Record) []byte {
	if r.Errno == 0 {
		return dst
	}
	return fmt.Appendf(dst, "  error %d", r.Errno)
}

// printable quotes a text that would break the line or drive a terminal: it may
// hold what a server said.
func printable(text []byte) string {
	s := string(text)
	if !utf8.ValidString(s) {
		return strconv.Quote(s)
	}
	for _, c := range s {
		if !unicode.IsPrint(c) {
			return strconv.Quote(s)
		}
	}
	return s
}
