package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"plugpull/scenarios"
)

var updateDocs = flag.Bool("update-docs", false, "write the tables of docs/power.md anew")

// The tables of docs/power.md are those of the program.
func TestDocsOfPower(t *testing.T) {
	const path = "../../docs/power.md"
	was, err := os.ReadFile(path)
	require.NoError(t, err)
	is := section(t, was, "drivers", driversTable(t))
	is = section(t, is, "keys", keysTable())
	if *updateDocs {
		require.NoError(t, os.WriteFile(path, is, 0o600))
		return
	}
	require.Equal(t, string(is), string(was), "go test ./cmd/plugpull -run TestDocsOfPower -update-docs")
}

// section puts a text between the marks of its name.
func section(t *testing.T, doc []byte, name, text string) []byte {
	t.Helper()
	begin, end := []byte("<!-- "+name+" -->\n"), []byte("<!-- /"+name+" -->")
	head, rest, ok := bytes.Cut(doc, begin)
	require.True(t, ok, name)
	_, tail, ok := bytes.Cut(rest, end)
	require.True(t, ok, name)
	return bytes.Join([][]byte{head, begin, []byte(text), end, tail}, nil)
}

func driversTable(t *testing.T) string {
	t.Helper()
	rows, err := driverRows()
	require.NoError(t, err)
	var b strings.Builder
	b.WriteString("| driver | profile | devices | class of cut | reads back | tried against |\n|---|---|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(r, " | "))
	}
	return b.String()
}

// keysTable has what each driver takes beside driver, name, class and timeout.
func keysTable() string {
	var b strings.Builder
	b.WriteString("| driver | keys (bold: needed; `class` where it stands) | pin |\n|---|---|---|\n")
	for _, d := range scenarios.Drivers() {
		keys := scenarios.KeysOf(d)
		var all []string
		if keys.Class {
			all = append(all, "**`class`**")
		}
		if d == scenarios.DriverGroup {
			all = append(all, "**`feeds`**")
		}
		for _, k := range keys.Own {
			text := "`" + k.Name + "`"
			if k.Kind == scenarios.Secret {
				text = "`" + k.Name + "_file`/`_env`"
			}
			if k.Needed {
				text = "**" + text + "**"
			}
			if len(k.Words) > 0 {
				text += " (" + strings.Join(k.Words, ", ") + ")"
			}
			all = append(all, text)
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", d, strings.Join(all, " "), strings.Join(keys.Pins, " "))
	}
	return b.String()
}
