package explain

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// routeTo returns a route configuration that refers to clusters.
func routeTo(name string, clusters ...string) string {
	text := "\"@type\": type.googleapis.com/envoy.config.route.v3.RouteConfiguration\nname: " + name + "\nvirtual_hosts:\n- name: all\n  domains: [\"*\"]\n  routes:\n"
	for i, c := range clusters {
		text += fmt.Sprintf("  - match: {path: /%d}\n    route:\n      cluster: %s\n", i, c)
	}
	return text
}

// lines formats a graph, one line for each node and edge.
func lines(r *fixture, g api.ReferenceGraph) (all []string) {
	for _, n := range g.Nodes {
		line := n.Type + " " + n.Name
		if n.Group != "" && n.Group != g.Group {
			line += " of " + n.Group
		}
		for text, is := range map[string]bool{" missing": n.Missing, " bootstrap": n.Bootstrap, " cut": n.Cut} {
			if is {
				line += text
			}
		}
		if n.Reason != "" {
			line += " " + n.Reason
		}
		all = append(all, line)
	}
	for _, e := range g.Edges {
		line := fmt.Sprintf("%s -> %s", g.Nodes[e.From].Name, g.Nodes[e.To].Name)
		if e.Place != "" {
			line += " at " + strings.ReplaceAll(e.Place, r.dir+"/", "")
		}
		all = append(all, line)
	}
	return all
}

func TestReferences(t *testing.T) {
	files := []string{
		"l.yaml", resources(httpListener("in", "r"), strings.Replace(httpListener("other", "r"), "1000", "1001", 1)),
		"r.yaml", routeTo("r", "pay", "pya"), "r2.yaml", routeTo("r2", "shop"),
		"c.yaml", resources(edsCluster("pay"), edsCluster("shop")),
		"e.yaml", resources(endpoints("pay"), endpoints("shop")),
	}
	for name, tt := range map[string]struct {
		q    GraphQuery
		want []string
	}{
		"down": {GraphQuery{Type: "LDS", Name: "in"}, []string{
			"LDS in", "RDS r", "CDS pay", `CDS pya missing did you mean "pay"?`, "EDS pay",
			"in -> r", "r -> pay", "r -> pya at r.yaml:12:16", "pay -> pay",
		}},
		"both ways": {GraphQuery{Type: "CDS", Name: "pay"}, []string{
			"CDS pay", "EDS pay", "RDS r", "LDS in", "LDS other",
			"pay -> pay", "r -> pay", "in -> r", "other -> r",
		}},
		"up":      {GraphQuery{Type: "EDS", Name: "shop"}, []string{"EDS shop", "CDS shop", "RDS r2", "shop -> shop", "r2 -> shop"}},
		"a limit": {GraphQuery{Type: "CDS", Name: "pay", Limit: 4}, []string{"CDS pay", "EDS pay", "RDS r cut", "LDS in", "pay -> pay", "r -> pay", "in -> r"}},
		"a depth": {GraphQuery{Type: "LDS", Name: "in", Depth: 1}, []string{"LDS in", "RDS r cut", "in -> r"}},
	} {
		within(t, name, func(t *testing.T) {
			r := start(t, files...)
			limited := tt.q.Limit+tt.q.Depth > 0
			if tt.q.Limit == 0 {
				tt.q.Limit = 100
			}
			if tt.q.Depth == 0 {
				tt.q.Depth = 10
			}
			g, err := r.References(t.Context(), tt.q)
			if got := lines(r, g); err != nil || !slices.Equal(got, tt.want) || g.Cut != limited {
				t.Errorf("%v, cut %v\n%s\nwant\n%s", err, g.Cut, strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
	within(t, "an unknown resource", func(t *testing.T) {
		r := start(t, files...)
		for _, q := range []GraphQuery{{Type: "CDS", Name: "pya"}, {Type: "XDS", Name: "pay"}, {Type: "CDS", Name: "pay", Group: "none"}} {
			_, err := r.References(t.Context(), q)
			if _, is := errors.AsType[*NotFound](err); !is {
				t.Errorf("%+v: %v", q, err)
			}
		}
	})
	within(t, "the subscribers", func(t *testing.T) {
		r := start(t, files...)
		c := xdstest.Delta(t, r.conn, r.node("edge-1"))
		c.Subscribe(xds.Cluster, "*")
		c.ACK(c.Expect(xds.Cluster, "pay", "shop"))
		synctest.Wait()
		g, err := r.References(t.Context(), GraphQuery{Type: "RDS", Name: "r", Limit: 100, Depth: 10, Subscribers: true})
		if err != nil || g.Nodes[0].Clients.Total != 0 || g.Nodes[1].Clients.By[api.Synced] != 1 || g.Nodes[2].Clients != nil || g.Nodes[2].Name != "pya" {
			t.Errorf("%v %+v", err, g.Nodes)
		}
	})
}

// A reference may be resolved in another group, if a node may get both groups. The same group comes first.
func TestReferencesBetweenGroups(t *testing.T) {
	edge, mesh := "match: {id: edge-*}\n", "match: {id: mesh-*}\n"
	within(t, "groups", func(t *testing.T) {
		r := start(t, "edge/group.yaml", edge, "mesh/group.yaml", mesh, "pay/group.yaml", "match: {cluster: pay}\n",
			"edge/r.yaml", routeTo("r", "own", "other", "apart"), "mesh/r.yaml", routeTo("r", "own"), "mesh/c.yaml", resources(cluster("apart")), "edge/c.yaml", resources(cluster("own")), "pay/c.yaml", resources(cluster("own"), cluster("other")))
		g, err := r.References(t.Context(), GraphQuery{Type: "RDS", Name: "r", Limit: 100, Depth: 10})
		want := []string{"RDS r", "CDS apart missing only group \"mesh\" has it", "CDS other of pay", "CDS own", "r -> apart at edge/r.yaml:15:16", "r -> other", "r -> own"}
		if got := lines(r, g); err != nil || !slices.Equal(got, want) || !slices.Equal(g.Groups, []string{"edge", "mesh"}) {
			t.Errorf("%v %q\n%s", err, g.Groups, strings.Join(got, "\n"))
		}
		g, err = r.References(t.Context(), GraphQuery{Type: "CDS", Name: "own", Group: "pay", Limit: 100, Depth: 10})
		if got := lines(r, g); err != nil || !slices.Equal(got, []string{"CDS own", "RDS r of mesh", "r -> own"}) {
			t.Errorf("%v\n%s", err, strings.Join(got, "\n"))
		}
	})
}
