package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"plugpull/internal/testserver"
	"plugpull/internal/testskip"
)

// machine is a throw-away machine under test: a server whose power an exec outlet
// switches by testdata/power.sh. What is to go wrong is a file in dir.
type machine struct {
	t      testing.TB
	dir    string
	script string
	server *testserver.Server // its first life; later ones are the script's
}

// newMachine starts a server whose power cut is a kill -9.
func newMachine(t testing.TB) *machine { return machineIn(t, testserver.Options{}, network{}) }

// network is a machine's network namespace and the ends of the link to it.
type network struct{ netns, outer, inner string }

// machineIn starts the machine in its network, if it has one of its own.
func machineIn(t testing.TB, opts testserver.Options, n network) *machine {
	t.Helper()
	if _, err := exec.LookPath("bash"); err != nil {
		testskip.Skip(t, "bash is missing; it runs the outlet of this test")
	}
	script, err := filepath.Abs("testdata/power.sh")
	require.NoError(t, err)
	s := serverWith(t, opts)
	m := &machine{t: t, dir: t.TempDir(), script: script, server: s}
	bind := opts.Bind
	if bind == "" {
		bind = "127.0.0.1"
	}
	m.write("conf", fmt.Sprintf("netns=%s outer=%s link=%s datadir=%s socket=%s bind=%s port=%d keep=%s\n",
		n.netns, n.outer, n.inner, s.Datadir(), s.Socket(), bind, s.Port(), os.Getenv("PLUGPULL_LONG")))
	m.write("base.sql", "CREATE USER IF NOT EXISTS 'plugpull'@'%' IDENTIFIED BY '"+password+"';\n"+grant+";\n")
	m.write("pid", strconv.Itoa(s.PID())+"\n")
	m.write("relay", "")
	m.write("password", password+"\n")
	m.guard()
	return m
}

// guard has the machine taken away when the test ends, and also when this process
// is killed before.
func (m *machine) guard() {
	c := exec.Command("bash", m.script, m.dir, "guard", strconv.Itoa(os.Getpid()))
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(m.t, c.Start())
	m.t.Cleanup(func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		_ = c.Wait()
		if log, err := os.ReadFile(filepath.Join(m.dir, "log")); err == nil && m.t.Failed() {
			m.t.Logf("the end of the server's log:\n%s", log[max(0, len(log)-4000):])
		}
		m.write("dead", "") // the guard of a plugpull that was killed switches it on, and it must not start again
		m.power("off", "off-fails", "off-ignored", "off-late", "slow")
		m.keepEvidence()
	})
}

// keepEvidence copies everything of a test that failed, its runs' folders and the server's data
// included: an honest server that looks lossy is held against plugpull first.
func (m *machine) keepEvidence() {
	if !m.t.Failed() {
		return
	}
	to, err := os.MkdirTemp("", "plugpull-evidence-")
	if err == nil {
		err = exec.Command("cp", "-a", filepath.Dir(m.dir), filepath.Dir(m.server.Datadir()), to).Run()
	}
	m.t.Logf("everything of this test is kept in %s (%v)", to, err)
}

