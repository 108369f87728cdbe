package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"plugpull/internal/bench/loop"
	"plugpull/internal/doctor"
	"plugpull/internal/usage"
)

func (a *app) doctorCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "doctor [BENCH]",
		Short: "say which benches can run on this machine, what is missing, and the command that installs it",
		Long: `Looks at what each bench, or the one that is named, needs of this machine: embedded, lab, loop or vm.
Nothing is changed. What is missing is named with the command that mends it. Run it as the user who will
run the bench: what only root may see is not known otherwise.

Exit codes: 0 each bench can run, if only with a part of its scenarios; 2 usage; 3 one cannot, or it
cannot be told.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			name := strings.Join(args, "")
			if len(args) > 0 && !slices.Contains(doctor.Names(), name) {
				return usage.Errorf("unknown bench %q: want %s", name, strings.Join(doctor.Names(), ", "))
			}
			benches := doctor.Select(doctor.Examine(doctor.Look(c.Context(), loop.WorkDir())), name)
			if !doctor.AllAble(benches) {
				a.code = exitInconclusive
			}
			if asJSON {
				return doctor.WriteJSON(a.out, benches)
			}
			return doctor.WriteText(a.out, benches)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a bench, a line each, instead of the tables")
	return c
}
