package main

import (
	"context"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"plugpull/internal/hostcheck"
	"plugpull/internal/hostcheck/layers"
	"plugpull/internal/probe"
)

// sysHost is a machine with one folder on one disk, known by its files.
type sysHost map[string]string

func (h sysHost) Run(_ context.Context, name string, _ ...string) (hostcheck.Output, error) {
	if out, ok := h[name]; ok {
		return hostcheck.Output{Stdout: []byte(out)}, nil
	}
	return hostcheck.Output{}, hostcheck.ErrNotInstalled
}

func (h sysHost) ReadFile(_ context.Context, file string) ([]byte, error) {
	// One is a link to the other.
	if text, ok := h[strings.Replace(file, "/sys/class/block/", "/sys/block/", 1)]; ok {
		return []byte(text), nil
	}
	return nil, fs.ErrNotExist
}

func (h sysHost) ReadDir(_ context.Context, dir string) (names []string, err error) {
	for file := range h {
		if rest, ok := strings.CutPrefix(file, dir+"/"); ok {
			name, _, _ := strings.Cut(rest, "/")
			names = append(names, name)
		}
	}
	if names == nil {
		return nil, fs.ErrNotExist
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func (h sysHost) RealPath(_ context.Context, file string) (string, error) {
	switch file {
	case "/sys/dev/block/8:0", "/sys/class/block/sda", "/sys/block/sda":
		return "/sys/devices/pci0000:00/ata1/host0/target0:0:0/0:0:0:0/block/sda", nil
	}
	return path.Clean(file), nil
}

func (h sysHost) Describe() string { return "a test" }

// What the probe reads of a disk reaches its interpretation: the walk's names and files are those that it looks for.
func TestEvidenceOfADisk(t *testing.T) {
	for name, c := range map[string]struct {
		kernel, smartctl string
		want             hostcheck.Tri
		rpm              int
	}{
		"turns, as the kernel says":         {"1\n", "", hostcheck.Yes, 0},
		"nothing turns, as the kernel says": {"0\n", "", hostcheck.No, 0},
		"nobody says":                       {"x", "", hostcheck.NotKnown, 0},
		"the drive says how fast":           {"1\n", `{"rotation_rate":7200}`, hostcheck.Yes, 7200},
		"the drive knows better":            {"1\n", `{"rotation_rate":0}`, hostcheck.No, 0},
		"a rate that no drive has":          {"1\n", `{"rotation_rate":7}`, hostcheck.Yes, 0},
	} {
		host := sysHost{
			"/proc/self/mountinfo":             "21 1 8:0 / / rw,relatime - ext4 /dev/sda rw\n",
			"/sys/block/sda/queue/write_cache": "write back\n",
			"/sys/block/sda/queue/rotational":  c.kernel,
			"/sys/block/sda/device/vendor":     "ACME\n",
			"/sys/block/sda/device/model":      "Disk\n",
			"/sys/block/sda/mq/0/nr_tags":      "1\n",
			"/sys/block/sda/stat":              "1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 7 0\n",
		}
		if c.smartctl != "" {
			host["smartctl"] = c.smartctl
		}
		all := turning{}
		tops := walkFolders(context.Background(), host, []string{"/"}, all)
		top := &hostcheck.Node{Kind: hostcheck.Note, Below: tops}
		before := layers.Flushes(context.Background(), host, top)
		host["/sys/block/sda/stat"] = "1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 0\n"
		after := layers.Flushes(context.Background(), host, top)
		var e probe.Evidence
		top.Walk(func(n *hostcheck.Node) { addEvidence(&e, n, all, before, after) })
		ten := uint64(10)
		assert.Equal(t, []probe.Layer{{Name: "sda", WriteCache: "write back", Flushes: &ten}}, e.Layers)
		if assert.Len(t, e.Drives, 1) {
			assert.Equal(t, "sda", e.Drives[0].Name)
			assert.Equal(t, c.want, e.Drives[0].Rotational, name)
			assert.Equal(t, c.rpm, e.Drives[0].RPM, name)
		}
	}
}
