package hidrelay

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The numbers are what a C program prints that includes linux/hidraw.h, on amd64:
// HIDIOCGRAWINFO, HIDIOCGRAWNAME(128), HIDIOCSFEATURE(9), HIDIOCGFEATURE(9), HIDIOCGRAWUNIQ(64).
func TestRequestNumbers(t *testing.T) {
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("other direction bits")
	}
	require.Equal(t, []uint{0x80084803, 0x80804804, 0xc0094806, 0xc0094807, 0x80404808},
		[]uint{reqInfo, reqName, reqSetFeature, reqGetFeature, reqUniq})
}

func replies(n int, fill []byte) func(*os.File, uint, []byte) (int, error) {
	return func(_ *os.File, _ uint, buf []byte) (int, error) { copy(buf, fill); return n, nil }
}

// What goes to the kernel and what comes back, byte by byte.
func TestBuffers(t *testing.T) {
	var log []string
	h := &hidraw{ioctl: func(_ *os.File, request uint, buf []byte) (int, error) {
		log = append(log, fmt.Sprintf("%08x %d %s", request, len(buf), hex.EncodeToString(buf[:min(9, len(buf))])))
		switch request {
		case reqInfo:
			return copy(buf, "\x03\x00\x00\x00\xc0\x16\xdf\x05"), nil
		case reqName:
			return copy(buf, "www.dcttech.com USBRelay2\x00rest"), nil
		case reqUniq:
			return 0, os.NewSyscallError("ioctl", unix.EINVAL)
		case reqGetFeature:
			return copy(buf, "\x006QMBS\x00\x00\x02"), nil
		}
		return len(buf), nil
	}}
	i, err := h.info()
	require.NoError(t, err)
	require.Equal(t, info{vendor: 0x16c0, product: 0x05df, name: "www.dcttech.com USBRelay2"}, i)
	require.Equal(t, 2, relays(i))
	log = nil
	for _, r := range [][]byte{command(USBRelay, 2, true), command(USBRelay, 2, false), command(USBRelay, 8, true)} {
		require.NoError(t, send(USBRelay, h, r))
	}
	for number := range 2 {
		answer, err := ask(h, number)
		require.NoError(t, err)
		require.Equal(t, "003651 4d4253000002", hex.EncodeToString(answer[:3])+" "+hex.EncodeToString(answer[3:]))
	}
	require.Equal(t, []string{
		"c0094806 9 00ff02000000000000",
		"c0094806 9 00fd02000000000000",
		"c0094806 9 00ff08000000000000",
		"c0094807 9 000000000000000000",
		"c0094807 9 010000000000000000",
	}, log)
}

// The kernel must be reached: a file that is no HID device refuses every request.
func TestIoctlReachesTheKernel(t *testing.T) {
	f, err := os.Open("/dev/null")
	require.NoError(t, err)
	defer f.Close()
	h := &hidraw{f: f, ioctl: ioctl}
	_, err = h.info()
	require.ErrorIs(t, err, unix.ENOTTY)
	_, err = h.setFeature(make([]byte, 9))
	require.ErrorIs(t, err, unix.ENOTTY)
	_, err = h.getFeature(make([]byte, 9))
	require.ErrorIs(t, err, unix.ENOTTY)
}

func TestListReadsSysfs(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"hidraw0": "DRIVER=hid-generic\nHID_ID=0003:000016C0:000005DF\nHID_NAME=www.dcttech.com USBRelay2\nHID_PHYS=usb-0000:00:14.0-2/input0\nHID_UNIQ=\n",
		"hidraw1": "HID_ID=0003:00000519:00002018\nHID_NAME=Ucreatefun.com HIDRelay\nHID_UNIQ=A0001\n",
		"hidraw2": "HID_ID=junk\n",
	} {
		dir := filepath.Join(root, "class/hidraw", name, "device")
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "uevent"), []byte(text), 0o644))
	}
	require.NoError(t, os.MkdirAll(filepath.Join(root, "class/hidraw/hidraw3"), 0o755)) // going away
	all, err := linux{root, root}.list()
	require.NoError(t, err)
	require.Equal(t, []device{
		{"hidraw0", info{0x16c0, 0x05df, "www.dcttech.com USBRelay2", ""}},
		{"hidraw1", info{0x0519, 0x2018, "Ucreatefun.com HIDRelay", "A0001"}},
		{"hidraw2", info{}},
	}, all)
	require.True(t, isClone(all[1].info))
	_, err = linux{root, root}.open("hidraw0")
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = linux{t.TempDir(), root}.list()
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestWhichDevicesAreRelayBoards(t *testing.T) {
	for name, want := range map[string]int{
		"www.dcttech.com USBRelay1": 1, "USBRelay8": 8, "www.dcttech.com USBRelay9": 0, "www.dcttech.com USBRelay12": 0,
		"www.dcttech.com USBRelay": 0, "obdev.at DataStore": 0, "xUSBRelay2": 0, "USBRelay2 ": 0,
	} {
		assert.Equal(t, want, relays(info{vendor: 0x16c0, product: 0x05df, name: name}), name)
		assert.Zero(t, relays(info{vendor: 0x16c0, product: 0x05dc, name: name}), name)
	}
}

func TestParseStatus(t *testing.T) {
	for _, c := range []struct {
		name   string
		number int
		answer string
		relay  int
		want   reading
	}{
		{"report 0", 0, "\x006QMBS\x00\x00\x02", 2, energised},
		{"report 0, off", 0, "\x006QMBS\x00\x00\x02", 1, released},
		{"report 1", 1, "6QMBS\x00\x00\x02", 2, energised},
		{"report 1, off", 1, "6QMBS\x00\x00\x01", 2, released},
		{"report 0 as 1", 1, "\x006QMBS\x00\x00\x02", 2, nonsense},
		{"report 1 as 0", 0, "6QMBS\x00\x00\x02", 2, nonsense},
		{"report 0 with a number", 0, "\x016QMBS\x00\x00\x00", 1, nonsense},
		{"zeros", 0, "\x00\x00\x00\x00\x00\x00\x00\x00\x00", 1, nonsense},
		{"another serial", 0, "\x006QMBT\x00\x00\x00", 1, nonsense},
		{"a short serial", 0, "\x006QMB\x00\x00\x00\x00", 1, nonsense},
		{"relays that are not there", 0, "\x006QMBS\x00\x00\x04", 1, nonsense},
		{"nothing", 0, "", 1, nonsense},
	} {
		got := nonsense
		if s, ok := parseStatus(c.number, []byte(c.answer)); ok {
			got = s.read("6QMBS", 2, c.relay)
		}
		assert.Equal(t, c.want, got, c.name)
	}
}

func FuzzParseStatus(f *testing.F) {
	f.Add(0, []byte("\x006QMBS\x00\x00\x02"))
	f.Add(1, []byte("6QMBS\x00\x00\x01"))
	f.Add(0, make([]byte, 9))
	f.Fuzz(func(t *testing.T, number int, answer []byte) {
		number &= 1
		s, ok := parseStatus(number, answer)
		if !ok {
			return
		}
		require.Len(t, answer, 9-number)
		if s.read("6QMBS", 2, 1) == released {
			require.Equal(t, "6QMBS", string(answer[1-number:][:5]))
			require.Zero(t, answer[len(answer)-1]&^2)
		}
	})
}
