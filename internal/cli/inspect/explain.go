package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/admin/api"
	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
	"github.com/chancery-xds/chancery/internal/cli"
	textutil "github.com/chancery-xds/chancery/internal/text"
)

// Explain returns the command explain.
func Explain() *cobra.Command {
	var a cli.AdminFlags
	var o cli.Output
	var local bool
	cmd := &cobra.Command{
		Use:   "explain NODE [TYPE/NAME]",
		Short: "Explain why a client does not have a resource",
		Long: `Explain follows a resource from its file to a client. Is it loaded, valid, in a group of the
node, allowed? Is the client connected, does it subscribe, was the resource sent, and has the
client accepted it? Explain shows the first broken step between them, and how to repair it.
Without TYPE/NAME it checks the client as a whole.

A server of a store also asks the other servers of the store. Explain shows the answer of the
server that has the client, with the server's name. With --local it asks only one server.

"chancery check --explain CODE" explains a finding of check.

Exit codes: 0 the client has the resource; 1 a step is broken, also if the server does not know
the node or the resource; 2 wrong usage; 3 no server answers, or it denies access; 4 the
server does not know the type.`,
		Example: `  chancery explain edge-7d9f-x2 route/ingress
  chancery explain edge-7d9f-x2
  chancery explain edge-7d9f-x2 cluster/pay -o json | jq -r .broken`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return fmt.Errorf("explain needs a node, and optionally TYPE/NAME, not %s", textutil.Amount(len(args), "argument"))
			}
			if len(args) > 0 && args[0] == "" {
				return errors.New("NODE is empty: for a client without an id use its stream, such as stream:41; chancery get clients lists it")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Check(); err != nil {
				return err
			}
			typ, name := "", ""
			if len(args) == 2 {
				t, n, err := cli.ParseTypeAndName(args[1])
				if err != nil {
					return err
				}
				if n == "" {
					return fmt.Errorf("%q: the name of the resource is missing: write %s/NAME", args[1], args[1])
				}
				typ, name = cli.TypeInPath(t), n
			}
			e, err := cli.Ask(cmd, &a, func(ctx context.Context, d *adminclient.Client) (*api.Explanation, error) {
				if local {
					return d.Explain(ctx, args[0], typ, name)
				}
				return d.ExplainOfAll(ctx, args[0], typ, name)
			})
			if err != nil {
				return err
			}
			if o.ForPeople() {
				w := o.Page(cmd)
				if len(e.Replicas) > 1 {
					fmt.Fprintf(w, "SERVER %s\n", textutil.Line(e.Replica))
				}
				printChain(w, e)
				if text := unanswered(e.Replicas, e.Unsure, "shown"); text != "" {
					fmt.Fprintln(w, text)
				}
				var query url.Values
				if name != "" {
					query = url.Values{"type": {typ}, "name": {name}}
				}
				a.PrintPage(w, &o, query, "clients", args[0])
			} else if err := cli.PrintData(&o, cmd.OutOrStdout(), e, e.Links, nil); err != nil {
				return err
			}
			if e.Broken != "" {
				return cli.ErrNo
			}
			return nil
		},
	}
	cmd.Flags().SortFlags = false
	cli.LocalFlag(cmd.Flags(), &local)
	o.Register(cmd, "text", "wide", "json", "yaml")
	a.Register(cmd.Flags())
	cmd.ValidArgsFunction = cli.CompleteArg(&a, cli.CompleteNodes, cli.CompleteResources)
	cli.ServerUsage(cmd)
	return cmd
}

// printChain prints the known links of a chain, including the links after the broken one.
func printChain(w io.Writer, e *api.Explanation) {
	for _, l := range e.Links {
		mark := "✔"
		switch {
		case l.Name == e.Broken || l.Known && !l.OK:
			mark = "✘"
		case !l.Known:
			continue
		}
		fmt.Fprintf(w, "%s %-11s %s%s\n", mark, textutil.Line(l.Name), textutil.Line(l.Text), textutil.Prefixed("  ", textutil.Line(l.Place)))
	}
	if e.Advice != "" {
		fmt.Fprintf(w, "→ %s\n", textutil.Line(e.Advice))
	}
}
