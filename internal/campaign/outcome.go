package campaign

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"plugpull/internal/database"
	"plugpull/internal/report"
	"plugpull/verifier"
)

// report sums up the run.
func (r *Runner) report(failed error) *report.Run {
	t := r.Book.Index.Totals()
	rep := &report.Run{Schema: report.Schema, Run: r.Book.Config.Run.String(), Scenario: r.Plan.Scenario, Bench: r.BenchName, Stack: r.Stack,
		Seed: r.Plan.Seed, Expected: r.Plan.Expected, Findings: t.Findings.Plus(r.pending), Folder: r.Folder.Path,
		Commits: report.Commits{Acked: t.Acked, Refused: t.Refused, Unknown: t.Unknown, PerSecond: t.PerSecond()},
		Control: r.Control}
	if r.ends() {
		// What an interrupted cycle committed is never verified, and what it recorded may be a
		// part. What was found is found once: no cycle goes on with a device that showed it.
		rep.Commits.Acked, rep.Findings = 0, verifier.Counts{}
		for _, res := range r.results {
			rep.Commits.Acked += res.Acked
		}
		for _, res := range slices.Concat(r.results, r.looks) {
			rep.Findings = rep.Findings.Plus(res.Counts)
		}
	}
	rep.Cycles.Planned, rep.Cycles.Interrupted = r.Plan.Cycles, r.void
	var window, bound time.Duration
	var witness report.Witness
	reasons := map[verifier.Reason]int{}
	for _, res := range r.results {
		window, bound = max(window, res.LossWindow), max(bound, res.WindowBound)
		if res.Counts.Total()+res.Witness.Total() > 0 {
			rep.Cycles.Lossy++
			if rep.Replay == "" {
				rep.Replay = res.Replay
			}
		}
		witness.Acked += res.WitnessAcked
		witness.Findings = witness.Findings.Plus(res.Witness)
		switch {
		case res.Reason == verifier.ReasonNone:
			rep.Cycles.Counted++
			rep.Attested = string(res.Cut.Attest)
			if res.Cut.Proven {
				rep.Attested = ""
			}
		default:
			rep.Cycles.Inconclusive++
			reasons[res.Reason]++
		}
	}
	for _, look := range r.looks {
		if r.ends() && !look.clean() {
			rep.Cycles.Lossy++
			window, bound = max(window, look.LossWindow), max(bound, look.WindowBound)
			witness.Findings = witness.Findings.Plus(look.Witness)
		}
	}
	rep.LossWindowMS, rep.LossWindowBoundMS = report.Milliseconds(window), report.Milliseconds(bound)
	rep.Bound = report.NewBound(rep.Cycles.Lossy, rep.Cycles.Counted)
	if r.Load.Witnesses > 0 {
		rep.Witness = &witness
	}
	rep.Attribute()
	rep.Split = r.split()
	if r.refused != nil && len(r.results) == 0 {
		rep.Refusal = r.refused.Error()
	}
	rep.Verdict, rep.Reason = verdict(rep, reasons, failed)
	return rep
}

// split returns the medians of the cycles' phases.
func (r *Runner) split() []report.Phase {
	all := map[string][]time.Duration{}
	for _, res := range r.results {
		for phase, took := range res.Split {
			all[phase] = append(all[phase], took)
		}
	}
	var list []report.Phase
	for phase, took := range all {
		if len(took)*2 < len(r.results) {
			continue // of some cycles only, such as a renewal
		}
		slices.Sort(took)
		list = append(list, report.Phase{Name: phase, MedianMS: report.Milliseconds(took[len(took)/2])})
	}
	slices.SortFunc(list, func(a, b report.Phase) int {
		return cmp.Or(cmp.Compare(b.MedianMS, a.MedianMS), cmp.Compare(a.Name, b.Name))
	})
	return list
}

func verdict(rep *report.Run, reasons map[verifier.Reason]int, failed error) (string, verifier.Reason) {
	switch {
	case rep.Findings.Total() > 0, rep.Witness != nil && rep.Witness.Findings.Total() > 0:
		return verifier.Lossy.String(), verifier.ReasonNone
	case rep.Refusal != "":
		return verifier.RefusedSetting.String(), verifier.ReasonNone
	case errors.Is(failed, database.ErrNoServer):
		return verifier.Inconclusive.String(), verifier.ReasonNoServer
	case failed != nil && !errors.Is(failed, ErrInterrupted):
		return verifier.Inconclusive.String(), verifier.ReasonFailed
	case rep.Control.Kind != report.NoControl && rep.Control.Lost == 0:
		return verifier.Inconclusive.String(), verifier.ReasonControlFailed
	case rep.Cycles.Counted > 0:
		return verifier.Durable.String(), verifier.ReasonNone
	}
	most := verifier.ReasonNoCycles
	for reason, n := range reasons {
		if n > reasons[most] || n == reasons[most] && reason < most {
			most = reason
		}
	}
	if errors.Is(failed, ErrInterrupted) && len(reasons) == 0 {
		most = verifier.ReasonInterrupted
	}
	return verifier.Inconclusive.String(), most
}
