package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func stream(t *testing.T, events ...event) string {
	var b strings.Builder
	for _, e := range events {
		line, err := json.Marshal(e)
		require.NoError(t, err)
		b.Write(append(line, '\n'))
	}
	return b.String()
}

func out(name, text string) event {
	return event{Action: "output", Package: "p", Test: name, Output: text}
}
func end(name, how string) event { return event{Action: how, Package: "p", Test: name} }

func TestSummary(t *testing.T) {
	for name, c := range map[string]struct {
		in       string
		noSkip   bool
		ok       bool
		contains []string
		last     string
	}{
		"all passed": {
			in: stream(t, end("TestA", "pass"), end("", "pass")), ok: true, noSkip: true,
			contains: []string{"ok   p"}, last: "1 passed, 0 failed, 0 skipped",
		},
		"a skip is listed with its reason": {
			in: stream(t, end("TestA", "pass"), out("TestB", "    b_test.go:7: needs root\n"), end("TestB", "skip"), end("", "pass")), ok: true,
			contains: []string{"p TestB: needs root"}, last: "1 passed, 0 failed, 1 skipped",
		},
		"a skip where none is allowed": {
			in: stream(t, end("TestA", "pass"), end("TestB", "skip"), end("", "pass")), noSkip: true,
			contains: []string{"p TestB: no reason given", "allows none"}, last: "1 passed, 0 failed, 1 skipped",
		},
		"a failed subtest counts once": {
			in: stream(t, out("TestA", "--- FAIL: TestA\n"), out("TestA/x", "    a_test.go:3: wrong\n"), end("TestA/x", "fail"),
				end("TestA/y", "pass"), end("TestA", "fail"), end("", "fail")),
			contains: []string{"wrong", "FAIL p"}, last: "1 passed, 1 failed, 0 skipped",
		},
		"a package fails after its tests passed": {
			in:       stream(t, end("TestA", "pass"), out("", "WARNING: DATA RACE\n"), end("", "fail")),
			contains: []string{"DATA RACE"}, last: "1 passed, 1 failed, 0 skipped",
		},
		"a test that never ends": {
			in:       stream(t, out("TestA", "panic: test timed out\n"), end("", "fail")),
			contains: []string{"timed out"}, last: "0 passed, 1 failed, 0 skipped",
		},
		"a package that does not build": {
			in: stream(t, event{Action: "build-output", ImportPath: "p", Output: "undefined: x\n"}, event{Action: "build-fail", ImportPath: "p"},
				end("", "fail")),
			contains: []string{"undefined: x"}, last: "0 passed, 1 failed, 0 skipped",
		},
		"an input that is cut off": {
			in:   stream(t, end("TestA", "pass")),
			last: "1 passed, 1 failed, 0 skipped",
		},
		"no test at all": {
			in: stream(t, end("", "skip")), contains: []string{"no test was run"}, last: "0 passed, 0 failed, 0 skipped",
		},
		"words that are not JSON": {
			in: "go: cannot find module\n", contains: []string{"cannot find module"}, last: "0 passed, 0 failed, 0 skipped",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			s, err := summarise(strings.NewReader(c.in), &b)
			ok := s.print(&b, c.noSkip) && err == nil
			require.Equal(t, c.ok, ok)
			for _, text := range c.contains {
				require.Contains(t, b.String(), text)
			}
			lines := strings.Split(strings.TrimSpace(b.String()), "\n")
			require.Equal(t, c.last, lines[len(lines)-1])
		})
	}
}
