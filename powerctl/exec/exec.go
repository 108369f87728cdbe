// Package exec switches an outlet with commands of the user's own: a script, a
// vendor's tool, labgrid-client, uhubctl.
//
// It guarantees that no shell is involved, that a command which overruns its
// time is killed with its whole process group, and that only the word "off",
// printed by a state command that exits with 0, is off.
package exec

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"plugpull/internal/clock"
	"plugpull/powerctl"
)

// Config describes an outlet. Each command is a program and its arguments, run
// with the environment and working directory of this process and no standard
// input. Arguments may hold secrets: they appear in no error and no Identity.
type Config struct {
	Name string
	// Off and On exit with 0 when the device accepted the command.
	Off, On []string
	// State, optional, prints on, off, pending, unknown or fault and exits with 0.
	State []string
	// Identify, optional, prints one line that is the device's and no other's.
	Identify []string
	// Pin, optional, is the line that Identify must print, without white space around it. It
	// is asked for before every other command: on a mismatch that command is not run.
	Pin string
	// Timeout bounds each command.
	Timeout time.Duration
	Class   powerctl.Class
}

// Outlet implements powerctl.Outlet and Planner.
type Outlet struct{ c Config }

// New checks the configuration; it runs nothing.
func New(c Config) (*Outlet, error) {
	var errs []error
	if c.Name == "" {
		errs = append(errs, errors.New("the outlet's name is missing"))
	}
	for _, cmd := range []struct {
		what     string
		argv     []string
		required bool
	}{{"off", c.Off, true}, {"on", c.On, true}, {"state", c.State, false}, {"identify", c.Identify, false}} {
		if cmd.required && len(cmd.argv) == 0 || len(cmd.argv) > 0 && cmd.argv[0] == "" {
			errs = append(errs, fmt.Errorf("the %s command has no program", cmd.what))
		}
	}
	if c.Pin != "" && len(c.Identify) == 0 {
		errs = append(errs, errors.New("the pin needs an identify command"))
	}
	if c.Pin != "" && !isLine(c.Pin) {
		errs = append(errs, fmt.Errorf("the pin %.40q is not one line without white space around it", c.Pin))
	}
	if c.Timeout <= 0 {
		errs = append(errs, errors.New("the timeout is missing"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("exec outlet: %w", err)
	}
	return &Outlet{c: c}, nil
}

// Capabilities implements powerctl.Outlet.
func (o *Outlet) Capabilities() powerctl.Capabilities {
	return powerctl.Capabilities{ReadBack: len(o.c.State) > 0, Class: o.c.Class, Tried: powerctl.TriedOwn}
}

// Off runs the off command. It does not read back.
func (o *Outlet) Off(ctx context.Context) (powerctl.Result, error) {
	return o.command(ctx, "off", o.c.Off)
}

// On runs the on command. It does not read back.
func (o *Outlet) On(ctx context.Context) (powerctl.Result, error) {
	return o.command(ctx, "on", o.c.On)
}

func (o *Outlet) command(ctx context.Context, op string, argv []string) (powerctl.Result, error) {
	if err := o.verify(ctx, op); err != nil {
		return powerctl.Result{}, fmt.Errorf("%w: %w", powerctl.ErrNotSent, err)
	}
	res := powerctl.Result{Commanded: clock.Now()}
	if _, err := o.run(ctx, op, argv); err != nil {
		if errors.Is(err, powerctl.ErrNotSent) {
			res.Commanded = 0
		}
		return res, err
	}
	res.Acknowledged = clock.Now()
	return res, nil
}

// State runs the state command. What it printed is in Raw, also beside an error.
func (o *Outlet) State(ctx context.Context) (powerctl.Result, error) {
	if len(o.c.State) == 0 {
		return powerctl.Result{}, &powerctl.OpError{Op: "state", Outlet: o.c.Name, Step: "read the state", Err: powerctl.ErrNoReadBack}
	}
	if err := o.verify(ctx, "state"); err != nil {
		return powerctl.Result{}, err
	}
	out, err := o.run(ctx, "state", o.c.State)
	res := powerctl.Result{Raw: out.text()}
	if err != nil {
		return res, err
	}
	if !out.cut {
		res.State = parse(res.Raw)
	}
	if res.State == powerctl.On || res.State == powerctl.Off {
		res.Observed = clock.Now()
	}
	return res, nil
}

// parse knows five words and nothing else: "off (cached)" and "not off" are not off.
func parse(text string) powerctl.State {
	var s powerctl.State
	if s.UnmarshalText([]byte(strings.ToLower(strings.TrimSpace(text)))) != nil {
		return powerctl.Unknown
	}
	return s
}

// killDelay is how long a command that was killed, or ended, may go on holding
// its output open before it is given up.
const killDelay = 2 * time.Second

// run runs one command to its end. The error matches powerctl.ErrNotSent only
// where no program was started.
func (o *Outlet) run(ctx context.Context, op string, argv []string) (*bounded, error) {
	limited, cancel := context.WithTimeout(ctx, o.c.Timeout)
	defer cancel()
	var stdout, stderr bounded
	cmd := osexec.CommandContext(limited, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// A group of its own: a Ctrl-C for plugpull must not end a command half way, and
	// a timeout must end what the command started as well.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
			return err
		}
		return os.ErrProcessDone
	}
	cmd.WaitDelay = killDelay

	fail := func(step string, err error) (*bounded, error) {
		return &stdout, &powerctl.OpError{Op: op, Outlet: o.c.Name, Step: step + " " + filepath.Base(argv[0]), Err: err}
	}
	if err := limited.Err(); err != nil {
		return fail("start", fmt.Errorf("%w: %w", powerctl.ErrNotSent, err))
	}
	if err := cmd.Start(); err != nil {
		return fail("start", fmt.Errorf("%w: %w", powerctl.ErrNotSent, withoutArguments(err)))
	}
	err := cmd.Wait()
	if err == nil {
		return &stdout, nil
	}
	switch {
	case ctx.Err() != nil:
		err = fmt.Errorf("killed: %w", ctx.Err())
	case limited.Err() != nil:
		err = fmt.Errorf("killed after %v: %w", o.c.Timeout, context.DeadlineExceeded)
	case errors.Is(err, osexec.ErrWaitDelay):
		err = fmt.Errorf("it left a process behind that holds its output: %w", err)
	}
	if said := strings.TrimSpace(stderr.text()); said != "" {
		err = fmt.Errorf("%w; it said %q", err, said)
	}
	return fail("run", err)
}

// withoutArguments drops the path from a failed start: the step names the program.
func withoutArguments(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	var ee *osexec.Error
	if errors.As(err, &ee) {
		return ee.Err
	}
	return err
}

// bounded keeps the first powerctl.MaxRaw bytes and swallows the rest, so that
// a command which prints without end neither fills the memory nor dies of EPIPE.
type bounded struct {
	b   []byte
	cut bool
}

func (w *bounded) Write(p []byte) (int, error) {
	room := powerctl.MaxRaw - len(w.b)
	w.cut = w.cut || len(p) > room
	w.b = append(w.b, p[:min(room, len(p))]...)
	return len(p), nil
}

func (w *bounded) text() string { return string(w.b) }
