package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/text"
)

// keptRevisions is how many revisions a sweep keeps by default.
const keptRevisions = 1000

// sweepTime is the time limit of a sweep, for a store that was never swept.
const sweepTime = 10 * time.Minute

func sweepCommand() *cobra.Command {
	var at storeFlags
	var keep int
	var dry bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "sweep --store URL",
		Short: "Remove old revisions from a store",
		Long: `Sweep removes the revisions of a store before the last --keep, and all that nothing refers to any
more. What a group is frozen at stays, with all that came after it, and so does what is no part of a
revision. Others may commit and serve meanwhile. Nobody can roll back to a revision that is gone.

Exit codes: 0 done, also if nothing is to be removed; 1 the store cannot be read or written; 2 wrong usage;
3 no etcd answers; 5 another program sweeps the store.`,
		Example: `  chancery sweep --store file:/var/lib/chancery/store --dry-run
  chancery sweep --store etcd://e1:2379,e2:2379,e3:2379/prod --store-ca ca.crt --keep 5000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if keep < 1 || timeout <= 0 {
				return errors.New("--keep must be 1 at least, and --timeout more than 0")
			}
			return withStore(cmd, &at, timeout, func(ctx context.Context, r *revisions.Repository) error {
				sweep := r.Sweep
				if dry {
					sweep = r.Plan
				}
				s, err := sweep(ctx, keep)
				if errors.Is(err, revisions.ErrBusy) {
					return failWith(conflicted, errors.New("another program sweeps the store"), "try again when it has ended")
				}
				if s.Revisions+s.Packs > 0 || err == nil {
					printSwept(cmd.OutOrStdout(), s, dry)
				}
				for i, key := range s.Foreign {
					if i == 5 {
						fmt.Fprintf(cmd.ErrOrStderr(), "and %d more\n", len(s.Foreign)-i)
						break
					}
					fmt.Fprintf(cmd.ErrOrStderr(), "left alone, since it is no key of Chancery: %s\n", text.Line(key))
				}
				return err
			})
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	titled(f, "Store", at.flags)
	f.IntVar(&keep, "keep", keptRevisions, "`number` of revisions that stay, the newest included")
	f.BoolVar(&dry, "dry-run", false, "say what would be removed, and remove nothing")
	f.DurationVar(&timeout, "timeout", sweepTime, "maximum `time` to wait for the store")
	plainUsage(cmd)
	return cmd
}

// printSwept says what a sweep has removed, or would.
func printSwept(w io.Writer, s revisions.Swept, dry bool) {
	verb := "removed"
	if dry {
		verb = "to be removed"
	}
	fmt.Fprintf(w, "%s: %s and %s, %s\n", verb, amount(s.Revisions, "revision"), amount(s.Packs, "pack"), bytesText(int(s.Bytes)))
	switch {
	case s.Held > 0:
		fmt.Fprintf(w, "kept: %s, which a group is frozen at, and all after it\n", s.Oldest)
	case s.Oldest > 0:
		fmt.Fprintf(w, "kept: %s and all after it\n", s.Oldest)
	}
}

// sweepEvery is the time between two sweeps of a server.
const sweepEvery = time.Hour

// A sweeper sweeps the store of a server from time to time.
type sweeper struct {
	repo  *revisions.Repository
	keep  int
	log   *slog.Logger
	swept func(revisions.Swept) // is told of each sweep; nil: nobody is
}

// run sweeps until ctx is done, or the store says that this server may not. Nothing is urgent, so
// servers that were started together spread over the hour, and few of them find something to do.
func (s *sweeper) run(ctx context.Context) {
	said := ""
	for wait := rand.N(sweepEvery / 4); ; wait = sweepEvery + rand.N(sweepEvery/4) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		err := s.sweep(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, revisions.ErrDenied):
			s.log.Warn("this server may not sweep the store, and tries no more", "error", err)
			return
		case err == nil, errors.Is(err, revisions.ErrBusy):
			said = ""
		case err.Error() != said:
			said = err.Error()
			s.log.Warn("the store is not swept", "error", err)
		}
	}
}

// sweep sweeps if a tenth more is there than is to be kept: a sweep reads all that stays.
func (s *sweeper) sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sweepEvery/2)
	defer cancel()
	due, err := s.repo.Due(ctx, s.keep)
	if err != nil || due < max(1, s.keep/10) {
		return err
	}
	did, err := s.repo.Sweep(ctx, s.keep)
	if did.Revisions+did.Packs > 0 {
		s.log.Info("the store is swept", "oldest", did.Oldest.String(), "revisions", did.Revisions, "packs", did.Packs, "bytes", did.Bytes)
		if s.swept != nil {
			s.swept(did)
		}
	}
	return err
}
