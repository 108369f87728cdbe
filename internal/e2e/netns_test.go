package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/ledger"
	"plugpull/internal/testserver"
	"plugpull/internal/testskip"
)

// netnsMachines numbers the namespaces of this process.
var netnsMachines atomic.Uint32

// ip runs iproute2.
func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// newNetnsMachine starts a server in a network namespace of its own, which loses
// its link before it is killed: as with a power cut no FIN and no RST is seen.
func newNetnsMachine(t testing.TB) *machine {
	t.Helper()
	if os.Getuid() != 0 {
		testskip.Skip(t, "needs root for a network namespace: run it as root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		testskip.Skip(t, "ip is missing: apt-get install iproute2")
	}
	removeLeftNetns(t)
	n := netnsMachines.Add(1)
	// Unique on this machine while the process lives.
	name := fmt.Sprintf("plugpull-e2e-%d-%d", os.Getpid(), n)
	outer, inner := fmt.Sprintf("pp%dx%d", os.Getpid(), n), "dut"
	if err := ip("netns", "add", name); err != nil {
		testskip.Skip(t, "cannot make a network namespace (a container without CAP_SYS_ADMIN?): %v", err)
	}
	t.Cleanup(func() {
		// The link by itself: the namespace lives on while orphaned sockets try to send in it.
		if err := errors.Join(ip("link", "del", outer), ip("netns", "del", name)); err != nil {
			t.Error(err)
		}
	})
	require.NoError(t, ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", name))
	here, there := freeSubnet(t, uint32(os.Getpid())*16+n)
	require.NoError(t, ip("addr", "add", here+"/30", "dev", outer))
	require.NoError(t, ip("link", "set", "dev", outer, "up"))
	require.NoError(t, ip("-n", name, "addr", "add", there+"/30", "dev", inner))
	require.NoError(t, ip("-n", name, "link", "set", "dev", "lo", "up"))
	require.NoError(t, ip("-n", name, "link", "set", "dev", inner, "up"))
	return machineIn(t, testserver.Options{Bind: there, Prefix: []string{"ip", "netns", "exec", name}},
		network{name, outer, inner})
}

// freeSubnet returns the two addresses of a /30 of 10.128.0.0/9 that no interface here has.
func freeSubnet(t testing.TB, seed uint32) (here, there string) {
	t.Helper()
	own, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for i := range uint32(64) {
		base := 10<<24 | 1<<23 | (seed+i*7919)%(1<<21)<<2
		addr := func(n uint32) net.IP { return net.IPv4(byte(n>>24), byte(n>>16), byte(n>>8), byte(n)) }
		used := false
		for _, a := range own {
			if other, ok := a.(*net.IPNet); ok {
				ones, bits := other.Mask.Size()
				used = used || ones != bits && other.Contains(addr(base+1))
			}
		}
		if !used {
			return addr(base + 1).String(), addr(base + 2).String()
		}
	}
	t.Fatal("no free subnet within 10.128.0.0/9")
	return "", ""
}

var netnsName = regexp.MustCompile(`^plugpull-e2e-(\d+)-(\d+)$`)

// removeLeftNetns removes the namespaces of test processes that are gone, with
// the servers in them.
func removeLeftNetns(t testing.TB) {
	t.Helper()
	found, err := filepath.Glob("/run/netns/plugpull-e2e-*")
	require.NoError(t, err)
	for _, path := range found {
		name := filepath.Base(path)
		m := netnsName.FindStringSubmatch(name)
		if m == nil {
			continue
		}
		owner, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		if syscall.Kill(owner, 0) == nil {
			continue // it lives, or its number was given to another process
		}
		out, err := exec.Command("ip", "netns", "pids", name).Output()
		if err != nil {
			continue // somebody else was faster
		}
		for _, pid := range strings.Fields(string(out)) {
			if n, err := strconv.Atoi(pid); err == nil {
				_ = syscall.Kill(n, syscall.SIGKILL)
			}
		}
		_ = ip("link", "del", fmt.Sprintf("pp%sx%s", m[1], m[2]))
		_ = ip("netns", "del", name)
	}
}

// TestCutWithoutReset makes 10 cuts in all: the link goes down in mid-load, the server is
// killed, and a server that flushes must never be accused.
func TestCutWithoutReset(t *testing.T) {
	cutsWithoutReset(t, map[string]int{"append": 4, "transfer": 3, "churn": 3})
}

func TestLongCutWithoutReset(t *testing.T) {
	long(t)
	cutsWithoutReset(t, map[string]int{"append": 34, "transfer": 33, "churn": 33})
}

// long skips a test that takes minutes.
func long(t testing.TB) {
	t.Helper()
	if os.Getenv("PLUGPULL_LONG") != "1" {
		testskip.Skip(t, "takes minutes: make test-long")
	}
}

func cutsWithoutReset(t *testing.T, cycles map[string]int) {
	for _, tt := range []struct {
		profile, attest, verdict, reason string
		code                             int
	}{
		{"append", "", "inconclusive", "process_crash", 3},
		{"transfer", "mains", "durable", "", 0},
		{"churn", "drive", "durable", "", 0},
	} {
		t.Run(tt.profile, func(t *testing.T) {
			t.Parallel()
			m := newNetnsMachine(t)
			n := cycles[tt.profile]
			seed := drawSeed(t)
			r := m.run(t, n, seed, m.scenario(tt.profile, tt.profile, "200ms..1500ms"), benchOpts{attest: tt.attest})
			require.Equal(t, tt.code, r.code, "seed %d\n%s\n%s", seed, r.stdout, r.stderr)
			s := r.one(t)
			assert.Equal(t, tt.verdict, s.Verdict)
			assert.Equal(t, tt.reason, s.Reason)
			assert.Zero(t, s.findings(), "seed %d: an honest server was accused", seed)
			assert.Positive(t, s.Commits.Acked)
			assert.Equal(t, tt.attest, s.Attested)
			if tt.attest == "" {
				assert.Equal(t, n, s.Cycles.Inconclusive)
			} else {
				assert.Equal(t, n, s.Cycles.Counted)
			}
			f := checkLedger(t, filepath.Join(s.Folder, "ledger"))
			assert.Equal(t, map[ledger.End]int{ledger.EndSilence: 4 * n}, f.ends, "seed %d: a cut sends neither FIN nor RST", seed)
			assert.Equal(t, n, m.count("off"))
			assert.Equal(t, "on", m.power("state"))
		})
	}
}

// drawSeed returns a seed that is printed with a failure; PLUGPULL_SEED repeats one.
func drawSeed(t testing.TB) uint64 {
	t.Helper()
	if s := os.Getenv("PLUGPULL_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
		return n
	}
	return rand.Uint64() >> 11
}
