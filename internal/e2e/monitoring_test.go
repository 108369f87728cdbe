package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	osuser "os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/check"
	"plugpull/internal/hostcheck"
	"plugpull/internal/hostcheck/runner"
	"plugpull/internal/testskip"
)

// plugins is where Debian has them.
const plugins = "/usr/lib/nagios/plugins/"

// raidHost is a machine whose one disk is a controller's volume, with the outputs of the controller's tool.
type raidHost struct {
	dir      string // of a mount, beside /
	commands map[string]string
}

// newRaidHost takes the outputs from a fixture, with words of them replaced.
func newRaidHost(t *testing.T, fixture, dir string, replace ...string) raidHost {
	t.Helper()
	a, err := txtar.ParseFile("../hostcheck/raid/testdata/" + fixture + ".txtar")
	require.NoError(t, err)
	h := raidHost{dir, map[string]string{}}
	for _, f := range a.Files {
		h.commands[f.Name] = strings.NewReplacer(replace...).Replace(string(f.Data))
	}
	return h
}

func (h raidHost) Describe() string { return "a saved host" }

func (h raidHost) Run(_ context.Context, name string, args ...string) (hostcheck.Output, error) {
	out, ok := h.commands[hostcheck.CommandLine(name, args...)]
	if !ok {
		return hostcheck.Output{}, hostcheck.ErrNotInstalled
	}
	return hostcheck.Output{Stdout: []byte(out)}, nil
}

// files are the kernel's.
func (h raidHost) files() map[string]string {
	return map[string]string{
		"/proc/self/mountinfo":                 "21 1 8:0 / / rw - ext4 /dev/sda rw\n22 21 8:0 / " + strings.NewReplacer("\n", `\012`, " ", `\040`).Replace(h.dir) + " rw - ext4 /dev/sda rw\n",
		"/proc/sys/kernel/osrelease":           "6.1.0\n",
		"/sys/block/sda/queue/write_cache":     "write through\n",
		"/sys/block/sda/device/vendor":         "AVAGO\n",
		"/sys/block/sda/device/model":          "MR9460-8i\n",
		"/sys/class/block/sda/dev":             "8:0\n",
		"/sys/class/scsi_host/host0/proc_name": "megaraid_sas\n",
	}
}

func (h raidHost) ReadFile(_ context.Context, path string) ([]byte, error) {
	text, ok := h.files()[path]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return []byte(text), nil
}

func (h raidHost) ReadDir(_ context.Context, path string) ([]string, error) {
	var names []string
	for file := range h.files() {
		if rest, ok := strings.CutPrefix(file, path+"/"); ok {
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

func (h raidHost) RealPath(_ context.Context, path string) (string, error) {
	switch path {
	case "/sys/block/sda", "/sys/class/block/sda", "/sys/dev/block/8:0":
		return "/sys/devices/pci0000:00/0000:01:00.0/host0/target0:2:0/0:2:0:0/block/sda", nil
	}
	return filepath.Clean(path), nil
}

// save writes what check asks of the host into a folder that everybody can read.
func (h raidHost) save(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "plugpull-saved-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	rec, err := runner.NewRecorder(h, dir)
	require.NoError(t, err)
	check.Run(t.Context(), rec, check.Ask{Folders: []string{h.dir}})
	require.NoError(t, rec.Err())
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chmod(path, map[bool]os.FileMode{true: 0o755, false: 0o644}[d.IsDir()])
	}))
	return dir
}

// levels are hosts of each level.
func levels(t *testing.T) map[hostcheck.Level]string {
	t.Helper()
	all := map[hostcheck.Level]string{}
	for level, fixture := range map[hostcheck.Level]string{hostcheck.OK: "storcli-cachevault-healthy", hostcheck.Warning: "storcli-learning",
		hostcheck.Critical: "storcli-always-no-battery", hostcheck.Unknown: "storcli-truncated"} {
		all[level] = newRaidHost(t, fixture, "/data").save(t)
	}
	return all
}

// said runs a program, and returns what it printed and its exit code.
func said(t *testing.T, name string, args ...string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	if exit != nil {
		return string(out), exit.ExitCode()
	}
	return string(out), 0
}

