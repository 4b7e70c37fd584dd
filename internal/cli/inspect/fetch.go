package inspect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cli/dirload"
	"github.com/chancery-xds/chancery/internal/cli/xdsclient"
	"github.com/chancery-xds/chancery/internal/relay/fetch"
	textutil "github.com/chancery-xds/chancery/internal/text"
)

// fetchFlags are the flags of chancery fetch.
type fetchFlags struct {
	xdsclient.Flags
	cli.Output
	xdsclient.ShowFlags
	follow bool
	nack   string
	sets   []string
}

// A fetched is what fetch prints in JSON.
type fetched struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"` // "FetchedList"
	Server     string            `json:"server"`
	Items      []fetchedResource `json:"items"`
	Missing    []fetchedMissing  `json:"missing,omitempty"`
	Malformed  []fetchedBroken   `json:"malformed,omitempty"`
	Unfinished bool              `json:"unfinished,omitempty"` // news was still coming when the time was over
}

type fetchedResource struct {
	Type    string          `json:"type"`
	Name    string          `json:"name"`
	Version string          `json:"version,omitempty"` // in SotW that of the response
	Bytes   int             `json:"bytes"`
	TTL     string          `json:"ttl,omitempty"`
	Aliases []string        `json:"aliases,omitempty"`
	Error   string          `json:"error,omitempty"` // why it cannot be used
	Body    json.RawMessage `json:"body,omitempty"`
}

type fetchedMissing struct {
	Type  string `json:"type"`
	Name  string `json:"name"`
	Said  bool   `json:"said"` // the server has said that it does not exist; else it has not answered
	Error string `json:"error,omitempty"`
}

// A fetchedBroken is what came and cannot be read.
type fetchedBroken struct {
	Type  string `json:"type"`
	Name  string `json:"name,omitempty"`
	Error string `json:"error"`
}

