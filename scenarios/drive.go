package scenarios

import (
	"strconv"
	"strings"
	"time"

	"plugpull/internal/simdrive"
	"plugpull/internal/strictyaml"
)

// Drive is the simulated drive.
type Drive struct {
	Size         int64            // bytes; zero on the embedded bench, which chooses
	InFile       bool             // the durable contents lie in a file of the run's folder, not in memory
	Survive      simdrive.Survive // what is left of volatile data at a cut
	Tear         int              // bytes: 512 or 4096
	WriteThrough bool             // write_cache: off; each write is durable when it completes
	Cache        int64            // bytes of volatile cache; 0: unbounded
	SyncByFUA    bool             // the embedded bench's file layer writes with FUA and never flushes
	WriteLatency time.Duration
	FlushLatency time.Duration
	Faults       []simdrive.Fault
}

// Config returns the drive that is asked for, but for its seed, clock and contents.
func (d *Drive) Config() simdrive.Config {
	return simdrive.Config{Size: d.Size, WriteThrough: d.WriteThrough, CacheBytes: d.Cache, WriteLatency: d.WriteLatency,
		FlushLatency: d.FlushLatency, Survive: d.Survive, Tear: d.Tear, Faults: d.Faults}
}

// Control is the planted fault that must show a loss before a durable verdict counts.
type Control struct {
	Fault  *simdrive.Fault // nil: none
	Cycles int
}

// driveOf reads the keys that both simulated benches have; latencies are the defaults.
func driveOf(s *section, writeLatency, flushLatency time.Duration) Drive {
	d := Drive{Survive: strictyaml.Choice(s, "survive", simdrive.SurviveNone, simdrive.SurviveNone, simdrive.SurviveAll, simdrive.SurviveRandom)}
	d.Tear = strictyaml.Parsed(s, "tear", "512 or 4096", 512, func(text string) (int, bool) {
		n, err := strconv.Atoi(text)
		return n, err == nil && (n == 512 || n == 4096)
	})
	d.WriteThrough = strictyaml.Choice(s, "write_cache", "on", "on", "off") == "off"
	d.Cache = size(s, "cache", 0, 4096, 1<<30)
	d.WriteLatency = s.Duration("write_latency", writeLatency, 0, time.Second)
	d.FlushLatency = s.Duration("flush_latency", flushLatency, 0, 10*time.Second)
	for _, text := range s.Words("faults", "a list of faults, such as [flush-ignored]") {
		f, err := simdrive.ParseFault(text)
		if err != nil {
			s.Problem("faults", "%v", err)
			continue
		}
		d.Faults = append(d.Faults, f)
	}
	return d
}

func control(s *section) Control {
	defer s.Done()
	c := Control{Cycles: s.Number("cycles", 2, 1, 1000)}
	const want = "a fault, such as flush-ignored, or none"
	text := s.Text("fault", want)
	switch text {
	case "none":
		return Control{}
	case "":
		text = "flush-ignored"
	}
	f, err := simdrive.ParseFault(text)
	if err != nil {
		s.Problem("fault", "%v", err)
		return Control{}
	}
	c.Fault = &f
	return c
}

// size wants a number of bytes, plain or in KiB, MiB or GiB.
func size(s *section, key string, otherwise, least, most int64) int64 {
	want := "a size from " + sizeText(least) + " to " + sizeText(most) + ", such as 64MiB"
	return strictyaml.Parsed(s, key, want, otherwise, func(text string) (int64, bool) {
		n, ok := parseSize(text)
		return n, ok && n >= least && n <= most
	})
}

var sizeUnits = []struct {
	name  string
	shift uint
}{{"GiB", 30}, {"MiB", 20}, {"KiB", 10}, {"", 0}}

func parseSize(text string) (int64, bool) {
	for _, u := range sizeUnits {
		number, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 64)
		return n << u.shift, err == nil && n >= 0 && n <= 1<<62>>u.shift
	}
	return 0, false
}

func sizeText(n int64) string {
	for _, u := range sizeUnits {
		if n>>u.shift<<u.shift == n && n>>u.shift > 0 {
			return strconv.FormatInt(n>>u.shift, 10) + u.name
		}
	}
	return "0"
}
