package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/crypto/ssh"

	"plugpull/internal/hostcheck"
)

// session runs a command in a session of its own, and waits for its goroutine also when ctx ends first: a
// peer that then does not answer within the grace loses the connection.
func (s *SSH) session(ctx context.Context, command string, limit int) (hostcheck.Output, error) {
	type result struct {
		out hostcheck.Output
		err error
	}
	opened, finished := make(chan *ssh.Session, 1), make(chan result, 1)
	go func() {
		session, err := s.client.NewSession()
		if err != nil {
			finished <- result{err: err}
			return
		}
		defer session.Close()
		opened <- session
		out, err := run(session, command, limit)
		finished <- result{out, err}
	}()
	select {
	case r := <-finished:
		return r.out, r.err
	case <-ctx.Done():
	}
	late := time.AfterFunc(grace, func() { s.client.Close() })
	defer late.Stop()
	select {
	case session := <-opened:
		_ = session.Close()
		<-finished
	case <-finished:
	}
	return hostcheck.Output{}, context.Cause(ctx)
}

func run(session *ssh.Session, command string, limit int) (hostcheck.Output, error) {
	stdout, stderr := &bounded{limit: limit}, &noise{limit: maxStderr}
	session.Stdout, session.Stderr = stdout, stderr
	if _, err := session.StdinPipe(); err != nil { // without it the input would end at once
		return hostcheck.Output{}, err
	}
	err := session.Run(command)
	if stdout.over {
		return hostcheck.Output{}, fmt.Errorf("output of more than %d bytes: %w", limit, ErrTooLarge)
	}
	out := hostcheck.Output{Stdout: stdout.kept.Bytes(), Stderr: stderr.kept.Bytes()}
	var exit *ssh.ExitError
	switch {
	case errors.As(err, &exit):
		out.Code = exit.ExitStatus() // 128 + the signal where one ended it
	case err != nil:
		return hostcheck.Output{}, err
	}
	return out, nil
}
