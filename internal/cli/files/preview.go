package files

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/groups/cel"
	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/explain"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cli/dirload"
	"github.com/chancery-xds/chancery/internal/cli/xdsclient"
	"github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// previewFlags are the flags of chancery preview.
type previewFlags struct {
	xdsclient.NodeFlags
	output string
	load   dir.Options
	sets   []string
}

// A preview is the output of the command: the groups and resources of a node. docs/groups.md documents
// its JSON.
type preview struct {
	Version   int                   `json:"version"`
	Refused   bool                  `json:"refused,omitempty"`
	Groups    []api.PreviewGroup    `json:"groups"`
	Otherwise string                `json:"otherwise,omitempty"` // the rule for nodes that match no group
	Notes     []string              `json:"notes,omitempty"`
	Resources []api.PreviewResource `json:"resources"`
}

// Preview returns the command preview.
func Preview() *cobra.Command {
	var p previewFlags
	cmd := &cobra.Command{
		Use:   "preview DIR",
		Short: "Show which resources a node would get, and why",
		Long: `Preview loads DIR as serve does, and shows the groups of a node, the rule and file that
assign each group, and the resources of the groups. It does not contact a server.

Give the node by --node and --cluster, or completely by --node-json, in the form of an
Envoy's bootstrap.

Exit codes: 0 the node gets groups; 1 the node is refused, or DIR cannot be loaded; 2 wrong usage.`,
		Example: `  chancery preview ./config --node edge-1 --cluster edge
  chancery preview ./config --node-json '{"id": "pay-1", "metadata": {"team": "pay"}}'
  chancery preview ./config --node edge-1 -o json | jq -r '.resources[].name'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("preview needs one directory, not %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return p.run(cmd, args[0]) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	p.NodeFlags.Register(f)
	f.StringVarP(&p.output, "output", "o", "table", "`FORMAT`: table, json or name")
	cli.OfferValues(cmd, "output", "table", "json", "name")
	dirload.ProtoSetFlag(f, &p.sets)
	cli.SizeFlag(f, &p.load.MaxFile, "max-file", 64<<20, "maximum `SIZE` of a file of DIR")
	dirload.FollowLinksFlag(f, &p.load.FollowLinksOutside)
	dirload.LegacyV2Flag(f, &p.load.V2)
	return cmd
}

func (p *previewFlags) run(cmd *cobra.Command, root string) error {
	write := map[string]func(io.Writer, *preview) error{"table": writeTable, "json": previewJSON, "name": writeNames}[p.output]
	switch {
	case write == nil:
		return fmt.Errorf("--output: %q: must be table, json or name", p.output)
	case !p.Given():
		return errors.New("preview needs a node: --node and --cluster, or --node-json; '{}' is a node without any properties")
	}
	if err := p.NodeFlags.Check(); err != nil {
		return err
	}
	if err := dirload.CheckMaxFile(p.load.MaxFile); err != nil {
		return err
	}
	types, err := dirload.ReadProtoSets(p.sets)
	if err != nil {
		return err
	}
	node, err := p.Node(cmd.InOrStdin(), types)
	if err != nil {
		return err
	}
	st := store.New()
	p.load.Types, p.load.Flag, p.load.CEL = types, dirload.FlagOfOption, cel.Compile
	p.load.AllowEmpty, p.load.AllowMassDelete = true, true
	src := dir.New(root, st, p.load)
	if _, err := src.Load(); err != nil {
		return dirload.LoadError(cmd.ErrOrStderr(), root, "shown", err)
	}
	seen := previewOf(src, st.Snapshot(), node)
	if err := write(cmd.OutOrStdout(), seen); err != nil {
		return cli.Fail(err, "")
	}
	if seen.Refused {
		return cli.Fail(fmt.Errorf("the node is refused: no group matches id %q, cluster %q", node.ID, node.Cluster), "\"otherwise\" in the "+dir.GroupFile+" of the root directory sets the groups of such nodes")
	}
	return nil
}

// previewOf returns the groups and resources that a node gets from a loaded source.
func previewOf(src *dir.Source, all *store.Snapshot, n *xds.Node) *preview {
	d := src.Decide(n)
	p := explain.PreviewOf(d, all, 0, func(_ string, t *xds.Type, name string) string { return src.PlaceFor(n, t, name) })
	return &preview{Version: 1, Refused: p.Refused, Groups: p.Groups, Otherwise: p.Otherwise, Notes: p.Notes, Resources: p.Resources}
}

func previewJSON(w io.Writer, p *preview) error { return text.WriteJSON(w, p, "  ") }

func writeNames(w io.Writer, p *preview) error {
	for _, r := range p.Resources {
		if _, err := fmt.Fprintf(w, "%s/%s\n", r.Type, text.Line(r.Name)); err != nil {
			return err
		}
	}
	return nil
}

func writeTable(out io.Writer, p *preview) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if p.Otherwise != "" {
		fmt.Fprintln(w, p.Otherwise)
	}
	if len(p.Groups) > 0 {
		fmt.Fprintln(w, "GROUP\tWHY\tRULE")
	}
	for _, g := range p.Groups {
		fmt.Fprintf(w, "%s\t%s\t%s\n", text.Line(g.Name), text.Line(g.Why), text.Line(cmp.Or(g.Place, "-")))
	}
	for _, n := range p.Notes {
		fmt.Fprintln(w, "note:", text.Line(n))
	}
	if p.Refused {
		return w.Flush()
	}
	fmt.Fprintln(w)
	if len(p.Resources) == 0 {
		fmt.Fprintln(w, "No resources.")
		return w.Flush()
	}
	if err := w.Flush(); err != nil { // the next table has other columns
		return err
	}
	fmt.Fprintln(w, "TYPE\tNAME\tGROUP\tBYTES\tVERSION\tFILE")
	for _, r := range p.Resources {
		group := r.Group
		if len(r.Hides) > 0 {
			group += " (hides " + strings.Join(r.Hides, ", ") + ")"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\n", r.Type, text.Line(r.Name), text.Line(group), r.Bytes, text.Line(r.Version), text.Line(r.Place))
	}
	return w.Flush()
}
