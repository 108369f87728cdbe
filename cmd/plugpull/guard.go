package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"plugpull/powerctl"
	"plugpull/scenarios"
)

// guard is a process beside this one that puts the outlet into the state that is to be left behind
// when this one is killed.
type guard struct {
	c  *osexec.Cmd
	in io.WriteCloser
}

// duty is what a guard is told. It gets its secrets as this process did.
type duty struct {
	File   string
	Source []byte // of the bench file as this process has read it
	PID    int
}

const guardCommand = "power-guard"

func startGuard(b *scenarios.Bench) (*guard, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start the outlet's guard: %w", err)
	}
	g := &guard{c: osexec.Command(self, guardCommand)}
	g.c.Stderr = os.Stderr
	g.c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // an interrupt at the terminal is not for it
	if g.in, err = g.c.StdinPipe(); err == nil {
		err = g.c.Start()
	}
	if err == nil {
		err = json.NewEncoder(g.in).Encode(duty{File: b.File, Source: b.Source, PID: os.Getpid()})
	}
	if err != nil {
		return nil, fmt.Errorf("start the outlet's guard: %w", err)
	}
	return g, nil
}

// dismiss ends the guard, which does nothing.
func (g *guard) dismiss() error {
	_, err := io.WriteString(g.in, "dismissed\n")
	err = errors.Join(err, g.in.Close())
	if waitErr := g.c.Wait(); waitErr != nil {
		err = errors.Join(err, waitErr)
	}
	if err != nil {
		return fmt.Errorf("end the outlet's guard: %w", err)
	}
	return nil
}

func (a *app) guardCommand() *cobra.Command {
	return &cobra.Command{Use: guardCommand, Hidden: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return a.guard() }}
}

// guard waits until its parent dismisses it or is gone. It cannot be interrupted: it is done soon.
func (a *app) guard() error {
	in := bufio.NewReader(a.in)
	line, err := in.ReadBytes('\n')
	var d duty
	if err != nil || json.Unmarshal(line, &d) != nil {
		return errors.New("this command is for plugpull itself")
	}
	parent, pidErr := unix.PidfdOpen(d.PID, 0) // Linux 5.3
	if _, err := in.ReadBytes('\n'); err == nil {
		return nil
	}
	if pidErr == nil {
		awaitEnd(parent)
	}
	b, err := scenarios.ParseBench(d.File, d.Source)
	if err != nil {
		return err
	}
	return a.takeOver(context.Background(), &b, d.PID)
}

// awaitEnd waits until a process is gone with all its threads: its pipe may be closed before its locks are
// let go of. Nobody waits longer than some seconds for one that hangs in the kernel.
func awaitEnd(pidfd int) {
	const most = 10 * time.Second
	for end := time.Now().Add(most); time.Now().Before(end); {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(most.Milliseconds()))
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// takeOver leaves the outlet of a process that is gone as it was to be left.
func (a *app) takeOver(ctx context.Context, b *scenarios.Bench, pid int) error {
	o, err := a.outlet(ctx, b, false)
	if err != nil {
		return fmt.Errorf("plugpull (process %d) was killed, and its outlet cannot be reached: %w", pid, err)
	}
	s := safety(b, "") // what it had been told to leave stands in the record
	s.Guard = true
	h, err := takeSoon(ctx, o.Outlet, s)
	var locked *powerctl.LockedError
	if errors.As(err, &locked) {
		return o.Close() // whoever came next sees to it
	}
	if err != nil {
		return errors.Join(fmt.Errorf("plugpull (process %d) was killed: %w", pid, err), o.Close())
	}
	defer func() { _ = errors.Join(h.Close(), o.Close()) }()
	leave, open, moved := "", false, false
	for _, r := range h.Found() {
		leave = r.Leave
		if r.Intent != nil && r.Intent.PID == pid { // and not one that an earlier holder had left
			open = open || r.Intent.Open()
			moved = moved || r.Intent.Open() || r.Intent.Op != r.Leave
		}
	}
	if !moved {
		return nil
	}
	if open {
		awaitOrphans(&b.Outlet)
	}
	return a.settle(ctx, b, h, leave, pid)
}

func (a *app) settle(ctx context.Context, b *scenarios.Bench, h powerctl.Holder, leave string, pid int) error {
	want := powerctl.On
	if leave == string(scenarios.LeaveOff) {
		want = powerctl.Off
	}
	same := true // its last command was the one that is to be given
	for _, r := range h.Found() {
		same = same && r.Intent != nil && r.Intent.PID == pid && r.Intent.Op == want.String()
	}
	if r, err := h.State(ctx); !same || err != nil || r.State != want { // a command that has taken effect is not sent again
		if err := powerctl.Settle(ctx, h, powerctl.Policy{Deadline: b.Timing.OffDeadline}, want == powerctl.On); err != nil {
			return fmt.Errorf("plugpull (process %d) was killed; outlet %q was to be left %s, and its state is not known: %w", pid, b.Outlet.Name, want, err)
		}
	}
	fmt.Fprintf(a.errs, "plugpull: process %d was killed: outlet %q is %s, as it was to be left\n", pid, b.Outlet.Name, want)
	return nil
}

// takeSoon takes the outlet from a process that is ending, or from a look at it, for which a moment is enough.
func takeSoon(ctx context.Context, o powerctl.Outlet, s powerctl.Safety) (powerctl.Holder, error) {
	for end := time.Now().Add(3 * time.Second); ; {
		h, err := powerctl.Take(ctx, o, s)
		var locked *powerctl.LockedError
		if !errors.As(err, &locked) || time.Now().After(end) {
			return h, err
		}
		again := time.NewTimer(20 * time.Millisecond)
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// awaitOrphans waits as long as a command may last that outlives the plugpull which ran it: a program of the
// user's, and no driver of a device.
func awaitOrphans(o *scenarios.Outlet) {
	longest := time.Duration(0)
	for _, m := range append([]scenarios.Outlet{*o}, o.Feeds...) {
		if m.Driver == scenarios.DriverExec || m.Driver == scenarios.DriverLabgrid {
			longest = max(longest, m.Timeout)
		}
	}
	<-time.After(longest)
}

// guarded reports whether a guard can do anything: a person switches a manual outlet.
func guarded(o *scenarios.Outlet) bool {
	for i := range o.Feeds {
		if !guarded(&o.Feeds[i]) {
			return false
		}
	}
	return o.Driver != scenarios.DriverManual
}

// take takes the outlet. It waits for the guard of a process that was killed, which is done soon.
func take(ctx context.Context, o powerctl.Outlet, b *scenarios.Bench, leave scenarios.Leave) (powerctl.Holder, error) {
	patience := time.NewTimer(b.Timing.OffDeadline + b.Timing.MinOff + b.Outlet.Timeout + 10*time.Second)
	defer patience.Stop()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		h, err := powerctl.Take(ctx, o, safety(b, leave))
		var locked *powerctl.LockedError
		if !errors.As(err, &locked) {
			return h, err
		}
		r, readErr := powerctl.ReadRecord(locked.Outlet, b.Outlet.Lease.Dir)
		if readErr != nil || !r.Guard && !r.Gone() {
			return nil, err
		}
		select {
		case <-again.C:
		case <-patience.C:
			return nil, err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
