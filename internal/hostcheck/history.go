package hostcheck

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"gonum.org/v1/gonum/stat"
)

// Reading is what a backup unit of a controller said of its wear at one time.
type Reading struct {
	At time.Time `json:"at"`
	// Unit tells backup units apart: a serial number, or the controller's and its kind.
	Unit string `json:"unit"`
	// CapacityPercent is full-charge capacity over design capacity. It moves at a learn cycle; the charge of
	// the moment says nothing.
	CapacityPercent float64 `json:"capacity_percent"`
}

// Remember appends readings to a file, one JSON object a line, and returns all that are in it, the oldest
// first. A reading that repeats the newest of its unit within a day is not written. A last line that was torn by a
// crash is dropped; any other line that is none is an error which names it. Processes may do so at the same time.
func Remember(path string, now []Reading) ([]Reading, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, fmt.Errorf("history: lock %s: %w", path, err)
	}
	all, good, err := readHistory(f, path)
	if err != nil {
		return nil, err
	}
	var b []byte
	for _, r := range now {
		if repeats(all, r) {
			continue
		}
		line, err := json.Marshal(r)
		if err != nil {
			return nil, fmt.Errorf("history: %w", err)
		}
		b = append(append(b, line...), '\n')
		all = append(all, r)
	}
	if len(b) > 0 {
		if err := f.Truncate(good); err != nil {
			return nil, fmt.Errorf("history: %w", err)
		}
		if _, err := f.WriteAt(b, good); err != nil {
			return nil, fmt.Errorf("history: %w", err)
		}
		if err := f.Sync(); err != nil {
			return nil, fmt.Errorf("history: %w", err)
		}
	}
	slices.SortStableFunc(all, func(a, b Reading) int { return a.At.Compare(b.At) })
	return all, nil
}

// ReadHistory returns what Remember has kept, nothing of a file that is not there.
func ReadHistory(path string) ([]Reading, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	defer f.Close()
	all, _, err := readHistory(f, path)
	return all, err
}

// readHistory also returns where the last whole line ends.
func readHistory(f *os.File, path string) (all []Reading, good int64, err error) {
	in := bufio.NewReader(f)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if err != nil && ours(line) { // the end, or a torn line before it
			return all, good, nil
		}
		var r Reading
		if err != nil || json.Unmarshal(line, &r) != nil || r.Unit == "" || r.At.IsZero() || !possible(r.CapacityPercent) {
			return nil, 0, fmt.Errorf("history: %s:%d: no reading of plugpull check: remove the line, or name another file", path, n)
		}
		all, good = append(all, r), good+int64(len(line))
	}
}

// ours reports whether the beginning of a line may be that of a reading: a file of somebody else's keeps its last line.
func ours(line []byte) bool {
	const begins = `{"at":"`
	n := min(len(line), len(begins))
	return string(line[:n]) == begins[:n]
}

func possible(percent float64) bool { return percent >= 0 && percent <= 150 && !math.IsNaN(percent) }

func repeats(all []Reading, r Reading) bool {
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].Unit == r.Unit {
			return all[i].CapacityPercent == r.CapacityPercent && r.At.Sub(all[i].At) < 24*time.Hour
		}
	}
	return false
}

// Prediction says when a backup unit's capacity reaches the limit at which its controller gives it up.
type Prediction struct {
	Unit string `json:"unit"`
	// Date is the likely day, Earliest and Latest what the readings leave open (two standard errors of the
	// slope; Latest is zero where they do not exclude that it holds for ever).
	Date, Earliest, Latest time.Time
	// PerYear is the loss in points of per cent a year.
	PerYear float64
	// Now is the newest capacity, Over the time that the readings span.
	Now  float64
	Over time.Duration
}

// Predict extrapolates the capacity of each unit to limit, in per cent, by a straight line through its
// learn cycles. It is silent about a unit with fewer than three cycles, with less than 60 days between the
// first and the last, without a loss, or whose end is further away than ten years: too little is known then.
func Predict(all []Reading, limit float64) []Prediction {
	units := map[string][]Reading{}
	for _, r := range all {
		units[r.Unit] = append(units[r.Unit], r)
	}
	var out []Prediction
	for unit, list := range units {
		slices.SortStableFunc(list, func(a, b Reading) int { return a.At.Compare(b.At) })
		if p, ok := predict(unit, cycles(list), limit); ok {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b Prediction) int { return a.Date.Compare(b.Date) })
	return out
}

