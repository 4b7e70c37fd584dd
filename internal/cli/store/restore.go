package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cli/storeclient"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/text"
)

// Command returns the command store.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "store restore",
		Short: "Repair a store that has lost its newest revision",
		Long: `A store has one key, head, that names its newest revision. If it is lost, or belongs to another
store or to a backup, nobody can read, commit or sweep, and servers continue with their last
revision. "chancery store restore" writes the key again.`,
		Example: `  chancery store restore --store file:/var/lib/chancery/store
  chancery store restore r412 --store file:/var/lib/chancery/store`,
	}
	cmd.AddCommand(restore())
	return cmd
}

// restoreFlags are the flags of chancery store restore.
type restoreFlags struct {
	at      storeclient.Flags
	frozen  []string
	limit   int
	timeout time.Duration
}

func restore() *cobra.Command {
	p := restoreFlags{at: storeclient.Flags{LostHead: true}}
	cmd := &cobra.Command{
		Use:   "restore --store URL [REV]",
		Short: "List the intact revisions of a store, or make one the newest again",
		Long: `Restore without REV reads the stored revisions, the newest first, and lists those that are
intact. It needs no head and changes nothing. The first one may be a commit that has never ended.

With REV, as the list names it, restore makes this revision the newest. It changes only a store
whose head is lost or damaged, or belongs to another store or to a backup. The revisions after
REV, and those of another store, stay until a sweep.

Freezes and rollouts were in the head, too. If a group was frozen, give all frozen groups with
--frozen, as "chancery status" of a running server shows them. Without --frozen, a server that
knows a freeze does not follow the new head: then give the same command again with --frozen.
--frozen none releases all groups.

Exit codes: 0 listed or restored; 1 no revision is intact, or the store cannot be read or written;
2 wrong usage; 3 no etcd answers; 4 the store has no such revision; 5 the head is not lost, or
another program has just changed it.`,
		Example: `  chancery store restore --store etcd://e1:2379,e2:2379,e3:2379/prod --store-ca ca.crt
  chancery store restore r412 --store file:/var/lib/chancery/store --frozen edge=r398`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return p.run(cmd, args) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	cli.TitledFlags(f, "Store", p.at.Register)
	f.StringSliceVar(&p.frozen, "frozen", nil, "`GROUP=REV` of each frozen group, or none")
	f.IntVar(&p.limit, "limit", 50, "maximum `number` of revisions to read; 0: all")
	f.DurationVar(&p.timeout, "timeout", storeclient.SweepTimeout, "maximum `time` to wait for the store")
	cli.PlainUsage(cmd)
	return cmd
}

func (p *restoreFlags) run(cmd *cobra.Command, args []string) error {
	holds, err := p.holds()
	if err != nil {
		return err
	}
	if p.limit < 0 || p.timeout <= 0 {
		return errors.New("--limit must not be negative, and --timeout more than 0")
	}
	return storeclient.WithRepository(cmd, &p.at, p.timeout, func(ctx context.Context, r *revisions.Repository) error {
		if len(args) == 0 {
			return p.list(ctx, cmd, r)
		}
		rev, err := r.RestoreHead(ctx, args[0], holds)
		switch {
		case errors.Is(err, revisions.ErrHead):
			return cli.FailWith(cli.Conflicted, err, "to serve an earlier revision again, use chancery rollback")
		case errors.Is(err, revisions.ErrNotFound):
			return cli.FailWith(cli.NotFound, err, "chancery store restore without a revision lists them")
		case err != nil:
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s is the newest revision again: %s\n", rev.Number, text.Line(rev.Message))
		if len(holds) > 0 {
			fmt.Fprintln(cmd.OutOrStdout(), "frozen:", strings.Join(slices.Sorted(maps.Keys(holds)), ", "))
		}
		return nil
	})
}

// holds parses --frozen. The result is nil without the flag.
func (p *restoreFlags) holds() (map[string]revisions.Hold, error) {
	if p.frozen == nil {
		return nil, nil
	}
	holds := map[string]revisions.Hold{}
	if len(p.frozen) == 1 && p.frozen[0] == "none" {
		return holds, nil
	}
	by := "?"
	if u, err := user.Current(); err == nil {
		by = u.Username
	}
	for _, one := range p.frozen {
		group, rev, ok := strings.Cut(one, "=")
		n, err := revisions.ParseNumber(rev)
		if !ok || group == "" || err != nil || n == 0 {
			return nil, fmt.Errorf("--frozen: %q: want GROUP=REV, such as edge=r398, or none", one)
		}
		holds[group] = revisions.Hold{Number: n, Author: by, Message: "restored", Time: time.Now()}
	}
	return holds, nil
}

// list prints the intact revisions, and the damaged ones with their reasons.
func (p *restoreFlags) list(ctx context.Context, cmd *cobra.Command, r *revisions.Repository) error {
	all, err := r.Restorable(ctx, p.limit)
	if err != nil {
		return err
	}
	t := cli.Table{Headers: []string{"REVISION", "TIME", "AUTHOR", "ITEMS", "MESSAGE"}}
	intact := 0
	for _, one := range all {
		if one.Err != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s is not intact: %s\n", one.Name, text.Line(one.Err.Error()))
			continue
		}
		intact++
		t.Row(one.Name, one.Time.Format(time.RFC3339), one.Author, strconv.Itoa(one.Items), one.Message)
	}
	if intact == 0 {
		err := errors.New("no revision of the store is intact")
		_, fault := r.Head(ctx)
		switch {
		case len(all) > 0:
		case errors.Is(fault, revisions.ErrBackwards): // a server serves a revision, so the store is not new
			return fault
		case errors.Is(fault, revisions.ErrDamaged):
			err = fmt.Errorf("no revision is stored: %w", fault)
		default:
			err = errors.New("the store has no revision yet")
		}
		return cli.Fail(err, "chancery apply commits the files to a new store")
	}
	t.Print(cmd.OutOrStdout(), &cli.Output{})
	if _, err := r.Newest(ctx); err != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), text.Line(err.Error()))
	}
	return nil
}
