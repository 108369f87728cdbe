package httprelay

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"plugpull/internal/strictyaml"
	"plugpull/powerctl"
)

// reader reads a profile; profiles/README.md explains it key by key.
type reader struct {
	top *section
	p   *Profile
}

func parseProfile(file string, data []byte) (*Profile, error) {
	r := &reader{p: &Profile{headers: map[string]template{}, Sources: map[string]string{}}}
	err := strictyaml.Decode(file, data, maxFile, func(top *section) {
		r.top = top
		r.read()
	})
	if err != nil {
		return nil, err
	}
	return r.p, nil
}

var (
	nameForm      = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	headerForm    = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]*$`)
	parameterForm = regexp.MustCompile(`^[A-Za-z0-9_]+$`)
	mediaForm     = regexp.MustCompile(`^[a-z]+/[a-z0-9.+-]+$`)
)

func (r *reader) read() {
	s, p := r.top, r.p
	p.Name = r.form(s, "name", "lower case letters, digits and single -", true, nameForm)
	p.Vendor = text(s, "vendor", "a vendor", true)
	s.Require("models", "a list of models")
	p.Models = s.Words("models", "a list of models")
	s.Require("class", "a class")
	p.Class = strictyaml.Choice(s, "class", "", powerctl.Classes()...)
	s.Require("outlets", "the highest outlet, counted from 1")
	p.Outlets = s.Number("outlets", 1, 1, maxOutlet)
	s.Require("tried", "simulator or nothing")
	p.Tried = strictyaml.Choice(s, "tried", powerctl.TriedNothing, powerctl.TriedNothing, powerctl.TriedSimulator, powerctl.TriedPeer, powerctl.TriedHardware)
	r.login()
	r.headers()
	p.ReplyType = r.form(s, "reply_type", "a media type such as application/json", false, mediaForm)
	r.never()
	p.off, p.on = r.command("off"), r.command("on")
	r.state()
	r.identity()
	r.warnings()
	p.Notes = s.Words("notes", "a list of sentences")
	r.sources()
	guardProfile(s, p)
}

func (r *reader) login() {
	s := r.top
	s.Require("auth", "none, basic, digest or query")
	r.p.Auth = strictyaml.Choice(s, "auth", NoAuth, NoAuth, Basic, Digest, Query)
	q := s.Sub("query")
	if r.p.Auth == Query {
		s.Require("query", "the names of the two parameters")
		r.p.queryUser = r.form(q, "user", "the name of a parameter", true, parameterForm)
		r.p.queryPassword = r.form(q, "password", "the name of a parameter", true, parameterForm)
	} else if s.Has("query") {
		s.Problem("query", "only with auth: query")
		q.Know("user", "password")
	}
	q.Done()
}

// ownHeaders are those that this package, or net/http, sets.
var ownHeaders = []string{"Authorization", "Content-Type", "Content-Length", "Host", "Connection", "Transfer-Encoding", "Cookie", "Expect", "Upgrade", "Trailer", "Te"}

func (r *reader) headers() {
	s := r.top.Sub("headers")
	for _, k := range s.Keys() {
		value := template(text(s, k, "a value", true))
		name := http.CanonicalHeaderKey(k)
		if !headerForm.MatchString(k) || slices.Contains(ownHeaders, name) {
			s.Problem(k, "not a header that a profile can set")
		}
		if !printable(string(value)) || value.strange() != "" {
			s.Problem(k, "%q, want a line of ASCII with no placeholder but {outlet} and {outlet0}", string(value))
		}
		r.p.headers[name] = value
	}
	s.Done()
}

// never wants the words that a command must not have. The list must be there: whoever
// writes a profile has to look at what the device can do beside on and off.
func (r *reader) never() {
	s := r.top
	s.Require("never", "words that no command may have (what toggles, pulses, delays), or none")
	if word, _ := s.Plain("never"); word == "none" {
		s.Know("never")
		return
	}
	r.p.never = s.Words("never", "a list of words, or none")
}

func (r *reader) command(key string) command {
	r.top.Require(key, "the request that switches "+key)
	s := r.top.Sub(key)
	defer s.Done()
	var c command
	s.Require("method", "GET, POST or PUT")
	c.method = strictyaml.Choice(s, "method", "", http.MethodGet, http.MethodPost, http.MethodPut)
	c.path = r.path(s, "path")
	c.body = template(text(s, "body", "a text", false))
	if c.body.strange() != "" {
		s.Problem("body", "%s is no placeholder, want {outlet} or {outlet0}", c.body.strange())
	}
	c.contentType = r.form(s, "content_type", "a media type", false, mediaForm)
	if (c.body != "") != (c.contentType != "") || c.body != "" && c.method == http.MethodGet {
		s.Problem("body", "want body and content_type together, and none with GET")
	}
	c.statuses = []int{http.StatusOK}
	if s.Has("statuses") {
		c.statuses = nil
	}
	for _, word := range s.Words("statuses", "a list of HTTP statuses") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 200 || n > 299 {
			s.Problem("statuses", "%q, want a status of success, 200 to 299", word)
		}
		c.statuses = append(c.statuses, n)
	}
	c.reply = r.conditions(s, "reply")
	return c
}

// path wants what follows the host of an address, in the form in which it is sent.
func (r *reader) path(s *section, key string) template {
	t := template(text(s, key, "a path such as /relay/{outlet0}", true))
	if t == "" {
		return ""
	}
	filled := t.fill(1)
	u, err := url.Parse("http://host" + filled)
	if err != nil || filled[0] != '/' || u.Host != "host" || u.RequestURI() != filled || u.Fragment != "" ||
		strings.HasPrefix(filled, "//") || strings.Contains(filled, "..") || strings.ContainsAny(filled, "\\#") || !printable(filled) || strings.Contains(filled, " ") {
		s.Problem(key, "%q, want a path as it is sent, such as /cm?cmnd=Power{outlet}%%20OFF", string(t))
	}
	if t.strange() != "" {
		s.Problem(key, "%s is no placeholder, want {outlet} or {outlet0}", t.strange())
	}
	return t
}

// rule reads a value's path and type. Only a warning may look at everything in a list.
func (r *reader) rule(s *section, everything bool) rule {
	v := rule{path: template(text(s, "value", "a JSON path such as Outputs[{outlet0}].State", true)), kind: textKind}
	if !everything && strings.Contains(string(v.path), "*") {
		s.Problem("value", "%q, want a path to one value", string(v.path))
	}
	if v.path != "" && !validPath(v.path.fill(1)) {
		s.Problem("value", "%q, want a JSON path such as Outputs[{outlet0}].State, or $ for the whole answer", string(v.path))
	}
	v.kind = strictyaml.Choice(s, "type", textKind, textKind, numberKind, booleanKind)
	return v
}

// words reads values of the rule's type.
func (r *reader) words(s *section, key string, k kind, required bool) []template {
	if required {
		s.Require(key, "a list of values")
	}
	var list []template
	for _, w := range s.Words(key, "a list of values") {
		t := template(w)
		filled := t.fill(1)
		_, err := strconv.ParseFloat(filled, 64)
		if t.strange() != "" || k == booleanKind && filled != "true" && filled != "false" || k == numberKind && err != nil {
			s.Problem(key, "%q is no %s", w, k)
		}
		list = append(list, t)
	}
	return list
}

func (r *reader) conditions(s *section, key string) []condition {
	sub := s.Sub(key)
	var list []condition
	for _, k := range sub.Keys() {
		one := sub.Sub(k)
		c := condition{rule: r.rule(one, false)}
		c.is = r.words(one, "is", c.kind, true)
		one.Done()
		list = append(list, c)
	}
	return list
}

func (r *reader) state() {
	r.top.Require("state", "how the state is read")
	s := r.top.Sub("state")
	defer s.Done()
	st := &r.p.state
	st.get, st.rule = r.path(s, "get"), r.rule(s, false)
	st.meaning = map[string]powerctl.State{}
	for _, m := range []struct {
		key   string
		state powerctl.State
		must  bool
	}{{"off", powerctl.Off, true}, {"on", powerctl.On, true}, {"pending", powerctl.Pending, false}, {"fault", powerctl.Fault, false}} {
		for _, w := range r.words(s, m.key, st.kind, m.must) {
			if _, twice := st.meaning[string(w)]; twice {
				s.Problem(m.key, "%q has a meaning already", string(w))
			}
			if placeholder.MatchString(string(w)) {
				s.Problem(m.key, "%q, want a value without a placeholder", string(w))
			}
			st.meaning[string(w)] = m.state
		}
	}
	st.conditions = r.conditions(s, "conditions")
}

func (r *reader) identity() {
	s := r.top.Sub("identity")
	defer s.Done()
	read := func(key string) *reading {
		if !s.Has(key) {
			s.Know(key)
			return nil
		}
		one := s.Sub(key)
		defer one.Done()
		v := &reading{get: r.path(one, "get"), rule: r.rule(one, false)}
		if v.kind == booleanKind {
			one.Problem("type", "want text or number")
		}
		return v
	}
	r.p.serial, r.p.outletName = read("serial"), read("outlet_name")
}

func (r *reader) warnings() {
	s := r.top.Sub("warnings")
	for _, k := range s.Keys() {
		one := s.Sub(k)
		c := &check{name: k, reading: reading{get: r.path(one, "get"), rule: r.rule(one, true)}}
		c.safe = r.words(one, "safe", c.kind, true)
		one.Require("missing", "what it means when the answer has no such value: safe or unread")
		c.missingIsSafe = strictyaml.Choice(one, "missing", "unread", "safe", "unread") == "safe"
		one.Require("switches", "whether the device then switches by itself while it is held: true or false")
		c.switches = one.Flag("switches")
		c.words = text(one, "text", "a sentence", true)
		one.Done()
		r.p.checks = append(r.p.checks, c)
	}
}

// sources wants a document for every fact that is given, and for no other.
func (r *reader) sources() {
	s := r.top.Sub("sources")
	r.top.Require("sources", "the document behind each fact")
	for _, key := range []string{"command", "state", "auth", "identity", "warnings"} {
		if key == "command" || key == "state" || key == "auth" && r.p.Auth != NoAuth || r.top.Has(key) && key != "auth" {
			r.p.Sources[key] = text(s, key, "the name of a document", true)
		}
	}
	s.Done()
}

// form is a text of that form, "" for none.
func (r *reader) form(s *section, key, want string, required bool, form *regexp.Regexp) string {
	v := text(s, key, want, required)
	if v != "" && !form.MatchString(v) {
		s.Problem(key, "%q, want %s", v, want)
	}
	return v
}

// text returns a value as it stands in the file, "" for none.
func text(s *section, key, want string, required bool) string {
	if required {
		s.Require(key, want)
	}
	return s.Text(key, want)
}

func printable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}
