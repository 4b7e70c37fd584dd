package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/adminapi"
	"github.com/chancery-xds/chancery/internal/printable"
	"github.com/chancery-xds/chancery/internal/rollout"
	"github.com/chancery-xds/chancery/revisions"
)

func rolloutCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollout start|status|promote|pause|resume|abort",
		Short: "Have a revision of a store served to some nodes first, then to more",
		Long: `A frozen group of a store (chancery freeze) goes to another revision step by step: some nodes are
served it first, then more, and at last all. A step comes when enough of the clients that have been
picked have accepted the one before, for a time. As soon as a client refuses it that had accepted what it
was told before, all are served again what the group was frozen at (docs/rollouts.md).

Servers of the store do that; one of them decides, and another one if it ends.`,
		Example: `  chancery rollout start r412 --label canary=true --steps 1%,10% --store etcd://e1:2379/prod -m "the new timeouts"
  chancery rollout status --store etcd://e1:2379/prod`,
	}
	cmd.AddCommand(rolloutStart(), rolloutStatus(),
		rolloutChange("promote", "Go to the next step now, whatever clients say", "Promote takes a rollout to its next step at once, or to its end.", func(s *rollout.State, why string) { s.Go(time.Now(), why) }),
		rolloutChange("pause", "Stay at the step", "Pause has a rollout stay at its step. A refusal still takes it back.", func(s *rollout.State, why string) { s.Turn(time.Now(), rollout.Paused, s.Step, why) }),
		rolloutChange("resume", "Go on after a pause", "Resume has a rollout go on that was paused.", func(s *rollout.State, why string) { s.Turn(time.Now(), rollout.Running, s.Step, why) }),
		rolloutChange("abort", "Serve all nodes again what they had before", "Abort ends a rollout: all nodes are served what the groups were frozen at.", func(s *rollout.State, why string) { s.Turn(time.Now(), rollout.Aborted, s.Step, why) }))
	return cmd
}

func rolloutStart() *cobra.Command {
	var c committing
	var steps, labels, groups, of []string
	var minAcked string
	var bake time.Duration
	cmd := &cobra.Command{
		Use:   "start REV --store URL -m MESSAGE",
		Short: "Begin a rollout to a revision",
		Long: `Start has frozen groups go to a revision: those of --of, or all in which it differs from what they are
frozen at. First come the nodes with all labels of --label in their metadata, then those that get a group of
--group, then the shares of --steps, by a hash of the node id, and at last all. Each step has those
in it that were picked before.

When all are served the revision, the groups are frozen at it.

Exit codes: 0 begun; 1 the store cannot be read or written, or what is asked for cannot be rolled out;
2 wrong usage; 3 no etcd answers; 4 there is no such revision, or it is not kept; 5 a rollout of a group is under way.`,
		Example: `  chancery rollout start r412 --steps 1%,10%,100% --bake 5m --min-acked 95% --store file:/var/lib/chancery/store -m "the new timeouts"
  chancery rollout start r412 --label canary=true --store file:/var/lib/chancery/store -m "the new timeouts"`,
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
			s := &rollout.State{Author: c.note.Author, Message: c.note.Message, Bake: bake, Began: time.Now()}
			var err error
			if s.Number, err = revisions.ParseNumber(args[0]); err != nil {
				return err
			}
			if s.MinAcked, err = percentOf(minAcked); err != nil {
				return fmt.Errorf("--min-acked: %w", err)
			}
			if s.Steps, err = stepsOf(steps, labels, groups); err != nil {
				return err
			}
			if err := s.Check(); err != nil {
				return err
			}
			return withEngine(cmd, &c.at, c.timeout, func(ctx context.Context, e revisions.Engine, r *revisions.Repository) error {
				err := rollout.Start(ctx, e, r, s, of)
				if busy, ok := errors.AsType[*rollout.BusyError](err); ok {
					return outcome{failure{err, "chancery rollout abort " + busy.Rollout + " ends it"}, conflicted}
				}
				if err != nil {
					return err
				}
				return printRollout(cmd.OutOrStdout(), s)
			})
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	titled(f, "Store", c.at.flags)
	c.notes(f)
	f.StringSliceVar(&steps, "steps", nil, "`SHARES` of the nodes, such as 1%,10%,100%; the last is always all")
	f.StringSliceVar(&labels, "label", nil, "`KEY=VALUE` in the metadata of nodes that come first; of several all must be there")
	f.StringSliceVar(&groups, "group", nil, "`GROUP` whose nodes come next; may be repeated")
	f.StringSliceVar(&of, "of", nil, "frozen `GROUP` that goes to the revision; may be repeated; default: all in which it differs")
	f.DurationVar(&bake, "bake", 5*time.Minute, "for which `time` a step must be good before the next, 1s or more")
	f.StringVar(&minAcked, "min-acked", "95%", "which `SHARE` of the clients that were picked must have accepted what they were told")
	plainUsage(cmd)
	return cmd
}

// percentOf reads a share, such as 1%.
func percentOf(text string) (float64, error) {
	v, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(text), "%"), 64)
	if err != nil || !(v >= 0 && v <= 100) {
		return 0, fmt.Errorf("%q is no share: want 0%% to 100%%", text)
	}
	return v, nil
}

