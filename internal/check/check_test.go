package check

import (
	"context"
	"io/fs"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"plugpull/internal/hostcheck"
	"plugpull/internal/hostcheck/databases"
	"plugpull/internal/hostcheck/raid"
)

// host is a machine with one disk, which is a volume of a MegaRAID controller, and what storcli says of it.
type host struct {
	files    map[string]string
	commands map[string]string
	hang     string // a command that answers nothing
}

const sys = "/sys/devices/pci0000:00/0000:01:00.0/host0/target0:2:0/0:2:0:0/block/sda"

func newHost(policy string) *host {
	return &host{
		files: map[string]string{
			"/proc/self/mountinfo":                 "21 1 8:0 / / rw - ext4 /dev/sda rw\n",
			"/proc/sys/kernel/osrelease":           "6.1.0\n",
			"/data/x":                              "",
			"/sys/block/sda/queue/write_cache":     "write through\n",
			"/sys/block/sda/device/vendor":         "AVAGO\n",
			"/sys/block/sda/device/model":          "MR9361-8i\n",
			"/sys/block/sda/mq/0/cpu_list":         "0\n",
			"/sys/class/block/sda/dev":             "8:0\n",
			"/sys/class/scsi_host/host0/proc_name": "megaraid_sas\n",
		},
		commands: map[string]string{
			"storcli64 /call show J nolog": `{"Controllers":[{"Command Status":{"Controller":0,"Status":"Success"},"Response Data":{"Product Name":"MegaRAID 9361-8i","Serial Number":"SK00000000",
"VD LIST":[{"DG/VD":"0/0","TYPE":"RAID1","State":"Optl","Access":"RW","Consist":"Yes","Cache":"` + policy + `","Cac":"-","sCC":"ON","Size":"100.0 GB","Name":""}]}}]}`,
		},
	}
}

func (h *host) Describe() string { return "a test" }
func (h *host) Run(ctx context.Context, name string, args ...string) (hostcheck.Output, error) {
	if hostcheck.CommandLine(name, args...) == h.hang {
		<-ctx.Done()
		return hostcheck.Output{}, context.Cause(ctx)
	}
	out, ok := h.commands[hostcheck.CommandLine(name, args...)]
	if !ok {
		return hostcheck.Output{}, hostcheck.ErrNotInstalled
	}
	return hostcheck.Output{Stdout: []byte(out)}, nil
}
func (h *host) ReadFile(_ context.Context, path string) ([]byte, error) {
	if b, ok := h.files[path]; ok {
		return []byte(b), nil
	}
	return nil, fs.ErrNotExist
}
func (h *host) ReadDir(_ context.Context, path string) ([]string, error) {
	seen := map[string]bool{}
	for f := range h.files {
		if rest, ok := strings.CutPrefix(f, path+"/"); ok {
			name, _, _ := strings.Cut(rest, "/")
			seen[name] = true
		}
	}
	if len(seen) == 0 {
		return nil, fs.ErrNotExist
	}
	var all []string
	for n := range seen {
		all = append(all, n)
	}
	sort.Strings(all)
	return all, nil
}
func (h *host) RealPath(_ context.Context, path string) (string, error) {
	switch path {
	case "/sys/block/sda", "/sys/class/block/sda", "/sys/dev/block/8:0":
		return sys, nil
	}
	return filepath.Clean(path), nil
}

func TestControllerBelowADisk(t *testing.T) {
	r := Run(t.Context(), newHost("NRWT"), Ask{Folders: []string{"/data"}})
	var kinds []string
	r.Tops[0].Walk(func(n *hostcheck.Node) { kinds = append(kinds, n.Kind) })
	require.Subset(t, kinds, []string{"folder", "mount", "disk", "controller", "volume", "drives"}, "the volume hangs below its disk")
	require.NotEqual(t, hostcheck.OK, r.Level, "the members' own caches were not told")

	// The same controller in write-back, and nothing is known of a battery.
	r = Run(t.Context(), newHost("NRWB"), Ask{Folders: []string{"/data"}})
	require.NotEqual(t, hostcheck.OK, r.Level)
	require.NotEqual(t, hostcheck.Warning, r.Level)
}

func TestDiskOfAControllerWithoutATool(t *testing.T) {
	h := newHost("NRWT")
	h.commands = nil
	r := Run(t.Context(), h, Ask{Folders: []string{"/data"}})
	require.Equal(t, hostcheck.Unknown, r.Level)
	var b strings.Builder
	require.NoError(t, r.WriteText(&b, false))
	require.Contains(t, b.String(), "is a volume of a RAID controller, and no tool of it")
}

