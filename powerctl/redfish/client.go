package redfish

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"plugpull/internal/clock"
	"plugpull/powerctl"
	"plugpull/powerctl/internal/httponce"
	"plugpull/powerctl/internal/tlspin"
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
type CertificateError = tlspin.CertificateError

func newClient(c Config) (*httponce.Client, error) {
	conf, err := tlspin.Trust{CAFile: c.CAFile, Fingerprint: c.Fingerprint}.Config()
	if err != nil {
		return nil, err
	}
	return httponce.New(conf, maxBody), nil
}

// conversation is the requests of one method.
type conversation struct {
	ctx      context.Context
	client   *httponce.Client
	base     string
	user     string
	password powerctl.Secret
	token    string // of a session
	session  string // its path
}

// get reads one resource.
func (c *conversation) get(path string) (object, error) {
	r, _, err := c.do(c.ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	if r.Status != http.StatusOK {
		return nil, statusError(r)
	}
	return parseObject(r.Body)
}

// command posts an action, once. The instant is zero when the request certainly
// did not leave.
func (c *conversation) command(path string, parameters map[string]string) (clock.Instant, error) {
	r, at, err := c.do(c.ctx, http.MethodPost, path, parameters)
	switch {
	case err != nil && at == 0:
		return 0, fmt.Errorf("%w: %w", powerctl.ErrNotSent, err)
	case err != nil:
		return at, err
	}
	switch r.Status {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
		return at, nil
	}
	return at, statusError(r)
}

// do sends one request, once, and reads the whole answer. The instant is zero when nothing of
// it left.
func (c *conversation) do(ctx context.Context, method, path string, parameters any) (httponce.Reply, clock.Instant, error) {
	var payload io.Reader
	if parameters != nil {
		b, err := json.Marshal(parameters)
		if err != nil {
			return httponce.Reply{}, 0, err
		}
		payload = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, payload)
	if err != nil {
		return httponce.Reply{}, 0, err
	}
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
	return c.client.Do(req)
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
	r, _, err := c.do(c.ctx, http.MethodPost, sessions, map[string]string{"UserName": c.user, "Password": c.password.Reveal()})
	if err != nil {
		return err
	}
	if r.Status != http.StatusCreated && r.Status != http.StatusOK {
		return statusError(r)
	}
	if u, err := url.Parse(r.Header.Get("Location")); err == nil && isPath(u.Path) {
		c.session = u.Path
	} else if o, err := parseObject(r.Body); err == nil && isPath(o.text("@odata.id")) {
		c.session = o.text("@odata.id")
	}
	c.token = r.Header.Get("X-Auth-Token")
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
func statusError(r httponce.Reply) error {
	e := &StatusError{Code: r.Status}
	o, err := parseObject(r.Body)
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
