package hidrelay

import (
	"context"
	"fmt"

	"plugpull/powerctl"
)

// Identify asks the board for its serial again, and says which contact the power goes through.
func (o *Outlet) Identify(ctx context.Context) (powerctl.Identity, error) {
	i, serial, err := o.ask(ctx)
	if err == nil && serial != o.c.Serial {
		err = &powerctl.IdentityError{What: "serial", Want: o.c.Serial, Got: serial}
	}
	if err != nil {
		return powerctl.Identity{}, o.fail("identify", "ask the board who it is", err)
	}
	device := fmt.Sprintf("%04x:%04x %s serial %s, relay %d, %s", i.vendor, i.product, i.name, o.c.Serial, o.c.Relay, o.c.Contact)
	return powerctl.Identity{Driver: "hidrelay", Device: device, Name: o.c.Name}, nil
}

// Pins returns the serial that the board has now, by the key of a bench file. Where no board
// has the configured one, the *powerctl.IdentityError says which ones there are.
func (o *Outlet) Pins(ctx context.Context) (map[string]string, error) {
	_, serial, err := o.ask(ctx)
	if err != nil {
		return nil, o.fail("pins", "ask the board who it is", err)
	}
	return map[string]string{"serial": serial}, nil
}

// ask returns what the board says of itself now.
func (o *Outlet) ask(ctx context.Context) (info, string, error) {
	var i info
	var serial string
	_, err := o.call(ctx, func(func() bool) error {
		n, err := o.reach()
		if err != nil {
			return err
		}
		if i, err = n.info(); err != nil {
			return err
		}
		serial = i.uniq
		if o.c.Model == USBRelay {
			serial, err = o.askSerial(n)
		}
		return err
	})
	if err != nil { // the call may have been left behind, and still write
		return info{}, "", err
	}
	return i, serial, nil
}

// Plan implements powerctl.Planner.
func (o *Outlet) Plan(on bool) []string {
	report := command(o.c.Model, o.c.Relay, o.c.Contact.Energised(on))
	find := fmt.Sprintf("get feature report %d of each USBRelay board for its serial, unless the pinned board is open", o.c.Report)
	order := "set feature report"
	if o.c.Model == HIDRelay {
		find, order = "look for the USB serial number in sysfs, unless the pinned board is open", "write output report"
	}
	return []string{find, fmt.Sprintf("%s % x to the board with the serial %q", order, report, o.c.Serial)}
}
