package hidrelay

import (
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"plugpull/powerctl"
	"plugpull/powerctl/powertest"
)

// bus is a simulated machine with relay boards, and answers as the kernel does for
// USB devices.
type bus struct {
	mu     sync.Mutex
	boards []*board
}

// board is one HID device. Its first relay is that of the powertest.Device,
// unless relay says another.
type board struct {
	name   string
	info   info
	serial string // in the feature report
	device *powertest.Device
	oc     Config

	// hold, when set, is called before a request is served.
	hold func(request string)
	// answer, when set, replaces the feature report.
	answer []byte
	gone   bool
	sent   [][]byte
}

func usbRelay(name, product, serial string) *board {
	return &board{
		name: name, serial: serial, device: powertest.NewDevice(),
		info: info{vendor: 0x16c0, product: 0x05df, name: "www.dcttech.com " + product},
		oc:   Config{Name: "A3", Model: USBRelay, Serial: serial, Relay: 1, Contact: powerctl.NormallyOpen, Timeout: time.Minute, Class: powerctl.Mains},
	}
}

func clone(serial string) *board {
	b := usbRelay("hidraw7", "HIDRelay", serial)
	b.info = info{vendor: 0x0519, product: 0x2018, name: "Ucreatefun.com HIDRelay", uniq: serial}
	b.oc.Model = HIDRelay
	return b
}

func (b *bus) list() ([]device, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []device
	for _, x := range b.boards {
		if !x.gone {
			all = append(all, device{x.name, x.info})
		}
	}
	return all, nil
}

func (b *bus) open(name string) (node, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, x := range b.boards {
		if x.name == name && !x.gone {
			return &handle{b, x}, nil
		}
	}
	return nil, os.ErrNotExist
}

// replug takes the board out and puts it, or another, in under the name.
func (b *bus) replug(old, now *board) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old.gone = true
	if now != nil {
		b.boards = append(b.boards, now)
	}
}

// handle is open for one board: a replugged one is another.
type handle struct {
	bus *bus
	*board
}

func (h *handle) begin(request string) error {
	if h.hold != nil {
		h.hold(request)
	}
	h.bus.mu.Lock()
	defer h.bus.mu.Unlock()
	if h.gone {
		return os.NewSyscallError("ioctl", unix.ENODEV)
	}
	return nil
}

func (h *handle) info() (info, error) { return h.board.info, h.begin("info") }
func (h *handle) close() error        { return nil }

func (h *handle) setFeature(report []byte) (int, error) {
	if err := h.begin("set"); err != nil {
		return 0, err
	}
	return h.command(report, 0xff, 0xfd)
}

func (h *handle) write(report []byte) (int, error) {
	if err := h.begin("write"); err != nil {
		return 0, err
	}
	return h.command(report, 0xf0+byte(h.oc.Relay), byte(h.oc.Relay))
}

func (h *handle) command(report []byte, on, off byte) (int, error) {
	h.bus.mu.Lock()
	h.sent = append(h.sent, append([]byte(nil), report...))
	h.bus.mu.Unlock()
	if h.board.info.vendor == 0x16c0 && report[2] != byte(h.oc.Relay) {
		return len(report), nil
	}
	to, ok := map[byte]bool{on: true, off: false}[report[1]]
	if !ok {
		return 0, os.NewSyscallError("ioctl", unix.EPIPE)
	}
	state := powerctl.Off
	if to == h.oc.Contact.Energised(true) {
		state = powerctl.On
	}
	switch a := h.device.Switch(state); {
	case a.Busy: // it stalls
		return 0, os.NewSyscallError("ioctl", unix.EPIPE)
	case a.Reset: // it is pulled out and plugged in again
		again := *h.board
		h.bus.replug(h.board, &again)
		return 0, os.NewSyscallError("ioctl", unix.ENODEV)
	case a.Failed:
		return 0, os.NewSyscallError("ioctl", unix.EPROTO)
	case a.Silent:
		// The kernel gives a control transfer five seconds.
		<-time.After(20 * time.Millisecond)
		return 0, os.NewSyscallError("ioctl", unix.ETIMEDOUT)
	}
	return len(report), nil
}

func (h *handle) getFeature(report []byte) (int, error) {
	if err := h.begin("get"); err != nil {
		return 0, err
	}
	a := h.device.Read()
	if a.Failed {
		return 0, os.NewSyscallError("ioctl", unix.EPROTO)
	}
	data := make([]byte, 8)
	copy(data, h.serial)
	if h.pulledIn(a.State) {
		data[7] = 1 << (h.oc.Relay - 1)
	}
	if a.State == powerctl.Unknown {
		data[7] |= 0x80
	}
	if a.Garbage > 0 {
		data = nonsense8(a.Garbage)
	}
	if h.answer != nil {
		data = h.answer
	}
	data = h.device.Outgoing(h.lastSent(), data)[0]
	// The kernel puts the number before the data of report 0 only.
	if report[0] == 0 {
		return 1 + copy(report[1:], data), nil
	}
	return copy(report, data), nil
}

// lastSent is the data of the last report that was set.
func (h *handle) lastSent() []byte {
	h.bus.mu.Lock()
	defer h.bus.mu.Unlock()
	if len(h.sent) == 0 {
		return nil
	}
	return h.sent[len(h.sent)-1][1:]
}

func (h *handle) pulledIn(s powerctl.State) bool {
	if s == powerctl.Pending {
		s = h.device.Contacts()
	}
	return h.oc.Contact.Energised(s == powerctl.On)
}

// nonsense8 is near to a report, and none: zeros, another's serial, relays that
// do not exist, lengths.
func nonsense8(n int) []byte {
	all := [][]byte{
		make([]byte, 8), {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, []byte("6QMBT\x00\x00\x00"), []byte("\xb1QMBS\x00\x00\x00"),
		[]byte("6QMBS\x00\x00\xff"), []byte("6QMBS\x00\x00"), []byte("6QMBS\x00\x00\x04"), {}, []byte("6QMB\x00\x00\x00\x00"), []byte("6qmbs\x00\x00\x00"),
	}
	return all[n%len(all)]
}

func start(t *testing.T, b *bus, c Config) *Outlet {
	t.Helper()
	o, err := newOutlet(c, b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.Close() })
	return o
}