// power calls the outlet's script, after taking the given faults away.
func (m *machine) power(op string, without ...string) string {
	for _, f := range without {
		m.remove(f)
	}
	out, err := exec.Command("bash", m.script, m.dir, op).CombinedOutput()
	if err != nil {
		m.t.Errorf("power.sh %s: %v\n%s", op, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (m *machine) write(name, text string) {
	m.t.Helper()
	require.NoError(m.t, os.WriteFile(filepath.Join(m.dir, name), []byte(text), 0o600))
}

func (m *machine) remove(name string) { _ = os.Remove(filepath.Join(m.dir, name)) }

// count is how often the outlet was told off, or on.
func (m *machine) count(op string) int {
	b, _ := os.ReadFile(filepath.Join(m.dir, op+".count"))
	return strings.Count(string(b), "\n")
}

// benchOpts vary a bench file. The zero value attests nothing and leaves the outlet on.
type benchOpts struct {
	attest, leave string
	offDeadline   string
	serverWait    string
	minOff        string
	silence       string
	noState       bool
	manual        bool
}

// bench writes a bench file.
func (m *machine) bench(o benchOpts) string {
	m.t.Helper()
	or := func(s, otherwise string) string {
		if s == "" {
			return otherwise
		}
		return s
	}
	var b strings.Builder
	fmt.Fprintf(&b, "bench: throw-away\nkind: lab\ndatabase:\n  dsn: %s\n  password_file: password\n", dsn(m.server, "plugpull"))
	// The name is part of the outlet's lock: tests of several processes must not share one.
	name := filepath.Base(filepath.Dir(m.dir))
	fmt.Fprintf(&b, "outlet:\n  class: mains\n  leave: %q\n  name: relay of %s\n", or(o.leave, "on"), name[max(0, len(name)-60):])
	if o.manual {
		fmt.Fprintf(&b, "  driver: manual\n")
	} else {
		fmt.Fprintf(&b, "  driver: exec\n  timeout: 10s\n")
		for _, op := range []string{"off", "on", "state", "identify"} {
			if op != "state" || !o.noState {
				fmt.Fprintf(&b, "  %s: [bash, %q, %q, %q]\n", op, m.script, m.dir, op)
			}
		}
	}
	if o.attest != "" {
		fmt.Fprintf(&b, "attest: %s\n", o.attest)
	}
	fmt.Fprintf(&b, "timing:\n  silence: %s\n  off_deadline: %s\n  min_off: %s\n  server_wait: %s\n",
		or(o.silence, "1s"), or(o.offDeadline, "5s"), or(o.minOff, "100ms"), or(o.serverWait, "30s"))
	f, err := os.CreateTemp(m.dir, "bench-*.yaml")
	require.NoError(m.t, err)
	_, err = f.WriteString(b.String())
	require.NoError(m.t, err)
	require.NoError(m.t, f.Close())
	return f.Name()
}

// scenario writes a scenario file that cuts after a time drawn from a span.
func (m *machine) scenario(name, profile, after string, more ...string) string {
	m.t.Helper()
	text := fmt.Sprintf("scenario: %s\nsummary: a test\nexpect: durable\nbench: [lab]\nload:\n  profile: %s\n  streams: 4\n", name, profile)
	if profile == "churn" {
		text += "  window: 16\n"
	}
	text += fmt.Sprintf("cut:\n  after: %s\ncycles: 3\n", after)
	for _, s := range more {
		text += s + "\n"
	}
	m.write(name+".yaml", text)
	return filepath.Join(m.dir, name+".yaml")
}

// summary is what the tests read of a line of --json.
type summary struct {
	Run, Scenario, Verdict, Reason, Expected, Attested string
	Seed                                               uint64
	Cycles                                             struct{ Planned, Counted, Inconclusive, Interrupted, Lossy int }
	Commits                                            struct{ Acked, Refused, Unknown uint64 }
	Findings                                           map[string]uint64
	Folder                                             string
}

func (s summary) findings() (n uint64) {
	for _, v := range s.Findings {
		n += v
	}
	return n
}

// summaries parses the lines of --json.
func summaries(t testing.TB, stdout string) []summary {
	t.Helper()
	var all []summary
	for line := range strings.Lines(stdout) {
		var s summary
		require.NoError(t, json.Unmarshal([]byte(line), &s), "line %q", line)
		all = append(all, s)
	}
	return all
}

// ran is a plugpull run that has ended.
type ran struct {
	stdout, stderr string
	code           int
}

// run runs one scenario to its end, in a folder of its own.
func (m *machine) run(t testing.TB, cycles int, seed uint64, scenario string, o benchOpts, more ...string) ran {
	t.Helper()
	args := append([]string{"run", scenario, "--bench", m.bench(o), "--cycles", strconv.Itoa(cycles),
		"--seed", strconv.FormatUint(seed, 10), "--out", t.TempDir(), "--json"}, more...)
	return finish(t, start(t, nil, args...), time.Duration(cycles)*10*time.Second)
}

// resume carries a run on to its end.
func resume(t testing.TB, folder string, more ...string) ran {
	t.Helper()
	return finish(t, start(t, nil, append([]string{"run", "--resume", folder, "--json"}, more...)...), 0)
}

// finish waits for a process, for at most limit and more.
func finish(t testing.TB, p *proc, more time.Duration) ran {
	t.Helper()
	timer := time.NewTimer(more)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
	}
	code := p.wait(t)
	return ran{p.out.String(), p.err.String(), code}
}

// one returns the only line of --json.
func (r ran) one(t testing.TB) summary {
	t.Helper()
	all := summaries(t, r.stdout)
	require.Len(t, all, 1, "stderr: %s", r.stderr)
	return all[0]
}
