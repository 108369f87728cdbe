package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/google/uuid"

	"plugpull/internal/bench/lab"
	"plugpull/internal/bench/loop"
	"plugpull/internal/campaign"
	"plugpull/internal/database/mysql"
	"plugpull/internal/ledger"
	"plugpull/internal/report"
	"plugpull/internal/usage"
	"plugpull/internal/workload"
	"plugpull/powerctl"
	"plugpull/scenarios"
)

// book opens the run's ledger, or makes it.
func (j *job) book() (*campaign.Book, error) {
	book, err := campaign.OpenBook(j.folder.Ledger())
	// A kill within its creation leaves a ledger in which nothing was recorded.
	if errors.Is(err, ledger.ErrShortHeader) || errors.Is(err, ledger.ErrNoConfig) {
		if err := os.Remove(j.folder.Ledger()); err != nil {
			return nil, fmt.Errorf("remove the empty ledger: %w", err)
		}
		err = fs.ErrNotExist
	}
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return book, err
	}
	run, err := uuid.Parse(j.head.Run)
	if err != nil {
		return nil, fmt.Errorf("%s/run.json: run: %w", j.folder.Path, err)
	}
	cfg := ledger.Config{Database: "sqlite", Schema: "main"}
	switch j.bench.Kind {
	case scenarios.Loop:
		cfg.Database, cfg.Schema = "mysql", loop.Schema
	case scenarios.Lab:
		dsn, err := mysql.ParseDSN(j.bench.Database.DSN)
		if err != nil {
			return nil, usage.Wrap(err)
		}
		cfg.Database, cfg.Schema = "mysql", dsn.Schema
	}
	l := j.scenario.Load
	cfg.Params = workload.Params{Run: run, Profile: l.Profile, PayloadMin: l.PayloadMin, PayloadMax: l.PayloadMax, Window: l.Window}
	return campaign.CreateBook(j.folder.Ledger(), cfg)
}

// stepFound is the journal's line of the outlet's state before the run.
const stepFound = "found"

// power reads in the journal in which state the run found the outlet, and whether
// an earlier process was killed between an off and the on after it.
func (j *job) power() (found powerctl.State, unsettled bool, err error) {
	steps, err := j.folder.Steps()
	for _, s := range steps {
		switch s.Step {
		case stepFound:
			// Of a word that is none it stays unknown, and is read again.
			_ = found.UnmarshalText([]byte(s.Detail))
		case "off", "off done", "on", "leave":
			unsettled = true
		default:
			unsettled = false
		}
	}
	return found, unsettled, err
}

// benchDSN adds the password to a bench's DSN: from its password file, or from
// PLUGPULL_DSN when that names the same database.
func benchDSN(b *scenarios.Bench) (mysql.DSN, error) {
	dsn, err := parseDSN(b.Database.DSN, false, b.Database.PasswordFile)
	env := os.Getenv("PLUGPULL_DSN")
	if err != nil || env == "" || b.Database.PasswordFile != "" {
		return dsn, err
	}
	withPassword, err := parseDSN(env, true, "")
	if err != nil {
		return dsn, fmt.Errorf("PLUGPULL_DSN: %w", err)
	}
	if withPassword.String() != dsn.String() {
		return dsn, usage.Errorf("PLUGPULL_DSN names %s, the bench file %s: make them the same, or unset PLUGPULL_DSN", withPassword, dsn)
	}
	return withPassword, nil
}

// dropOther drops the schema that another run left behind; wait bounds the wait for
// the server, which may have to start first.
func dropOther(ctx context.Context, b *lab.Bench, db mysql.Target, wait time.Duration) error {
	if err := b.Ready(ctx); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if err := db.Await(limited); err != nil {
		return err
	}
	return db.Drop(ctx)
}

// progress shows a run's steps on one line, or a line a cycle off a terminal.
func (a *app) progress(line *statusLine) func(campaign.Progress) {
	var lastCycle uint32
	var lastPhase string
	before := -1 // cycles of earlier processes
	return func(p campaign.Progress) {
		if before < 0 {
			before = p.Done
		}
		if !line.tty && (p.Phase != "verify" || p.Cycle == lastCycle && p.Phase == lastPhase) {
			return
		}
		lastCycle, lastPhase = p.Cycle, p.Phase
		acked := p.Totals.Acked
		rate := p.Totals.PerSecond()
		if p.Load != nil {
			acked += p.Load.Acked
			rate = p.Load.PerSecond()
		}
		left := "?"
		if n := p.Done - before; n > 0 {
			left = report.Duration((p.Elapsed / time.Duration(n) * time.Duration(p.Planned-p.Done)).Round(time.Second))
		}
		line.show(fmt.Sprintf("%s  cycle %d of %d  %s  %d acked  %.0f commits/s  findings: %s  %s left",
			p.Scenario, p.Done+1, p.Planned, p.Phase, acked, rate, report.CountsText(p.Totals.Findings), left))
	}
}
