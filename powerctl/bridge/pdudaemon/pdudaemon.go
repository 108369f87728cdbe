// Package pdudaemon switches an outlet through pdudaemon, the daemon that a LAVA lab has before
// its PDUs, by its HTTP listener.
//
// It guarantees that only on and off are asked for, never reboot, once, without a delay and without
// following a redirect.
//
// It can say nothing about the outlet: pdudaemon has no way to ask for a state, so that ReadBack is
// false and no Off of this driver is ever more than a request that was taken. Its "OK - accepted
// request" does not even say that the PDU was reached: older versions put the request into a queue and
// answer at once; the one in Debian 12 (0.0.8 and 58 commits) waits for its driver and then answers the
// same when the driver failed (seen with a command that fails, and with a driver that raised an error, five
// seconds later). It retries what fails by itself. Only a witness of another kind (silence on the
// network, watts, another boot id) can show a cut by this driver. pdudaemon has no login, no
// encryption and no identity: nothing can be pinned, and anybody who reaches it can switch.
package pdudaemon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"plugpull/internal/clock"
	"plugpull/powerctl"
	"plugpull/powerctl/bridge"
	"plugpull/powerctl/internal/httponce"
)

// Config describes an outlet.
type Config struct {
	Name string
	// URL is http://host:port of the HTTP listener; the port is 16421 unless pdudaemon's
	// configuration says otherwise. https is for a proxy before it.
	URL string
	// PDU is the PDU's hostname in pdudaemon's configuration, and Port the outlet.
	PDU   string
	Port  int
	Class powerctl.Class
	// Timeout bounds each method. pdudaemon tries a PDU that fails up to five times, with
	// pauses of five seconds, before it answers.
	Timeout time.Duration
}

// Outlet implements powerctl.Outlet and powerctl.Planner.
type Outlet struct {
	c      Config
	client *httponce.Client
}

// New checks the configuration; it connects to nothing.
func New(c Config) (*Outlet, error) {
	var errs []error
	check := func(bad bool, text string) {
		if bad {
			errs = append(errs, errors.New(text))
		}
	}
	u, err := url.Parse(c.URL)
	check(c.Name == "", "the outlet's name is missing")
	check(err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery+u.Fragment != "",
		"the URL is not http://host:port")
	check(!bridge.PlainName(c.PDU), "the PDU is not one plain hostname")
	check(c.Port < 0, "the port is negative")
	check(!bridge.ValidClass(c.Class), "the class is none of mains, drive and chassis")
	check(c.Timeout <= 0, "the timeout is missing")
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("pdudaemon outlet: %w", err)
	}
	c.URL = strings.TrimRight(c.URL, "/")
	return &Outlet{c: c, client: httponce.New(nil, maxBody)}, nil
}

// Tried says against what the driver was run.
const Tried = powerctl.TriedPeer

// Capabilities implements powerctl.Outlet. The wire was tried against Debian 12's pdudaemon.
func (o *Outlet) Capabilities() powerctl.Capabilities {
	return powerctl.Capabilities{Class: o.c.Class, Tried: Tried}
}

// target is the whole request. The delay is said because older versions wait for 5 s without it.
func (o *Outlet) target(op string) string {
	q := url.Values{"hostname": {o.c.PDU}, "port": {strconv.Itoa(o.c.Port)}, "delay": {"0"}}
	return o.c.URL + "/power/control/" + op + "?" + q.Encode()
}

// Off asks for off, once.
func (o *Outlet) Off(ctx context.Context) (powerctl.Result, error) { return o.command(ctx, "off") }

// On asks for on, once.
func (o *Outlet) On(ctx context.Context) (powerctl.Result, error) { return o.command(ctx, "on") }

func (o *Outlet) command(ctx context.Context, op string) (powerctl.Result, error) {
	limited, cancel := context.WithTimeout(ctx, o.c.Timeout)
	defer cancel()
	at, err := o.ask(limited, op)
	res := powerctl.Result{Commanded: at}
	if err != nil {
		if res.Commanded == 0 {
			err = fmt.Errorf("%w: %w", powerctl.ErrNotSent, err)
		}
		return res, &powerctl.OpError{Op: op, Outlet: o.c.Name, Step: "ask pdudaemon for " + op, Err: err}
	}
	res.Acknowledged = clock.Now()
	return res, nil
}

// accepted is what pdudaemon answers to a request that it takes.
const accepted = "OK - accepted request"

// maxBody bounds an answer, in bytes.
const maxBody = 4096

// AnswerError is an answer that does not say that the request was taken.
type AnswerError struct {
	Code int
	Body string // its beginning
}

func (e *AnswerError) Error() string {
	text := fmt.Sprintf("HTTP status %d %s: %q", e.Code, http.StatusText(e.Code), e.Body)
	if e.Code == http.StatusInternalServerError {
		text += ": is the PDU in pdudaemon's configuration? its log says more"
	}
	return text
}

func (o *Outlet) ask(ctx context.Context, op string) (clock.Instant, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, o.target(op), nil)
	if err != nil {
		return 0, err
	}
	reply, at, err := o.client.Do(req)
	if err != nil {
		return at, err
	}
	if text := string(reply.Body); reply.Status != http.StatusOK || strings.TrimSuffix(text, "\n") != accepted {
		return at, &AnswerError{Code: reply.Status, Body: text[:min(len(text), 128)]}
	}
	return at, nil
}

// State returns powerctl.ErrNoReadBack: pdudaemon cannot be asked.
func (o *Outlet) State(context.Context) (powerctl.Result, error) {
	return powerctl.Result{}, &powerctl.OpError{Op: "state", Outlet: o.c.Name, Step: "read the state", Err: powerctl.ErrNoReadBack}
}

// Identify contacts nothing: the outlet is told by a digest of how it is reached.
func (o *Outlet) Identify(ctx context.Context) (powerctl.Identity, error) {
	if err := ctx.Err(); err != nil {
		return powerctl.Identity{}, &powerctl.OpError{Op: "identify", Outlet: o.c.Name, Step: "begin", Err: err}
	}
	sum := sha256.Sum256([]byte(o.c.URL))
	return powerctl.Identity{
		Driver: "pdudaemon", Name: o.c.Name,
		Device: fmt.Sprintf("address %s PDU %s port %d", hex.EncodeToString(sum[:4]), o.c.PDU, o.c.Port),
	}, nil
}

// Pins returns nothing: pdudaemon tells nothing that could be pinned.
func (o *Outlet) Pins(context.Context) (map[string]string, error) { return map[string]string{}, nil }

// Plan implements powerctl.Planner.
func (o *Outlet) Plan(on bool) []string {
	if on {
		return []string{"GET " + o.target("on")}
	}
	return []string{"GET " + o.target("off")}
}
