package snmp

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"plugpull/internal/testskip"
	"plugpull/powerctl"
)

// program finds a program of Debian's packages snmpd and snmp.
func program(t testing.TB, name string) string {
	for _, dir := range []string{"/usr/sbin", "/usr/bin"} {
		if path := filepath.Join(dir, name); exec.Command("test", "-x", path).Run() == nil {
			return path
		}
	}
	testskip.Skip(t, "%s is missing: apt-get install snmpd snmp", name)
	return ""
}

// peerEnv makes the test binary the device behind snmpd: a folder with a file
// for each variable, "type\nvalue", and one more, "actions", with a line
// "variable value state-variable state-value" for each command.
const peerEnv = "PLUGPULL_TEST_SNMP_DEVICE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(peerEnv); dir != "" {
		passPersist(dir, os.Stdin, os.Stdout)
		return
	}
	os.Exit(m.Run())
}

// passPersist speaks snmpd's pass_persist protocol (snmpd.conf(5)).
func passPersist(dir string, in io.Reader, out io.Writer) {
	lines := bufio.NewScanner(in)
	next := func() string { lines.Scan(); return strings.TrimSpace(lines.Text()) }
	for lines.Scan() {
		switch strings.TrimSpace(lines.Text()) {
		case "PING":
			fmt.Fprintln(out, "PONG")
		case "get":
			variable(dir, next(), out)
		case "getnext":
			variable(dir, after(dir, next()), out)
		case "set":
			oid, value := next(), next()
			fmt.Fprintln(out, act(dir, oid, value))
		}
	}
}

func variable(dir, oid string, out io.Writer) {
	b, err := os.ReadFile(filepath.Join(dir, oid))
	if err != nil || oid == "" {
		fmt.Fprintln(out, "NONE")
		return
	}
	fmt.Fprintf(out, "%s\n%s\n", oid, b)
}

func after(dir, oid string) string {
	best := ""
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.Name() != "actions" && lessOID(oid, e.Name()) && (best == "" || lessOID(e.Name(), best)) {
			best = e.Name()
		}
	}
	return best
}

