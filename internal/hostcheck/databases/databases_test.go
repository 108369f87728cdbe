package databases

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"plugpull/internal/hostcheck"
)

func TestReport(t *testing.T) {
	var r Report
	assert.Equal(t, hostcheck.OK, r.Level(), "nothing was found")
	r.Judge("good", Setting{Name: "a", Value: "1"})
	assert.Empty(t, r.Findings, "a good setting is a row and no finding")
	r.Judge("bad", Setting{Name: "b", Value: "", Safe: "on", Risk: "it loses", Where: "set in f", Level: hostcheck.Warning})
	assert.Equal(t, []hostcheck.Finding{{Level: hostcheck.Warning, Code: "bad", Text: "b is empty (set in f): it loses; safe: on"}}, r.Findings)
	r.Find(hostcheck.Unknown, "unknown", "x")
	assert.Equal(t, hostcheck.Unknown, r.Level(), "what is unknown outranks a warning")
	r.Find(hostcheck.Critical, "critical", "x")
	assert.Equal(t, hostcheck.Critical, r.Level())
	assert.Len(t, r.Settings, 2)

	for _, p := range []string{"/data/", "/data", "", "./", "relative", "/data/../log"} {
		r.Folder(p, "x", "y")
	}
	assert.Equal(t, []Folder{{Path: "/data", What: "x", From: "y"}, {Path: "/log", What: "x", From: "y"}}, r.Folders, "each once, absolute ones only")
	r.Fact("a", "", "z")
	assert.Empty(t, r.Facts)
}

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{
		"":             "empty",
		"O_DIRECT":     "O_DIRECT",
		"a b":          `"a b"`,
		"\x1b[31mred":  `"\x1b[31mred"`,
		"Bücher":       `"B\u00fccher"`,
		`say "x"`:      `"say \"x\""`,
		string(long()): `"` + string(long()[:60]) + `"…`,
	} {
		assert.Equal(t, want, Quote(in))
	}
}

func long() []byte {
	b := make([]byte, 100)
	for i := range b {
		b[i] = 'x'
	}
	return b
}
