package runner

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
	"golang.org/x/crypto/ssh/knownhosts"

	"plugpull/internal/testskip"
)

func newKey(t *testing.T) (ed25519.PrivateKey, ssh.Signer) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	signer, err := ssh.NewSignerFromKey(key)
	require.NoError(t, err)
	return key, signer
}

// peer is an SSH server in this process that runs what it is asked to, with the rights of this process.
type peer struct {
	addr     string
	hostKey  ssh.Signer
	mute     bool // accepts sessions and never answers
	t        *testing.T
	listener net.Listener
	wg       sync.WaitGroup
	mu       sync.Mutex
	conns    []net.Conn
}

func newPeer(t *testing.T, allowed ssh.PublicKey, mute bool) *peer {
	p := &peer{mute: mute, t: t}
	_, p.hostKey = newKey(t)
	config := &ssh.ServerConfig{PublicKeyCallback: func(c ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if c.User() == "dba" && string(key.Marshal()) == string(allowed.Marshal()) {
			return nil, nil
		}
		return nil, errors.New("no")
	}}
	config.AddHostKey(p.hostKey)
	var err error
	p.listener, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p.addr = p.listener.Addr().String()
	p.wg.Go(func() {
		for {
			conn, err := p.listener.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			p.conns = append(p.conns, conn)
			p.mu.Unlock()
			p.wg.Go(func() { p.serve(conn, config) })
		}
	})
	t.Cleanup(func() {
		p.listener.Close()
		p.mu.Lock()
		for _, c := range p.conns {
			c.Close()
		}
		p.mu.Unlock()
		p.wg.Wait()
	})
	return p
}

func (p *peer) serve(conn net.Conn, config *ssh.ServerConfig) {
	c, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return
	}
	defer c.Close()
	p.wg.Go(func() { ssh.DiscardRequests(requests) })
	for n := range channels {
		if p.mute {
			continue
		}
		ch, reqs, err := n.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.session(ch, reqs) })
	}
}

func (p *peer) session(ch ssh.Channel, reqs <-chan *ssh.Request) {
	var cmd *exec.Cmd
	var wg sync.WaitGroup
	for r := range reqs {
		switch {
		case r.Type == "exec" && cmd == nil:
			cmd = exec.Command("/bin/bash", "-c", string(r.Payload[4:]))
			cmd.Stdout, cmd.Stderr = ch, ch.Stderr()
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			stdin, err := cmd.StdinPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				ch.Close()
				return
			}
			_ = r.Reply(true, nil)
			wg.Go(func() { _, _ = io.Copy(stdin, ch); stdin.Close() })
			wg.Go(func() {
				_ = cmd.Wait()
				if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
					_, _ = ch.SendRequest("exit-signal", false, ssh.Marshal(struct {
						Name      string
						Core      bool
						Msg, Lang string
					}{"KILL", false, "", ""}))
				} else {
					_, _ = ch.SendRequest("exit-status", false, binary.BigEndian.AppendUint32(nil, uint32(ws.ExitStatus())))
				}
				ch.Close()
			})
		default:
			_ = r.Reply(false, nil)
		}
	}
	wg.Wait()
}

// home makes a home folder with a key and the peer's host key in known_hosts.
func home(t *testing.T, key any, passphrase string, knownLines ...string) string {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, ".ssh"), 0o700))
	if key != nil {
		block, err := ssh.MarshalPrivateKey(key, "")
		if passphrase != "" {
			block, err = ssh.MarshalPrivateKeyWithPassphrase(key, "", []byte(passphrase))
		}
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, ".ssh", "id_ed25519"), pem.EncodeToMemory(block), 0o600))
	}
	known := strings.Join(append(knownLines, ""), "\n")
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".ssh", "known_hosts"), []byte(known), 0o600))
	return dir
}

func (p *peer) line() string {
	return knownhosts.Line([]string{knownhosts.Normalize(p.addr)}, p.hostKey.PublicKey())
}

func dialed(t *testing.T, target string, o SSHOptions) *SSH {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	s, err := DialSSH(ctx, target, o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

func TestSSH(t *testing.T) {
	key, signer := newKey(t)
	p := newPeer(t, signer.PublicKey(), false)
	s := dialed(t, "ssh://dba@"+p.addr, SSHOptions{Home: home(t, key, "", p.line()), NoAgent: true})
	assert.Equal(t, "ssh://dba@"+p.addr, s.Describe())
	t.Run("asks", func(t *testing.T) { asks(t, s) })
	t.Run("ends", func(t *testing.T) { ends(t, s) })
	t.Run("after an end", func(t *testing.T) { asks(t, s) })
	t.Run("many at once", func(t *testing.T) {
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				out, err := s.Run(t.Context(), "echo", "x")
				assert.NoError(t, err)
				assert.Equal(t, "x\n", string(out.Stdout))
			})
		}
		wg.Wait()
	})
}

