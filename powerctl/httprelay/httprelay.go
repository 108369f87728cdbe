// Package httprelay switches outlets of network sockets and power strips over HTTP or
// HTTPS. What a device understands is data: a Profile (profiles/*.yaml, or a user's own,
// see profiles/README.md).
//
// It guarantees that only the value which the profile lists as off, of exactly its JSON
// type, in a whole answer to this very request, with every condition of the profile met,
// from the device and for the outlet that were pinned, is off; that a command is written at
// most once, never to another address that an answer names, and never after a wrong
// identity; that nothing but GET is used to read; and that no toggle, timer, pulse, cycle or
// delayed command is ever sent (guard.go).
//
// Over plain HTTP anybody on the network can answer in the device's name, and Basic
// passwords and those in a query can be read: many of these devices have nothing else,
// so it is allowed, and Warnings says it. A relay's state is what the device believes of its relay.
//
// Digest headers are parsed and computed by github.com/icholy/digest. Its transport is not
// used: it answers any 401 by sending the request again, a command as well. For the
// same reason there is one connection a request, as in powerctl/redfish.
package httprelay

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"plugpull/internal/clock"
	"plugpull/powerctl"
	"plugpull/powerctl/internal/httponce"
)

// Config describes one outlet. The caller resolves the password.
type Config struct {
	Name string
	// URL is http://host or https://host, with a port where it is another one.
	URL string
	// Profiles are those to choose from: Load's, and a user's own.
	Profiles []*Profile
	Profile  string
	// Outlet counts from 1, also where the device counts from 0.
	Outlet int
	// User and Password are both given or both not. How they are sent is up to the profile.
	User     string
	Password powerctl.Secret
	// With https, the certificate is verified against the system's authorities, or those in
	// CAFile (PEM), or it is the one with this SHA-256 fingerprint (hexadecimal, of the
	// whole certificate). There is no way around verification.
	CAFile, Fingerprint string
	// Class is the profile's where it is empty.
	Class powerctl.Class
	// Timeout bounds each method of the outlet.
	Timeout time.Duration
	Pin     Pin
}

// Pin is what the device and the outlet must say of themselves, compared exactly with what
// Outlet.Pins returns. Empty fields are taken from the first contact instead, where the
// device tells them, so that one that is swapped in the middle of a run is noticed. What is
// pinned and cannot be read counts as wrong.
type Pin struct{ Serial, OutletName string }

// Outlet implements powerctl.Outlet, powerctl.Planner and powerctl.Warner.
type Outlet struct {
	c      Config
	p      *Profile
	client *httponce.Client
	known  Pin // pinned, or from the first contact
}

var (
	_ powerctl.Outlet  = (*Outlet)(nil)
	_ powerctl.Planner = (*Outlet)(nil)
	_ powerctl.Warner  = (*Outlet)(nil)
)

// New checks the configuration and reads the CA file; it connects to nothing.
func New(c Config) (*Outlet, error) {
	var errs []error
	check := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Name == "", "the outlet's name is missing")
	check(c.Timeout <= 0, "the timeout is missing")
	u, err := url.Parse(c.URL)
	check(err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil ||
		strings.Trim(u.Path, "/") != "" || strings.ContainsAny(c.URL, "?#"),
		"the URL is not http://host or https://host, without user, password and path")
	secure := err == nil && u.Scheme == "https"
	check(!secure && c.CAFile+c.Fingerprint != "", "a CA file or a fingerprint wants https")
	check(c.Class != "" && !slices.Contains(powerctl.Classes(), c.Class), "the class is %q, want one of %q", c.Class, powerctl.Classes())
	password := c.Password.Reveal() != ""
	check(password != (c.User != ""), "user and password are wanted both or not at all")
	p, err := Named(c.Profiles, c.Profile)
	if err != nil {
		errs = append(errs, err)
	} else {
		check(c.Outlet < 1 || c.Outlet > p.Outlets, "the outlet is %d, want 1 to %d (%s)", c.Outlet, p.Outlets, p.Name)
		check(password && p.Auth == NoAuth, "%s knows no password", p.Name)
		check(p.serial == nil && c.Pin.Serial != "", "%s cannot read a serial number to pin", p.Name)
		check(p.outletName == nil && c.Pin.OutletName != "", "%s cannot read an outlet's name to pin", p.Name)
	}
	o := &Outlet{c: c, p: p, known: c.Pin}
	o.c.URL = strings.TrimRight(c.URL, "/")
	if o.client, err = newClient(c); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("http outlet: %w", err)
	}
	return o, nil
}

// Capabilities implements powerctl.Outlet.
func (o *Outlet) Capabilities() powerctl.Capabilities {
	c := powerctl.Capabilities{ReadBack: true, Class: o.p.Class, Tried: o.p.Tried}
	if o.c.Class != "" {
		c.Class = o.c.Class
	}
	return c
}

