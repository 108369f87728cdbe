package httprelay

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"plugpull/powerctl"
	"plugpull/powerctl/powertest"
)

const (
	simUser     = "admin"
	simPassword = "s3cret+of the/test"
	simSerial   = "E09806A9E103"
	simName     = "rack 3 server 7"
)

// failure is a way in which an answer fails.
type failure string

const (
	busy      failure = "503"
	reset     failure = "connection reset"
	truncated failure = "truncated JSON"
	short     failure = "shorter than announced"
	redirect  failure = "redirect 307"
	moved     failure = "redirect 302"
	page      failure = "a web page"
	mislabel  failure = "JSON that says it is a page"
	endless   failure = "without end"
	refused   failure = "401 without a challenge"
)

// sim is a simulated device of one family with the powertest device behind one outlet.
type sim struct {
	*httptest.Server
	model
	device *powertest.Device

	mu sync.Mutex
	// What a test may change while it runs.
	failure  failure
	patch    map[string]any // settings by name, in place of the usual ones
	garbage  string         // in place of a state
	echo     bool           // answers with what it was sent
	drip     time.Duration  // between two bytes
	openRead bool           // asks for a login for commands alone
	login    loginSim
	requests []string // "GET /path", without the query's login
	orders   int      // commands, also those that were refused
}

// reaction is what a request means to the device.
type reaction struct {
	command powerctl.State                               // Fault: something that the suite does not count
	render  func(value string) (status int, body string) // an answer that holds the state
}

// plain is an answer without a state.
func plain(v any) reaction {
	return reaction{render: func(string) (int, string) { b, _ := json.Marshal(v); return http.StatusOK, string(b) }}
}

// telling is an answer whose %s is the state.
func telling(format string, args ...any) func(string) (int, string) {
	return func(value string) (int, string) {
		return http.StatusOK, strings.ReplaceAll(fmt.Sprintf(format, args...), "STATE", value)
	}
}

func start(t testing.TB, m model, change func(*sim)) *sim {
	s := &sim{model: m, device: powertest.NewDevice(), failure: busy, patch: map[string]any{}}
	s.login = loginSim{algorithm: m.algorithm, nonces: map[string]int{}}
	s.Server = httptest.NewUnstartedServer(s)
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that refuse the certificate
	secure := false
	if change != nil {
		change(s)
		_, secure = s.patch["https"]
	}
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

func (s *sim) fingerprint() string {
	sum := sha256.Sum256(s.Certificate().Raw)
	return hex.EncodeToString(sum[:])
}

// change changes what the device is while it runs.
func (s *sim) change(f func(*sim)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

// is returns a setting.
func (s *sim) is(name string, usual any) any {
	if v, ok := s.patch[name]; ok {
		return v
	}
	return usual
}

func (s *sim) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, _ := io.ReadAll(r.Body)
	body := string(b)
	what := s.handle(s, r, body)
	s.requests = append(s.requests, r.Method+" "+strings.Split(r.URL.RequestURI(), "&user=")[0])
	if what.command != powerctl.Unknown {
		s.orders++
	}
	if s.echo && r.Method != http.MethodGet {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body)
		return
	}
	if !s.admit(w, r, what.command != powerctl.Unknown) {
		return
	}
	switch {
	case what.render == nil:
		http.Error(w, "no such thing", http.StatusNotFound)
	case what.command != powerctl.Unknown:
		s.switchTo(w, r, what)
	default:
		s.answer(w, r, what)
	}
}

func (s *sim) switchTo(w http.ResponseWriter, r *http.Request, what reaction) {
	a := s.device.Switch(what.command)
	switch {
	case a.Silent:
		s.mu.Unlock() // other requests go on
		<-r.Context().Done()
		s.mu.Lock()
	case a.Busy:
		s.fail(w, r, what, busy)
	case a.Reset:
		s.fail(w, r, what, reset)
	case a.Failed:
		s.fail(w, r, what, s.failure)
	default:
		s.write(w, r, what, s.literal(s.device.Contacts()))
	}
}

