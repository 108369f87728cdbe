// Package serialrelay switches outlets with relay boards on a serial line: LCUS
// (CH340), KMTronic and Numato.
//
// It guarantees that a state is reported only from an answer that is exactly an
// answer, to a question asked in the same call; that a command goes out once,
// and only to the board that was there at the beginning; and that a board which
// does not answer questions is an outlet without read-back, never one that is off.
package serialrelay

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"plugpull/internal/serialport"
	"plugpull/powerctl"
)

// Protocol is what a board speaks.
type Protocol string

// The protocols.
const (
	LCUS     Protocol = "lcus"     // channels from 1; commands are not answered
	KMTronic Protocol = "kmtronic" // channels from 1; commands are not answered
	Numato   Protocol = "numato"   // channels from 0; commands are echoed
)

// Readback is how a board tells its state.
type Readback string

// The kinds. KMTronic has one alone, by its number of channels: leave it empty.
const (
	Text    Readback = "text"    // LCUS: "CH1:OFF \r\n" for each channel
	Bytes   Readback = "bytes"   // LCUS: one byte a channel
	None    Readback = "none"    // LCUS: no answer
	Probe   Readback = "probe"   // LCUS: Open asks; a board that stays silent is None
	Read    Readback = "read"    // Numato: "relay read X"; the default
	ReadAll Readback = "readall" // Numato: "relay readall"
)

// power is the state behind a relay as it was read.
func power(c powerctl.Contact, r reading) powerctl.State {
	switch r {
	case energised, released:
		return c.State(r == energised)
	}
	return powerctl.Unknown
}

// Config describes a board.
type Config struct {
	// Path of the serial port. Prefer /dev/serial/by-id, or by-path for adapters
	// without a serial number: two CH340 share one by-id name.
	Path     string
	Protocol Protocol
	// Channels is how many relays the board has: LCUS 1 to 16, KMTronic 1, 2, 4
	// or 8, Numato 1 to 64.
	Channels int
	Readback Readback
	// Baud is 9600 when zero. The USB boards of Numato take any.
	Baud int
	// Timeout bounds each call, the wait for other outlets of the board included.
	Timeout time.Duration
	// Pin is what Board.ID must return. Empty pins what Open finds.
	Pin string
}

// OutletConfig describes one relay of a board.
type OutletConfig struct {
	Name string
	// Channel as the board numbers it.
	Channel int
	Contact powerctl.Contact
	Class   powerctl.Class
}

var readbacks = map[Protocol][]Readback{
	LCUS:     {Text, Bytes, None, Probe},
	KMTronic: {""},
	Numato:   {"", Read, ReadAll},
}

func (c Config) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Path != "", "the path is missing")
	kinds, known := readbacks[c.Protocol]
	check(known, "the protocol %q is unknown", c.Protocol)
	check(!known || slices.Contains(kinds, c.Readback), "the read-back %q is not one of %s", c.Readback, c.Protocol)
	switch c.Protocol {
	case LCUS:
		check(c.Channels >= 1 && c.Channels <= 16, "%d channels: want 1 to 16", c.Channels)
	case KMTronic:
		check(slices.Contains([]int{1, 2, 4, 8}, c.Channels), "%d channels: want 1, 2, 4 or 8", c.Channels)
	case Numato:
		check(c.Channels >= 1 && c.Channels <= 64, "%d channels: want 1 to 64", c.Channels)
	}
	check(c.Baud == 0 || serialport.Supported(c.Baud), "the baud rate %d is unknown", c.Baud)
	check(c.Timeout > 0, "the timeout is missing")
	return errors.Join(errs...)
}

func (c OutletConfig) validate(b Config) error {
	var errs []error
	if c.Name == "" {
		errs = append(errs, errors.New("the outlet's name is missing"))
	}
	first := 1
	if b.Protocol == Numato {
		first = 0
	}
	if c.Channel < first || c.Channel >= first+b.Channels {
		errs = append(errs, fmt.Errorf("channel %d: the board has %d to %d", c.Channel, first, first+b.Channels-1))
	}
	if !c.Contact.Valid() {
		errs = append(errs, fmt.Errorf("the contact %q is neither %s nor %s", c.Contact, powerctl.NormallyOpen, powerctl.NormallyClosed))
	}
	return errors.Join(errs...)
}
