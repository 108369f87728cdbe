// Package nut switches an outlet of a PDU or a UPS through upsd, the server of Network UPS
// Tools, and so everything that has a NUT driver with switchable outlets.
//
// It guarantees that the commands outlet.N.load.off and outlet.N.load.on alone are sent, never one
// with a delay, a cycle, a reboot or a shutdown that returns; that the pinned device and outlet
// answer in the same conversation just before; and that only the exact word "off", in a whole
// answer about this outlet of a device whose data upsd does not call stale, is off.
//
// upsd answers a command when it has handed it to the device's NUT driver, and a reading
// from what that driver last told it: an acknowledgement says nothing of the device, and a reading
// can be as old as the driver's poll interval (30 s is usual for SNMP). Give SwitchOff a deadline
// that is longer. A state that changed and changed back between two polls is not seen.
//
// Without TLS the password travels in the clear, as is usual with upsd. A UPS on battery is
// never a stand-in for its outlet being off.
package nut

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"plugpull/internal/clock"
	"plugpull/powerctl"
	"plugpull/powerctl/bridge"
)

// Config describes an outlet.
type Config struct {
	Name string
	// Address is upsd's host:port; the port is 3493 unless its configuration says otherwise.
	Address string
	// UPS is the device's name in ups.conf; Outlet is the N of outlet.N, from 1 on.
	UPS    string
	Outlet int
	// User and Password are those of upsd.users, with instcmds for outlet.N.load.off and .on.
	User     string
	Password powerctl.Secret
	// TLS asks for STARTTLS. The certificate is verified against the system's authorities or those in
	// CAFile (PEM), or it is the one with this SHA-256 fingerprint (hexadecimal).
	TLS                 bool
	CAFile, Fingerprint string
	// Class is what loses power with the outlet; usually powerctl.Mains.
	Class powerctl.Class
	// Timeout bounds each method.
	Timeout time.Duration
	// Pin, where it is set, is verified before every command and with every reading.
	Pin Pin
}

// Pin is what the device must say of itself; an empty field is not looked at. What is
// pinned and cannot be read counts as wrong.
type Pin struct {
	Serial     string // device.serial, or ups.serial where there is none
	OutletName string // outlet.N.desc, or outlet.N.name where there is none
}

// Outlet implements powerctl.Outlet, powerctl.Planner and powerctl.Warner.
type Outlet struct {
	c   Config
	tls *tls.Config
}

// New checks the configuration and reads the CA file; it connects to nothing.
func New(c Config) (*Outlet, error) {
	var errs []error
	check := func(bad bool, text string) {
		if bad {
			errs = append(errs, errors.New(text))
		}
	}
	check(c.Name == "", "the outlet's name is missing")
	check(!bridge.HostPort(c.Address), "the address is not host:port")
	check(!bridge.PlainName(c.UPS), "the UPS is not one plain name of letters, digits, '.', '_' and '-', without @host")
	check(c.Outlet < 1, "the outlet's number is missing")
	check(c.User == "" || !quotable(c.User), "the user is missing or has control characters")
	check(c.Password.Reveal() == "" || !quotable(c.Password.Reveal()), "the password is missing or has control characters")
	check(!bridge.ValidClass(c.Class), "the class is none of mains, drive and chassis")
	check(c.Timeout <= 0, "the timeout is missing")
	check(!c.TLS && c.CAFile+c.Fingerprint != "", "a CA file or a fingerprint is given, but no TLS is wanted")
	conf, err := tlsConfig(c)
	if err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("nut outlet: %w", err)
	}
	return &Outlet{c: c, tls: conf}, nil
}

// Tried says against what the driver was run.
const Tried = powerctl.TriedPeer

// Capabilities implements powerctl.Outlet. The wire was tried against upsd 2.8.0, login, commands and
// stale data included; what stood behind upsd was no driver of NUT's but a stand-in for one.
func (o *Outlet) Capabilities() powerctl.Capabilities {
	return powerctl.Capabilities{ReadBack: true, Class: o.c.Class, Tried: Tried}
}

