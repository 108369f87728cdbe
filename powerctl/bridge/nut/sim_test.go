package nut

import (
	"crypto/tls"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"plugpull/powerctl"
	"plugpull/powerctl/bridge/bridgetest"
	"plugpull/powerctl/powertest"
)

const (
	simUser     = "plug"
	simPassword = `s3cret "of\ #the test`
)

// server is a simulated upsd with the powertest device behind outlet 3 of pdu1.
type server struct {
	*bridgetest.Server
	device *powertest.Device
	cert   *tls.Certificate // with one, it speaks TLS after STARTTLS

	mu       sync.Mutex
	failure  failure           // how what fails fails
	instead  map[string]string // whole answers by request
	vars     map[string]string
	commands []string
	requests []string
}

// failure is a way in which an answer fails.
type failure string

const (
	stale   failure = "ERR DATA-STALE"
	refused failure = "ERR ACCESS-DENIED"
	reset   failure = "connection reset"
	half    failure = "half an answer"
	endless failure = "without end"
)

func start(t testing.TB) *server {
	s := &server{
		device: powertest.NewDevice(), failure: stale, instead: map[string]string{},
		vars: map[string]string{
			"device.serial": "SN 4711", "device.mfr": "Maker", "device.model": "PDU \"24\"", "ups.status": "OL",
			"outlet.3.desc": "server 7", "outlet.3.switchable": "yes", "outlet.2.status": "off", "driver.parameter.pollinterval": "0",
		},
		commands: []string{"outlet.2.load.off", "outlet.3.load.off", "outlet.3.load.on", "outlet.3.load.cycle", "load.off"},
	}
	s.Server = bridgetest.Serve(t, s.talk)
	return s
}

