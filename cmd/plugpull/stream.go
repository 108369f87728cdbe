package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"plugpull/client"
	"plugpull/internal/campaign"
	"plugpull/internal/database/mysql"
	"plugpull/internal/ledger"
	"plugpull/internal/usage"
	"plugpull/internal/workload"
)

type streamFlags struct {
	dsnFlags
	ledger          string
	streams         int
	profile         string
	payload         string
	window          int
	length          time.Duration
	silence         time.Duration
	allowNonDurable bool
	allowBinlog     bool
}

func (a *app) streamCommand() *cobra.Command {
	var f streamFlags
	c := &cobra.Command{
		Use:   "stream --dsn DSN --ledger FILE",
		Short: "commit numbered rows until the server dies, and log every acknowledgement",
		Long: `Commits 1, 2, 3 … on every stream until the server dies, --for has passed or
Ctrl-C, and writes what became of each commit into the ledger. Run it on a machine that
keeps its power, leave it running, and cut the power of the device under test. An
existing ledger is continued.

Profiles: append inserts one row a commit; transfer inserts into two tables and moves a
head row in one transaction; churn inserts, updates and deletes.
` + grantHelp,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.stream(c.Context(), c, &f) },
	}
	f.add(c)
	c.Flags().StringVar(&f.ledger, "ledger", "", "the ledger's file; made when it does not exist")
	c.Flags().IntVar(&f.streams, "streams", 8, "connections that commit at the same time, 1 to 1000")
	c.Flags().StringVar(&f.profile, "profile", string(workload.Append), "append, transfer or churn")
	c.Flags().StringVar(&f.payload, "payload", "100..400", "bytes of payload a row: N or LEAST..MOST")
	c.Flags().IntVar(&f.window, "window", workload.DefaultWindow, "churn: rows between insert and update, and between update and delete")
	c.Flags().DurationVar(&f.length, "for", 0, "stop after this time; 0 commits until the server dies")
	c.Flags().DurationVar(&f.silence, "silence", mysql.DefaultSilence, "give up on a reply after this time: a power cut sends no farewell")
	c.Flags().BoolVar(&f.allowNonDurable, "allow-nondurable", false, "stream also where the server's settings can lose commits")
	c.Flags().BoolVar(&f.allowBinlog, "allow-binlog", false, "stream also where the server writes a binary log")
	return c
}

func (f *streamFlags) check() (workload.Params, error) {
	p := workload.Params{Profile: workload.Profile(f.profile)}
	var err error
	if p.PayloadMin, p.PayloadMax, err = parseRange(f.payload); err != nil {
		return p, usage.Errorf("--payload %s: %w", f.payload, err)
	}
	if p.Profile == workload.Churn {
		p.Window = workload.Seq(f.window)
	}
	if p.Run, err = campaign.NewRun(); err != nil {
		return p, err
	}
	switch {
	case f.ledger == "":
		return p, usage.Errorf("no ledger: give --ledger FILE")
	case f.streams < 1 || f.streams > 1000:
		return p, usage.Errorf("--streams %d: want 1 to 1000", f.streams)
	case f.silence < 100*time.Millisecond:
		return p, usage.Errorf("--silence %v: want at least 100ms", f.silence)
	case f.length < 0:
		return p, usage.Errorf("--for %v: want a positive time", f.length)
	}
	return p, usage.Wrap(p.Validate())
}

func parseRange(s string) (least, most int, err error) {
	lo, hi, two := strings.Cut(s, "..")
	if !two {
		hi = lo
	}
	least, err1 := strconv.Atoi(lo)
	most, err2 := strconv.Atoi(hi)
	if err1 != nil || err2 != nil {
		return 0, 0, errors.New("want a number of bytes, or LEAST..MOST")
	}
	return least, most, nil
}

func (a *app) stream(ctx context.Context, c *cobra.Command, f *streamFlags) (err error) {
	params, err := f.check()
	if err != nil {
		return err
	}
	dsn, err := f.parse()
	if err != nil {
		return err
	}
	db, err := openTarget(dsn, f.silence)
	if err != nil {
		return err
	}
	book, err := a.openBook(f.ledger, dsn)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if book != nil {
		if err := f.sameParams(c, book.Config.Params); err != nil {
			return errors.Join(err, book.Close())
		}
	}
	load := campaign.Load{Streams: f.streams, AllowNonDurable: f.allowNonDurable, AllowBinlog: f.allowBinlog, Plugpull: buildVersion()}
	if err := a.greet(ctx, db, dsn, load); err != nil {
		if book != nil {
			err = errors.Join(err, book.Close())
		}
		return err
	}
	if book == nil {
		book, err = campaign.CreateBook(f.ledger, ledger.Config{Params: params, Database: "mysql", Schema: dsn.Schema})
		if err != nil {
			return err
		}
		fmt.Fprintf(a.errs, "new ledger %s, run %s\n", f.ledger, params.Run)
	}
	defer func() { err = errors.Join(err, book.Close()) }()
	return a.streamInto(ctx, f, book, db, load)
}

