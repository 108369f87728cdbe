package ipmi

import (
	"bufio"
	"context"
	"fmt"
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
	"plugpull/powerctl/powertest"
)

// chassisScript is what ipmi_sim calls for the power. It asks the simulated
// device through a named pipe and has the answer from one of its own.
const chassisScript = `#!/bin/sh
cd "${0%/*}" && mkfifo "answer.$$" && echo "$2 $3 $4 $$" >ask && read -r code <"answer.$$" || exit 99
cat "print.$$"
exit "$code"
`

const lanConf = `name "plugpull"
set_working_mc 0x20
  startlan 1
    addr 127.0.0.1 %d
    priv_limit admin
    allowed_auths_callback none md5
    allowed_auths_user none md5
    allowed_auths_operator none md5
    allowed_auths_admin none md5
    guid %[2]x
  endlan
  chassis_control "%s/chassis 0x20"
  user 1 true "" "" user 10 none md5
  user 2 true "%s" "%s" admin 10 none md5
`

const simEmu = `mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02
mc_set_guid 0x20 %x
mc_add_fru_data 0x20 0 %d data%s
mc_enable 0x20
`

// openIPMI is OpenIPMI's simulated BMC: nobody of this project wrote its wire.
type openIPMI struct {
	device *powertest.Device
	port   int
	kill   func()
}

func startOpenIPMI(t testing.TB) *openIPMI {
	program := testskip.Program(t, "ipmi_sim", "openipmi")
	dir := t.TempDir()
	o := &openIPMI{device: powertest.NewDevice(), port: freePort(t)}
	serveScript(t, dir, o.device)
	var fru strings.Builder
	for _, b := range simFRU(simSerial) {
		fmt.Fprintf(&fru, " %#02x", b)
	}
	files := map[string]string{
		"lan.conf": fmt.Sprintf(lanConf, o.port, simGUID, dir, simUser, simPassword),
		"sim.emu":  fmt.Sprintf(simEmu, simGUID, len(simFRU(simSerial)), fru.String()),
		"chassis":  chassisScript,
	}
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700))
	}
	state := filepath.Join(dir, "state")
	require.NoError(t, os.Mkdir(state, 0o700))
	cmd := exec.Command(program, "-c", filepath.Join(dir, "lan.conf"), "-f", filepath.Join(dir, "sim.emu"), "-s", state, "-n")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	o.kill = func() {
		if cmd.ProcessState == nil {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			_ = cmd.Wait()
		}
	}
	t.Cleanup(o.kill)
	// One that gives up soon: what reaches ipmi_sim before it listens is never answered.
	outlet := o.outlet(t, func(c *Config) { c.Pin, c.Timeout = Pin{}, 2*time.Second })
	require.Eventually(t, func() bool { _, err := outlet.Identify(t.Context()); return err == nil }, time.Minute, 10*time.Millisecond)
	return o
}

func freePort(t testing.TB) int {
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).Port
}

// serveScript answers the chassis script until the test ends.
func serveScript(t testing.TB, dir string, d *powertest.Device) {
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "ask"), 0o600))
	ask, err := os.OpenFile(filepath.Join(dir, "ask"), os.O_RDWR|syscall.O_NONBLOCK, 0)
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(ask); lines.Scan(); {
			words := strings.Fields(lines.Text())
			text, code := chassisAnswer(words, d)
			pid := words[len(words)-1]
			if os.WriteFile(filepath.Join(dir, "print."+pid), []byte(text), 0o600) != nil {
				return
			}
			to, err := os.OpenFile(filepath.Join(dir, "answer."+pid), os.O_RDWR, 0)
			if err != nil {
				return
			}
			defer to.Close() // stays open: the script may not have opened its end yet
			_, _ = to.WriteString(code)
		}
	}()
	t.Cleanup(func() { ask.Close(); <-done })
}

func chassisAnswer(words []string, d *powertest.Device) (text, code string) {
	var a powertest.Answer
	switch strings.Join(words[:len(words)-1], " ") {
	case "get power":
		a = d.Read()
		text = map[powerctl.State]string{powerctl.On: "power:1\n", powerctl.Off: "power:0\n"}[a.State]
	case "set power 0":
		a = d.Switch(powerctl.Off)
	case "set power 1":
		a = d.Switch(powerctl.On)
	}
	if a.Failed || a.Garbage > 0 || a.State == powerctl.Fault {
		return "", "1\n"
	}
	return text, "0\n"
}

func (o *openIPMI) outlet(t testing.TB, change func(*Config)) *Outlet {
	c := Config{
		Name: "server 7", Address: fmt.Sprintf("127.0.0.1:%d", o.port), User: simUser, Password: powerctl.NewSecret(simPassword),
		CipherSuite: SHA1, Timeout: time.Minute, Pin: Pin{GUID: simGUIDText, Serial: simSerial},
	}
	if change != nil {
		change(&c)
	}
	out, err := New(c)
	require.NoError(t, err)
	return out
}

// ipmitool runs the other client of IPMI.
func ipmitool(t testing.TB, port int, suite CipherSuite, args ...string) string {
	t.Helper()
	program := testskip.Program(t, "ipmitool", "ipmitool")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	base := []string{"-I", "lanplus", "-H", "127.0.0.1", "-p", fmt.Sprint(port), "-U", simUser, "-P", simPassword, "-C", fmt.Sprint(suite)}
	out, err := exec.CommandContext(ctx, program, append(base, args...)...).CombinedOutput()
	require.NoError(t, err, "ipmitool %v: %s", args, out)
	return strings.ToLower(string(out))
}

