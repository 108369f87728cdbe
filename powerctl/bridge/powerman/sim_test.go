package powerman

import (
	"strings"
	"sync"
	"testing"
	"time"

	"plugpull/powerctl"
	"plugpull/powerctl/bridge/bridgetest"
	"plugpull/powerctl/powertest"
)

// daemon is a simulated powermand with the powertest device behind node n7.
type daemon struct {
	*bridgetest.Server
	device *powertest.Device

	mu       sync.Mutex
	failure  failure           // how what fails fails
	instead  map[string]string // whole answers, prompt and all, by request
	requests []string
}

// failure is a way in which an answer fails.
type failure string

const (
	refused failure = "ended with errors"
	reset   failure = "connection reset"
	half    failure = "half an answer"
	promptl failure = "no prompt"
	endless failure = "without end"
)

func start(t testing.TB) *daemon {
	d := &daemon{device: powertest.NewDevice(), failure: refused, instead: map[string]string{}}
	d.Server = bridgetest.Serve(t, d.talk)
	return d
}

func (d *daemon) change(f func(*daemon)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d)
}

func (d *daemon) say(request, answer string) {
	d.change(func(d *daemon) { d.instead[request] = answer })
}

func (d *daemon) seen() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.requests...)
}

func (d *daemon) talk(c *bridgetest.Conn) {
	greeting := d.planned("")
	if greeting == "" {
		greeting = "001 2.3.27\r\n" + prompt
	}
	c.Say(greeting)
	for {
		request, ok := c.Line()
		if !ok {
			return
		}
		d.mu.Lock()
		d.requests = append(d.requests, request)
		d.mu.Unlock()
		if answer := d.planned(request); answer != "" {
			c.Say(answer)
			continue
		}
		d.answer(c, request)
	}
}

func (d *daemon) planned(request string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.instead[request]
}

func (d *daemon) answer(c *bridgetest.Conn, request string) {
	switch request {
	case "on n7":
		d.switched(c, request, d.device.Switch(powerctl.On))
	case "off n7":
		d.switched(c, request, d.device.Switch(powerctl.Off))
	case "status n7":
		d.status(c, request)
	case "device n7":
		name := "pdu1"
		if d.device.Other() {
			name = "pdu2"
		}
		c.Say(deviceRow(name) + done)
	case "quit":
		c.Say("101 Goodbye\r\n")
		_ = c.Close()
	default: // a command that the suite does not count is worth a failure
		d.device.Switch(powerctl.Fault)
		c.Say("201 Unknown command\r\n" + prompt)
	}
}

func deviceRow(name string) string {
	return "304 " + name + ": state=connected reconnects=000 actions=004 type=apc hosts=n[0-15]\r\n"
}

// send says an answer, and what goes astray.
func (d *daemon) send(c *bridgetest.Conn, request, answer string) {
	for _, b := range d.device.Outgoing([]byte(request+"\r\n"), []byte(answer)) {
		c.Say(string(b))
	}
}

func (d *daemon) switched(c *bridgetest.Conn, request string, a powertest.Answer) {
	switch {
	case a.Reset:
		c.Reset()
	case a.Busy:
		c.Say("208 Command in progress\r\n" + prompt)
	case a.Silent:
		c.Hang()
	case a.Failed:
		d.fail(c, "102 Command completed successfully\r\n", "308 n7: timeout\r\n210 Command completed with errors\r\n")
	default:
		d.send(c, request, "102 Command completed successfully\r\n"+prompt)
	}
}

func status(state powerctl.State, node string) string {
	on, off, unknown := "", "", ""
	switch state {
	case powerctl.On:
		on = node
	case powerctl.Off:
		off = node
	default: // powermand has no other word
		unknown = node
	}
	return "302 on:      " + on + "\r\n302 off:     " + off + "\r\n302 unknown: " + unknown + "\r\n"
}

const done = "103 Query complete\r\n" + prompt

// nonsense must never be taken for off: "off" by itself, of others, in pieces, in excess.
var nonsense = []string{
	"302 off:     n7\r\n" + done, status(powerctl.Off, "n8") + done, status(powerctl.Off, "n7,n8") + done, status(powerctl.Off, "n[7]") + done,
	status(powerctl.Off, "n77") + done, status(powerctl.Off, "") + done, "303 n7: off\r\n" + done, "off\r\n" + done, done,
	"302 on:      n7\r\n302 off:     n7\r\n302 unknown: \r\n" + done, status(powerctl.Off, "n7") + status(powerctl.On, "n7") + done,
	"302 off:     n7\r\n302 on:      \r\n302 unknown: \r\n" + done, status(powerctl.Off, "n7") + "308 n7: timeout\r\n" + done,
	status(powerctl.Off, "n7") + "102 Command completed successfully\r\n" + prompt, status(powerctl.Off, "n7") + "211 Query completed with errors\r\n" + prompt,
	strings.ToUpper(status(powerctl.Off, "n7")) + done, "302 on:\x00\r\n" + status(powerctl.Off, "n7") + done, "status n7\r\n" + status(powerctl.Off, "n7") + done,
	"309 x: y\r\n" + status(powerctl.Off, "n7") + done, status(powerctl.Off, "n7") + "103 Query complete\r\npowerman: ",
	strings.Repeat("302 off:     n7\r\n", 2000) + done, strings.Repeat("302", 5000) + "\r\n",
}

func (d *daemon) status(c *bridgetest.Conn, request string) {
	a := d.device.Read()
	// What precedes the command must be readable, or nothing would be sent.
	early := len(d.device.Commands()) == 0
	switch {
	case a.Garbage > 0 && !early:
		c.Say(nonsense[a.Garbage%len(nonsense)])
	case a.Failed && early, a.Garbage > 0:
		c.Say("308 n7: timeout\r\n" + status(powerctl.Unknown, "n7") + "211 Query completed with errors\r\n" + prompt)
	case a.Failed:
		d.fail(c, status(powerctl.Off, "n7")+"103 Query complete\r\n", status(powerctl.Off, "n7")+"211 Query completed with errors\r\n")
	default:
		d.send(c, request, status(a.State, "n7")+done)
	}
}

// fail spoils a good answer, or gives the bad one.
func (d *daemon) fail(c *bridgetest.Conn, good, bad string) {
	d.mu.Lock()
	how := d.failure
	d.mu.Unlock()
	switch how {
	case refused:
		c.Say(bad + prompt)
	case reset:
		c.Say(good[:len(good)/2])
		c.Reset()
	case half:
		c.Say(strings.TrimSuffix(good, "\r\n"))
		_ = c.Close()
	case promptl:
		c.Say(good)
		_ = c.Close()
	case endless:
		c.Say(strings.Repeat("305 telemetry\r\n", 1<<12) + good + prompt)
	}
}

func (d *daemon) outlet(t testing.TB, change func(*Config)) *Outlet {
	c := Config{Name: "server 7", Address: d.Address, Node: "n7", Class: powerctl.Mains, Timeout: time.Minute, Pin: Pin{Device: "pdu1"}}
	if change != nil {
		change(&c)
	}
	o, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return o
}
