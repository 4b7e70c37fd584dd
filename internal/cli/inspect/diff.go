package inspect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/groups/cel"
	"github.com/chancery-xds/chancery/internal/admin/api"
	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cli/dirload"
	"github.com/chancery-xds/chancery/internal/cli/storeclient"
	"github.com/chancery-xds/chancery/internal/cli/xdsclient"
	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/envoy/diff"
	"github.com/chancery-xds/chancery/internal/envoy/importer"
	"github.com/chancery-xds/chancery/internal/envoy/nodes"
	"github.com/chancery-xds/chancery/internal/listen"
	"github.com/chancery-xds/chancery/internal/relay/fetch"
	"github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// diffFlags are the flags of chancery diff.
type diffFlags struct {
	cli.AdminFlags
	cli.Output
	xdsclient.NodeFlags
	xds   xdsclient.Flags
	at    storeclient.Flags
	load  dir.Options
	sets  []string
	types *envoy.Types

	grouped  bool     // one of the directories has groups
	forecast []string // warnings about responses that clients would get
}

// A diffResult is the JSON that diff prints.
type diffResult struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"` // "Diff"
	Added      int               `json:"added"`
	Removed    int               `json:"removed"`
	Changed    int               `json:"changed"`
	Drained    []string          `json:"listeners_drained"` // listeners that lose all connections
	Impact     *api.Impact       `json:"impact,omitempty"`
	Server     *api.Server       `json:"server,omitempty"` // the server whose clients the impact counts
	Items      []diff.Difference `json:"items"`
}

