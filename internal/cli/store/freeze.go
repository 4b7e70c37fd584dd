package store

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cli/storeclient"
	"github.com/chancery-xds/chancery/internal/cluster/revisionapi"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	textutil "github.com/chancery-xds/chancery/internal/text"
)

// Freeze returns the command freeze.
func Freeze() *cobra.Command {
	var c commitFlags
	var at string
	cmd := &cobra.Command{
		Use:   "freeze GROUP -m MESSAGE [--store URL]",
		Short: "Serve a group of a store at a fixed revision, without later commits",
		Long: `Freeze makes the servers of a store serve a group as it is in the newest revision, or in another
kept revision: its resources, and the rules that select its nodes. Later commits to the group
are in the history, but are not served until "chancery unfreeze" or a rollout (chancery
rollout). Other groups are not affected. A sweep keeps the revision at which a group is frozen.

With --at, a frozen group moves to another revision; --at head is the newest. Without --at,
freeze rejects a frozen group, because it would serve the commits that are held back. Without
--store it asks the server of a store at --admin, as apply does.

Exit codes: 0 frozen; 1 the store cannot be read or written; 2 wrong usage; 3 no server answers, or
it denies the request; 4 the revision does not exist, or does not contain the group; 5 a rollout
of the group is active, or the group is frozen and --at is missing.`,
		Example: `  chancery freeze edge --store etcd://e1:2379,e2:2379,e3:2379/prod --store-ca ca.crt -m "no changes before the sale is over"
  chancery freeze edge --at r411 --admin unix:///run/chancery/admin.sock -m "as it was on Monday"`,
		Args: oneGroup,
		RunE: func(cmd *cobra.Command, args []string) error {
			if at != "" && at != "head" {
				if _, err := revisions.ParseNumber(at); err != nil {
					return fmt.Errorf("--at: %w", err)
				}
			}
			if err := c.check(); err != nil {
				return err
			}
			done, err := storeclient.AskSteering(cmd, &c.Access, c.timeout, func(ctx context.Context, s api.Steering) (*api.Freeze, error) {
				return s.Freeze(ctx, args[0], api.FreezeRequest{Revision: at, Message: c.note.Message, Author: c.note.Author})
			})
			if err != nil {
				return err
			}
			return printFreeze(&c.Output, cmd, done, frozenNow(done))
		},
	}
	c.flags(cmd, "`AUTHOR` of the freeze")
	cmd.Flags().StringVar(&at, "at", "", "serve the group as it is in `REV`, such as r411, or head; default: the newest, for a group that is not frozen")
	cli.ServerUsage(cmd)
	return cmd
}

// frozenNow returns a text with the revision at which a group is frozen, and with the replaced freeze and
// its reason.
func frozenNow(done *api.Freeze) string {
	switch done.Was {
	case "":
		return fmt.Sprintf("group %s is frozen at %s", done.Group, done.Revision)
	case done.Revision:
		return fmt.Sprintf("group %s stays frozen at %s: it was frozen %s", done.Group, done.Revision, frozenBefore(done))
	}
	return fmt.Sprintf("group %s is frozen at %s, which is served now: it was frozen %s", done.Group, done.Revision, frozenBefore(done))
}

func frozenBefore(done *api.Freeze) string {
	if done.Before == nil { // an older server does not send the field
		return "at " + done.Was
	}
	return revisionapi.Held(*done.Before)
}

func oneGroup(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s needs one group, not %d", cmd.Name(), len(args))
	}
	return nil
}

// Unfreeze returns the command unfreeze.
func Unfreeze() *cobra.Command {
	var c commitFlags
	cmd := &cobra.Command{
		Use:   "unfreeze GROUP [-m MESSAGE] [--store URL]",
		Short: "Serve the newest revision of a group again",
		Long: `Unfreeze makes the servers of a store serve a frozen group as it is in the newest revision, at once.
Without --store it asks the server of a store at --admin, as apply does.

Exit codes: 0 done; 1 the store cannot be read or written; 2 wrong usage; 3 no server answers, or it
denies the request; 4 the group is not frozen; 5 a rollout of the group is active.`,
		Example: `  chancery unfreeze edge --store file:/var/lib/chancery/store`,
		Args:    oneGroup,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.checkOptional(); err != nil {
				return err
			}
			done, err := storeclient.AskSteering(cmd, &c.Access, c.timeout, func(ctx context.Context, s api.Steering) (*api.Freeze, error) {
				return s.Unfreeze(ctx, args[0], api.NoteRequest{Message: c.note.Message, Author: c.note.Author})
			})
			if err != nil {
				return err
			}
			return printFreeze(&c.Output, cmd, done, fmt.Sprintf("group %s is served as in %s, and was frozen %s", done.Group, done.Revision, frozenBefore(done)))
		},
	}
	c.flags(cmd, "`AUTHOR` of the change")
	cli.ServerUsage(cmd)
	return cmd
}

// printFreeze prints text for people, or the data of a freeze for programs.
func printFreeze(o *cli.Output, cmd *cobra.Command, done *api.Freeze, text string) error {
	if !o.ForPeople() {
		return cli.PrintData(o, cmd.OutOrStdout(), done, []*api.Freeze{done}, func(f *api.Freeze) string { return f.Group })
	}
	fmt.Fprintln(cmd.OutOrStdout(), textutil.Line(text))
	return nil
}

// printRollbackHeld prints the groups for which a rollback changes nothing, and the command that serves the
// revision.
func printRollbackHeld(w io.Writer, c *api.Commit, restored string) {
	for _, h := range c.Held {
		if h.Revision == restored && h.Rollout == "" {
			continue // the group is frozen at the wanted content
		}
		text, command := "frozen at "+h.Revision, fmt.Sprintf("chancery freeze %s --at %s -m MESSAGE", h.Group, c.Revision)
		if h.Message != "" {
			text += " by " + h.Author + ": " + h.Message
		}
		if h.Rollout != "" {
			text = fmt.Sprintf("frozen at %s, and rollout %s takes it to %s", h.Revision, h.Rollout, h.Next)
			command = "chancery rollout abort " + h.Rollout
			if h.Revision != restored {
				command += fmt.Sprintf(" && chancery freeze %s --at %s -m MESSAGE", h.Group, c.Revision)
			}
		}
		fmt.Fprintln(w, textutil.Line(fmt.Sprintf("nothing changes for clients of group %s, which is %s. To serve the rollback: %s", h.Group, text, command)))
	}
}

// printFrozen prints the groups with changes that servers do not serve because the group is frozen.
func printFrozen(w io.Writer, held []api.HeldChanges) {
	for _, h := range held {
		text := "frozen at " + h.Revision
		if h.Message != "" {
			text += " by " + textutil.Line(h.Author) + ": " + textutil.Line(h.Message)
		}
		fmt.Fprintf(w, "not served: %s of group %s, which is %s\n", textutil.Amount(h.Changes, "change"), textutil.Line(h.Group), text)
	}
}
