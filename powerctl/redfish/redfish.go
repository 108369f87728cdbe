// Package redfish switches the chassis power of a server, or an outlet of a
// PDU, through a Redfish service.
//
// It guarantees that a reset is sent as ForceOff and On only, and an outlet's
// control as Off and On only, never as a cycle, restart or graceful shutdown; that it
// is sent at most once, to the pinned device only, over a connection whose
// certificate was verified; and that only the exact word Off, in a whole answer about the
// right kind of resource, is off.
//
// A system's off is ACPI S5. Standby rails stay live: the BMC, a network card, a
// backplane or a RAID controller's battery may keep what a loss of mains would
// take. The class of such a cut is powerctl.Chassis; that of a PDU's outlet is powerctl.Mains.
//
// Redirects are never followed: to follow one is to send the command, and the
// password, a second time. For this reason, and to know whether a command left at all, it stands
// on net/http alone, with one connection a request.
package redfish

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"plugpull/internal/clock"
	"plugpull/powerctl"
	"plugpull/powerctl/internal/httponce"
)

// Auth is how requests are authenticated.
type Auth string

// The ways. Basic leaves nothing behind on the device and is the default; Session is for
// devices that have Basic disabled: every method then opens a session and deletes it.
const (
	Basic   Auth = "basic"
	Session Auth = "session"
)

// Config describes a system or an outlet.
type Config struct {
	Name string
	// URL is https://host or https://host:port.
	URL      string
	User     string
	Password powerctl.Secret
	Auth     Auth
	// Exactly one of the two: the path of a ComputerSystem, such as
	// /redfish/v1/Systems/1, or that of a PDU's Outlet, such as
	// /redfish/v1/PowerEquipment/RackPDUs/1/Outlets/A7.
	System, Outlet string
	// The certificate is verified against the system's authorities, or those in
	// CAFile (PEM), or it is the one with this SHA-256 fingerprint (hexadecimal, of the
	// whole certificate), as self-signed ones need. There is no way around verification.
	CAFile, Fingerprint string
	// Timeout bounds each method of the outlet. To delete a session takes up to
	// two seconds more.
	Timeout time.Duration
	// Pin, where it is set, is verified before every command and with every reading.
	Pin Pin
}

// Pin is what the device must say of itself; an empty field is not looked at.
// What is pinned and cannot be read counts as wrong.
type Pin struct {
	UUID   string // of the system or the PDU; dashes and case do not matter
	Serial string // of the system or the PDU
	Label  string // of a PDU's outlet: its user label, or its name where it has none
}

// Outlet implements powerctl.Outlet, Planner and Warner.
type Outlet struct {
	c      Config
	kind   *kind
	client *httponce.Client
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
	check(c.Timeout <= 0, "the timeout is missing")
	check((c.System == "") == (c.Outlet == ""), "exactly one of system and outlet is wanted")
	check(!isPath(c.System+c.Outlet), "the resource is not a path such as /redfish/v1/Systems/1")
	check(c.System != "" && c.Pin.Label != "", "a system has no label to pin")
	u, err := url.Parse(c.URL)
	check(err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "",
		"the URL is not https://host or https://host:port")
	if c.Auth == "" {
		c.Auth = Basic
	}
	check(c.Auth != Basic && c.Auth != Session, "the authentication is neither basic nor session")
	o := &Outlet{c: c, kind: &system}
	if c.Outlet != "" {
		o.kind = &pduOutlet
	}
	o.c.URL = strings.TrimRight(c.URL, "/")
	if o.client, err = newClient(c); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("redfish outlet: %w", err)
	}
	return o, nil
}

// isPath: a path of this service, and nothing that a URL could make of it.
func isPath(s string) bool {
	return strings.HasPrefix(s, "/") && !strings.HasPrefix(s, "//") && !strings.ContainsAny(s, "?#\\ \t\r\n%") && !strings.Contains(s, "..")
}

func (o *Outlet) path() string { return o.c.System + o.c.Outlet }

// Tried says against what the driver was run.
const Tried = powerctl.TriedSimulator

// Capabilities implements powerctl.Outlet. Nobody else's service has answered this driver.
// The DMTF's redfishtool, and fence_redfish, are clients like it: that they can work with this
// package's simulator backs the simulator's idea of the wire, and not the driver's way with a BMC.
// The zero Outlet may be asked too, for a list of drivers; it has no class.
func (o *Outlet) Capabilities() powerctl.Capabilities {
	c := powerctl.Capabilities{ReadBack: true, Tried: Tried}
	if o.kind != nil {
		c.Class = o.kind.class
	}
	return c
}

