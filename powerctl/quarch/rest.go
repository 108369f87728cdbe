package quarch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"

	"plugpull/internal/clock"
)

// StatusError is an HTTP status other than 200. Redirects are not followed.
type StatusError struct{ Code int }

func (e *StatusError) Error() string {
	return fmt.Sprintf("HTTP status %d %s", e.Code, http.StatusText(e.Code))
}

// rest sends each command as the path of a GET, over a connection of its own: net/http
// sends a request anew only when a reused connection fails.
type rest struct {
	host   string
	client *http.Client
}

func newREST(host string) *rest {
	return &rest{host: host, client: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		// No proxy: it could answer a GET from memory, or repeat it.
		Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: 16 << 10},
	}}
}

func (r *rest) open(context.Context) (wire, error) { return r, nil }

func (r *rest) close() error { return nil }

// target is the command as a module takes it: only spaces are escaped.
func target(command string) string { return "/" + strings.ReplaceAll(command, " ", "%20") }

func (r *rest) ask(ctx context.Context, command string) (string, clock.Instant, error) {
	var connected atomic.Int64
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		// The connection stands, and nothing of the request has been written.
		GotConn: func(httptrace.GotConnInfo) { connected.Store(int64(clock.Now())) },
	})
	answer, err := r.get(ctx, command)
	return answer, clock.Instant(connected.Load()), err
}

func (r *rest) get(ctx context.Context, command string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.host+"/", nil)
	if err != nil {
		return "", err
	}
	// Opaque goes onto the wire as it is.
	req.URL = &url.URL{Scheme: "http", Host: r.host, Opaque: target(command)}
	resp, err := r.client.Do(req)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err
		}
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read the answer: %w", err)
	case len(body) > maxAnswer:
		return "", fmt.Errorf("%w: it has more than %d bytes", ErrNotAnAnswer, maxAnswer)
	case resp.StatusCode != http.StatusOK:
		return "", &StatusError{resp.StatusCode}
	}
	return strings.TrimSuffix(string(body), prompt), nil
}
