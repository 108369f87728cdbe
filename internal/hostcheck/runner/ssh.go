package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"

	"plugpull/internal/hostcheck"
)

// SSHOptions say how to log in. The zero value means the files and the agent of the user who runs this.
type SSHOptions struct {
	KeyFile    string   // of a private key; instead of ~/.ssh/id_ed25519, id_ecdsa and id_rsa
	KnownHosts []string // instead of ~/.ssh/known_hosts and /etc/ssh/ssh_known_hosts
	Agent      string   // socket of an agent; instead of SSH_AUTH_SOCK
	NoAgent    bool
	Home       string // in which .ssh is; instead of the user's
}

// SSH asks a host over one connection, with a session for each question, at most four at a time (sshd
// allows ten). The host needs a POSIX shell, cat, ls and readlink. It is safe for concurrent use.
type SSH struct {
	target string
	client *ssh.Client
	slots  chan struct{}
}

// ErrPassword: the target has a password in it, which others could read in the list of processes.
var ErrPassword = errors.New("a password on the command line: use a key or an agent instead")

// DialSSH connects to ssh://[user@]host[:port]. Keys come from the agent and from files; there are no
// passwords, and configuration files of OpenSSH are not read. The host's key must be in a file of known
// hosts: the error is a *HostKeyError when it is not. The user is the one who runs this and the port 22
// where not given. It blocks until logged in or ctx ends.
func DialSSH(ctx context.Context, target string, o SSHOptions) (*SSH, error) {
	name, addr, err := parseTarget(target)
	if err != nil {
		return nil, fmt.Errorf("ssh target: %w", err)
	}
	if o.Home == "" {
		o.Home, _ = os.UserHomeDir() // without one there are only the files that are named
	}
	auth, done, err := o.keys(ctx)
	if err != nil {
		return nil, fmt.Errorf("ssh to %s: %w", addr, err)
	}
	defer done()
	config, err := o.hostKeys(addr)
	if err != nil {
		return nil, fmt.Errorf("ssh to %s: %w", addr, err)
	}
	config.User, config.Auth = name, auth
	client, err := dial(ctx, addr, config)
	if err != nil {
		return nil, fmt.Errorf("ssh to %s@%s: %w", name, addr, err)
	}
	return &SSH{"ssh://" + name + "@" + addr, client, make(chan struct{}, 4)}, nil
}

func parseTarget(target string) (name, addr string, err error) {
	u, err := url.Parse(target)
	if err != nil {
		// The text of the error would have the target in it, with what may be a password.
		return "", "", errors.New("want ssh://user@host:port")
	}
	if _, has := u.User.Password(); has {
		return "", "", ErrPassword
	}
	if u.Scheme != "ssh" || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return "", "", errors.New("want ssh://user@host:port")
	}
	if name = u.User.Username(); name == "" {
		me, err := user.Current()
		if err != nil {
			return "", "", fmt.Errorf("no user given: %w", err)
		}
		name = me.Username
	}
	port := u.Port()
	if port == "" {
		port = "22"
	}
	return name, net.JoinHostPort(u.Hostname(), port), nil
}

