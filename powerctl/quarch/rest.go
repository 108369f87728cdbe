package quarch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"plugpull/internal/clock"
	"plugpull/powerctl/internal/httponce"
)

// StatusError is an HTTP status other than 200. Redirects are not followed.
type StatusError struct{ Code int }

func (e *StatusError) Error() string {
	return fmt.Sprintf("HTTP status %d %s", e.Code, http.StatusText(e.Code))
}

// rest sends each command as the path of a GET.
type rest struct {
	host   string
	client *httponce.Client
}

func newREST(host string) *rest { return &rest{host: host, client: httponce.New(nil, maxAnswer)} }

func (r *rest) open(context.Context) (wire, error) { return r, nil }

func (r *rest) close() error { return nil }

// target is the command as a module takes it: only spaces are escaped.
func target(command string) string { return "/" + strings.ReplaceAll(command, " ", "%20") }

func (r *rest) ask(ctx context.Context, command string) (string, clock.Instant, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.host+"/", nil)
	if err != nil {
		return "", 0, err
	}
	// Opaque goes onto the wire as it is.
	req.URL = &url.URL{Scheme: "http", Host: r.host, Opaque: target(command)}
	reply, at, err := r.client.Do(req)
	switch {
	case errors.Is(err, httponce.ErrTooLong):
		return "", at, fmt.Errorf("%w: %w", ErrNotAnAnswer, err)
	case err != nil:
		return "", at, err
	case reply.Status != http.StatusOK:
		return "", at, &StatusError{reply.Status}
	}
	return strings.TrimSuffix(string(reply.Body), prompt), at, nil
}
