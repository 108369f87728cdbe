package mysql

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Commands of the protocol.
const (
	comQuery       = 0x03
	comStmtExecute = 0x17
)

// fault is what the proxy does with a command.
type fault uint8

const (
	pass         fault = iota
	finBefore          // does not forward it, closes
	rstBefore          // does not forward it, resets
	silentBefore       // does not forward it, says nothing
	silentAfter        // forwards it, swallows the reply
	finAfter           // forwards it, closes once the reply is there
	rstAfter           // forwards it, resets once the reply is there
	halfReply          // forwards it, delivers 3 bytes of the reply, then silence
	halfReplyFIN       // as above, then closes
	halfCommand        // forwards half of it, then silence
)

// proxy stands between client and server and breaks chosen commands. It
// counts what the client sends.
type proxy struct {
	t      *testing.T
	l      net.Listener
	target string
	wg     sync.WaitGroup

	mu     sync.Mutex
	match  func(cmd []byte) bool
	fault  fault
	counts map[byte]int
	texts  []string
	conns  []net.Conn
	client *net.TCPConn // of the newest connection
}

func newProxy(t *testing.T, target string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{t: t, l: l, target: target, counts: map[byte]int{}}
	p.wg.Add(1)
	go p.accept()
	t.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		for _, c := range p.conns {
			_ = c.Close()
		}
		p.mu.Unlock()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) port() uint16 { return uint16(p.l.Addr().(*net.TCPAddr).Port) }

// on arms a fault for the next command that matches.
func (p *proxy) on(f fault, match func(cmd []byte) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault, p.match = f, match
}

func isExecute(cmd []byte) bool { return cmd[0] == comStmtExecute }
func isText(text string) func([]byte) bool {
	return func(cmd []byte) bool { return cmd[0] == comQuery && string(cmd[1:]) == text }
}

func (p *proxy) count(cmd byte) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts[cmd]
}

func (p *proxy) countText(text string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.texts {
		if s == text {
			n++
		}
	}
	return n
}

// reset resets the newest client's connection while nothing is under way.
func (p *proxy) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.client.SetLinger(0)
	_ = p.client.Close()
}

func (p *proxy) accept() {
	defer p.wg.Done()
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		s, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = c.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, c, s)
		p.client = c.(*net.TCPConn)
		p.mu.Unlock()
		r := &relay{p: p, client: c.(*net.TCPConn), server: s}
		p.wg.Add(2)
		go r.up()
		go r.down()
	}
}

type relay struct {
	p          *proxy
	client     *net.TCPConn
	server     net.Conn
	mu         sync.Mutex
	replyFault fault
}

// up relays whole packets to the server.
func (r *relay) up() {
	defer r.p.wg.Done()
	defer r.server.Close()
	for {
		var head [4]byte
		if _, err := io.ReadFull(r.client, head[:]); err != nil {
			return
		}
		body := make([]byte, int(head[0])|int(head[1])<<8|int(head[2])<<16)
		if _, err := io.ReadFull(r.client, body); err != nil {
			return
		}
		packet := append(head[:], body...)
		f := pass
		if head[3] == 0 && len(body) > 0 { // a command
			f = r.p.see(body)
		}
		switch f {
		case finBefore:
			_ = r.client.Close()
			return
		case rstBefore:
			_ = r.client.SetLinger(0)
			_ = r.client.Close()
			return
		case silentBefore:
			continue
		case halfCommand:
			packet = packet[:len(packet)/2]
		default:
			r.mu.Lock()
			r.replyFault = f
			r.mu.Unlock()
		}
		if _, err := r.server.Write(packet); err != nil {
			return
		}
	}
}

func (p *proxy) see(cmd []byte) fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[cmd[0]]++
	if cmd[0] == comQuery {
		p.texts = append(p.texts, string(bytes.Clone(cmd[1:])))
	}
	if p.match != nil && p.match(cmd) {
		p.match = nil
		return p.fault
	}
	return pass
}

// down relays the server's bytes to the client.
func (r *relay) down() {
	defer r.p.wg.Done()
	b := make([]byte, 64<<10)
	for {
		n, err := r.server.Read(b)
		if err != nil {
			_ = r.client.Close()
			return
		}
		r.mu.Lock()
		f := r.replyFault
		r.mu.Unlock()
		switch f {
		case silentAfter:
			continue
		case finAfter:
			_ = r.client.Close()
			return
		case rstAfter:
			_ = r.client.SetLinger(0)
			_ = r.client.Close()
			return
		case halfReply, halfReplyFIN:
			_, _ = r.client.Write(b[:3])
			r.mu.Lock()
			r.replyFault = silentAfter
			r.mu.Unlock()
			if f == halfReplyFIN {
				_ = r.client.Close()
				return
			}
			continue
		}
		if _, err := r.client.Write(b[:n]); err != nil {
			return
		}
	}
}

// eventually polls a condition that the server reaches in its own time. InnoDB renews
// INNODB_TRX only when nobody has read it for 100 ms: a faster poll would see its first
// answer for ever.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	require.Eventually(t, cond, 20*time.Second, 150*time.Millisecond, what)
}
