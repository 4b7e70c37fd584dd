package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/internal/adminapi"
	"github.com/chancery-xds/chancery/internal/ledger"
	"github.com/chancery-xds/chancery/internal/printable"
	"github.com/chancery-xds/chancery/revisions"
)

func freezeCommand() *cobra.Command {
	var c committing
	var at string
	cmd := &cobra.Command{
		Use:   "freeze GROUP --store URL -m MESSAGE",
		Short: "Serve a group of a store as it is in a revision, whatever is committed",
		Long: `Freeze has the servers of a store serve a group as it is in the newest revision, or in another one that
is kept: its resources, and which nodes get it. What is committed to it after that is in the
history, and is not served before "chancery unfreeze", or a rollout (chancery rollout). Other groups go on.
No revision that a group is frozen at is swept.

A group that is frozen already is from then on served of the other revision.

Exit codes: 0 frozen; 1 the store cannot be read or written; 2 wrong usage; 3 no etcd answers; 4 there is no such
revision, or no such group in it; 5 a rollout of the group is under way.`,
		Example: `  chancery freeze edge --store etcd://e1:2379,e2:2379,e3:2379/prod --store-ca ca.crt -m "no changes before the sale is over"
  chancery freeze edge --at r411 --store file:/var/lib/chancery/store -m "as it was on Monday"`,
		Args: oneGroup,
		RunE: func(cmd *cobra.Command, args []string) error {
			var n revisions.Number
			if at != "" {
				var err error
				if n, err = revisions.ParseNumber(at); err != nil {
					return fmt.Errorf("--at: %w", err)
				}
			}
			if err := c.check(); err != nil {
				return err
			}
			return withStore(cmd, &c.at, c.timeout, func(ctx context.Context, r *revisions.Repository) error {
				return freeze(ctx, cmd.OutOrStdout(), r, args[0], n, c.note)
			})
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	titled(f, "Store", c.at.flags)
	c.notes(f)
	f.StringVar(&at, "at", "", "serve the group as it is in `REV`, such as r411; default: the newest")
	plainUsage(cmd)
	return cmd
}

func oneGroup(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s needs one group, not %d", cmd.Name(), len(args))
	}
	return nil
}

// freeze has a group held at a revision; 0: the newest.
func freeze(ctx context.Context, w io.Writer, r *revisions.Repository, group string, n revisions.Number, note revisions.Note) error {
	s, err := ledger.At(ctx, r, n)
	if err != nil {
		return err
	}
	n = s.Revision.Number
	if !hasGroup(s, group) {
		return outcome{failure{fmt.Errorf("%s has no group %q", n, printable.Line(group)), "the groups are " + printable.Line(strings.Join(groupsOf(s), ", "))}, notFound}
	}
	if err := r.SetHolds(ctx, func(_ revisions.Number, holds map[string]revisions.Hold) error {
		if err := rolling(group, holds[group]); err != nil {
			return err
		}
		holds[group] = revisions.Hold{Number: n, Author: note.Author, Message: note.Message, Time: time.Now()}
		return nil
	}); err != nil {
		return err
	}
	fmt.Fprintf(w, "group %s is frozen at %s\n", printable.Line(group), n)
	return nil
}

// rolling is an error if a rollout of a group is under way.
func rolling(group string, h revisions.Hold) error {
	if h.Next == nil {
		return nil
	}
	return outcome{failure{fmt.Errorf("rollout %s of group %s is under way", h.Next.Rollout, group), "chancery rollout abort " + h.Next.Rollout + " ends it"}, conflicted}
}

func hasGroup(s *revisions.Snapshot, group string) bool { return slices.Contains(groupsOf(s), group) }

// groupsOf are the groups in a revision, by name.
func groupsOf(s *revisions.Snapshot) []string {
	all := map[string]bool{groups.Default: true}
	for it := range s.All {
		all[it.Group] = true
	}
	return slices.Sorted(maps.Keys(all))
}

func unfreezeCommand() *cobra.Command {
	var c committing
	cmd := &cobra.Command{
		Use:   "unfreeze GROUP --store URL",
		Short: "Serve the newest revision of a group again",
		Long: `Unfreeze has the servers of a store serve a frozen group as it is in the newest revision, at once.

Exit codes: 0 done; 1 the store cannot be read or written; 2 wrong usage; 3 no etcd answers; 4 the group is not
frozen; 5 a rollout of the group is under way.`,
		Example: `  chancery unfreeze edge --store file:/var/lib/chancery/store`,
		Args:    oneGroup,
		RunE: func(cmd *cobra.Command, args []string) error {
			return withStore(cmd, &c.at, c.timeout, func(ctx context.Context, r *revisions.Repository) error {
				group := args[0]
				var was revisions.Hold
				var newest revisions.Number
				if err := r.SetHolds(ctx, func(n revisions.Number, holds map[string]revisions.Hold) error {
					var is bool
					if was, is = holds[group]; !is {
						return outcome{failure{fmt.Errorf("group %s is not frozen", printable.Line(group)), "chancery history says which are"}, notFound}
					}
					newest = n
					delete(holds, group)
					return rolling(group, was)
				}); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "group %s is served as in %s, and was frozen at %s\n", printable.Line(group), newest, was.Number)
				return nil
			})
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	titled(f, "Store", c.at.flags)
	f.DurationVar(&c.timeout, "timeout", storeTime, "maximum `time` to wait for the store")
	plainUsage(cmd)
	return cmd
}

// printFrozen says which changes are not served.
func printFrozen(w io.Writer, held []adminapi.HeldChanges) {
	for _, h := range held {
		text := "frozen at " + h.Revision
		if h.Message != "" {
			text += " by " + printable.Line(h.Author) + ": " + printable.Line(h.Message)
		}
		fmt.Fprintf(w, "not served: %s of group %s, which is %s\n", amount(h.Changes, "change"), printable.Line(h.Group), text)
	}
}

// heldNote says in a few words which groups are held.
func heldNote(holds map[string]revisions.Hold) string {
	var all []string
	for i, h := range ledger.Holds(holds) {
		if i == 5 {
			all = append(all, "…")
			break
		}
		text := h.Group + " at " + h.Revision
		if h.Next != "" {
			text += " (rollout " + h.Rollout + " to " + h.Next + ")"
		}
		all = append(all, text)
	}
	if all == nil {
		return ""
	}
	return "; frozen: " + strings.Join(all, ", ")
}
