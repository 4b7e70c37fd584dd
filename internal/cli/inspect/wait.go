package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/admin/api"
	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	textutil "github.com/chancery-xds/chancery/internal/text"
)

// maxRequest is the maximum duration of one request, because proxies close silent connections.
const maxRequest = 30 * time.Second

// Wait returns the command wait.
func Wait() *cobra.Command {
	var a cli.AdminFlags
	var o cli.Output
	var f adminclient.Filter
	var what, typ string
	var revision string
	var timeout time.Duration
	var local bool
	cmd := &cobra.Command{
		Use:   "wait --for=synced [DIR]",
		Short: "Wait until all clients have accepted the configuration",
		Long: `Wait ends when every connected client, or those selected by --node, --group and --type, has
accepted the configuration that the server serves. If a client refuses it, wait ends at once with
the reason. Use it in scripts that continue only when a change has arrived.

With --revision r412 it first waits until the server serves that revision of its store, or a later
one, and until rollouts to it have ended. It fails if a group is frozen at an earlier revision
then, as after a rollback: its clients do not get the revision. With --group only that group
counts.

A server of a store also asks the other servers of the store. Wait ends when all of them serve the
revision (by default the one of the asked server), and all clients have accepted it. Meanwhile it
shows the progress. With --local it asks only one server.

Without --revision wait fails if the last load of the files was rejected, or that of a group of
these clients: then the change has not arrived. It prints the server that it asks; with DIR it
fails if that server does not serve DIR.

Exit codes: 0 all clients are synced; 1 a client refuses, the last load was rejected, or a group
is frozen at a revision before that of --revision; 2 wrong usage; 3 no server answers, or it
denies access; 4 the group or revision does not exist; 124 --timeout is over.`,
		Example: `  chancery reload /etc/chancery && chancery wait --for=synced /etc/chancery
  chancery wait --for=synced -g edge --type routes
  chancery wait --for=synced --revision r412`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("wait takes the one directory that is served, not %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Check(); err != nil {
				return err
			}
			switch {
			case what == "":
				return errors.New("--for is missing: write --for=synced")
			case what != "synced":
				return fmt.Errorf("--for: %q: must be synced", what)
			case timeout <= 0:
				return errors.New("--timeout: must be more than 0")
			}
			if typ != "" {
				t, err := cli.ParseType(typ)
				if err != nil {
					return fmt.Errorf("--type: %w", err)
				}
				f.Type = cli.TypeInPath(t)
			}
			number, stored, err := parseWanted(revision)
			if err != nil {
				return err
			}
			r, own, err := waitAccepted(cmd, &a, strings.Join(args, ""), f, number, stored, local, time.Now().Add(timeout))
			if err != nil {
				return printFailure(cmd, &o, r, err)
			}
			return printResult(cmd, &o, r, f, own, timeout)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&what, "for", "", "`STATE` to wait for: synced")
	cli.OfferValues(cmd, "for", "synced")
	flags.DurationVar(&timeout, "timeout", time.Minute, "maximum `time` to wait")
	flags.StringVar(&f.Node, "node", "", "only nodes with this `ID`, or a pattern such as edge-*")
	_ = cmd.RegisterFlagCompletionFunc("node", cli.CompleteFlag(&a, cli.CompleteNodes))
	cli.GroupFlag(cmd, &a, &f.Group)
	flags.StringVar(&typ, "type", "", "only this `TYPE`: cds, clusters, …")
	cli.OfferValues(cmd, "type", cli.TypeWords()...)
	flags.StringVar(&revision, "revision", "", "minimum `number` of the configuration, as chancery status shows it; r412: a revision of the store; default: the newest")
	cli.LocalFlag(flags, &local)
	o.Register(cmd, "text", "json", "yaml")
	a.Register(flags)
	cmd.ValidArgsFunction = cli.CompleteDirectory
	cli.ServerUsage(cmd)
	return cmd
}

