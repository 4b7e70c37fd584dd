package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/adminapi"
	"github.com/chancery-xds/chancery/revisions"
)

// A blameItem says of a resource in a group which revision set it.
type blameItem struct {
	Group    string     `json:"group"`
	Revision string     `json:"revision"`
	Time     *time.Time `json:"time,omitempty"` // it and the next are not known of a revision that is not kept any more
	Author   string     `json:"author,omitempty"`
	Message  string     `json:"message,omitempty"`
	Source   string     `json:"source,omitempty"`
	Place    string     `json:"place,omitempty"` // where it stood in the files of who set it
}

func blameCommand() *cobra.Command {
	var p pasting
	cmd := &cobra.Command{
		Use:   "blame TYPE/NAME --store URL",
		Short: "Say which revision set a resource, who made it, and why",
		Long: `Blame says of a resource, such as cluster/web, which revision of a store set it to what it is:
who committed that, when and why, and where the resource stood in the files. A resource that is in
several groups has a line for each. After a rollback it is the revision that set it first. "chancery history TYPE/NAME" lists the revisions before.

Exit codes: 0 found; 1 the store cannot be read; 2 wrong usage; 4 there is no such resource in the
newest revision.`,
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
	titled(f, "Store", p.at.flags)
	p.output.flags(cmd, "table", "json", "yaml", "jsonl", "name")
	f.DurationVar(&p.timeout, "timeout", storeTime, "maximum `time` to wait for the store")
	plainUsage(cmd)
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
	var all []blameItem
	if err := withStore(cmd, &p.at, p.timeout, func(ctx context.Context, r *revisions.Repository) error {
		s, err := r.Head(ctx)
		if err != nil {
			return err
		}
		for it := range s.All {
			if k := it.Key(); k.Type != t.URL || k.Name != name {
				continue
			}
			b := blameItem{Group: it.Group, Revision: it.Since.String(), Place: stood(it)}
			set, err := r.Revision(ctx, it.Since)
			switch {
			case err == nil:
				b.Time, b.Author, b.Message, b.Source = new(set.Time.UTC()), set.Author, set.Message, set.Source
			case !errors.Is(err, revisions.ErrNotFound):
				return err
			}
			all = append(all, b)
		}
		return nil
	}); err != nil {
		return err
	}
	if all == nil {
		return outcome{failure{fmt.Errorf("the newest revision has no %s", of), "chancery history " + of + " lists those that had it"}, notFound}
	}
	slices.SortFunc(all, func(a, b blameItem) int { return cmp.Compare(a.Group, b.Group) })
	return p.printBlame(cmd, all)
}

func (p *pasting) printBlame(cmd *cobra.Command, all []blameItem) error {
	w := p.page(cmd)
	if !p.people() {
		return data(&p.output, w, answered[blameItem]{adminapi.Version, "Blame", all}, all, func(b blameItem) string { return b.Revision })
	}
	t := table{headers: []string{"GROUP", "REVISION", "TIME", "AUTHOR", "PLACE", "MESSAGE"}}
	for _, b := range all {
		at, message := "", "(not kept any more)"
		if b.Time != nil {
			at, message = b.Time.Format(time.RFC3339), b.Message
		}
		t.row(b.Group, b.Revision, at, b.Author, b.Place, message)
	}
	t.print(w, &p.output)
	return nil
}