// dial connects and logs in. The library knows no contexts, so the end of ctx closes the connection.
func dial(ctx context.Context, addr string, config *ssh.ClientConfig) (*ssh.Client, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	c, channels, requests, err := ssh.NewClientConn(conn, addr, config)
	if !stop() && err == nil {
		c.Close()
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return ssh.NewClient(c, channels, requests), nil
}

// Close ends the connection and what still runs on it.
func (s *SSH) Close() error {
	err := s.client.Close()
	_ = s.client.Wait() // the goroutines that read the connection end
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Describe implements hostcheck.Runner.
func (s *SSH) Describe() string { return s.target }

// notInstalled is what the shell says of a program that it does not find.
const notInstalled = "plugpull: no such program"

// runScript runs a program (%[2]s with its arguments, %[1]s without) without input. The shell's own input
// is a rope: servers keep it open until the session or the connection ends, also where they pass no signals
// on, as OpenSSH for root; then the program is killed with its group, if the server made one.
const runScript = `command -v %[1]s >/dev/null 2>&1 || { echo '` + notInstalled + `' >&2; exit 127; }
exec 3<&0
%[2]s </dev/null 3<&- & p=$!
read -r _ _ _ _ g _ </proc/$$/stat
if [ "$g" = $$ ]; then g=0; else g=$p; fi
{ cat <&3; kill -9 $g; } >/dev/null 2>&1 & w=$!
exec 3<&-
wait $p; c=$?
kill $w 2>/dev/null
exit $c`

// Run implements hostcheck.Runner. When ctx ends, the program is killed with its children.
func (s *SSH) Run(ctx context.Context, name string, args ...string) (hostcheck.Output, error) {
	line := hostcheck.CommandLine(name, args...)
	quoted := quote(name)
	for _, a := range args {
		quoted += " " + quote(a)
	}
	out, err := s.shell(ctx, fmt.Sprintf(runScript, quote(name), quoted), maxStdout)
	if err != nil {
		return hostcheck.Output{}, fmt.Errorf("run %s: %w", line, err)
	}
	if out.Code == 127 && strings.TrimSpace(string(out.Stderr)) == notInstalled {
		return hostcheck.Output{}, fmt.Errorf("run %s: %w", line, hostcheck.ErrNotInstalled)
	}
	return out, nil
}

// ReadFile implements hostcheck.Runner.
func (s *SSH) ReadFile(ctx context.Context, path string) ([]byte, error) {
	out, err := s.shell(ctx, "exec cat -- "+quote(path), maxFile)
	if err == nil {
		err = pathError("open", path, out)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return out.Stdout, nil
}

// ReadDir implements hostcheck.Runner. A name with a line end in it counts as two.
func (s *SSH) ReadDir(ctx context.Context, path string) ([]string, error) {
	// With "/." a file is an error, and a link to a folder is followed.
	out, err := s.shell(ctx, "exec ls -1A -- "+quote(path+"/."), maxStdout)
	if err == nil {
		err = pathError("list", path, out)
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", path, err)
	}
	var names []string
	for line := range strings.Lines(string(out.Stdout)) {
		names = append(names, strings.TrimSuffix(line, "\n"))
	}
	slices.Sort(names)
	return names, nil
}

// RealPath implements hostcheck.Runner.
func (s *SSH) RealPath(ctx context.Context, path string) (string, error) {
	// readlink -f is content when the last part does not exist.
	out, err := s.shell(ctx, fmt.Sprintf("ls -dL -- %[1]s >/dev/null && exec readlink -f -- %[1]s", quote(path)), maxFile)
	if err == nil {
		err = pathError("resolve", path, out)
	}
	if err != nil {
		return "", fmt.Errorf("resolve %s: %w", path, err)
	}
	return strings.TrimSuffix(string(out.Stdout), "\n"), nil
}

// pathError makes an error of what cat, ls and readlink say in the C locale: the words of strerror(3).
func pathError(op, path string, out hostcheck.Output) error {
	if out.Code == 0 {
		return nil
	}
	said := string(bytes.TrimSpace(out.Stderr))
	switch {
	case strings.HasSuffix(said, "No such file or directory"):
		return &fs.PathError{Op: op, Path: path, Err: fs.ErrNotExist}
	case strings.HasSuffix(said, "Permission denied"):
		return &fs.PathError{Op: op, Path: path, Err: fs.ErrPermission}
	}
	return fmt.Errorf("exit status %d: %q", out.Code, said)
}

// shell runs a script in a POSIX shell, whatever shell the user has.
func (s *SSH) shell(ctx context.Context, script string, limit int) (hostcheck.Output, error) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return hostcheck.Output{}, context.Cause(ctx)
	}
	prelude := "LC_ALL=C; PATH=\"${PATH:+$PATH:}" + moreFolders + "\"; export LC_ALL PATH; "
	return s.session(ctx, "exec /bin/sh -c "+quote(prelude+script), limit)
}

// quote makes one word of a POSIX shell of any text.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// keyFiles are where keys are looked for, with whether each was asked for by name.
func (o SSHOptions) keyFiles() ([]string, bool) {
	if o.KeyFile != "" {
		return []string{o.KeyFile}, true
	}
	if o.Home == "" {
		return nil, false
	}
	var files []string
	for _, name := range []string{"id_ed25519", "id_ecdsa", "id_rsa"} {
		files = append(files, filepath.Join(o.Home, ".ssh", name))
	}
	return files, false
}

// readKey reads a private key, of at most 1 MiB.
func readKey(file string) (ssh.Signer, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return nil, err
	}
	return ssh.ParsePrivateKey(b)
}
