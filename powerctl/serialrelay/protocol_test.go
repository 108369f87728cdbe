package serialrelay

import (
	"bytes"
	"encoding/hex"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/powerctl"
)

// The golden bytes are those of the vendors' documents.
func TestFrames(t *testing.T) {
	for _, c := range []struct {
		c              Config
		channel        int
		on, off, query string
	}{
		{Config{Protocol: LCUS, Channels: 1, Readback: Text}, 1, "a00101a2", "a00100a1", "ff"},
		{Config{Protocol: LCUS, Channels: 2, Readback: Bytes}, 2, "a00201a3", "a00200a2", "ff"},
		{Config{Protocol: LCUS, Channels: 8, Readback: None}, 8, "a00801a9", "a00800a8", ""},
		{Config{Protocol: KMTronic, Channels: 1}, 1, "ff0101", "ff0100", "ff0103"},
		{Config{Protocol: KMTronic, Channels: 2}, 2, "ff0201", "ff0200", "ff0203"},
		{Config{Protocol: KMTronic, Channels: 4}, 4, "ff0401", "ff0400", "ff0900"},
		{Config{Protocol: KMTronic, Channels: 8}, 8, "ff0801", "ff0800", "ff0900"},
		{Config{Protocol: Numato, Channels: 8}, 0, "relay on 0\r", "relay off 0\r", "relay read 0\r"},
		{Config{Protocol: Numato, Channels: 16}, 10, "relay on A\r", "relay off A\r", "relay read A\r"},
		{Config{Protocol: Numato, Channels: 32}, 31, "relay on V\r", "relay off V\r", "relay read V\r"},
		{Config{Protocol: Numato, Channels: 64}, 9, "relay on 09\r", "relay off 09\r", "relay read 09\r"},
		{Config{Protocol: Numato, Channels: 64, Readback: ReadAll}, 63, "relay on 63\r", "relay off 63\r", "relay readall\r"},
	} {
		text := func(frame []byte) string {
			if c.c.Protocol == Numato {
				return string(frame)
			}
			return hex.EncodeToString(frame)
		}
		w := newWire(c.c)
		on, _ := w.command(c.channel, true)
		off, _ := w.command(c.channel, false)
		query, _ := w.query(c.channel)
		assert.Equal(t, []string{c.on, c.off, c.query}, []string{text(on), text(off), text(query)}, "%+v", c.c)
	}
}

func TestAnswers(t *testing.T) {
	text := func(channels, channel int) judge {
		return func(b []byte) reading { return lcusText(channels, channel, b) }
	}
	raw := func(channels, channel int) judge {
		return func(b []byte) reading { return oneByteEach(channels, channel, b) }
	}
	km := func(b []byte) reading { return kmtronicStatus(1, b) }
	_, read := numato{16, false}.query(10)
	_, all := numato{16, true}.query(10)
	_, all4 := numato{4, true}.query(3)
	_, all64 := numato{64, true}.query(63)
	_, off := numato{16, false}.command(10, false)
	for _, c := range []struct {
		name   string
		judge  judge
		answer string
		want   reading
	}{
		{"lcus off", text(1, 1), "CH1:OFF \r\n", released},
		{"lcus on", text(1, 1), "CH1:ON \r\n", energised},
		{"lcus, the other blanks", text(2, 2), "CH1: ON \r\nCH2: OFF\r\n", released},
		{"lcus, the second", text(2, 2), "CH1:OFF \r\nCH2:ON \r\n", energised},
		{"lcus, too few", text(2, 1), "CH1:OFF \r\n", incomplete},
		{"lcus, cut", text(1, 1), "CH1:OFF", incomplete},
		{"lcus, too many", text(1, 1), "CH1:OFF \r\nCH2:OFF \r\n", nonsense},
		{"lcus, more behind it", text(1, 1), "CH1:OFF \r\nC", nonsense},
		{"lcus, wrong channel", text(1, 1), "CH2:OFF \r\n", nonsense},
		{"lcus, twice the same", text(2, 1), "CH1:OFF \r\nCH1:OFF \r\n", nonsense},
		{"lcus, another word", text(1, 1), "CH1:OFFLINE\r\n", nonsense},
		{"lcus, lost signs", text(1, 1), "CH1:O \r\n", nonsense},
		{"lcus, before it", text(1, 1), "\x00CH1:OFF \r\n", nonsense},
		{"lcus, endless", text(1, 1), strings.Repeat("C", 40), nonsense},
		{"bytes", raw(2, 2), "\x00\x01", energised},
		{"bytes, first", raw(2, 1), "\x00\x01", released},
		{"bytes, few", raw(2, 1), "\x00", incomplete},
		{"bytes, many", raw(2, 1), "\x00\x00\x00", nonsense},
		{"bytes, neither", raw(2, 1), "\x00\x02", nonsense},
		{"bytes, echo", raw(1, 1), "\xff", nonsense},
		{"kmtronic off", km, "\xff\x01\x00", released},
		{"kmtronic on", km, "\xff\x01\x01", energised},
		{"kmtronic, cut", km, "\xff\x01", incomplete},
		{"kmtronic, wrong channel", km, "\xff\x02\x00", nonsense},
		{"kmtronic, echo of the query", km, "\xff\x01\x03", nonsense},
		{"kmtronic, two", km, "\xff\x01\x00\xff\x01\x00", nonsense},
		{"kmtronic, shifted", km, "\x01\x00\xff", nonsense},
		{"numato off", read, "relay read A\n\roff\n\r>", released},
		{"numato, other ends of lines", read, "relay read A\r\n\n\ron\r\r>", energised},
		{"numato, no prompt", read, "relay read A\n\roff\n\r", incomplete},
		{"numato, no echo", read, "off\n\r>", nonsense},
		{"numato, another's echo", read, "relay read B\n\roff\n\r>", nonsense},
		{"numato, a command's answer first", read, "relay off A\n\r>relay read A\n\roff\n\r>", nonsense},
		{"numato, line not ended", read, "relay read A\n\roff>", nonsense},
		{"numato, two values", read, "relay read A\n\roff\n\ron\n\r>", nonsense},
		{"numato, capitals", read, "relay read A\n\rOFF\n\r>", nonsense},
		{"numato, endless", read, strings.Repeat("off\n\r", 40), nonsense},
		{"readall", all, "relay readall\n\r0400\n\r>", energised},
		{"readall, others", all, "relay readall\n\rFBFF\n\r>", released},
		{"readall, short", all, "relay readall\n\r400\n\r>", nonsense},
		{"readall, long", all, "relay readall\n\r00400\n\r>", nonsense},
		{"readall, not hex", all, "relay readall\n\r0g00\n\r>", nonsense},
		{"readall, sign", all, "relay readall\n\r+400\n\r>", nonsense},
		{"readall of 4", all4, "relay readall\n\r8\n\r>", energised},
		{"readall of 64", all64, "relay readall\n\r8000000000000000\n\r>", energised},
		{"numato, command", off, "relay off A\n\r>", accepted},
		{"numato, command and a line", off, "relay off A\n\rerror\n\r>", nonsense},
		{"numato, another command", off, "relay on A\n\r>", nonsense},
	} {
		assert.Equal(t, c.want, c.judge([]byte(c.answer)), c.name)
	}
	assert.Equal(t, nonsense, numatoMask(2, 0, "4"), "a relay that the board does not have")
}