// stepsOf returns the steps that are asked for.
func stepsOf(shares, labels, groups []string) (all []revisions.Pick, err error) {
	if len(labels) > 0 {
		p := revisions.Pick{Labels: map[string]string{}}
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
		all = append(all, revisions.Pick{Groups: groups})
	}
	for _, text := range shares {
		v, err := percentOf(text)
		if err == nil && v == 0 {
			err = errors.New("a step of nobody")
		}
		if err != nil {
			return nil, fmt.Errorf("--steps: %w", err)
		}
		all = append(all, revisions.Pick{Percent: v})
	}
	if len(all) == 0 {
		return nil, errors.New("who comes first? give --steps, --label or --group")
	}
	return all, nil
}

// printRollout says where a rollout is.
func printRollout(w io.Writer, s *rollout.State) error {
	fmt.Fprintf(w, "rollout %s of %s to %s", s.ID, printable.Line(strings.Join(s.Groups(), ", ")), s.Number)
	switch {
	case s.Phase == rollout.Done:
		fmt.Fprint(w, " is done: all are served it")
	case s.Phase.Ended():
		fmt.Fprintf(w, " is %s: all are served what they had before", s.Phase)
	default:
		fmt.Fprintf(w, " is %s, step %d of %d: %s", s.Phase, s.Step+1, len(s.Steps), printable.Line(rollout.Say(s.Steps[s.Step])))
	}
	fmt.Fprintln(w)
	return nil
}