func (s *server) change(f func(*server)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

func (s *server) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

func (s *server) talk(c *bridgetest.Conn) {
	user, password := "", ""
	for {
		request, ok := c.Line()
		if !ok {
			return
		}
		s.mu.Lock()
		s.requests = append(s.requests, request)
		answer, planned := s.instead[request]
		cert := s.cert
		s.mu.Unlock()
		word, rest, _ := strings.Cut(request, " ")
		switch {
		case planned:
			c.Say(answer)
		case word == "STARTTLS" && cert != nil:
			c.Say("OK STARTTLS\n")
			c.Upgrade(*cert)
		case word == "STARTTLS":
			c.Say("ERR FEATURE-NOT-CONFIGURED\n")
		case word == "USERNAME":
			user = rest
			c.Say("OK\n")
		case word == "PASSWORD":
			password = rest
			c.Say("OK\n")
		case word == "GET":
			s.get(c, request)
		case word == "LIST":
			c.Say(s.list(request))
		case word == "LOGOUT":
			c.Say("OK Goodbye\n")
			_ = c.Close()
		case word == "INSTCMD" && (user != quote(simUser) || password != quote(simPassword)):
			c.Say("ERR ACCESS-DENIED\n")
		default:
			s.switched(c, request)
		}
	}
}

func (s *server) list(request string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var rows []string
	switch request {
	case "LIST CMD pdu1":
		for _, c := range s.commands {
			rows = append(rows, "CMD pdu1 "+c+"\n")
		}
	case "LIST VAR pdu1":
		for _, name := range slices.Sorted(maps.Keys(s.vars)) {
			rows = append(rows, "VAR pdu1 "+name+" "+quote(s.vars[name])+"\n")
		}
	default:
		return "ERR INVALID-ARGUMENT\n"
	}
	return "BEGIN " + request + "\n" + strings.Join(rows, "") + "END " + request + "\n"
}

// nonsense must never be taken for off.
var nonsense = []string{
	`VAR pdu1 outlet.3.status "OFF"`, `VAR pdu1 outlet.3.status ""`, `VAR pdu1 outlet.3.status "off "`, `VAR pdu1 outlet.3.status "0"`,
	`VAR pdu1 outlet.2.status "off"`, `VAR pdu2 outlet.3.status "off"`, `VAR pdu1 outlet.3.switchable "off"`, `VAR pdu1 outlet.3.status off off`,
	`VAR pdu1 outlet.3.status "off`, `VAR pdu1 outlet.3.status "o"ff`, `VAR pdu1 outlet.3.status  "off"`, `var pdu1 outlet.3.status "off"`,
	`TYPE pdu1 outlet.3.status "off"`, `OK`, ``, `off`, `"off"`, `OK off`, `ERR DATA-STALE`, `ERR VAR-NOT-SUPPORTED`, `ERR off`, `ERR`,
	`GET VAR pdu1 outlet.3.status`, `VAR pdu1 outlet.3.status "off\"`, "VAR pdu1 outlet.3.status \"off\x00\"", `VAR pdu1 outlet.3.status "unknown"`,
	`VAR pdu1 outlet.3.status "not off"`, `VAR pdu1 outlet.3.status "o\ff"`, strings.Repeat(`VAR pdu1 outlet.3.status "off" `, 1000),
}

func (s *server) get(c *bridgetest.Conn, request string) {
	name, ok := strings.CutPrefix(request, "GET VAR pdu1 ")
	if name == "outlet.3.status" {
		s.status(c, request)
		return
	}
	s.mu.Lock()
	v, there := s.vars[name]
	s.mu.Unlock()
	if name == "device.serial" && s.device.Other() {
		v = "SN 4712"
	}
	switch {
	case !ok:
		c.Say("ERR UNKNOWN-UPS\n")
	case !there:
		c.Say("ERR VAR-NOT-SUPPORTED\n")
	default:
		c.Say("VAR pdu1 " + name + " " + quote(v) + "\n")
	}
}

func (s *server) status(c *bridgetest.Conn, request string) {
	a := s.device.Read()
	word := map[powerctl.State]string{powerctl.On: "on", powerctl.Off: "off", powerctl.Pending: "pendingOff", powerctl.Fault: "error", powerctl.Unknown: "unknown"}[a.State]
	switch {
	case a.Garbage > 0:
		c.Say(nonsense[a.Garbage%len(nonsense)] + "\n")
	case a.Failed:
		s.fail(c, `VAR pdu1 outlet.3.status "off"`+"\n")
	default:
		s.send(c, request, fmt.Sprintf("VAR pdu1 outlet.3.status %q\n", word))
	}
}

// send says an answer, and what goes astray.
func (s *server) send(c *bridgetest.Conn, request, answer string) {
	for _, b := range s.device.Outgoing([]byte(request+"\n"), []byte(answer)) {
		c.Say(string(b))
	}
}

func (s *server) switched(c *bridgetest.Conn, request string) {
	want := powerctl.Fault // a command that the suite does not count is worth a failure
	switch request {
	case "INSTCMD pdu1 outlet.3.load.off":
		want = powerctl.Off
	case "INSTCMD pdu1 outlet.3.load.on":
		want = powerctl.On
	}
	switch a := s.device.Switch(want); {
	case a.Silent:
		c.Hang()
	case a.Reset:
		c.Reset()
	case a.Failed:
		s.fail(c, "OK\n")
	default:
		s.send(c, request, "OK\n")
	}
}

// fail spoils a good answer, or gives an error.
func (s *server) fail(c *bridgetest.Conn, good string) {
	s.mu.Lock()
	how := s.failure
	s.mu.Unlock()
	switch how {
	case stale, refused:
		c.Say(string(how) + "\n")
	case reset:
		c.Say(good[:len(good)/2])
		c.Reset()
	case half:
		c.Say(strings.TrimSuffix(good, "\n"))
		_ = c.Close()
	case endless:
		c.Say(strings.Repeat(" ", 1<<16) + good)
	}
}

func (s *server) outlet(t testing.TB, change func(*Config)) *Outlet {
	c := Config{
		Name: "server 7", Address: s.Address, UPS: "pdu1", Outlet: 3, User: simUser, Password: powerctl.NewSecret(simPassword),
		Class: powerctl.Mains, Timeout: time.Minute, Pin: Pin{Serial: "SN 4711", OutletName: "server 7"},
	}
	if change != nil {
		change(&c)
	}
	o, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return o
}