// cycles keeps the first reading of each run of equal ones, a learn cycle, and the newest of all. A unit that was
// replaced, whose capacity rises by 10 points or more, begins anew.
func cycles(list []Reading) []Reading {
	var out []Reading
	for _, r := range list {
		switch {
		case len(out) == 0:
		case r.CapacityPercent >= out[len(out)-1].CapacityPercent+10:
			out = nil
		case r.CapacityPercent == out[len(out)-1].CapacityPercent:
			continue
		}
		out = append(out, r)
	}
	if last := list[len(list)-1]; len(out) > 0 && out[len(out)-1].At != last.At {
		out = append(out, last)
	}
	return out
}

const (
	leastCycles = 3
	leastSpan   = 60 * 24 * time.Hour
	mostAhead   = 10 * 365 * 24 * time.Hour
)

func predict(unit string, list []Reading, limit float64) (Prediction, bool) {
	if len(list) < leastCycles {
		return Prediction{}, false
	}
	first, last := list[0], list[len(list)-1]
	over := last.At.Sub(first.At)
	if over < leastSpan {
		return Prediction{}, false
	}
	x, y := make([]float64, len(list)), make([]float64, len(list))
	for i, r := range list {
		x[i], y[i] = r.At.Sub(first.At).Hours()/24, r.CapacityPercent
	}
	base, slope := stat.LinearRegression(x, y, nil, false)
	if slope >= 0 {
		return Prediction{}, false
	}
	at := func(slope float64) (time.Time, bool) { // by a line through the readings' middle
		mx, my := stat.Mean(x, nil), stat.Mean(y, nil)
		days := mx + (limit-my)/slope
		if slope >= 0 || days > mostAhead.Hours()/24 {
			return time.Time{}, false
		}
		return first.At.Add(time.Duration(days * 24 * float64(time.Hour))), true
	}
	date, ok := at(slope)
	if !ok {
		return Prediction{}, false
	}
	e := standardError(x, y, base, slope)
	p := Prediction{Unit: unit, Date: date, PerYear: -slope * 365, Now: last.CapacityPercent, Over: over}
	p.Earliest, _ = at(slope - 2*e)
	p.Latest, _ = at(slope + 2*e)
	return p, true
}

// standardError is that of a regression's slope.
func standardError(x, y []float64, base, slope float64) float64 {
	var rest, spread float64
	mean := stat.Mean(x, nil)
	for i := range x {
		d := y[i] - base - slope*x[i]
		rest += d * d
		spread += (x[i] - mean) * (x[i] - mean)
	}
	if len(x) <= 2 || spread == 0 {
		return 0
	}
	return math.Sqrt(rest / float64(len(x)-2) / spread)
}

// Finding puts a prediction into words.
func (p Prediction) Finding(limit float64) Finding {
	if p.Now <= limit {
		return Finding{Warning, "cache_capacity_low", fmt.Sprintf(
			"the capacity of what backs the cache behind %s has fallen to %.0f %% of the design (limit %.0f %%): its controller may turn the cache off any day; replace it",
			p.Unit, p.Now, limit)}
	}
	day := func(t time.Time) string { return t.Format(time.DateOnly) }
	text := fmt.Sprintf("the cache behind %s is likely to turn itself off around %s: its capacity is %.0f %% of the design and falls by %.1f points a year (limit %.0f %%)",
		p.Unit, day(p.Date), p.Now, p.PerYear, limit)
	switch {
	case p.Latest.IsZero():
		text += fmt.Sprintf("; not before %s by these readings, which are too few to say more", day(p.Earliest))
	case day(p.Earliest) != day(p.Latest):
		text += fmt.Sprintf("; between %s and %s by these readings", day(p.Earliest), day(p.Latest))
	}
	return Finding{Warning, "cache_end_predicted", text + ": plan a replacement"}
}
