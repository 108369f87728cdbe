package layers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"plugpull/internal/hostcheck"
)

// mountInfo is where the mounts of the process that reads it are.
const mountInfo = "/proc/self/mountinfo"

// mountPoint is a line of mountinfo.
type mountPoint struct {
	id, parent   int
	major, minor uint32 // of the superblock; major 0 has no device of its own
	root, dir    string
	fsType       string
	source       string
	options      []string // of this mount
	fsOptions    []string // of the filesystem
}

// mountTable is what is mounted, in the order of mounting.
type mountTable struct {
	all []*mountPoint
	err error
}

var errNoMount = errors.New("no mount has this path")

// parseMounts reads the format of proc_pid_mountinfo(5). One bad line makes the whole unreadable: it may be
// the mount that is asked about.
func parseMounts(text string) ([]*mountPoint, error) {
	var all []*mountPoint
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" {
			continue
		}
		m, err := parseMount(line)
		if err != nil {
			return nil, fmt.Errorf("%s: line %.80q: %w", mountInfo, line, err)
		}
		all = append(all, m)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s is empty", mountInfo)
	}
	return all, nil
}

func parseMount(line string) (*mountPoint, error) {
	before, after, ok := strings.Cut(line, " - ")
	mount, super := strings.Split(before, " "), strings.SplitN(after, " ", 3)
	if !ok || len(mount) < 6 || len(super) < 3 {
		return nil, errors.New("too few fields")
	}
	major, minor, ok := strings.Cut(mount[2], ":")
	if !ok {
		return nil, errors.New("no device number")
	}
	m := &mountPoint{
		root: unescape(mount[3]), dir: unescape(mount[4]), options: split(mount[5]),
		fsType: super[0], source: unescape(super[1]), fsOptions: split(super[2]),
	}
	var errs [4]error
	var maj, min uint64
	m.id, errs[0] = strconv.Atoi(mount[0])
	m.parent, errs[1] = strconv.Atoi(mount[1])
	maj, errs[2] = strconv.ParseUint(major, 10, 32)
	min, errs[3] = strconv.ParseUint(minor, 10, 32)
	m.major, m.minor = uint32(maj), uint32(min)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	if m.fsType == "" || !strings.HasPrefix(m.dir, "/") {
		return nil, errors.New("no filesystem or no mount point")
	}
	return m, nil
}

// split takes options apart before it undoes the escapes, among which a comma may be.
func split(list string) []string {
	options := strings.Split(list, ",")
	for i, o := range options {
		options[i] = unescape(o)
	}
	return options
}

// unescape undoes the kernel's \ooo.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// has reports whether one of the options is there, whole.
func (m *mountPoint) has(options ...string) bool {
	return slices.ContainsFunc(options, func(o string) bool {
		return slices.Contains(m.fsOptions, o) || slices.Contains(m.options, o)
	})
}

// value returns the value of an option of the filesystem.
func (m *mountPoint) value(key string) string {
	for _, o := range m.fsOptions {
		if k, v, ok := strings.Cut(o, "="); ok && k == key {
			return v
		}
	}
	return ""
}

// within reports whether a path is at or below a folder.
func within(dir, path string) bool {
	return dir == "/" || path == dir || strings.HasPrefix(path, dir+"/")
}

// find returns the mount that a resolved path is on, as the kernel finds it: from the root on, over what is
// mounted on the mount reached so far. A mount that a later one above it hides is not found.
func find(all []*mountPoint, path string) (*mountPoint, error) {
	at := root(all)
	if at == nil { // a chroot into a folder: the mount that it is on is not listed
		for _, m := range all {
			if within(m.dir, path) && (at == nil || len(m.dir) >= len(at.dir)) {
				at = m
			}
		}
	}
	if at == nil {
		return nil, errNoMount
	}
	for range all {
		var next *mountPoint
		for _, m := range all {
			if m != at && m.parent == at.id && within(at.dir, m.dir) && within(m.dir, path) && (next == nil || len(m.dir) <= len(next.dir)) {
				next = m
			}
		}
		if next == nil {
			break
		}
		at = next
	}
	return at, nil
}

// root is the last mount at / whose parent is not listed.
func root(all []*mountPoint) *mountPoint {
	ids := map[int]bool{}
	for _, m := range all {
		ids[m.id] = true
	}
	var at *mountPoint
	for _, m := range all {
		if m.dir == "/" && (!ids[m.parent] || m.parent == m.id) {
			at = m
		}
	}
	return at
}

// mountOf returns the mount of a resolved path.
func (w *Walker) mountOf(ctx context.Context, path string) (*mountPoint, error) {
	if w.table == nil {
		w.table = readMounts(ctx, w.r)
	}
	if w.table.err != nil {
		return nil, w.table.err
	}
	return find(w.table.all, path)
}

func readMounts(ctx context.Context, r hostcheck.Runner) *mountTable {
	b, err := r.ReadFile(ctx, mountInfo)
	if err != nil {
		return &mountTable{err: err}
	}
	all, err := parseMounts(string(b))
	return &mountTable{all, err}
}

// Mounts returns the mount points, one a filesystem, of what is on block devices or a ZFS pool and can hold
// commits, in the order of mounting. Images that cannot be written are left out.
func Mounts(ctx context.Context, r hostcheck.Runner) ([]string, error) {
	table := readMounts(ctx, r)
	if table.err != nil {
		return nil, fmt.Errorf("list mounts: %w", table.err)
	}
	var dirs []string
	seen := map[string]bool{}
	for _, m := range table.all {
		key := fmt.Sprintf("%d:%d", m.major, m.minor)
		if m.major == 0 {
			key = m.fsType + " " + m.source // each subvolume of btrfs has a number of its own
		}
		onDevice := m.major != 0 || slices.Contains([]string{"btrfs", "bcachefs", "zfs"}, m.fsType)
		image := slices.Contains([]string{"squashfs", "iso9660", "erofs", "cramfs", "romfs", "udf"}, m.fsType)
		top, err := find(table.all, m.dir)
		if !onDevice || image || err != nil || top != m || seen[key] {
			continue
		}
		seen[key] = true
		dirs = append(dirs, m.dir)
	}
	return dirs, nil
}