func act(dir, oid, value string) string {
	b, _ := os.ReadFile(filepath.Join(dir, "actions"))
	log, _ := os.OpenFile(filepath.Join(dir, "../sets"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	fmt.Fprintln(log, oid, value)
	log.Close()
	for _, line := range strings.Split(string(b), "\n") {
		w := strings.Fields(line)
		if len(w) == 4 && w[0] == oid && "integer "+w[1] == value {
			_ = os.WriteFile(filepath.Join(dir, w[2]), []byte("integer\n"+w[3]), 0o600)
			return "DONE"
		}
	}
	return "wrong-value"
}

// peer is a running snmpd that plays a device.
type peer struct {
	address, dir string
	cmd          *exec.Cmd
}

// peerDevices are written by hand from the MIBs, in snmpd's terms.
func peerDevices() map[string]struct{ object, index, variables, actions, off string } {
	return map[string]struct{ object, index, variables, actions, off string }{
		"apc-rpdu": {
			".1.3.6.1.4.1.318.1.3.4.5", "5", `
.1.3.6.1.4.1.318.1.1.12.1.5.0 string AP7921
.1.3.6.1.4.1.318.1.1.12.1.6.0 string ZA0712012345
.1.3.6.1.4.1.318.1.1.12.3.4.1.1.4.5 integer 0
.1.3.6.1.4.1.318.1.1.12.3.3.1.1.4.5 integer 1
.1.3.6.1.4.1.318.1.1.12.3.5.1.1.2.4 string mail
.1.3.6.1.4.1.318.1.1.12.3.5.1.1.2.5 string db1
.1.3.6.1.4.1.318.1.1.12.3.5.1.1.4.5 integer 1
.1.3.6.1.4.1.318.1.1.12.3.5.1.1.5.5 integer 2`, `
.1.3.6.1.4.1.318.1.1.12.3.3.1.1.4.5 1 .1.3.6.1.4.1.318.1.1.12.3.5.1.1.4.5 1
.1.3.6.1.4.1.318.1.1.12.3.3.1.1.4.5 2 .1.3.6.1.4.1.318.1.1.12.3.5.1.1.4.5 2`,
			".1.3.6.1.4.1.318.1.1.12.3.3.1.1.4.5 integer 2",
		},
		"apc-rpdu2": {
			".1.3.6.1.4.1.318.1.3.4.6", "17", `
.1.3.6.1.4.1.318.1.1.26.2.1.8.1 string AP8941
.1.3.6.1.4.1.318.1.1.26.2.1.9.1 string 5A1234E00001
.1.3.6.1.4.1.318.1.1.26.9.2.1.1.5.17 integer -1
.1.3.6.1.4.1.318.1.1.26.9.2.3.1.3.16 string mail
.1.3.6.1.4.1.318.1.1.26.9.2.3.1.3.17 string db1
.1.3.6.1.4.1.318.1.1.26.9.2.3.1.5.17 integer 2
.1.3.6.1.4.1.318.1.1.26.9.2.3.1.6.17 integer 2
.1.3.6.1.4.1.318.1.1.26.9.2.4.1.5.17 integer 1`, `
.1.3.6.1.4.1.318.1.1.26.9.2.4.1.5.17 1 .1.3.6.1.4.1.318.1.1.26.9.2.3.1.5.17 2
.1.3.6.1.4.1.318.1.1.26.9.2.4.1.5.17 2 .1.3.6.1.4.1.318.1.1.26.9.2.3.1.5.17 1`,
			".1.3.6.1.4.1.318.1.1.26.9.2.4.1.5.17 integer 2",
		},
		"eaton-epdu": {
			".1.3.6.1.4.1.534.6.6.7", "0.3", `
.1.3.6.1.4.1.534.6.6.7.1.2.1.2.0 string EPDU_MA_8
.1.3.6.1.4.1.534.6.6.7.1.2.1.4.0 string H848F28067
.1.3.6.1.4.1.534.6.6.7.6.1.1.3.0.2 string mail
.1.3.6.1.4.1.534.6.6.7.6.1.1.3.0.3 string db1
.1.3.6.1.4.1.534.6.6.7.6.6.1.2.0.3 integer 1
.1.3.6.1.4.1.534.6.6.7.6.6.1.3.0.3 integer -1
.1.3.6.1.4.1.534.6.6.7.6.6.1.4.0.3 integer -1
.1.3.6.1.4.1.534.6.6.7.6.6.1.6.0.3 integer 2`, `
.1.3.6.1.4.1.534.6.6.7.6.6.1.3.0.3 0 .1.3.6.1.4.1.534.6.6.7.6.6.1.2.0.3 0
.1.3.6.1.4.1.534.6.6.7.6.6.1.4.0.3 0 .1.3.6.1.4.1.534.6.6.7.6.6.1.2.0.3 1`,
			".1.3.6.1.4.1.534.6.6.7.6.6.1.3.0.3 integer 0",
		},
	}
}

func startSnmpd(t *testing.T, profile string) *peer {
	snmpd := program(t, "snmpd")
	d := peerDevices()[profile]
	root := t.TempDir()
	p := &peer{dir: filepath.Join(root, "device")}
	require.NoError(t, os.Mkdir(p.dir, 0o700))
	for _, line := range strings.Split(strings.TrimSpace(d.variables), "\n") {
		w := strings.Fields(line)
		require.NoError(t, os.WriteFile(filepath.Join(p.dir, w[0]), []byte(w[1]+"\n"+w[2]), 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(p.dir, "actions"), []byte(d.actions), 0o600))
	free, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	p.address = free.LocalAddr().String()
	free.Close()
	enterprise := strings.Join(strings.Split(d.object, ".")[:8], ".")
	conf := filepath.Join(root, "conf")
	require.NoError(t, os.WriteFile(conf, []byte("agentaddress udp:"+p.address+"\nsysobjectid "+d.object+
		"\nrwcommunity "+community+" 127.0.0.1\nrocommunity readonly 127.0.0.1\ncreateUser tester SHA "+authPass+" AES "+privPass+
		"\nrwuser tester authpriv\ncreateUser watcher SHA "+authPass+" AES "+privPass+"\nrouser watcher authpriv"+
		"\npass_persist "+enterprise+" "+os.Args[0]+"\n"), 0o600))
	p.cmd = exec.Command(snmpd, "-f", "-C", "-c", conf, "-p", filepath.Join(root, "pid"), "-r", "-Lf", filepath.Join(root, "log"))
	p.cmd.Env = append(os.Environ(), peerEnv+"="+p.dir, "SNMP_PERSISTENT_DIR="+filepath.Join(root, "persistent"))
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	require.NoError(t, p.cmd.Start())
	t.Cleanup(p.kill)
	require.Eventually(t, func() bool {
		o := outlet(t, p.config(t, profile, V2c))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := o.State(ctx)
		return err == nil && r.State != powerctl.Unknown
	}, limit, 20*time.Millisecond)
	return p
}

// kill ends snmpd and the device behind it.
func (p *peer) kill() {
	if p.cmd.ProcessState == nil {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		_ = p.cmd.Wait()
	}
}

func (p *peer) config(t *testing.T, profile string, v Version) Config {
	return config(t, spec{profile: profile, index: peerDevices()[profile].index}, p.address, v)
}

func (p *peer) sets(t *testing.T) []string {
	b, err := os.ReadFile(filepath.Join(p.dir, "../sets"))
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

var patient = powerctl.Policy{Deadline: limit, Poll: 5 * time.Millisecond}

func TestAgainstSnmpd(t *testing.T) {
	for profile := range peerDevices() {
		t.Run(profile, func(t *testing.T) {
			p := startSnmpd(t, profile)
			for _, v := range versions() {
				for _, change := range []func(*Config){nil, func(c *Config) { c.Profile = Auto }, func(c *Config) { c.Index, c.Name = "", "db1" }} {
					c := p.config(t, profile, v)
					if change != nil {
						change(&c)
					}
					o := outlet(t, c)
					id, err := o.Identify(t.Context())
					require.NoError(t, err)
					require.Equal(t, peerDevices()[profile].index+" db1", id.Name)
					require.Regexp(t, `^serial \w{10,} model \w+$`, id.Device)
					before := len(p.sets(t))
					res, err := powerctl.SwitchOff(t.Context(), o, patient)
					require.NoError(t, err)
					require.True(t, res.IsOff())
					require.Equal(t, powerctl.On, res.Before)
					require.NotZero(t, res.Acknowledged)
					require.Equal(t, peerDevices()[profile].off, p.sets(t)[len(p.sets(t))-1])
					res, err = powerctl.SwitchOn(t.Context(), o, patient)
					require.NoError(t, err)
					require.True(t, res.IsOn())
					if before > 1 {
						require.Len(t, p.sets(t), before+2, "each command once")
					}
				}
			}
			o := outlet(t, p.config(t, profile, V3))
			warnings, err := o.Warnings(t.Context())
			require.NoError(t, err)
			require.Len(t, warnings, map[string]int{"apc-rpdu": 1}[profile])
			pins, err := o.Pins(t.Context())
			require.NoError(t, err)
			require.Equal(t, "db1", pins["outlet_name"])
			require.Equal(t, powerctl.TriedPeer, o.Capabilities().Tried)
			rejected(t, p, profile)
			killedInBetween(t, p, profile)
		})
	}
}

// rejected: snmpd refuses a SET of a community or user that may only read.
func rejected(t *testing.T, p *peer, profile string) {
	before := p.sets(t)
	for _, v := range versions() {
		c := p.config(t, profile, v)
		c.Community, c.User.Name = powerctl.NewSecret("readonly"), "watcher"
		o := outlet(t, c)
		res, err := powerctl.SwitchOff(t.Context(), o, powerctl.Policy{Deadline: 50 * time.Millisecond, Poll: 5 * time.Millisecond})
		var status *StatusError
		require.ErrorAs(t, err, &status, "v%s", v)
		require.ErrorIs(t, err, powerctl.ErrNotReached)
		require.False(t, res.IsOff())
		require.Zero(t, res.Acknowledged)
		res, err = o.State(t.Context())
		require.NoError(t, err)
		require.True(t, res.IsOn())
	}
	c := p.config(t, profile, V3)
	c.User.AuthPass = powerctl.NewSecret("not the passphrase")
	_, err := outlet(t, c).Off(t.Context())
	require.ErrorIs(t, err, powerctl.ErrNotSent)
	require.Equal(t, before, p.sets(t))
}

// dying kills snmpd once the command was acknowledged.
type dying struct {
	*Outlet
	p *peer
}

func (d dying) Off(ctx context.Context) (powerctl.Result, error) {
	res, err := d.Outlet.Off(ctx)
	d.p.kill()
	return res, err
}

func killedInBetween(t *testing.T, p *peer, profile string) {
	o := dying{outlet(t, p.config(t, profile, V2c)), p}
	res, err := powerctl.SwitchOff(t.Context(), o, powerctl.Policy{Deadline: 100 * time.Millisecond, Poll: 5 * time.Millisecond})
	require.ErrorIs(t, err, powerctl.ErrNotReached)
	require.NotZero(t, res.Acknowledged)
	require.False(t, res.IsOff(), "it is off, and nobody has seen it")
	require.Equal(t, powerctl.Unknown, res.State)
}

// TestSimulatorAgainstNetSNMP holds our simulated device against the view of
// somebody else's client.
func TestSimulatorAgainstNetSNMP(t *testing.T) {
	get, set, walk := program(t, "snmpget"), program(t, "snmpset"), program(t, "snmpwalk")
	for _, v := range versions() {
		for _, sp := range specs()[:3] {
			t.Run(sp.profile+"/v"+string(v), func(t *testing.T) {
				a := startAgent(t, sp)
				args := []string{"-v" + string(v), "-c", community, "-On", "-m", "", "-t", "20", "-r", "0", a.address()}
				if v == V3 {
					args = slices.Concat([]string{"-v3", "-u", "tester", "-l", "authPriv", "-a", "SHA", "-A", authPass, "-x", "AES", "-X", privPass}, args[3:])
				}
				run := func(name string, more ...string) (string, error) {
					c := exec.CommandContext(t.Context(), name, slices.Concat(args, more)...)
					c.Env = append(os.Environ(), "SNMP_PERSISTENT_DIR="+t.TempDir())
					var stdout, stderr bytes.Buffer
					c.Stdout, c.Stderr = &stdout, &stderr
					err := c.Run()
					if err != nil {
						stdout.Write(stderr.Bytes())
					}
					return strings.TrimSpace(stdout.String()), err
				}
				out, err := run(get, sp.state, sp.name, sysObjectID)
				require.NoError(t, err, out)
				require.Equal(t, fmt.Sprintf("%s = INTEGER: %d\n%s = STRING: \"db1 psu a\"\n%s = OID: %s", sp.state, sp.values[powerctl.On], sp.name, sysObjectID, sp.object), out)
				out, err = run(set, sp.off.oid, "i", fmt.Sprint(sp.off.n))
				require.NoError(t, err, out)
				require.Equal(t, []powerctl.State{powerctl.Off}, a.d.Commands())
				out, err = run(get, sp.state)
				require.NoError(t, err, out)
				require.Contains(t, out, fmt.Sprintf("INTEGER: %d", sp.values[powerctl.Off]))
				out, err = run(walk, sp.object[:len(".1.3.6.1.4.1.")]+strings.Split(sp.object, ".")[7])
				require.NoError(t, err, out)
				require.Contains(t, out, "ZA4711")
				a.d.Plant("lost command")
				out, err = run(set, sp.on.oid, "i", fmt.Sprint(sp.on.n))
				require.Error(t, err)
				require.Contains(t, out, "genError")
			})
		}
	}
}
