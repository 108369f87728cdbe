package report

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// plotWidth is the longest bar, in characters.
const plotWidth = 40

// WritePlot draws the loss windows as bars on a logarithmic scale from 0.1 ms; nothing
// where no run has one.
func WritePlot(w io.Writer, runs []*Run) error {
	longest, name := 0.0, 0
	for _, r := range runs {
		if r.LossWindowMS > 0 {
			longest, name = max(longest, r.LossWindowMS), max(name, len(r.Scenario))
		}
	}
	if longest == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w, "loss window (the longest of each run's cuts; logarithmic)"); err != nil {
		return err
	}
	scale := func(ms float64) float64 { return math.Log10(1 + ms/0.1) }
	for _, r := range runs {
		if r.LossWindowMS == 0 {
			continue
		}
		bar := max(1, int(math.Round(plotWidth*scale(r.LossWindowMS)/scale(longest))))
		if _, err := fmt.Fprintf(w, "  %-*s %s %s\n", name, r.Scenario, strings.Repeat("█", bar), window(r.LossWindowMS)); err != nil {
			return err
		}
	}
	return nil
}