func TestConformanceAgainstOpenIPMI(t *testing.T) {
	testskip.Program(t, "ipmi_sim", "openipmi")
	t.Parallel()
	powertest.Run(t, func(t *testing.T) powertest.Harness {
		o := startOpenIPMI(t)
		return powertest.Harness{
			Outlet: o.outlet(t, nil), Device: o.device,
			Policy:   powerctl.Policy{Deadline: time.Minute, Poll: 5 * time.Millisecond},
			Patience: 100 * time.Millisecond,
			// A script can neither lie about a reading nor leave it unanswered without
			// stopping the whole of ipmi_sim.
			Faults: []powertest.Fault{
				powertest.None, powertest.StaleReads, powertest.FailedReads, powertest.StuckOn, powertest.StuckOff,
				powertest.LostReply, powertest.LostCommand,
			},
		}
	})
}

func TestAgreesWithIpmitoolOnOpenIPMI(t *testing.T) {
	testskip.Program(t, "ipmitool", "ipmitool")
	t.Parallel()
	sim := startOpenIPMI(t)
	o := sim.outlet(t, nil)
	agree(t, o, sim.device, sim.port, SHA1)

	pins, err := o.Pins(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]string{"guid": simGUIDText, "serial": simSerial}, pins)
	// Its watchdog takes no action that could switch, and its answer lacks the present countdown.
	warnings, err := o.Warnings(t.Context())
	require.NoError(t, err)
	require.False(t, slices.ContainsFunc(warnings, func(w powerctl.Warning) bool { return strings.Contains(w.Text, "watchdog") }), "%v", warnings)
}

// TestSimulatorTalksToIpmitool: the project's own simulator, and so suite 17,
// which ipmi_sim does not have, is not merely the driver's mirror image.
func TestSimulatorTalksToIpmitool(t *testing.T) {
	testskip.Program(t, "ipmitool", "ipmitool")
	t.Parallel()
	for _, suite := range []CipherSuite{SHA1, SHA256} {
		t.Run(fmt.Sprintf("suite %d", suite), func(t *testing.T) {
			t.Parallel()
			b := startBMC(t, suite)
			o, port := b.outlet(t, nil), b.conn.LocalAddr().(*net.UDPAddr).Port
			agree(t, o, b.device, port, suite)

			b.change(func(b *bmc) { b.watchdog = []byte{0x44, 3, 0, 0, 0x70, 0x17, 0x70, 0x17} })
			require.Regexp(t, `is:\s+started/running\s(?s:.*) action:\s+power cycle `, ipmitool(t, port, suite, "mc", "watchdog", "get"))
			warnings, err := o.Warnings(t.Context())
			require.NoError(t, err)
			require.Len(t, warnings, 1)
			require.True(t, warnings[0].Switches)
		})
	}
}

func agree(t *testing.T, o *Outlet, d *powertest.Device, port int, suite CipherSuite) {
	id, err := o.Identify(t.Context())
	require.NoError(t, err)
	require.Contains(t, id.Device, "guid "+simGUIDText+" serial "+simSerial+" ")
	require.Contains(t, strings.ReplaceAll(ipmitool(t, port, suite, "mc", "guid"), "-", ""), bareGUID(simGUIDText))
	require.Contains(t, ipmitool(t, port, suite, "fru", "print", "0"), strings.ToLower(simSerial))
	require.Contains(t, ipmitool(t, port, suite, "mc", "info"), productOf(t, id.Device))

	long := powerctl.Policy{Deadline: time.Minute, Poll: 5 * time.Millisecond}
	for range 2 {
		res, err := powerctl.SwitchOff(t.Context(), o, long)
		require.NoError(t, err)
		require.True(t, res.IsOff())
		require.Contains(t, ipmitool(t, port, suite, "power", "status"), "chassis power is off")
		require.Equal(t, powerctl.Off, d.Contacts())
		_, err = powerctl.SwitchOn(t.Context(), o, long)
		require.NoError(t, err)
		require.Contains(t, ipmitool(t, port, suite, "power", "status"), "chassis power is on")
	}
	ipmitool(t, port, suite, "power", "off")
	res, err := o.State(t.Context())
	require.NoError(t, err)
	require.True(t, res.IsOff())
}

// productOf returns the line in which ipmitool shows a product's number.
func productOf(t *testing.T, device string) string {
	_, number, ok := strings.Cut(device, " product ")
	require.True(t, ok, device)
	return "product id                : " + number
}

func TestOpenIPMIWrongPassword(t *testing.T) {
	t.Parallel()
	sim := startOpenIPMI(t)
	_, err := sim.outlet(t, func(c *Config) { c.Password = powerctl.NewSecret("hunter2") }).Off(t.Context())
	require.ErrorIs(t, err, ErrAuthentication)
	require.ErrorIs(t, err, powerctl.ErrNotSent)
	requireNoSecret(t, err)
	require.Empty(t, sim.device.Commands())
}

// killedAfterOff loses its BMC once the off has been acknowledged.
type killedAfterOff struct {
	*Outlet
	kill func()
}

func (k killedAfterOff) Off(ctx context.Context) (powerctl.Result, error) {
	defer k.kill()
	return k.Outlet.Off(ctx)
}

func TestOpenIPMIKilledBeforeTheReadBack(t *testing.T) {
	t.Parallel()
	sim := startOpenIPMI(t)
	res, err := powerctl.SwitchOff(t.Context(), killedAfterOff{sim.outlet(t, nil), sim.kill}, policy())
	require.ErrorIs(t, err, powerctl.ErrNotReached)
	require.NotZero(t, res.Acknowledged)
	require.False(t, res.IsOff())
	require.Equal(t, powerctl.On, res.Before)
	require.Equal(t, powerctl.Off, sim.device.Contacts(), "it was off, and nobody could know")
}