func TestDatabaseOverItsFolders(t *testing.T) {
	db := &databases.Report{Kind: "mysql", Where: "mysql://h", Findings: []hostcheck.Finding{{Level: hostcheck.Critical, Code: "x", Text: "innodb_flush_log_at_trx_commit is 2"}},
		Folders: []databases.Folder{{Path: "/data", What: "data", From: "datadir"}}}
	r := Run(t.Context(), newHost("NRWT"), Ask{Databases: []*databases.Report{db}})
	require.Equal(t, hostcheck.Critical, r.Level)
	require.Contains(t, r.Verdict, "innodb_flush_log_at_trx_commit is 2")
	require.Equal(t, "folder", r.Tops[0].Below[0].Kind)

	r = Run(t.Context(), newHost("NRWT"), Ask{Databases: []*databases.Report{{Kind: "mysql", Where: "mysql://far"}}, Elsewhere: true})
	require.Equal(t, hostcheck.Unknown, r.Level, "settings alone say nothing of what lies below")
	require.Contains(t, r.Verdict, "on another machine")

	r = Run(t.Context(), newHost("NRWT"), Ask{Databases: []*databases.Report{{Kind: "mysql", Where: "mysql://localhost", Apart: databases.NotDirect}}, Elsewhere: true})
	require.Equal(t, hostcheck.Unknown, r.Level)
	require.Contains(t, r.Verdict, "through a tunnel")
}

func TestEverything(t *testing.T) {
	r := Run(t.Context(), newHost("NRWT"), Ask{Raid: raid.Options{}})
	require.NotEmpty(t, r.Tops)
	require.Equal(t, "folder", r.Tops[0].Kind)
}

// The reasoning over the layers never accuses a controller of more than its own judgement does, nor of less.
func TestControllersAndLayersAgree(t *testing.T) {
	files, err := filepath.Glob("../hostcheck/raid/testdata/*.txtar")
	require.NoError(t, err)
	require.Greater(t, len(files), 50)
	seen := map[hostcheck.Level]int{}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			require.NoError(t, err)
			h := newHost("")
			h.commands = map[string]string{}
			for _, f := range a.Files {
				h.commands[f.Name] = string(f.Data)
			}
			list, findings := raid.Collect(t.Context(), h)
			if len(list) > 0 && drivers[list[0].Tool] != nil {
				h.files["/sys/class/scsi_host/host0/proc_name"] = drivers[list[0].Tool][0]
			}
			own := hostcheck.OK
			for _, f := range findings {
				own = hostcheck.Worst(own, f.Level)
			}
			found := false
			for _, c := range list {
				own = hostcheck.Worst(own, raid.Judge(c, raid.Options{}).Worst())
				found = found || len(c.Volumes) == 1
			}
			if !found || len(list) > 1 {
				return // sda is one volume of several, or of none
			}
			for i := range list[0].Volumes {
				if d := list[0].Volumes[i].Device; d != "" && d != "/dev/sda" {
					return
				}
			}
			seen[own]++
			r := Run(t.Context(), h, Ask{Folders: []string{"/data"}})
			require.Equal(t, own, r.Level, r.Verdict)
		})
	}
	for _, l := range []hostcheck.Level{hostcheck.OK, hostcheck.Warning, hostcheck.Critical, hostcheck.Unknown} {
		require.NotZero(t, seen[l], "no host of level %v", l)
	}
}

// What is unknown of the drives does not hide that the controller has stopped caching.
func TestWarningsBesideTheUnknown(t *testing.T) {
	a, err := txtar.ParseFile("../hostcheck/raid/testdata/megacli-silently-write-through.txtar")
	require.NoError(t, err)
	h := newHost("")
	h.commands = map[string]string{}
	for _, f := range a.Files {
		h.commands[f.Name] = regexp.MustCompile(`(?m)^(Disk Cache Policy *: ).*$`).ReplaceAllString(string(f.Data), "${1}Disk's Default")
		h.commands[f.Name] = regexp.MustCompile(`(?mi)^Drive's write cache.*$`).ReplaceAllString(h.commands[f.Name], "")
	}
	r := Run(t.Context(), h, Ask{Folders: []string{"/data"}})
	require.Equal(t, hostcheck.Unknown, r.Level, r.Verdict)
	var b strings.Builder
	require.NoError(t, r.WriteText(&b, false))
	causes, _, _ := strings.Cut(b.String(), "\n\n")
	require.Contains(t, causes, "WARNING  volume 0 (vd0): the controller has stopped caching writes")
	require.Less(t, strings.Count(causes, "\n"), 24, "a screen")
	require.Contains(t, r.Verdict, "set the volume's policy for them to off", "the first line says what to do")
}
