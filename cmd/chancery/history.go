package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/adminapi"
	"github.com/chancery-xds/chancery/internal/printable"
	"github.com/chancery-xds/chancery/revisions"
)

// A historyItem is a revision as history prints it.
type historyItem struct {
	Revision string    `json:"revision"`
	Time     time.Time `json:"time"`
	Author   string    `json:"author"`
	Message  string    `json:"message"`
	Source   string    `json:"source,omitempty"` // such as a revision of git
	Items    int       `json:"items"`
	Set      int       `json:"set"`
	Removed  int       `json:"removed"`
	Restores string    `json:"restores,omitempty"`

	Holds []adminapi.Hold `json:"holds,omitempty"` // groups that are frozen at it
}

// A pasting is what chancery history is told by its flags.
type pasting struct {
	output
	at      storeFlags
	limit   int
	timeout time.Duration
}

func historyCommand() *cobra.Command {
	var p pasting
	cmd := &cobra.Command{
		Use:   "history [TYPE/NAME] --store URL",
		Short: "List the revisions in a store, or those that changed a resource",
		Long: `History lists the revisions in a store, the newest first: who committed each, when, why, and
what it changed, and which groups are frozen at it. With TYPE/NAME, such as cluster/web, it lists those that set or removed this
resource, in whichever group.

Exit codes: 0 listed; 1 the store cannot be read; 2 wrong usage; 4 no revision that is kept has
had the resource.`,
		Example: `  chancery history --store file:/var/lib/chancery/store
  chancery history cluster/web --store etcd://e1:2379,e2:2379,e3:2379/prod -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return p.run(cmd, args) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	titled(f, "Store", p.at.flags)
	p.output.flags(cmd, "table", "wide", "json", "yaml", "jsonl", "name")
	f.IntVar(&p.limit, "limit", 50, "maximum `number` of revisions; 0: all")
	f.DurationVar(&p.timeout, "timeout", storeTime, "maximum `time` to wait for the store")
	plainUsage(cmd)
	return cmd
}

func (p *pasting) run(cmd *cobra.Command, args []string) error {
	if err := p.output.check(); err != nil {
		return err
	}
	if p.limit < 0 || p.timeout <= 0 {
		return errors.New("--limit must not be negative, and --timeout more than 0")
	}
	of := func(context.Context, *revisions.Repository, revisions.Revision) (bool, error) { return true, nil }
	if len(args) > 0 {
		t, name, err := resourceNamed(args[0])
		if err != nil {
			return err
		}
		of = changes(t.URL, name)
	}
	var all []historyItem
	err := withStore(cmd, &p.at, p.timeout, func(ctx context.Context, r *revisions.Repository) error {
		holds, err := r.Holds(ctx)
		if err != nil {
			return err
		}
		var wrong error
		err = r.History(ctx, func(rev revisions.Revision) bool {
			var is bool
			if is, wrong = of(ctx, r, rev); wrong != nil {
				return false
			}
			if is {
				all = append(all, itemOf(rev, holdsOf(holds)))
			}
			return p.limit == 0 || len(all) < p.limit
		})
		return errors.Join(err, wrong)
	})
	switch {
	case err != nil:
		return err
	case len(all) == 0 && len(args) > 0:
		return outcome{failure{fmt.Errorf("no revision that is kept has changed %s", args[0]), ""}, notFound}
	}
	return p.print(cmd, all)
}

// changes returns what says whether a revision changed a resource, for revisions from the newest on.
func changes(url, name string) func(context.Context, *revisions.Repository, revisions.Revision) (bool, error) {
	var is *revisions.Snapshot
	return func(ctx context.Context, r *revisions.Repository, rev revisions.Revision) (changed bool, err error) {
		if is == nil || is.Revision.Number != rev.Number {
			if is, err = r.At(ctx, rev.Number); err != nil {
				return false, err
			}
		}
		was := &revisions.Snapshot{}
		if rev.Number > 1 {
			if was, err = r.At(ctx, rev.Number-1); errors.Is(err, revisions.ErrNotFound) {
				was, err = is, nil // the oldest that is kept: nobody knows what it changed
			}
			if err != nil {
				return false, err
			}
		}
		is.Since(was, func(a, b *revisions.Item) bool {
			if a == nil {
				a = b
			}
			k := a.Key()
			changed = k.Type == url && k.Name == name
			return !changed
		})
		is = was
		return changed, nil
	}
}

func itemOf(r revisions.Revision, holds []adminapi.Hold) historyItem {
	h := historyItem{Revision: r.Number.String(), Time: r.Time.UTC(), Author: r.Author, Message: r.Message, Source: r.Source, Items: r.Items, Set: r.Set, Removed: r.Removed}
	if r.Restores > 0 {
		h.Restores = r.Restores.String()
	}
	for _, hold := range holds {
		if hold.Revision == h.Revision {
			h.Holds = append(h.Holds, hold)
		}
	}
	return h
}

func (p *pasting) print(cmd *cobra.Command, all []historyItem) error {
	w := p.page(cmd)
	if !p.people() {
		return data(&p.output, w, answered[historyItem]{adminapi.Version, "History", all}, all, func(h historyItem) string { return h.Revision })
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if !p.noHeaders {
		fmt.Fprint(t, "REVISION\tTIME\tAUTHOR\tSET\tREMOVED\t")
		if p.wide() {
			fmt.Fprint(t, "ITEMS\tSOURCE\t")
		}
		fmt.Fprintln(t, "MESSAGE")
	}
	for _, h := range all {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t", h.Revision, h.Time.Format(time.RFC3339), printable.Line(h.Author), h.Set, h.Removed)
		if p.wide() {
			fmt.Fprintf(t, "%d\t%s\t", h.Items, printable.Line(h.Source))
		}
		message := printable.Line(h.Message)
		if h.Restores != "" {
			message += " (content of " + h.Restores + ")"
		}
		fmt.Fprint(t, message)
		for _, hold := range h.Holds {
			fmt.Fprintf(t, " (group %s is frozen here by %s: %s)", printable.Line(hold.Group), printable.Line(hold.Author), printable.Line(hold.Message))
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return failure{err, ""}
	}
	return nil
}

func rollbackCommand() *cobra.Command {
	var c committing
	cmd := &cobra.Command{
		Use:   "rollback REV --store URL -m MESSAGE",
		Short: "Commit the content of an earlier revision of a store",
		Long: `Rollback makes a new revision with all of the content of an earlier one, such as r411. Nothing
of the history goes: a rollback can be rolled back. Servers of the store serve it as
soon as it is committed.

Exit codes: 0 committed, or nothing differs; 1 the store cannot be read or written; 2 wrong usage;
4 there is no such revision, or it is not kept; 5 somebody else has committed meanwhile.`,
		Example: `  chancery rollback r411 --store etcd://e1:2379,e2:2379,e3:2379/prod --store-ca ca.crt -m "the new timeout breaks web"`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("rollback needs one revision, not %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := revisions.ParseNumber(args[0])
			if err == nil {
				err = c.check()
			}
			if err != nil {
				return err
			}
			return withStore(cmd, &c.at, c.timeout, func(ctx context.Context, r *revisions.Repository) error {
				base, err := r.Head(ctx)
				if err != nil {
					return err
				}
				next, err := r.Restore(ctx, base, n, c.note)
				if err != nil {
					return err
				}
				return printCommitted(cmd.OutOrStdout(), base, next)
			})
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	c.flags(f)
	plainUsage(cmd)
	return cmd
}
