package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"plugpull/internal/ledger"
)

func (a *app) ledgerCommand() *cobra.Command {
	c := &cobra.Command{Use: "ledger", Short: "look into a ledger", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(&cobra.Command{
		Use:   "show FILE",
		Short: "print a ledger as text, a line a record",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) (err error) {
			r, err := ledger.OpenReader(args[0])
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, r.Close()) }()
			return ledger.Show(a.out, r)
		},
	})
	return c
}

func (a *app) cleanCommand() *cobra.Command {
	var f dsnFlags
	c := &cobra.Command{
		Use:   "clean --dsn DSN",
		Short: "remove plugpull's schema from the server",
		Long: `Drops the schema that the DSN names, when it holds nothing but plugpull's tables. A ledger of
that run can then no longer be verified: it would find everything unreadable.
` + grantHelp,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.clean(c.Context(), &f) },
	}
	f.add(c)
	return c
}

func (a *app) clean(ctx context.Context, f *dsnFlags) error {
	dsn, err := f.parse()
	if err != nil {
		return err
	}
	db, err := openTarget(dsn, 0)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, greetWait)
	defer cancel()
	if err := db.Await(limited); err != nil {
		return err
	}
	if err := db.Drop(ctx); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "dropped the schema %s\n", dsn.Schema)
	return nil
}
