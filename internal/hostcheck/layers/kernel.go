package layers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
)

// version is a kernel's. The zero value is one that could not be read.
type version [3]int

var versionPattern = regexp.MustCompile(`^(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?`)

// parseVersion reads /proc/sys/kernel/osrelease, as "6.1.0-18-amd64" or "2.6.18-8.el5".
func parseVersion(text string) (v version) {
	m := versionPattern.FindStringSubmatch(strings.TrimSpace(text))
	for i := range v {
		if m != nil {
			v[i], _ = strconv.Atoi(m[i+1]) // no third number is 0
		}
	}
	return v
}

func (v version) known() bool { return v != version{} }

// before reports whether a known version is older.
func (v version) before(w version) bool {
	for i := range v {
		if v[i] != w[i] {
			return v.known() && v[i] < w[i]
		}
	}
	return false
}

func (v version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

// version reads the kernel's version once.
func (w *Walker) version(ctx context.Context) version {
	if w.kernel == nil {
		v := version{}
		if b, err := w.r.ReadFile(ctx, "/proc/sys/kernel/osrelease"); err == nil {
			v = parseVersion(string(b))
		}
		w.kernel = &v
	}
	return *w.kernel
}

// sys reads an attribute of a whole block device.
func (w *Walker) sys(ctx context.Context, name, attribute string) (string, error) {
	b, err := w.r.ReadFile(ctx, sysPath(name, attribute))
	return strings.TrimSpace(string(b)), err
}

func sysPath(name, attribute string) string { return "/sys/block/" + name + "/" + attribute }

// missing reports whether the host said that there is no such thing, which is not the same as not knowing.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
