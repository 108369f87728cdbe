package redfish

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"plugpull/internal/clock"
	"plugpull/powerctl"
)

// maxBody bounds an answer, in bytes. A large ComputerSystem has about 30 KiB.
const maxBody = 1 << 20

// StatusError is an HTTP status that is not a success.
type StatusError struct {
	Code    int
	Message string // the Redfish message id, such as Base.1.8.ActionNotSupported, where there is one
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("HTTP status %d %s", e.Code, http.StatusText(e.Code))
	if e.Message != "" {
		text += " (" + e.Message + ")"
	}
	return text
}

// CertificateError: the device's certificate is not the pinned one.
type CertificateError struct{ Want, Got string } // SHA-256 fingerprints

func (e *CertificateError) Error() string {
	return fmt.Sprintf("the certificate's fingerprint is %s, and %s is pinned", e.Got, e.Want)
}

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
			TLSNextProto:           map[string]func(string, *tls.Conn) http.RoundTripper{},
			MaxResponseHeaderBytes: 64 << 10,
		},
	}, nil
}

// conversation is the requests of one method.
type conversation struct {
	ctx      context.Context
	client   *http.Client
	base     string
	user     string
	password powerctl.Secret
	token    string // of a session
	session  string // its path
}

// get reads one resource.
func (c *conversation) get(path string) (object, error) {
	resp, body, err := c.do(c.ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, statusError(resp, body)
	}
	return parseObject(body)
}

// command posts an action, once. The instant is zero when the request certainly
// did not leave.
func (c *conversation) command(path string, parameters map[string]string) (clock.Instant, error) {
	var commanded atomic.Int64
	ctx := httptrace.WithClientTrace(c.ctx, &httptrace.ClientTrace{
		// The connection stands, and nothing of the request has been written.
		GotConn: func(httptrace.GotConnInfo) { commanded.Store(int64(clock.Now())) },
	})
	resp, body, err := c.do(ctx, http.MethodPost, path, parameters)
	at := clock.Instant(commanded.Load())
	switch {
	case err != nil && at == 0:
		return 0, fmt.Errorf("%w: %w", powerctl.ErrNotSent, err)
	case err != nil:
		return at, err
	}
	switch resp.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
		return at, nil
	}
	return at, statusError(resp, body)
}

// do sends one request and reads the whole answer.
func (c *conversation) do(ctx context.Context, method, path string, parameters any) (*http.Response, []byte, error) {
	var payload io.Reader
	if parameters != nil {
		b, err := json.Marshal(parameters)
		if err != nil {
			return nil, nil, err
		}
		payload = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, payload)
	if err != nil {
		return nil, nil, err
	}
	req.GetBody = nil // what cannot be read again is not sent again
	req.Header.Set("Accept", "application/json")
	req.Header.Set("OData-Version", "4.0")
	if parameters != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	switch {
	case c.token != "":
		req.Header.Set("X-Auth-Token", c.token)
	case c.session == "" && c.user != "":
		req.SetBasicAuth(c.user, c.password.Reveal())
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, nil, withoutURL(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err != nil {
		return nil, nil, fmt.Errorf("read the answer: %w", err)
	}
	if len(body) > maxBody {
		return nil, nil, fmt.Errorf("the answer has more than %d bytes", maxBody)
	}
	return resp, body, nil
}

// withoutURL drops what the step already says.
func withoutURL(err error) error {
	var ue *url.Error
	if errors.As(err, &ue) {
		return ue.Err
	}
	return err
}

// defaultSessions is where sessions are unless the service root says otherwise.
const defaultSessions = "/redfish/v1/SessionService/Sessions"

// noLogin marks a conversation that has no credentials to send yet.
const noLogin = "-"

// login opens a session. The password travels in the body of one request.
func (c *conversation) login() error {
	c.session = noLogin
	root, err := c.get("/redfish/v1/")
	if err != nil {
		return fmt.Errorf("read the service root: %w", err)
	}
	sessions := root.object("Links").object("Sessions").text("@odata.id")
	if sessions == "" {
		sessions = defaultSessions
	}
	if !isPath(sessions) {
		return fmt.Errorf("the sessions are at %q, which is no path of this service", sessions)
	}
	resp, body, err := c.do(c.ctx, http.MethodPost, sessions, map[string]string{"UserName": c.user, "Password": c.password.Reveal()})
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusCreated && resp.StatusCode != http.StatusOK {
		return statusError(resp, body)
	}
	if u, err := url.Parse(resp.Header.Get("Location")); err == nil && isPath(u.Path) {
		c.session = u.Path
	} else if o, err := parseObject(body); err == nil && isPath(o.text("@odata.id")) {
		c.session = o.text("@odata.id")
	}
	c.token = resp.Header.Get("X-Auth-Token")
	if c.token == "" || c.session == noLogin {
		return errors.New("the device opened a session and does not say its token, or where it can be deleted")
	}
	return nil
}

// logout deletes the session, also when the time of the method is over: devices
// have few.
func (c *conversation) logout() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), 2*time.Second)
	defer cancel()
	_, _, _ = c.do(ctx, http.MethodDelete, c.session, nil)
}

// statusError takes the message's id from the answer and leaves its text out,
// which may repeat what was sent.
func statusError(resp *http.Response, body []byte) error {
	e := &StatusError{Code: resp.StatusCode}
	o, err := parseObject(body)
	if err != nil {
		return e
	}
	failure := o.object("error")
	e.Message = failure.text("code")
	var infos []struct {
		MessageID string `json:"MessageId"`
	}
	if json.Unmarshal(failure["@Message.ExtendedInfo"], &infos) == nil && len(infos) > 0 && infos[0].MessageID != "" {
		e.Message = infos[0].MessageID
	}
	if len(e.Message) > 100 || strings.ContainsFunc(e.Message, func(r rune) bool { return r <= ' ' || r > '~' }) {
		e.Message = ""
	}
	return e
}
