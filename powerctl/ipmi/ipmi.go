// Package ipmi switches the chassis power of a server through its BMC, over
// IPMI 2.0 (RMCP+, "lanplus").
//
// It guarantees that Chassis Control is sent with power down and power up only,
// never with cycle, reset or soft shutdown, and never twice; that it is sent to
// no BMC but the pinned one; and that only an authenticated reply to the very
// request that was made can say off. A packet without a valid authentication
// code, of another session or for another request is dropped.
//
// A BMC's off is ACPI S5. Standby rails stay live: the BMC, a network card, a
// backplane or a RAID controller's battery may keep what a loss of mains would
// take. The class of such a cut is powerctl.Chassis.
//
// The wire is written here, over the standard library's cryptography. The Go
// client that there is (bougou/go-ipmi v0.9.1) sends a chassis control five times when
// its reply is lost, does not check the authentication code of replies, takes whatever
// algorithms the BMC answers with, and panics on a short encrypted payload.
package ipmi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"plugpull/internal/clock"
	"plugpull/powerctl"
)

// Config describes a BMC.
type Config struct {
	Name string
	// Address is host or host:port; the port is 623 where it is missing.
	Address string
	// User needs the privilege level operator. At most 16 bytes.
	User string
	// Password has at most 20 bytes.
	Password powerctl.Secret
	// BMCKey is the key KG, at most 20 bytes, for a BMC that wants one.
	BMCKey powerctl.Secret
	// CipherSuite is SHA256 (17) where it is zero. The BMC's choice does not count.
	CipherSuite CipherSuite
	// Timeout bounds each method of the outlet.
	Timeout time.Duration
	// Pin, where it is set, is verified in the session of every command and
	// of every reading.
	Pin Pin
}

// Pin is what a BMC must say of itself; an empty field is not looked at. What
// is pinned and cannot be read counts as wrong.
type Pin struct {
	GUID   string // as Identify returns it; dashes and case do not matter
	Serial string // of the product, else the board, else the chassis. Not every BMC can read it while the chassis is off
}

// Outlet implements powerctl.Outlet, Planner and Warner. Every method opens a session of its own
// and closes it.
type Outlet struct{ c Config }

// Limits of the wire (IPMI 2.0, table 22-28 and 13.20).
const (
	maxUser     = 16
	maxPassword = keyLen
)

const defaultPort = "623"

