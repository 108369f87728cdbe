package pdudaemon

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"plugpull/powerctl"
	"plugpull/powerctl/bridge/bridgetest"
	"plugpull/powerctl/powertest"
)

// daemon is a simulated pdudaemon with the powertest device behind port 3 of pdu1.
type daemon struct {
	*httptest.Server
	device *powertest.Device

	mu       sync.Mutex
	failure  failure
	requests []string
}

// failure is a way in which an answer fails.
type failure string

const (
	invalid   failure = "500"
	reset     failure = "connection reset"
	short     failure = "shorter than announced"
	redirect  failure = "redirect 307"
	moved     failure = "redirect 302"
	page      failure = "a web page"
	endless   failure = "without end"
	empty     failure = "204"
	truncated failure = "half the words"
	status    failure = "the words with another status"
)

func start(t testing.TB) *daemon {
	d := &daemon{device: powertest.NewDevice(), failure: invalid}
	d.Server = httptest.NewUnstartedServer(d)
	d.Config.ErrorLog = log.New(io.Discard, "", 0)
	d.Start()
	t.Cleanup(d.Close)
	return d
}

func (d *daemon) change(f func(*daemon)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d)
}

func (d *daemon) seen() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.requests)
}

func (d *daemon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	d.requests = append(d.requests, r.Method+" http://"+r.Host+r.RequestURI)
	d.mu.Unlock()
	want := powerctl.Fault // a command that the suite does not count is worth a failure
	switch r.RequestURI {
	case "/power/control/off?delay=0&hostname=pdu1&port=3":
		want = powerctl.Off
	case "/power/control/on?delay=0&hostname=pdu1&port=3":
		want = powerctl.On
	}
	switch a := d.device.Switch(want); {
	case a.Silent:
		<-r.Context().Done()
	case a.Reset:
		cut(w)
	case a.Failed:
		d.fail(w, r)
	default:
		_, _ = io.WriteString(w, accepted+"\n")
	}
}

func cut(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	_ = conn.(*net.TCPConn).SetLinger(0)
	_ = conn.Close()
}

func (d *daemon) fail(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	how := d.failure
	d.mu.Unlock()
	switch how {
	case invalid:
		http.Error(w, "Invalid request", http.StatusInternalServerError)
	case reset:
		cut(w)
	case short:
		w.Header().Set("Content-Length", fmt.Sprint(len(accepted)+10))
		_, _ = io.WriteString(w, accepted)
	case redirect:
		http.Redirect(w, r, r.RequestURI, http.StatusTemporaryRedirect)
	case moved:
		http.Redirect(w, r, r.RequestURI, http.StatusFound)
	case page:
		_, _ = io.WriteString(w, "<html>"+accepted+"</html>")
	case endless:
		_, _ = io.WriteString(w, accepted+strings.Repeat("\n", maxBody))
	case empty:
		w.WriteHeader(http.StatusNoContent)
	case status:
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, accepted+"\n")
	case truncated:
		_, _ = io.WriteString(w, "OK")
	}
}

func (d *daemon) outlet(t testing.TB, change func(*Config)) *Outlet {
	c := Config{Name: "server 7", URL: d.URL, PDU: "pdu1", Port: 3, Class: powerctl.Mains, Timeout: time.Minute}
	if change != nil {
		change(&c)
	}
	o, err := New(c)
	require.NoError(t, err)
	return o
}

// blind are the faults that do not show in readings: there are none. It tells nothing by which
// another device could be known.
func blind() []powertest.Fault {
	return []powertest.Fault{
		powertest.None, powertest.StuckOn, powertest.StuckOff, powertest.Slow, powertest.LostReply, powertest.LostCommand,
		powertest.NoAnswer, powertest.Busy, powertest.Reset, powertest.TakenBack,
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, f := range []failure{invalid, reset, short, redirect, moved, page, endless, empty, truncated, status} {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			powertest.Run(t, func(t *testing.T) powertest.Harness {
				d := start(t)
				d.change(func(d *daemon) { d.failure = f })
				return powertest.Harness{
					Outlet: powertest.ShortSilence(d.outlet(t, nil), d.device), Device: d.device, Faults: blind(),
					Policy: powerctl.Policy{Deadline: time.Minute, Poll: time.Millisecond}, Patience: 20 * time.Millisecond,
				}
			})
		})
	}
}