func TestCheckThroughNegate(t *testing.T) {
	negate := testskip.Program(t, plugins+"negate", "monitoring-plugins-basic")
	for level, dir := range levels(t) {
		out, code := said(t, binary, "check", "--from", dir, "--data-dir", "/data")
		require.Equal(t, int(level), code, out)
		require.True(t, strings.HasPrefix(out, level.String()+" - "), out)

		// negate maps a plugin's code to another one, and with -s the word of it at the line's beginning.
		out, code = said(t, negate, "-s", "-o", "CRITICAL", "-w", "UNKNOWN", "-c", "OK", "-u", "WARNING", binary, "check", "--from", dir, "--data-dir", "/data")
		want := map[hostcheck.Level]hostcheck.Level{hostcheck.OK: hostcheck.Critical, hostcheck.Warning: hostcheck.Unknown,
			hostcheck.Critical: hostcheck.OK, hostcheck.Unknown: hostcheck.Warning}[level]
		assert.Equal(t, int(want), code, out)
		assert.True(t, strings.HasPrefix(out, want.String()+" - "), "of %v: %s", level, out)
	}
}

func TestCheckThroughNRPE(t *testing.T) {
	client, daemon := testskip.Program(t, plugins+"check_nrpe", "nagios-nrpe-plugin"), testskip.Program(t, "nrpe", "nagios-nrpe-server")
	hosts := levels(t)
	config, program := "", forEverybody(t)
	for level, dir := range hosts {
		config += fmt.Sprintf("command[%v]=%s check --from %s --data-dir /data\n", level, program, dir)
	}
	port := startNRPE(t, daemon, config)
	for level, dir := range hosts {
		whole, _ := said(t, binary, "check", "--from", dir, "--data-dir", "/data")
		out, code := said(t, client, "-n", "-H", "127.0.0.1", "-p", port, "-c", level.String())
		assert.Equal(t, int(level), code, out)
		assert.Equal(t, strings.TrimSpace(whole), strings.TrimSpace(out), "everything arrives")

		// The small packets of version 2 cut: the first line says it all, and its numbers are whole.
		out, code = said(t, client, "-2", "-n", "-H", "127.0.0.1", "-p", port, "-c", level.String())
		assert.Equal(t, int(level), code, out)
		first, _, _ := strings.Cut(whole, "\n")
		assert.True(t, strings.HasPrefix(out, first), "%s\n%s", first, out)
	}
}

// forEverybody returns a copy of the program in a folder that other users can read: the daemon refuses to be root.
func forEverybody(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "plugpull-nrpe-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	out, err := exec.Command("install", "-m", "755", binary, dir+"/plugpull").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return dir + "/plugpull"
}

// startNRPE runs a daemon on a port of its own until the test ends.
func startNRPE(t *testing.T, daemon, commands string) (port string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, err = net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	require.NoError(t, l.Close())
	me, err := osuser.Current()
	require.NoError(t, err)
	if me.Uid == "0" {
		me, err = osuser.Lookup("nobody")
		require.NoError(t, err)
	}
	group, err := osuser.LookupGroupId(me.Gid)
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "plugpull-nrpe-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o777)) // for its log and its pid
	file := filepath.Join(dir, "nrpe.cfg")
	text := fmt.Sprintf("server_address=127.0.0.1\nserver_port=%s\nnrpe_user=%s\nnrpe_group=%s\nallowed_hosts=127.0.0.1\npid_file=%s\ndisable_syslog=1\nlog_file=%s\ncommand_timeout=60\n",
		port, me.Username, group.Name, filepath.Join(dir, "pid"), filepath.Join(dir, "log"))
	require.NoError(t, os.WriteFile(file, []byte(text+commands), 0o644))
	cmd := exec.Command(daemon, "-n", "-c", file, "-f")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	})
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}, time.Minute, 20*time.Millisecond, "nrpe does not listen")
	return port
}

// perfdatum is one of the plugin guidelines: 'label'=value[unit].
var perfdatum = regexp.MustCompile(`^'([^'=|]+)'=(-?[0-9.]+)(s|%|B|c)?$`)

