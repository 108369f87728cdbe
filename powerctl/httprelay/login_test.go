package httprelay

import (
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// loginSim is the device's side of RFC 7616, written from the RFC and not with the library
// that the driver uses.
type loginSim struct {
	algorithm string         // MD5 or SHA-256
	nonces    map[string]int // to the count that was last used
	issued    int
	once      bool     // a nonce is good for one request, as with Shelly before firmware 2.0
	expire    bool     // whatever is issued is stale for commands
	headers   []string // in place of the usual challenge
}

const simRealm = "shellyplus1-e09806a9e103"

// admit checks the login, and answers 401 where it is wrong.
func (s *sim) admit(w http.ResponseWriter, r *http.Request, command bool) bool {
	good, stale := false, false
	switch {
	case s.auth == NoAuth || s.openRead && !command:
		return true
	case s.auth == Basic:
		user, password, ok := r.BasicAuth()
		good = ok && user == simUser && password == simPassword
		w.Header().Set("WWW-Authenticate", `Basic realm="device"`)
	case s.auth == Query:
		q := r.URL.Query()
		good = q.Get("user") == simUser && q.Get("password") == simPassword
	case s.auth == Digest:
		good, stale = s.login.check(r, command)
		if !good {
			s.login.challenge(w, stale)
		}
	}
	if !good {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = fmt.Fprintf(w, `{"WARNING":"Need user=<username>&password=<password>, not %s"}`, r.URL.Query().Get("password"))
		return false
	}
	w.Header().Del("WWW-Authenticate")
	return true
}

func (l *loginSim) challenge(w http.ResponseWriter, stale bool) {
	if l.headers != nil {
		for _, h := range l.headers {
			w.Header().Add("WWW-Authenticate", h)
		}
		return
	}
	l.issued++
	nonce := fmt.Sprintf("6%07x", l.issued)
	l.nonces[nonce] = 0
	w.Header().Add("WWW-Authenticate", `Basic realm="other"`)
	w.Header().Add("WWW-Authenticate", fmt.Sprintf(`Digest qop="auth, auth-int", realm="%s", nonce="%s", algorithm=%s, opaque="op", stale=%t`, simRealm, nonce, l.algorithm, stale))
}

var parameter = regexp.MustCompile(`(\w+)=(?:"([^"]*)"|([^",\s]+))`)

func (l *loginSim) check(r *http.Request, command bool) (good, stale bool) {
	header, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Digest ")
	if !ok {
		return false, false
	}
	p := map[string]string{}
	for _, m := range parameter.FindAllStringSubmatch(header, -1) {
		p[m[1]] = m[2] + m[3]
	}
	hash := func(parts ...string) string {
		text := []byte(strings.Join(parts, ":"))
		if l.algorithm == "SHA-256" {
			sum := sha256.Sum256(text)
			return hex.EncodeToString(sum[:])
		}
		sum := md5.Sum(text)
		return hex.EncodeToString(sum[:])
	}
	want := hash(hash(simUser, simRealm, simPassword), p["nonce"], p["nc"], p["cnonce"], "auth", hash(r.Method, r.RequestURI))
	count, err := strconv.ParseInt(p["nc"], 16, 32)
	if p["response"] != want || p["uri"] != r.RequestURI || p["qop"] != "auth" || p["username"] != simUser ||
		p["realm"] != simRealm || p["opaque"] != "op" || p["algorithm"] != l.algorithm || err != nil || len(p["nc"]) != 8 {
		return false, false
	}
	last, known := l.nonces[p["nonce"]]
	if !known || int(count) <= last || l.once && last > 0 || l.expire && command {
		return false, true
	}
	l.nonces[p["nonce"]] = int(count)
	return true, false
}
