package httprelay

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// forbidden are words that no command may have, whatever the device: they toggle, restart,
// or undo the command after a time.
var forbidden = []string{"toggle", "flip", "cycle", "reboot", "restart", "reset", "pulse", "backlog", "blink", "timer", "delay", "short", "batch"}

// order is a command as the device will read it.
type order struct {
	method string
	path   string // without the query, decoded
	query  url.Values
	body   string
	on     bool
}

// family is what is known of an interface beside any profile. It repeats what the
// profiles say on purpose: a slip in a profile, ours or a user's, must not become a pulse in
// place of an off.
type family struct {
	name string
	// is: the request is one of this interface; path and query are in lower case.
	is func(path, query string) bool
	// allowed: the order switches one outlet, in this direction, and does nothing else.
	allowed func(order) bool
	// reads: the GET changes nothing.
	reads func(path string, query url.Values) bool
}

var (
	shellyRelay   = regexp.MustCompile(`^/relay/[0-9]+/?$`)
	tasmotaOrder  = regexp.MustCompile(`^(?i:power)[1-9][0-9]? (?i:(on|1|true)|(off|0|false))$`)
	tasmotaRead   = regexp.MustCompile(`^(?i:status [0-9]+|(power|pulsetime|timers?|rule|setoption|statetext|poweronstate|friendlyname|devicename|blinktime|sleep)[0-9]*)$`)
	loggersOutlet = regexp.MustCompile(`^/restapi/relay/outlets/=?[0-9]+/(transient_)?state/?$`)
	rpcRead       = regexp.MustCompile(`^/rpc/[a-z0-9]+\.(get|list)[a-z]*$`)
)

func families() []family {
	contains := strings.Contains
	return []family{
		{
			name:    "Shelly /relay",
			is:      func(path, _ string) bool { return contains(path, "/relay/") && !contains(path, "/restapi/") },
			allowed: allowedRelay,
			reads:   func(_ string, query url.Values) bool { return len(query) == 0 },
		},
		{
			name:    "Shelly /rpc",
			is:      func(path, _ string) bool { return contains(path, "/rpc") },
			allowed: allowedRPC,
			reads: func(path string, query url.Values) bool {
				return rpcRead.MatchString(strings.ToLower(path)) && (len(query) == 0 || len(query) == 1 && query.Has("id"))
			},
		},
		{
			name:    "Tasmota",
			is:      func(path, query string) bool { return strings.HasSuffix(path, "/cm") || contains(query, "cmnd=") },
			allowed: allowedTasmota,
			reads: func(_ string, query url.Values) bool {
				return len(query) == 1 && len(query["cmnd"]) == 1 && tasmotaRead.MatchString(query.Get("cmnd"))
			},
		},
		{
			name:    "NETIO",
			is:      func(path, _ string) bool { return contains(path, "/netio.") },
			allowed: allowedNETIO,
			reads:   func(path string, query url.Values) bool { return path == "/netio.json" && len(query) == 0 },
		},
		{
			name:    "Digital Loggers",
			is:      func(path, _ string) bool { return contains(path, "/restapi/") },
			allowed: allowedLoggers,
			reads:   func(string, url.Values) bool { return true }, // REST: GET changes nothing
		},
		{
			name: "Gude",
			is: func(path, query string) bool {
				return strings.HasSuffix(path, "/status.json") || contains(query, "cmd=")
			},
			allowed: allowedGude,
			reads: func(_ string, query url.Values) bool {
				return len(query) == 0 || len(query) == 1 && query.Has("components")
			},
		},
	}
}

func word(on bool, ifOn, ifOff string) string {
	if on {
		return ifOn
	}
	return ifOff
}

// allowedRelay: turn=on or turn=off, in the query or in the body, and nothing else.
func allowedRelay(o order) bool {
	form, err := url.ParseQuery(o.body)
	given := slices.Concat(o.query["turn"], form["turn"])
	return err == nil && shellyRelay.MatchString(o.path) && len(o.query)+len(form) == 1 && slices.Equal(given, []string{word(o.on, "on", "off")})
}

// allowedTasmota: Power<n> with a plain word, n not 0, which is every relay.
func allowedTasmota(o order) bool {
	m := tasmotaOrder.FindStringSubmatch(o.query.Get("cmnd"))
	return m != nil && len(o.query) == 1 && len(o.query["cmnd"]) == 1 && o.body == "" && (m[1] != "") == o.on
}

// allowedLoggers: one outlet, by its number.
func allowedLoggers(o order) bool {
	return o.method == http.MethodPut && loggersOutlet.MatchString(o.path) && len(o.query) == 0 && o.body == "value="+strconv.FormatBool(o.on)
}

// allowedGude: cmd=1. 5 is a batch, 12 off and on again.
func allowedGude(o order) bool {
	extra := len(o.query)
	for _, k := range []string{"cmd", "p", "s", "components"} {
		if len(o.query[k]) > 1 {
			return false
		}
		extra -= len(o.query[k])
	}
	outlet, err := strconv.Atoi(o.query.Get("p"))
	return extra == 0 && o.body == "" && err == nil && outlet > 0 && o.query.Get("cmd") == "1" && o.query.Get("s") == word(o.on, "1", "0")
}

