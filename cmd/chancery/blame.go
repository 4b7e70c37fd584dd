package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/cluster/revisionapi"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

func blameCommand() *cobra.Command {
	var p pasting
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
	p.storing.flags(f)
	p.output.flags(cmd, "table", "json", "yaml", "jsonl", "name")
	f.DurationVar(&p.timeout, "timeout", storeTime, "maximum `time` to wait for the store")
	usage(cmd)
	return cmd
}

func (p *pasting) blame(cmd *cobra.Command, of string) error {
	if err := p.output.check(); err != nil {
		return err
	}
	if p.timeout <= 0 {
		return errors.New("--timeout: must be more than 0")
	}
	t, name, err := resourceNamed(of)
	if err != nil {
		return err
	}
	b, err := askStore(cmd, &p.storing, p.timeout, func(ctx context.Context, r *revisions.Repository) (*api.Blame, error) {
		return revisionapi.Blame(ctx, r, t.URL, name)
	}, func(ctx context.Context, d *api.Daemon) (*api.Blame, error) {
		return d.Blame(ctx, inPath(t), name)
	})
	if err != nil {
		return err
	}
	if len(b.Items) == 0 {
		return failWith(notFound, fmt.Errorf("the newest revision has no %s", of), "chancery history "+of+" lists those that had it, if any had")
	}
	return p.printBlame(cmd, b)
}

func (p *pasting) printBlame(cmd *cobra.Command, all *api.Blame) error {
	w := p.page(cmd)
	if !p.people() {
		return data(&p.output, w, all, all.Items, func(b api.Blamed) string { return b.Revision })
	}
	t := table{headers: []string{"GROUP", "REVISION", "TIME", "AUTHOR", "PLACE", "MESSAGE"}}
	for _, b := range all.Items {
		at, message := "", "(not kept any more)"
		if b.Time != nil {
			at, message = b.Time.Format(time.RFC3339), b.Message
		}
		t.row(b.Group, b.Revision, at, b.Author, b.Place, message)
	}
	t.print(w, &p.output)
	return nil
}
