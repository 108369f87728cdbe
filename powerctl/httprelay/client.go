package httprelay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/icholy/digest"

	"plugpull/internal/clock"
	"plugpull/powerctl"
	"plugpull/powerctl/internal/httponce"
	"plugpull/powerctl/internal/tlspin"
)

// maxBody bounds an answer, in bytes. The settings of a large device have a few KiB.
const maxBody = 256 << 10

func newClient(c Config) (*httponce.Client, error) {
	conf, err := tlspin.Trust{CAFile: c.CAFile, Fingerprint: c.Fingerprint}.Config()
	if err != nil {
		return nil, err
	}
	return httponce.New(conf, maxBody), nil
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
	if r.Status != http.StatusOK {
		return answer{}, &unreadableError{&StatusError{Code: r.Status}}
	}
	a := answer{body: r.Body}
	if a.value, err = c.decode(r); err != nil {
		return answer{}, &unreadableError{err}
	}
	c.seen[path] = a
	return a, nil
}

func (c *conversation) decode(r httponce.Reply) (any, error) {
	if want := c.o.p.ReplyType; want != "" {
		got := r.Header.Get("Content-Type")
		if media, _, err := mime.ParseMediaType(got); err != nil || media != want {
			return nil, fmt.Errorf("the answer is %.60q, want %s", got, want)
		}
	}
	return parseJSON(r.Body)
}

// read sends one GET, and once more with the answer to a challenge: a GET changes nothing.
func (c *conversation) read(path string) (httponce.Reply, error) {
	r, _, err := c.do(http.MethodGet, path, "", "")
	if err != nil || r.Status != http.StatusUnauthorized || !c.o.loginBy(Digest) {
		return r, err
	}
	// The challenge may be the first one, or one that takes the place of a used or stale one.
	if err := c.accept(r); err != nil {
		return httponce.Reply{}, &unreadableError{err}
	}
	r, _, err = c.do(http.MethodGet, path, "", "")
	return r, err
}

// command writes a command, once. The instant is zero when it was certainly not carried
// out: nothing of it left, or it was refused for want of a login.
func (c *conversation) command(cmd *command) (clock.Instant, error) {
	outlet := c.o.c.Outlet
	r, at, err := c.do(cmd.method, cmd.path.fill(outlet), cmd.body.fill(outlet), cmd.contentType)
	switch {
	case err != nil && at == 0:
		return 0, fmt.Errorf("%w: %w", powerctl.ErrNotSent, err)
	case err != nil:
		return at, err
	case r.Status == http.StatusUnauthorized && r.Header.Get("WWW-Authenticate") != "":
		// RFC 9110, 15.5.2: a 401 "has not been applied", and must carry a challenge. The whole answer
		// to this very request is here, over a connection that carried nothing else, so that
		// there is no command under way that could still be applied. It is not sent again
		// here: whoever asked decides, and the next attempt asks for a challenge anew.
		return 0, fmt.Errorf("%w: the device refused the login: %w", powerctl.ErrNotSent, &StatusError{Code: r.Status})
	case !slices.Contains(cmd.statuses, r.Status):
		return at, &StatusError{Code: r.Status}
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

// do sends one request, once, and reads the whole answer. The instant is zero when nothing of
// it left.
func (c *conversation) do(method, path, body, contentType string) (httponce.Reply, clock.Instant, error) {
	var payload io.Reader
	if body != "" {
		payload = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(c.ctx, method, c.o.c.URL+c.o.withLogin(path), payload)
	if err != nil {
		return httponce.Reply{}, 0, errors.New("the profile's path makes no URL")
	}
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
		return httponce.Reply{}, 0, err
	}
	return c.o.client.Do(req)
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