// openBook continues a ledger of the DSN's schema; fs.ErrNotExist when there is none.
func (a *app) openBook(path string, dsn mysql.DSN) (*campaign.Book, error) {
	book, err := campaign.OpenBook(path)
	if err != nil {
		return nil, err
	}
	if book.Config.Schema != dsn.Schema || book.Config.Database != "mysql" {
		return nil, errors.Join(usage.Errorf("the ledger %s is of the %s schema %s, the DSN names the mysql schema %s: give the one that the ledger is of",
			path, book.Config.Database, book.Config.Schema, dsn.Schema), book.Close())
	}
	if t := book.Dropped.String(); t != "" {
		fmt.Fprintf(a.errs, "ledger %s: %s\n", path, t)
	}
	if book.WallBack > 0 {
		fmt.Fprintf(a.errs, "warning: the wall clock stands %v before the ledger's last session began; intervals are not affected, they are measured with CLOCK_BOOTTIME\n", book.WallBack.Round(time.Millisecond))
	}
	return book, nil
}

// sameParams refuses flags that contradict the ledger.
func (f *streamFlags) sameParams(c *cobra.Command, p workload.Params) error {
	given := func(name string) bool { return c.Flags().Changed(name) }
	lo, hi, _ := parseRange(f.payload)
	switch {
	case given("profile") && workload.Profile(f.profile) != p.Profile:
		return usage.Errorf("--profile %s: the ledger %s is of profile %s; leave the flag out or give a new ledger", f.profile, f.ledger, p.Profile)
	case given("payload") && (lo != p.PayloadMin || hi != p.PayloadMax):
		return usage.Errorf("--payload %s: the ledger %s is of %d..%d; leave the flag out or give a new ledger", f.payload, f.ledger, p.PayloadMin, p.PayloadMax)
	case given("window") && p.Window != 0 && workload.Seq(f.window) != p.Window:
		return usage.Errorf("--window %d: the ledger %s is of window %d; leave the flag out or give a new ledger", f.window, f.ledger, p.Window)
	}
	return nil
}

// greetWait bounds the wait for a server that is expected to be up.
const greetWait = 5 * time.Second

// greet makes sure that the server is there, and warns where it shares our power.
func (a *app) greet(ctx context.Context, db mysql.Target, dsn mysql.DSN, load campaign.Load) error {
	limited, cancel := context.WithTimeout(ctx, greetWait)
	defer cancel()
	if err := db.Await(limited); err != nil {
		return err
	}
	facts, err := campaign.CheckServer(ctx, db, load)
	if err != nil {
		return err
	}
	for _, p := range facts.Problems { // allowed, or it would have been refused
		fmt.Fprintf(a.errs, "warning: allowed by you: %v\n", p)
	}
	if w := warnLocal(dsn, facts.Identity["hostname"]); w != "" {
		fmt.Fprintln(a.errs, "warning: "+w)
	}
	return nil
}

func (a *app) streamInto(ctx context.Context, f *streamFlags, book *campaign.Book, db mysql.Target, load campaign.Load) error {
	sess, err := book.Begin(ctx, db, load, 0)
	if err != nil {
		return err
	}
	sess.Start()
	a.watch(ctx, sess, f.length)
	st := sess.Stats()
	// What the streams wrote last is made durable before anything is claimed.
	if err := book.Sync(ctx); err != nil {
		return fmt.Errorf("the ledger could not be written: what was not yet durable counts as unknown: %w", err)
	}
	a.streamEnd(f, &st, sess.Errors())
	if st.Ends[ledger.EndRefusals] == len(st.Streams) {
		return fmt.Errorf("every stream was refused again and again: %w", sess.Errors())
	}
	return nil
}

// watch shows the session until it has ended; the first interrupt stops it, the second abandons it.
func (a *app) watch(ctx context.Context, sess *client.Session, length time.Duration) {
	var due <-chan time.Time
	if length > 0 {
		t := time.NewTimer(length)
		defer t.Stop()
		due = t.C
	}
	line := newStatusLine(a.errs)
	defer line.end()
	tick := time.NewTicker(line.every())
	defer tick.Stop()
	stop, done := a.stop, ctx.Done()
	for {
		select {
		case <-tick.C:
			st := sess.Stats()
			line.show(streamLine(&st))
		case <-due:
			sess.Stop()
		case <-stop:
			sess.Stop()
			stop = nil
		case <-done:
			sess.Abandon()
			done = nil
		case <-sess.Ended():
			return
		}
	}
}

func (a *app) streamEnd(f *streamFlags, st *client.Stats, errs error) {
	fmt.Fprintf(a.out, "%d acked, %d refused, %d unknown in %v: %.0f commits/s, latency p50 %v p99 %v max %v\n",
		st.Acked, st.Refused, st.Unknown, st.Elapsed.Round(time.Millisecond), st.PerSecond(), st.P50, st.P99, st.Max)
	fmt.Fprintf(a.out, "last acknowledged: %s\n", lastAcked(st))
	fmt.Fprintf(a.out, "streams ended: %s\n", endsText(st.Ends))
	if errs != nil {
		for line := range strings.SplitSeq(errs.Error(), "\n") {
			fmt.Fprintln(a.out, "  "+line)
		}
	}
	next := "plugpull verify"
	if f.dsn != "" {
		next += " --dsn '" + f.dsn + "'"
	}
	if f.passwordFile != "" {
		next += " --password-file '" + f.passwordFile + "'"
	}
	next += " --ledger '" + f.ledger + "'"
	if st.Ends[ledger.EndStopped] == len(st.Streams) {
		fmt.Fprintf(a.out, "The streams were stopped, so a cut after this proves nothing. To go on: run this command again, and cut the power while it runs.\nTo compare nevertheless: %s\n", next)
		return
	}
	fmt.Fprintf(a.out, "When the server is back:\n  %s\nAdd --attest mains, or --attest drive, if you know what lost power.\n", next)
}