// allowedRPC: Switch.Set with id and on, and nothing else.
func allowedRPC(o order) bool {
	if o.body != "" {
		v, err := parseJSON([]byte(o.body))
		frame, ok := v.(map[string]any)
		if err != nil || !ok || o.path != "/rpc" || len(o.query) > 0 || !only(frame, "id", "src", "method", "params", "jsonrpc") {
			return false
		}
		params, _ := frame["params"].(map[string]any)
		on, isBool := params["on"].(bool)
		return frame["method"] == "Switch.Set" && len(params) == 2 && params["id"] != nil && isBool && on == o.on
	}
	return o.path == "/rpc/Switch.Set" && len(o.query) == 2 && o.query.Has("id") && o.query.Get("on") == strconv.FormatBool(o.on) && len(o.query["on"]) == 1
}

// allowedNETIO: one output, with its ID and the action 0 or 1. 2 and 3 undo themselves, 4
// toggles, 5 and 6 do nothing or follow another attribute.
func allowedNETIO(o order) bool {
	v, err := parseJSON([]byte(o.body))
	frame, ok := v.(map[string]any)
	if err != nil || !ok || len(o.query) > 0 || !only(frame, "Outputs") {
		return false
	}
	list, _ := frame["Outputs"].([]any)
	if len(list) != 1 {
		return false
	}
	output, _ := list[0].(map[string]any)
	action, _ := (rule{path: "Action", kind: numberKind}).text(output, 1)
	return len(output) == 2 && output["ID"] != nil && action == word(o.on, "1", "0")
}

func only(object map[string]any, keys ...string) bool {
	for k := range object {
		if !slices.Contains(keys, k) {
			return false
		}
	}
	return true
}

// guardProfile refuses a command that may do anything but switch one outlet on, or off, for
// good, and a reading that may do anything at all.
func guardProfile(s *section, p *Profile) {
	guardCommand(s, p, "off", p.off, false)
	guardCommand(s, p, "on", p.on, true)
	if p.off.method != "" && p.off.method == p.on.method && p.off.path == p.on.path && p.off.body == p.on.body {
		s.Problem("off", "the same request as on")
	}
	guardReading(s, p, "state", p.state.get)
	for _, r := range []*reading{p.serial, p.outletName} {
		if r != nil {
			guardReading(s, p, "identity", r.get)
		}
	}
	for _, k := range p.checks {
		guardReading(s, p, "warnings", k.get)
	}
}

func guardCommand(s *section, p *Profile, key string, c command, on bool) {
	if !s.Has(key) || c.path == "" || c.method == "" {
		return
	}
	whole := string(c.path) + " " + string(c.body)
	if p.Outlets > 1 && !strings.Contains(whole, "{outlet}") && !strings.Contains(whole, "{outlet0}") {
		s.Problem(key, "neither {outlet} nor {outlet0}: it would not mean one outlet")
	}
	plain := decoded(whole)
	for _, w := range slices.Concat(forbidden, p.never) {
		if strings.Contains(plain, strings.ToLower(w)) {
			s.Problem(key, "%q is forbidden in a command", w)
		}
	}
	u, err := url.Parse(c.path.fill(1))
	if err != nil {
		return // reported where it was read
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		s.Problem(key, "the query of the path cannot be read")
		return
	}
	o := order{method: c.method, path: u.Path, query: query, body: c.body.fill(1), on: on}
	for _, f := range families() {
		if f.is(strings.ToLower(u.Path), decoded(u.RawQuery)) && !f.allowed(o) {
			s.Problem(key, "not the plain %s of %s", key, f.name)
		}
	}
}

func guardReading(s *section, p *Profile, key string, get template) {
	u, err := url.Parse(get.fill(1))
	if err != nil || get == "" {
		return
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		s.Problem(key, "the query of the path cannot be read")
		return
	}
	known := false
	for _, f := range families() {
		if f.is(strings.ToLower(u.Path), decoded(u.RawQuery)) {
			known = true
			if !f.reads(u.Path, query) {
				s.Problem(key, "%s may change something on %s, want a path that only reads", get, f.name)
			}
		}
	}
	for _, c := range []command{p.off, p.on} {
		if c.method == http.MethodGet && c.path == get {
			s.Problem(key, "%s is a command", get)
		}
	}
	for _, w := range slices.Concat(forbidden, p.never) {
		if !known && strings.Contains(decoded(string(get)), strings.ToLower(w)) {
			s.Problem(key, "%q is forbidden in a reading", w)
		}
	}
}

// decoded is the text as a device may read it, in lower case.
func decoded(text string) string {
	for range 3 {
		plain, err := url.QueryUnescape(text)
		if err != nil || plain == text {
			break
		}
		text = plain
	}
	return strings.ToLower(text)
}
