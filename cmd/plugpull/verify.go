package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"plugpull/internal/campaign"
	"plugpull/internal/database"
	"plugpull/internal/ledger"
	"plugpull/internal/report"
	"plugpull/internal/usage"
	"plugpull/verifier"
)

type verifyFlags struct {
	dsnFlags
	ledger string
	wait   time.Duration
	attest string
	json   bool
}

func (a *app) verifyCommand() *cobra.Command {
	var f verifyFlags
	c := &cobra.Command{
		Use:   "verify --dsn DSN --ledger FILE",
		Short: "compare what survived with what was acknowledged",
		Long: `Waits for the server, compares the surviving rows with the ledger, prints what is missing
or wrong, and records it in the ledger. Run it after the machine is back, before anything else
is written.

Without findings the verdict is inconclusive unless you attest what was cut: a restart alone
looks the same when only the process died.
` + grantHelp,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.verify(c.Context(), &f) },
	}
	f.add(c)
	c.Flags().StringVar(&f.ledger, "ledger", "", "the ledger that plugpull stream wrote, or that of a run's folder")
	c.Flags().DurationVar(&f.wait, "wait", 10*time.Minute, "how long to wait for the server's greeting")
	c.Flags().StringVar(&f.attest, "attest", "", "what you know lost power: mains (the whole machine) or drive (the drive alone)")
	c.Flags().BoolVar(&f.json, "json", false, "print one JSON object instead of text")
	return c
}

func (a *app) verify(ctx context.Context, f *verifyFlags) (err error) {
	switch verifier.Attestation(f.attest) {
	case "", verifier.AttestMains, verifier.AttestDrive:
	default:
		return usage.Errorf("--attest %s: want mains or drive", f.attest)
	}
	switch {
	case f.ledger == "":
		return usage.Errorf("no ledger: give --ledger FILE")
	case f.wait < 0:
		return usage.Errorf("--wait %v: want a positive time", f.wait)
	}
	dsn, err := f.parse()
	if err != nil {
		return err
	}
	db, err := openTarget(dsn, 0)
	if err != nil {
		return err
	}
	book, err := a.openBook(f.ledger, dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, book.Close()) }()
	if book.Index.LastSession() == 0 {
		return usage.Errorf("ledger %s: nothing was streamed into it yet", f.ledger)
	}
	// The first interrupt ends a wait; once the server is there the comparison is short.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-a.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	x, err := a.examine(ctx, f, book, db)
	if err != nil {
		return err
	}
	return a.verdict(f, book, x)
}

func (a *app) examine(ctx context.Context, f *verifyFlags, book *campaign.Book, db campaign.Database) (*campaign.Examination, error) {
	if !f.json {
		fmt.Fprintf(a.errs, "waiting for the server for at most %v\n", f.wait)
	}
	limited, cancel := context.WithTimeout(ctx, f.wait)
	defer cancel()
	err := db.Await(limited)
	if errors.Is(err, database.ErrNoServer) {
		fmt.Fprintf(a.errs, "plugpull: %v\n", err)
		last, _ := book.Index.Last()
		return &campaign.Examination{Before: book.Index.Totals().Findings, Session: last, Reason: verifier.ReasonNoServer}, nil
	}
	if err != nil {
		return nil, err
	}
	return book.Examine(ctx, db, campaign.Exam{Cycle: book.Cycle, Evidence: verifier.Evidence{Attest: verifier.Attestation(f.attest)}})
}

// verdict prints the outcome and sets the exit code.
func (a *app) verdict(f *verifyFlags, book *campaign.Book, x *campaign.Examination) error {
	rep := verifyReport(f, book, x)
	if f.json {
		if err := rep.WriteJSON(a.out); err != nil {
			return err
		}
	} else if err := a.verifyText(book, x, rep); err != nil {
		return err
	}
	a.code = exitCode(rep)
	return nil
}

