package probe

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat"
)

// The bootstrap of Compare.
const (
	resamples = 2000
	// leastIntervals is how many each run must have for a confidence: of fewer the spread is not known.
	leastIntervals = 10
)

// Comparison is how much faster one probe was than another.
type Comparison struct {
	Ratio float64 // of the rates, after to before
	// Low and High are a 95 % interval of the ratio, by a block bootstrap over the runs' intervals: it covers
	// what varied within these two runs, and not what would differ between one run and the next. Both are zero where
	// the runs are too short to say.
	Low, High float64
	// Notes are what else differs between the two, and what the comparison therefore does not show.
	Notes []string
}

// Known reports whether there is a confidence interval.
func (c *Comparison) Known() bool { return c.High > 0 }

// Compare compares a probe with an earlier one, such as the same with the write cache off. An error: one of them
// measured nothing. The same results give the same comparison.
func Compare(before, after *Result) (*Comparison, error) {
	a, b := before.Rate(), after.Rate()
	if a <= 0 || b <= 0 {
		return nil, errors.New("compare: a probe without a commit has no rate")
	}
	c := &Comparison{Ratio: b / a, Notes: differences(before, after)}
	if len(before.Intervals) < leastIntervals || len(after.Intervals) < leastIntervals {
		return c, nil
	}
	rng := rand.New(rand.NewPCG(before.Commits, after.Commits))
	ratios := make([]float64, 0, resamples)
	for range resamples {
		x, y := resampled(rng, before.Intervals), resampled(rng, after.Intervals)
		if x <= 0 || y <= 0 {
			return c, nil // it stood still for most of the time
		}
		ratios = append(ratios, y/x)
	}
	slices.Sort(ratios)
	c.Low = stat.Quantile(0.025, stat.Empirical, ratios, nil)
	c.High = stat.Quantile(0.975, stat.Empirical, ratios, nil)
	return c, nil
}

// resampled returns the rate of as many intervals, drawn in blocks with replacement: what is slow at one
// moment is often slow at the next, and single intervals would hide that.
func resampled(rng *rand.Rand, in []Interval) float64 {
	n := len(in)
	block := max(1, int(math.Round(math.Cbrt(float64(n)))))
	var sum Interval
	for got := 0; got < n; {
		start := rng.IntN(n)
		for k := 0; k < block && got < n; k, got = k+1, got+1 {
			i := in[(start+k)%n]
			sum.Seconds += i.Seconds
			sum.Commits += i.Commits
		}
	}
	return sum.Rate()
}

// differences lists what besides the rate is not the same.
func differences(before, after *Result) []string {
	var notes []string
	if before.Kind != after.Kind {
		notes = append(notes, fmt.Sprintf("the baseline ran as %s and this as %s", before.Kind, after.Kind))
	}
	if before.Where != after.Where {
		notes = append(notes, fmt.Sprintf("the baseline is of %s", before.Where))
	}
	if before.InMemory != after.InMemory {
		notes = append(notes, "one of the two lies in memory")
	}
	if before.Settings == nil || after.Settings == nil {
		return notes
	}
	names := maps.Clone(before.Settings)
	maps.Copy(names, after.Settings)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if x, y := before.Settings[name], after.Settings[name]; x != y {
			notes = append(notes, fmt.Sprintf("%s was %q and is %q", name, x, y))
		}
	}
	return notes
}

// Text says it in a sentence, without a full stop.
func (c *Comparison) Text() string {
	text := ""
	between := fmt.Sprintf("%s to %s with 95 %% confidence, from what varied within the two runs", times(c.Low), times(c.High))
	switch {
	case !c.Known():
		text = fmt.Sprintf("%s times as fast as the baseline, by two runs too short to say how sure that is: let each last 10 s", times(c.Ratio))
	case c.Low <= 1 && c.High >= 1:
		text = fmt.Sprintf("no difference from the baseline that these runs can show: %s times as fast (%s)", times(c.Ratio), between)
	default:
		text = fmt.Sprintf("%s times as fast as the baseline (%s)", times(c.Ratio), between)
	}
	if len(c.Notes) > 0 {
		text += "; beside the rate this differs, too: " + strings.Join(c.Notes, "; ")
	}
	return text
}

// times writes a ratio with as many digits as it bears.
func times(v float64) string {
	if v < 1 {
		return fmt.Sprintf("%.2g", v)
	}
	return threeDigits(v)
}
