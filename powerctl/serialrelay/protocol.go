package serialrelay

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// reading is what an answer says.
type reading uint8

const (
	incomplete reading = iota // nothing yet, or the beginning of an answer
	nonsense                  // not an answer, whatever follows
	released                  // the relay is without current
	energised                 // the relay is pulled in
	accepted                  // of a command, or of a question that is not about a relay
)

// judge says what the bytes that have come so far are. It is asked again with
// every further byte: what follows a whole answer makes nonsense of it.
type judge func(got []byte) reading

// wire is one protocol. Frames are sent as they are.
type wire interface {
	// command moves a relay. The judge is nil where commands are not answered.
	command(channel int, energise bool) ([]byte, judge)
	// query asks for a relay. A nil frame: the board does not tell.
	query(channel int) ([]byte, judge)
	// agree is how many answers in a row must agree before one is believed.
	agree() int
}

func newWire(c Config) wire {
	switch c.Protocol {
	case KMTronic:
		return kmtronic{c.Channels}
	case Numato:
		return numato{c.Channels, c.Readback == ReadAll}
	}
	return lcus{c.Channels, c.Readback}
}

func relay(on bool) reading {
	if on {
		return energised
	}
	return released
}

// lcus: 9600 8N1, A0 channel 00|01 sum. FF asks for all channels.
type lcus struct {
	channels int
	readback Readback
}

func (l lcus) command(channel int, energise bool) ([]byte, judge) {
	f := []byte{0xa0, byte(channel), 0, 0}
	if energise {
		f[2] = 1
	}
	f[3] = f[0] + f[1] + f[2]
	return f, nil
}

func (l lcus) query(channel int) ([]byte, judge) {
	switch l.readback {
	case Text:
		return []byte{0xff}, func(got []byte) reading { return lcusText(l.channels, channel, got) }
	case Bytes:
		return []byte{0xff}, func(got []byte) reading { return oneByteEach(l.channels, channel, got) }
	}
	return nil, nil
}

// agree: an LCUS-X2 has been seen to answer with the state before last, and a single
// zero byte is what a disturbed line looks like, too.
func (l lcus) agree() int { return 2 }

// lcusLine allows for the two ways of setting the blanks that are known:
// "CH1:OFF \r\n" and "CH1: OFF\r\n".
var lcusLine = regexp.MustCompile(`^CH([0-9]{1,2}): ?(ON|OFF) *\r\n$`)

func lcusText(channels, channel int, got []byte) reading {
	const longest = len("CH16:OFF    \r\n")
	result := incomplete
	lines := bytes.SplitAfter(got, []byte("\n"))
	for i, line := range lines[:len(lines)-1] {
		m := lcusLine.FindSubmatch(line)
		if m == nil || i >= channels || string(m[1]) != strconv.Itoa(i+1) {
			return nonsense
		}
		if i+1 == channel {
			result = relay(string(m[2]) == "ON")
		}
	}
	rest := lines[len(lines)-1]
	switch {
	case len(rest) > longest || len(rest) > 0 && (len(lines) > channels || rest[0] != 'C'):
		return nonsense
	case len(lines) <= channels:
		return incomplete
	}
	return result
}

// oneByteEach is one byte 00 or 01 for each channel, from the first.
func oneByteEach(channels, channel int, got []byte) reading {
	if len(got) > channels || bytes.ContainsFunc(got, func(r rune) bool { return r > 1 }) {
		return nonsense
	}
	if len(got) < channels {
		return incomplete
	}
	return relay(got[channel-1] == 1)
}

// kmtronic: 9600 8N1, FF channel 00|01. One and two channels answer FF channel 03
// with FF channel state; four and eight answer FF 09 00 with a byte for each.
type kmtronic struct{ channels int }

func (k kmtronic) command(channel int, energise bool) ([]byte, judge) {
	f := []byte{0xff, byte(channel), 0}
	if energise {
		f[2] = 1
	}
	return f, nil
}

func (k kmtronic) query(channel int) ([]byte, judge) {
	if k.channels <= 2 {
		return []byte{0xff, byte(channel), 3}, func(got []byte) reading { return kmtronicStatus(channel, got) }
	}
	return []byte{0xff, 9, 0}, func(got []byte) reading { return oneByteEach(k.channels, channel, got) }
}

// agree: a status looks like the command that asked for it, should the line echo.
func (k kmtronic) agree() int { return 2 }

func kmtronicStatus(channel int, got []byte) reading {
	head := []byte{0xff, byte(channel)}
	if !bytes.HasPrefix(got, head[:min(len(got), 2)]) || len(got) > 3 || len(got) == 3 && got[2] > 1 {
		return nonsense
	}
	if len(got) < 3 {
		return incomplete
	}
	return relay(got[2] == 1)
}

// numato: ASCII lines, echoed, with an answer of at most one line and a prompt.
type numato struct {
	channels int
	all      bool
}

// index: one sign 0-9A-V up to 32 channels, two digits beyond.
func (n numato) index(channel int) string {
	if n.channels > 32 {
		return fmt.Sprintf("%02d", channel)
	}
	return strings.ToUpper(strconv.FormatInt(int64(channel), 36))
}

func (n numato) command(channel int, energise bool) ([]byte, judge) {
	word := "off"
	if energise {
		word = "on"
	}
	request := "relay " + word + " " + n.index(channel)
	return []byte(request + "\r"), func(got []byte) reading {
		_, r := numatoAnswer(request, 0, got)
		return r
	}
}

func (n numato) query(channel int) ([]byte, judge) {
	if n.all {
		const request = "relay readall"
		return []byte(request + "\r"), func(got []byte) reading {
			value, r := numatoAnswer(request, 1, got)
			if r != accepted {
				return r
			}
			return numatoMask(n.channels, channel, value)
		}
	}
	request := "relay read " + n.index(channel)
	return []byte(request + "\r"), func(got []byte) reading {
		value, r := numatoAnswer(request, 1, got)
		switch {
		case r != accepted:
			return r
		case value == "on" || value == "off":
			return relay(value == "on")
		}
		return nonsense
	}
}

// agree: the echo says which question was answered.
func (n numato) agree() int { return 1 }

// numatoMask reads as many hex digits as the channels need, relay 0 lowest.
func numatoMask(channels, channel int, value string) reading {
	if len(value) != (channels+3)/4 || strings.ContainsFunc(value, notHex) {
		return nonsense
	}
	mask, err := strconv.ParseUint(value, 16, 64)
	if err != nil || channels < 64 && mask>>channels != 0 {
		return nonsense
	}
	return relay(mask>>channel&1 == 1)
}

func notHex(r rune) bool { return !strings.ContainsRune("0123456789abcdefABCDEF", r) }

// numatoAnswer takes an answer apart: the echo, as many lines as are wanted and
// the prompt. How lines end varies with the firmware: \r, \n and both in any order.
func numatoAnswer(request string, lines int, got []byte) (value string, _ reading) {
	const longest = 128
	text := string(got)
	at := strings.IndexByte(text, '>')
	switch {
	case len(text) > longest || at >= 0 && at != len(text)-1:
		return "", nonsense
	case at < 0:
		return "", incomplete
	}
	text = text[:at]
	parts := strings.FieldsFunc(text, func(r rune) bool { return r == '\r' || r == '\n' })
	ended := strings.HasSuffix(text, "\r") || strings.HasSuffix(text, "\n")
	if !ended || len(parts) != 1+lines || parts[0] != request {
		return "", nonsense
	}
	if lines > 0 {
		value = parts[1]
	}
	return value, accepted
}