func TestContactDecidesWhatOffIs(t *testing.T) {
	require.False(t, powerctl.NormallyOpen.Energised(false))
	require.True(t, powerctl.NormallyClosed.Energised(false), "off pulls the relay in")
	require.Equal(t, powerctl.Off, power(powerctl.NormallyOpen, released))
	require.Equal(t, powerctl.On, power(powerctl.NormallyClosed, released), "what a board without power leaves behind")
	require.Equal(t, powerctl.Off, power(powerctl.NormallyClosed, energised))
	for _, r := range []reading{incomplete, nonsense, accepted} {
		require.Equal(t, powerctl.Unknown, power(powerctl.NormallyOpen, r))
		require.Equal(t, powerctl.Unknown, power(powerctl.NormallyClosed, r))
	}
}

// The fuzz targets hold each parser against a second description of its answers, and
// nothing that is longer or shorter than an answer may be one.

func fuzz(f *testing.F, j judge, exact *regexp.Regexp, seeds ...string) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, got []byte) {
		r := j(got)
		answer := r == energised || r == released || r == accepted
		require.Equal(t, exact.Match(got), answer, "%q is %d", got, r)
		if !answer {
			return
		}
		for i := range got {
			require.Equal(t, incomplete, j(got[:i]), "%q", got[:i])
		}
		require.Equal(t, nonsense, j(append(bytes.Clone(got), got...)), "twice")
	})
}

func FuzzLCUSText(f *testing.F) {
	fuzz(f, func(b []byte) reading { return lcusText(2, 2, b) },
		regexp.MustCompile(`\A(?:CH1: ?(ON|OFF) *\r\n)CH2: ?(ON|OFF) *\r\n\z`), "CH1:OFF \r\nCH2:OFF \r\n", "CH1: ON \r\nCH2: OFF\r\n", "CH1:OFF \r\n")
}

func FuzzOneByteEach(f *testing.F) {
	fuzz(f, func(b []byte) reading { return oneByteEach(2, 1, b) }, regexp.MustCompile(`\A[\x00\x01]{2}\z`), "\x00\x00", "\x01\x00", "\xff")
}

func FuzzKMTronicStatus(f *testing.F) {
	j := func(b []byte) reading { return kmtronicStatus(1, b) }
	for _, s := range []string{"\xff\x01\x00", "\xff\x01\x01", "\xff\x01\x03", "\xff\x02\x00"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, got []byte) {
		r := j(got)
		require.Equal(t, string(got) == "\xff\x01\x00", r == released)
		require.Equal(t, string(got) == "\xff\x01\x01", r == energised)
	})
}

func FuzzNumatoRead(f *testing.F) {
	_, j := numato{8, false}.query(0)
	fuzz(f, j, regexp.MustCompile(`\A[\r\n]*relay read 0[\r\n]+(on|off)[\r\n]+>\z`), "relay read 0\n\roff\n\r>", "relay read 0\n\ron\n\r>", ">")
}

func FuzzNumatoReadAll(f *testing.F) {
	_, j := numato{8, true}.query(0)
	fuzz(f, j, regexp.MustCompile(`\A[\r\n]*relay readall[\r\n]+[0-9a-fA-F]{2}[\r\n]+>\z`), "relay readall\n\r0F\n\r>", "relay readall\n\rff\n\r>", ">")
}

func FuzzNumatoCommand(f *testing.F) {
	_, j := numato{8, false}.command(0, false)
	fuzz(f, j, regexp.MustCompile(`\A[\r\n]*relay off 0[\r\n]+>\z`), "relay off 0\n\r>", "relay off 0\r\n>", ">")
}