// doubt prints what speaks against an attestation: a machine without power says no
// farewell. It is no proof: a drive can be cut while the machine runs on, and a
// machine on its way down may still close its connections.
func (a *app) doubt(x *campaign.Examination) {
	told := x.Session.Ends[ledger.EndFIN] + x.Session.Ends[ledger.EndRST]
	if told == 0 {
		return
	}
	fmt.Fprintf(a.out, "note: %d of %d streams were told that their connection was over (fin, rst), which a machine without power cannot do; make sure that the server was not shut down in order\n",
		told, x.Session.Streams)
}

func exitCode(rep *report.Run) int {
	switch {
	case rep.AsExpected():
		return exitExpected
	case rep.Verdict == verifier.Inconclusive.String():
		return exitInconclusive
	}
	return exitUnexpected
}

func verifyReport(f *verifyFlags, book *campaign.Book, x *campaign.Examination) *report.Run {
	t := book.Index.Totals()
	rep := &report.Run{Schema: report.Schema, Run: book.Config.Run.String(), Bench: "by hand", Expected: verifier.Durable.String(),
		Verdict: x.Verdict().String(), Attested: f.attest, Control: report.Control{Kind: report.NoControl},
		Findings: x.Before.Plus(x.Counts()),
		Commits:  report.Commits{Acked: t.Acked, Refused: t.Refused, Unknown: t.Unknown, PerSecond: t.PerSecond()}}
	rep.Cycles.Planned = 1
	switch {
	case x.Reason == verifier.ReasonNone:
		rep.Cycles.Counted = 1
	default:
		rep.Cycles.Inconclusive, rep.Reason = 1, x.Reason
	}
	if x.Counts().Total() > 0 {
		rep.Cycles.Lossy = 1
	}
	if rep.Verdict != verifier.Inconclusive.String() {
		rep.Reason = verifier.ReasonNone
	}
	if x.Result != nil {
		rep.LossWindowMS = report.Milliseconds(x.Result.LossWindow)
	}
	rep.Bound = report.NewBound(rep.Cycles.Lossy, rep.Cycles.Counted)
	return rep
}

func (a *app) verifyText(book *campaign.Book, x *campaign.Examination, rep *report.Run) error {
	w := a.out
	fmt.Fprintf(w, "run %s: %d acked, %d refused, %d unknown, %.0f commits/s\n", rep.Run, rep.Commits.Acked, rep.Commits.Refused, rep.Commits.Unknown, rep.Commits.PerSecond)
	fmt.Fprintf(w, "last session %d: %d streams, ended: %s\n", x.Session.Session, x.Session.Streams, endsText(x.Session.Ends))
	if x.Result != nil {
		restarted := "was restarted since (its token is gone)"
		if !x.Evidence.Restarted {
			restarted = "was NOT restarted since: nothing is recorded in the ledger"
		}
		fmt.Fprintf(w, "server %s\n", restarted)
		rate := ""
		if s := x.Took.Seconds(); s > 0 && x.Result.Rows > 0 {
			rate = fmt.Sprintf(" (%.0f rows/s)", float64(x.Result.Rows)/s)
		}
		fmt.Fprintf(w, "compared %d surviving rows with %d acknowledged commits in %s%s\n", x.Result.Rows, x.Result.Acked, report.Duration(x.Took), rate)
	}
	if x.ScanErr != nil {
		fmt.Fprintf(w, "the comparison broke off: %v\n", x.ScanErr)
	}
	if n := x.Before.Total(); n > 0 {
		fmt.Fprintf(w, "found by earlier verifications: %s\n", report.CountsText(x.Before))
	}
	if x.Counts().Total() > 0 {
		fmt.Fprintf(w, "found now: %s\n", report.CountsText(x.Counts()))
		if err := report.WriteFindings(w, x.Result); err != nil {
			return err
		}
		if x.Result.LossWindow > 0 || x.Counts().LostTail > 0 {
			fmt.Fprintf(w, "loss window: %s from the oldest lost tail acknowledgement to the last acknowledgement\n", report.Duration(x.Result.LossWindow))
		}
	}
	if rep.Attested != "" {
		fmt.Fprintf(w, "attested by you: %s\n", rep.AttestedText())
		a.doubt(x)
	}
	_, err := fmt.Fprintln(w, "verdict: "+rep.Headline())
	return err
}
