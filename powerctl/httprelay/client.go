package httprelay

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/icholy/digest"

	"plugpull/internal/clock"
	"plugpull/powerctl"
)

// maxBody bounds an answer, in bytes. The settings of a large device have a few KiB.
const maxBody = 256 << 10

func newClient(c Config) (*http.Client, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	switch {
	case c.CAFile != "" && c.Fingerprint != "":
		return nil, errors.New("at most one of CA file and fingerprint is wanted")
	case c.CAFile != "":
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the CA file: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("the CA file has no certificate")
		}
	case c.Fingerprint != "":
		want := strings.ToLower(strings.ReplaceAll(c.Fingerprint, ":", ""))
		if b, err := hex.DecodeString(want); err != nil || len(b) != sha256.Size {
			return nil, errors.New("the fingerprint is not 64 hexadecimal digits")
		}
		conf.InsecureSkipVerify = true // the fingerprint takes the place of the authorities
		conf.VerifyConnection = func(s tls.ConnectionState) error {
			sum := sha256.Sum256(s.PeerCertificates[0].Raw)
			if got := hex.EncodeToString(sum[:]); got != want {
				return &CertificateError{Want: want, Got: got}
			}
			return nil
		}
	}
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		// A new connection for each request: net/http sends a request anew only when a
		// reused connection fails. No HTTP/2, which does so by itself, and no proxy.
		Transport: &http.Transport{
			TLSClientConfig:        conf,
			DisableKeepAlives:      true,
			DisableCompression:     true, // so that maxBody bounds what is read
			TLSNextProto:           map[string]func(string, *tls.Conn) http.RoundTripper{},
			MaxResponseHeaderBytes: 64 << 10,
		},
	}, nil
}

// conversation is the requests of one method.
type conversation struct {
	ctx       context.Context
	o         *Outlet
	seen      map[string]answer // by path: what was read already, in this method
	challenge *digest.Challenge // the latest, nil for none
	count     int               // how often it was used
}

// answer is a whole answer to a GET.
type answer struct {
	body  []byte
	value any
}

// reply is what came back, whole.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// get reads one path, once a conversation. An *unreadableError is an answer that is
// whole and not the wanted one.
func (c *conversation) get(path string) (answer, error) {
	if a, ok := c.seen[path]; ok {
		return a, nil
	}
	r, err := c.read(path)
	if err != nil {
		return answer{}, err
	}
	if r.status != http.StatusOK {
		return answer{}, &unreadableError{&StatusError{Code: r.status}}
	}
	a := answer{body: r.body}
	if a.value, err = c.decode(r); err != nil {
		return answer{}, &unreadableError{err}
	}
	c.seen[path] = a
	return a, nil
}

func (c *conversation) decode(r *reply) (any, error) {
	if want := c.o.p.ReplyType; want != "" {
		got := r.header.Get("Content-Type")
		if media, _, err := mime.ParseMediaType(got); err != nil || media != want {
			return nil, fmt.Errorf("the answer is %.60q, want %s", got, want)
		}
	}
	return parseJSON(r.body)
}

// read sends one GET, and once more with the answer to a challenge: a GET changes nothing.
func (c *conversation) read(path string) (*reply, error) {
	r, err := c.do(c.ctx, http.MethodGet, path, "", "")
	if err != nil || r.status != http.StatusUnauthorized || !c.o.loginBy(Digest) {
		return r, err
	}
	// The challenge may be the first one, or one that takes the place of a used or stale one.
	if err := c.accept(r); err != nil {
		return nil, &unreadableError{err}
	}
	return c.do(c.ctx, http.MethodGet, path, "", "")
}

// command writes a command, once. The instant is zero when it was certainly not carried
// out: nothing of it left, or it was refused for want of a login.
func (c *conversation) command(cmd *command) (clock.Instant, error) {
	var commanded atomic.Int64
	ctx := httptrace.WithClientTrace(c.ctx, &httptrace.ClientTrace{
		// The connection stands, and nothing of the request has been written.
		GotConn: func(httptrace.GotConnInfo) { commanded.Store(int64(clock.Now())) },
	})
	outlet := c.o.c.Outlet
	r, err := c.do(ctx, cmd.method, cmd.path.fill(outlet), cmd.body.fill(outlet), cmd.contentType)
	at := clock.Instant(commanded.Load())
	switch {
	case err != nil && at == 0:
		return 0, fmt.Errorf("%w: %w", powerctl.ErrNotSent, err)
	case err != nil:
		return at, err
	case r.status == http.StatusUnauthorized && r.header.Get("WWW-Authenticate") != "":
		// RFC 9110, 15.5.2: a 401 "has not been applied", and must carry a challenge. The whole answer
		// to this very request is here, over a connection that carried nothing else, so that
		// there is no command under way that could still be applied. It is not sent again
		// here: whoever asked decides, and the next attempt asks for a challenge anew.
		return 0, fmt.Errorf("%w: the device refused the login: %w", powerctl.ErrNotSent, &StatusError{Code: r.status})
	case !slices.Contains(cmd.statuses, r.status):
		return at, &StatusError{Code: r.status}
	case len(cmd.reply) == 0:
		return at, nil
	}
	v, err := c.decode(r)
	if err != nil {
		return at, fmt.Errorf("%w: %w", errReply, err)
	}
	for _, k := range cmd.reply {
		if !k.holds(v, outlet) {
			return at, fmt.Errorf("%w: %s is not as it should be", errReply, k.path.fill(outlet))
		}
	}
	return at, nil
}

// do sends one request and reads the whole answer.
func (c *conversation) do(ctx context.Context, method, path, body, contentType string) (*reply, error) {
	var payload io.Reader
	if body != "" {
		payload = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.o.c.URL+c.o.withLogin(path), payload)
	if err != nil {
		return nil, errors.New("the profile's path makes no URL")
	}
	req.GetBody = nil // what cannot be read again is not sent again
	for name, value := range c.o.p.headers {
		req.Header.Set(name, value.fill(c.o.c.Outlet))
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if c.o.loginBy(Basic) {
		req.SetBasicAuth(c.o.c.User, c.o.c.Password.Reveal())
	}
	if err := c.authorize(req); err != nil {
		return nil, err
	}
	resp, err := c.o.client.Do(req)
	if err != nil {
		return nil, withoutURL(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if len(b) > maxBody {
		return nil, fmt.Errorf("the answer has more than %d bytes", maxBody)
	}
	return &reply{status: resp.StatusCode, header: resp.Header, body: b}, nil
}

// loginBy says whether there is a password that is sent in this way.
func (o *Outlet) loginBy(a Auth) bool { return o.p.Auth == a && o.c.User != "" }

// withLogin adds user and password to the query of a device that wants them there.
func (o *Outlet) withLogin(path string) string {
	return o.query(path, url.QueryEscape(o.c.Password.Reveal()))
}

// shown is the address that withLogin makes, without the password.
func (o *Outlet) shown(path string) string { return o.c.URL + o.query(path, hidden) }

func (o *Outlet) query(path, password string) string {
	if !o.loginBy(Query) {
		return path
	}
	mark := "?"
	if strings.Contains(path, "?") {
		mark = "&"
	}
	return path + mark + o.p.queryUser + "=" + url.QueryEscape(o.c.User) + "&" + o.p.queryPassword + "=" + password
}
