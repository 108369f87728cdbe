package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"

	"plugpull/internal/campaign"
	"plugpull/internal/report"
	"plugpull/internal/simdrive"
	"plugpull/scenarios"
)

// builtinBench returns a bench that needs no file; nil when the name is none.
func builtinBench(name string) *scenarios.Bench {
	switch name {
	case string(scenarios.Embedded):
		return &scenarios.Bench{Name: name, Kind: scenarios.Embedded}
	case string(scenarios.Loop):
		// Its server ends with its drive, so that nothing is ever silent for long.
		return &scenarios.Bench{Name: name, Kind: scenarios.Loop, Timing: scenarios.Timing{Silence: 10 * time.Second, ServerWait: time.Minute}}
	}
	return nil
}

func loadBench(name string) (scenarios.Bench, error) {
	if b := builtinBench(name); b != nil {
		return *b, nil
	}
	b, err := loadLab(name)
	return *b, err
}

// source is how to name the job's scenario on a command line.
func (j *job) source() string {
	if g := j.head.Given; strings.ContainsFunc(g, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/._-", r)
	}) {
		return "'" + strings.ReplaceAll(g, "'", `'\''`) + "'"
	} else if g != "" {
		return g
	}
	return j.scenario.Name
}

// embeddedRun derives a run's id from its seed and scenario, so that the payloads, which follow
// from it, are the same in every replay.
func embeddedRun(seed uint64, scenario string) uuid.UUID {
	b := binary.LittleEndian.AppendUint64([]byte(scenario+"\x00"), seed)
	sum := sha256.Sum256(b)
	return uuid.NewHash(sha256.New(), uuid.NameSpaceOID, sum[:], 8)
}

// runID is derived from the seed on the bench that replays its cycles, and drawn elsewhere.
func (j *job) runID(name string) (uuid.UUID, error) {
	if j.bench.Kind == scenarios.Embedded {
		return embeddedRun(j.head.Seed, name), nil
	}
	return campaign.NewRun()
}

// control runs a durable scenario's planted fault first, in a folder of its own: unless
// it loses something, nothing shows that the bench can see a loss.
func (a *app) control(ctx context.Context, f *runFlags, j *job) (report.Control, error) {
	none := report.Control{Kind: report.NoControl}
	if f.cycle > 0 || j.bench.Kind == scenarios.Lab || j.scenario.Expect != scenarios.Durable || j.scenario.Control.Fault == nil {
		return none, nil
	}
	fault := *j.scenario.Control.Fault
	c := *j
	c.scenario.Expect = scenarios.Lossy
	// A plain drive but for the fault: what protects the scenario's own drive would hide it.
	d := j.scenario.Drive
	c.scenario.Drive = scenarios.Drive{Size: d.Size, InFile: d.InFile, Survive: simdrive.SurviveNone, Tear: 512,
		WriteLatency: d.WriteLatency, FlushLatency: d.FlushLatency, Faults: []simdrive.Fault{fault}}
	c.head.Cycles = j.scenario.Control.Cycles
	run, err := c.runID(j.scenario.Name + "/control")
	if err != nil {
		return none, err
	}
	c.head.Run = run.String()
	if c.folder, err = campaign.CreateFolder(filepath.Join(j.folder.Path, "control")); err != nil {
		return none, err
	}
	rep := c.finished()
	if rep == nil {
		rep, err = a.runOne(ctx, &runFlags{templates: f.templates}, &c, none, false, nil)
	}
	if err = errors.Join(err, c.folder.Close()); err != nil {
		return none, fmt.Errorf("control %s: %w", fault, err)
	}
	lost := rep.Findings.Total()
	return report.Control{Kind: fault.String(), Lost: lost, Cuts: rep.Cycles.Counted}, nil
}
