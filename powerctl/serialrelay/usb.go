package serialrelay

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrAmbiguous: two devices cannot be told apart.
var ErrAmbiguous = errors.New("two devices say that they are the same one")

// usbDevice is the USB device behind a serial port, as sysfs has it.
type usbDevice struct {
	ids    string // vendor:product
	serial string // often empty
	port   string // where it is plugged in, such as 1-1.4
}

// id says which device it is. Without a serial number that can only be where it
// is plugged in.
func (u usbDevice) id() string {
	if u.serial == "" {
		return "usb " + u.ids + " at port " + u.port
	}
	return "usb " + u.ids + " serial " + u.serial
}

// portID tells the serial port with the device number from all others.
func portID(sysfs, path string, dev uint64) (string, error) {
	link := filepath.Join(sysfs, "dev/char", fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev)))
	u, err := usbBehind(filepath.Join(link, "device"))
	if errors.Is(err, os.ErrNotExist) {
		// A port of the machine, or a pseudo terminal: its path is all there is.
		return "port " + path, nil
	}
	if err != nil {
		return "", err
	}
	if u.serial == "" {
		return u.id(), nil
	}
	ttys, err := os.ReadDir(filepath.Join(sysfs, "class/tty"))
	if err != nil {
		return "", err
	}
	for _, tty := range ttys {
		other, err := usbBehind(filepath.Join(sysfs, "class/tty", tty.Name(), "device"))
		if err == nil && other.id() == u.id() && other.port != u.port {
			return "", fmt.Errorf("%s is plugged in at %s and %s: %w", u.id(), u.port, other.port, ErrAmbiguous)
		}
	}
	return u.id(), nil
}

// usbBehind goes up from a device's folder to the USB device that it is part of.
// os.ErrNotExist: there is none.
func usbBehind(device string) (usbDevice, error) {
	dir, err := filepath.EvalSymlinks(device)
	if err != nil {
		return usbDevice{}, err
	}
	for ; len(dir) > 1; dir = filepath.Dir(dir) {
		vendor, err := attribute(dir, "idVendor")
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		product, err2 := attribute(dir, "idProduct")
		serial, err3 := attribute(dir, "serial")
		if errors.Is(err3, os.ErrNotExist) {
			err3 = nil
		}
		if err := errors.Join(err, err2, err3); err != nil {
			return usbDevice{}, fmt.Errorf("read the USB device: %w", err)
		}
		return usbDevice{ids: vendor + ":" + product, serial: serial, port: filepath.Base(dir)}, nil
	}
	return usbDevice{}, os.ErrNotExist
}

// attribute reads one line; signs that do not print are escaped.
func attribute(dir, name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return "", err
	}
	return printable([]byte(strings.TrimSpace(string(b)))), nil
}
