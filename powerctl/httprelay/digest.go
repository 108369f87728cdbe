package httprelay

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"plugpull/powerctl/internal/httponce"

	"github.com/icholy/digest"
)

// errChallenge: there is no digest of RFC 7616 with qop=auth and MD5 or SHA-256.
var errChallenge = errors.New("the device asks for a login, and offers no digest with MD5 or SHA-256 and qop=auth")

// prepare gets a challenge for the command that follows, by a GET of the state without a
// login, so that the command itself need not be written twice: some devices take a
// nonce once only (Shelly before firmware 2.0), so that one that a reading has used
// would have the command refused. A device that lets everybody read sends none; the command
// then goes without a login, and its 401, if any, says that it was not carried out.
func (c *conversation) prepare() error {
	if !c.o.loginBy(Digest) {
		return nil
	}
	c.challenge = nil
	r, _, err := c.do(http.MethodGet, c.o.p.state.get.fill(c.o.c.Outlet), "", "")
	switch {
	case err != nil:
		return err
	case r.Status == http.StatusUnauthorized:
		return c.accept(r)
	case r.Status != http.StatusOK:
		return &StatusError{Code: r.Status}
	}
	return nil
}

// accept takes the best challenge of an answer.
func (c *conversation) accept(r httponce.Reply) error {
	ch, err := findChallenge(r.Header)
	if err != nil {
		return err
	}
	c.challenge, c.count = ch, 0
	return nil
}

// findChallenge prefers SHA-256.
func findChallenge(h http.Header) (*digest.Challenge, error) {
	var best *digest.Challenge
	for _, header := range h.Values("WWW-Authenticate") {
		ch, err := digest.ParseChallenge(header)
		if err != nil || ch.Nonce == "" {
			continue
		}
		for i, q := range ch.QOP { // "auth, auth-int"
			ch.QOP[i] = strings.ToLower(strings.TrimSpace(q))
		}
		if !ch.SupportsQOP("auth") {
			continue
		}
		ch.QOP = []string{"auth"}
		switch strings.ToUpper(ch.Algorithm) {
		case "SHA-256":
			return ch, nil
		case "", "MD5":
			if best == nil {
				best = ch
			}
		}
	}
	if best == nil {
		return nil, errChallenge
	}
	return best, nil
}

// authorize answers the challenge, if there is one, for this request alone.
func (c *conversation) authorize(req *http.Request) error {
	if c.challenge == nil {
		return nil
	}
	c.count++
	cred, err := digest.Digest(c.challenge, digest.Options{
		Method: req.Method, URI: req.URL.RequestURI(), Count: c.count,
		Username: c.o.c.User, Password: c.o.c.Password.Reveal(),
	})
	if err != nil {
		return fmt.Errorf("answer the login's challenge: %w", err)
	}
	req.Header.Set("Authorization", cred.String())
	return nil
}
