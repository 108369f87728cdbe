package blockdev

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// MountInfo is a mount as the kernel describes it in mountinfo.
type MountInfo struct {
	ID, Parent   int
	Major, Minor uint32 // of the superblock; not the device's for btrfs
	Dir          string
	Type         string
	Source       string
	Options      []string // of this mount: "rw", "noatime"
	FSOptions    []string // of the filesystem: "rw", "barrier=0" or "nobarrier", "data=ordered"
	// Messages are what the kernel said of the filesystem while Mount mounted it.
	Messages []string
}

// ReadMount reads back what is mounted at dir, as the calling thread sees it. The error is
// ErrNotMounted when nothing is. A filesystem leaves out of its options what is its default.
func ReadMount(dir string) (*MountInfo, error) {
	dir, err := resolve(dir)
	if err != nil {
		return nil, fmt.Errorf("read the mount: %w", err)
	}
	// Not /proc/self, which is the main thread's.
	b, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read the mount: %w", err)
	}
	mounts, err := parseMountInfo(string(b))
	if err != nil {
		return nil, fmt.Errorf("read the mount: %w", err)
	}
	return topmost(mounts, dir)
}

// topmost returns the mount at dir on which no other is mounted at dir.
func topmost(mounts []*MountInfo, dir string) (*MountInfo, error) {
	covered := make(map[int]bool)
	for _, m := range mounts {
		if m.Dir == dir {
			covered[m.Parent] = true
		}
	}
	for _, m := range mounts {
		if m.Dir == dir && !covered[m.ID] {
			return m, nil
		}
	}
	return nil, fmt.Errorf("%s: %w", dir, ErrNotMounted)
}

// resolve makes a path absolute and free of symbolic links. The last part may be the root of
// a filesystem that was shut down, which cannot be looked at.
func resolve(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	full, err := filepath.EvalSymlinks(dir)
	if err == nil {
		return full, nil
	}
	parent, above := filepath.EvalSymlinks(filepath.Dir(dir))
	if above != nil {
		return "", err
	}
	return filepath.Join(parent, filepath.Base(dir)), nil
}

// parseMountInfo reads the format of proc_pid_mountinfo(5).
func parseMountInfo(text string) ([]*MountInfo, error) {
	var mounts []*MountInfo
	for line := range strings.Lines(text) {
		m, err := parseMount(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return nil, fmt.Errorf("mountinfo %q: %w", line, err)
		}
		mounts = append(mounts, m)
	}
	return mounts, nil
}

func parseMount(line string) (*MountInfo, error) {
	before, after, ok := strings.Cut(line, " - ")
	mount, super := strings.Split(before, " "), strings.Split(after, " ")
	if !ok || len(mount) < 6 || len(super) < 3 {
		return nil, fmt.Errorf("too few fields")
	}
	m := &MountInfo{
		Dir: unescape(mount[4]), Options: strings.Split(mount[5], ","),
		Type: super[0], Source: unescape(super[1]), FSOptions: strings.Split(super[2], ","),
	}
	_, err := fmt.Sscanf(strings.Join(mount[:3], " "), "%d %d %d:%d", &m.ID, &m.Parent, &m.Major, &m.Minor)
	return m, err
}

// unescape undoes the kernel's \ooo for blanks, backslashes and '#'.
func unescape(s string) string {
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '\\')
		if i < 0 || i+4 > len(s) {
			b.WriteString(s)
			return b.String()
		}
		b.WriteString(s[:i])
		c, err := strconv.ParseUint(s[i+1:i+4], 8, 8)
		if err != nil {
			b.WriteByte('\\')
			s = s[i+1:]
			continue
		}
		b.WriteByte(byte(c))
		s = s[i+4:]
	}
}
