package quarch

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"plugpull/powerctl"
)

func TestParseLines(t *testing.T) {
	for name, c := range map[string]struct {
		module int
		answer string
		want   []string
		fails  bool // the module says FAIL
	}{
		"one":                      {0, "PULLED", []string{"PULLED"}, false},
		"several":                  {0, "\r\nName: a\r\nPart#: b\r\n", []string{"Name: a", "Part#: b"}, false},
		"fail":                     {0, "FAIL: 0x16 -Numeric value", nil, true},
		"fail on a later line":     {0, "OK\r\nFAIL", nil, true},
		"nothing":                  {0, "\r\n", nil, false},
		"not printable":            {0, "PULL\x00ED", nil, false},
		"prompt":                   {0, "PULLED\r\n>PULLED", nil, false},
		"array":                    {3, "3:PULLED", []string{"PULLED"}, false},
		"array, blank":             {3, "3: PULLED\r\n3: x", []string{"PULLED", "x"}, false},
		"array, dotted":            {3, "3.1: PULLED", []string{"PULLED"}, false},
		"array, fails":             {3, "3:FAIL: 0x16", nil, true},
		"controller fails":         {3, "FAIL: 0x16", nil, true},
		"another module":           {3, "4:PULLED", nil, false},
		"longer number":            {3, "31:PULLED", nil, false},
		"no number":                {3, "PULLED", nil, false},
		"no colon":                 {3, "3 PULLED", nil, false},
		"one line of another":      {3, "3:PULLED\r\n2:PULLED", nil, false},
		"dotted, and not a number": {3, "3.x:PULLED", nil, false},
	} {
		got, err := parseLines("run:power?", c.answer, c.module)
		require.Equal(t, c.want, got, name)
		var fail *FailError
		require.Equal(t, c.fails, errors.As(err, &fail), name)
		require.Equal(t, c.want == nil && !c.fails, errors.Is(err, ErrNotAnAnswer), name)
	}
}

func TestParseDuration(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"0": 0, "25": 25 * time.Millisecond, "25mS": 25 * time.Millisecond, "500 uS": 500 * time.Microsecond, "1S": time.Second, "0.5ms": 500 * time.Microsecond,
		"100nS": 100, "16777215us": 16777215 * time.Microsecond,
	} {
		got, ok := parseDuration(s)
		require.True(t, ok, s)
		require.Equal(t, want, got, s)
	}
	for _, s := range []string{"", "ms", "-1", "1 h", "1,5ms", "1e3", " 1", "9999999999", "1 ms "} {
		_, ok := parseDuration(s)
		require.False(t, ok, s)
	}
}

func TestGlitchSetup(t *testing.T) {
	for length, want := range map[time.Duration]string{
		50: "glitch:setup 50ns 1", 12750: "glitch:setup 50ns 255", 13000: "glitch:setup 500ns 26", 100 * time.Microsecond: "glitch:setup 500ns 200",
		100 * time.Millisecond: "glitch:setup 500us 200", 120 * time.Millisecond: "glitch:setup 500us 240", 127500 * time.Millisecond: "glitch:setup 500ms 255",
	} {
		got, err := glitchSetup(length)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, length := range []time.Duration{0, -50, 1, 49, 75, 12800, 127500*time.Millisecond + 50, 128 * time.Second, 127499 * time.Millisecond} {
		_, err := glitchSetup(length)
		require.ErrorIs(t, err, ErrLength, length)
	}
}

// FuzzFrames: an answer is exactly what its frames say, and holds no prompt at a frame's end.
func FuzzFrames(f *testing.F) {
	for _, chunk := range []int{0, 1, 3} {
		f.Add(frames("PULLED", chunk))
	}
	f.Add([]byte("\x09\x00PULLED\r\n>\x00"))
	f.Add([]byte{0, 0})
	f.Fuzz(func(t *testing.T, got []byte) {
		answer, whole, err := decodeFrames("run:power?", got)
		if !whole || err != nil {
			require.Empty(t, answer)
			return
		}
		var text strings.Builder
		for rest := got; len(rest) > 0; {
			n := int(binary.LittleEndian.Uint16(rest))
			text.Write(rest[2 : 2+n])
			rest = rest[2+n:]
		}
		require.Equal(t, answer+prompt, text.String())
	})
}

// FuzzEcho: an answer is one only behind the echo of its command.
func FuzzEcho(f *testing.F) {
	for _, s := range []string{"run:power? <3>\r\n3:PULLED\r\n>", "run:power? <3>", "run:power? <3>\r\n>", "PULLED\r\n>", ">"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, got []byte) {
		const command = "run:power? <3>"
		answer, whole, err := decodeEcho(command, got)
		if !whole || err != nil {
			require.Empty(t, answer)
			return
		}
		require.Equal(t, command+answer+">", string(got))
	})
}

// FuzzState: off is one line that has the word and nothing else.
func FuzzState(f *testing.F) {
	for _, s := range nonsense[:10] {
		f.Add(s, 0)
	}
	f.Add("3: OFF", 3)
	f.Fuzz(func(t *testing.T, answer string, module int) {
		if module < 0 || module > maxModule {
			return
		}
		lines, err := parseLines("run:power?", answer, module)
		if err != nil || len(lines) != 1 || powerState(lines[0]) != powerctl.Off {
			return
		}
		line := strings.Trim(answer, "\r\n")
		if module > 0 {
			_, line, _ = strings.Cut(line, ":")
			line = strings.TrimPrefix(line, " ")
		}
		require.Contains(t, []string{"PULLED", "OFF"}, line)
	})
}

func FuzzDuration(f *testing.F) {
	f.Add("25mS")
	f.Add("999999999.999999999 s")
	f.Fuzz(func(t *testing.T, s string) {
		d, ok := parseDuration(s)
		require.GreaterOrEqual(t, d, time.Duration(0))
		require.True(t, ok || d == 0)
	})
}