// variable is one of the outlet's.
func (o *Outlet) variable(name string) string { return fmt.Sprintf("outlet.%d.%s", o.c.Outlet, name) }

// Off sends outlet.N.load.off. It does not read back.
func (o *Outlet) Off(ctx context.Context) (powerctl.Result, error) {
	return o.command(ctx, "off", o.variable("load.off"))
}

// On sends outlet.N.load.on. It does not read back.
func (o *Outlet) On(ctx context.Context) (powerctl.Result, error) {
	return o.command(ctx, "on", o.variable("load.on"))
}

func (o *Outlet) command(ctx context.Context, op, name string) (powerctl.Result, error) {
	var res powerctl.Result
	err := o.with(ctx, op, func(c *conversation) error {
		if err := o.verify(c); err != nil {
			return o.fail(op, "verify which device answers", err)
		}
		if err := o.switchable(c, name); err != nil {
			return o.fail(op, "ask what it can do", err)
		}
		if err := c.login(o.c.User, o.c.Password.Reveal()); err != nil {
			return o.fail(op, "log in", err)
		}
		at, line, err := c.ask("INSTCMD " + o.c.UPS + " " + name)
		if res.Commanded = at; err == nil {
			err = mustBe(line, "OK")
		}
		if err != nil {
			return o.fail(op, "send "+name, err)
		}
		res.Acknowledged = clock.Now()
		return nil
	})
	if err != nil && res.Commanded == 0 {
		err = fmt.Errorf("%w: %w", powerctl.ErrNotSent, err)
	}
	return res, err
}

// ErrNotSwitchable: upsd's driver has no command for this outlet, or the device does not let
// it be switched.
var ErrNotSwitchable = errors.New("the outlet cannot be switched through upsd")

// switchable makes sure that the command exists before it is sent.
func (o *Outlet) switchable(c *conversation, name string) error {
	switch v, _, err := c.get(o.variable("switchable")); {
	case err != nil:
		return err
	case strings.EqualFold(v, "no"):
		return fmt.Errorf("%w: %s is %q", ErrNotSwitchable, o.variable("switchable"), v)
	}
	commands, err := c.list("CMD")
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(commands, func(w []string) bool { return len(w) == 1 && w[0] == name }) {
		return fmt.Errorf("%w: its driver has no %s; `upscmd -l %s` lists what it has", ErrNotSwitchable, name, o.c.UPS)
	}
	return nil
}

// verify makes sure that the pinned device and outlet answer.
func (o *Outlet) verify(c *conversation) error {
	for _, f := range o.pins() {
		if f.pinned == "" {
			continue
		}
		got, err := c.first(f.names)
		if err != nil {
			return err
		}
		if got != f.pinned {
			return &powerctl.IdentityError{What: f.what, Want: f.pinned, Got: got}
		}
	}
	return nil
}

// pin is one thing that can be pinned and where it is read, the first that there is.
type pin struct {
	key, what, pinned string
	names             []string
}

func (o *Outlet) pins() []pin {
	return []pin{
		{"serial", "serial number", o.c.Pin.Serial, []string{"device.serial", "ups.serial"}},
		{"outlet_name", "outlet name", o.c.Pin.OutletName, []string{o.variable("desc"), o.variable("name")}},
	}
}

// State asks for the device's and the outlet's status. Raw is both answers.
func (o *Outlet) State(ctx context.Context) (powerctl.Result, error) {
	var res powerctl.Result
	err := o.with(ctx, "state", func(c *conversation) error {
		if err := o.verify(c); err != nil {
			return o.fail("state", "verify which device answers", err)
		}
		c.heard = nil
		whole, _, err := c.get("ups.status")
		var word string
		if err == nil {
			word, _, err = c.get(o.variable("status"))
		}
		res.Raw = bridge.Raw(c.heard)
		if err != nil {
			return o.fail("state", "read "+o.variable("status"), err)
		}
		if err := c.logout(); err != nil {
			return o.fail("state", "end the conversation", err)
		}
		if res.State = stateOf(whole, word); res.State == powerctl.On || res.State == powerctl.Off {
			res.Observed = clock.Now()
		}
		return nil
	})
	return res, err
}

