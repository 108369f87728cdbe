package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/testskip"
)

const bmcGUID = "a1b2c3d4e5f60718293a4b5c6d7e8f90"

// bmc starts OpenIPMI's simulated BMC, whose chassis is the machine, and writes a bench file that
// names it. The wire between the two is nobody's of this project.
func (m *machine) bmc(pin string) (bench string) {
	m.t.Helper()
	program := testskip.Program(m.t, "ipmi_sim", "openipmi")
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(m.t, err)
	port := c.LocalAddr().(*net.UDPAddr).Port
	require.NoError(m.t, c.Close())
	m.write("lan.conf", fmt.Sprintf(`name "e2e"
set_working_mc 0x20
  startlan 1
    addr 127.0.0.1 %d
    priv_limit admin
    allowed_auths_admin none md5
    guid %s
  endlan
  chassis_control "%s/chassis 0x20"
  user 2 true "lab" "%s" admin 10 none md5
`, port, bmcGUID, m.dir, password))
	m.write("sim.emu", "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02\nmc_set_guid 0x20 "+bmcGUID+"\nmc_enable 0x20\n")
	m.write("chassis", fmt.Sprintf(`#!/bin/bash
case "$2 $3 $4" in
"get power ") case $(bash %[1]q %[2]q state) in on) echo power:1 ;; off) echo power:0 ;; *) exit 1 ;; esac ;;
"set power 0") bash %[1]q %[2]q off ;;
"set power 1") bash %[1]q %[2]q on ;;
*) exit 1 ;;
esac
`, m.script, m.dir))
	require.NoError(m.t, os.Chmod(filepath.Join(m.dir, "chassis"), 0o700))
	state := m.t.TempDir()
	cmd := exec.Command(program, "-c", filepath.Join(m.dir, "lan.conf"), "-f", filepath.Join(m.dir, "sim.emu"), "-s", state, "-n")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	require.NoError(m.t, cmd.Start())
	m.t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	m.write("bmc-bench.yaml", fmt.Sprintf(`bench: bmc
kind: lab
database: {dsn: %q, password_file: password}
outlet:
  driver: ipmi
  name: %q
  address: 127.0.0.1:%d
  user: lab
  password_file: password
  cipher: 3
  pin: {guid: %s}
attest: drive
timing: {silence: 1s, off_deadline: 10s, min_off: 100ms, server_wait: 30s}
`, dsn(m.server, "plugpull"), "bmc of "+filepath.Base(m.dir), port, pin))
	return filepath.Join(m.dir, "bmc-bench.yaml")
}

// TestRunThroughABMC: real cuts by IPMI, with an independent BMC in between.
func TestRunThroughABMC(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	bench := m.bmc(bmcGUID)
	require.Eventually(t, func() bool {
		_, _, code := plugpull(t, nil, "power", "status", bench)
		return code == 0
	}, limit, 200*time.Millisecond)
	out, errs, code := plugpull(t, nil, "power", "identify", bench)
	require.Zero(t, code, errs)
	require.Contains(t, strings.ReplaceAll(out, "-", ""), bmcGUID)

	r := finish(t, start(t, nil, "run", m.scenario("by-bmc", "append", "200ms..300ms"), "--bench", bench, "--cycles", "2", "--out", t.TempDir(), "--json"), limit)
	require.Zero(t, r.code, r.stderr)
	s := r.one(t)
	assert.Equal(t, "durable", s.Verdict)
	assert.Equal(t, 2, s.Cycles.Counted)
	assert.Equal(t, 2, m.count("off"))
	assert.NotContains(t, r.stdout+r.stderr, password)
	b, err := os.ReadFile(filepath.Join(s.Folder, "cycles/0001/cycle.json"))
	require.NoError(t, err)
	assert.Contains(t, string(b), `"class": "chassis"`)
	assert.Contains(t, string(b), `"driver": "ipmi"`)
}

// TestWrongBMC: the pin keeps another machine's power on.
func TestWrongBMC(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	bench := m.bmc("00112233445566778899aabbccddeeff")
	require.Eventually(t, func() bool {
		_, errs, code := plugpull(t, nil, "power", "off", bench)
		return code == 4 && strings.Contains(errs, "wrong device: the pinned guid is")
	}, limit, 200*time.Millisecond)
	require.Zero(t, m.count("off"))
	require.Equal(t, "on", m.power("state"))
}
