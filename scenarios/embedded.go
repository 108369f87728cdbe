package scenarios

import (
	"strconv"
	"time"

	"plugpull/internal/simdrive"
)

// embedded reads the keys of a scenario for the embedded bench.
func (sc *Scenario) embedded(s *section) {
	sc.Drive = drive(s.sub("drive"))
	sc.SQLite = sqlite(s.sub("sqlite"))
	sc.Control = control(s.sub("control"))
	sc.Witness = s.flag("witness")
}

func drive(s *section) Drive {
	defer s.done()
	d := Drive{Survive: choice(s, "survive", simdrive.SurviveNone, simdrive.SurviveNone, simdrive.SurviveAll, simdrive.SurviveRandom)}
	d.Tear = parsed(s, "tear", "512 or 4096", 512, func(text string) (int, bool) {
		n, err := strconv.Atoi(text)
		return n, err == nil && (n == 512 || n == 4096)
	})
	d.WriteThrough = s.flag("write_through")
	d.SyncByFUA = choice(s, "sync", "flush", "flush", "fua") == "fua"
	d.Cache = s.number("cache", 0, 4096, 1<<30)
	d.WriteLatency = s.duration("write_latency", 20*time.Microsecond, 0, time.Second)
	d.FlushLatency = s.duration("flush_latency", time.Millisecond, 0, 10*time.Second)
	for _, text := range s.words("faults", "a list of faults, such as [flush-ignored]") {
		f, err := simdrive.ParseFault(text)
		if err != nil {
			s.problem("faults", "%v", err)
			continue
		}
		d.Faults = append(d.Faults, f)
	}
	return d
}

func sqlite(s *section) SQLite {
	defer s.done()
	return SQLite{
		Journal:        choice(s, "journal", "wal", "wal", "delete", "truncate", "persist"),
		Synchronous:    choice(s, "synchronous", "full", "off", "normal", "full", "extra"),
		AutoCheckpoint: s.number("autocheckpoint", 64, 1, 100_000),
	}
}

func control(s *section) Control {
	defer s.done()
	c := Control{Cycles: s.number("cycles", 2, 1, 1000)}
	const want = "a fault, such as flush-ignored, or none"
	text := s.text("fault", want)
	switch text {
	case "none":
		return Control{}
	case "":
		text = "flush-ignored"
	}
	f, err := simdrive.ParseFault(text)
	if err != nil {
		s.problem("fault", "%v", err)
		return Control{}
	}
	c.Fault = &f
	return c
}
