package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"plugpull/verifier"
)

// WriteTable writes a row a run. The column attribution is there when a witness could tell.
func WriteTable(w io.Writer, runs []*Run) error {
	stacked := slices.ContainsFunc(runs, func(r *Run) bool { return r.Stack != "" })
	attributed := slices.ContainsFunc(runs, func(r *Run) bool { return r.Witness != nil })
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	head := "scenario\tcuts counted\tacked\tcommits/s\tlost\tother\tloss window\tverdict\texpected\t"
	if stacked {
		head = strings.Replace(head, "\t", "\tstack\t", 1)
	}
	if attributed {
		head += "attribution\t"
	}
	fmt.Fprintln(t, head)
	for _, r := range runs {
		fmt.Fprintln(t, r.row(stacked, attributed))
	}
	return t.Flush()
}

func (r *Run) row(stacked, attributed bool) string {
	verdict, expected, by := r.Verdict, r.Expected, ""
	if r.Reason != "" && r.Verdict == verifier.Inconclusive.String() {
		verdict += " (" + string(r.Reason) + ")"
	}
	if !r.AsExpected() {
		expected += "  <- not as expected"
	}
	if attributed {
		by = cmp.Or(r.Attribution, "-") + "\t"
	}
	name := r.Scenario
	if stacked {
		name += "\t" + cmp.Or(r.Stack, "-")
	}
	return fmt.Sprintf("%s\t%d of %d\t%d\t%.0f\t%d\t%d\t%s\t%s\t%s\t%s", name, r.Cycles.Counted, r.Cycles.Planned,
		r.Commits.Acked, r.Commits.PerSecond, r.Findings.Lost(), r.Findings.Other(), window(r.LossWindowMS), verdict, expected, by)
}

func window(ms float64) string {
	if ms == 0 {
		return "-"
	}
	return Duration(time.Duration(ms * float64(time.Millisecond)))
}

// Duration prints a duration to about three digits.
func Duration(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(100 * time.Microsecond).String()
	case d < time.Minute:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// WriteFindings writes the examples of one verification, a line each.
func WriteFindings(w io.Writer, res *verifier.Result) error {
	if res == nil {
		return nil
	}
	return WriteExamples(w, res.Counts, res.Findings, res.Unreadable)
}

// WriteExamples writes examples of findings, a line each, and how many commits they leave out.
func WriteExamples(w io.Writer, counts verifier.Counts, findings []verifier.Finding, unreadable []string) error {
	for _, u := range unreadable {
		if _, err := fmt.Fprintln(w, "  unreadable: "+u); err != nil {
			return err
		}
	}
	shown := map[verifier.Class]uint64{}
	for _, f := range findings {
		shown[f.Class] += f.Commits()
		if _, err := fmt.Fprintln(w, "  "+FindingLine(f)); err != nil {
			return err
		}
	}
	if n := counts.Total() - sum(shown); n > 0 {
		_, err := fmt.Fprintf(w, "  … and %d more commits\n", n)
		return err
	}
	return nil
}

func sum(m map[verifier.Class]uint64) (n uint64) {
	for _, v := range m {
		n += v
	}
	return n
}

// FindingLine says one finding in a line.
func FindingLine(f verifier.Finding) string {
	s := fmt.Sprintf("%s: stream %d, commit %d", f.Class, f.Stream, f.From)
	if f.To > f.From {
		s = fmt.Sprintf("%s: stream %d, commits %d to %d (%d)", f.Class, f.Stream, f.From, f.To, f.Commits())
	}
	if f.Session > 0 {
		s += fmt.Sprintf(" of session %d", f.Session)
	}
	if f.Acked > 0 {
		s += fmt.Sprintf(", acknowledged at %s, %s before the last acknowledgement", f.At.Format("2006-01-02 15:04:05.000"), Duration(f.BeforeLast))
	} else {
		s += ", never acknowledged"
	}
	return s
}
