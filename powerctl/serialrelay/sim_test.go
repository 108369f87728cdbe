package serialrelay

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"plugpull/internal/serialport/ptytest"
	"plugpull/powerctl"
	"plugpull/powerctl/powertest"
)

// board is a simulated relay board behind a pseudo terminal. One relay is
// that of a powertest.Device; the others are released.
type board struct {
	t      *testing.T
	c      Config
	oc     OutletConfig
	device *powertest.Device
	port   string // a link to the terminal of the moment
	sysfs  string // where the terminal is one of a USB adapter; empty: nowhere

	// say, when set, replaces the answer to a request: nil bytes are silence.
	say func(request []byte) (answer []byte, replaced bool)
	// own is the id of a Numato.
	own string
	// pieces: answers come a byte at a time.
	pieces bool

	mu       sync.Mutex
	ptm, pts *os.File
	requests []string
	ended    bool
	loop     sync.WaitGroup
}

// plugIn starts the simulator; it is unplugged when the test ends.
func plugIn(t *testing.T, c Config, oc OutletConfig, say func([]byte) ([]byte, bool)) *board {
	return start(&board{t: t, c: c, oc: oc, say: say})
}

// plugInUSB starts one behind a USB adapter with a serial number.
func plugInUSB(t *testing.T, c Config, oc OutletConfig) *board {
	return start(&board{t: t, c: c, oc: oc, sysfs: t.TempDir()})
}

func start(b *board) *board {
	t := b.t
	b.device, b.port, b.own = powertest.NewDevice(), filepath.Join(t.TempDir(), "port"), "12345678"
	b.connect()
	t.Cleanup(func() {
		b.mu.Lock()
		b.ended = true
		b.mu.Unlock()
		b.ptm.Close()
		b.loop.Wait()
		b.pts.Close()
	})
	return b
}

// connect makes a terminal and points the link to it.
func (b *board) connect() {
	ptm, pts, name := ptytest.Open(b.t)
	if b.sysfs != "" {
		b.adapter(pts)
	}
	next := b.port + ".next"
	require.NoError(b.t, os.Symlink(name, next))
	require.NoError(b.t, os.Rename(next, b.port))
	b.mu.Lock()
	b.ptm, b.pts = ptm, pts
	b.mu.Unlock()
	b.loop.Go(func() { b.serve(ptm) })
}

// adapter writes down in sysfs which USB device the terminal is.
func (b *board) adapter(pts *os.File) {
	info, err := pts.Stat()
	require.NoError(b.t, err)
	dev := uint64(info.Sys().(*syscall.Stat_t).Rdev) // 32 bits on some architectures
	serial := "A5069RR4"
	if b.device.Other() {
		serial = "A5069RR5"
	}
	usb, node := filepath.Join(b.sysfs, "devices", serial), fmt.Sprintf("dev/char/%d:%d", unix.Major(dev), unix.Minor(dev))
	for _, dir := range []string{usb, filepath.Join(b.sysfs, node), filepath.Join(b.sysfs, "class/tty")} {
		require.NoError(b.t, os.MkdirAll(dir, 0o755))
	}
	for name, text := range map[string]string{"idVendor": "0403", "idProduct": "6001", "serial": serial} {
		require.NoError(b.t, os.WriteFile(filepath.Join(usb, name), []byte(text+"\n"), 0o644))
	}
	link := filepath.Join(b.sysfs, node, "device")
	_ = os.Remove(link) // of an earlier terminal with the number
	require.NoError(b.t, os.Symlink(usb, link))
}

// unplug hangs the line up, as a USB adapter does that is pulled out, and plugs
// it in again under the same name.
func (b *board) unplug() {
	ptm, pts := b.ptm, b.pts
	b.connect()
	ptm.Close()
	pts.Close()
}

func (b *board) serve(ptm *os.File) {
	var pending []byte
	buf := make([]byte, 256)
	for {
		n, err := ptm.Read(buf)
		if err != nil {
			return
		}
		pending = append(pending, buf[:n]...)
		for {
			n := b.frame(pending)
			if n == 0 {
				break
			}
			if !b.handle(ptm, pending[:n]) {
				return
			}
			pending = pending[n:]
		}
	}
}

// frame returns how long the first request is, zero where it is not whole.
func (b *board) frame(p []byte) int {
	want := 0
	switch {
	case len(p) == 0:
	case b.c.Protocol == Numato:
		want = bytes.IndexByte(p, '\r') + 1
	case b.c.Protocol == KMTronic:
		want = 3
	case p[0] == 0xa0:
		want = 4
	default:
		want = 1
	}
	if want > len(p) {
		return 0
	}
	return want
}

