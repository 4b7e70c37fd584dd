package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cli/storeclient"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/cluster/rollout"
	"github.com/chancery-xds/chancery/internal/text"
)

// Rollout returns the command rollout.
func Rollout() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollout start|status|promote|pause|resume|abort",
		Short: "Serve a revision of a store to some nodes first, then to more",
		Long: `A rollout takes a frozen group of a store (chancery freeze) to another revision in steps: first
some nodes get the revision, then more, and at last all. The next step begins when enough of
the picked clients have accepted the revision, for a time. If a client refuses it, but had
accepted its previous configuration, all clients get the frozen revision again
(docs/rollouts.md).

Servers of the store run the rollout. One of them decides; if it ends, another one takes over.`,
		Example: `  chancery rollout start r412 --label canary=true --steps 1%,10% --store etcd://e1:2379/prod -m "the new timeouts"
  chancery rollout status --store etcd://e1:2379/prod`,
	}
	cmd.AddCommand(rolloutStart(), rolloutStatus(),
		rolloutChange("promote", "Begin the next step now, without waiting for clients", "Promote begins the next step of a rollout at once, or completes it.", "it looks good"),
		rolloutChange("pause", "Stay at the step", "Pause makes a rollout stay at its step. A refusal still rolls it back.", "we look at the errors of pay"),
		rolloutChange("resume", "Continue after a pause", "Resume continues a paused rollout.", "these errors have another cause"),
		rolloutChange("abort", "Serve the previous revision to all nodes again", "Abort ends a rollout: all nodes get the revision at which the groups were frozen.", "web has become slower"))
	return cmd
}

func rolloutStart() *cobra.Command {
	var c commitFlags
	var steps, labels, groups, of []string
	var minAcked string
	var bake time.Duration
	cmd := &cobra.Command{
		Use:   "start REV -m MESSAGE [--store URL]",
		Short: "Begin a rollout to a revision",
		Long: `Start begins a rollout of frozen groups to a revision: the groups of --of, or all frozen groups
that differ in it. First come the nodes with all labels of --label in their metadata, then the
nodes that get a group of --group, then the shares of --steps (by a hash of the node id), and
at last all nodes. Each step includes the nodes of the steps before.

When all nodes get the revision, the groups are frozen at it. Start returns when the clients of
the first step have answered, or after two seconds. Without --store it asks the server of a
store at --admin, as apply does.

Exit codes: 0 begun; 1 the store cannot be read or written, the rollout is impossible, or it was
rolled back within these two seconds; 2 wrong usage; 3 no server answers, or it denies the
request; 4 the revision or group does not exist, or is not kept; 5 a rollout of a group is
already active.`,
		Example: `  chancery rollout start r412 --steps 1%,10%,100% --bake 5m --min-acked 95% --store file:/var/lib/chancery/store -m "the new timeouts"
  chancery rollout start r412 --label canary=true --admin unix:///run/chancery/admin.sock -m "the new timeouts"`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("start needs one revision, not %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.check(); err != nil {
				return err
			}
			req := api.RolloutRequest{Revision: args[0], Of: of, Bake: bake.String(), Message: c.note.Message, Author: c.note.Author}
			if _, err := revisions.ParseNumber(args[0]); err != nil {
				return err
			}
			share, err := percentOf(minAcked)
			if err != nil {
				return fmt.Errorf("--min-acked: %w", err)
			}
			req.MinAcked = &share
			req.Steps, err = stepsOf(steps, labels, groups)
			if err != nil {
				return err
			}
			list, err := storeclient.AskSteering(cmd, &c.Access, c.timeout, func(ctx context.Context, s api.Steering) (*api.RolloutList, error) {
				list, err := s.StartRollout(ctx, req)
				if err == nil {
					list = awaitFirstStep(ctx, s, list)
				}
				return list, err
			})
			if err != nil {
				return err
			}
			if err := printRollout(&c.Output, cmd, list); err != nil {
				return err
			}
			switch is := list.Items[0]; {
			case is.Phase == string(rollout.RolledBack):
				return cli.FailWith(cli.Failed, fmt.Errorf("rollout %s was rolled back at once: %s", text.Line(is.ID), text.Line(is.Why)), "chancery rollout status -o json shows details")
			case is.WaitsFor == rollout.Nobody:
				fmt.Fprintln(cmd.ErrOrStderr(), "warning:", rollout.Nobody)
			}
			return nil
		},
	}
	c.flags(cmd, "`AUTHOR` of the rollout")
	f := cmd.Flags()
	f.StringSliceVar(&steps, "steps", nil, "`SHARES` of the nodes, such as 1%,10%,100%; the last is always all")
	f.StringSliceVar(&labels, "label", nil, "`KEY=VALUE` in the metadata of the nodes that come first; several labels must all match")
	f.StringSliceVar(&groups, "group", nil, "`GROUP` whose nodes come next; may be repeated")
	f.StringSliceVar(&of, "of", nil, "frozen `GROUP` to take to the revision; may be repeated; default: all frozen groups that differ")
	f.DurationVar(&bake, "bake", 5*time.Minute, "minimum `time` for which clients must accept a step before the next, 1s or more")
	f.StringVar(&minAcked, "min-acked", "95%", "minimum `SHARE` of the picked clients that must have accepted the revision")
	cli.ServerUsage(cmd)
	return cmd
}

