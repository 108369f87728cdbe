package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"plugpull/internal/check"
	"plugpull/internal/hostcheck"
	"plugpull/internal/hostcheck/databases"
	mysqlcheck "plugpull/internal/hostcheck/databases/mysql"
	"plugpull/internal/hostcheck/databases/postgres"
	"plugpull/internal/hostcheck/databases/sqlite"
	"plugpull/internal/hostcheck/drive"
	"plugpull/internal/hostcheck/raid"
	"plugpull/internal/hostcheck/runner"
	"plugpull/internal/secretfile"
	"plugpull/internal/usage"
)

type checkFlags struct {
	dsn, passwordFile         string
	folders, devices          []string
	host, keyFile, from, save string
	json, prometheus, facts   bool
	measure                   int
	history                   string
	minHoldup, timeout        time.Duration
	capacityLimit             float64
	acceptLearn               bool
}

func (a *app) checkCommand() *cobra.Command {
	var f checkFlags
	c := &cobra.Command{
		Use:   "check [--dsn DSN] [--data-dir DIR]… [--device DEV]…",
		Short: "can an acknowledged commit be lost in a power cut here? ask every layer, change nothing",
		Long: `Walks from a database, a folder or a device through mount, filesystem, LVM, md and encryption to drives and
controllers, reads each layer's cache, barriers and protection, and reasons over the whole: safe because, can be
lost because, unknown because. Without --dsn, --data-dir and --device: every mount on a block device, and every
controller.

Nothing is changed, and no command is run that disturbs I/O, unless --measure asks for fsyncs. What needs no root is
read without it; what needs it and has it not is unknown, and said so.

A monitoring plugin: the first line fits one, with performance data. Exit codes: 0 OK, 1 WARNING, 2 CRITICAL,
3 UNKNOWN. A usage error is 3 too.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.plugin(a.check(a.until(c.Context()), &f)) },
	}
	fl := c.Flags()
	fl.StringVar(&f.dsn, "dsn", "", "a server or file: mysql://USER@HOST/…, postgres://USER@HOST/…, sqlite:PATH;\nPLUGPULL_DSN, which may hold a password, when not given")
	fl.StringVar(&f.passwordFile, "password-file", "", "file with the password, readable by its owner only")
	fl.StringArrayVar(&f.folders, "data-dir", nil, "a folder; may be given several times")
	fl.StringArrayVar(&f.devices, "device", nil, "a block device; may be given several times")
	fl.StringVar(&f.host, "host", "", "ask another machine: ssh://[USER@]HOST[:PORT]")
	fl.StringVar(&f.keyFile, "key-file", "", "the SSH key, where an agent and the usual ones are not to be used")
	fl.StringVar(&f.from, "from", "", "read a folder of saved outputs instead of a machine")
	fl.StringVar(&f.save, "save", "", "save every output that is read into this folder, for --from")
	fl.BoolVar(&f.json, "json", false, "print the report as one JSON object")
	fl.BoolVar(&f.prometheus, "prometheus", false, "print metrics for the textfile collector")
	fl.BoolVar(&f.facts, "facts", false, "print everything that was read")
	fl.IntVar(&f.measure, "measure", 0, "do this many fsyncs in each folder, and see at which layers the flushes arrive")
	fl.StringVar(&f.history, "history", "", "keep the wear of batteries and capacitors in this file, and predict when they end")
	fl.DurationVar(&f.minHoldup, "min-holdup", 0, "warn when a controller's cache would not hold this long")
	fl.Float64Var(&f.capacityLimit, "capacity-limit", 50, "full-charge over design capacity, in percent, at which a backup is taken to end")
	fl.BoolVar(&f.acceptLearn, "accept-learn", false, "a learn cycle is no warning")
	fl.DurationVar(&f.timeout, "timeout", 50*time.Second, "for everything; what has not answered by then is unknown")
	return c
}

func (a *app) check(ctx context.Context, f *checkFlags) error {
	if err := f.valid(); err != nil {
		return err
	}
	for i, dir := range f.folders {
		// Saved outputs are kept by the path that was asked for, and "." is another one elsewhere.
		if !filepath.IsAbs(dir) && f.host != "" {
			return usage.Errorf("--data-dir %s: with --host give the whole path", dir)
		}
		abs, err := filepath.Abs(dir)
		if err != nil {
			return usage.Errorf("--data-dir %s: %w", dir, err)
		}
		f.folders[i] = abs
	}
	limited, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	r, end, err := f.runner(limited)
	if err != nil {
		return err
	}
	ask := check.Ask{Folders: f.folders, Devices: f.devices, Drive: drives(),
		Raid: raid.Options{MinHoldup: f.minHoldup, MinCapacityPercent: f.capacityLimit, AcceptLearn: f.acceptLearn}}
	db, local, err := f.database(limited, r)
	if err != nil {
		return errors.Join(err, end())
	}
	if db != nil {
		ask.Databases = []*databases.Report{db}
		switch {
		case f.host != "" && local && db.Apart == "":
			db.Apart = "it is on this machine, and not on that of --host" // a tunnel to there would not be direct
			ask.Elsewhere = true
		case f.host == "" && f.from == "":
			ask.Elsewhere = !local || db.Apart != ""
		}
	}
	res := check.Run(limited, r, ask)
	if f.measure > 0 {
		check.Measure(limited, r, &res.Report, f.measure)
	}
	if f.history != "" {
		res.Predict(f.history, f.capacityLimit)
	}
	if err := end(); err != nil {
		return err
	}
	a.code = int(res.Level)
	switch {
	case f.json:
		return json.NewEncoder(a.out).Encode(&res.Report)
	case f.prometheus:
		a.code = 0 // whoever runs it for the textfile collector has to keep the file whatever is in it
		return res.WriteMetrics(a.out)
	}
	fmt.Fprintln(a.out, res.FirstLine())
	return res.WriteDetails(a.out, f.facts)
}

func (f *checkFlags) valid() error {
	switch {
	case f.host != "" && f.from != "":
		return usage.Errorf("--host and --from: give one of the two")
	case f.measure > 0 && (f.host != "" || f.from != ""):
		return usage.Errorf("--measure writes to this machine's folders, and cannot be used with --host or --from")
	case f.measure < 0 || f.measure > 100000:
		return usage.Errorf("--measure %d: want 1 to 100000", f.measure)
	case f.json && f.prometheus:
		return usage.Errorf("--json and --prometheus: give one of the two")
	case f.capacityLimit < 0 || f.capacityLimit > 100:
		return usage.Errorf("--capacity-limit %v: want 0 to 100", f.capacityLimit)
	case f.timeout <= 0 || f.minHoldup < 0:
		return usage.Errorf("--timeout and --min-holdup want a time above 0")
	}
	return nil
}

// runner is who is asked, and what is to be done at the end.
func (f *checkFlags) runner(ctx context.Context) (r hostcheck.Runner, end func() error, err error) {
	end = func() error { return nil }
	switch {
	case f.from != "":
		if r, err = runner.OpenSaved(f.from); err != nil {
			return nil, nil, usage.Errorf("--from: %w", err)
		}
	case f.host != "":
		s, err := runner.DialSSH(ctx, f.host, runner.SSHOptions{KeyFile: f.keyFile})
		if err != nil {
			return nil, nil, fmt.Errorf("--host: %w", err)
		}
		r, end = s, s.Close
	default:
		r = runner.Local{}
	}
	if f.save == "" {
		return r, end, nil
	}
	rec, err := runner.NewRecorder(r, f.save)
	if err != nil {
		return nil, nil, errors.Join(usage.Errorf("--save: %w", err), end())
	}
	inner := end
	return rec, func() error { return errors.Join(rec.Err(), inner()) }, nil
}

// database asks the database, and says whether it is on this machine.
func (f *checkFlags) database(ctx context.Context, r hostcheck.Runner) (*databases.Report, bool, error) {
	text, fromFlag := f.dsn, true
	if text == "" && f.from == "" {
		text, fromFlag = os.Getenv("PLUGPULL_DSN"), false
	}
	kind, _, _ := strings.Cut(text, ":")
	switch kind {
	case "":
		return nil, false, nil
	case "mysql":
		dsn, err := parseDSN(text, !fromFlag, f.passwordFile)
		if err != nil {
			return nil, false, err
		}
		rep, err := mysqlcheck.Check(ctx, dsn)
		return rep, local(dsn.Host, dsn.Socket), err
	case "postgres", "postgresql":
		dsn, err := postgresDSN(text, fromFlag, f.passwordFile)
		if err != nil {
			return nil, false, err
		}
		rep, err := postgres.Check(ctx, dsn)
		return rep, local(dsn.Host, ""), err
	case "sqlite":
		dsn, err := sqlite.ParseDSN(text)
		if err != nil {
			return nil, false, usage.Wrap(err)
		}
		rep, err := sqlite.CheckOn(ctx, r, dsn)
		return rep, true, err
	}
	return nil, false, usage.Errorf("--dsn: want mysql://…, postgres://… or sqlite:PATH")
}

func postgresDSN(text string, fromFlag bool, passwordFile string) (postgres.DSN, error) {
	dsn, err := postgres.ParseDSN(text)
	switch {
	case err != nil:
		return dsn, usage.Wrap(err)
	case dsn.HasPassword() && fromFlag:
		return dsn, usage.Errorf("the DSN holds a password, which everybody on this machine can read there: set PLUGPULL_DSN instead, or use --password-file")
	case passwordFile == "":
		return dsn, nil
	}
	p, err := secretfile.Read(passwordFile)
	if err != nil {
		return dsn, usage.Wrap(err)
	}
	dsn.SetPassword(p)
	return dsn, nil
}

// local reports whether a server is on this machine: its socket, or one of our addresses.
func local(host, socket string) bool {
	return socket != "" || strings.HasPrefix(host, "/") || ownAddress(host)
}

// logFolders are the folders on this machine that a server's commits wait for, none where they cannot be told.
func logFolders(ctx context.Context, s probedServer) []string {
	if !s.local {
		return nil
	}
	folders, err := s.logs(ctx)
	if err != nil {
		return nil // where it is the server, the probe meets it too and says so
	}
	return folders
}

// drives adds what a drive says of itself.
func drives() func(context.Context, hostcheck.Runner, string, *hostcheck.Node) {
	return func(ctx context.Context, r hostcheck.Runner, name string, n *hostcheck.Node) {
		drive.Read(ctx, r, name).Fill(n)
	}
}