// Off sends ForceOff to a system, Off to an outlet of a PDU. It reads back only
// when the device answers 409: some do when there is nothing to do.
func (o *Outlet) Off(ctx context.Context) (powerctl.Result, error) {
	return o.command(ctx, "off", o.kind.off, powerctl.Off)
}

// On is Off's counterpart.
func (o *Outlet) On(ctx context.Context) (powerctl.Result, error) {
	return o.command(ctx, "on", o.kind.on, powerctl.On)
}

func (o *Outlet) command(ctx context.Context, op, value string, want powerctl.State) (powerctl.Result, error) {
	var res powerctl.Result
	err := o.with(ctx, op, func(c *conversation) error {
		r, err := o.get(c, op)
		if err != nil {
			return err
		}
		target, err := r.target(c, value)
		if err != nil {
			return o.fail(op, "read what may be asked for", err)
		}
		res.Commanded, err = c.command(target, map[string]string{o.kind.parameter: value})
		if err == nil {
			res.Acknowledged = clock.Now()
			return nil
		}
		err = o.fail(op, "send "+value, err)
		var se *StatusError
		if !errors.As(err, &se) || se.Code != http.StatusConflict {
			return err
		}
		now, readErr := o.get(c, op)
		if readErr != nil || now.state() != want {
			return err
		}
		res.State, res.Raw, res.Observed = want, now.raw(), clock.Now()
		return nil
	})
	if err != nil && res.Commanded == 0 && !errors.Is(err, powerctl.ErrNotSent) {
		err = fmt.Errorf("%w: %w", powerctl.ErrNotSent, err)
	}
	return res, err
}

// State reads the resource. Raw is its power state and what else was looked at.
func (o *Outlet) State(ctx context.Context) (powerctl.Result, error) {
	var res powerctl.Result
	err := o.with(ctx, "state", func(c *conversation) error {
		r, err := o.get(c, "state")
		if err != nil {
			return err
		}
		res.State, res.Raw = r.state(), r.raw()
		if res.State == powerctl.On || res.State == powerctl.Off {
			res.Observed = clock.Now()
		}
		return nil
	})
	return res, err
}

// Identify asks for the UUID, the serial number and the model of the system or
// the PDU. One that tells neither UUID nor serial number is told by a digest of its address.
func (o *Outlet) Identify(ctx context.Context) (powerctl.Identity, error) {
	id := powerctl.Identity{Driver: "redfish", Name: o.c.Name}
	err := o.with(ctx, "identify", func(c *conversation) error {
		r, err := o.get(c, "identify")
		if err != nil {
			return err
		}
		d, err := r.device(c)
		if err != nil {
			return o.fail("identify", "read", err)
		}
		id.Device = d.String()
		if d.uuid == "" && d.serial == "" {
			sum := sha256.Sum256([]byte(o.c.URL))
			id.Device = strings.TrimSpace(id.Device + " address " + hex.EncodeToString(sum[:4]))
		}
		id.Device += " " + o.path()
		return nil
	})
	if err != nil {
		return powerctl.Identity{}, err
	}
	return id, nil
}

// get reads the resource and makes sure that it is the pinned one.
func (o *Outlet) get(c *conversation, op string) (*resource, error) {
	r, err := o.unverified(c, op)
	if err != nil {
		return nil, err
	}
	if err := r.verify(c, o.c.Pin); err != nil {
		return nil, o.fail(op, "verify which device answers", err)
	}
	return r, nil
}

// unverified reads the resource of whichever device answers.
func (o *Outlet) unverified(c *conversation, op string) (*resource, error) {
	object, err := c.get(o.path())
	if err != nil {
		return nil, o.fail(op, "read "+o.path(), err)
	}
	r := &resource{kind: o.kind, path: o.path(), object: object}
	if err := r.check(); err != nil {
		return nil, o.fail(op, "read "+o.path(), err)
	}
	return r, nil
}

// with runs one exchange, authenticated.
func (o *Outlet) with(ctx context.Context, op string, exchange func(*conversation) error) error {
	limited, cancel := context.WithTimeout(ctx, o.c.Timeout)
	defer cancel()
	if err := limited.Err(); err != nil {
		return o.fail(op, "begin", err)
	}
	c := &conversation{ctx: limited, client: o.client, base: o.c.URL, user: o.c.User, password: o.c.Password}
	if o.c.Auth == Session {
		if err := c.login(); err != nil {
			return o.fail(op, "open a session", err)
		}
		defer c.logout()
	}
	return exchange(c)
}

func (o *Outlet) fail(op, step string, err error) error {
	return &powerctl.OpError{Op: op, Outlet: o.c.Name, Step: step, Err: err}
}
