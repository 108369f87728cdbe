package scenarios

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"plugpull/internal/strictyaml"
	"plugpull/internal/workload"
)

// FileError holds everything that is wrong with a file, by line.
type FileError = strictyaml.FileError

// Problem is one thing wrong with a file.
type Problem = strictyaml.Problem

type section = strictyaml.Section

// maxFile bounds a file, in bytes: a scenario has some dozen lines.
const maxFile = 256 << 10

// Expectation is the verdict that a scenario expects.
type Expectation string

// The expectations.
const (
	Durable Expectation = "durable"
	Lossy   Expectation = "lossy"
	Refused Expectation = "refused"
)

// BenchKind names a kind of bench.
type BenchKind string

// The kinds of bench. All but VM exist so far.
const (
	Embedded BenchKind = "embedded"
	Loop     BenchKind = "loop"
	VM       BenchKind = "vm"
	Lab      BenchKind = "lab"
)

// Scenario is what is tried.
type Scenario struct {
	Name     string
	Summary  string // one line
	Expect   Expectation
	Benches  []BenchKind // those that it fits, at least one
	Load     Workload
	Cut      Cut
	Cycles   int // how many, unless the command line says otherwise
	Database DatabasePolicy
	Verify   Verify
	// For the simulated benches, embedded and loop.
	Drive   Drive
	Control Control
	Witness bool   // a stream appends to a file beside the database
	SQLite  SQLite // embedded
	// For the loop bench.
	Queue      WriteCache
	Filesystem Filesystem
	MySQL      MySQL
	// Source is the file as it was read.
	Source []byte
}

// Workload is what the streams do.
type Workload struct {
	Profile    workload.Profile
	Streams    int
	PayloadMin int          // bytes
	PayloadMax int          // bytes
	Window     workload.Seq // of churn; zero for the other profiles
}

// Cut says when the power goes, counted from the start of the cycle's streams. Exactly one of After and AfterAcks is set.
type Cut struct {
	// After is a span from which each cycle draws its moment.
	After Range
	// AfterAcks is a number of acknowledgements over all streams.
	AfterAcks int
	// Idle, when not zero, stops the streams at that moment and cuts this
	// long after the last acknowledgement.
	Idle time.Duration
	// Ops is a span from which each cycle of the embedded bench draws the drive operation
	// (write or flush, counted from the load's start) at which the power goes.
	Ops Ops
}

// Ops is a span of drive operations, both ends included.
type Ops struct{ Min, Max int }

// Range is a span of time, both ends included.
type Range struct{ Min, Max time.Duration }

// Pick draws a time from the range, in steps of a microsecond.
func (r Range) Pick(g *rand.Rand) time.Duration {
	steps := int64(r.Max-r.Min)/int64(time.Microsecond) + 1
	return r.Min + time.Duration(g.Int64N(steps))*time.Microsecond
}

// DatabasePolicy says what of the server's settings is put up with.
type DatabasePolicy struct {
	AllowNondurable bool // settings that do not claim durability
	AllowBinlog     bool // log_bin on
}

// Verify says what is verified when.
type Verify struct {
	Last     int // the newest cycles that are verified every time
	AllEvery int // everything is verified each this many cycles
}

var nameForm = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

const nameWant = "small letters, digits and single hyphens, at most 40 characters"

func name(s *section, key string) string {
	s.Require(key, nameWant)
	return strictyaml.Parsed(s, key, nameWant, "", func(text string) (string, bool) {
		return text, len(text) <= 40 && nameForm.MatchString(text)
	})
}

// Parse reads a scenario; file names it in errors, which are *FileError.
func Parse(file string, data []byte) (Scenario, error) {
	sc := Scenario{Source: data}
	err := strictyaml.Decode(file, data, maxFile, func(s *section) {
		sc.Name = name(s, "scenario")
		s.Require("summary", "a line that says what is tried")
		sc.Summary = strictyaml.Parsed(s, "summary", "one line of at most 120 characters", "", func(text string) (string, bool) {
			return text, len(text) <= 120 && !strings.ContainsAny(text, "\n\t")
		})
		s.Require("expect", "durable or lossy or refused")
		sc.Expect = strictyaml.Choice(s, "expect", "", Durable, Lossy, Refused)
		sc.Benches = benches(s)
		sc.Load = load(s.Sub("load"))
		embedded := slices.Contains(sc.Benches, Embedded)
		sc.Cut = cut(s.Sub("cut"), embedded)
		s.Require("cycles", "a number of cycles")
		sc.Cycles = s.Number("cycles", 0, 1, 1_000_000)
		sc.Database = databasePolicy(s.Sub("database"))
		sc.Verify = verify(s.Sub("verify"))
		switch {
		case embedded:
			sc.embedded(s)
		case slices.Contains(sc.Benches, Loop):
			sc.loop(s)
		}
	})
	if err != nil {
		return Scenario{}, err
	}
	return sc, nil
}

