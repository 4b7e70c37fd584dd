package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cli/storeclient"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/text"
)

// keptRevisions is the default of --keep.
const keptRevisions = 1000

// Sweep returns the command sweep.
func Sweep() *cobra.Command {
	var at storeclient.Flags
	var keep int
	var dry bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "sweep --store URL",
		Short: "Remove old revisions from a store",
		Long: `Sweep removes the revisions of a store before the last --keep, and data that no revision uses.
The revision at which a group is frozen stays, with all later ones. Sweep does not touch
data that is not Chancery's. Other programs may commit and serve meanwhile. A rollback to a
removed revision is impossible.

Exit codes: 0 done, also if there was nothing to remove; 1 the store cannot be read or written;
2 wrong usage; 3 no etcd answers; 5 another program sweeps the store.`,
		Example: `  chancery sweep --store file:/var/lib/chancery/store --dry-run
  chancery sweep --store etcd://e1:2379,e2:2379,e3:2379/prod --store-ca ca.crt --keep 5000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if keep < 1 || timeout <= 0 {
				return errors.New("--keep must be 1 at least, and --timeout more than 0")
			}
			return storeclient.WithRepository(cmd, &at, timeout, func(ctx context.Context, r *revisions.Repository) error {
				sweep := r.Sweep
				if dry {
					sweep = r.Plan
				}
				s, err := sweep(ctx, keep)
				if errors.Is(err, revisions.ErrBusy) {
					return cli.FailWith(cli.Conflicted, errors.New("another program sweeps the store"), "try again when it has ended")
				}
				if s.Revisions+s.Packs > 0 || err == nil {
					printSwept(cmd.OutOrStdout(), s, dry)
				}
				for i, key := range s.Foreign {
					if i == 5 {
						fmt.Fprintf(cmd.ErrOrStderr(), "and %d more\n", len(s.Foreign)-i)
						break
					}
					fmt.Fprintf(cmd.ErrOrStderr(), "left alone, since it is not a key of Chancery: %s\n", text.Line(key))
				}
				return err
			})
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	cli.TitledFlags(f, "Store", at.Register)
	f.IntVar(&keep, "keep", keptRevisions, "`number` of revisions that stay, the newest included")
	f.BoolVar(&dry, "dry-run", false, "print what a sweep would remove, and remove nothing")
	f.DurationVar(&timeout, "timeout", storeclient.SweepTimeout, "maximum `time` to wait for the store")
	cli.PlainUsage(cmd)
	return cmd
}

// printSwept prints the amount of data that a sweep has removed, or would remove.
func printSwept(w io.Writer, s revisions.Swept, dry bool) {
	verb := "removed"
	if dry {
		verb = "to be removed"
	}
	fmt.Fprintf(w, "%s: %s and %s, %s\n", verb, text.Amount(s.Revisions, "revision"), text.Amount(s.Packs, "pack"), cli.BytesText(int(s.Bytes)))
	switch {
	case s.Held > 0:
		fmt.Fprintf(w, "kept: %s, at which a group is frozen, and all after it\n", s.Oldest)
	case s.Accepted > 0:
		fmt.Fprintf(w, "kept: %s, whose content clients accepted in the last day, and all after it\n", s.Oldest)
	case s.Oldest > 0:
		fmt.Fprintf(w, "kept: %s and all after it\n", s.Oldest)
	}
}
