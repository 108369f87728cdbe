package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"plugpull/internal/bench/embedded"
	"plugpull/internal/bench/lab"
	"plugpull/internal/bench/loop"
	"plugpull/internal/campaign"
	"plugpull/internal/database"
	"plugpull/internal/report"
	"plugpull/internal/usage"
	"plugpull/powerctl"
	"plugpull/scenarios"
	"plugpull/verifier"
)

type runFlags struct {
	bench         string
	cycles        int
	seed          uint64
	out           string
	resume        string
	json          bool
	clean         bool
	cycle         int
	keepImages    bool
	stopAtFinding bool
	// templates are shared by the benches of one command.
	templates *loop.Templates
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run SCENARIO… --bench embedded|loop|FILE",
		Short: "run scenarios on a bench: stream, cut, restore, verify, again and again",
		Long: `Runs each scenario (a built-in name, or a file) on the bench for its number of cycles, and prints a
table with a row a scenario. Everything is kept in a folder a scenario, below --out.

The first Ctrl-C ends in order, also the cycle under way once its cut was made, and leaves the outlet as
configured; a second one abandons what is under way and leaves the outlet as configured nevertheless.

A commented bench file: plugpull scenarios show sample-bench

Sets of scenarios have a name too:
` + indent(scenarios.SetsText()) + `
` + grantHelp,
		RunE: func(c *cobra.Command, args []string) error {
			f.seedGiven(c)
			return a.runScenarios(c.Context(), &f, args)
		},
	}
	c.Flags().StringVar(&f.bench, "bench", "", "the bench: embedded, which needs nothing; loop, a real server and filesystem on a simulated drive; or a bench file")
	c.Flags().IntVar(&f.cycles, "cycles", 0, "cuts a scenario, instead of the scenario's own number")
	c.Flags().Uint64Var(&f.seed, "seed", 0, "seed of everything random; drawn and printed when not given")
	c.Flags().StringVar(&f.out, "out", "", "folder for the runs' folders; plugpull-DATE-TIME when not given")
	c.Flags().StringVar(&f.resume, "resume", "", "carry on the runs in this folder (an --out, or one run's own)")
	c.Flags().BoolVar(&f.json, "json", false, "print one JSON object a run, a line each, instead of the table")
	c.Flags().IntVar(&f.cycle, "cycle", 0, "replay this cycle alone (embedded bench; with the --seed of the run)")
	c.Flags().BoolVar(&f.stopAtFinding, "stop-at-finding", false, "end the run after the first cycle with a finding, to look at the device as it is")
	c.Flags().BoolVar(&f.keepImages, "keep-images", false, "keep the drive's image of every cycle with a finding, also where findings are expected (loop bench)")
	c.Flags().BoolVar(&f.clean, "clean", false, "first drop the schema that another run left on the server")
	return c
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") + "\n"
}

// seedGiven draws a seed where none was given. It stays below 2^53, so that
// every JSON reader keeps it whole.
func (f *runFlags) seedGiven(c *cobra.Command) {
	if c.Flags().Changed("seed") {
		return
	}
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	f.seed = binary.LittleEndian.Uint64(b[:]) >> 11
}

// header is run.json: what a resume needs.
type header struct {
	Schema    int       `json:"schema"`
	Order     int       `json:"order"`
	Run       string    `json:"run"`
	Scenario  string    `json:"scenario"`
	Given     string    `json:"given"` // the scenario as named on the command line
	Bench     string    `json:"bench"`
	BenchFile string    `json:"bench_file"` // its path: relative paths in it start there
	Seed      uint64    `json:"seed"`
	Cycles    int       `json:"cycles"`
	Replay    int       `json:"replay,omitempty"` // the only cycle, of a replay
	Plugpull  string    `json:"plugpull"`
	Created   time.Time `json:"created"`
	Sources   struct {
		Scenario string `json:"scenario"`
		Bench    string `json:"bench"`
	} `json:"sources"`
}