func benches(s *section) []BenchKind {
	const want = "a list of kinds of bench, such as [lab]"
	s.Require("bench", want)
	var kinds []BenchKind
	for _, word := range s.Words("bench", want) {
		kind := BenchKind(word)
		switch {
		case slices.Contains(kinds, kind):
			s.Problem("bench", "%q twice, want it once", word)
		case kind == Lab, kind == Embedded, kind == Loop:
			kinds = append(kinds, kind)
		case kind == VM:
			s.Problem("bench", "%q is not in this version, want lab, embedded or loop", word)
		default:
			s.Problem("bench", "%q, want lab, embedded or loop", word)
		}
	}
	if len(kinds) > 1 {
		s.Problem("bench", "%s and %s take different keys, want one of them a file", kinds[0], kinds[1])
	}
	return kinds
}

func load(s *section) Workload {
	defer s.Done()
	var l Workload
	s.Require("profile", "append or transfer or churn")
	l.Profile = strictyaml.Choice(s, "profile", "", workload.Profiles()...)
	l.Streams = s.Number("streams", 8, 1, 1024)
	const want = "bytes or a span of bytes up to 16384, such as 100..400"
	size := strictyaml.Parsed(s, "payload", want, [2]int{100, 400}, func(text string) ([2]int, bool) {
		least, most, ok := span(text, strconv.Atoi)
		return [2]int{least, most}, ok && least >= 0 && most >= least && most <= workload.MaxPayload
	})
	l.PayloadMin, l.PayloadMax = size[0], size[1]
	window := s.Number("window", workload.DefaultWindow, workload.MinWindow, workload.MaxWindow)
	if l.Profile == workload.Churn {
		l.Window = workload.Seq(window)
	} else if s.Has("window") && l.Profile != "" {
		s.Problem("window", "given for profile %s, want it for churn only", l.Profile)
	}
	return l
}

func cut(s *section, embedded bool) Cut {
	defer s.Done()
	var c Cut
	if embedded {
		const want = "a number of drive operations or a span, such as 50..400"
		s.Require("ops", want)
		c.Ops = strictyaml.Parsed(s, "ops", want, Ops{}, func(text string) (Ops, bool) {
			a, b, ok := span(text, strconv.Atoi)
			return Ops{a, b}, ok && a >= 1 && b >= a && b <= 1_000_000
		})
		return c
	}
	// A cycle counts only with an acknowledgement in the last 100 ms before the
	// cut, so that shorter loads would be drawn for nothing.
	const least, most = 200 * time.Millisecond, time.Hour
	c.After = strictyaml.Parsed(s, "after", "a time or a span of time from 200ms to 1h, such as 2s..5s", Range{}, func(text string) (Range, bool) {
		a, b, ok := span(text, time.ParseDuration)
		return Range{a, b}, ok && a >= least && b >= a && b <= most
	})
	c.AfterAcks = s.Number("after_acks", 0, 1, 1_000_000_000)
	c.Idle = s.Duration("idle", 0, 100*time.Millisecond, 24*time.Hour)
	switch {
	case s.Has("after") && s.Has("after_acks"):
		s.Problem("after_acks", "given beside after, want one of the two")
	case !s.Has("after") && !s.Has("after_acks"):
		s.Problem("after", "missing, want after or after_acks")
	}
	return c
}

func databasePolicy(s *section) DatabasePolicy {
	defer s.Done()
	return DatabasePolicy{AllowNondurable: s.Flag("allow_nondurable"), AllowBinlog: s.Flag("allow_binlog")}
}

func verify(s *section) Verify {
	defer s.Done()
	return Verify{Last: s.Number("last", 2, 1, 1000), AllEvery: s.Number("all_every", 50, 1, 1_000_000)}
}

// span reads "a..b", or "a" for both ends.
func span[T any](text string, parse func(string) (T, error)) (least, most T, ok bool) {
	first, second, two := strings.Cut(text, "..")
	if !two {
		second = first
	}
	least, err := parse(first)
	if err != nil {
		return least, most, false
	}
	most, err = parse(second)
	return least, most, err == nil
}
