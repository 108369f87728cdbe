package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"plugpull/internal/hostcheck"
	"plugpull/internal/hostcheck/drive"
	"plugpull/internal/hostcheck/layers"
	"plugpull/internal/hostcheck/runner"
	"plugpull/internal/probe"
	"plugpull/internal/usage"
)

type probeFlags struct {
	dsn            dsnFlags
	dir, schema    string
	options        probe.Options
	inServer       bool
	allowBinlog    bool
	baseline, save string
	json, ascii    bool
}

func (a *app) probeCommand() *cobra.Command {
	var f probeFlags
	c := &cobra.Command{
		Use:   "probe --dsn DSN | --dir DIR",
		Short: "commit with one client for some seconds: how fast, and what that means",
		Long: `Commits with one client, on a MySQL, MariaDB or PostgreSQL server or to a file, and shows the rate, the latencies, and what
the rate can and cannot mean beside the settings and the flushes that were counted. Some hundreds a second are a
disk without a cache; thousands are a write cache somewhere, an SSD with capacitors, or settings that never
flush: the rate alone misleads.

--in-server also runs the loop as a stored procedure, so that the network's round trip does not hide the disk.
--save keeps the result, and --baseline compares with one: cache off, cache on.

The probe works in a schema (or file) of its own and removes it. The user needs no more than the statement
that a refusal prints. A server that writes a binary log is refused unless --allow-binlog, and so is a PostgreSQL
database whose logical replication takes every new table.

Exit codes, as monitoring plugins have them: 0 what was seen fits together; 1 and 2 it can lose commits; 3 the
rate has more than one explanation, or nothing could be measured. A usage error is 3 too, with its reason.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.plugin(a.probe(a.until(c.Context()), &f)) },
	}
	f.dsn.add(c)
	fl := c.Flags()
	fl.Lookup("dsn").Usage = "the server: mysql://USER@HOST[:PORT]/… or postgres://USER@HOST[:PORT]/DATABASE;\nPLUGPULL_DSN, which may hold a password, when not given"
	fl.StringVar(&f.dir, "dir", "", "probe a file in this folder instead of a server")
	fl.DurationVar(&f.options.For, "for", probe.DefaultFor, "how long")
	fl.Uint64Var(&f.options.Commits, "commits", 0, "end after so many commits instead")
	fl.BoolVar(&f.inServer, "in-server", false, "run the loop in the server too, as a stored procedure (MySQL: needs CREATE ROUTINE and EXECUTE)")
	fl.BoolVar(&f.allowBinlog, "allow-binlog", false, "probe a server that writes a binary log, or a PostgreSQL database with a publication FOR ALL TABLES: the rows go there, and to every replica or subscriber")
	fl.StringVar(&f.schema, "schema", probe.DefaultSchema, "the schema that is made and removed")
	fl.StringVar(&f.baseline, "baseline", "", "compare with a result that --save kept")
	fl.StringVar(&f.save, "save", "", "keep the result in this file, which must not exist")
	fl.BoolVar(&f.json, "json", false, "print one JSON object")
	fl.BoolVar(&f.ascii, "ascii", false, "draw with ASCII alone")
	return c
}

// plugin is the end of a command that speaks the codes of monitoring plugins: whatever fails is UNKNOWN, and
// the first line says so.
func (a *app) plugin(err error) error {
	if err == nil {
		return nil
	}
	fmt.Fprintf(a.out, "%s - %s\n", hostcheck.Unknown, strings.Join(strings.FieldsFunc(err.Error(), func(c rune) bool { return c == '\n' || c == '\t' }), " "))
	a.code = int(hostcheck.Unknown)
	return nil
}

func (a *app) probe(ctx context.Context, f *probeFlags) error {
	if (f.dir != "") == (f.dsn.dsn != "" || f.dir == "" && os.Getenv("PLUGPULL_DSN") != "") {
		return usage.Errorf("give --dsn or --dir, one of the two")
	}
	if f.dir != "" && f.inServer {
		return usage.Errorf("--in-server needs a server: give --dsn")
	}
	var before *probe.Result
	if f.baseline != "" {
		var err error
		if before, err = readResult(f.baseline); err != nil {
			return err
		}
	}
	var keep *os.File
	if f.save != "" { // before anything is measured in vain
		var err error
		if keep, err = os.OpenFile(f.save, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644); err != nil {
			return usage.Errorf("--save: %w", err)
		}
		defer keep.Close()
	}
	results, evidence, err := a.measure(ctx, f)
	if err != nil {
		return errors.Join(err, discard(keep))
	}
	evidence.Baseline = before
	r := &results[len(results)-1]
	if len(results) > 1 {
		evidence.Other = &results[0]
	}
	if keep != nil {
		if err := errors.Join(r.Write(keep), keep.Sync()); err != nil {
			return fmt.Errorf("--save: %w", err)
		}
	}
	return a.showProbe(f, results, evidence)
}

// discard removes a file that was made for a result that there is not.
func discard(f *os.File) error {
	if f == nil {
		return nil
	}
	return os.Remove(f.Name())
}

func readResult(path string) (*probe.Result, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, usage.Errorf("--baseline: %w", err)
	}
	defer file.Close()
	r, err := probe.ReadResult(file)
	if err != nil {
		return nil, usage.Errorf("--baseline: %s: %w", path, err)
	}
	return r, nil
}

// measure runs the probe, and beside it counts what reaches the drives.
func (a *app) measure(ctx context.Context, f *probeFlags) (results []probe.Result, e probe.Evidence, err error) {
	if f.dir != "" {
		r, ev, err := a.probeOnce(ctx, probe.Folder{Dir: f.dir}, f, []string{f.dir})
		return []probe.Result{r}, ev, err
	}
	server, err := f.server()
	if err != nil {
		return nil, e, err
	}
	folders := logFolders(ctx, server)
	for _, inServer := range []bool{false, true} {
		if inServer && !f.inServer {
			break
		}
		r, ev, err := a.probeOnce(ctx, server.target(inServer), f, folders)
		if err != nil {
			return nil, e, err
		}
		results, e = append(results, r), ev
	}
	return results, e, nil
}

// probedServer is a server of any kind.
type probedServer struct {
	local  bool // on this machine
	logs   func(context.Context) ([]string, error)
	target func(inServer bool) probe.Target
}

// server finds the DSN and its password.
func (f *probeFlags) server() (probedServer, error) {
	text, fromFlag := f.dsn.dsn, true
	if text == "" {
		text, fromFlag = os.Getenv("PLUGPULL_DSN"), false
	}
	if kind, _, _ := strings.Cut(text, ":"); kind == "postgres" || kind == "postgresql" {
		dsn, err := postgresDSN(text, fromFlag, f.dsn.passwordFile)
		p := probe.Postgres{DSN: dsn, Schema: f.schema, AllowLogical: f.allowBinlog}
		return probedServer{local(p.DSN.Host, ""), p.LogFolders, func(inServer bool) probe.Target {
			p.InServer = inServer
			return p
		}}, err
	}
	dsn, err := f.dsn.parse()
	if err != nil {
		return probedServer{}, err
	}
	db, err := openTarget(dsn, 10*time.Second)
	if err != nil {
		return probedServer{}, err
	}
	s := probe.Server{DB: db, Schema: f.schema, AllowBinlog: f.allowBinlog}
	return probedServer{local(dsn.Host, dsn.Socket), s.LogFolders, func(inServer bool) probe.Target {
		s.InServer = inServer
		return s
	}}, nil
}

// probeOnce probes a target, and counts flushes below the folders that its commits wait for, where these are on
// this machine.
func (a *app) probeOnce(ctx context.Context, t probe.Target, f *probeFlags, folders []string) (r probe.Result, e probe.Evidence, err error) {
	line := newStatusLine(a.errs)
	o := f.options
	if o.Commits > 0 && f.options.For == probe.DefaultFor {
		o.For = 0 // as many as were asked for, however long they take
	}
	if line.tty {
		o.Tick = func(t probe.Tick) { line.show(fmt.Sprintf("%d commits, %.0f/s", t.Commits, t.Rate)) }
	}
	host := runner.Local{}
	all := turning{}
	top := &hostcheck.Node{Kind: hostcheck.Note, Below: walkFolders(ctx, host, folders, all)}
	var before, after map[string]layers.Counter
	o.Around = func(begin bool) { // without the flushes of what the probe makes and removes
		if begin {
			before = layers.Flushes(ctx, host, top)
		} else {
			after = layers.Flushes(ctx, host, top)
		}
	}
	r, err = probe.Run(ctx, t, o)
	line.end()
	if err != nil {
		return r, e, err
	}
	top.Walk(func(n *hostcheck.Node) { addEvidence(&e, n, all, before, after) })
	return r, e, nil
}

// turning is how drives turn, by name. Virtual disks and those of other machines are not among them, since there the
// word is of nobody who knows.
type turning map[string]turns

type turns struct {
	rotational hostcheck.Tri
	rpm        int
}

// walkFolders walks down from folders to the drives.
func walkFolders(ctx context.Context, host hostcheck.Runner, folders []string, all turning) (tops []*hostcheck.Node) {
	walk := layers.New(host, layers.Options{Drive: func(ctx context.Context, r hostcheck.Runner, name string, n *hostcheck.Node) {
		d := drive.Read(ctx, r, name)
		d.Fill(n)
		all[name] = turns{d.Rotational, d.RPM}
	}})
	for _, dir := range folders {
		tops = append(tops, walk.Folder(ctx, dir))
	}
	return tops
}

// addEvidence keeps what a layer says beside the rate.
func addEvidence(e *probe.Evidence, n *hostcheck.Node, all turning, before, after map[string]layers.Counter) {
	if now, ok := after[n.Name]; ok {
		l := probe.Layer{Name: n.Name, WriteCache: now.WriteCache}
		if was, ok := before[n.Name]; ok {
			grown := now.Flushes - was.Flushes
			l.Flushes = &grown
		}
		e.Layers = append(e.Layers, l)
	}
	if n.Kind == "disk" {
		e.Drives = append(e.Drives, probe.Drive{Name: n.Name, Rotational: all[n.Name].rotational, RPM: all[n.Name].rpm, Cache: n.Cache.Volatile, Protected: n.Cache.Protected})
	}
}

func (a *app) showProbe(f *probeFlags, results []probe.Result, e probe.Evidence) error {
	last := &results[len(results)-1]
	findings := probe.Interpret(last, e)
	level := hostcheck.OK
	for _, x := range findings {
		level = hostcheck.Worst(level, x.Level)
	}
	a.code = int(level)
	if f.json {
		return json.NewEncoder(a.out).Encode(struct {
			Level    hostcheck.Level     `json:"level"`
			Results  []probe.Result      `json:"results"`
			Findings []hostcheck.Finding `json:"findings"`
			Layers   []probe.Layer       `json:"layers,omitempty"`
		}{level, results, findings, e.Layers})
	}
	fmt.Fprintf(a.out, "%s - %.0f commits/s with one client (median %v, 99 %% within %v)\n", level, last.Rate(),
		last.Latency(50).Round(time.Microsecond), last.Latency(99).Round(time.Microsecond))
	for i := range results {
		fmt.Fprintln(a.out)
		if err := probe.Draw(a.out, &results[i], probe.Style{ASCII: f.ascii}); err != nil {
			return err
		}
	}
	a.showEvidence(last, e)
	fmt.Fprintln(a.out)
	for _, x := range findings {
		fmt.Fprintf(a.out, "%-8s %s\n", x.Level, x.Text)
	}
	if e.Baseline != nil {
		c, err := probe.Compare(e.Baseline, last)
		if err != nil {
			return err
		}
		fmt.Fprintf(a.out, "%-8s %s\n", "", c.Text())
		for _, n := range c.Notes {
			fmt.Fprintf(a.out, "%-8s %s\n", "", n)
		}
	}
	return nil
}

// showEvidence prints the settings and the counters beside which a rate is to be read.
func (a *app) showEvidence(r *probe.Result, e probe.Evidence) {
	var w io.Writer = a.out
	for _, line := range probe.SettingsText(r) {
		fmt.Fprintln(w, line)
	}
	for _, l := range e.Layers {
		text := "flushes not counted"
		if l.Flushes != nil {
			text = fmt.Sprintf("%d flushes, %.2f a commit", *l.Flushes, float64(*l.Flushes)/float64(max(1, r.Commits)))
		}
		fmt.Fprintf(w, "%s: %s (write cache: %s)\n", l.Name, text, orUnknown(l.WriteCache))
	}
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}