// Fetch returns the command fetch.
func Fetch() *cobra.Command {
	var x fetchFlags
	cmd := &cobra.Command{
		Use:   "fetch xds://HOST:PORT [TYPE[/NAME] [NAME...]]...",
		Short: "Get resources from any xDS server, as a client of it",
		Long: `Fetch asks an xDS server, of whatever make, as a client would, prints what it gives,
and ends. TYPE is cds, clusters, lds, listeners, … or a type's URL; names after it are
of that type; without a name it is everything (*). Without a TYPE it is all that a
proxy gets: all listeners and clusters, and what they refer to.

The server is xds://HOST:PORT, xds://[IPV6]:PORT or xds://unix:/PATH; without a port it
is 18000. The connection is in plain text unless one of the --tls flags is given. After a
? there may be flags for this server, which win: xds://HOST:PORT?node=edge-1&tls-ca=ca.pem

The YAML is what chancery check and serve read, unless it has secrets: they are shown
with --show-secrets only.

When is the answer whole? A name is answered when it came, or when the server said that
there is none, for which SotW has no words. Of all names (*), SotW gives all listeners or
clusters at once; after any other response there may be another part, so fetch waits until
nothing new has come for --settle. What has not come when nothing was new for --timeout is
missing. If what is new has no end, fetch prints what came within --timeout; all in all it
takes ten times --timeout at most. Some servers give routes, endpoints and secrets only
to who asks for them by name; --follow finds the names.

With --nack each response is refused with this message, and for --timeout what client and
server say to each other is printed: also what the server does with a refusal.

Exit codes: 0 printed; 1 it could not be done, or some of it cannot be used; 2 wrong
usage; 3 the server cannot be reached, or it lets nobody in; 4 something does not exist,
or the server gave others and not this; 124 it answers nothing, or without end.`,
		Example: `  chancery fetch xds://127.0.0.1:18000
  chancery fetch xds://127.0.0.1:18000 clusters -o table --node edge-1
  chancery fetch xds://127.0.0.1:18000 cds pay search eds/pay --delta
  chancery fetch xds://127.0.0.1:18000 listener/in --follow >in.yaml
  chancery fetch xds://127.0.0.1:18000 cds --nack 'no such filter'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("fetch needs the server: xds://HOST:PORT")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return x.run(cmd, args) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	x.NodeFlags.Register(f)
	f.Lookup("node").Usage = "`ID` of the node that asks; default: the host name of this machine"
	xdsclient.FollowRefsFlag(f, &x.follow)
	xdsclient.NackFlag(f, &x.nack)
	x.Output.Register(cmd, "yaml", "json", "jsonl", "name", "table")
	x.Flags.RegisterTimes(f)
	x.ShowFlags.Register(f)
	dirload.ProtoSetFlag(f, &x.sets)
	x.Flags.Register(f)
	cmd.ValidArgsFunction = completeTypes
	cli.ServerUsageWith(cmd, "CHANCERY_NODE for --node,\nCHANCERY_CLIENT_TLS_CERT for --tls-cert and CHANCERY_CLIENT_TLS_KEY for --tls-key")
	return cmd
}

func (x *fetchFlags) run(cmd *cobra.Command, args []string) error {
	if err := x.Output.Check(); err != nil {
		return err
	}
	s, err := x.Server(args[0])
	if err != nil {
		return err
	}
	asked, err := xdsclient.ParseQuestions(args[1:])
	if err != nil {
		return err
	}
	types, err := dirload.ReadProtoSets(x.sets)
	if err != nil {
		return err
	}
	o, err := s.Options(cmd, types)
	if err != nil {
		return err
	}
	if o.Asked = asked; len(asked) == 0 {
		o.Asked, x.follow = xdsclient.AllTypes(), true
	}
	if x.follow {
		o.Refs = xdsclient.References(types)
	}
	if x.nack != "" {
		if x.Format != "yaml" && x.Format != "jsonl" {
			return errors.New("--nack prints a conversation, line by line, or with -o jsonl")
		}
		o.Refuse = x.nack
		return s.Converse(cmd, o, x.Timeout, func(step fetch.Step) {
			xdsclient.MessageOf(step, s).Print(cmd.OutOrStdout(), x.Format == "jsonl")
		})
	}
	a, err := fetch.All(cli.Context(cmd), o)
	if err != nil {
		return cli.Fail(err, "")
	}
	x.Types = types
	if err := x.print(cmd.OutOrStdout(), cmd.ErrOrStderr(), s, a); err != nil {
		return err
	}
	return s.Verdict(a, cmd.ErrOrStderr())
}

// print prints what there is.
func (x *fetchFlags) print(w, stderr io.Writer, s *xdsclient.Server, a *fetch.Answer) error {
	all := fetched{APIVersion: api.Version, Kind: "FetchedList", Server: s.Text, Items: []fetchedResource{}, Unfinished: a.Unfinished}
	var docs []*bytes.Buffer
	var unshown []string
	hidden := 0
	for _, r := range a.Resources {
		item := fetchedResource{Type: r.Type.String(), Name: r.Name, Version: r.Version}
		if r.Refused != nil {
			item.Error = textutil.Lines(r.Refused.Error())
		}
		if r.Resource == nil {
			all.Items = append(all.Items, item)
			continue
		}
		item.Bytes, item.Aliases = len(r.Body), r.Aliases
		if r.TTL > 0 {
			item.TTL = r.TTL.String()
		}
		body, whole, err := x.Body(r.Resource)
		switch {
		case err != nil:
			unshown = append(unshown, fmt.Sprintf("%s/%s: %v", r.Type, r.Name, err))
		case !whole:
			hidden++
		}
		item.Body = body
		all.Items = append(all.Items, item)
		if body != nil && x.Format == "yaml" {
			var doc bytes.Buffer
			if err := cli.WriteYAML(&doc, xdsclient.Wrapped(r.Resource, body)); err != nil {
				unshown = append(unshown, fmt.Sprintf("%s/%s: %v", r.Type, r.Name, err))
				continue
			}
			docs = append(docs, &doc)
		}
	}
	for _, m := range a.Missing {
		missing := fetchedMissing{Type: m.Type.String(), Name: m.Name, Said: m.Said}
		if m.Err != nil {
			missing.Error = textutil.Lines(m.Err.Error())
		}
		all.Missing = append(all.Missing, missing)
	}
	for _, m := range a.Malformed {
		all.Malformed = append(all.Malformed, fetchedBroken{m.Type.String(), m.Name, textutil.Lines(m.Err.Error())})
	}
	var err error
	switch x.Format {
	case "yaml":
		for i, doc := range docs {
			if i > 0 {
				fmt.Fprintln(w, "---")
			}
			if _, err = doc.WriteTo(w); err != nil {
				break
			}
		}
	case "table":
		t := cli.Table{Headers: []string{"TYPE", "NAME", "VERSION", "SIZE"}}
		for _, r := range all.Items {
			t.Row(r.Type, r.Name, cli.ShortVersion(r.Version), cli.BytesText(r.Bytes))
		}
		t.Print(w, &x.Output)
	default:
		err = cli.PrintData(&x.Output, w, all, all.Items, func(r fetchedResource) string { return r.Type + "/" + r.Name })
	}
	if err != nil {
		return cli.Fail(err, "")
	}
	if x.Format == "table" || x.Format == "name" {
		return nil // which show no content
	}
	if hidden > 0 {
		fmt.Fprintf(stderr, "chancery: warning: %s not shown whole, because of secrets or of messages that nobody knows: --show-secrets shows all\n", are(hidden, "resource"))
	}
	if len(unshown) > 0 {
		for _, u := range unshown {
			fmt.Fprintln(stderr, textutil.Line("not shown: "+u))
		}
		return cli.Fail(fmt.Errorf("%s not shown", are(len(unshown), "resource")), "--proto-set FILE adds messages that are not Envoy's")
	}
	return nil
}

func are(n int, what string) string {
	if n == 1 {
		return cli.Amount(n, what) + " is"
	}
	return cli.Amount(n, what) + " are"
}

// completeTypes completes the arguments after the server.
func completeTypes(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return []string{xdsclient.Scheme}, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	}
	return cli.TypeWords(), cobra.ShellCompDirectiveNoFileComp
}
