package hidrelay

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"plugpull/powerctl"
)

// reach returns the board, which stays open: an open file is bound to what was
// plugged in when it was opened. One that is gone is looked for again.
func (o *Outlet) reach() (node, error) {
	if o.node != nil {
		if _, err := o.node.info(); err == nil {
			return o.node, nil
		}
		o.drop()
	}
	n, err := o.find()
	if err == nil {
		err = o.hasRelay(n)
	}
	if err != nil {
		if n != nil {
			n.close()
		}
		return nil, fmt.Errorf("find the board: %w", err)
	}
	o.node = n
	return n, nil
}

func (o *Outlet) drop() {
	if o.node != nil {
		o.node.close()
		o.node = nil
	}
}

// find opens the board with the serial. It asks only relay boards of the model who they are,
// and changes nothing. A board that cannot be asked might have the same
// serial, and is an error.
func (o *Outlet) find() (node, error) {
	devices, err := o.sys.list()
	if err != nil {
		return nil, err
	}
	var found node
	var others, corrupt []string
	for _, d := range devices {
		n, serial, err := o.look(d)
		switch {
		case err != nil:
			err = fmt.Errorf("%s: %w", d.name, err)
		case n == nil:
			continue
		case serial == o.c.Serial && found == nil:
			found = n
			continue
		case serial == o.c.Serial:
			err = fmt.Errorf("%s: %w: %q", d.name, ErrAmbiguous, serial)
		default:
			others = append(others, serial)
			if !printable(serial) {
				corrupt = append(corrupt, serial)
			}
		}
		if n != nil {
			n.close()
		}
		if err != nil {
			return found, err
		}
	}
	if found != nil {
		return found, nil
	}
	err = fmt.Errorf("%w: %q", ErrNotFound, o.c.Serial)
	if len(others) > 0 {
		err = fmt.Errorf("%w: %w", ErrNotFound, &powerctl.IdentityError{What: "serial", Want: o.c.Serial, Got: strings.Join(others, ", ")})
	}
	if len(corrupt) > 0 {
		err = fmt.Errorf("%w, but there are boards with a corrupt serial (%q): give them a new one with usbrelay", err, corrupt)
	}
	return nil, err
}

// look opens a device and asks for its serial. No node: it is no board of the model,
// or has just gone.
func (o *Outlet) look(d device) (node, string, error) {
	if !o.isModel(d.info) {
		return nil, "", nil
	}
	n, err := o.sys.open(d.name)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	// Another device may have got the name in between.
	i, err := n.info()
	if err == nil && !o.isModel(i) {
		n.close()
		return nil, "", nil
	}
	serial := i.uniq
	if err == nil && o.c.Model == USBRelay {
		serial, err = o.askSerial(n)
	}
	return n, serial, err
}

func (o *Outlet) isModel(i info) bool {
	if o.c.Model == HIDRelay {
		return isClone(i)
	}
	return relays(i) > 0
}

func (o *Outlet) askSerial(n node) (string, error) {
	answer, err := ask(n, o.c.Report)
	if err != nil {
		return "", fmt.Errorf("ask for the serial: %w", err)
	}
	s, ok := parseStatus(o.c.Report, answer)
	if !ok {
		return "", fmt.Errorf("ask for the serial: %w: % x", ErrShort, answer)
	}
	return string(s.text()), nil
}

// hasRelay: nothing is known of how many relays a clone has.
func (o *Outlet) hasRelay(n node) error {
	i, err := n.info()
	if err == nil && o.c.Model == USBRelay && o.c.Relay > relays(i) {
		err = fmt.Errorf("%w: %s, relay %d", ErrNoSuchRelay, i.name, o.c.Relay)
	}
	return err
}

// ask gets the feature report with the state.
func ask(n node, number int) ([]byte, error) {
	report := make([]byte, reportSize)
	report[0] = byte(number)
	length, err := n.getFeature(report)
	if err != nil {
		return nil, err
	}
	return report[:min(max(length, 0), reportSize)], nil
}
