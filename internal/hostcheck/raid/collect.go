package raid

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"plugpull/internal/hostcheck"
)

// toolTime is how long one tool may take for all that it is asked. Tools wait for a controller's firmware,
// which can take many seconds while it is busy.
const toolTime = 20 * time.Second

// Collect finds which tools the host has, asks them for their controllers and returns these, with findings on
// what could not be read. Named tools (arcconf, storcli2, storcli, megacli, ssacli) are asked alone, and are
// missed when they are not there; without names all are tried, and none is missed.
//
// It runs only commands that list. Tools are asked at the same time, each with a deadline of its own within
// ctx; one that hangs or fails leaves an UNKNOWN finding. Where several tools tell of one controller, by its
// serial number, the first in the order above is used. It blocks until all have answered or given up.
func Collect(ctx context.Context, r hostcheck.Runner, tools ...string) ([]Controller, []hostcheck.Finding) {
	return collector{r, toolTime}.collect(ctx, tools)
}

type collector struct {
	runner hostcheck.Runner
	time   time.Duration
}

// tool is a family of programs that take the same arguments.
type tool struct {
	name     string
	programs []string // tried in this order
	read     func(*session) []Controller
}

// The vendors' packages install outside PATH, hence the paths.
var families = [][]tool{
	{{"arcconf", []string{"arcconf", "/usr/StorMan/arcconf", "/usr/Arcconf/arcconf"}, readArcconf}},
	{{"storcli2", []string{"storcli2", "/opt/MegaRAID/storcli2/storcli2", "perccli2", "/opt/MegaRAID/perccli2/perccli2"}, readStorCLI}},
	// These tell of the same controllers: the first that finds any is used.
	{
		{"storcli", []string{"storcli64", "storcli", "/opt/MegaRAID/storcli/storcli64"}, readStorCLI},
		{"perccli", []string{"perccli64", "perccli", "/opt/MegaRAID/perccli/perccli64"}, readStorCLI},
		{"megacli", []string{"MegaCli64", "MegaCli", "megacli", "/opt/MegaRAID/MegaCli/MegaCli64"}, readMegaCli},
	},
	{{"ssacli", []string{"ssacli", "hpssacli", "hpacucli"}, readSSA}},
}

func (c collector) collect(ctx context.Context, wanted []string) ([]Controller, []hostcheck.Finding) {
	type answer struct {
		controllers []Controller
		findings    findings
	}
	answers := make([]answer, len(families))
	var wg sync.WaitGroup
	for i, family := range families {
		wg.Go(func() {
			for _, t := range family {
				if len(wanted) > 0 && !slices.Contains(wanted, t.name) {
					continue
				}
				found, trouble := c.ask(ctx, t, len(wanted) > 0)
				if len(found) > 0 {
					answers[i] = answer{found, trouble} // what an earlier tool of the family could not do is made up for
					return
				}
				answers[i].findings = append(answers[i].findings, trouble...)
			}
		})
	}
	wg.Wait()
	var list []Controller
	var all findings
	for _, a := range answers {
		for _, found := range a.controllers {
			if !slices.ContainsFunc(list, func(c Controller) bool { return found.Serial != "" && c.Serial == found.Serial }) {
				list = append(list, found)
			}
		}
		all = append(all, a.findings...)
	}
	for _, name := range wanted {
		if !known(name) {
			all.add(hostcheck.Unknown, "raid_tool_unknown", "%q is no tool that is known here; known are %s", name, strings.Join(names(), ", "))
		}
	}
	return list, all
}

func names() []string {
	var list []string
	for _, family := range families {
		for _, t := range family {
			list = append(list, t.name)
		}
	}
	return list
}

func known(name string) bool { return slices.Contains(names(), name) }

// ask asks one tool, within its time.
func (c collector) ask(ctx context.Context, t tool, wanted bool) ([]Controller, findings) {
	ctx, cancel := context.WithTimeout(ctx, c.time)
	defer cancel()
	s := &session{ctx: ctx, runner: c.runner, tool: t}
	found := t.read(s)
	if s.program == "" && wanted && len(s.findings) == 0 {
		s.findings.add(hostcheck.Unknown, "raid_tool_missing", "%s is not installed on %s: what it would say of the controllers is not known", t.name, c.runner.Describe())
	}
	return found, s.findings
}

// session is one tool's turn.
type session struct {
	ctx      context.Context
	runner   hostcheck.Runner
	tool     tool
	program  string // the one that is there, "" until one is found
	findings findings
	late     bool // the time ran out, which is among the findings
}

// first runs the first command with each of the tool's programs until one is there. Nil when none is, or when
// it failed, which is then among the findings.
func (s *session) first(args ...string) []byte {
	for _, program := range s.tool.programs {
		out, err := s.runner.Run(s.ctx, program, args...)
		if errors.Is(err, hostcheck.ErrNotInstalled) || errors.Is(err, hostcheck.ErrNotSaved) {
			continue
		}
		s.program = program
		return s.result(out, err, args)
	}
	return nil
}

// run runs a further command. Nil when it failed, which is then among the findings.
func (s *session) run(args ...string) []byte {
	out, err := s.runner.Run(s.ctx, s.program, args...)
	return s.result(out, err, args)
}

// result takes the output of a command also when it exits with another status than 0: these tools do so for
// an adapter without a battery, too.
func (s *session) result(out hostcheck.Output, err error, args []string) []byte {
	command := hostcheck.CommandLine(s.program, args...)
	switch {
	case err != nil && s.ctx.Err() != nil && s.late:
	case err != nil && s.ctx.Err() != nil:
		s.late = true
		s.findings.add(hostcheck.Unknown, "raid_tool_timeout", "%s did not answer in time: what it would say is not known; run it by hand", command)
	case err != nil:
		s.findings.add(hostcheck.Unknown, "raid_tool_failed", "%s could not be run (%v): what it would say is not known", command, err)
	case len(out.Stdout) == 0:
		s.findings.add(hostcheck.Unknown, "raid_tool_failed", "%s said nothing (exit status %d%s); run it by hand as root", command, out.Code, quoted(firstLine(out.Stderr)))
	default:
		return out.Stdout
	}
	return nil
}

// unreadable notes an output that the parser did not know.
func (s *session) unreadable(err error, out []byte) {
	s.findings.add(hostcheck.Unknown, "raid_tool_unreadable", "what %s says could not be read%s: %v; run it by hand as root", s.program, quoted(firstLine(out)), err)
}

func firstLine(out []byte) string {
	for _, line := range lines(out) {
		if text := strings.ToValidUTF8(strings.TrimSpace(line), "?"); text != "" {
			return fmt.Sprintf("%.120s", text)
		}
	}
	return ""
}