// awaitFirstStep returns the state of a new rollout when the clients of the first step have answered,
// or after two seconds. If no server has reported a client before then, the step selects no client.
func awaitFirstStep(ctx context.Context, s api.Steering, began *api.RolloutList) *api.RolloutList {
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		is := began.Items[0]
		if is.Phase != string(rollout.Running) || is.Step != 1 || is.WaitsFor == "" && is.Waiting == 0 {
			break
		}
		t := time.NewTimer(100 * time.Millisecond)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return began
		}
		now, err := s.Rollouts(ctx, is.ID)
		if err != nil || len(now.Items) != 1 {
			break // the command has succeeded without this answer, because the rollout has begun
		}
		began = now
	}
	return began
}

// percentOf parses a share, such as 1%.
func percentOf(text string) (float64, error) {
	v, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(text), "%"), 64)
	if err != nil || !(v >= 0 && v <= 100) {
		return 0, fmt.Errorf("%q is not a share: must be 0%% to 100%%", text)
	}
	return v, nil
}

// stepsOf returns the steps that the flags describe.
func stepsOf(shares, labels, groups []string) (all []api.RolloutStep, err error) {
	if len(labels) > 0 {
		p := api.RolloutStep{Labels: map[string]string{}}
		for _, text := range labels {
			k, v, ok := strings.Cut(text, "=")
			if !ok || k == "" {
				return nil, fmt.Errorf("--label: %q: want KEY=VALUE", text)
			}
			p.Labels[k] = v
		}
		all = append(all, p)
	}
	if len(groups) > 0 {
		all = append(all, api.RolloutStep{Groups: groups})
	}
	for _, text := range shares {
		v, err := percentOf(text)
		if err == nil && v == 0 {
			err = errors.New("0% picks no client")
		}
		if err != nil {
			return nil, fmt.Errorf("--steps: %w", err)
		}
		all = append(all, api.RolloutStep{Percent: v})
	}
	if len(all) == 0 {
		return nil, errors.New("the first step is missing: give --steps, --label or --group")
	}
	return all, nil
}

// printRollout prints the state of rollouts.
func printRollout(o *cli.Output, cmd *cobra.Command, list *api.RolloutList) error {
	w := cmd.OutOrStdout()
	if !o.ForPeople() {
		return cli.PrintData(o, w, list, list.Items, func(s api.Rollout) string { return s.ID })
	}
	for _, s := range list.Items {
		id, phase := text.Line(s.ID), rollout.Phase(s.Phase)
		if s.Revision == "" {
			fmt.Fprintf(w, "rollout %s is %s, and its record cannot be read: all nodes get the previous revision\n", id, text.Line(s.Phase))
			continue
		}
		fmt.Fprintf(w, "rollout %s of %s to %s", id, text.Line(strings.Join(groupsIn(s), ", ")), text.Line(s.Revision))
		switch {
		case phase == rollout.Done:
			fmt.Fprint(w, " is done: all nodes get it")
		case phase.Ended():
			fmt.Fprintf(w, " is %s: all nodes get the previous revision", text.Line(s.Phase))
		default:
			fmt.Fprintf(w, " is %s, step %d of %d: %s", text.Line(s.Phase), s.Step, len(s.Steps), text.Line(s.Nodes))
		}
		fmt.Fprintln(w)
	}
	return nil
}

// groupsIn returns the names of a rollout's groups.
func groupsIn(s api.Rollout) []string { return slices.Sorted(maps.Keys(s.From)) }

