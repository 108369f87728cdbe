package doctor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// WriteJSON writes an object a bench, a line each.
func WriteJSON(w io.Writer, benches []Bench) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	for _, b := range benches {
		if err := e.Encode(b); err != nil {
			return err
		}
	}
	return nil
}

// WriteText writes a row a bench, a table of each bench's checks, and then, of what is not
// there, why it matters and what mends it.
func WriteText(w io.Writer, benches []Bench) error {
	var text bytes.Buffer
	t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, b := range benches {
		fmt.Fprintf(t, "%s\t%s\t%s\n", b.Name, b.Ability, b.Text)
	}
	for _, b := range benches {
		if len(b.Checks) == 0 {
			continue
		}
		_ = t.Flush() // a column's width ends here; into memory it cannot fail
		fmt.Fprintf(t, "\n%s needs\tstate\tfound\n", b.Name)
		for _, c := range b.Checks {
			fmt.Fprintf(t, "%s\t%s\t%s\n", c.What, c.State, oneLine(c.Found))
		}
	}
	_ = t.Flush()
	for _, b := range benches {
		writeFixes(&text, b)
	}
	_, err := w.Write(text.Bytes())
	return err
}

func writeFixes(w io.Writer, b Bench) {
	var packages []string
	for _, c := range b.Checks {
		if c.State == OK {
			continue
		}
		only := ""
		if c.Only != "" {
			only = " (" + c.Only + " scenarios only)"
		}
		fmt.Fprintf(w, "\n%s: %s%s: %s\n    %s\n", c.What, c.State, only, c.Why, c.Fix)
		for _, p := range c.packages {
			if !slices.Contains(packages, p) {
				packages = append(packages, p)
			}
		}
	}
	if len(packages) > 0 {
		fmt.Fprintf(w, "\nAll packages at once, as root, with Debian's names:\n    apt-get install %s\n", strings.Join(packages, " "))
	}
}

// oneLine keeps a table a table: errors of programs may have lines.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