func rolloutChange(name, short, long string, change func(*rollout.State, string)) *cobra.Command {
	var c committing
	cmd := &cobra.Command{
		Use:   name + " [ID] --store URL -m MESSAGE",
		Short: short,
		Long: long + ` ID may be left out if one rollout is under
way.

Exit codes: 0 done; 1 the store cannot be read or written; 2 wrong usage; 3 no etcd answers; 4 there is no such rollout
under way.`,
		Example: `  chancery rollout ` + name + ` r412-1a2b3c --store file:/var/lib/chancery/store -m "it looks good"`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.check(); err != nil {
				return err
			}
			return withEngine(cmd, &c.at, c.timeout, func(ctx context.Context, e revisions.Engine, r *revisions.Repository) error {
				id, err := rolloutID(ctx, e, args)
				if err != nil {
					return err
				}
				s, err := rollout.Change(ctx, e, r, id, func(s *rollout.State) error {
					if s.Phase.Ended() {
						return outcome{failure{fmt.Errorf("rollout %s is %s since %s", s.ID, s.Phase, s.Since.UTC().Format(time.RFC3339)), "chancery rollout start begins another"}, notFound}
					}
					change(s, name+" by "+c.note.Author+": "+c.note.Message)
					return nil
				})
				if name == "abort" && (errors.Is(err, revisions.ErrNotFound) || errors.Is(err, revisions.ErrDamaged)) {
					if was, e := rollout.Abandon(ctx, r, id); was || e != nil {
						if e == nil {
							fmt.Fprintf(cmd.OutOrStdout(), "rollout %s is aborted, of which nothing can be read: all are served what they had before\n", printable.Line(id))
						}
						return e
					}
				}
				if err != nil {
					return err
				}
				return printRollout(cmd.OutOrStdout(), s)
			})
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	titled(f, "Store", c.at.flags)
	c.notes(f)
	plainUsage(cmd)
	return cmd
}

// rolloutID is that which somebody names, or the one that is under way.
func rolloutID(ctx context.Context, e revisions.Engine, args []string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	all, err := rollout.All(ctx, e)
	if err != nil {
		return "", err
	}
	var ids []string
	for _, s := range all {
		if !s.Phase.Ended() {
			ids = append(ids, s.ID)
		}
	}
	switch len(ids) {
	case 0:
		return "", outcome{failure{errors.New("no rollout is under way"), "chancery rollout status lists those that have ended"}, notFound}
	case 1:
		return ids[0], nil
	}
	return "", failure{fmt.Errorf("several rollouts are under way, say which: %s", strings.Join(ids, ", ")), ""}
}

// A rolloutItem is a rollout as status prints it.
type rolloutItem struct {
	*rollout.State
	Nodes    string `json:"nodes"` // that are picked
	Clients  int    `json:"clients"`
	Acked    int    `json:"acked"`
	Refused  int    `json:"refused"`
	Waiting  int    `json:"waiting"`
	WaitsFor string `json:"waitsFor,omitempty"`
}

func rolloutStatus() *cobra.Command {
	var p pasting
	cmd := &cobra.Command{
		Use:   "status [ID] --store URL",
		Short: "Say where rollouts are, and how clients take them",
		Long: `Status lists the rollouts of a store, the newest first, with the 20 that ended last: which step is in
force, how many clients it has picked, how many of these have accepted what they were told, and
what it waits for, or why it ended.

Exit codes: 0 listed; 1 the store cannot be read; 2 wrong usage; 3 no etcd answers; 4 there is no such rollout.`,
		Example: `  chancery rollout status --store file:/var/lib/chancery/store`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.output.check(); err != nil {
				return err
			}
			var all []rolloutItem
			if err := withEngine(cmd, &p.at, p.timeout, func(ctx context.Context, e revisions.Engine, _ *revisions.Repository) (err error) {
				all, err = rolloutItems(ctx, e, args)
				return err
			}); err != nil {
				return err
			}
			return p.rollouts(cmd, all)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	titled(f, "Store", p.at.flags)
	p.output.flags(cmd, "table", "json", "yaml", "jsonl", "name")
	f.DurationVar(&p.timeout, "timeout", storeTime, "maximum `time` to wait for the store")
	plainUsage(cmd)
	return cmd
}

func rolloutItems(ctx context.Context, e revisions.Engine, args []string) (items []rolloutItem, err error) {
	var all []*rollout.State
	if len(args) == 0 {
		all, err = rollout.All(ctx, e)
	} else {
		var one *rollout.State
		if one, err = rollout.Read(ctx, e, args[0]); errors.Is(err, revisions.ErrNotFound) {
			return nil, outcome{failure{fmt.Errorf("there is no rollout %s", printable.Line(args[0])), "chancery rollout status lists those there are"}, notFound}
		}
		all = []*rollout.State{one}
	}
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		it := rolloutItem{State: s, Nodes: rollout.Say(s.Steps[s.Step])}
		if !s.Phase.Ended() {
			sum, err := rollout.Gather(ctx, e, s.ID)
			if err != nil {
				return nil, err
			}
			it.Clients, it.Acked, it.Refused, it.Waiting, it.WaitsFor = sum.Picked, sum.Acked, sum.Refused, sum.Waiting, s.Waits(sum)
		}
		items = append(items, it)
	}
	return items, nil
}

func (p *pasting) rollouts(cmd *cobra.Command, all []rolloutItem) error {
	w := p.page(cmd)
	if !p.people() {
		return data(&p.output, w, answered[rolloutItem]{adminapi.Version, "Rollouts", all}, all, func(s rolloutItem) string { return s.ID })
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if !p.noHeaders {
		fmt.Fprintln(t, "ROLLOUT\tGROUPS\tPHASE\tSTEP\tNODES\tCLIENTS\tACKED\tREFUSED\tWHY")
	}
	for _, s := range all {
		why := s.Why
		if s.WaitsFor != "" {
			why = "waits: " + s.WaitsFor
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d/%d\t%s\t%d\t%d\t%d\t%s\n", s.ID, printable.Line(strings.Join(s.Groups(), ",")), s.Phase, s.Step+1, len(s.Steps), printable.Line(s.Nodes), s.Clients, s.Acked, s.Refused, printable.Line(why))
	}
	if err := t.Flush(); err != nil {
		return failure{err, ""}
	}
	return nil
}
