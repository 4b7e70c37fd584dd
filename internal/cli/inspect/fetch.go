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

// A fetched is the JSON that fetch prints.
type fetched struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"` // "FetchedList"
	Server     string            `json:"server"`
	Items      []fetchedResource `json:"items"`
	Missing    []fetchedMissing  `json:"missing,omitempty"`
	Malformed  []fetchedBroken   `json:"malformed,omitempty"`
	Unfinished bool              `json:"unfinished,omitempty"` // new resources still arrived at the timeout
}

type fetchedResource struct {
	Type    string          `json:"type"`
	Name    string          `json:"name"`
	Version string          `json:"version,omitempty"` // SotW: the version of the response
	Bytes   int             `json:"bytes"`
	TTL     string          `json:"ttl,omitempty"`
	Aliases []string        `json:"aliases,omitempty"`
	Error   string          `json:"error,omitempty"` // why the resource cannot be used
	Body    json.RawMessage `json:"body,omitempty"`
}

type fetchedMissing struct {
	Type  string `json:"type"`
	Name  string `json:"name"`
	Said  bool   `json:"said"` // true: the server reported that the resource does not exist; false: the server has not answered
	Error string `json:"error,omitempty"`
}

// A fetchedBroken is a resource that cannot be decoded.
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
		Short: "Get resources from any xDS server, as its client",
		Long: `Fetch gets resources from an xDS server of any kind, as a client would, prints them, and
ends. TYPE is cds, clusters, lds, listeners, … or a type URL. The names after it belong to
that type; without a name fetch gets all resources of the type (*). Without a TYPE it gets the
resources of a proxy: all listeners and clusters, and the resources that they refer to.

The server is xds://HOST:PORT, xds://[IPV6]:PORT or xds://unix:/PATH; the default port is
18000. The connection is in plain text unless one of the --tls flags is given. Flags for this
server may follow a ?, and override others: xds://HOST:PORT?node=edge-1&tls-ca=ca.pem

chancery check and serve can read the YAML, unless it contains secrets: fetch shows them
only with --show-secrets.

When is the answer complete? A name is answered when its resource arrives, or when the server
reports that it does not exist, which SotW cannot express. For all names (*), a SotW server
sends all listeners or clusters at once. After any other response another part may follow, so
fetch waits until no new resource has arrived for --settle. A resource is missing if neither it
nor any other resource has arrived for --timeout. If resources keep arriving, fetch prints those
of the first --timeout; in total it takes at most ten times --timeout. Some servers send routes,
endpoints and secrets only to clients that subscribe by name; --follow finds the names.

With --nack fetch refuses each response with this message, and prints the requests and responses
for --timeout, so that you see how the server handles a refusal.

Exit codes: 0 printed; 1 it failed, or a resource is unusable; 2 wrong usage; 3 the server
cannot be reached, or it denies access; 4 a resource does not exist, or the server sent others
but not this one; 124 it does not answer, or its answer does not end.`,
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
	f.Lookup("node").Usage = "`ID` of the client's node; default: the host name of this machine"
	xdsclient.FollowRefsFlag(f, &x.follow)
	xdsclient.NackFlag(f, &x.nack)
	x.Output.Register(cmd, "yaml", "json", "jsonl", "name", "table")
	x.Flags.RegisterTimes(f)
	x.ShowFlags.Register(f)
	dirload.ProtoSetFlag(f, &x.sets)
	x.Flags.Register(f)
	cmd.ValidArgsFunction = completeTypes
	cli.TakeVariables(cmd, "node", "cluster", "node-json")
	cli.ServerUsage(cmd)
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
	o.Asked = asked
	if len(asked) == 0 {
		o.Asked, x.follow = xdsclient.AllTypes(), true
	}
	if x.follow {
		o.Refs = xdsclient.References(types)
	}
	if x.nack != "" {
		if x.Format != "yaml" && x.Format != "jsonl" {
			return errors.New("--nack prints requests and responses, line by line: -o must be yaml or jsonl")
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

// print prints an answer.
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
		missing := fetchedMissing{Type: m.Type.String(), Name: m.Name, Said: m.Denied}
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
			_, err = doc.WriteTo(w)
			if err != nil {
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
		return nil // these formats show no content
	}
	if hidden > 0 {
		fmt.Fprintf(stderr, "chancery: warning: %s not shown completely, because of secrets or of unknown messages: --show-secrets shows all\n", are(hidden, "resource"))
	}
	if len(unshown) > 0 {
		for _, u := range unshown {
			fmt.Fprintln(stderr, textutil.Line("not shown: "+u))
		}
		return cli.Fail(fmt.Errorf("%s not shown", are(len(unshown), "resource")), "--proto-set FILE adds message types that Envoy's API lacks")
	}
	return nil
}

func are(n int, noun string) string {
	if n == 1 {
		return textutil.Amount(n, noun) + " is"
	}
	return textutil.Amount(n, noun) + " are"
}

// completeTypes completes the arguments after the server.
func completeTypes(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return []string{xdsclient.Scheme}, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	}
	return cli.TypeWords(), cobra.ShellCompDirectiveNoFileComp
}
