package scenarios

import (
	"time"

	"plugpull/internal/strictyaml"
)

// SQLite is the embedded bench's database.
type SQLite struct {
	Journal        string // wal, delete, truncate or persist
	Synchronous    string // off, normal, full or extra
	AutoCheckpoint int    // WAL pages
}

// embedded reads the keys of a scenario for the embedded bench.
func (sc *Scenario) embedded(s *section) {
	sc.Drive = embeddedDrive(s.Sub("drive"))
	sc.SQLite = sqlite(s.Sub("sqlite"))
	sc.Control = control(s.Sub("control"))
	sc.Witness = s.Flag("witness")
}

func embeddedDrive(s *section) Drive {
	defer s.Done()
	d := driveOf(s, 20*time.Microsecond, time.Millisecond)
	d.SyncByFUA = strictyaml.Choice(s, "sync", "flush", "flush", "fua") == "fua"
	return d
}

func sqlite(s *section) SQLite {
	defer s.Done()
	return SQLite{
		Journal:        strictyaml.Choice(s, "journal", "wal", "wal", "delete", "truncate", "persist"),
		Synchronous:    strictyaml.Choice(s, "synchronous", "full", "off", "normal", "full", "extra"),
		AutoCheckpoint: s.Number("autocheckpoint", 64, 1, 100_000),
	}
}