// stateOf knows the words of NUT's drivers for an outlet's status, and those in ups.status
// which say that the driver has no fresh data.
func stateOf(ups, outlet string) powerctl.State {
	for word := range strings.FieldsSeq(ups) {
		if slices.Contains([]string{"WAIT", "STALE", "COMMBAD", "NOCOMM"}, strings.ToUpper(word)) {
			return powerctl.Unknown
		}
	}
	switch outlet {
	case "on":
		return powerctl.On
	case "off":
		return powerctl.Off
	case "pendingOn", "pendingOff":
		return powerctl.Pending
	}
	return powerctl.Unknown
}

// Identify asks for the device's serial number, manufacturer and model. A device that does not
// tell its serial number is told by upsd's address and its name there.
func (o *Outlet) Identify(ctx context.Context) (powerctl.Identity, error) {
	id := powerctl.Identity{Driver: "nut", Name: o.c.Name}
	err := o.with(ctx, "identify", func(c *conversation) error {
		serial, err := c.first([]string{"device.serial", "ups.serial"})
		if err != nil {
			return o.fail("identify", "read the serial number", err)
		}
		words := []string{"serial", serial}
		if serial == "" {
			words = []string{"ups", o.c.UPS, "at", o.c.Address}
		}
		for _, name := range []string{"device.mfr", "device.model"} {
			v, _, err := c.get(name)
			if err != nil {
				return o.fail("identify", "read "+name, err)
			}
			if v != "" {
				words = append(words, v)
			}
		}
		id.Device = strings.Join(words, " ") + fmt.Sprintf(" outlet %d", o.c.Outlet)
		return nil
	})
	if err != nil {
		return powerctl.Identity{}, err
	}
	return id, nil
}

// Pins returns what can be pinned, as the device says it now, by the keys serial and outlet_name. What
// it does not tell is left out. It changes nothing and does not look at what is pinned already.
func (o *Outlet) Pins(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	err := o.with(ctx, "identify", func(c *conversation) error {
		for _, f := range o.pins() {
			v, err := c.first(f.names)
			if err != nil {
				return o.fail("identify", "read the "+f.what, err)
			}
			if v != "" {
				out[f.key] = v
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Plan implements powerctl.Planner. "(where…" marks what depends on an answer before it.
func (o *Outlet) Plan(on bool) []string {
	var lines []string
	if o.c.TLS {
		lines = append(lines, "STARTTLS")
	}
	for _, f := range o.pins() {
		if f.pinned != "" {
			lines = append(lines, "GET VAR "+o.c.UPS+" "+f.names[0], "GET VAR "+o.c.UPS+" "+f.names[1]+" (where there is no "+f.names[0]+")")
		}
	}
	name := o.variable("load.off")
	if on {
		name = o.variable("load.on")
	}
	lines = append(lines, "GET VAR "+o.c.UPS+" "+o.variable("switchable"), "LIST CMD "+o.c.UPS,
		"USERNAME "+quote(o.c.User), "PASSWORD (secret)", "INSTCMD "+o.c.UPS+" "+name)
	for i, l := range lines {
		lines[i] = "tcp " + o.c.Address + ": " + l
	}
	return lines
}

// with runs one conversation within the timeout.
func (o *Outlet) with(ctx context.Context, op string, do func(*conversation) error) error {
	limited, cancel := context.WithTimeout(ctx, o.c.Timeout)
	defer cancel()
	if err := limited.Err(); err != nil {
		return o.fail(op, "begin", err)
	}
	conn, err := bridge.Dial(limited, o.c.Address)
	if err != nil {
		return o.fail(op, "connect to "+o.c.Address, err)
	}
	defer conn.Close()
	c := &conversation{Conn: conn, ups: o.c.UPS}
	if o.tls != nil {
		if err := c.startTLS(o.tls); err != nil {
			return o.fail(op, "begin TLS with "+o.c.Address, err)
		}
	}
	return do(c)
}

func (o *Outlet) fail(op, step string, err error) error {
	return &powerctl.OpError{Op: op, Outlet: o.c.Name, Step: step, Err: err}
}
