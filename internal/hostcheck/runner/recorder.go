package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"plugpull/internal/hostcheck"
)

// Recorder passes questions on to another runner and writes the answers into a folder, for Saved. What is
// asked twice is kept as it was answered last. It is safe for concurrent use when the other runner is.
type Recorder struct {
	inner hostcheck.Runner
	dir   string

	mu  sync.Mutex
	err error // the first failure to write
}

// NewRecorder makes the folder, which must not exist or be empty: answers of two hosts never mix.
func NewRecorder(inner hostcheck.Runner, dir string) (*Recorder, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make folder for outputs: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("make folder for outputs: %w", err)
	}
	if len(entries) > 0 {
		return nil, fmt.Errorf("make folder for outputs: %s is not empty: %w", dir, fs.ErrExist)
	}
	r := &Recorder{inner: inner, dir: dir}
	r.write([]byte(inner.Describe()+"\n"), hostFile)
	return r, r.Err()
}

// Err returns the first error of writing the folder. Ask it at the end: the answers themselves are passed
// on also when they could not be written.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Describe implements hostcheck.Runner.
func (r *Recorder) Describe() string { return r.inner.Describe() }

// Run implements hostcheck.Runner.
func (r *Recorder) Run(ctx context.Context, name string, args ...string) (hostcheck.Output, error) {
	out, err := r.inner.Run(ctx, name, args...)
	if ctx.Err() != nil {
		return out, err // says nothing of the host
	}
	file := escape(hostcheck.CommandLine(name, args...))
	switch {
	case errors.Is(err, hostcheck.ErrNotSaved):
	case errors.Is(err, hostcheck.ErrNotInstalled):
		r.write([]byte(wordNotInstalled+"\n"), commandsDir, file+".code")
	case err != nil:
		r.write([]byte(wordError+oneLine(err)+"\n"), commandsDir, file+".code")
	default:
		r.write(out.Stdout, commandsDir, file+".stdout")
		if len(out.Stderr) > 0 {
			r.write(out.Stderr, commandsDir, file+".stderr")
		}
		r.write([]byte(strconv.Itoa(out.Code)+"\n"), commandsDir, file+".code")
	}
	return out, err
}

// ReadFile implements hostcheck.Runner.
func (r *Recorder) ReadFile(ctx context.Context, path string) ([]byte, error) {
	b, err := r.inner.ReadFile(ctx, path)
	r.keep(ctx, filesDir, path, "", b, err)
	return b, err
}

// ReadDir implements hostcheck.Runner.
func (r *Recorder) ReadDir(ctx context.Context, path string) ([]string, error) {
	names, err := r.inner.ReadDir(ctx, path)
	var text strings.Builder
	for _, n := range names {
		text.WriteString(n + "\n")
	}
	r.keep(ctx, foldersDir, path, ".names", []byte(text.String()), err)
	return names, err
}

// RealPath implements hostcheck.Runner.
func (r *Recorder) RealPath(ctx context.Context, path string) (string, error) {
	to, err := r.inner.RealPath(ctx, path)
	r.keep(ctx, linksDir, path, ".path", []byte(to+"\n"), err)
	return to, err
}

// keep writes the answer to a question about a path.
func (r *Recorder) keep(ctx context.Context, kind, path, suffix string, content []byte, err error) {
	word, answer := "", filepath.Join(kind, escapePath(path)+suffix)
	failure := filepath.Join(errorsDir, kind, escapePath(path)+".error")
	switch {
	case ctx.Err() != nil, errors.Is(err, hostcheck.ErrNotSaved):
		return // says nothing of the host
	case err == nil:
		r.replace(failure, answer, content)
		return
	case errors.Is(err, fs.ErrNotExist):
		word = wordNotFound
	case errors.Is(err, fs.ErrPermission):
		word = wordDenied
	default:
		word = wordError + oneLine(err)
	}
	r.replace(answer, failure, []byte(word+"\n"))
}

// replace writes a file in the place of another.
func (r *Recorder) replace(old, file string, content []byte) {
	r.mu.Lock()
	if err := os.Remove(filepath.Join(r.dir, old)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.err = errors.Join(r.err, fmt.Errorf("save an output: %w", err))
	}
	r.mu.Unlock()
	r.write(content, file)
}

// oneLine makes an error a line of a file.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

func (r *Recorder) write(content []byte, parts ...string) {
	file := filepath.Join(append([]string{r.dir}, parts...)...)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		r.err = errors.Join(r.err, fmt.Errorf("save an output: %w", err))
	} else if err := os.WriteFile(file, content, 0o600); err != nil {
		r.err = errors.Join(r.err, fmt.Errorf("save an output: %w", err))
	}
}
