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
		Short: "Say which revision set a resource, who made it, and why",
		Long: `Blame says of a resource, such as cluster/web, which revision of a store set it to what it is:
who committed that, when and why, and where the resource stood in the files. A resource that is in
several groups has a line for each. After a rollback it is the revision that set it first. "chancery history TYPE/NAME" lists the revisions before.
Without --store the server at --admin is asked, which serves a store.

Exit codes: 0 found; 1 the store cannot be read; 2 wrong usage; 3 no server answers; 4 there is no
such resource in the newest revision, or the server has no store.`,
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
		return cli.FailWith(cli.NotFound, fmt.Errorf("the newest revision has no %s", of), "chancery history "+of+" lists those that had it, if any had")
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
