package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/control"
	"github.com/chancery-xds/chancery/internal/lastgood"
)

func reloadCommand() *cobra.Command {
	var root string
	var approve bool
	cmd := &cobra.Command{
		Use:   "reload DIR",
		Short: "Have a running server load its directory again",
		Long: `Reload tells the chancery serve of DIR, on this machine and of this user, to load
its files at once, waits until it has, and says what it did. It is how a removal
is approved that the server has refused: --allow-mass-delete, for this one time.

The server is found by the folder that it keeps for DIR in its --state-dir.

Exit codes: 0 loaded; 1 not loaded, and why; 2 wrong use.`,
		Example: `  chancery reload /etc/chancery
  chancery reload /etc/chancery --allow-mass-delete`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("reload wants the one directory that is served, not %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if root == "" {
				return errors.New("--state-dir: a server that keeps nothing on disk cannot be reached")
			}
			folder, err := lastgood.Folder(root, args[0])
			if err != nil {
				return failure{err, ""}
			}
			r, err := control.Ask(cmd.Context(), folder, approve)
			switch {
			case errors.Is(err, control.ErrNobody):
				return failure{fmt.Errorf("no server of %s is running", args[0]), "DIR and --state-dir must be those of chancery serve, and the user the same"}
			case err != nil:
				return failure{err, ""}
			}
			for _, e := range r.Errors {
				fmt.Fprintln(cmd.ErrOrStderr(), e)
			}
			if len(r.Errors) > 0 {
				return failure{errors.New("not loaded, what was good before stays"), ""}
			}
			fmt.Fprintf(cmd.OutOrStdout(), "ok: %s in %s, %d set, %d removed\n", count(r.Resources, "resource"), count(r.Files, "file"), r.Set, r.Removed)
			if r.Held > 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "%s gone from the files: removed when a second look agrees, or with --allow-mass-delete at once\n", count(r.Held, "resource"))
			}
			return nil
		},
	}
	stateDir(cmd.Flags(), &root)
	cmd.Flags().BoolVar(&approve, "allow-mass-delete", false, "let this one load remove whatever is gone from the files, at once")
	return cmd
}