// job is one run to be done or carried on.
type job struct {
	folder   *campaign.Folder
	head     header
	scenario scenarios.Scenario
	bench    scenarios.Bench
}

func (a *app) runScenarios(ctx context.Context, f *runFlags, args []string) (err error) {
	jobs, err := a.jobs(f, args)
	defer func() {
		for _, j := range jobs {
			err = errors.Join(err, j.folder.Close())
		}
	}()
	if err != nil {
		return err
	}
	if len(jobs) > 0 && jobs[0].bench.Kind == scenarios.Loop {
		if f.templates, err = loop.NewTemplates(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.templates.Close()) }()
	}
	var reports []*report.Run
	var failed error
	clean := f.clean
	for _, j := range jobs {
		rep, err := a.runJob(ctx, f, j, clean)
		if rep != nil {
			reports = append(reports, rep)
			if err := a.tell(f, j, rep); err != nil {
				return err
			}
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("scenario %s: %w", j.scenario.Name, err))
			break
		}
		clean = true // the schema that the next one finds is ours, and verified
	}
	return a.conclude(f, reports, jobs, failed)
}

// tell prints what is to be said of one run at once.
func (a *app) tell(f *runFlags, j *job, rep *report.Run) error {
	if f.json {
		return rep.WriteJSON(a.out)
	}
	if f.cycle > 0 && rep.Cycles.Counted+rep.Cycles.Inconclusive > 0 {
		res, err := j.folder.Cycle(uint32(f.cycle))
		if err != nil {
			return err
		}
		fmt.Fprintf(a.out, "cycle %d: %s\n", f.cycle, report.CountsText(res.Counts))
		return report.WriteExamples(a.out, res.Counts, res.Findings, res.Unreadable)
	}
	_, err := fmt.Fprintf(a.errs, "%s: %s\n", rep.Scenario, rep.Headline())
	return err
}

// explain says in words what the table says in numbers, of a run that is alone or not as
// expected.
func (a *app) explain(r *report.Run, alone bool) error {
	if !alone && r.AsExpected() {
		return nil
	}
	if _, err := fmt.Fprintf(a.out, "%s: %s\n", r.Scenario, r.Headline()); err != nil {
		return err
	}
	if text := r.SplitText(); alone && text != "" && r.Stack != "" {
		fmt.Fprintf(a.out, "%s: %s\n", r.Scenario, text)
	}
	if r.Replay == "" {
		return nil
	}
	_, err := fmt.Fprintf(a.out, "%s: the first cycle with a finding, alone: %s\n", r.Scenario, r.Replay)
	return err
}

// conclude prints the table and finds the exit code: 4 before 1 before 3.
func (a *app) conclude(f *runFlags, reports []*report.Run, jobs []*job, failed error) error {
	if !f.json && len(reports) > 0 {
		if err := report.WriteTable(a.out, reports); err != nil {
			return err
		}
		if err := report.WritePlot(a.out, reports); err != nil {
			return err
		}
		for _, r := range reports {
			if err := a.explain(r, len(reports) == 1); err != nil {
				return err
			}
		}
	}
	interrupted := errors.Is(failed, campaign.ErrInterrupted)
	if failed != nil && (interrupted || len(reports) > 0) {
		failed = fmt.Errorf("%w\nCarry on with: plugpull run --resume %s", failed, cmp.Or(f.resume, f.out))
	}
	switch n := len(reports) - 1; {
	case interrupted:
		fmt.Fprintf(a.errs, "plugpull: %v\n", failed)
		failed = nil
	case errors.Is(failed, database.ErrNoServer) && !errors.Is(failed, campaign.ErrLeave) && n >= 0 && reports[n].Cycles != (report.Cycles{Planned: reports[n].Cycles.Planned}):
		// After a cut a server that does not come back is an outcome, not a failure.
		fmt.Fprintf(a.errs, "plugpull: %v\n", failed)
		failed = nil
	}
	if failed != nil {
		return failed
	}
	for _, r := range reports {
		switch code := exitCode(r); {
		case code == exitUnexpected:
			a.code = exitUnexpected
		case code == exitInconclusive && a.code == exitExpected:
			a.code = exitInconclusive
		}
	}
	// What was not done yet cannot be as expected.
	if (interrupted || len(reports) < len(jobs)) && a.code == exitExpected {
		a.code = exitInconclusive
	}
	return nil
}

