package scenarios

import (
	"slices"
	"strings"

	"plugpull/internal/mysqld"
	"plugpull/internal/strictyaml"
)

// WriteCache is what the kernel believes of the drive's cache, in the words of sysfs.
type WriteCache string

// What the kernel can believe.
const (
	// WriteBack: the drive has a volatile cache, so flushes are sent.
	WriteBack WriteCache = "write back"
	// WriteThrough: it has none, so that no flush is ever sent.
	WriteThrough WriteCache = "write through"
)

// Filesystem is what the database lies on.
type Filesystem struct {
	Type  string   // ext4, xfs or btrfs
	Mkfs  []string // further arguments of its mkfs
	Mount []string // mount options
}

// MySQL is the loop bench's server.
type MySQL struct {
	Binary   string // a program or a path to it; empty: mariadbd, else mysqld
	Settings []Setting
}

// Setting is an option of the server, without its dashes.
type Setting struct{ Name, Value string }

// driveSizes of the loop bench, in bytes. A server's data, redo and undo logs fill about 60 MB,
// and btrfs takes no drive below 109 MiB.
const (
	leastDrive   = 128 << 20
	defaultDrive = 512 << 20
	mostDrive    = 8 << 30
)

// loop reads the keys of a scenario for the loop bench.
func (sc *Scenario) loop(s *section) {
	sc.Drive = loopDrive(s.Sub("drive"))
	sc.Queue = strictyaml.Choice(s, "queue", WriteBack, WriteBack, WriteThrough)
	sc.Filesystem = filesystem(s.Sub("filesystem"))
	sc.MySQL = mysql(s.Sub("server"))
	sc.Control = control(s.Sub("control"))
	if s.Has("control") && sc.Expect != Durable {
		s.Problem("control", "given for a scenario that expects %s, want it for durable only", sc.Expect)
	}
	sc.Witness = s.Flag("witness")
}

// Stack says in a few words what the server lies on, in the terms of the barrier's time:
// whether flushes are sent, and whether the drive has a cache that they are for.
func (sc *Scenario) Stack() string {
	text := sc.Filesystem.Type
	if len(sc.Filesystem.Mount) > 0 {
		text += " " + strings.Join(sc.Filesystem.Mount, ",")
	}
	if sc.Queue == WriteThrough {
		text += ", no flushes sent"
	}
	if sc.Drive.WriteThrough {
		text += ", cache off"
	} else {
		text += ", cache on"
	}
	for _, f := range sc.Drive.Faults {
		text += ", " + f.String()
	}
	return text
}

func loopDrive(s *section) Drive {
	defer s.Done()
	bytes := size(s, "size", defaultDrive, leastDrive, mostDrive)
	if bytes%4096 != 0 {
		s.Problem("size", "%d bytes, want a multiple of 4KiB", bytes)
	}
	d := driveOf(s, 0, 0)
	d.Size = bytes
	d.InFile = strictyaml.Choice(s, "image", "memory", "memory", "file") == "file"
	return d
}

func filesystem(s *section) Filesystem {
	defer s.Done()
	f := Filesystem{Type: strictyaml.Choice(s, "type", "ext4", "ext4", "xfs", "btrfs")}
	if s.Has("mkfs") {
		f.Mkfs = s.Words("mkfs", "a list of arguments, such as [-i, size=1024]")
	}
	if s.Has("mount") {
		const want = "a list of mount options, such as [barrier=0]"
		f.Mount = s.Words("mount", want)
		if slices.ContainsFunc(f.Mount, func(o string) bool { return o == "" || strings.ContainsAny(o, ", \t\n") }) {
			s.Problem("mount", "a comma, a space or nothing in an option, want one option an item")
		}
	}
	for key, list := range map[string][]string{"mkfs": f.Mkfs, "mount": f.Mount} {
		if slices.ContainsFunc(list, func(o string) bool { return strings.Contains(o, "panic") }) {
			s.Problem(key, "asks for a panic, and it would be this machine's, at the first cut")
		}
	}
	s.Know("mkfs", "mount")
	return f
}

func mysql(s *section) MySQL {
	defer s.Done()
	return MySQL{Binary: s.Text("binary", "a program, such as mariadbd or /opt/mysql/bin/mysqld"), Settings: settings(s, "settings")}
}

// settings wants a section of option names with plain values.
func settings(s *section, key string) []Setting {
	sub := s.Sub(key)
	var list []Setting
	for _, k := range sub.Keys() {
		name := strings.ReplaceAll(k, "-", "_")
		value := sub.Text(k, "a value")
		switch {
		case mysqld.CheckSettings(map[string]string{k: value}) != nil:
			sub.Problem(k, "%v", mysqld.CheckSettings(map[string]string{k: value}))
		case slices.ContainsFunc(list, func(have Setting) bool { return have.Name == name }):
			sub.Problem(k, "given twice, want it once")
		default:
			list = append(list, Setting{name, value})
		}
	}
	return list
}