func rolloutChange(name, short, long, reason string) *cobra.Command {
	var c commitFlags
	use, check := name+" [ID] [-m MESSAGE] [--store URL]", c.checkOptional
	if name == "promote" { // a promotion overrides the answers of clients, so it needs a reason
		use, check = name+" [ID] -m MESSAGE [--store URL]", c.check
	}
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Long: long + ` ID may be left out if only one rollout is
active. Without --store the command asks the server of a store at --admin, as apply does.

Exit codes: 0 done; 1 the store cannot be read or written; 2 wrong usage; 3 no server answers, or
it denies the request; 4 no such rollout is active; 5 its groups are not frozen as they were
when it began.`,
		Example: `  chancery rollout ` + name + ` r412-1a2b3c --store file:/var/lib/chancery/store -m "` + reason + `"`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := check(); err != nil {
				return err
			}
			list, err := storeclient.AskSteering(cmd, &c.Access, c.timeout, func(ctx context.Context, s api.Steering) (*api.RolloutList, error) {
				id, err := rolloutID(ctx, s, args)
				if err != nil {
					return nil, err
				}
				return s.ChangeRollout(ctx, id, name, api.NoteRequest{Message: c.note.Message, Author: c.note.Author})
			})
			if err != nil {
				return err
			}
			return printRollout(&c.Output, cmd, list)
		},
	}
	c.flags(cmd, "`AUTHOR` of the change")
	cli.ServerUsage(cmd)
	return cmd
}

// rolloutID returns the ID in the arguments, or the ID of the only active rollout.
func rolloutID(ctx context.Context, s api.Steering, args []string) (string, error) {
	if len(args) > 0 && args[0] != "" {
		return args[0], nil
	}
	all, err := s.Rollouts(ctx, "")
	if err != nil {
		return "", err
	}
	var ids []string
	for _, s := range all.Items {
		if !rollout.Phase(s.Phase).Ended() {
			ids = append(ids, s.ID)
		}
	}
	switch len(ids) {
	case 0:
		return "", cli.FailWith(cli.NotFound, errors.New("no rollout is active"), "chancery rollout status lists ended rollouts")
	case 1:
		return ids[0], nil
	}
	return "", cli.Fail(fmt.Errorf("several rollouts are active, give the ID of one: %s", text.Line(strings.Join(ids, ", "))), "")
}

func rolloutStatus() *cobra.Command {
	var p historyFlags
	cmd := &cobra.Command{
		Use:   "status [ID] [--store URL]",
		Short: "Show the state of rollouts and the answers of clients",
		Long: `Status lists the rollouts of a store, the newest first, with the last 20 that have ended: the
present step, the number of clients that it has picked and that have accepted the revision, and
what the rollout waits for, or why it ended. Without --store the command asks the server of a
store at --admin.

Exit codes: 0 listed; 1 the store cannot be read; 2 wrong usage; 3 no server answers; 4 the
rollout does not exist, or the server has no store.`,
		Example: `  chancery rollout status --store file:/var/lib/chancery/store`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.Output.Check(); err != nil {
				return err
			}
			id := strings.Join(args, "")
			list, err := storeclient.AskSteering(cmd, &p.Access, p.timeout, func(ctx context.Context, s api.Steering) (*api.RolloutList, error) {
				return s.Rollouts(ctx, id)
			})
			if err != nil {
				return err
			}
			return p.rollouts(cmd, list)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	p.Access.Register(f)
	p.Output.Register(cmd, "table", "json", "yaml", "jsonl", "name")
	f.DurationVar(&p.timeout, "timeout", storeclient.Timeout, "maximum `time` to wait for the store")
	cli.ServerUsage(cmd)
	return cmd
}

func (p *historyFlags) rollouts(cmd *cobra.Command, list *api.RolloutList) error {
	w := p.Page(cmd)
	if !p.ForPeople() {
		return cli.PrintData(&p.Output, w, list, list.Items, func(s api.Rollout) string { return s.ID })
	}
	if len(list.Items) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "There are no rollouts.")
	}
	t := cli.Table{Headers: []string{"ROLLOUT", "GROUPS", "PHASE", "STEP", "NODES", "CLIENTS", "ACKED", "REFUSED", "WHY"}}
	for _, s := range list.Items {
		why := s.Why
		if s.WaitsFor != "" {
			why = "waits: " + s.WaitsFor
		}
		clients, acked, refused := strconv.Itoa(s.Clients), strconv.Itoa(s.Acked), strconv.Itoa(s.Refused)
		if rollout.Phase(s.Phase).Ended() { // after the end of a rollout, servers do not count its clients
			clients, acked, refused = "", "", ""
		}
		t.Row(s.ID, strings.Join(groupsIn(s), ","), s.Phase, fmt.Sprintf("%d/%d", s.Step, len(s.Steps)), s.Nodes, clients, acked, refused, why)
	}
	t.Print(w, &p.Output)
	return nil
}