// TestNothingIsOff: whatever is done, no state is ever claimed.
func TestNothingIsOff(t *testing.T) {
	d := start(t)
	o := d.outlet(t, nil)
	require.False(t, o.Capabilities().ReadBack)
	res, err := powerctl.SwitchOff(t.Context(), o, powerctl.Policy{Deadline: time.Second})
	require.ErrorIs(t, err, powerctl.ErrNoReadBack)
	require.False(t, res.IsOff())
	require.Equal(t, powerctl.Unknown, res.State)
	require.NotZero(t, res.Acknowledged)
	_, err = o.State(t.Context())
	require.ErrorIs(t, err, powerctl.ErrNoReadBack)
	pins, err := o.Pins(t.Context())
	require.NoError(t, err)
	require.Empty(t, pins)
}

func TestNotSent(t *testing.T) {
	d := start(t)
	o := d.outlet(t, func(c *Config) { c.URL = "http://127.0.0.1:1" })
	res, err := o.Off(t.Context())
	require.ErrorIs(t, err, powerctl.ErrNotSent)
	require.Zero(t, res.Commanded)
}

// TestDeadline: an answer that drips in late is no acknowledgement.
func TestDeadline(t *testing.T) {
	slow := bridgetest.Serve(t, func(c *bridgetest.Conn) {
		if _, ok := c.Line(); ok {
			c.Drip("HTTP/1.1 200 OK\r\nContent-Length: 22\r\n\r\n"+accepted+"\n", 10*time.Millisecond)
		}
	})
	d := start(t)
	res, err := d.outlet(t, func(c *Config) { c.URL, c.Timeout = "http://"+slow.Address, 50*time.Millisecond }).Off(t.Context())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, powerctl.ErrNotSent)
	require.NotZero(t, res.Commanded)
	require.Zero(t, res.Acknowledged)
}

func TestPlanIsWhatIsSent(t *testing.T) {
	d := start(t)
	o := d.outlet(t, nil)
	_, err := o.Off(t.Context())
	require.NoError(t, err)
	_, err = o.On(t.Context())
	require.NoError(t, err)
	require.Equal(t, append(o.Plan(false), o.Plan(true)...), d.seen())
}

func TestIdentify(t *testing.T) {
	d := start(t)
	one, err := d.outlet(t, nil).Identify(t.Context())
	require.NoError(t, err)
	for _, change := range []func(*Config){
		func(c *Config) { c.Port = 4 }, func(c *Config) { c.PDU = "pdu2" }, func(c *Config) { c.URL = "http://elsewhere:16421" },
	} {
		other, err := d.outlet(t, change).Identify(t.Context())
		require.NoError(t, err)
		require.NotEqual(t, one.Device, other.Device)
	}
	require.Empty(t, d.seen())
}

func TestNewReportsEverything(t *testing.T) {
	_, err := New(Config{URL: "http://u:hunter2@pdud/", Port: -1})
	for _, text := range []string{"name is missing", "URL is not", "not one plain hostname", "port is negative", "class is none of", "timeout is missing"} {
		require.ErrorContains(t, err, text)
	}
	require.NotContains(t, err.Error(), "hunter2")
	good := Config{Name: "a", URL: "http://pdud:16421/", PDU: "192.168.10.2", Port: 1, Class: powerctl.Mains, Timeout: time.Second}
	o, err := New(good)
	require.NoError(t, err)
	require.Equal(t, []string{"GET http://pdud:16421/power/control/off?delay=0&hostname=192.168.10.2&port=1"}, o.Plan(false))
	for _, pdu := range []string{"", "pdu1&port=4", "pdu1 pdu2", "a/b", "pdu1\r\n"} {
		bad := good
		bad.PDU = pdu
		_, err := New(bad)
		require.Error(t, err, pdu)
	}
	for _, u := range []string{"pdud:16421", "ftp://pdud", "http://pdud/power/control/reboot", "http://pdud?x=y", "http://pdud#x", ""} {
		bad := good
		bad.URL = u
		_, err := New(bad)
		require.Error(t, err, u)
	}
}
