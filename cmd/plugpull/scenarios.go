package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"plugpull/scenarios"
)

func (a *app) scenariosCommand() *cobra.Command {
	c := &cobra.Command{Use: "scenarios", Short: "list, show and check scenarios and bench files", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(
		&cobra.Command{Use: "list", Short: "print name, benches and expectation of the built-in scenarios, separated by tabs", Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error { return a.listScenarios() }},
		&cobra.Command{Use: "show NAME|sample|sample-loop|sample-bench", Short: "print a scenario's file, or a commented sample to start from", Args: cobra.ExactArgs(1),
			RunE: func(_ *cobra.Command, args []string) error { return a.showScenario(args[0]) }},
		a.validateCommand())
	return c
}

func (a *app) listScenarios() error {
	all, err := scenarios.Builtin()
	if err != nil {
		return err
	}
	for _, s := range all {
		kinds := make([]string, len(s.Benches))
		for i, b := range s.Benches {
			kinds[i] = string(b)
		}
		fmt.Fprintf(a.out, "%s\t%s\t%s\n", s.Name, strings.Join(kinds, ","), s.Expect)
	}
	return nil
}

func (a *app) showScenario(name string) error {
	text := scenarios.SampleScenario()
	switch name {
	case "sample":
	case "sample-loop":
		text = scenarios.SampleLoop()
	case "sample-bench":
		text = scenarios.SampleBench()
	default:
		s, err := scenarios.Load(name)
		if err != nil {
			return err
		}
		text = s.Source
	}
	_, err := a.out.Write(text)
	return err
}

func (a *app) validateCommand() *cobra.Command {
	var bench bool
	c := &cobra.Command{Use: "validate FILE…", Short: "check scenario files, or with --bench bench files", Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			for _, path := range args {
				if err := validate(path, bench); err != nil {
					return err
				}
				fmt.Fprintf(a.out, "%s: ok\n", path)
			}
			return nil
		}}
	c.Flags().BoolVar(&bench, "bench", false, "the files are bench files")
	return c
}

func validate(path string, bench bool) error {
	if bench {
		_, err := scenarios.LoadBench(path)
		return err
	}
	_, err := scenarios.Load(path)
	return err
}