// waitAccepted waits until the clients have accepted the revision. It returns the result and the awaited
// number of the server's own configuration. The result may be set even with an error.
func waitAccepted(cmd *cobra.Command, a *cli.AdminFlags, dir string, f adminclient.Filter, number uint64, stored revisions.Number, local bool, end time.Time) (*api.WaitResult, uint64, error) {
	if err := checkExists(cmd, a, number, stored); err != nil {
		return nil, 0, err
	}
	var bad error
	newest := number == 0 && stored == 0
	if newest {
		bad = rejectedNewest(cmd, a, local)
		if bad != nil {
			end = time.Now()
		}
	}
	for {
		if _, err := waitHeld(cmd, a, f.Group, stored, end); err != nil {
			return nil, 0, err
		}
		r, own, err := waitOnce(cmd, a, dir, f, number, stored, local, end)
		if err != nil {
			return nil, 0, err
		}
		again := false
		if r.Done {
			again, err = waitHeld(cmd, a, f.Group, stored, end)
		}
		if r.Done && newest && bad == nil { // the server may have rejected a load during the wait
			bad = rejectedNewest(cmd, a, local)
		}
		switch {
		case err != nil:
			return r, own, err
		case bad != nil && r.Rejected == nil:
			return r, own, bad
		case !again:
			return r, own, nil
		}
	}
}

// A waitAnswer is a result, with the reason for a failure that the command itself has found.
type waitAnswer struct {
	*api.WaitResult
	Why string `json:"why"`
}

// printFailure prints the reason for a failure in the formats for programs. It prints nothing after wrong
// usage or without a server.
func printFailure(cmd *cobra.Command, o *cli.Output, r *api.WaitResult, err error) error {
	no, is := errors.AsType[cli.Failure](err)
	if !is || o.ForPeople() || !slices.Contains([]int{cli.Failed, cli.NotFound, cli.TimedOut}, no.Code) {
		return err
	}
	if r == nil {
		r = &api.WaitResult{APIVersion: api.Version, Kind: api.KindWaitResult, Clients: api.Counts{By: map[api.State]int{}}}
	}
	r.Done = false
	if err := cli.PrintData(o, o.Page(cmd), waitAnswer{r, textutil.Line(no.Error())}, r.Pending, nil); err != nil {
		return err
	}
	return err
}

// waitOnce waits for all servers of the store, or for one server. It returns the result and the awaited
// number of the server's own configuration.
func waitOnce(cmd *cobra.Command, a *cli.AdminFlags, dir string, f adminclient.Filter, number uint64, stored revisions.Number, local bool, end time.Time) (r *api.WaitResult, own uint64, err error) {
	if !local && number == 0 {
		r, err = waitAll(cmd, a, dir, f, stored, end)
		if r != nil || err != nil {
			return r, 0, err
		}
	}
	if stored > 0 {
		number, err = waitStored(cmd, a, stored, end)
		if err != nil {
			return nil, 0, err
		}
	}
	r, err = waitFor(cmd, a, dir, f, number, end)
	return r, number, err
}

// parseWanted parses --revision: a number of the server's own configuration, or a revision of its store.
func parseWanted(text string) (own uint64, stored revisions.Number, err error) {
	switch {
	case text == "":
	case strings.HasPrefix(text, "r"):
		stored, err = revisions.ParseNumber(text)
	default:
		own, err = strconv.ParseUint(text, 10, 64)
	}
	if err != nil {
		err = fmt.Errorf("--revision: %q: want a number, or a revision of a store such as r412", text)
	}
	return own, stored, err
}

// existsTimeout is the timeout of the request for the newest revision. The request is optional: it makes
// an early error possible.
const existsTimeout = 2 * time.Second

// checkExists returns an error if the store of a server does not have the revision, or has no revision.
// Then it is useless to wait.
func checkExists(cmd *cobra.Command, a *cli.AdminFlags, own uint64, want revisions.Number) error {
	if own > 0 {
		return nil
	}
	h, err := cli.Ask(cmd, a, func(ctx context.Context, d *adminclient.Client) (*api.History, error) {
		ctx, cancel := context.WithTimeout(ctx, existsTimeout)
		defer cancel()
		return d.Revisions(ctx, "", "", 1)
	})
	if err != nil || h.Kind != api.KindHistory {
		return nil //nolint:nilerr // the server has no store; or it does not answer, and the next request reports that
	}
	if len(h.Items) == 0 {
		return cli.FailWith(cli.NotFound, errors.New("the store has no revision yet"), "chancery apply commits one")
	}
	if newest, err := revisions.ParseNumber(h.Items[0].Revision); err == nil && want > newest {
		return cli.FailWith(cli.NotFound, fmt.Errorf("revision %s: %w yet: the newest is %s", want, revisions.ErrNotFound, newest), "")
	}
	return nil
}

