// Package httponce sends HTTP requests of which each may switch something.
//
// It guarantees that a request is sent at most once, over a connection that carries nothing
// else; that it goes to the address that was asked for, and nowhere that an answer points to;
// that an answer is whole and bounded, or an error; and that no error holds the URL, in which a
// password may be.
package httponce

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"

	"plugpull/internal/clock"
)

// ErrTooLong: the answer's body is longer than the client takes.
var ErrTooLong = errors.New("the answer is too long")

// maxHeader bounds the header of an answer, in bytes.
const maxHeader = 64 << 10

// Client sends requests. Its methods may be called concurrently.
type Client struct {
	client *http.Client
	most   int64
}

// Reply is a whole answer, whatever its status.
type Reply struct {
	Status int
	Header http.Header
	Body   []byte
}

// New returns a client that takes answers whose body has up to most bytes. conf may be nil
// where no https is meant.
func New(conf *tls.Config, most int64) *Client {
	var http1 http.Protocols
	http1.SetHTTP1(true) // alone: HTTP/2 sends requests anew by itself
	return &Client{most: most, client: &http.Client{
		// To follow a redirect is to send the request again, to somebody else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			TLSClientConfig:        conf,
			Protocols:              &http1,
			Proxy:                  nil,  // it could answer from memory, or repeat a request
			DisableKeepAlives:      true, // net/http sends a request anew only when a reused connection fails
			DisableCompression:     true, // so that the body is what was read
			MaxResponseHeaderBytes: maxHeader,
		},
	}}
}

// Do sends one request and blocks until its answer is whole or the request's context ends. sent
// is when the connection stood and nothing of the request had been written; zero: nothing of
// it left.
func (c *Client) Do(req *http.Request) (reply Reply, sent clock.Instant, err error) {
	var connected atomic.Int64
	once := req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(int64(clock.Now())) },
	}))
	once.GetBody = nil // what cannot be read again is not sent again
	reply, err = c.do(once)
	return reply, clock.Instant(connected.Load()), err
}

func (c *Client) do(req *http.Request) (Reply, error) {
	resp, err := c.client.Do(req)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err
		}
		return Reply{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, c.most+1))
	switch {
	case err != nil:
		return Reply{}, fmt.Errorf("read the answer: %w", err)
	case int64(len(body)) > c.most:
		return Reply{}, fmt.Errorf("%w: it has more than %d bytes", ErrTooLong, c.most)
	}
	return Reply{Status: resp.StatusCode, Header: resp.Header, Body: body}, nil
}