func TestSSHGivesUpOnAPeerThatIsSilent(t *testing.T) {
	key, signer := newKey(t)
	p := newPeer(t, signer.PublicKey(), true)
	s := dialed(t, "ssh://dba@"+p.addr, SSHOptions{Home: home(t, key, "", p.line()), NoAgent: true})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := s.Run(ctx, "true")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = s.Run(t.Context(), "true")
	require.Error(t, err, "the connection is gone, and says so at once")

	// A listener that never speaks.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = DialSSH(ctx, "ssh://dba@"+l.Addr().String(), SSHOptions{Home: home(t, key, ""), NoAgent: true})
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestSSHHostKeys(t *testing.T) {
	key, signer := newKey(t)
	p := newPeer(t, signer.PublicKey(), false)
	_, other := newKey(t)
	host := knownhosts.Normalize(p.addr)
	wrong := knownhosts.Line([]string{host}, other.PublicKey())
	for name, c := range map[string]struct {
		lines []string
		want  *HostKeyError
		says  string
	}{
		"unknown": {nil, &HostKeyError{}, "is not in"},
		"changed": {[]string{"# comment", wrong}, &HostKeyError{Line: 2}, "line 2 has another"},
		"revoked": {[]string{p.line(), "@revoked " + p.line()}, &HostKeyError{Line: 2, Revoked: true}, "is revoked"},
		"hashed":  {[]string{knownhosts.HashHostname(host) + " " + strings.SplitN(p.line(), " ", 2)[1]}, nil, ""},
		"second":  {[]string{wrong, p.line()}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := home(t, key, "", c.lines...)
			known := filepath.Join(dir, ".ssh", "known_hosts")
			s, err := DialSSH(t.Context(), "ssh://dba@"+p.addr, SSHOptions{Home: dir, NoAgent: true, KnownHosts: []string{known}})
			if c.want == nil {
				require.NoError(t, err)
				require.NoError(t, s.Close())
				return
			}
			c.want.Host, c.want.Fingerprint, c.want.Files = host, ssh.FingerprintSHA256(p.hostKey.PublicKey()), []string{known}
			if c.want.Line > 0 {
				c.want.File = known
			}
			var got *HostKeyError
			require.ErrorAs(t, err, &got)
			assert.Equal(t, c.want, got)
			assert.Contains(t, err.Error(), c.says)
		})
	}
}

// A host has several keys, and known_hosts may have one: the others are no forgery.
func TestSSHAsksForTheKindOfKeyThatIsKnown(t *testing.T) {
	_, signer := newKey(t)
	line := knownhosts.Line([]string{"[h]:2"}, signer.PublicKey())
	config, err := SSHOptions{Home: home(t, nil, "", line)}.hostKeys("h:2")
	require.NoError(t, err)
	assert.Equal(t, []string{ssh.KeyAlgoED25519, ssh.CertAlgoED25519v01}, config.HostKeyAlgorithms)
	config, err = SSHOptions{Home: home(t, nil, "", line)}.hostKeys("other:2")
	require.NoError(t, err)
	assert.Empty(t, config.HostKeyAlgorithms)
}

func TestSSHKeys(t *testing.T) {
	key, signer := newKey(t)
	stranger, _ := newKey(t)
	p := newPeer(t, signer.PublicKey(), false)
	keyring := agent.NewKeyring()
	require.NoError(t, keyring.Add(agent.AddedKey{PrivateKey: key}))
	socket := filepath.Join(t.TempDir(), "agent")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer l.Close()
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { _ = agent.ServeAgent(keyring, conn); conn.Close() })
		}
	})
	good, foreign, locked := home(t, key, "", p.line()), home(t, stranger, "", p.line()), home(t, key, "secret", p.line())
	file := func(home string) string { return filepath.Join(home, ".ssh", "id_ed25519") }
	for name, c := range map[string]struct {
		target string
		o      SSHOptions
		is     error  // errors.Is
		fails  string // in the text
	}{
		"a file":                  {"dba", SSHOptions{Home: good, NoAgent: true}, nil, ""},
		"a file by name":          {"dba", SSHOptions{Home: foreign, KeyFile: file(good), NoAgent: true}, nil, ""},
		"an agent":                {"dba", SSHOptions{Home: home(t, nil, "", p.line()), Agent: socket}, nil, ""},
		"agent beside a stranger": {"dba", SSHOptions{Home: foreign, Agent: socket}, nil, ""},
		"locked, with an agent":   {"dba", SSHOptions{Home: locked, KeyFile: file(locked), Agent: socket}, nil, ""},
		"locked":                  {"dba", SSHOptions{Home: locked, NoAgent: true}, ErrNoKey, "has a passphrase"},
		"none":                    {"dba", SSHOptions{Home: home(t, nil, "", p.line()), NoAgent: true}, ErrNoKey, ""},
		"file that is missing":    {"dba", SSHOptions{Home: good, KeyFile: "/nowhere", NoAgent: true}, os.ErrNotExist, ""},
		"agent that is missing":   {"dba", SSHOptions{Home: good, Agent: "/nowhere"}, os.ErrNotExist, ""},
		"a stranger":              {"dba", SSHOptions{Home: foreign, NoAgent: true}, nil, "unable to authenticate"},
		"another user":            {"root", SSHOptions{Home: good, NoAgent: true}, nil, "unable to authenticate"},
		"a password":              {"dba:secret", SSHOptions{Home: good}, ErrPassword, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := DialSSH(t.Context(), "ssh://"+c.target+"@"+p.addr, c.o)
			if c.is == nil && c.fails == "" {
				require.NoError(t, err)
				require.NoError(t, s.Close())
				return
			}
			require.Error(t, err)
			assert.NotContains(t, err.Error(), "secret")
			assert.Contains(t, err.Error(), c.fails)
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
		})
	}
}

