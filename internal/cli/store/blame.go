package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/admin/api"
	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cli/storeclient"
	"github.com/chancery-xds/chancery/internal/cluster/revisionapi"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

// Blame returns the command blame.
func Blame() *cobra.Command {
	var p historyFlags
	cmd := &cobra.Command{
		Use:   "blame TYPE/NAME [--store URL]",
		Short: "Show which revision set a resource, its author and its reason",
		Long: `Blame shows the revision of a store that set a resource, such as cluster/web, to its present
content: its author, time and message, and the resource's place in the files. A resource in
several groups has a line for each group. After a rollback it is the revision that set the
content first. "chancery history TYPE/NAME" lists the earlier revisions of a resource.

Without --store the command asks the server of a store at --admin.

Exit codes: 0 found; 1 the store cannot be read; 2 wrong usage; 3 no server answers; 4 the
newest revision does not contain the resource, or the server has no store.`,
		Example: `  chancery blame cluster/web --store etcd://e1:2379,e2:2379,e3:2379/prod`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("blame needs one TYPE/NAME, not %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return p.blame(cmd, args[0]) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	p.Access.Register(f)
	p.Output.Register(cmd, "table", "json", "yaml", "jsonl", "name")
	f.DurationVar(&p.timeout, "timeout", storeclient.Timeout, "maximum `time` to wait for the store")
	cli.ServerUsage(cmd)
	return cmd
}

func (p *historyFlags) blame(cmd *cobra.Command, of string) error {
	if err := p.Output.Check(); err != nil {
		return err
	}
	if p.timeout <= 0 {
		return errors.New("--timeout: must be more than 0")
	}
	t, name, err := cli.ParseResource(of)
	if err != nil {
		return err
	}
	b, err := storeclient.Ask(cmd, &p.Access, p.timeout, func(ctx context.Context, r *revisions.Repository) (*api.Blame, error) {
		return revisionapi.Blame(ctx, r, t.URL, name)
	}, func(ctx context.Context, d *adminclient.Client) (*api.Blame, error) {
		return d.Blame(ctx, cli.TypeInPath(t), name)
	})
	if err != nil {
		return err
	}
	if len(b.Items) == 0 {
		return cli.FailWith(cli.NotFound, fmt.Errorf("the newest revision does not contain %s", of), "chancery history "+of+" lists the revisions that changed it")
	}
	return p.printBlame(cmd, b)
}

func (p *historyFlags) printBlame(cmd *cobra.Command, all *api.Blame) error {
	w := p.Page(cmd)
	if !p.ForPeople() {
		return cli.PrintData(&p.Output, w, all, all.Items, func(b api.Blamed) string { return b.Revision })
	}
	t := cli.Table{Headers: []string{"GROUP", "REVISION", "TIME", "AUTHOR", "PLACE", "MESSAGE"}}
	for _, b := range all.Items {
		at, message := "", "(not kept any more)"
		if b.Time != nil {
			at, message = b.Time.Format(time.RFC3339), b.Message
		}
		t.Row(b.Group, b.Revision, at, b.Author, b.Place, message)
	}
	t.Print(w, &p.Output)
	return nil
}
