package inspect

import (
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
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	textutil "github.com/chancery-xds/chancery/internal/text"
)

// Wait returns the command wait.
func Wait() *cobra.Command {
	var a cli.AdminFlags
	var o cli.Output
	var w adminclient.Wait
	var what, typ, revision string
	cmd := &cobra.Command{
		Use:   "wait [DIR]",
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
these clients: then the change has not arrived. If a group is frozen at an earlier revision, a
hint names the group, because its clients do not have the newest revision. Wait also waits for
removals that the server delays (--confirm-removals). If no client is connected, it succeeds at
once with a hint; --min-clients 1 waits for a client. With --node, --group or --type it always
waits until a client matches. It prints the server that it asks; with DIR it fails if that
server does not serve DIR.

Exit codes: 0 all clients are synced; 1 a client refuses or leaves again and again after a
response, the last load was rejected, or a group is frozen at a revision before that of
--revision; 2 wrong usage; 3 no server answers, or it
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
			case what != "synced":
				return fmt.Errorf("--for: %q: must be synced", what)
			case w.MinClients < 0:
				return errors.New("--min-clients: must not be negative")
			case w.Timeout <= 0:
				return errors.New("--timeout: must be more than 0")
			}
			if typ != "" {
				t, err := cli.ParseType(typ)
				if err != nil {
					return fmt.Errorf("--type: %w", err)
				}
				w.Filter.Type = cli.TypeInPath(t)
			}
			if err := parseWanted(revision, &w); err != nil {
				return err
			}
			return waitSynced(cmd, &a, &o, strings.Join(args, ""), w)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&what, "for", "synced", "`STATE` to wait for: synced")
	cli.OfferValues(cmd, "for", "synced")
	flags.DurationVar(&w.Timeout, "timeout", time.Minute, "maximum `time` to wait")
	flags.StringVar(&w.Filter.Node, "node", "", "only nodes with this `ID`, or a pattern such as edge-*")
	_ = cmd.RegisterFlagCompletionFunc("node", cli.CompleteFlag(&a, cli.CompleteNodes))
	cli.GroupFlag(cmd, &a, &w.Filter.Group)
	flags.StringVar(&typ, "type", "", "only this `TYPE`: cds, clusters, …")
	cli.OfferValues(cmd, "type", cli.TypeWords()...)
	flags.StringVar(&revision, "revision", "", "minimum `number` of the configuration, as chancery status shows it; r412: a revision of the store; default: the newest")
	cli.LocalFlag(flags, &w.Local)
	flags.IntVar(&w.MinClients, "min-clients", 0, "minimum `number` of connected clients; wait also waits for them to connect")
	o.Register(cmd, "text", "json", "yaml")
	a.Register(flags)
	cmd.ValidArgsFunction = cli.CompleteDirectory
	cli.ServerUsage(cmd)
	return cmd
}

// parseWanted parses --revision: a number of the server's own configuration, or a revision of its store.
func parseWanted(text string, w *adminclient.Wait) (err error) {
	switch {
	case text == "":
	case strings.HasPrefix(text, "r"):
		_, err = revisions.ParseNumber(text)
		w.Stored = text
	default:
		w.Revision, err = strconv.ParseUint(text, 10, 64)
	}
	if err != nil {
		return fmt.Errorf("--revision: %q: want a number, or a revision of a store such as r412", text)
	}
	return nil
}

// waitSynced prints the progress and the result of a wait. The server decides the result.
func waitSynced(cmd *cobra.Command, a *cli.AdminFlags, o *cli.Output, dir string, w adminclient.Wait) error {
	d, err := a.Dial()
	if err != nil {
		return err
	}
	defer d.Close()
	at, err := a.Identify(cmd, d, dir)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(cli.Context(cmd))
	defer cancel(nil)
	silent := time.AfterFunc(cli.AskTimeout, func() { cancel(fmt.Errorf("no answer for %v", cli.AskTimeout)) })
	defer silent.Stop()
	p := newProgress(cmd.ErrOrStderr())
	defer p.end()
	for line, err := range d.WaitSynced(ctx, w) {
		silent.Reset(cli.AskTimeout)
		switch {
		case errors.Is(err, adminclient.ErrNoWait):
			return cli.FailWith(cli.NoServer, fmt.Errorf("the server at %s cannot wait for this command: %w", at, err), "use the chancery of the server's version: chancery status -o json has it in server.version")
		case err != nil:
			return cli.AdminError(err)
		case line.Note != "":
			p.end()
			fmt.Fprintln(cmd.ErrOrStderr(), "chancery: "+textutil.Line(line.Note))
		case line.Progress != nil:
			p.show(line.Progress)
		case line.Result != nil:
			p.end()
			return printResult(cmd, o, line.Result, at)
		}
	}
	return nil // the last value was a result or an error
}

// codesOf has the exit code for each class of a result.
var codesOf = map[string]int{api.WaitFailed: cli.Failed, api.WaitNotFound: cli.NotFound, api.WaitTimeout: cli.TimedOut}

// printResult prints the result of a wait.
func printResult(cmd *cobra.Command, o *cli.Output, r *api.WaitResult, at string) error {
	if r.Class == api.WaitOK {
		if len(r.Replicas) > 0 {
			at += fmt.Sprintf(", and %s of the store", textutil.Amount(len(r.Replicas)-1, "other server"))
		}
		fmt.Fprintln(cmd.ErrOrStderr(), "chancery: asked "+at)
	}
	w := o.Page(cmd)
	switch {
	case !o.ForPeople():
		if err := cli.PrintData(o, w, r, r.Pending, nil); err != nil {
			return err
		}
	case r.Class == api.WaitOK:
		fmt.Fprintf(w, "ok: %s\n", r.Clients.Text())
		if r.Hint != "" {
			fmt.Fprintln(cmd.ErrOrStderr(), "chancery: hint: "+textutil.Line(r.Hint))
		}
	case len(r.Refusals) > 0 && r.Rejected == nil:
		printRefusals(w, o, r.Refusals)
	}
	switch code, known := codesOf[r.Class]; {
	case r.Class == api.WaitOK:
		return nil
	case !o.ForPeople() && (r.Rejected != nil || len(r.Refusals)+len(r.Loops) > 0): // the answer has the reason
		return cli.ErrNo
	case !known:
		return cli.Fail(fmt.Errorf("unknown class of the result: %q: the server has another version", r.Class), "")
	default:
		return cli.FailWith(code, errors.New(textutil.Line(r.Why)), textutil.Line(r.Hint))
	}
}
