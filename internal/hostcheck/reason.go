package hostcheck

import (
	"fmt"
	"slices"
	"strings"
)

// Report is everything that was found about a host.
type Report struct {
	Schema int    `json:"schema"` // 1
	Host   string `json:"host"`
	// Level stands for the whole; Verdict says why in one sentence.
	Level   Level  `json:"level"`
	Verdict string `json:"verdict"`
	// Because are the causes of the verdict, the worst first.
	Because []Finding `json:"because"`
	// Tops are what was asked about: a database, a folder, a device, a controller.
	Tops []*Node `json:"stack"`
}

// The sentences that every verdict begins with.
const (
	sayLost    = "an acknowledged commit can be lost in a power cut because "
	saySafe    = "safe because "
	sayUnknown = "unknown because "
)

// Judge reasons over the stack below the tops and fills in Level, Verdict and Because. A top without
// anything below it, and no top at all, is Unknown.
func (r *Report) Judge() {
	r.Schema, r.Because = 1, nil
	var safe []string
	for _, top := range r.Tops {
		risks, grounds := flushes(top)
		r.Because = append(r.Because, risks...)
		safe = append(safe, grounds...)
		top.Walk(func(n *Node) {
			for _, f := range n.Findings {
				if f.Level != OK {
					r.Because = append(r.Because, f)
				}
			}
		})
	}
	if len(r.Tops) == 0 || len(r.Because) == 0 && len(safe) == 0 {
		r.Because = append(r.Because, Finding{Unknown, "nothing_read", "nothing was read that says anything about a power cut"})
	}
	r.Because = unique(r.Because)
	slices.SortStableFunc(r.Because, func(a, b Finding) int { return severity(b.Level) - severity(a.Level) })
	r.Level = OK
	if len(r.Because) > 0 {
		r.Level = r.Because[0].Level
	}
	r.Verdict = r.sentence(safe)
}

func severity(l Level) int { return slices.Index([]Level{OK, Warning, Unknown, Critical}, l) }

// unique keeps the first of findings that say the same of two paths to one layer.
func unique(list []Finding) []Finding {
	var out []Finding
	for _, f := range list {
		if !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	return out
}

func (r *Report) sentence(safe []string) string {
	texts := func(l Level) (all []string) {
		for _, f := range r.Because {
			if f.Level == l {
				all = append(all, f.Text)
			}
		}
		return all
	}
	ground := strings.Join(slices.Compact(slices.Sorted(slices.Values(safe))), "; ")
	switch r.Level {
	case Critical:
		return sayLost + texts(Critical)[0] + more(len(texts(Critical)))
	case Unknown:
		return sayUnknown + texts(Unknown)[0] + more(len(texts(Unknown)))
	case Warning:
		text := texts(Warning)[0] + more(len(texts(Warning)))
		if ground != "" {
			text += "; commits are " + saySafe + ground
		}
		return text
	}
	return saySafe + ground
}

func more(n int) string {
	if n < 2 {
		return ""
	}
	return fmt.Sprintf(" (and %d more)", n-1)
}

// flushes follows the flush of a commit from the top down. Grounds are why the layers that could lose
// something do not.
func flushes(top *Node) (risks []Finding, grounds []string) {
	type step struct {
		n     *Node
		reach Tri
		by    string
	}
	seen := map[step]bool{}
	var follow func(n *Node, reach Tri, by string)
	follow = func(n *Node, reach Tri, by string) {
		here := both(reach, n.Cache.Flushes)
		if here != reach { // the layer that keeps it, or of which that is not known
			by = n.Kind + " " + n.Name
			if n.Cache.Why != "" {
				by += " (" + n.Cache.Why + ")"
			}
		}
		if seen[step{n, here, by}] {
			return
		}
		seen[step{n, here, by}] = true
		risk, ground := judge(n, here, by)
		if risk != nil {
			risks = append(risks, *risk)
		}
		if ground != "" {
			grounds = append(grounds, ground)
		}
		for _, b := range n.Below {
			follow(b, here, by)
		}
	}
	follow(top, Yes, "")
	return risks, grounds
}

// both is the reach of a flush past two layers.
func both(a, b Tri) Tri {
	switch {
	case a == No || b == No:
		return No
	case a == Yes && b == Yes:
		return Yes
	}
	return NotKnown
}

// judge says of one layer whether what it has acknowledged survives. reach says whether the commit's flush
// takes effect in it, and by names the layer that decides that.
func judge(n *Node, reach Tri, by string) (*Finding, string) {
	name, why := n.Kind+" "+n.Name, n.Cache.Why
	if why != "" {
		why = " (" + why + ")"
	}
	volatile, protected := n.Cache.Volatile, n.Cache.Protected
	switch {
	case n.Kind == Note:
		return nil, ""
	case volatile == No:
		if len(n.Below) > 0 {
			return nil, "" // an ordinary layer in between says nothing
		}
		return nil, name + " has no volatile cache" + why
	case protected == Yes:
		return nil, "the cache of " + name + " is protected" + why
	case reach == Yes && (volatile == Yes || len(n.Below) == 0):
		return nil, "flushes reach " + name + why
	case reach == Yes:
		return nil, ""
	case volatile == Yes && reach == No:
		return &Finding{Critical, "volatile_cache", fmt.Sprintf("%s has a volatile cache%s, and flushes do not take effect in it: %s", name, why, stops(by, name))}, ""
	case len(n.Below) > 0 && volatile == NotKnown && n.Cache == (Cache{Flushes: n.Cache.Flushes}):
		return nil, "" // a layer that keeps nothing itself
	}
	if slices.ContainsFunc(n.Findings, func(f Finding) bool { return f.Level == Unknown }) {
		return nil, "" // it says itself what could not be read
	}
	return &Finding{Unknown, "cache_unknown", fmt.Sprintf("it could not be read whether %s keeps what it has acknowledged%s", name, why)}, ""
}

func stops(by, name string) string {
	if by == name || strings.HasPrefix(by, name+" (") {
		return "it acknowledges them without writing"
	}
	return by + " does not pass them on"
}
