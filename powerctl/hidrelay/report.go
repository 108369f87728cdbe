package hidrelay

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
)

// reading is what a state report says of one relay.
type reading uint8

const (
	nonsense reading = iota
	released
	energised
)

// command is the report that moves one relay.
func command(m Model, relay int, energise bool) []byte {
	report := make([]byte, reportSize)
	if m == HIDRelay {
		// One byte: the relay, with F0 added to pull it in (usbrelay, libusbrelay.c).
		report[1] = byte(relay)
		if energise {
			report[1] += 0xf0
		}
		return report
	}
	report[1], report[2] = 0xfd, byte(relay)
	if energise {
		report[1] = 0xff
	}
	return report
}

// status is a state report taken apart.
type status struct {
	serial []byte // five bytes
	mask   byte
}

// parseStatus takes the answer to a question for report 0 or 1. The board answers
// both with the same eight bytes: the serial in the first five, the mask in the last. Before those
// of report 0 the kernel puts the report's number.
func parseStatus(number int, answer []byte) (status, bool) {
	if number == 0 {
		if len(answer) != reportSize || answer[0] != 0 {
			return status{}, false
		}
		answer = answer[1:]
	}
	if len(answer) != reportSize-1 {
		return status{}, false
	}
	return status{serial: answer[:serialSize], mask: answer[7]}, true
}

// read says where a relay is, from 1. A report with another serial is not from this board,
// or is a corrupt one: eight zero bytes would else be off. So is one with relays
// that the board does not have.
func (s status) read(serial string, relays, relay int) reading {
	if string(s.text()) != serial || s.mask>>relays != 0 {
		return nonsense
	}
	if s.mask>>(relay-1)&1 == 1 {
		return energised
	}
	return released
}

const serialSize = 5

// text is the serial without the zero bytes that fill up a short one.
func (s status) text() []byte { return bytes.TrimRight(s.serial, "\x00") }

// printable: a serial can become corrupt, and then tells boards apart no longer.
func printable(serial string) bool {
	return serial != "" && !strings.ContainsFunc(serial, func(r rune) bool { return r <= ' ' || r > '~' })
}

var productName = regexp.MustCompile(`(?:^| )USBRelay([1-8])$`)

// relays returns how many relays a 16c0:05df device has, zero where it is no
// relay board: all kinds of devices share that number.
func relays(i info) int {
	m := productName.FindStringSubmatch(i.name)
	if i.vendor != 0x16c0 || i.product != 0x05df || m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

// isClone: the Ucreatefun board "HIDRelay".
func isClone(i info) bool {
	return i.vendor == 0x0519 && i.product == 0x2018 && strings.HasSuffix(i.name, "HIDRelay")
}