// Diff returns the command diff.
func Diff() *cobra.Command {
	var d diffFlags
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Compare two configurations, field by field",
		Long: `Diff shows how the resources of B differ from those of A. A and B are each one of:

  dir:DIR            a directory of files, as serve reads it; DIR alone means the same
                     if it exists
  rev:REV            a revision, such as rev:r412, of the store at --store, or of the store of
                     the server at --admin; rev:head is the newest
  client:NODE        the resources that a running server has sent to a client (--admin); of a
                     refused resource, the refused version
  envoy://HOST:PORT  the resources of a running Envoy, from its admin interface;
                     envoy://unix:/PATH for a unix socket
  xds://HOST:PORT    the resources that an xDS server of any kind sends to a client: all
                     listeners and clusters, and their references; after a ? flags for
                     this server, such as ?node=edge-1&delta (chancery fetch --help)
  dump:FILE          a config_dump in a file
  -                  a config_dump on stdin

Of an Envoy and of a config_dump, diff compares only resources from an xDS server, not those of
the bootstrap. Secrets are never shown. They are not compared if one side hides them, as an
Envoy does.

Two directories or revisions with groups are compared group by group. To compare one with the
resources of a node, give the node: --node, --cluster or --node-json. For client:NODE it is
that client, as the server knows it.

If B is a directory or a revision, diff reports what Envoy would drain, and asks a server for the
impact: how many clients would get changes, and which. It asks the server of --admin, or without
--admin the server at the default address if it serves A or B. With client:NODE or --node only
the clients of that node count.

Exit codes: 0 no difference; 1 there are differences, or a side cannot be read; 2 wrong usage;
3 no server answers; 4 the node does not exist; 124 an xDS server does not answer.`,
		Example: `  chancery diff dir:/etc/chancery dir:./config
  chancery diff rev:r411 rev:r412 --store etcd://e1:2379,e2:2379,e3:2379/prod
  chancery diff client:edge-1 envoy://127.0.0.1:9901
  chancery diff dir:./config envoy://127.0.0.1:9901 --node edge-1
  chancery diff 'xds://10.1.2.3:18000?node=edge-1' 'xds://10.1.2.4:18000?node=edge-1'
  chancery diff dump:before.json dump:after.json -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("diff compares two configurations, not %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return d.run(cmd, args) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	d.NodeFlags.Register(f)
	d.Output.Register(cmd, "text", "json", "yaml", "name")
	dirload.ProtoSetFlag(f, &d.sets)
	cli.SizeFlag(f, &d.load.MaxFile, "max-file", 64<<20, "maximum `SIZE` of a file")
	dirload.FollowLinksFlag(f, &d.load.FollowLinksOutside)
	dirload.LegacyV2Flag(f, &d.load.V2)
	cli.TitledFlags(f, "Store", d.at.Register)
	d.xds.RegisterTimes(f)
	d.AdminFlags.Register(f)
	d.xds.Register(f)
	cli.ServerUsage(cmd)
	return cmd
}

func (d *diffFlags) run(cmd *cobra.Command, args []string) error {
	if err := errors.Join(d.Output.Check(), d.NodeFlags.Check(), dirload.CheckMaxFile(d.load.MaxFile)); err != nil {
		return err
	}
	if args[0] == "-" && args[1] == "-" {
		return errors.New("only one of the two can be stdin (-)")
	}
	var err error
	d.types, err = dirload.ReadProtoSets(d.sets)
	if err != nil {
		return err
	}
	var kinds [2]string
	d.xds.NodeFlags = d.NodeFlags
	for i, arg := range args {
		kinds[i], args[i], err = sourceOf(arg)
		if err != nil {
			return err
		}
		if kinds[i] == "xds" {
			if _, err := d.xds.Server(arg); err != nil {
				return err
			}
		}
		if kinds[i] == "rev" && d.at.URL != "" {
			if _, _, err := d.at.Check(); err != nil {
				return err
			}
		}
	}
	var client *xds.Node // node of the side client:NODE
	of := d.ID
	for i, kind := range kinds {
		if kind == "client" {
			client, err = d.clientNode(cmd, args[i])
			if err != nil {
				return err
			}
			of = args[i]
		}
	}
	allGroups := func(kind string) bool { return kind == "dir" || kind == "rev" }
	byGroup := allGroups(kinds[0]) && allGroups(kinds[1]) && !d.Given()
	var sides [2]*diff.Side
	for i := range args {
		d.forecast = nil // only B is what clients would get
		sides[i], err = d.side(cmd, kinds[i], args[i], client, byGroup)
		if err != nil {
			return err
		}
	}
	r := diffResult{APIVersion: api.Version, Kind: "Diff", Items: diff.Sides(sides[0], sides[1]), Drained: []string{}}
	if !allGroups(kinds[1]) { // B is what clients already have, so nothing is drained
		for i := range r.Items {
			r.Items[i].Drains = nil
		}
	} else if byGroup || of != "" {
		d.addImpact(cmd, &r, args, kinds, of)
	}
	for i := range r.Items {
		if !d.grouped {
			r.Items[i].Group = "" // there is only one group
		}
	}
	for _, line := range d.forecast {
		fmt.Fprintln(cmd.ErrOrStderr(), text.Line(line))
	}
	return d.print(cmd, &r)
}

// sourceOf parses an argument into the kind of a configuration, and its name.
func sourceOf(arg string) (kind, of string, err error) {
	if arg == "-" {
		return "dump", arg, nil
	}
	if kind, of, is := strings.Cut(arg, ":"); is {
		switch kind {
		case "rev":
			_, err := storeclient.ParseRevision(arg)
			return kind, arg, err
		case "dir", "client", "dump":
			if of == "" {
				return "", "", fmt.Errorf("%s: the part after the colon is missing", arg)
			}
			return kind, of, nil
		case "envoy":
			of = strings.TrimPrefix(of, "//")
			if strings.HasPrefix(of, "unix:/") && !strings.HasPrefix(of, "unix://") {
				of = "unix://" + strings.TrimPrefix(of, "unix:")
			}
			if _, err := listen.Parse(of); err != nil {
				return "", "", fmt.Errorf("%s: %w", arg, err)
			}
			return kind, of, nil
		case "xds":
			return kind, arg, nil
		}
	}
	info, err := os.Stat(arg)
	switch {
	case err != nil:
		return "", "", cli.Fail(fmt.Errorf("%q is not dir:DIR, rev:REV, client:NODE, envoy://HOST:PORT, xds://HOST:PORT, dump:FILE or -, nor a directory", arg), "see chancery diff --help")
	case !info.IsDir():
		return "", "", fmt.Errorf("%q is a file: write dump:%s if it is a config_dump", arg, arg)
	}
	return "dir", arg, nil
}

// clientNode requests the node that a client has sent.
func (d *diffFlags) clientNode(cmd *cobra.Command, node string) (*xds.Node, error) {
	n, err := cli.Ask(cmd, &d.AdminFlags, func(ctx context.Context, daemon *adminclient.Client) (*api.NodeInfo, error) {
		return daemon.Node(ctx, node)
	})
	if err != nil {
		return nil, notHere(err)
	}
	b, err := json.Marshal(n.Node)
	if err != nil {
		return nil, cli.Fail(err, "")
	}
	known, err := nodes.Read(b, d.types)
	if err != nil {
		return nil, cli.Fail(fmt.Errorf("client:%s: %w", node, err), "")
	}
	return known, nil
}

// notHere adds a hint to the error about a missing client: only one server was asked, and the client may
// be connected to another server of the store.
func notHere(err error) error {
	if o, is := errors.AsType[cli.Failure](err); is && o.Code == cli.NotFound {
		o.Err = fmt.Errorf("%w at this server", o.Err)
		return o
	}
	return err
}

// side reads one of the two sides.
func (d *diffFlags) side(cmd *cobra.Command, kind, of string, client *xds.Node, byGroup bool) (*diff.Side, error) {
	switch kind {
	case "dir":
		return d.directory(cmd, of, client, byGroup)
	case "rev":
		return d.revision(cmd, of, client, byGroup)
	case "client":
		b, err := cli.Ask(cmd, &d.AdminFlags, func(ctx context.Context, daemon *adminclient.Client) ([]byte, error) {
			return daemon.Raw(ctx, "/config_dump?node="+url.QueryEscape(of))
		})
		if err != nil {
			return nil, notHere(err)
		}
		return d.dump(diff.Sent, "client:"+of, b)
	case "envoy":
		a, err := listen.Parse(of)
		if err != nil {
			return nil, err
		}
		f, err := cli.EnvoyConfigDump(cmd.Context(), a, d.load.MaxFile)
		if err != nil {
			return nil, err
		}
		return d.dump(diff.Dump, f.Name, f.Data)
	case "xds":
		return d.server(cmd, of)
	case "dump":
		f, err := importer.Read("stdin", cmd.InOrStdin(), d.load.MaxFile)
		if of != "-" {
			f, err = importer.ReadFile(of, d.load.MaxFile)
		}
		if err != nil {
			return nil, cli.Fail(err, "")
		}
		return d.dump(diff.Dump, f.Name, f.Data)
	}
	return nil, fmt.Errorf("unknown kind %q", kind)
}

func (d *diffFlags) dump(read func(*envoy.Types, string, []byte) (*diff.Side, error), name string, b []byte) (*diff.Side, error) {
	s, err := read(d.types, name, bytes.TrimSpace(b))
	if err != nil {
		return nil, cli.Fail(errors.New(text.Lines(err.Error())), "--proto-set FILE adds message types that Envoy's API lacks")
	}
	return s, nil
}

// directory reads a directory as serve does.
func (d *diffFlags) directory(cmd *cobra.Command, root string, client *xds.Node, byGroup bool) (*diff.Side, error) {
	st := store.New()
	opts := d.load
	opts.Types, opts.Flag, opts.CEL = d.types, dirload.FlagOfOption, cel.Compile
	opts.AllowEmpty, opts.AllowMassDelete, opts.References = true, true, true
	src := dir.New(root, st, opts)
	report, err := src.Load()
	if err != nil {
		return nil, dirload.LoadError(cmd.ErrOrStderr(), root, "compared", err)
	}
	return d.loaded(cmd, root, src, st, report.Groups > 0, client, byGroup)
}

// revision reads a revision of a store.
func (d *diffFlags) revision(cmd *cobra.Command, of string, client *xds.Node, byGroup bool) (*diff.Side, error) {
	n, err := storeclient.ParseRevision(of)
	if err != nil {
		return nil, err
	}
	src, st, grouped, hidden, err := storeclient.RevisionSource(cmd, &storeclient.Access{At: d.at, Server: d.AdminFlags, OtherUse: true}, n, dir.Options{Types: d.types, Flag: dirload.FlagOfOption, CEL: cel.Compile, V2: d.load.V2, References: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	side, err := d.loaded(cmd, of, src, st, grouped, client, byGroup)
	if err == nil && hidden > 0 {
		side.ByVersion()
	}
	return side, err
}

// loaded returns a side with the resources of all groups, or only with the resources of a node.
func (d *diffFlags) loaded(cmd *cobra.Command, root string, src *dir.Source, st *store.Store, grouped bool, client *xds.Node, byGroup bool) (*diff.Side, error) {
	side, all := diff.NewSide(d.types, false), st.Snapshot()
	for _, p := range src.Summary().Warnings {
		if p.Code == findings.LargeResponse {
			d.forecast = append(d.forecast, p.Error())
		}
	}
	add := func(group string, view xds.Tables, place func(t *xds.Type, name string) string) {
		for _, t := range dirload.SortedTables(view) {
			for r := range t.All() {
				side.Add(diff.Resource{Type: t.Type(), Name: r.Name, Group: group, Place: place(t.Type(), r.Name), Version: r.Version}, r.Body)
			}
		}
	}
	if byGroup {
		d.grouped = d.grouped || grouped
		for _, g := range all.Groups() {
			add(g, all.View(g), func(t *xds.Type, name string) string { return src.PlaceIn(g, t, name) })
		}
		return side, nil
	}
	node, err := d.NodeFlags.Node(cmd.InOrStdin(), d.types)
	switch {
	case err != nil:
		return nil, err
	case !d.Given() && client != nil:
		node = client
	case !d.Given() && grouped:
		return nil, fmt.Errorf("%s has groups: give the node to compare it for: --node, --cluster or --node-json", root)
	}
	decision := src.Decide(node)
	if decision.Groups == nil {
		return nil, cli.Fail(fmt.Errorf("%s: the node is refused: no group matches it", root), "chancery preview shows why")
	}
	add("", all.View(decision.Groups...), func(t *xds.Type, name string) string { return src.PlaceFor(node, t, name) })
	return side, nil
}

// server fetches the resources that an xDS server sends to a proxy.
func (d *diffFlags) server(cmd *cobra.Command, of string) (*diff.Side, error) {
	s, err := d.xds.Server(of)
	if err != nil {
		return nil, err
	}
	o, err := s.Options(cmd, d.types)
	if err != nil {
		return nil, err
	}
	o.Asked, o.Refs = xdsclient.AllTypes(), xdsclient.References(d.types)
	a, err := fetch.All(cli.Context(cmd), o)
	if err != nil {
		return nil, cli.Fail(err, "")
	}
	if err := s.Verdict(a, cmd.ErrOrStderr()); err != nil {
		return nil, err
	}
	side := diff.NewSide(d.types, false)
	for _, r := range a.Resources {
		side.Add(diff.Resource{Type: r.Type, Name: r.Name}, r.Body)
	}
	return side, nil
}

// print counts and prints the differences.
func (d *diffFlags) print(cmd *cobra.Command, r *diffResult) error {
	for _, x := range r.Items {
		switch x.Kind {
		case diff.Added:
			r.Added++
		case diff.Removed:
			r.Removed++
		case diff.Changed:
			r.Changed++
		}
		if x.Drains != nil && x.Drains.Whole {
			r.Drained = append(r.Drained, x.Name)
		}
	}
	w := d.Page(cmd)
	var err error
	if d.ForPeople() {
		err = printDiff(w, r)
	} else {
		err = cli.PrintData(&d.Output, w, r, r.Items, func(x diff.Difference) string {
			if x.Group != "" {
				return fmt.Sprintf("%s/%s [%s]", x.Type, x.Name, x.Group)
			}
			return x.Type + "/" + x.Name
		})
	}
	switch {
	case err != nil:
		return cli.Fail(err, "")
	case len(r.Items) > 0:
		return cli.ErrNo
	}
	return nil
}

var signs = map[string]string{diff.Added: "+", diff.Removed: "-", diff.Changed: "~"}

func printDiff(w io.Writer, r *diffResult) error {
	var b bytes.Buffer
	for _, x := range r.Items {
		fmt.Fprintf(&b, "%s %s/%s", signs[x.Kind], x.Type, text.Line(x.Name))
		if x.Group != "" {
			fmt.Fprintf(&b, "  [%s]", text.Line(x.Group))
		}
		if x.Place != "" {
			fmt.Fprintf(&b, "  %s", text.Line(x.Place))
		}
		fmt.Fprintln(&b)
		for _, f := range x.Fields {
			from, to := text.Line(f.From), text.Line(f.To)
			switch {
			case f.From == "" && f.To == "":
				fmt.Fprintf(&b, "    %s\n", text.Line(f.Path))
			case f.From == "":
				fmt.Fprintf(&b, "  + %s: %s\n", text.Line(f.Path), to)
			case f.To == "":
				fmt.Fprintf(&b, "  - %s: %s\n", text.Line(f.Path), from)
			default:
				fmt.Fprintf(&b, "    %s: %s → %s\n", text.Line(f.Path), from, to)
			}
		}
	}
	if len(r.Items) == 0 {
		fmt.Fprintln(&b, "no difference")
	} else {
		fmt.Fprintf(&b, "%d changed, %d added, %d removed\n", r.Changed, r.Added, r.Removed)
		printImpact(&b, r)
	}
	_, err := w.Write(b.Bytes())
	return err
}
