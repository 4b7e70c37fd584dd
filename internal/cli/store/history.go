package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/admin/api"
	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cli/storeclient"
	"github.com/chancery-xds/chancery/internal/cluster/revisionapi"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

// historyFlags are the flags of chancery history.
type historyFlags struct {
	cli.Output
	storeclient.Access
	limit   int
	timeout time.Duration
}

// History returns the command history.
func History() *cobra.Command {
	var p historyFlags
	cmd := &cobra.Command{
		Use:   "history [TYPE/NAME] [--store URL]",
		Short: "List the revisions in a store, or those that changed a resource",
		Long: `History lists the revisions in a store, the newest first: author, time, message and number of
changes of each, and the groups that are frozen at it. With TYPE/NAME, such as cluster/web, it
lists the revisions that set or removed this resource, in any group. Without --store it asks
the server of a store at --admin.

Exit codes: 0 listed; 1 the store cannot be read; 2 wrong usage; 3 no server answers; 4 no
kept revision has changed the resource, or the server has no store.`,
		Example: `  chancery history --store file:/var/lib/chancery/store
  chancery history cluster/web --store etcd://e1:2379,e2:2379,e3:2379/prod -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return p.run(cmd, args) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	p.Access.Register(f)
	p.Output.Register(cmd, "table", "wide", "json", "yaml", "jsonl", "name")
	f.IntVar(&p.limit, "limit", 50, "maximum `number` of revisions; 0: all")
	f.DurationVar(&p.timeout, "timeout", storeclient.Timeout, "maximum `time` to wait for the store")
	cli.ServerUsage(cmd)
	return cmd
}

func (p *historyFlags) run(cmd *cobra.Command, args []string) error {
	if err := p.Output.Check(); err != nil {
		return err
	}
	if p.limit < 0 || p.timeout <= 0 {
		return errors.New("--limit must not be negative, and --timeout more than 0")
	}
	typ, url, name := "", "", ""
	if len(args) > 0 {
		t, n, err := cli.ParseResource(args[0])
		if err != nil {
			return err
		}
		typ, url, name = cli.TypeInPath(t), t.URL, n
	}
	h, err := storeclient.Ask(cmd, &p.Access, p.timeout, func(ctx context.Context, r *revisions.Repository) (*api.History, error) {
		return revisionapi.History(ctx, r, url, name, p.limit)
	}, func(ctx context.Context, d *adminclient.Client) (*api.History, error) {
		return d.Revisions(ctx, typ, name, cmp.Or(p.limit, maxLimit))
	})
	switch {
	case err != nil:
		return err
	case len(h.Items) == 0 && len(args) > 0:
		return cli.FailWith(cli.NotFound, fmt.Errorf("no kept revision has changed %s", args[0]), "chancery get "+typ+" lists the served resources")
	}
	return p.print(cmd, h)
}

// maxLimit is the maximum number of items that a server returns.
const maxLimit = 100_000

func (p *historyFlags) print(cmd *cobra.Command, h *api.History) error {
	w := p.Page(cmd)
	if !p.ForPeople() {
		return cli.PrintData(&p.Output, w, h, h.Items, func(r api.Revision) string { return r.Revision })
	}
	if len(h.Items) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "The store has no revision yet.")
	}
	t := cli.Table{Headers: []string{"REVISION", "TIME", "AUTHOR", "SET", "REMOVED"}}
	if p.Wide() {
		t.Headers = append(t.Headers, "ITEMS", "SOURCE")
	}
	t.Headers = append(t.Headers, "MESSAGE")
	for _, r := range h.Items {
		cells := []string{r.Revision, r.Time.Format(time.RFC3339), r.Author, strconv.Itoa(r.Set), strconv.Itoa(r.Removed)}
		if p.Wide() {
			cells = append(cells, strconv.Itoa(r.Items), r.Source)
		}
		message := []string{r.Message}
		if r.Restores != "" {
			message = append(message, "(content of "+r.Restores+")")
		}
		for _, h := range r.Holds {
			message = append(message, fmt.Sprintf("(group %s is frozen here by %s: %s)", h.Group, h.Author, h.Message))
		}
		t.Row(append(cells, strings.Join(message, " "))...)
	}
	t.Print(w, &p.Output)
	return nil
}

// Rollback returns the command rollback.
func Rollback() *cobra.Command {
	var c commitFlags
	cmd := &cobra.Command{
		Use:   "rollback REV [-m MESSAGE] [--store URL]",
		Short: "Commit the content of an earlier revision of a store",
		Long: `Rollback creates a revision with the whole content of an earlier one, such as r411. The history
stays: a rollback can be rolled back. Servers of the store serve the new revision as soon as it
is committed, except for frozen groups: rollback first names these groups, with the command that
serves the revision to their nodes. Rollback warns of values that Envoy refuses. Without --store it
asks the server of a store at --admin, as apply does. That server also warns of content that its
clients refuse, and of a revision whose rollout was rolled back.

Exit codes: 0 committed, or nothing differs; 1 the store cannot be read or written; 2 wrong usage;
3 no server answers, or it denies the commit; 4 the revision does not exist, or is not kept;
5 another commit came first.`,
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
				err = c.checkOptional()
			}
			if err != nil {
				return err
			}
			c.note.Message = cmp.Or(c.note.Message, "rollback to "+n.String())
			done, err := storeclient.Ask(cmd, &c.Access, c.timeout, func(ctx context.Context, r *revisions.Repository) (*api.Commit, error) {
				return (&revisionapi.Committer{Repo: r, Review: reviewRestored}).Restore(ctx, n, c.note)
			}, func(ctx context.Context, d *adminclient.Client) (*api.Commit, error) {
				return d.Restore(ctx, n.String(), api.NoteRequest{Message: c.note.Message, Author: c.note.Author})
			})
			if err != nil {
				return err
			}
			if c.Output.ForPeople() {
				printRollbackHeld(cmd.OutOrStdout(), done, n.String())
				done.Held = nil // printed first, because nothing changes for the clients of these groups
			}
			return printCommit(&c.Output, cmd, done)
		},
	}
	c.flags(cmd, "`AUTHOR` of the revision")
	cli.ServerUsage(cmd)
	return cmd
}
