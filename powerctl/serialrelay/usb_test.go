package serialrelay

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// sysfs builds the part of /sys that serial ports have: a USB device, its
// interface, the serial port in it and the links to that.
func sysfs(t *testing.T, ports map[string][3]string) string {
	root := t.TempDir()
	minor := 0
	for _, tty := range []string{"ttyUSB0", "ttyUSB1"} {
		p, ok := ports[tty]
		if !ok {
			continue
		}
		device := filepath.Join(root, "devices/pci0/usb1", p[0])
		serial := filepath.Join(device, p[0]+":1.0", tty)
		node := filepath.Join(serial, "tty", tty)
		require.NoError(t, os.MkdirAll(node, 0o755))
		for name, text := range map[string]string{"idVendor": "1a86", "idProduct": p[1], "serial": p[2]} {
			if text != "" {
				require.NoError(t, os.WriteFile(filepath.Join(device, name), []byte(text+"\n"), 0o644))
			}
		}
		require.NoError(t, os.Symlink(serial, filepath.Join(node, "device")))
		for dir, name := range map[string]string{"class/tty": tty, "dev/char": []string{"188:0", "188:1"}[minor]} {
			require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
			require.NoError(t, os.Symlink(node, filepath.Join(root, dir, name)))
		}
		minor++
	}
	return root
}

func TestPortID(t *testing.T) {
	dev := func(minor uint32) uint64 { return unix.Mkdev(188, minor) }
	root := sysfs(t, map[string][3]string{"ttyUSB0": {"1-1.4", "7523", ""}, "ttyUSB1": {"1-2", "55d4", "5A4B"}})
	for name, c := range map[string]struct {
		dev  uint64
		want string
	}{
		"no serial number: the plug": {dev(0), "usb 1a86:7523 at port 1-1.4"},
		"serial number":              {dev(1), "usb 1a86:55d4 serial 5A4B"},
		"no USB":                     {dev(7), "port /dev/ttyS0"},
	} {
		id, err := portID(root, "/dev/ttyS0", c.dev)
		require.NoError(t, err, name)
		require.Equal(t, c.want, id, name)
	}

	twins := sysfs(t, map[string][3]string{"ttyUSB0": {"1-1", "7523", "0001"}, "ttyUSB1": {"1-2", "7523", "0001"}})
	_, err := portID(twins, "/dev/ttyUSB0", dev(0))
	require.ErrorIs(t, err, ErrAmbiguous)

	blank := sysfs(t, map[string][3]string{"ttyUSB0": {"1-1", "7523", ""}, "ttyUSB1": {"1-2", "7523", ""}})
	one, err := portID(blank, "", dev(0))
	require.NoError(t, err)
	two, err := portID(blank, "", dev(1))
	require.NoError(t, err)
	require.NotEqual(t, one, two, "two CH340 are told apart by where they are plugged in")
}
