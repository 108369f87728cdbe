// Package bridgetest serves simulated daemons that speak in lines over loopback TCP, for the
// tests of the drivers in bridge.
//
// It guarantees that every conversation and its goroutine have ended when the test has.
package bridgetest

import (
	"bufio"
	"crypto/tls"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// Conn is a conversation as the daemon sees it.
type Conn struct {
	net.Conn
	R *bufio.Reader
	s *Server
}

// Line returns a request without its end; false once the client has gone.
func (c *Conn) Line() (string, bool) {
	line, err := c.R.ReadString('\n')
	return strings.TrimRight(line, "\r\n"), err == nil
}

// Say writes a text as it is.
func (c *Conn) Say(text string) { _, _ = c.Write([]byte(text)) }

// Drip writes a text byte by byte with a pause after each, until the client has gone.
func (c *Conn) Drip(text string, pause time.Duration) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for _, b := range []byte(text) {
		select {
		case <-c.s.done:
			return
		case <-tick.C:
		}
		if _, err := c.Write([]byte{b}); err != nil {
			return
		}
	}
}

// Hang says nothing until the client has gone.
func (c *Conn) Hang() {
	for {
		if _, ok := c.Line(); !ok {
			return
		}
	}
}

// Upgrade goes on in TLS.
func (c *Conn) Upgrade(cert tls.Certificate) {
	c.Conn = tls.Server(c.Conn, &tls.Config{Certificates: []tls.Certificate{cert}})
	c.R = bufio.NewReader(c.Conn)
}

// Reset ends the conversation as a crash does.
func (c *Conn) Reset() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// Server is a simulated daemon.
type Server struct {
	Address string
	done    chan struct{}
}

// Serve calls talk for each conversation, each in a goroutine of its own, until the test ends.
func Serve(t testing.TB, talk func(*Conn)) *Server {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Address: l.Addr().String(), done: make(chan struct{})}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				ended := make(chan struct{})
				all.Go(func() { // a test that ends closes what still talks
					select {
					case <-s.done:
					case <-ended:
					}
					_ = conn.Close()
				})
				defer close(ended)
				talk(&Conn{Conn: conn, R: bufio.NewReader(conn), s: s})
			})
		}
	})
	t.Cleanup(func() { close(s.done); _ = l.Close(); all.Wait() })
	return s
}
