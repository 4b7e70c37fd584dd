package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/admin/api"
	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cli/xdsclient"
	textutil "github.com/chancery-xds/chancery/internal/text"
)

// watchFlags are the flags of chancery watch.
type watchFlags struct {
	cli.AdminFlags
	cli.Output
	filter adminclient.EventFilter
	typ    string
	during time.Duration // 0: until the command is interrupted
	xds    watchXDSFlags
}

// eventKinds are the kinds of events.
var eventKinds = []string{"connect", "leave", "subscribe", "send", "ack", "nack", "recover", "wait", "deny", "commit", "reject", "quarantine", "store"}

// Watch returns the command watch.
func Watch() *cobra.Command {
	var w watchFlags
	cmd := &cobra.Command{
		Use:   "watch [xds://HOST:PORT [TYPE[/NAME] [NAME...]]...]",
		Short: "Show the events of a running server, or the changes of an xDS server's resources",
		Long: `Watch prints a line for each new event, until it is interrupted: clients connect and leave,
subscribe, are sent responses, and accept or refuse them; a new configuration is loaded or
rejected. "chancery get events" prints past events.

Kinds of events: connect, leave, subscribe, send, ack, nack, recover, wait, deny,
commit, reject, quarantine, store.

If watch reads events too slowly, some are left out; a line tells how many.

With xds:// watch is a client of that server, of any kind, like chancery fetch, and prints
the changes of the resources that it subscribes to:

  updated, removed
  absent       the server reports that the resource does not exist
  refused      the received resource is unusable
  stale        the last version stays in use: the server is lost, or reports an error
  unavailable  the same, without a last version
  complete     all resources of * have arrived
  connected, lost: the connection; watch tries again

The flags of an xDS server are only for this, and also --node, --for and --output.

Exit codes: 0 the time of --for is over; 2 wrong usage; 3 no server answers, it denies
access, or it has ended.`,
		Example: `  chancery watch
  chancery watch --kind nack,reject
  chancery watch --node 'edge-*' --type rds -o jsonl
  chancery watch xds://127.0.0.1:18000 eds pay --delta --node edge-1`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if w.during < 0 {
				return errors.New("--for: must be 0 or more")
			}
			if err := w.Output.Check(); err != nil {
				return err
			}
			if len(args) > 0 {
				return w.server(cmd, args)
			}
			if flag := cli.GivenFlag(cmd.Flags(), xdsclient.FlagsTitle); flag != "" {
				return fmt.Errorf("--%s is only for an xDS server: write watch xds://HOST:PORT", flag)
			}
			w.filter.New = true
			return w.run(cmd)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&w.filter.Node, "node", "", "only nodes with this `ID`, or a pattern such as edge-*; for an xDS server: the client's node, by default the host name")
	_ = cmd.RegisterFlagCompletionFunc("node", cli.CompleteFlag(&w.AdminFlags, cli.CompleteNodes))
	f.StringVar(&w.typ, "type", "", "only this `TYPE`: cds, clusters, …")
	cli.OfferValues(cmd, "type", cli.TypeWords()...)
	f.StringSliceVar(&w.filter.Kinds, "kind", nil, "only these `KINDS`, separated by commas")
	cli.OfferValues(cmd, "kind", eventKinds...)
	f.DurationVar(&w.during, "for", 0, "`time` after which watch ends; 0: never")
	w.Output.Register(cmd, "text", "jsonl")
	w.AdminFlags.Register(f)
	w.xds.register(f)
	cmd.ValidArgsFunction = completeTypes
	cli.ServerUsage(cmd)
	return cmd
}

func (w *watchFlags) run(cmd *cobra.Command) error {
	if err := w.Output.Check(); err != nil {
		return err
	}
	for _, k := range w.filter.Kinds {
		if !slices.Contains(eventKinds, k) {
			return fmt.Errorf("--kind: %q: must be one of %s", k, strings.Join(eventKinds, ", "))
		}
	}
	if w.typ != "" {
		t, err := cli.ParseType(w.typ)
		if err != nil {
			return fmt.Errorf("--type: %w", err)
		}
		w.filter.Type = cli.TypeInPath(t)
	}
	d, err := w.Dial()
	if err != nil {
		return err
	}
	out := w.Page(cmd)
	ctx, cancel := w.limit(cli.Context(cmd))
	defer cancel()
	all := []api.Event{} // json and yaml print one document
	for e, err := range d.Events(ctx, w.filter) {
		if err != nil && ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return cli.AdminError(err)
		}
		switch {
		case w.Format == "json" || w.Format == "yaml":
			all = append(all, e)
		case w.ForPeople():
			printEvent(out, e)
		case w.Format == "name":
			fmt.Fprintln(cmd.OutOrStdout(), e.ID)
		default:
			if err := textutil.WriteJSON(cmd.OutOrStdout(), e, ""); err != nil {
				return cli.Fail(err, "")
			}
		}
	}
	if w.Format == "json" || w.Format == "yaml" {
		return cli.PrintData(&w.Output, cmd.OutOrStdout(), cli.List[api.Event]{APIVersion: api.Version, Kind: "EventList", Items: all}, all, nil)
	}
	return nil
}

// limit returns a context that ends after --for.
func (w *watchFlags) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if w.during > 0 {
		return context.WithTimeout(ctx, w.during)
	}
	return context.WithCancel(ctx)
}

// printEvent prints an event in one line: time, kind, client, details.
func printEvent(w io.Writer, e api.Event) {
	if e.Missed > 0 {
		fmt.Fprintf(w, "(%s left out: this command was too slow)\n", textutil.Amount(e.Missed, "event"))
	}
	words := []string{e.At.Local().Format("15:04:05.000"), fmt.Sprintf("%-9s", e.Kind)}
	node := e.Node
	if node == "" && e.Peer == "" {
		node = "*"
	}
	words = append(words, cli.OrDash(node))
	add := func(lead, text string) {
		if text != "" {
			words = append(words, lead+text)
		}
	}
	version := e.Version
	switch e.Kind {
	case "connect", "leave", "deny":
		add("", e.Peer)
	case "commit":
		add("revision ", version)
		version = ""
	}
	add("", e.Type)
	if names := e.Resources; len(names) > 0 {
		var texts []string
		for _, r := range names[:min(3, len(names))] {
			texts = append(texts, r.Name)
		}
		text := strings.Join(texts, ",")
		if more := max(e.Count, len(names)) - len(texts); more > 0 {
			text += fmt.Sprintf(" and %s more", textutil.Number(more))
		}
		add("", text)
	} else if e.Kind == "deny" { // in a denial, Count is the number of attempts
		if e.Count > 1 {
			add("", textutil.Number(e.Count)+" times")
		}
	} else if e.Count > 0 {
		add("", textutil.Amount(e.Count, "resource"))
	}
	if e.Removed > 0 {
		add("", textutil.Number(e.Removed)+" removed")
	}
	add("version=", cli.ShortVersion(version))
	add("nonce=", e.Nonce)
	add("took=", e.Took)
	add("", e.Text)
	for _, r := range e.Resources[:min(3, len(e.Resources))] {
		if e.Kind == "nack" || e.Kind == "reject" || e.Kind == "quarantine" {
			add("", r.Place)
		}
	}
	fmt.Fprintln(w, textutil.Line(strings.Join(words, " ")))
}
