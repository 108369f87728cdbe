package hostcheck

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// lineLimit bounds the words of the first line, in bytes: pagers, and NRPE with its small packets, cut
// what is longer, and performance data comes after them.
const lineLimit = 300

// oneLine keeps names of folders and models from ending a line, or from beginning performance data, which plugins have
// behind a bar in later lines too.
var oneLine = strings.NewReplacer("\n", " ", "|", "/")

// FirstLine is what a monitoring system shows: the level, the verdict, and performance data behind a bar, as
// the Monitoring Plugins development guidelines want it. It is one line.
func (r *Report) FirstLine() string {
	text := oneLine.Replace(r.Verdict)
	if len(text) > lineLimit {
		text = strings.ToValidUTF8(text[:lineLimit-len("…")], "") + "…"
	}
	line := r.Level.String() + " - " + text
	if perf := r.perfdata(); perf != "" {
		line += " | " + perf
	}
	return line
}

func (r *Report) perfdata() string {
	var all []string
	seen := map[string]bool{}
	r.walk(func(n *Node) {
		for _, p := range n.Perf {
			label := p.Name
			for _, part := range []string{n.Name, p.Label} {
				if part != "" {
					label += " " + part
				}
			}
			label = strings.NewReplacer("'", "", "=", "", "|", "", "\n", " ").Replace(label)
			if seen[label] {
				continue
			}
			seen[label] = true
			all = append(all, fmt.Sprintf("'%s'=%s%s", label, strconv.FormatFloat(p.Value, 'g', -1, 64), unit(p.Name)))
		}
	})
	return strings.Join(all, " ")
}

// unit is that of performance data for a name that ends with one of Prometheus.
func unit(name string) string {
	switch {
	case strings.HasSuffix(name, "_percent"):
		return "%"
	case strings.HasSuffix(name, "_seconds"):
		return "s"
	case strings.HasSuffix(name, "_bytes"):
		return "B"
	case strings.HasSuffix(name, "_total"):
		return "c"
	}
	return ""
}

// walk visits every node once, upper ones first.
func (r *Report) walk(f func(*Node)) {
	seen := map[*Node]bool{}
	for _, top := range r.Tops {
		top.Walk(func(n *Node) {
			if !seen[n] {
				seen[n] = true
				f(n)
			}
		})
	}
}

// WriteText prints what a person reads: the first line without its numbers, every cause, and the stack as a tree.
func (r *Report) WriteText(w io.Writer, facts bool) error {
	if _, err := fmt.Fprintf(w, "%s - %s\n", r.Level, oneLine.Replace(r.Verdict)); err != nil {
		return err
	}
	return r.WriteDetails(w, facts)
}

// WriteDetails is WriteText without the first line.
func (r *Report) WriteDetails(w io.Writer, facts bool) error {
	p := &printer{w: w, facts: facts}
	if len(r.Because) > 1 {
		for _, f := range r.Because {
			p.line("  %-8s %s", f.Level, f.Text)
		}
	}
	for _, top := range r.Tops {
		p.line("")
		p.node(top, "", "", map[*Node]bool{})
	}
	return p.err
}

type printer struct {
	w     io.Writer
	facts bool
	err   error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintln(p.w, strings.TrimRight(oneLine.Replace(fmt.Sprintf(format, args...)), " "))
	}
}

// node prints a layer and what lies below it; first and rest are the strokes before its first line and
// before the others.
func (p *printer) node(n *Node, first, rest string, seen map[*Node]bool) {
	head, cache := n.Kind+" "+n.Name, n.Cache.words()
	if n.Kind == Note {
		head, cache = n.Name, ""
	}
	if seen[n] {
		p.line("%s%s (above)", first, head)
		return
	}
	seen[n] = true
	p.line("%s%s%s", first, head, cache)
	inner := rest + "   "
	if len(n.Below) > 0 {
		inner = rest + "│  "
	}
	if p.facts {
		for _, f := range n.Facts {
			p.line("%s%s: %s", inner, f.Key, f.Value)
		}
	}
	for _, f := range n.Findings {
		p.line("%s%-8s %s", inner, f.Level, f.Text)
	}
	for i, b := range n.Below {
		if i == len(n.Below)-1 {
			p.node(b, rest+"└─ ", rest+"   ", seen)
		} else {
			p.node(b, rest+"├─ ", rest+"│  ", seen)
		}
	}
}

// words says what is known of a layer's cache.
func (c Cache) words() string {
	var all []string
	switch c.Volatile {
	case Yes:
		text := "volatile cache"
		switch c.Protected {
		case Yes:
			text += ", protected"
		case No:
			text += ", not protected"
		}
		all = append(all, text)
	case No:
	default:
		all = append(all, "cache unknown")
	}
	switch c.Flushes {
	case No:
		all = append(all, "flushes stop here")
	case NotKnown:
		all = append(all, "flushes unknown")
	}
	if len(all) == 0 {
		return ""
	}
	return "  [" + strings.Join(all, "; ") + "]"
}
