// Package wiring proves which host hangs on an outlet, and measures how soon it goes dark.
//
// It guarantees that wiring is called verified only when a witness that answered before was
// silent while the outlet was off, and answered again after it was on; and that the times of a
// calibration are bounds: the host was dark no later than the witness's first unanswered question.
package wiring

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// Witness tells from outside whether a host has power.
type Witness struct {
	text  string
	probe func(ctx context.Context) error // nil: it answered
	// Every is the pause between two questions; Patience is how long one waits.
	Every, Patience time.Duration
}

func (w *Witness) String() string { return w.text }

// Want says what ParseWitness takes.
const Want = "ping:HOST, tcp:HOST:PORT, or command:PROGRAM (exit status 0: it is there)"

// ParseWitness reads "ping:HOST", "tcp:HOST:PORT" or "command:PROGRAM ARGUMENT …" (split at spaces, no
// shell). A TCP port that refuses is an answer: only silence is none. Ping needs root or a
// group in net.ipv4.ping_group_range.
func ParseWitness(text string) (*Witness, error) {
	kind, rest, _ := strings.Cut(text, ":")
	rest = strings.TrimSpace(rest)
	w := &Witness{text: text, Every: 20 * time.Millisecond, Patience: 500 * time.Millisecond}
	switch {
	case rest == "":
		return nil, fmt.Errorf("witness %q: want %s", text, Want)
	case kind == "ping":
		w.probe = func(ctx context.Context) error { return ping(ctx, rest) }
	case kind == "tcp":
		if _, port, err := net.SplitHostPort(rest); err != nil || port == "" {
			return nil, fmt.Errorf("witness %q: want %s", text, Want)
		}
		w.probe = func(ctx context.Context) error { return connect(ctx, rest) }
	case kind == "command":
		words := strings.Fields(rest)
		w.text = "command:" + words[0] // its arguments are its own
		w.Every, w.Patience = 200*time.Millisecond, 5*time.Second
		w.probe = func(ctx context.Context) error { return run(ctx, words) }
	default:
		return nil, fmt.Errorf("witness %q: want %s", text, Want)
	}
	return w, nil
}

// Ask asks once. Nil means that the host answered; it blocks for Patience at most.
func (w *Witness) Ask(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, w.Patience)
	defer cancel()
	return w.probe(limited)
}

// ErrCannotAsk: the witness itself does not work, which says nothing about the host.
var ErrCannotAsk = errors.New("the witness cannot be asked")

func connect(ctx context.Context, addr string) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err == nil {
		return c.Close()
	}
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) {
		return nil // somebody with power said so
	}
	return own(err)
}

// own marks errors of this machine, which say nothing of the other: no name, no network, no resources.
func own(err error) error {
	var dns *net.DNSError
	mine := errors.As(err, &dns)
	for _, e := range []error{syscall.ENETUNREACH, syscall.ENETDOWN, syscall.EADDRNOTAVAIL, syscall.EMFILE, syscall.ENFILE, syscall.EPERM,
		syscall.EACCES, syscall.ENOBUFS, syscall.ENOMEM, syscall.ENODEV, syscall.EINVAL, syscall.EAFNOSUPPORT} {
		mine = mine || errors.Is(err, e)
	}
	if mine {
		return fmt.Errorf("%w: %w", ErrCannotAsk, err)
	}
	return err
}

func run(ctx context.Context, words []string) error {
	c := exec.CommandContext(ctx, words[0], words[1:]...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = time.Second
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && ctx.Err() == nil {
		return fmt.Errorf("%w: %w", ErrCannotAsk, err)
	}
	return err
}

// ping sends one echo request (RFC 792, RFC 4443) and waits for its answer.
func ping(ctx context.Context, host string) error {
	ip, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	if err != nil || len(ip) == 0 {
		return fmt.Errorf("%w: %w", ErrCannotAsk, err)
	}
	v := version4
	if ip[0].IP.To4() == nil {
		v = version6
	}
	c, to, err := v.listen(ip[0])
	if err != nil {
		return fmt.Errorf("%w: open a socket for ping (root, or a group in net.ipv4.ping_group_range): %w", ErrCannotAsk, err)
	}
	defer c.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = c.SetDeadline(deadline)
	}
	id, seq := os.Getpid()&0xffff, int(time.Now().UnixNano()>>10)&0xffff
	b, err := (&icmp.Message{Type: v.request, Body: &icmp.Echo{ID: id, Seq: seq, Data: []byte("plugpull")}}).Marshal(nil)
	if err != nil {
		return err
	}
	if _, err := c.WriteTo(b, to); err != nil {
		return own(err) // no neighbour: nobody answers
	}
	return v.await(c, ip[0].IP, seq)
}

type version struct {
	raw, datagram, any string
	request, reply     icmp.Type
	protocol           int
}

var (
	version4 = version{"ip4:icmp", "udp4", "0.0.0.0", ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply, 1}
	version6 = version{"ip6:ipv6-icmp", "udp6", "::", ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply, 58}
)

// listen opens the socket that needs no root where the kernel allows it, else a raw one.
func (v version) listen(ip net.IPAddr) (*icmp.PacketConn, net.Addr, error) {
	if c, err := icmp.ListenPacket(v.datagram, v.any); err == nil {
		return c, &net.UDPAddr{IP: ip.IP, Zone: ip.Zone}, nil
	}
	c, err := icmp.ListenPacket(v.raw, v.any)
	return c, &ip, err
}

func (v version) await(c *icmp.PacketConn, from net.IP, seq int) error {
	b := make([]byte, 1500)
	for {
		n, addr, err := c.ReadFrom(b)
		if err != nil {
			return err
		}
		m, err := icmp.ParseMessage(v.protocol, b[:n])
		if err != nil || m.Type != v.reply {
			continue
		}
		// The kernel puts an id of its own into a datagram socket's request.
		if echo, ok := m.Body.(*icmp.Echo); ok && echo.Seq == seq && sender(addr).Equal(from) {
			return nil
		}
	}
}

func sender(a net.Addr) net.IP {
	switch a := a.(type) {
	case *net.UDPAddr:
		return a.IP
	case *net.IPAddr:
		return a.IP
	}
	return nil
}
