package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
	"golang.org/x/crypto/ssh/knownhosts"
)

// ErrNoKey: there is neither an agent nor a key that can be used.
var ErrNoKey = errors.New("no key to log in with: start an agent, or name a key file")

// HostKeyError: the host's key is not the one that a file of known hosts has, or none has one.
type HostKeyError struct {
	Host        string
	Fingerprint string // of the key that the host showed, as ssh-keygen -l prints it
	// File and Line are where another key of the host is written, or with Revoked where this one is said to
	// be revoked. File is "" where nothing is written of the host.
	File    string
	Line    int
	Revoked bool
	Files   []string // that were read
}

func (e *HostKeyError) Error() string {
	switch {
	case e.Revoked:
		return fmt.Sprintf("the key of %s (%s) is revoked in %s line %d", e.Host, e.Fingerprint, e.File, e.Line)
	case e.File != "":
		return fmt.Sprintf("%s shows the key %s, and %s line %d has another: either the host got a new key, "+
			"or something stands between; make sure, then correct that line", e.Host, e.Fingerprint, e.File, e.Line)
	case len(e.Files) == 0:
		return fmt.Sprintf("the key of %s (%s) is not known, and there is no file of known hosts: "+
			"compare it with the host's, then log in once with ssh", e.Host, e.Fingerprint)
	}
	return fmt.Sprintf("the key of %s (%s) is not in %s: compare it with the host's, then log in once with ssh",
		e.Host, e.Fingerprint, strings.Join(e.Files, " or "))
}

// hostKeys makes a configuration that takes only keys of known hosts, and asks only for algorithms of
// which a key is known: a host has several keys, and one that is merely not written down is no forgery.
func (o SSHOptions) hostKeys(addr string) (*ssh.ClientConfig, error) {
	files := o.KnownHosts
	if files == nil {
		for _, f := range []string{filepath.Join(o.Home, ".ssh", "known_hosts"), "/etc/ssh/ssh_known_hosts"} {
			if _, err := os.Stat(f); err == nil {
				files = append(files, f)
			}
		}
	}
	check, err := knownhosts.New(files...)
	if err != nil {
		return nil, fmt.Errorf("read known hosts: %w", err)
	}
	callback := func(host string, remote net.Addr, key ssh.PublicKey) error {
		return hostKeyError(check(host, remote, key), knownhosts.Normalize(host), key, files)
	}
	return &ssh.ClientConfig{HostKeyCallback: callback, HostKeyAlgorithms: algorithms(check, addr)}, nil
}

func hostKeyError(err error, host string, key ssh.PublicKey, files []string) error {
	if err == nil {
		return nil
	}
	e := &HostKeyError{Host: host, Fingerprint: ssh.FingerprintSHA256(key), Files: files}
	var mismatch *knownhosts.KeyError
	var revoked *knownhosts.RevokedError
	switch {
	case errors.As(err, &revoked):
		e.Revoked, e.File, e.Line = true, revoked.Revoked.Filename, revoked.Revoked.Line
	case errors.As(err, &mismatch) && len(mismatch.Want) > 0:
		e.File, e.Line = mismatch.Want[0].Filename, mismatch.Want[0].Line
		for _, w := range mismatch.Want {
			if w.Key.Type() == key.Type() {
				e.File, e.Line = w.Filename, w.Line
			}
		}
	case !errors.As(err, &mismatch):
		return err
	}
	return e
}

// noKey is a key that no host has: what is said against it tells which keys are known.
type noKey struct{ ssh.PublicKey }

func (noKey) Type() string    { return "plugpull-none" }
func (noKey) Marshal() []byte { return []byte("plugpull-none") }

// algorithms returns the algorithms of the keys that are known of a host, nil (all) where none is.
func algorithms(check ssh.HostKeyCallback, addr string) []string {
	var known *knownhosts.KeyError
	if !errors.As(check(addr, &net.TCPAddr{}, noKey{}), &known) {
		return nil
	}
	var list []string
	for _, k := range known.Want {
		switch t := k.Key.Type(); t {
		case ssh.KeyAlgoRSA:
			list = append(list, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256, ssh.CertAlgoRSASHA512v01, ssh.CertAlgoRSASHA256v01)
		default:
			// A line may be that of an authority, which signs keys of any kind.
			list = append(list, t, t+"-cert-v01@openssh.com")
		}
	}
	return list
}

// keys returns how to log in; done closes the agent, once logged in or given up.
func (o SSHOptions) keys(ctx context.Context) (methods []ssh.AuthMethod, done func(), err error) {
	signers, named, skipped := o.fileKeys()
	var locked *ssh.PassphraseMissingError // the agent may have it
	if skipped != nil && named && !errors.As(skipped, &locked) {
		return nil, nil, skipped
	}
	conn, err := o.dialAgent(ctx)
	if err != nil {
		return nil, nil, err
	}
	if conn == nil && len(signers) == 0 {
		return nil, nil, errors.Join(ErrNoKey, skipped)
	}
	if conn == nil {
		return []ssh.AuthMethod{ssh.PublicKeys(signers...)}, func() {}, nil
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	ask := func() ([]ssh.Signer, error) {
		held, err := agent.NewClient(conn).Signers()
		if err != nil && len(signers) == 0 {
			return nil, fmt.Errorf("ssh agent: %w", err)
		}
		if named { // first: servers hang up after a few keys
			return append(signers, held...), nil
		}
		return append(held, signers...), nil
	}
	return []ssh.AuthMethod{ssh.PublicKeysCallback(ask)}, func() { stop(); conn.Close() }, nil
}

// dialAgent returns nil where there is no agent, which is an error only when one was asked for by name.
func (o SSHOptions) dialAgent(ctx context.Context) (net.Conn, error) {
	socket := o.Agent
	if socket == "" {
		socket = os.Getenv("SSH_AUTH_SOCK")
	}
	if socket == "" || o.NoAgent {
		return nil, nil
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil && o.Agent != "" {
		return nil, fmt.Errorf("ssh agent: %w", err)
	} else if err != nil {
		return nil, nil
	}
	return conn, nil
}

// fileKeys reads the private keys; named: the file was asked for by name; skipped: why one was not taken.
func (o SSHOptions) fileKeys() (signers []ssh.Signer, named bool, skipped error) {
	files, named := o.keyFiles()
	for _, file := range files {
		signer, err := readKey(file)
		switch locked := (*ssh.PassphraseMissingError)(nil); {
		case err == nil:
			signers = append(signers, signer)
		case errors.As(err, &locked):
			skipped = fmt.Errorf("%s has a passphrase, so only an agent can use it: %w", file, err)
		case named || !errors.Is(err, fs.ErrNotExist):
			skipped = fmt.Errorf("read key: %w", err)
		}
	}
	return signers, named, skipped
}
