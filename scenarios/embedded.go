package scenarios

import "time"

// SQLite is the embedded bench's database.
type SQLite struct {
	Journal        string // wal, delete, truncate or persist
	Synchronous    string // off, normal, full or extra
	AutoCheckpoint int    // WAL pages
}

// embedded reads the keys of a scenario for the embedded bench.
func (sc *Scenario) embedded(s *section) {
	sc.Drive = embeddedDrive(s.sub("drive"))
	sc.SQLite = sqlite(s.sub("sqlite"))
	sc.Control = control(s.sub("control"))
	sc.Witness = s.flag("witness")
}

func embeddedDrive(s *section) Drive {
	defer s.done()
	d := driveOf(s, 20*time.Microsecond, time.Millisecond)
	d.SyncByFUA = choice(s, "sync", "flush", "flush", "fua") == "fua"
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
