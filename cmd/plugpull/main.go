// Command plugpull pulls the plug on a database and counts what was lost.
//
// This package holds flags, wiring and exit codes, one file a subcommand. What
// a subcommand does lives in the packages below it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"plugpull/internal/database/mysql"
	"plugpull/internal/ledger"
	"plugpull/internal/usage"
	"plugpull/powerctl"
	"plugpull/scenarios"
)

// version is set by the Makefile.
var version = ""

// The exit codes.
const (
	exitExpected     = 0
	exitUnexpected   = 1
	exitUsage        = 2
	exitInconclusive = 3
	exitFailed       = 4
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is main without the process around it: the exit code comes back.
func run(args []string, in *os.File, out, errs io.Writer) int {
	// An output that nobody reads any more must not end a process that has switched a power off.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	a := &app{in: in, out: out, errs: errs, stop: make(chan struct{})}
	ctx, cancel := a.signals()
	defer cancel()
	root := a.root()
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errs)
	if err := root.ExecuteContext(ctx); err != nil {
		return a.failed(err)
	}
	return a.code
}

// app is what the subcommands share.
type app struct {
	in        *os.File
	out, errs io.Writer
	code      int
	// stop is closed at the first interrupt: end in order.
	stop chan struct{}
}

// signals closes stop at the first interrupt and cancels the context at the second.
func (a *app) signals() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	c := make(chan os.Signal, 4)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) { // under nohup a run outlives its terminal
			signal.Notify(c, s)
		}
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		first := true
		for {
			select {
			case <-c:
				if !first {
					cancel()
					continue
				}
				first = false
				fmt.Fprintln(a.errs, "plugpull: ending in order; interrupt again to abandon what is under way")
				close(a.stop)
			case <-done:
				return
			}
		}
	})
	return ctx, func() {
		signal.Stop(c)
		close(done)
		wg.Wait()
		cancel()
	}
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "plugpull",
		Short: "Does an acknowledged commit survive a power cut on this stack?",
		Long: `plugpull pulls the plug on a database and counts what was lost.

A client streams numbered commits to the database under test and writes every
acknowledgement into a ledger on this machine; something cuts the power; after the
reboot the verifier compares what survived with what was acknowledged.

By hand:     plugpull stream …   cut the power   plugpull verify …
By command:  plugpull run SCENARIO --bench FILE

Exit codes: 0 as expected, 1 not as expected, 2 usage or a bad file,
3 inconclusive, 4 the bench or plugpull failed.`,
		Version:       buildVersion(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetVersionTemplate("plugpull {{.Version}}\n")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usage.Errorf("%w (see %s --help)", err, c.CommandPath())
	})
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(a.streamCommand(), a.verifyCommand(), a.runCommand(), a.ledgerCommand(), a.cleanCommand(), a.scenariosCommand(), a.doctorCommand(), a.powerCommand(), a.checkCommand(), a.probeCommand(), a.guardCommand())
	markUsage(root)
	return root
}

// markUsage makes a wrong number of arguments a usage error.
func markUsage(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return usage.Errorf("%w (see %s --help)", err, c.CommandPath())
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		markUsage(sub)
	}
}

func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// failed prints an error and finds its exit code.
func (a *app) failed(err error) int {
	fmt.Fprintf(a.errs, "plugpull: %v\n", err)
	var op *powerctl.OpError
	switch {
	case usage.Is(err):
		return exitUsage
	case errors.As(err, &op): // of an outlet that was reached, whatever file lies behind it
		return exitFailed
	case badFile(err) || badSchema(err):
		return exitUsage
	}
	return exitFailed
}

// badSchema reports whether the server that was named is up, and cannot be used as it is.
func badSchema(err error) bool {
	var (
		run       *mysql.OtherRunError
		foreign   *mysql.ForeignTableError
		privilege *mysql.PrivilegeError
		readOnly  *mysql.ReadOnlyError
		engine    *mysql.EngineError
	)
	return errors.As(err, &run) || errors.As(err, &foreign) || errors.As(err, &privilege) || errors.As(err, &readOnly) || errors.As(err, &engine)
}

// badFile reports whether a file or folder that was named is not what it should be, or
// may not be used.
func badFile(err error) bool {
	var (
		file    *scenarios.FileError
		locked  *ledger.LockedError
		outlet  *powerctl.LockedError
		leased  *powerctl.LeasedError
		version *ledger.VersionError
	)
	if errors.As(err, &file) || errors.As(err, &locked) || errors.As(err, &outlet) || errors.As(err, &leased) || errors.As(err, &version) {
		return true
	}
	for _, known := range []error{scenarios.ErrUnknown, ledger.ErrNotLedger, ledger.ErrShortHeader, ledger.ErrNoConfig,
		fs.ErrNotExist, fs.ErrPermission, syscall.EROFS, syscall.EISDIR, syscall.ENOTDIR} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}
