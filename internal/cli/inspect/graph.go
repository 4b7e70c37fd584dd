package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/admin/api"
	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
	"github.com/chancery-xds/chancery/internal/cli"
	textutil "github.com/chancery-xds/chancery/internal/text"
)

// maxResources is the maximum number of resources in a graph; a larger graph is unreadable.
const maxResources = 1000

// A graphed is a resource in a graph.
type graphed struct {
	api.Resource
	Group   string     `json:"group,omitempty"`
	Missing bool       `json:"missing,omitempty"`
	Refs    []*graphed `json:"-"`
	To      []string   `json:"refs,omitempty"` // TYPE/NAME of Refs

	shown bool // the tree already has the resource
}

func (g *graphed) id() string { return g.Type + "/" + g.Name }

// Graph returns the command graph.
func Graph() *cobra.Command {
	var a cli.AdminFlags
	var o cli.Output
	var group string
	cmd := &cobra.Command{
		Use:   "graph TYPE/NAME",
		Short: "Show the references of a resource",
		Long: `Graph shows the references of a served resource, and their references: a listener, its
routes, their clusters, their endpoints. A reference that no file has is MISSING.

-o dot prints a graph for Graphviz, and -o mermaid a graph for Markdown pages.

Exit codes: 0 complete; 1 a resource is missing; 2 wrong usage; 3 no server answers,
or it denies access; 4 the resource does not exist.`,
		Example: `  chancery graph listener/ingress-443
  chancery graph route/ingress -g edge -o mermaid`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("graph needs one TYPE/NAME, not %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Check(); err != nil {
				return err
			}
			t, name, err := cli.ParseTypeAndName(args[0])
			if err != nil {
				return err
			}
			if name == "" {
				return fmt.Errorf("%q: the name of the resource is missing: write %s/NAME", args[0], args[0])
			}
			all, err := cli.Ask(cmd, &a, func(ctx context.Context, d *adminclient.Client) ([]*graphed, error) {
				return graphFrom(ctx, d, cli.TypeInPath(t), name, group)
			})
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			switch o.Format {
			case "text":
				printTree(w, all[0], "", "")
			case "dot":
				printDot(w, all)
			case "mermaid":
				printMermaid(w, all)
			default:
				err = cli.PrintData(&o, w, cli.List[*graphed]{APIVersion: api.Version, Kind: "Graph", Items: all}, all, (*graphed).id)
			}
			for _, g := range all {
				if g.Missing && err == nil {
					err = cli.ErrNo
				}
			}
			return err
		},
	}
	cmd.Flags().SortFlags = false
	cli.GroupFlag(cmd, &a, &group)
	o.Register(cmd, "text", "dot", "mermaid", "json", "yaml", "name")
	a.Register(cmd.Flags())
	cmd.ValidArgsFunction = cli.CompleteArg(&a, cli.CompleteResources)
	cli.ServerUsage(cmd)
	return cmd
}

// graphFrom returns a resource, and all resources to which it refers, directly or indirectly.
func graphFrom(ctx context.Context, d *adminclient.Client, typ, name, group string) ([]*graphed, error) {
	first := &graphed{Resource: api.Resource{Type: typ, Name: name}}
	all, by := []*graphed{first}, map[string]*graphed{first.id(): first}
	for i := 0; i < len(all); i++ {
		g := all[i]
		list, err := d.Resources(ctx, adminclient.ResourceFilter{Type: g.Type, Name: g.Name, Group: group})
		if r, is := errors.AsType[*adminclient.Refused](err); is && r.Code == http.StatusNotFound && i > 0 {
			g.Missing = true
			continue
		}
		if err != nil {
			return nil, err
		}
		for n, of := range list.Items {
			if n == 0 {
				g.Group, g.Place = of.Group, of.Place
			}
			for _, ref := range of.Refs {
				to := &graphed{Resource: ref}
				if by[to.id()] == nil {
					by[to.id()] = to
					all = append(all, to)
				}
				to = by[to.id()]
				if !slices.Contains(g.Refs, to) { // the resource in two groups may have the same reference
					g.Refs, g.To = append(g.Refs, to), append(g.To, to.id())
				}
			}
		}
		if len(all) > maxResources {
			return nil, fmt.Errorf("more than %s resources: begin at a lower resource", textutil.Number(maxResources))
		}
	}
	return all, nil
}

func (g *graphed) text() string {
	text := g.Type + " " + g.Name
	if g.Missing {
		return textutil.Line(text) + "  MISSING"
	}
	return textutil.Line(text + textutil.Prefixed("  ", g.Place))
}

// printTree prints a resource and its references. It expands each resource only once.
func printTree(w io.Writer, g *graphed, lead, below string) {
	if g.shown && len(g.Refs) > 0 {
		fmt.Fprintf(w, "%s%s  (see above)\n", lead, g.text())
		return
	}
	g.shown = true
	fmt.Fprintf(w, "%s%s\n", lead, g.text())
	for i, ref := range g.Refs {
		if i == len(g.Refs)-1 {
			printTree(w, ref, below+"└─ ", below+"   ")
		} else {
			printTree(w, ref, below+"├─ ", below+"│  ")
		}
	}
}

func printDot(w io.Writer, all []*graphed) {
	fmt.Fprintln(w, "digraph chancery {\n  rankdir=LR; node [shape=box];")
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	for i, g := range all {
		style := ""
		if g.Missing {
			style = ", color=red, style=dashed"
		}
		fmt.Fprintf(w, "  n%d [label=\"%s\"%s];\n", i, escape.Replace(textutil.Line(g.Type+" "+g.Name)), style)
	}
	edges(all, func(from, to int) { fmt.Fprintf(w, "  n%d -> n%d;\n", from, to) })
	fmt.Fprintln(w, "}")
}

func printMermaid(w io.Writer, all []*graphed) {
	fmt.Fprintln(w, "flowchart LR")
	escape := strings.NewReplacer(`"`, "#quot;", "<", "#lt;", ">", "#gt;", "#", "#35;")
	for i, g := range all {
		class := ""
		if g.Missing {
			class = ":::missing"
		}
		fmt.Fprintf(w, "  n%d[\"%s\"]%s\n", i, escape.Replace(textutil.Line(g.Type+" "+g.Name)), class)
	}
	edges(all, func(from, to int) { fmt.Fprintf(w, "  n%d --> n%d\n", from, to) })
	fmt.Fprintln(w, "  classDef missing stroke:#d00,stroke-dasharray:4")
}

// edges calls f for each reference.
func edges(all []*graphed, f func(from, to int)) {
	at := map[*graphed]int{}
	for i, g := range all {
		at[g] = i
	}
	for i, g := range all {
		for _, ref := range g.Refs {
			f(i, at[ref])
		}
	}
}
