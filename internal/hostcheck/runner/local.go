package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"plugpull/internal/hostcheck"
)

// moreFolders is where the tools of storage are, and not in the PATH of everybody.
const moreFolders = "/usr/local/sbin:/usr/sbin:/sbin"

// grace is how long is waited for pipes, or for the peer, after a program should be gone.
const grace = 2 * time.Second

// Local asks this machine.
type Local struct{}

// Run runs a program in its own process group, which is killed when ctx ends. A program that a signal
// ended has the code 128 + the signal. A program that the kernel cannot end (it waits for a dead disk)
// keeps Run waiting.
func (Local) Run(ctx context.Context, name string, args ...string) (hostcheck.Output, error) {
	line := hostcheck.CommandLine(name, args...)
	path, err := find(name)
	if err != nil {
		return hostcheck.Output{}, fmt.Errorf("run %s: %w", line, err)
	}
	stdout, stderr := &bounded{limit: maxStdout}, &noise{limit: maxStderr}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "PATH="+searchPath())
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = grace
	err = cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		// A child still holds the pipes, so the group is still there.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	switch exit := (*exec.ExitError)(nil); {
	case ctx.Err() != nil:
		return hostcheck.Output{}, fmt.Errorf("run %s: %w", line, context.Cause(ctx))
	case stdout.over:
		return hostcheck.Output{}, fmt.Errorf("run %s: output of more than %d bytes: %w", line, maxStdout, ErrTooLarge)
	case cmd.Process == nil && errors.Is(err, fs.ErrNotExist): // the path that was named leads nowhere
		return hostcheck.Output{}, fmt.Errorf("run %s: %w", line, hostcheck.ErrNotInstalled)
	case err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay):
		return hostcheck.Output{}, fmt.Errorf("run %s: %w", line, err)
	}
	return hostcheck.Output{Stdout: stdout.kept.Bytes(), Stderr: stderr.kept.Bytes(), Code: exitCode(cmd.ProcessState)}, nil
}

func exitCode(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}

func searchPath() string {
	return strings.TrimPrefix(os.Getenv("PATH")+":"+moreFolders, ":")
}

// find returns the path of a program. The library's look-up uses the PATH of this process alone.
func find(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, dir := range filepath.SplitList(searchPath()) {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", hostcheck.ErrNotInstalled
}

// ReadFile implements hostcheck.Runner.
func (Local) ReadFile(ctx context.Context, path string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, context.Cause(ctx))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxFile {
		return nil, fmt.Errorf("read %s: more than %d bytes: %w", path, maxFile, ErrTooLarge)
	}
	return b, nil
}

// ReadDir implements hostcheck.Runner.
func (Local) ReadDir(ctx context.Context, path string) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("list %s: %w", path, context.Cause(ctx))
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// RealPath implements hostcheck.Runner. The error matches fs.ErrNotExist when there is no such path.
func (Local) RealPath(ctx context.Context, path string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", fmt.Errorf("resolve %s: %w", path, context.Cause(ctx))
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

// Describe implements hostcheck.Runner.
func (Local) Describe() string {
	name, err := os.Hostname()
	if err != nil {
		return "this machine"
	}
	return "this machine (" + name + ")"
}