// Off verifies the identity and sends the profile's off. It does not read back. An
// *powerctl.IdentityError sent nothing.
func (o *Outlet) Off(ctx context.Context) (powerctl.Result, error) {
	return o.command(ctx, "off", &o.p.off)
}

// On is Off's counterpart.
func (o *Outlet) On(ctx context.Context) (powerctl.Result, error) {
	return o.command(ctx, "on", &o.p.on)
}

func (o *Outlet) command(ctx context.Context, op string, cmd *command) (powerctl.Result, error) {
	var res powerctl.Result
	err := o.with(ctx, op, func(c *conversation) error {
		if err := o.verify(c); err != nil {
			return o.fail(op, "verify which device answers", err)
		}
		if err := c.prepare(); err != nil {
			return o.fail(op, "ask for the login's challenge", err)
		}
		var err error
		if res.Commanded, err = c.command(cmd); err != nil {
			return o.fail(op, "send "+cmd.method+" "+cmd.path.fill(o.c.Outlet), err)
		}
		res.Acknowledged = clock.Now()
		return nil
	})
	if err != nil && res.Commanded == 0 && !errors.Is(err, powerctl.ErrNotSent) {
		err = fmt.Errorf("%w: %w", powerctl.ErrNotSent, err)
	}
	return res, err
}

// State verifies the identity and reads the state. Raw is what the rule looked at, or the
// beginning of the answer where that is missing.
func (o *Outlet) State(ctx context.Context) (powerctl.Result, error) {
	var res powerctl.Result
	err := o.with(ctx, "state", func(c *conversation) error {
		if err := o.verify(c); err != nil {
			return o.fail("state", "verify which device answers", err)
		}
		path := o.p.state.get.fill(o.c.Outlet)
		a, err := c.get(path)
		if err != nil {
			return o.fail("state", "read "+path, err)
		}
		at := clock.Now()
		var seen string
		res.State, seen = o.p.state.read(a.value, o.c.Outlet)
		if seen == "" {
			seen = string(a.body)
		}
		res.Raw = o.scrub(seen)
		res.Raw = res.Raw[:min(len(res.Raw), powerctl.MaxRaw)]
		if res.State == powerctl.On || res.State == powerctl.Off {
			res.Observed = at
		}
		return nil
	})
	return res, err
}

// Identify asks the device for its serial number. One that does not tell any is told by a
// digest of its address.
func (o *Outlet) Identify(ctx context.Context) (powerctl.Identity, error) {
	id := powerctl.Identity{Driver: "httprelay", Name: o.c.Name}
	err := o.with(ctx, "identify", func(c *conversation) error {
		if err := o.verify(c); err != nil {
			return o.fail("identify", "verify which device answers", err)
		}
		id.Device = "serial " + o.known.Serial
		if o.known.Serial == "" {
			sum := sha256.Sum256([]byte(o.c.URL))
			id.Device = "address " + hex.EncodeToString(sum[:4])
		}
		id.Device = fmt.Sprintf("%s %s outlet %d", o.p.Name, id.Device, o.c.Outlet)
		return nil
	})
	if err != nil {
		return powerctl.Identity{}, err
	}
	return id, nil
}

// Pins returns what the device says now under the names serial and outlet_name, for a
// user to pin, whatever is pinned already. What it does not tell is left out.
func (o *Outlet) Pins(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	err := o.with(ctx, "identify", func(c *conversation) error {
		for _, f := range o.fields() {
			v, err := o.tell(c, f)
			if err != nil {
				return o.fail("identify", "read the "+f.what, err)
			}
			if v != "" {
				out[f.key] = v
			}
		}
		return nil
	})
	return out, err
}

// Plan implements powerctl.Planner.
func (o *Outlet) Plan(on bool) []string {
	var lines []string
	for _, f := range o.fields() {
		if line := "GET " + o.shown(f.rule.get.fill(o.c.Outlet)); !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	if o.loginBy(Digest) {
		lines = append(lines, "GET "+o.shown(o.p.state.get.fill(o.c.Outlet))+" (for the login's challenge)")
	}
	cmd := &o.p.off
	if on {
		cmd = &o.p.on
	}
	line := cmd.method + " " + o.shown(cmd.path.fill(o.c.Outlet))
	if cmd.body != "" {
		line += " " + cmd.body.fill(o.c.Outlet)
	}
	return append(lines, line)
}

// with runs one exchange within the timeout.
func (o *Outlet) with(ctx context.Context, op string, exchange func(*conversation) error) error {
	limited, cancel := context.WithTimeout(ctx, o.c.Timeout)
	defer cancel()
	if err := limited.Err(); err != nil {
		return o.fail(op, "begin", err)
	}
	return exchange(&conversation{ctx: limited, o: o, seen: map[string]answer{}})
}

func (o *Outlet) fail(op, step string, err error) error {
	return &powerctl.OpError{Op: op, Outlet: o.c.Name, Step: step, Err: err}
}