func (b *board) handle(ptm *os.File, request []byte) bool {
	b.mu.Lock()
	b.requests = append(b.requests, string(request))
	ended := b.ended
	b.mu.Unlock()
	answer, replaced, reset := []byte(nil), false, false
	if b.say != nil {
		answer, replaced = b.say(request)
	}
	if !replaced {
		answer, reset = b.answer(request)
		if b.c.Protocol != Numato || strings.HasPrefix(string(request), "relay ") {
			answer = slices.Concat(b.device.Outgoing(request, answer)...)
		}
	}
	if reset && !ended {
		b.unplug()
		return false
	}
	if !b.pieces {
		_, _ = ptm.Write(answer)
		return true
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for i := range answer {
		<-tick.C
		_, _ = ptm.Write(answer[i : i+1])
	}
	return true
}

func (b *board) seen() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.requests...)
}

// answer is what a board says; reset: it hangs up instead.
func (b *board) answer(request []byte) (_ []byte, reset bool) {
	if b.c.Protocol == Numato {
		return b.numato(strings.TrimRight(string(request), "\r"))
	}
	w := newWire(b.c)
	for _, to := range []powerctl.State{powerctl.Off, powerctl.On} {
		if frame, _ := w.command(b.oc.Channel, b.oc.Contact.Energised(to == powerctl.On)); bytes.Equal(frame, request) {
			return nil, b.device.Switch(to).Failed
		}
	}
	if q, _ := w.query(b.oc.Channel); !bytes.Equal(q, request) {
		return nil, false // another relay's
	}
	a := b.device.Read()
	switch {
	case a.Failed:
		return nil, true
	case a.Garbage > 0:
		return pick(binaryNonsense(b.c, b.oc.Channel), a.Garbage), false
	case a.State == powerctl.Unknown:
		return pick(binaryNonsense(b.c, b.oc.Channel), 1), false
	}
	return b.status(b.pulledIn(a.State)), false
}

// pulledIn: a relay that is about to move still shows where it is.
func (b *board) pulledIn(s powerctl.State) bool {
	if s == powerctl.Pending {
		s = b.device.Contacts()
	}
	return b.oc.Contact.Energised(s == powerctl.On)
}

func pick(from [][]byte, n int) []byte { return from[n%len(from)] }

// status is what a healthy board of a binary protocol says of its relays.
func (b *board) status(on bool) []byte { return statusOf(b.c, b.oc.Channel, on) }

func statusOf(c Config, channel int, on bool) []byte {
	bit := byte(0)
	if on {
		bit = 1
	}
	if c.Protocol == KMTronic && c.Channels <= 2 {
		return []byte{0xff, byte(channel), bit}
	}
	var w []byte
	for i := 1; i <= c.Channels; i++ {
		is := i == channel && on
		switch {
		case c.Protocol == LCUS && c.Readback == Text && is:
			w = fmt.Appendf(w, "CH%d:ON \r\n", i)
		case c.Protocol == LCUS && c.Readback == Text:
			w = fmt.Appendf(w, "CH%d:OFF \r\n", i)
		case is:
			w = append(w, 1)
		default:
			w = append(w, 0)
		}
	}
	return w
}

// binaryNonsense is near to answers, and none.
func binaryNonsense(c Config, channel int) [][]byte {
	var all [][]byte
	for _, on := range []bool{false, true} {
		good := statusOf(c, channel, on)
		flipped := append([]byte(nil), good...)
		flipped[len(flipped)-1] ^= 0x80
		all = append(all,
			flipped,
			append(append([]byte(nil), good...), good...),
			append([]byte{0x00}, good...),
			append(append([]byte(nil), good...), 0x00),
			good[:len(good)-1],
			bytes.Replace(bytes.Replace(good, []byte("CH1"), []byte("CH7"), 1), []byte{0xff, byte(channel)}, []byte{0xff, byte(channel + 1)}, 1)[:max(len(good)-len(good)%3, 1)],
		)
	}
	return append(all, []byte("off"), []byte{0xff}, []byte{0xff, byte(channel), 3}, bytes.Repeat([]byte{0xff, 1, 0}, 400))
}

// quickly is for a simulator, which has no adapter's latency.
var quickly = timing{quiet: 3 * time.Millisecond, stall: 15 * time.Millisecond, babble: 30 * time.Millisecond, lateness: 30 * time.Second}
