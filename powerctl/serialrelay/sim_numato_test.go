package serialrelay

import (
	"fmt"
	"strings"

	"plugpull/powerctl"
)

// numato answers with echo, value and prompt.
func (b *board) numato(line string) (_ []byte, reset bool) {
	n := numato{b.c.Channels, b.c.Readback == ReadAll}
	reply := func(value string) []byte {
		if value != "" {
			value += "\n\r"
		}
		return []byte(line + "\n\r" + value + ">")
	}
	x := n.index(b.oc.Channel)
	switch line {
	case "":
		return []byte("\n\r>"), false
	case "id get":
		return reply(b.own), false
	case "ver":
		return reply("A0M09.01"), false
	case "relay on " + x, "relay off " + x:
		to := powerctl.Off
		if b.oc.Contact.Energised(true) == (line == "relay on "+x) {
			to = powerctl.On
		}
		switch a := b.device.Switch(to); {
		case a.Silent:
			return nil, false
		case a.Reset:
			return nil, true
		case a.Failed:
			return []byte("relay\n\rerror\n\r>"), false
		}
		return reply(""), false
	case "relay read " + x, "relay readall":
		a := b.device.Read()
		switch {
		case a.Failed:
			return nil, true
		case a.Garbage > 0:
			return pick(numatoNonsense(line), a.Garbage), false
		case a.State == powerctl.Unknown || a.State == powerctl.Fault:
			return reply("unknown"), false
		}
		return reply(b.numatoValue(line, a.State)), false
	}
	return reply(""), false
}

func (b *board) numatoValue(line string, s powerctl.State) string {
	on := b.pulledIn(s)
	switch {
	case line == "relay readall" && on:
		return fmt.Sprintf("%0*x", (b.c.Channels+3)/4, uint64(1)<<b.oc.Channel)
	case line == "relay readall":
		return fmt.Sprintf("%0*x", (b.c.Channels+3)/4, 0)
	case on:
		return "on"
	}
	return "off"
}

func numatoNonsense(line string) [][]byte {
	var all [][]byte
	for _, text := range []string{
		"", ">", "off\n\r>", "0000\n\r>", line + "\n\r>", line + "\n\roff", line + "\n\roffline\n\r>", line + "\n\roff\n\ron\n\r>",
		line + "\n\roff>", line + " off\n\r>", "relay read 7\n\roff\n\r>", "relay off 0\n\r>" + line + "\n\roff\n\r>", line + "\n\roff\n\r>>",
		line + "\n\roff\n\r>\n\r" + line + "\n\ron\n\r>", line + "\n\r00000\n\r>", line + "\n\r0g\n\r>", line + "\n\rOFF\n\r>", line + "\n\r-0\n\r>",
		strings.Repeat("off\n\r>", 200), line + "\n\ro\x00ff\n\r>",
	} {
		all = append(all, []byte(text))
	}
	return all
}