// waitStored waits until a server serves a revision of its store, or a later revision. It returns the
// number that the server's own configuration then has.
func waitStored(cmd *cobra.Command, a *cli.AdminFlags, want revisions.Number, end time.Time) (uint64, error) {
	d, err := a.Dial()
	if err != nil {
		return 0, err
	}
	defer d.Close()
	for {
		s, err := cli.AskOver(cmd, d, cli.GetStatus)
		if err != nil {
			return 0, err
		}
		of := s.Config.Store
		if of == nil {
			return 0, cli.Fail(fmt.Errorf("--revision: the server has no store, so it cannot serve %s", want), "without an r it is the number that chancery status shows")
		}
		if n, err := revisions.ParseNumber(of.Revision); err == nil && n >= want {
			return s.Config.Revision, nil
		}
		if time.Until(end) <= 0 {
			return 0, notServed(want.String(), of.Revision, of.Error)
		}
		time.Sleep(min(pollInterval, time.Until(end)))
	}
}

// waitFor repeats the request until a result arrives or the time is over.
func waitFor(cmd *cobra.Command, a *cli.AdminFlags, dir string, f adminclient.Filter, revision uint64, end time.Time) (*api.WaitResult, error) {
	d, err := a.Dial()
	if err != nil {
		return nil, err
	}
	defer d.Close()
	at, err := a.Identify(cmd, d, dir)
	if err != nil {
		return nil, err
	}
	for {
		rest := max(time.Until(end), 0)
		ctx, cancel := context.WithTimeoutCause(cli.Context(cmd), min(rest, maxRequest)+cli.AskTimeout, fmt.Errorf("no answer for %v", cli.AskTimeout))
		r, err := d.Wait(ctx, f, revision, min(rest, maxRequest))
		cancel()
		if err != nil {
			return nil, cli.AdminError(err)
		}
		if r.Done || r.Rejected != nil || len(r.Refusals) > 0 || time.Until(end) <= 0 {
			if r.Done {
				fmt.Fprintf(cmd.ErrOrStderr(), "chancery: asked %s\n", at)
			}
			return r, nil
		}
	}
}

// printResult prints the result of waiting.
func printResult(cmd *cobra.Command, o *cli.Output, r *api.WaitResult, f adminclient.Filter, revision uint64, timeout time.Duration) error {
	w := o.Page(cmd)
	if !o.ForPeople() {
		if err := cli.PrintData(o, w, r, r.Pending, nil); err != nil {
			return err
		}
	}
	synced := r.Clients.By[api.Synced]
	switch {
	case r.Done:
		if o.ForPeople() {
			fmt.Fprintf(w, "ok: %s\n", r.Clients.Text())
		}
		return nil
	case r.Rejected != nil:
		if !o.ForPeople() {
			return cli.ErrNo
		}
		text := "its errors are unknown"
		if all := r.Rejected.Errors; len(all) > 0 {
			text = textutil.Line(all[0])
			if more := len(all) - 1; more > 0 {
				text += fmt.Sprintf(" (and %s more)", textutil.Number(more))
			}
		}
		of := ""
		if r.Rejected.Group != "" {
			of = "group " + textutil.Line(r.Rejected.Group) + " "
		}
		return cli.FailWith(cli.Failed, fmt.Errorf("not synced: the load of %s%s ago was rejected: %s", of, textutil.Since(r.Rejected.Since), text), "chancery status shows details; --revision waits for the served configuration instead")
	case len(r.Refusals) > 0:
		if o.ForPeople() {
			printRefusals(w, o, r.Refusals)
			return cli.FailWith(cli.Failed, fmt.Errorf("not synced: %s", r.Clients.Text()), "chancery explain NODE shows details")
		}
		return cli.ErrNo
	}
	why := ""
	switch {
	case len(behind(r)) > 0:
		why = strings.Join(behind(r), "; ")
	case r.Revision > 0 && r.Revision < revision:
		why = fmt.Sprintf("revision %d is not served yet: %d is", revision, r.Revision)
	case r.Clients.Connected == 0 && f.Node != "":
		why = fmt.Sprintf("no client with node id %s is connected", textutil.Line(f.Node))
	case r.Clients.Connected == 0 && f.Group != "":
		why = fmt.Sprintf("no client of group %s is connected", textutil.Line(f.Group))
	}
	if why != "" {
		return cli.FailWith(cli.TimedOut, fmt.Errorf("not synced after %v: %s", timeout, why), "")
	}
	var names []string
	for _, n := range r.Pending {
		names = append(names, textutil.Line(n))
	}
	if more := r.Clients.Connected - synced - len(names); more > 0 && len(names) > 0 {
		names = append(names, textutil.Number(more)+" more")
	}
	return cli.FailWith(cli.TimedOut, fmt.Errorf("not synced after %v: %s%s", timeout, r.Clients.Text(), cli.Prefixed("; not yet: ", strings.Join(names, ", "))), "")
}