// jobs makes the folders of new runs, or opens those to be carried on.
func (a *app) jobs(f *runFlags, args []string) ([]*job, error) {
	if f.resume != "" {
		if len(args) > 0 || f.bench != "" || f.out != "" {
			return nil, usage.Errorf("--resume takes scenario, bench and folder from the run: give it alone")
		}
		return resumeJobs(f)
	}
	switch {
	case len(args) == 0:
		return nil, usage.Errorf("no scenario: give a name of plugpull scenarios list, or a file")
	case f.bench == "":
		return nil, usage.Errorf("no bench: give --bench embedded, --bench loop, or --bench FILE (a commented sample: plugpull scenarios show sample-bench)")
	case f.cycles < 0:
		return nil, usage.Errorf("--cycles %d: want a positive number", f.cycles)
	case f.cycle < 0:
		return nil, usage.Errorf("--cycle %d: want a positive number", f.cycle)
	}
	bench, err := loadBench(f.bench)
	if err != nil {
		return nil, err
	}
	if f.cycle > 0 {
		if bench.Kind != scenarios.Embedded {
			return nil, usage.Errorf("--cycle %d: only the embedded bench can replay a cycle", f.cycle)
		}
		f.cycles = 1
	}
	var all []string
	for _, arg := range args {
		all = append(all, scenarios.Expand(arg)...)
	}
	var jobs []*job
	names := map[string]bool{}
	for i, arg := range all {
		sc, err := scenarios.Load(arg)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(sc.Benches, bench.Kind) {
			return nil, usage.Errorf("scenario %s is not for a %s bench", sc.Name, bench.Kind)
		}
		if names[sc.Name] {
			return nil, usage.Errorf("scenario %s is given twice", sc.Name)
		}
		names[sc.Name] = true
		j := &job{scenario: sc, bench: bench, head: newHeader(f, i, sc, bench)}
		j.head.Given = arg
		jobs = append(jobs, j)
	}
	if f.out == "" {
		f.out = "plugpull-" + time.Now().Format("20060102-150405")
	}
	for i, j := range jobs {
		if err := j.create(f.out); err != nil {
			return jobs[:i], err
		}
	}
	return jobs, nil
}

func newHeader(f *runFlags, order int, sc scenarios.Scenario, bench scenarios.Bench) header {
	h := header{Schema: report.Schema, Order: order, Scenario: sc.Name, Bench: bench.Name, BenchFile: f.bench,
		Seed: f.seed, Cycles: sc.Cycles, Replay: f.cycle, Plugpull: buildVersion(), Created: time.Now()}
	if f.cycles > 0 {
		h.Cycles = f.cycles
	}
	if abs, err := filepath.Abs(f.bench); err == nil && bench.Kind == scenarios.Lab {
		h.BenchFile = abs
	}
	h.Sources.Scenario, h.Sources.Bench = string(sc.Source), string(bench.Source)
	return h
}

func (j *job) create(out string) error {
	run, err := j.runID(j.scenario.Name)
	if err != nil {
		return err
	}
	j.head.Run = run.String()
	if j.folder, err = campaign.CreateFolder(filepath.Join(out, j.scenario.Name)); err != nil {
		return err
	}
	if err := j.folder.WriteJSON("run.json", &j.head); err != nil {
		return errors.Join(err, j.folder.Close())
	}
	return nil
}

