// Package report says what a run found: as a JSON object, as a table, and as the
// sentences that people read.
//
// It guarantees that the words are the same wherever a verdict is shown, and
// that a durable verdict always carries the bound that its cuts support. It judges nothing.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"plugpull/internal/stats"
	"plugpull/verifier"
)

// Schema is the version of the JSON object.
const Schema = 1

// Confidence of the bound.
const Confidence = 0.95

// Run is one scenario on one bench: the JSON object of `run` and `verify`.
type Run struct {
	Schema       int             `json:"schema"`
	Run          string          `json:"run"`
	Scenario     string          `json:"scenario"`
	Bench        string          `json:"bench"`
	Seed         uint64          `json:"seed"`
	Verdict      string          `json:"verdict"`
	Reason       verifier.Reason `json:"reason,omitempty"` // of an inconclusive verdict
	Expected     string          `json:"expected"`
	Attested     string          `json:"attested,omitempty"`
	Cycles       Cycles          `json:"cycles"`
	Commits      Commits         `json:"commits"`
	Findings     verifier.Counts `json:"findings"`
	LossWindowMS float64         `json:"loss_window_ms"`
	// LossWindowBoundMS is the loss window up to the observed off; zero when that is not known.
	LossWindowBoundMS float64 `json:"loss_window_bound_ms"`
	Bound             Bound   `json:"bound"`
	Control           Control `json:"control"`
	// Replay is the command that replays the first cycle with a finding alone; empty where
	// none can.
	Replay string `json:"replay,omitempty"`
	// Witness counts the commits of the witness streams; absent without any.
	Witness *Witness `json:"witness,omitempty"`
	// Stack is what the database lay on, where the bench chose it; empty otherwise.
	Stack string `json:"stack,omitempty"`
	// Refusal is what the system would not take, and why: of a refused verdict.
	Refusal string `json:"refusal,omitempty"`
	// Split is where a cycle's time goes, the longest phase first.
	Split []Phase `json:"split,omitempty"`
	// Attribution says what lost it, where a witness tells; empty otherwise.
	Attribution string `json:"attribution,omitempty"`
	Folder      string `json:"folder,omitempty"`
}

// Cycles counts cycles. Interrupted ones are run again and are in none but Interrupted.
type Cycles struct {
	Planned      int `json:"planned"`
	Counted      int `json:"counted"`
	Inconclusive int `json:"inconclusive"`
	Interrupted  int `json:"interrupted"`
	Lossy        int `json:"lossy"`
}

// Commits counts commits by outcome.
type Commits struct {
	Acked     uint64  `json:"acked"`
	Refused   uint64  `json:"refused"`
	Unknown   uint64  `json:"unknown"`
	PerSecond float64 `json:"per_second"`
}

// Phase is a part of the cycles.
type Phase struct {
	Name     string  `json:"phase"`
	MedianMS float64 `json:"median_ms"`
}

// SplitText says where a cycle's time goes, the longest part first; empty when nothing is known.
func (r *Run) SplitText() string {
	var total float64
	var parts []string
	for _, p := range r.Split {
		total += p.MedianMS
		if p.MedianMS >= 1 {
			parts = append(parts, fmt.Sprintf("%s %.0f ms", p.Name, p.MedianMS))
		}
	}
	if total < 1 {
		return ""
	}
	return fmt.Sprintf("a cycle takes %.0f ms (medians: %s): %.0f cuts an hour", total, strings.Join(parts, ", "), 3_600_000/total)
}

// Bound is the loss probability per cut that the counted cuts cannot exclude. It
// assumes that the cuts are independent.
type Bound struct {
	Confidence  float64 `json:"confidence"`
	MaxLossRate float64 `json:"max_loss_rate"`
}

// Control is the planted fault, or its like, that shows that the bench can see a loss.
type Control struct {
	Kind string `json:"kind"` // "none" when there was none
	Lost uint64 `json:"lost"`
	Cuts int    `json:"cuts"`
}

// Witness counts what was appended to a file beside the database, and what of it was lost.
type Witness struct {
	Acked    uint64          `json:"acked"`
	Findings verifier.Counts `json:"findings"`
}

// The attributions.
const (
	// AttributeDrive: the witness lost something too.
	AttributeDrive = "drive or filesystem"
	// AttributeWhole: the witness lost nothing, which points at the database or its settings.
	// It is no proof: a rare fault of the drive can pass the witness by.
	AttributeWhole = "witness whole"
)

// Attribute says which layer lost something, as far as a witness can tell.
func (r *Run) Attribute() {
	switch {
	case r.Witness == nil || r.Findings.Total()+r.Witness.Findings.Total() == 0:
	case r.Witness.Findings.Total() > 0:
		r.Attribution = AttributeDrive
	default:
		r.Attribution = AttributeWhole
	}
}

// NewBound returns the bound for lossy of counted cuts.
func NewBound(lossy, counted int) Bound {
	return Bound{Confidence, stats.UpperBound(min(lossy, counted), counted, Confidence)}
}

// AsExpected reports whether the verdict is the expected one.
func (r *Run) AsExpected() bool { return r.Verdict == r.Expected }

// WriteJSON writes the run as one line.
func (r *Run) WriteJSON(w io.Writer) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// Headline is the verdict in one line.
func (r *Run) Headline() string {
	switch r.Verdict {
	case verifier.Lossy.String():
		s := fmt.Sprintf("lossy: %d of %d acknowledged commits lost, %d other findings", r.Findings.Lost(), r.Commits.Acked, r.Findings.Other())
		switch r.Attribution {
		case AttributeDrive:
			s += fmt.Sprintf("; the witness file beside it lost %d of %d records too: the drive or the filesystem", r.Witness.Findings.Total(), r.Witness.Acked)
		case AttributeWhole:
			s += "; the witness file beside it lost nothing, which points at the database or its settings, unless the fault is rare"
		}
		return s
	case verifier.Durable.String():
		s := fmt.Sprintf("durable: no finding in %s of %d acknowledged commits; at most %.3g%% of cuts lose something (%.0f%% confidence, cuts independent)",
			count(r.Cycles.Counted, "cut"), r.Commits.Acked, 100*r.Bound.MaxLossRate, 100*r.Bound.Confidence)
		if r.Attested != "" {
			s += "; that " + r.AttestedText() + " is attested, not proven"
		}
		switch r.Control.Kind {
		default:
			s += fmt.Sprintf("; the control (%s) lost %d commits in %s", r.Control.Kind, r.Control.Lost, count(r.Control.Cuts, "cut"))
		case NoControl:
			s += "; without a control, so nothing shows that this bench can see a loss"
		}
		return s
	case verifier.RefusedSetting.String():
		return "refused: " + r.Refusal
	}
	return fmt.Sprintf("inconclusive (%s): %s", r.Reason, r.Reason.Explain())
}

// NoControl is the kind of a missing control.
const NoControl = "none"

// AttestedText says in words what a person attested.
func (r *Run) AttestedText() string {
	if r.Attested == string(verifier.AttestDrive) {
		return "the drive alone lost power"
	}
	return "the machine lost power"
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Milliseconds rounds a duration for the JSON object.
func Milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// CountsText lists the classes that were found.
func CountsText(c verifier.Counts) string {
	var parts []string
	for _, p := range []struct {
		n    uint64
		name string
	}{{c.LostTail, "lost_tail"}, {c.LostHole, "lost_hole"}, {c.Torn, "torn"}, {c.Corrupt, "corrupt"}, {c.Stale, "stale"},
		{c.Resurrected, "resurrected"}, {c.Phantom, "phantom"}, {c.Unreadable, "unreadable"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.name))
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}