// New checks the configuration; it connects to nothing.
func New(c Config) (*Outlet, error) {
	var errs []error
	check := func(bad bool, text string) {
		if bad {
			errs = append(errs, errors.New(text))
		}
	}
	check(c.Name == "", "the outlet's name is missing")
	check(c.Address == "", "the BMC's address is missing")
	check(len(c.User) > maxUser, "the user's name has more than 16 bytes")
	check(len(c.Password.Reveal()) > maxPassword, "the password has more than 20 bytes")
	check(len(c.BMCKey.Reveal()) > maxPassword, "the BMC key has more than 20 bytes")
	check(c.Timeout <= 0, "the timeout is missing")
	if raw, err := hex.DecodeString(bareGUID(c.Pin.GUID)); c.Pin.GUID != "" && (err != nil || len(raw) != 16) {
		errs = append(errs, errors.New("the pinned GUID is not 32 hexadecimal digits"))
	}
	if c.CipherSuite == 0 {
		c.CipherSuite = SHA256
	}
	if _, ok := suiteOf(c.CipherSuite); !ok {
		errs = append(errs, fmt.Errorf("cipher suite %d is not 17 or 3", c.CipherSuite))
	}
	if host, port, err := net.SplitHostPort(c.Address); err != nil {
		c.Address = net.JoinHostPort(c.Address, defaultPort)
	} else if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || host == "" {
		errs = append(errs, errors.New("the BMC's address is not host or host:port"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("ipmi outlet: %w", err)
	}
	return &Outlet{c: c}, nil
}

// Tried says against what the driver was run.
const Tried = powerctl.TriedPeer

// Capabilities implements powerctl.Outlet. The peer is OpenIPMI's ipmi_sim, with cipher
// suite 3; ipmitool talks both suites with this package's simulator.
func (o *Outlet) Capabilities() powerctl.Capabilities {
	return powerctl.Capabilities{ReadBack: true, Class: powerctl.Chassis, Tried: Tried}
}

// The values of Chassis Control that are ever sent (IPMI 2.0, table 28-4).
const (
	powerDown = 0x00
	powerUp   = 0x01
)

// Off sends power down: the chassis goes to S5 at once, without the operating
// system's doing. It does not read back.
func (o *Outlet) Off(ctx context.Context) (powerctl.Result, error) {
	return o.command(ctx, "off", powerDown)
}

// On sends power up. It does not read back.
func (o *Outlet) On(ctx context.Context) (powerctl.Result, error) {
	return o.command(ctx, "on", powerUp)
}

func (o *Outlet) command(ctx context.Context, op string, value byte) (powerctl.Result, error) {
	var res powerctl.Result
	err := o.with(ctx, op, func(ctx context.Context, s *session) error {
		sent, err := s.tell(ctx, chassisControl, []byte{value}, func() { res.Commanded = clock.Now() })
		switch {
		case !sent:
			res.Commanded = 0
			return o.fail(op, "send", fmt.Errorf("%w: %w", powerctl.ErrNotSent, err))
		case err != nil:
			return o.fail(op, "await the acknowledgement", err)
		}
		res.Acknowledged = clock.Now()
		return nil
	})
	if err != nil && res.Commanded == 0 && !errors.Is(err, powerctl.ErrNotSent) {
		err = fmt.Errorf("%w: %w", powerctl.ErrNotSent, err)
	}
	return res, err
}

// State asks for the chassis status. Raw is the status in hexadecimal.
func (o *Outlet) State(ctx context.Context) (powerctl.Result, error) {
	var res powerctl.Result
	err := o.with(ctx, "state", func(ctx context.Context, s *session) error {
		b, err := s.ask(ctx, getChassisStatus, nil)
		if err != nil {
			return o.fail("state", "read", err)
		}
		st := parseStatus(b)
		res.State, res.Raw = st.state, fmt.Sprintf("% x", b[:min(len(b), 16)])
		if res.State == powerctl.On || res.State == powerctl.Off {
			res.Observed = clock.Now()
		}
		return nil
	})
	return res, err
}

// Identify asks for the system's GUID, the serial number and the product. A BMC
// that tells neither GUID nor serial number is told by a digest of its address.
func (o *Outlet) Identify(ctx context.Context) (powerctl.Identity, error) {
	id := powerctl.Identity{Driver: "ipmi", Name: o.c.Name}
	err := o.with(ctx, "identify", func(ctx context.Context, s *session) error {
		d, err := s.identify(ctx)
		if err != nil {
			return o.fail("identify", "read", err)
		}
		id.Device = d.String()
		if d.guid == "" && d.serial == "" {
			sum := sha256.Sum256([]byte(o.c.Address))
			id.Device += " address " + hex.EncodeToString(sum[:4])
		}
		return nil
	})
	if err != nil {
		return powerctl.Identity{}, err
	}
	return id, nil
}

// with runs one exchange in a session of its own with the pinned BMC.
func (o *Outlet) with(ctx context.Context, op string, exchange func(context.Context, *session) error) error {
	return o.unverified(ctx, op, func(ctx context.Context, s *session) error {
		if err := s.verify(ctx, o.c.Pin); err != nil {
			return o.fail(op, "verify which BMC answers", err)
		}
		return exchange(ctx, s)
	})
}

// unverified runs one exchange in a session with whichever BMC has the password.
func (o *Outlet) unverified(ctx context.Context, op string, exchange func(context.Context, *session) error) error {
	limited, cancel := context.WithTimeout(ctx, o.c.Timeout)
	defer cancel()
	if err := limited.Err(); err != nil {
		return o.fail(op, "begin", err)
	}
	s, stop, err := open(limited, o.c)
	if err != nil {
		return o.fail(op, "log in", err)
	}
	defer stop()
	defer s.close()
	return exchange(limited, s)
}

func (o *Outlet) fail(op, step string, err error) error {
	return &powerctl.OpError{Op: op, Outlet: o.c.Name, Step: step, Err: err}
}