// resumeJobs opens one run's folder, or every run below a folder.
func resumeJobs(f *runFlags) ([]*job, error) {
	paths := []string{f.resume}
	if _, err := os.Stat(filepath.Join(f.resume, "run.json")); err != nil {
		found, err := filepath.Glob(filepath.Join(f.resume, "*", "run.json"))
		if err != nil || len(found) == 0 {
			return nil, usage.Errorf("--resume %s: no run.json in it or one level below", f.resume)
		}
		paths = nil
		for _, p := range found {
			paths = append(paths, filepath.Dir(p))
		}
	}
	var jobs []*job
	for _, path := range paths {
		j, err := reopen(path, f)
		if err != nil {
			return jobs, err
		}
		jobs = append(jobs, j)
	}
	slices.SortFunc(jobs, func(a, b *job) int { return a.head.Order - b.head.Order })
	return jobs, nil
}

func reopen(path string, f *runFlags) (*job, error) {
	folder, err := campaign.ReopenFolder(path)
	if err != nil {
		return nil, err
	}
	j := &job{folder: folder}
	if _, err = folder.ReadJSON("run.json", &j.head); err != nil {
		err = usage.Wrap(err)
	} else if j.head.Replay > 0 {
		err = usage.Errorf("%s is the replay of cycle %d, which is not carried on: replay it again, with another --out", path, j.head.Replay)
	} else {
		j.scenario, err = scenarios.Parse(filepath.Join(path, "run.json")+" (scenario)", []byte(j.head.Sources.Scenario))
	}
	if b := builtinBench(j.head.Bench); err == nil && b != nil && j.head.Sources.Bench == "" {
		j.bench = *b
	} else if err == nil {
		j.bench, err = scenarios.ParseBench(j.head.BenchFile, []byte(j.head.Sources.Bench))
	}
	if err != nil {
		return nil, errors.Join(err, folder.Close())
	}
	if f.cycles > 0 {
		j.head.Cycles = f.cycles
	}
	return j, nil
}

// runJob runs a scenario's control, where it has one, and then the scenario.
func (a *app) runJob(ctx context.Context, f *runFlags, j *job, clean bool) (*report.Run, error) {
	if rep := j.finished(); rep != nil {
		fmt.Fprintf(a.errs, "%s: complete already\n", j.scenario.Name)
		return rep, nil
	}
	line := newStatusLine(a.errs)
	defer line.end()
	fmt.Fprintf(a.errs, "%s on %s: %d cycles, seed %d, folder %s\n", j.scenario.Name, j.bench.Name, j.head.Cycles, j.head.Seed, j.folder.Path)
	ctl, err := a.control(ctx, f, j)
	if err != nil {
		return nil, err
	}
	return a.runOne(ctx, f, j, ctl, clean, line)
}

// bench is a campaign's bench that is to be closed.
type bench interface {
	campaign.Bench
	Close() error
}

func (a *app) runOne(ctx context.Context, f *runFlags, j *job, ctl report.Control, clean bool, line *statusLine) (rep *report.Run, err error) {
	book, err := j.book()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, book.Close()) }()
	var b bench
	switch j.bench.Kind {
	case scenarios.Embedded:
		b, err = embedded.New(embedded.ConfigOf(&j.scenario, j.head.Seed))
	case scenarios.Loop:
		c := loop.ConfigOf(&j.scenario, j.head.Seed, j.bench.Timing.Silence, filepath.Join(j.folder.Path, "drive.img"))
		c.Templates = f.templates
		b, err = loop.New(ctx, c)
	default:
		b, err = a.labBench(ctx, j, book, clean)
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	r := a.runner(j, book, b)
	r.Control = ctl
	if line != nil {
		r.Show = a.progress(line)
	}
	if s, ok := b.(campaign.Stepping); ok {
		r.Load.Now = s.Now
		r.Replay = func(n uint32) string {
			return fmt.Sprintf("plugpull run %s --bench %s --seed %d --cycle %d", j.source(), j.bench.Name, j.head.Seed, n)
		}
		if f.cycle > 0 && book.Cycle == 0 {
			book.Cycle = uint32(f.cycle) - 1
		}
	}
	r.KeepImages, r.StopAtFinding = f.keepImages, f.stopAtFinding
	return r.Run(ctx)
}

