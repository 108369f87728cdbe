package runner

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"plugpull/internal/hostcheck"
)

// The folders of a saved host, and the words of its errors.
const (
	commandsDir, filesDir, foldersDir, linksDir = "commands", "files", "folders", "links"
	errorsDir                                   = "errors"
	hostFile                                    = "host"

	wordNotInstalled = "not installed"
	wordNotFound     = "not found"
	wordDenied       = "permission denied"
	wordError        = "error: "
)

// Saved answers from a folder; the package comment has its format. It is safe for concurrent use.
type Saved struct {
	dir, host string
}

// SavedError is an error that was met when the folder was written, other than those that have words.
type SavedError struct{ Text string }

func (e *SavedError) Error() string { return e.Text }

// OpenSaved opens a folder. The error matches fs.ErrNotExist when it has no file "host".
func OpenSaved(dir string) (*Saved, error) {
	b, err := os.ReadFile(filepath.Join(dir, hostFile))
	if err != nil {
		return nil, fmt.Errorf("open saved outputs: %w", err)
	}
	return &Saved{dir, strings.TrimSpace(string(b))}, nil
}

// Describe implements hostcheck.Runner: it is what the saved host's runner said, so that reports are the same.
func (s *Saved) Describe() string { return s.host }

// Run implements hostcheck.Runner. The error matches hostcheck.ErrNotSaved when the folder has no such
// command, and is a *SavedError when it did not run.
func (s *Saved) Run(ctx context.Context, name string, args ...string) (hostcheck.Output, error) {
	var out hostcheck.Output
	line := hostcheck.CommandLine(name, args...)
	base := filepath.Join(s.dir, commandsDir, escape(line))
	code, err := s.read(ctx, base+".code", line)
	if err != nil {
		return out, err
	}
	switch word := strings.TrimSpace(string(code)); {
	case word == wordNotInstalled:
		return out, fmt.Errorf("run %s: %w", line, hostcheck.ErrNotInstalled)
	case strings.HasPrefix(word, wordError):
		return out, &SavedError{strings.TrimPrefix(word, wordError)}
	default:
		if out.Code, err = strconv.Atoi(word); err != nil {
			return out, fmt.Errorf("saved exit status of %s: %w", line, err)
		}
	}
	if out.Stdout, err = s.read(ctx, base+".stdout", line); err != nil && !errors.Is(err, hostcheck.ErrNotSaved) {
		return out, err
	}
	if out.Stderr, err = s.read(ctx, base+".stderr", line); err != nil && !errors.Is(err, hostcheck.ErrNotSaved) {
		return out, err
	}
	return out, nil
}

// ReadFile implements hostcheck.Runner, with the errors of Run.
func (s *Saved) ReadFile(ctx context.Context, file string) ([]byte, error) {
	if err := s.failed(ctx, filesDir, file); err != nil {
		return nil, err
	}
	return s.read(ctx, filepath.Join(s.dir, filesDir, escapePath(file)), file)
}

// ReadDir implements hostcheck.Runner, with the errors of Run.
func (s *Saved) ReadDir(ctx context.Context, folder string) ([]string, error) {
	if err := s.failed(ctx, foldersDir, folder); err != nil {
		return nil, err
	}
	b, err := s.read(ctx, filepath.Join(s.dir, foldersDir, escapePath(folder)+".names"), folder)
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(string(b)) {
		names = append(names, strings.TrimSuffix(line, "\n"))
	}
	slices.Sort(names)
	return names, nil
}

// RealPath implements hostcheck.Runner, with the errors of Run.
func (s *Saved) RealPath(ctx context.Context, link string) (string, error) {
	if err := s.failed(ctx, linksDir, link); err != nil {
		return "", err
	}
	b, err := s.read(ctx, filepath.Join(s.dir, linksDir, escapePath(link)+".path"), link)
	return strings.TrimSuffix(string(b), "\n"), err
}

// failed returns the saved error of a path, if there is one.
func (s *Saved) failed(ctx context.Context, kind, name string) error {
	b, err := s.read(ctx, filepath.Join(s.dir, errorsDir, kind, escapePath(name)+".error"), name)
	if errors.Is(err, hostcheck.ErrNotSaved) {
		return nil
	} else if err != nil {
		return err
	}
	switch word := strings.TrimSpace(string(b)); word {
	case wordNotFound:
		return &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	case wordDenied:
		return &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	default:
		return &SavedError{strings.TrimPrefix(word, wordError)}
	}
}

// read reads a file of the folder; what is the name of what was asked.
func (s *Saved) read(ctx context.Context, file, what string) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: %w", what, hostcheck.ErrNotSaved)
	case err != nil:
		return nil, fmt.Errorf("read saved output: %w", err)
	case info.Size() > maxStdout:
		return nil, fmt.Errorf("read saved output %s: %w", file, ErrTooLarge)
	}
	b, err := os.ReadFile(file)
	if len(b) == 0 {
		b = nil
	}
	return b, err
}

// escapePath is where a path is in a saved folder. It never leads out of it.
func escapePath(name string) string {
	clean := strings.Trim(path.Clean("/"+name), "/")
	if clean == "" {
		return "%2F"
	}
	parts := strings.Split(clean, "/")
	for i, p := range parts {
		parts[i] = escape(p)
	}
	return strings.Join(parts, "/")
}

// escape makes a file name of any text, as the package comment says.
func escape(text string) string {
	const plain = " !+,-.:=@_"
	var b bytes.Buffer
	for i := range len(text) {
		c := text[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if (letter || strings.IndexByte(plain, c) >= 0) && (c != '.' || i > 0) {
			b.WriteByte(c)
			continue
		}
		fmt.Fprintf(&b, "%%%02X", c)
	}
	if b.Len() > 180 {
		return fmt.Sprintf("%s~%x", b.Bytes()[:160], sha256.Sum256([]byte(text)))[:160+1+16]
	}
	return b.String()
}
