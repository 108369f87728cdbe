package probe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// resultSchema is the version of the JSON form.
const resultSchema = 1

// MaxResult bounds the JSON form of a result, in bytes.
const MaxResult = 1 << 20

// Kind is where the loop of commits ran.
type Kind string

// The kinds.
const (
	KindClient   Kind = "client"    // in this process, over a connection to a server
	KindInServer Kind = "in_server" // in the server, as a stored procedure
	KindFolder   Kind = "folder"    // in this process, to a file
)

// Result is what a probe measured.
type Result struct {
	Kind    Kind
	Where   string // DSN without the password, or folder
	Version string // of the server; of a folder the filesystem's type, where it is one in memory
	Began   time.Time
	// Took is the time in which the commits were made: of the loop alone, also in the server.
	Took        time.Duration
	Commits     uint64
	Interrupted bool // it was stopped before its time
	Intervals   []Interval
	// Settings are the server's variables that were read at the beginning; nil for a folder.
	Settings map[string]string
	// InMemory: the folder lies in memory, where a flush does nothing.
	InMemory bool

	hist *hdrhistogram.Histogram // nanoseconds; nil only in the zero value
}

// Rate is commits a second.
func (r *Result) Rate() float64 {
	if r.Took <= 0 {
		return 0
	}
	return float64(r.Commits) / r.Took.Seconds()
}

// Latency returns the time within which a part of the commits was answered, 0 < percent ≤ 100: exact to a
// part in a thousand. Zero where there was no commit.
func (r *Result) Latency(percent float64) time.Duration {
	if r.hist == nil || r.hist.TotalCount() == 0 {
		return 0
	}
	return time.Duration(r.hist.ValueAtQuantile(percent))
}

// Mean is the mean latency, zero where there was no commit.
func (r *Result) Mean() time.Duration {
	if r.hist == nil || r.hist.TotalCount() == 0 {
		return 0
	}
	return time.Duration(r.hist.Mean())
}

// percentiles are those that are written and drawn.
var percentiles = [...]float64{50, 90, 99, 99.9, 100}

type jsonPercentile struct {
	Percent      float64 `json:"percent"`
	Microseconds float64 `json:"microseconds"`
}

type jsonResult struct {
	Schema      int               `json:"schema"`
	Kind        Kind              `json:"kind"`
	Where       string            `json:"where"`
	Version     string            `json:"version,omitempty"`
	Began       time.Time         `json:"began"`
	Seconds     float64           `json:"seconds"`
	Commits     uint64            `json:"commits"`
	Rate        float64           `json:"commits_per_second"`
	Interrupted bool              `json:"interrupted,omitempty"`
	InMemory    bool              `json:"in_memory,omitempty"`
	Latency     []jsonPercentile  `json:"latency"`
	Intervals   []Interval        `json:"intervals"`
	Settings    map[string]string `json:"settings,omitempty"`
	// Histogram is the HdrHistogram of nanoseconds in its own compressed form, base64, which its tools read.
	Histogram string `json:"hdr_histogram"`
}

// MarshalJSON writes the result as UnmarshalJSON reads it, with the rate and percentiles for others to read.
func (r Result) MarshalJSON() ([]byte, error) {
	if r.hist == nil {
		return nil, errors.New("a result without a measurement")
	}
	h, err := r.hist.EncodeV2()
	if err != nil {
		return nil, fmt.Errorf("encode the histogram: %w", err)
	}
	j := jsonResult{Schema: resultSchema, Kind: r.Kind, Where: r.Where, Version: r.Version, Began: r.Began, Seconds: r.Took.Seconds(), Commits: r.Commits,
		Rate: r.Rate(), Interrupted: r.Interrupted, InMemory: r.InMemory, Intervals: r.Intervals, Settings: r.Settings, Histogram: string(h)}
	for _, p := range percentiles {
		j.Latency = append(j.Latency, jsonPercentile{p, float64(r.Latency(p).Nanoseconds()) / 1e3})
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads what MarshalJSON wrote, and refuses what cannot have been measured.
func (r *Result) UnmarshalJSON(b []byte) error {
	var j jsonResult
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	if j.Schema != resultSchema {
		return fmt.Errorf("schema %d, and this plugpull reads %d", j.Schema, resultSchema)
	}
	if j.Kind != KindClient && j.Kind != KindInServer && j.Kind != KindFolder {
		return fmt.Errorf("unknown kind %q", j.Kind)
	}
	if !(j.Seconds >= 0 && j.Seconds < 1e7) || len(j.Intervals) > mostIntervals+1 {
		return errors.New("impossible time")
	}
	sum, seconds := uint64(0), 0.0
	for _, i := range j.Intervals {
		if !(i.Seconds > 0 && i.Seconds <= j.Seconds+1) || i.Commits > j.Commits {
			return errors.New("impossible interval")
		}
		sum, seconds = sum+i.Commits, seconds+i.Seconds
	}
	if sum > j.Commits || seconds > j.Seconds*1.001+0.001 {
		return errors.New("the intervals hold more than the whole")
	}
	if len(j.Histogram) > MaxResult {
		return errors.New("the histogram is too long")
	}
	h, err := decodeHistogram(j.Histogram)
	if err != nil {
		return err
	}
	if n := h.TotalCount(); n < 0 || uint64(n) != j.Commits {
		return fmt.Errorf("the histogram has %d commits, and the result %d", n, j.Commits)
	}
	*r = Result{Kind: j.Kind, Where: j.Where, Version: j.Version, Began: j.Began, Took: time.Duration(math.Round(j.Seconds * 1e9)), Commits: j.Commits,
		Interrupted: j.Interrupted, InMemory: j.InMemory, Intervals: j.Intervals, Settings: j.Settings, hist: h}
	return nil
}

// decodeHistogram refuses one of another shape, whose size a file could choose.
func decodeHistogram(text string) (h *hdrhistogram.Histogram, err error) {
	if h, err = hdrhistogram.Decode([]byte(text)); err != nil {
		return nil, fmt.Errorf("decode the histogram: %w", err)
	}
	if h.LowestTrackableValue() != leastLatency || h.HighestTrackableValue() != mostLatency || h.SignificantFigures() != digits {
		return nil, errors.New("the histogram is not one of a probe")
	}
	return h, nil
}

// Write writes the result as indented JSON.
func (r *Result) Write(w io.Writer) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write the probe's result: %w", err)
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// ReadResult reads what Write wrote, of at most MaxResult bytes.
func ReadResult(r io.Reader) (*Result, error) {
	b, err := io.ReadAll(io.LimitReader(r, MaxResult+1))
	if err != nil {
		return nil, fmt.Errorf("read the probe's result: %w", err)
	}
	if len(b) > MaxResult {
		return nil, fmt.Errorf("read the probe's result: longer than %d bytes", MaxResult)
	}
	var out Result
	d := json.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(&out); err != nil {
		return nil, fmt.Errorf("read the probe's result: %w", err)
	}
	if out.hist == nil { // the file says null
		return nil, errors.New("read the probe's result: there is none")
	}
	return &out, nil
}