func TestSSHTargets(t *testing.T) {
	for _, bad := range []string{"", "host", "dba@host", "http://dba@host", "ssh://", "ssh://dba@host/path", "ssh://dba@host?x", "ssh://dba:secret%zz@h"} {
		_, _, err := parseTarget(bad)
		require.Error(t, err, bad)
		assert.NotContains(t, err.Error(), "secret")
	}
	name, addr, err := parseTarget("ssh://dba@[::1]/")
	require.NoError(t, err)
	assert.Equal(t, "dba [::1]:22", name+" "+addr)
	name, addr, err = parseTarget("ssh://host:2222")
	require.NoError(t, err)
	assert.NotEmpty(t, name)
	assert.Equal(t, "host:2222", addr)
}

// TestSSHAgainstOpenSSH runs the same questions against the server that hosts have.
func TestSSHAgainstOpenSSH(t *testing.T) {
	sshd := testskip.Program(t, "sshd", "openssh-server")
	me := strings.TrimSpace(string(must(exec.Command("id", "-un").Output())))
	dir := t.TempDir()
	key, signer := newKey(t)
	hostKey, hostSigner := newKey(t)
	block, err := ssh.MarshalPrivateKey(hostKey, "")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "host"), pem.EncodeToMemory(block), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "allowed"), ssh.MarshalAuthorizedKey(signer.PublicKey()), 0o600))
	if os.Geteuid() == 0 && os.Mkdir("/run/sshd", 0o755) == nil { // where it locks itself up
		t.Cleanup(func() { os.Remove("/run/sshd") })
	}
	port := freePort(t)
	daemon := exec.Command(sshd, "-D", "-e", "-f", "/dev/null", "-h", filepath.Join(dir, "host"), "-p", port,
		"-o", "ListenAddress=127.0.0.1", "-o", "AuthorizedKeysFile="+filepath.Join(dir, "allowed"), "-o", "PidFile=none",
		"-o", "StrictModes=no", "-o", "PasswordAuthentication=no", "-o", "PermitRootLogin=prohibit-password",
		"-o", "SetEnv=SHLVL=5") // with it bash does not read what the user has it do at the beginning
	pipe, err := daemon.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, daemon.Start())
	said, listening := &strings.Builder{}, make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		heard := false
		for lines := bufio.NewScanner(pipe); lines.Scan(); {
			said.WriteString(lines.Text() + "\n")
			if !heard && strings.Contains(lines.Text(), "Server listening on") {
				heard = true
				close(listening)
			}
		}
		if !heard {
			close(listening)
		}
	})
	t.Cleanup(func() { // after the connection, whose process has the pipe too
		_ = daemon.Process.Kill()
		wg.Wait()
		_ = daemon.Wait()
		if t.Failed() {
			t.Log(said)
		}
	})
	<-listening
	addr := "127.0.0.1:" + port
	line := knownhosts.Line([]string{knownhosts.Normalize(addr)}, hostSigner.PublicKey())
	s := dialed(t, "ssh://"+me+"@"+addr, SSHOptions{Home: home(t, key, "", line), NoAgent: true})
	t.Run("asks", func(t *testing.T) { asks(t, s) })
	t.Run("ends", func(t *testing.T) { ends(t, s) })
	t.Run("after an end", func(t *testing.T) {
		_, err := s.Run(t.Context(), "true")
		require.NoError(t, err)
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func freePort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port
}