// literal is a state as the device writes it.
func (s *sim) literal(state powerctl.State) string {
	switch state {
	case powerctl.On:
		return s.on
	case powerctl.Off:
		return s.off
	}
	return "null"
}

func (s *sim) answer(w http.ResponseWriter, r *http.Request, what reaction) {
	if _, body := what.render("MARK"); !strings.Contains(body, "MARK") { // an answer without the state
		s.send(w, body)
		return
	}
	a := s.device.Read()
	commanded := len(s.device.Commands()) > 0 // what precedes the command must be readable
	switch {
	case s.garbage != "":
		s.send(w, s.garbage)
	case a.Garbage > 0 && commanded:
		list := nonsense(s.model, what)
		s.send(w, list[a.Garbage%len(list)])
	case a.Failed && commanded:
		s.fail(w, r, what, s.failure)
	case a.Garbage > 0 || a.Failed:
		s.write(w, r, what, s.literal(s.device.Contacts()))
	default:
		s.write(w, r, what, s.literal(a.State))
	}
}

// write sends the answer to a command, or to a reading of the state.
func (s *sim) write(w http.ResponseWriter, r *http.Request, what reaction, value string) {
	status, body := what.render(value)
	if status == http.StatusNoContent {
		w.WriteHeader(status)
		return
	}
	s.send(w, string(bytes.Join(s.device.Outgoing([]byte(r.Method+" "+r.RequestURI), []byte(body)), nil)))
}

func (s *sim) send(w http.ResponseWriter, body string) {
	w.Header().Set("Content-Type", "application/json")
	if s.drip == 0 {
		_, _ = io.WriteString(w, body)
		return
	}
	for _, c := range []byte(body) {
		if _, err := w.Write([]byte{c}); err != nil {
			return
		}
		w.(http.Flusher).Flush()
		time.Sleep(s.drip)
	}
}

// fail answers wrongly, with a body that would say off.
func (s *sim) fail(w http.ResponseWriter, r *http.Request, what reaction, how failure) {
	_, whole := what.render(s.off)
	w.Header().Set("Content-Type", "application/json")
	switch how {
	case busy:
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, whole)
	case refused:
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, whole)
	case reset:
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	case truncated:
		_, _ = io.WriteString(w, whole[:len(whole)-1])
	case short:
		w.Header().Set("Content-Length", fmt.Sprint(len(whole)+10))
		_, _ = io.WriteString(w, whole)
	case redirect, moved:
		code := map[failure]int{redirect: http.StatusTemporaryRedirect, moved: http.StatusFound}[how]
		http.Redirect(w, r, r.URL.RequestURI(), code)
	case page:
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<html>Power: OFF. Please log in.</html>")
	case mislabel:
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, whole)
	case endless:
		_, _ = w.Write(slices.Repeat([]byte{' '}, maxBody))
		_, _ = io.WriteString(w, whole)
	}
}

// nonsense must never be taken for on or off.
func nonsense(m model, what reaction) []string {
	of := func(value string) string { _, body := what.render(value); return body }
	off := of(m.off)
	list := []string{
		off[:len(off)-1], off + off, "[[" + off + "]]", "", "OFF", "<html>" + off + "</html>", "\x00", of(m.off + "," + m.on),
	}
	if strings.Contains(off, "{") {
		list = append(list, strings.Replace(off, "{", `{"twice":1,"twice":2,`, 1), strings.ReplaceAll(off, `"`, `'`), `{"error":`+off+`}`)
	}
	for _, value := range []string{
		`null`, `"off"`, `"Off"`, `"OFF "`, `"false"`, `"0"`, `"1"`, `0.0`, `-0`, `0e0`, `1.0`, `2`, `-1`, `{}`, `[]`, `"on"`, `"true"`,
		`[` + m.off + `]`, `{"a":` + m.off + `}`, `"` + strings.Trim(m.off, `"`) + `\u0000"`, `0`, `1`, `true`, `false`, `"OFF"`,
	} {
		if value != m.off && value != m.on {
			list = append(list, of(value))
		}
	}
	return list
}
