package quarch

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"plugpull/internal/serialport/ptytest"

	"github.com/stretchr/testify/require"
)

// bytesOf is the answer as the wire has it, unless the test replaces it.
func (m *module) bytesOf(command, whole string, encoded []byte) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.rawly != nil {
		if b, replaced := m.rawly(command, whole); replaced {
			return b
		}
	}
	return encoded
}

// send writes the answer as it is on the wire, with what the device puts ahead of it.
func (m *module) send(w io.Writer, r reply, request, answer []byte) {
	if !r.switches {
		m.write(w, answer)
		return
	}
	for _, b := range m.device.Outgoing(request, answer) {
		m.write(w, b)
	}
}

// write is in packets of one byte where the test asks for it.
func (m *module) write(w io.Writer, b []byte) {
	m.mu.Lock()
	pieces := m.pieces
	m.mu.Unlock()
	if !pieces {
		_, _ = w.Write(b)
		return
	}
	tick := time.NewTicker(300 * time.Microsecond)
	defer tick.Stop()
	for i := range b {
		<-tick.C
		_, _ = w.Write(b[i : i+1])
	}
}

// frames is the answer on TCP.
func frames(text string, chunk int) []byte {
	whole := []byte(text + prompt)
	if chunk == 0 {
		chunk = len(whole)
	}
	var b []byte
	for len(whole) > 0 {
		n := min(chunk, len(whole))
		b = append(binary.LittleEndian.AppendUint16(b, uint16(n)), whole[:n]...)
		whole = whole[n:]
	}
	return b
}

// serveTCP returns the address. Connections end with the test.
func (m *module) serveTCP(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var all sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			all.Go(func() { m.converse(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return l.Addr().String()
}

func (m *module) converse(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		var head [2]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return
		}
		body := make([]byte, binary.LittleEndian.Uint16(head[:]))
		if _, err := io.ReadFull(in, body); err != nil {
			return
		}
		command, ok := strings.CutSuffix(string(body), "\r\n")
		if !ok {
			return
		}
		r := m.handle(command)
		m.mu.Lock()
		b := frames(r.text, m.chunk)
		m.mu.Unlock()
		switch {
		case r.silent:
			continue
		case r.failing == hangsUp:
			_ = c.(*net.TCPConn).SetLinger(0)
			return
		case r.failing == halved:
			_, _ = c.Write(b[:len(b)-1])
			return
		case r.failing == twice:
			b = append(b, b...)
		}
		m.send(c, r, encodeFrame(command), m.bytesOf(command, r.text, b))
	}
}

// serveREST returns the URL.
func (m *module) serveREST(t testing.TB) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, err := url.PathUnescape(strings.TrimPrefix(r.RequestURI, "/"))
		if err != nil || strings.Contains(r.RequestURI, "+") {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		answer := m.handle(path)
		body := m.bytesOf(path, answer.text, []byte(answer.text+prompt))
		switch {
		case answer.silent:
			<-r.Context().Done()
			return
		case answer.failing == hangsUp:
			panic(http.ErrAbortHandler)
		case answer.failing == redirect:
			http.Redirect(w, r, "/"+strings.ReplaceAll(path, " ", "%20"), http.StatusTemporaryRedirect)
			return
		case answer.failing == page:
			w.WriteHeader(http.StatusNotFound)
		case answer.failing == twice:
			body = append(body, body...)
		case answer.failing == short:
			w.Header().Set("Content-Length", fmt.Sprint(len(body)+10))
		}
		m.write(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// serveTTY returns the path of a pseudo terminal.
func (m *module) serveTTY(t testing.TB) string {
	ptm, pts, name := ptytest.Open(t)
	link := filepath.Join(t.TempDir(), "port")
	require.NoError(t, os.Symlink(name, link))
	var loop sync.WaitGroup
	loop.Go(func() { m.answerTTY(ptm) })
	t.Cleanup(func() {
		ptm.Close()
		loop.Wait()
		pts.Close()
	})
	return link
}

// answerTTY reads lines from the terminal and echoes them.
func (m *module) answerTTY(ptm *os.File) {
	var pending []byte
	buf := make([]byte, 256)
	for {
		n, err := ptm.Read(buf)
		if err != nil {
			return
		}
		pending = append(pending, buf[:n]...)
		for {
			line, rest, ok := bytes.Cut(pending, []byte("\r\n"))
			if !ok {
				break
			}
			pending = rest
			command := string(line)
			r := m.handle(command)
			answer := "\r\n" + r.text + prompt
			switch {
			case r.silent:
				continue
			case r.failing == noEcho:
				command = ""
			case r.failing == badEcho:
				command = "source:1:delay 0"
			case r.failing == twice:
				answer += r.text + prompt
			}
			m.send(ptm, r, append(line, "\r\n"...), m.bytesOf(string(line), r.text, []byte(command+answer)))
		}
	}
}
