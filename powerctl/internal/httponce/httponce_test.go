package httponce

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"plugpull/internal/clock"
)

const most = 64

// listener is a device; it counts the requests.
type listener struct {
	net.Listener
	mu       sync.Mutex
	requests int
}

// answer is what the device says. It keeps the connection unless it hangs up, also where the
// client says that it will not use it again.
type answer struct {
	text   string
	hangUp bool
}

// listen gives the answer to the n-th request, from 1 on.
func listen(t *testing.T, say func(n int) answer) *listener {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &listener{Listener: inner}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { l.serve(conn, say) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	return l
}

func (l *listener) serve(conn net.Conn, say func(n int) answer) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		l.mu.Lock()
		l.requests++
		n := l.requests
		l.mu.Unlock()
		a := say(n)
		_, _ = io.WriteString(conn, a.text)
		if a.hangUp {
			return
		}
	}
}

func (l *listener) seen() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.requests
}

func request(t *testing.T, method, address string) *http.Request {
	t.Helper()
	var body io.Reader
	if method != http.MethodGet {
		body = strings.NewReader("on=1")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, address+"/cmd?password=hunter2", body)
	require.NoError(t, err)
	return req
}

const whole = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// TestRequestIsSentOnce: a device that carries a request out and hangs up, the first time or
// when it was talked to before, is not asked again by anybody.
func TestRequestIsSentOnce(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPost} {
		for name, good := range map[string]int{"the first": 0, "a later one": 1} {
			t.Run(method+" "+name, func(t *testing.T) {
				l := listen(t, func(n int) answer {
					if n <= good {
						return answer{text: whole}
					}
					return answer{hangUp: true}
				})
				c := New(nil, most)
				for range good {
					_, _, err := c.Do(request(t, method, "http://"+l.Addr().String()))
					require.NoError(t, err)
				}
				req := request(t, method, "http://"+l.Addr().String())
				req.Header.Set("Idempotency-Key", "1") // net/http takes it for leave to repeat a POST
				before := clock.Now()
				reply, sent, err := c.Do(req)
				require.Error(t, err)
				require.GreaterOrEqual(t, sent, before, "it may have been carried out")
				require.LessOrEqual(t, sent, clock.Now())
				require.Zero(t, reply)
				require.Equal(t, good+1, l.seen())
			})
		}
	}
}

// TestAnswers: an answer is whole, or an error.
func TestAnswers(t *testing.T) {
	for name, c := range map[string]struct{ answer, body, fails string }{
		"whole":                              {whole, "ok", ""},
		"as long as may be":                  {"HTTP/1.0 200 OK\r\n\r\n" + strings.Repeat("x", most), strings.Repeat("x", most), ""},
		"too long":                           {"HTTP/1.0 200 OK\r\n\r\n" + strings.Repeat("x", most+1), "", "more than 64 bytes"},
		"cut short":                          {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok", "", "read the answer"},
		"a long header":                      {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 2*maxHeader) + "\r\n\r\n", "", "headers"},
		"compressed, which nobody asked for": {"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nok", "ok", ""},
		"no HTTP":                            {"Welcome\r\n", "", "malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			l := listen(t, func(int) answer { return answer{c.answer, true} })
			reply, sent, err := New(nil, most).Do(request(t, http.MethodGet, "http://"+l.Addr().String()))
			require.NotZero(t, sent)
			if c.fails == "" {
				require.NoError(t, err)
				require.Equal(t, http.StatusOK, reply.Status)
				require.Equal(t, c.body, string(reply.Body))
				return
			}
			require.ErrorContains(t, err, c.fails)
			require.Zero(t, reply)
			require.Equal(t, name == "too long", errors.Is(err, ErrTooLong))
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
}

// TestNowhereElse: a redirect is an answer like others.
func TestNowhereElse(t *testing.T) {
	elsewhere := listen(t, func(int) answer { return answer{text: whole} })
	for _, status := range []int{301, 302, 303, 307, 308} {
		front := httptest.NewServer(http.RedirectHandler("http://"+elsewhere.Addr().String(), status))
		reply, _, err := New(nil, most).Do(request(t, http.MethodPost, front.URL))
		front.Close()
		require.NoError(t, err)
		require.Equal(t, status, reply.Status)
	}
	require.Zero(t, elsewhere.seen())
	require.Nil(t, New(nil, most).client.Transport.(*http.Transport).Proxy, "the environment names one on some machines")
}

// TestHTTP1Alone: HTTP/2 sends requests anew by itself.
func TestHTTP1Alone(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r.Proto+" "+r.RemoteAddr)
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	c := New(&tls.Config{RootCAs: s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}, most)
	for range 2 {
		_, _, err := c.Do(request(t, http.MethodGet, s.URL))
		require.NoError(t, err)
	}
	require.Len(t, seen, 2)
	require.NotEqual(t, seen[0], seen[1], "each over a connection of its own")
	for _, s := range seen {
		require.Contains(t, s, "HTTP/1.1 ")
	}
}

// TestNothingLeft: what came to no connection that could be trusted was not sent.
func TestNothingLeft(t *testing.T) {
	var requests int
	secure := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests++ }))
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	gone := listen(t, nil)
	require.NoError(t, gone.Close())
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, req := range map[string]*http.Request{
		"nobody there":          request(t, http.MethodGet, "http://"+gone.Addr().String()),
		"an unknown authority":  request(t, http.MethodPost, secure.URL),
		"the context has ended": request(t, http.MethodPost, secure.URL).WithContext(ended),
	} {
		reply, sent, err := New(nil, most).Do(req)
		require.Error(t, err, name)
		require.Zero(t, sent, name)
		require.Zero(t, reply, name)
		require.NotContains(t, err.Error(), "hunter2", name)
	}
	require.Zero(t, requests)
}

// TestContextEndsTheWait: the answer stops in the middle.
func TestContextEndsTheWait(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l := listen(t, func(int) answer {
		cancel()
		return answer{text: whole[:len(whole)-1]}
	})
	_, sent, err := New(nil, most).Do(request(t, http.MethodGet, "http://"+l.Addr().String()).WithContext(ctx))
	require.ErrorIs(t, err, context.Canceled)
	require.NotZero(t, sent)
}
