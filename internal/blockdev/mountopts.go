package blockdev

import (
	"strings"

	"golang.org/x/sys/unix"
)

// attribute is an option of a mount rather than of a filesystem, for both ways to mount.
type attribute struct {
	set, clear     uint64 // MOUNT_ATTR_*
	msSet, msClear uintptr
	// sb: it is also a flag of the superblock, which fsconfig knows by the same name.
	sb bool
}

// attributes are the words that mount(8) turns into flags; what is not here is the
// filesystem's, or fsconfig's own (lazytime, …).
var attributes = map[string]attribute{
	"defaults":    {},
	"ro":          {set: unix.MOUNT_ATTR_RDONLY, msSet: unix.MS_RDONLY, sb: true},
	"rw":          {clear: unix.MOUNT_ATTR_RDONLY, msClear: unix.MS_RDONLY, sb: true},
	"nosuid":      {set: unix.MOUNT_ATTR_NOSUID, msSet: unix.MS_NOSUID},
	"suid":        {clear: unix.MOUNT_ATTR_NOSUID, msClear: unix.MS_NOSUID},
	"nodev":       {set: unix.MOUNT_ATTR_NODEV, msSet: unix.MS_NODEV},
	"dev":         {clear: unix.MOUNT_ATTR_NODEV, msClear: unix.MS_NODEV},
	"noexec":      {set: unix.MOUNT_ATTR_NOEXEC, msSet: unix.MS_NOEXEC},
	"exec":        {clear: unix.MOUNT_ATTR_NOEXEC, msClear: unix.MS_NOEXEC},
	"nosymfollow": {set: unix.MOUNT_ATTR_NOSYMFOLLOW, msSet: unix.MS_NOSYMFOLLOW},
	"symfollow":   {clear: unix.MOUNT_ATTR_NOSYMFOLLOW, msClear: unix.MS_NOSYMFOLLOW},
	"nodiratime":  {set: unix.MOUNT_ATTR_NODIRATIME, msSet: unix.MS_NODIRATIME},
	"diratime":    {clear: unix.MOUNT_ATTR_NODIRATIME, msClear: unix.MS_NODIRATIME},
	// The access times exclude each other; the kernel's default is relatime.
	"noatime":     atime(unix.MOUNT_ATTR_NOATIME, unix.MS_NOATIME),
	"strictatime": atime(unix.MOUNT_ATTR_STRICTATIME, unix.MS_STRICTATIME),
	"relatime":    atime(unix.MOUNT_ATTR_RELATIME, unix.MS_RELATIME),
	"atime":       atime(unix.MOUNT_ATTR_RELATIME, 0),
	"norelatime":  atime(unix.MOUNT_ATTR_RELATIME, 0),
	// Flags of the superblock alone.
	"sync":       {msSet: unix.MS_SYNCHRONOUS, sb: true},
	"async":      {msClear: unix.MS_SYNCHRONOUS, sb: true},
	"dirsync":    {msSet: unix.MS_DIRSYNC, sb: true},
	"lazytime":   {msSet: unix.MS_LAZYTIME, sb: true},
	"nolazytime": {msClear: unix.MS_LAZYTIME, sb: true},
}

func atime(set uint64, ms uintptr) attribute {
	return attribute{set: set, clear: unix.MOUNT_ATTR__ATIME, msSet: ms,
		msClear: unix.MS_NOATIME | unix.MS_STRICTATIME | unix.MS_RELATIME}
}

// mountOptions are options sorted by whom they are for.
type mountOptions struct {
	attr uint64   // for fsmount
	sb   []string // for fsconfig: "ro", "barrier=0", in the order given

	flags uintptr  // for mount(2)
	data  []string // for mount(2)
}

// sortOptions sorts what people write: single options, or several with commas between. As in
// mount(8), a later option overrules an earlier one. No option may contain a comma.
func sortOptions(options []string) mountOptions {
	var s mountOptions
	for o := range strings.SplitSeq(strings.Join(options, ","), ",") {
		o = strings.TrimSpace(o)
		if o == "" {
			continue
		}
		a, ok := attributes[o]
		if !ok {
			s.sb = append(s.sb, o)
			s.data = append(s.data, o)
			continue
		}
		s.attr = s.attr&^a.clear | a.set
		s.flags = s.flags&^a.msClear | a.msSet
		if a.sb {
			s.sb = append(s.sb, o)
		}
	}
	return s
}