func (a *app) runner(j *job, book *campaign.Book, b campaign.Bench) *campaign.Runner {
	sc, timing := &j.scenario, j.bench.Timing
	r := &campaign.Runner{
		Folder: j.folder, Book: book, Bench: b, BenchName: j.bench.Name,
		Load: campaign.Load{Streams: sc.Load.Streams, AllowNonDurable: sc.Database.AllowNondurable, AllowBinlog: sc.Database.AllowBinlog,
			Bench: j.bench.Name, Scenario: sc.Name, Plugpull: buildVersion()},
		Plan: campaign.Plan{Scenario: sc.Name, Expected: string(sc.Expect), Seed: j.head.Seed, Cycles: j.head.Cycles,
			After: campaign.Range(sc.Cut.After), AfterAcks: uint64(sc.Cut.AfterAcks), Idle: sc.Cut.Idle,
			Last: sc.Verify.Last, AllEvery: sc.Verify.AllEvery},
		Silence: timing.Silence, ServerWait: timing.ServerWait,
		Log:  slog.New(slog.NewTextHandler(a.errs, nil)),
		Stop: a.stop,
	}
	if sc.Witness {
		r.Load.Witnesses = 1
	}
	if j.bench.Kind == scenarios.Loop {
		r.Stack = sc.Stack()
	}
	return r
}

// finished returns the report of a run whose cycles are all done; nil otherwise.
func (j *job) finished() *report.Run {
	var rep report.Run
	ok, err := j.folder.ReadJSON("report.json", &rep)
	if err != nil || !ok || rep.Cycles.Counted+rep.Cycles.Inconclusive < j.head.Cycles {
		return nil
	}
	return &rep
}

// labBench wires the bench file to its drivers. clean drops another run's schema first.
func (a *app) labBench(ctx context.Context, j *job, book *campaign.Book, clean bool) (*heldLab, error) {
	dsn, err := benchDSN(&j.bench)
	if err != nil {
		return nil, err
	}
	if dsn.Schema != book.Config.Schema {
		return nil, usage.Errorf("%s: the ledger is of schema %s, the bench's DSN names %s", j.folder.Path, book.Config.Schema, dsn.Schema)
	}
	db, err := openTarget(dsn, j.bench.Timing.Silence)
	if err != nil {
		return nil, err
	}
	if w := warnLocal(dsn, ""); w != "" {
		fmt.Fprintln(a.errs, "warning: "+w)
	}
	found, unsettled, err := j.power()
	if err != nil {
		return nil, err
	}
	h, err := a.hold(ctx, &j.bench, found)
	if err != nil {
		return nil, err
	}
	if guarded(&j.bench.Outlet) && !proven(h) {
		fmt.Fprintf(a.errs, "note: nobody has proven what hangs on outlet %q: plugpull power verify-wiring %s\n", j.bench.Outlet.Name, j.bench.File)
	}
	lb := &heldLab{held: h}
	lb.Bench, err = lab.New(ctx, lab.Config{Database: db, Outlet: h, Policy: powerctl.Policy{Deadline: j.bench.Timing.OffDeadline},
		Attest: verifier.Attestation(j.bench.Attest), Leave: lab.Leave(j.bench.Outlet.Leave), Found: found, Unsettled: unsettled})
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	if found == powerctl.Unknown {
		if err := j.folder.Note(0, stepFound, lb.Found().String()); err != nil {
			return nil, errors.Join(err, lb.Close())
		}
	}
	if clean && book.Index.LastSession() == 0 {
		if err := dropOther(ctx, lb.Bench, db, j.bench.Timing.ServerWait); err != nil {
			limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
			defer cancel()
			return nil, errors.Join(fmt.Errorf("drop what another run left on the server: %w", err), lb.Leave(limited), lb.Close())
		}
	}
	return lb, nil
}

// heldLab is a lab bench and the hold of its outlet.
type heldLab struct {
	*lab.Bench
	held *hold
}

// Close gives the outlet back and leaves it alone.
func (b *heldLab) Close() error { return b.held.Close() }
