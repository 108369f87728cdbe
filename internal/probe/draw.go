package probe

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
)

// Style of what is drawn.
type Style struct {
	ASCII bool // nothing but ASCII, for terminals and logs that show no blocks
	Width int  // of the longest bar and of the course of the rate, in columns; zero: 40
}

func (s Style) width() int {
	if s.Width <= 0 {
		return 40
	}
	return min(s.Width, 500)
}

// Draw writes a result for a person: the rate, the latencies' percentiles and histogram, and the rate's course. It ends
// with a new line.
func Draw(w io.Writer, r *Result, s Style) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s\n", r.Where, bracketed(r.Version))
	fmt.Fprintf(&b, "commits: %s in %s, one client%s: %s commits/s\n", grouped(r.Commits), span(r.Took, s), where(r.Kind), rateText(r.Rate()))
	if r.Commits > 0 {
		fmt.Fprintf(&b, "latency of a commit: %s\n", r.percentileText(s))
		b.WriteByte('\n')
		r.histogram(&b, s)
		r.course(&b, s)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func bracketed(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}

func where(k Kind) string {
	if k == KindInServer {
		return " inside the server"
	}
	return ""
}

func (r *Result) percentileText(s Style) string {
	var parts []string
	for _, p := range percentiles {
		name := strconv.FormatFloat(p, 'f', -1, 64) + "% "
		if p == 100 {
			name = "slowest "
		}
		parts = append(parts, name+span(r.Latency(p), s))
	}
	return strings.Join(parts, ", ")
}

// bucket is a row of the histogram: latencies above the row before and up to most.
type bucket struct {
	most  time.Duration
	count uint64
}

// buckets sorts the latencies into buckets that end at 1, 2 and 5 of each decade, from the first that holds
// one to the last.
func (r *Result) buckets() []bucket {
	bars := r.hist.Distribution()
	var out []bucket
	i := 0
	for most := range oneTwoFive(int64(time.Microsecond)) {
		n := uint64(0)
		for ; i < len(bars) && bars[i].From <= most; i++ {
			n += uint64(bars[i].Count)
		}
		if n > 0 || len(out) > 0 {
			out = append(out, bucket{time.Duration(most), n})
		}
		if i == len(bars) {
			break
		}
	}
	for len(out) > 0 && out[len(out)-1].count == 0 {
		out = out[:len(out)-1]
	}
	return out
}

// oneTwoFive yields 1, 2, 5, 10, 20 … times least.
func oneTwoFive(least int64) func(yield func(int64) bool) {
	return func(yield func(int64) bool) {
		for v := least; v < math.MaxInt64/10; v *= 10 {
			if !yield(v) || !yield(2*v) || !yield(5*v) {
				return
			}
		}
	}
}

func (r *Result) histogram(b *strings.Builder, s Style) {
	rows := r.buckets()
	most := uint64(0)
	for _, row := range rows {
		most = max(most, row.count)
	}
	fmt.Fprintf(b, "%8s  %-*s %7s %11s\n", "up to", s.width(), "", "share", "commits")
	for _, row := range rows {
		share := 100 * float64(row.count) / float64(r.Commits)
		fmt.Fprintf(b, "%8s  %s %6.2f%% %11s\n", span(row.most, s), bar(float64(row.count)/float64(most), s), share, grouped(row.count))
	}
}

// bar draws a part of the width; what is not nothing is seen.
func bar(part float64, s Style) string {
	if s.ASCII {
		n := int(math.Round(part * float64(s.width())))
		if n == 0 && part > 0 {
			return "." + strings.Repeat(" ", s.width()-1)
		}
		return strings.Repeat("#", n) + strings.Repeat(" ", s.width()-n)
	}
	eighths := int(math.Round(part * float64(s.width()) * 8))
	if part > 0 {
		eighths = max(eighths, 1)
	}
	text, columns := strings.Repeat("█", eighths/8), eighths/8
	if eighths%8 > 0 {
		text, columns = text+string([]rune("▏▎▍▌▋▊▉")[eighths%8-1]), columns+1
	}
	return text + strings.Repeat(" ", s.width()-columns)
}

// course draws the rate over time; nothing for a single interval.
func (r *Result) course(b *strings.Builder, s Style) {
	in := r.Intervals
	for len(in) > s.width() {
		in = joined(in)
	}
	if len(in) < 2 {
		return
	}
	least, most := math.Inf(1), 0.0
	for _, i := range in {
		least, most = min(least, i.Rate()), max(most, i.Rate())
	}
	steps := []rune("▁▂▃▄▅▆▇█")
	if s.ASCII {
		steps = []rune("0123456789")
	}
	b.WriteString("\nover time  ")
	for _, i := range in {
		level := 0
		if most > 0 {
			level = int(math.Round(i.Rate() / most * float64(len(steps)-1)))
		}
		b.WriteRune(steps[level])
	}
	fmt.Fprintf(b, "  %s to %s commits/s\n", rateText(least), rateText(most))
}

// span writes a time with three digits.
func span(d time.Duration, s Style) string {
	unit, name := time.Second, "s"
	switch {
	case d < time.Millisecond:
		unit, name = time.Microsecond, "µs"
		if s.ASCII {
			name = "us"
		}
	case d < time.Second:
		unit, name = time.Millisecond, "ms"
	}
	return threeDigits(float64(d)/float64(unit)) + " " + name
}

// threeDigits writes a number with three digits where it has a fraction worth showing.
func threeDigits(v float64) string {
	switch {
	case v == math.Trunc(v) || v >= 99.95:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

func rateText(v float64) string {
	if v >= 99.95 {
		return grouped(uint64(math.Round(v)))
	}
	return threeDigits(v)
}

// grouped writes a number with its thousands apart.
func grouped(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