// Names of devices and folders are not ours: whatever is in them, the line stays one line with one bar.
func TestHostileNamesInPerformanceData(t *testing.T) {
	const dir = "/da|ta 'x'=1;\n2"
	h := newRaidHost(t, "storcli-cachevault-healthy", dir, "MegaRAID 9460-8i", `Mega|RAID '9460'=8;\ni`)
	for _, args := range [][]string{nil, {"--facts"}} {
		out, code := said(t, binary, append([]string{"check", "--from", h.save(t), "--data-dir", dir}, args...)...)
		require.Equal(t, 0, code, out)
		first, details, _ := strings.Cut(out, "\n")
		text, perf, ok := strings.Cut(first, " | ")
		require.True(t, ok, first)
		assert.NotContains(t, text, "|")
		assert.NotContains(t, details, "|", "behind a bar, plugins' later lines hold performance data too")
		data := regexp.MustCompile(`'[^']*'=\S+`).FindAllString(perf, -1)
		assert.Equal(t, strings.TrimSpace(perf), strings.Join(data, " "), "nothing but performance data")
		require.NotEmpty(t, data)
		for _, d := range data {
			m := perfdatum.FindStringSubmatch(d)
			if assert.NotNil(t, m, d) {
				_, err := strconv.ParseFloat(m[2], 64)
				assert.NoError(t, err, d)
			}
		}
	}
}

// A backup that wears is announced before it ends, by whoever keeps its history.
func TestHistoryOfWear(t *testing.T) {
	host := newRaidHost(t, "storcli-cachevault-healthy", "/data").save(t)
	file := filepath.Join(t.TempDir(), "wear")
	ask := func(args ...string) (string, int) {
		return said(t, binary, append([]string{"check", "--from", host, "--data-dir", "/data", "--history", file}, args...)...)
	}
	out, code := ask()
	require.Equal(t, 0, code, out)
	kept, err := os.ReadFile(file)
	require.NoError(t, err)
	now := string(kept)
	require.Equal(t, 1, strings.Count(now, "\n"), now)

	// The same unit some months ago, in the file's own form: each learn cycle finds less.
	stamp := regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:]+Z`).FindString(now)
	require.NotEmpty(t, stamp, now)
	older := ""
	for i, percent := range []string{"122", "114", "106"} {
		at := time.Now().UTC().AddDate(0, 0, -90*(3-i)).Format(time.RFC3339)
		older += strings.NewReplacer(stamp, at, "98", percent).Replace(now)
	}
	require.NoError(t, os.WriteFile(file, []byte(older), 0o600))
	out, code = ask("--capacity-limit", "90")
	require.Equal(t, 1, code, out)
	require.Regexp(t, `^WARNING - .*likely to turn itself off around \d{4}-\d\d-\d\d`, out)

	// Many at once lose no reading.
	before, err := os.ReadFile(file)
	require.NoError(t, err)
	var running []*exec.Cmd
	for range 6 {
		cmd := exec.Command(binary, "check", "--from", host, "--data-dir", "/data", "--history", file)
		require.NoError(t, cmd.Start())
		running = append(running, cmd)
	}
	for _, cmd := range running {
		_ = cmd.Wait() // 1, of the warning
		require.LessOrEqual(t, cmd.ProcessState.ExitCode(), 1)
		require.GreaterOrEqual(t, cmd.ProcessState.ExitCode(), 0)
	}
	after, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(string(after), string(before)))

	// A line that a crash cut short is made good for, and no other.
	require.NoError(t, os.WriteFile(file, []byte(older+now[:len(now)/2]), 0o600))
	out, code = ask()
	require.Equal(t, 1, code, out)
	left, err := os.ReadFile(file)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(left), older))
	require.Equal(t, 4, strings.Count(string(left), "\n"))

	// A line that is none is named, and nothing of the file is lost.
	for name, text := range map[string]string{"garbage": older + "garbage\n" + now, "somebody's last line": older + "milk, bread"} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		out, code = ask()
		require.Equal(t, 3, code, "%s: %s", name, out)
		require.Contains(t, out, file+":4", name)
		left, err := os.ReadFile(file)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(left), text), name)
	}
	file = t.TempDir()
	out, code = ask()
	require.Equal(t, 3, code, out)
	require.Contains(t, out, file)
}

// What was saved of a question gives the same answer later.
func TestSavedReportIsTheSame(t *testing.T) {
	for _, args := range [][]string{{"--data-dir", t.TempDir()}, {}} {
		dir := filepath.Join(t.TempDir(), "saved")
		live, code := said(t, binary, slices.Concat([]string{"check", "--json", "--save", dir}, args)...)
		again, codeAgain := said(t, binary, slices.Concat([]string{"check", "--json", "--from", dir}, args)...)
		assert.Equal(t, code, codeAgain)
		assert.JSONEq(t, live, again)
	}
}
