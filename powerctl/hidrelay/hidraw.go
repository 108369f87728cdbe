package hidrelay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The requests of linux/hidraw.h. x/sys has those without a length only; the
// direction bits, which differ between architectures, are taken from these:
// HIDIOCGRAWINFO reads, HIDIOCREVOKE writes.
//
//	#define HIDIOCGRAWNAME(len) _IOC(_IOC_READ, 'H', 0x04, len)
//	#define HIDIOCSFEATURE(len) _IOC(_IOC_WRITE|_IOC_READ, 'H', 0x06, len)
//	#define HIDIOCGFEATURE(len) _IOC(_IOC_WRITE|_IOC_READ, 'H', 0x07, len)
//	#define HIDIOCGRAWUNIQ(len) _IOC(_IOC_READ, 'H', 0x08, len)
const (
	directions = 0xe0000000
	iocRead    = unix.HIDIOCGRAWINFO & directions
	iocWrite   = unix.HIDIOCREVOKE & directions
	iocHID     = 'H' << 8
	sizeShift  = 16

	reqInfo       = unix.HIDIOCGRAWINFO
	reqName       = iocRead | nameSize<<sizeShift | iocHID | 0x04
	reqSetFeature = iocRead | iocWrite | reportSize<<sizeShift | iocHID | 0x06
	reqGetFeature = iocRead | iocWrite | reportSize<<sizeShift | iocHID | 0x07
	reqUniq       = iocRead | uniqSize<<sizeShift | iocHID | 0x08

	nameSize   = 128
	uniqSize   = 64
	infoSize   = 8 // struct hidraw_devinfo
	reportSize = 9
)

// info is what the kernel knows of a HID device.
type info struct {
	vendor, product uint16
	name            string // manufacturer and product, such as "www.dcttech.com USBRelay2"
	uniq            string // the USB serial number, often empty
}

// node is an open HID device. A call blocks until the device has answered or the
// kernel gives it up, for a USB device after five seconds.
type node interface {
	info() (info, error)
	// setFeature sends a feature report and returns how much was taken. The first
	// byte is the report's number.
	setFeature(report []byte) (int, error)
	// getFeature asks for the report with the number in the first byte, writes
	// it over the buffer and returns its length.
	getFeature(report []byte) (int, error)
	// write sends an output report.
	write(report []byte) (int, error)
	close() error
}

// device is a HID device that may be opened.
type device struct {
	name string // such as hidraw0
	info info
}

// system is where HID devices are found.
type system interface {
	// list returns all of them, with what is known without opening them.
	list() ([]device, error)
	open(name string) (node, error)
}

// linux finds them in sysfs.
type linux struct{ sysfs, dev string }

func (l linux) list() ([]device, error) {
	dir := filepath.Join(l.sysfs, "class/hidraw")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []device
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name(), "device/uevent"))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			continue // just unplugged
		}
		if err != nil {
			return nil, err
		}
		all = append(all, device{e.Name(), parseUevent(string(b))})
	}
	return all, nil
}

// parseUevent reads lines such as HID_ID=0003:000016C0:000005DF.
func parseUevent(text string) info {
	var i info
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		switch key {
		case "HID_ID":
			var bus uint16
			_, _ = fmt.Sscanf(value, "%x:%x:%x", &bus, &i.vendor, &i.product)
		case "HID_NAME":
			i.name = value
		case "HID_UNIQ":
			i.uniq = value
		}
	}
	return i
}

func (l linux) open(name string) (node, error) {
	f, err := os.OpenFile(filepath.Join(l.dev, name), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return &hidraw{f: f, ioctl: ioctl}, nil
}

type hidraw struct {
	f     *os.File
	ioctl func(f *os.File, request uint, buf []byte) (int, error)
}

// ioctl returns what the kernel returns, for these requests a length.
func ioctl(f *os.File, request uint, buf []byte) (int, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	var n uintptr
	var errno unix.Errno
	err = raw.Control(func(fd uintptr) {
		n, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, uintptr(request), uintptr(unsafe.Pointer(&buf[0])))
	})
	if err == nil && errno != 0 {
		err = os.NewSyscallError("ioctl", errno)
	}
	if err != nil {
		return 0, err
	}
	return int(n), nil
}

func (h *hidraw) info() (info, error) {
	raw, name, uniq := make([]byte, infoSize), make([]byte, nameSize), make([]byte, uniqSize)
	if _, err := h.ioctl(h.f, reqInfo, raw); err != nil {
		return info{}, err
	}
	if _, err := h.ioctl(h.f, reqName, name); err != nil {
		return info{}, err
	}
	// Linux before 5.6 cannot tell the serial number, and only the clone has one there.
	if _, err := h.ioctl(h.f, reqUniq, uniq); err != nil {
		clear(uniq)
	}
	return info{
		vendor:  binary.NativeEndian.Uint16(raw[4:]),
		product: binary.NativeEndian.Uint16(raw[6:]),
		name:    untilNUL(name),
		uniq:    untilNUL(uniq),
	}, nil
}

func untilNUL(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b)
}

func (h *hidraw) setFeature(report []byte) (int, error) { return h.ioctl(h.f, reqSetFeature, report) }
func (h *hidraw) getFeature(report []byte) (int, error) { return h.ioctl(h.f, reqGetFeature, report) }
func (h *hidraw) write(report []byte) (int, error)      { return h.f.Write(report) }
func (h *hidraw) close() error                          { return h.f.Close() }
