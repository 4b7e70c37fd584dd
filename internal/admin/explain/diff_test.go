package explain

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/quarantine"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// diffLines formats a difference, one line for each resource and field.
func diffLines(d api.Diff) (all []string) {
	for _, x := range d.Items {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", x.Kind, x.Type, x.Name, x.Group)))
		for _, f := range x.Fields {
			all = append(all, fmt.Sprintf(" %s: %s -> %s", f.Path, f.From, f.To))
		}
	}
	return all
}

func (r *fixture) diff(q DiffQuery, want ...string) api.Diff {
	r.Helper()
	if q.Limit == 0 {
		q.Limit = 100
	}
	d, err := r.Diff(r.Context(), q)
	if got := diffLines(d); err != nil || !slices.Equal(got, want) {
		r.Errorf("%+v: %v\n%s\nwant\n%s", q, err, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	return d
}

func timeout(name, d string) string {
	return strings.Replace(cluster(name), "1s", d, 1)
}

// Two clients get different resources. A client may not see a resource that the rules forbid.
func TestDiffOfClients(t *testing.T) {
	within(t, "two groups", func(t *testing.T) {
		r := start(t, "edge/group.yaml", "match: {id: edge-*}\n", "mesh/group.yaml", "match: {id: mesh-*}\n",
			"edge/c.yaml", resources(cluster("both"), timeout("pay", "1s")), "mesh/c.yaml", resources(cluster("both"), timeout("pay", "2s"), cluster("more")))
		for _, id := range []string{"edge-1", "mesh-1"} {
			c := xdstest.Delta(t, r.conn, r.node(id))
			c.Subscribe(xds.Listener, "*")
			c.ACK(c.Expect(xds.Listener))
		}
		both := DiffQuery{From: "client:edge-1", To: "client:mesh-1"}
		d := r.diff(both, "added CDS more", "changed CDS pay", " connect_timeout: 1s -> 2s")
		if d.From.Note != "of group edge" || d.To.Resources != 3 || d.Total != 2 || d.Added != 1 || d.Changed != 1 || d.Impact != nil || !strings.Contains(d.Items[0].Place, "mesh/c.yaml") {
			t.Errorf("%+v", d)
		}
		r.diff(DiffQuery{From: both.From, To: both.To, Type: "CDS", Name: "more"}, "added CDS more")
		r.diff(DiffQuery{From: both.From, To: both.To, Limit: 1}, "added CDS more")
		r.deps.Allowed = func(_ *server.Stream, _ *xds.Node, _ *xds.Type, name string) (bool, string) {
			return name != "more", ""
		}
		r.Explainer = New(r.deps)
		r.diff(both, "changed CDS pay", " connect_timeout: 1s -> 2s")
		for _, q := range []DiffQuery{{From: "client:no", To: "client:mesh-1"}, {From: "served", To: "client:mesh-1"}, {From: "served", To: "rev:r1"}, {From: "sent:edge-1", To: "accepted:edge-1"}, {From: "served", To: "served", Type: "XDS"}} {
			_, err := r.Diff(t.Context(), q)
			if _, is := errors.AsType[*NotFound](err); !is {
				t.Errorf("%+v: %v", q, err)
			}
		}
	})
}

// SAFE-6: a changed secret is a difference without its text.
func TestDiffOfServed(t *testing.T) {
	within(t, "SAFE-6 another set", func(t *testing.T) {
		secret := func(text string) string {
			return fmt.Sprintf("- \"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret\n  name: s\n  generic_secret: {secret: {inline_string: %s}}\n", text)
		}
		r := start(t, "c.yaml", resources(cluster("old"), timeout("pay", "1s"), secret("hunter2")))
		other := start(t, "c.yaml", resources(timeout("pay", "2s"), secret("hunter3")))
		r.deps.Sides = map[string]SideSource{"other": func(_ context.Context, of string, add func(string, *xds.Resource, string)) (string, error) {
			for _, table := range other.st.Snapshot().View("default").All() {
				for x := range table.All() {
					add("default", x, of)
				}
			}
			return "note", nil
		}}
		r.Explainer = New(r.deps)
		c := xdstest.Delta(t, r.conn, r.node("edge-1"))
		c.Subscribe(xds.Cluster, "*")
		c.ACK(c.Expect(xds.Cluster, "old", "pay"))
		synctest.Wait()
		d := r.diff(DiffQuery{From: "served", To: "other:x"}, "removed CDS old default", "changed CDS pay default", " connect_timeout: 1s -> 2s",
			"changed SDS s default", " (secrets, or content that cannot be shown): [redacted] -> [redacted]")
		if d.Impact == nil || d.Impact.Clients != 1 || d.To.Note != "note" || d.Items[1].Place != "x" || !d.Items[2].Secret || d.Items[1].Secret {
			t.Errorf("%+v", d)
		}
		r.diff(DiffQuery{From: "served", To: "served"})
		r.diff(DiffQuery{From: "served", To: "other:x", Group: "none"})
	})
}

// The wanted, the sent and the accepted version of one resource on a client differ while the client refuses it.
func TestDiffOfVersions(t *testing.T) {
	within(t, "versions", func(t *testing.T) {
		r := start(t, "c.yaml", resources(timeout("a", "1s"), cluster("b")))
		c := xdstest.Delta(t, r.conn, r.node("edge-1"))
		c.Subscribe(xds.Cluster, "*")
		c.ACK(c.Expect(xds.Cluster, "a", "b"))
		first := r.st.Snapshot().View("default").Table(xds.Cluster).Lookup("a")
		q := func(from, to string) DiffQuery {
			return DiffQuery{From: from + ":edge-1", To: to + ":edge-1", Type: "CDS", Name: "a"}
		}
		synctest.Wait()
		r.diff(q("wanted", "sent"))
		d := r.diff(q("sent", "accepted"))
		if d.From.Resources != 1 || d.From.Note != "version "+first.Version {
			t.Errorf("%+v", d.From)
		}

		r.write("c.yaml", resources(timeout("a", "2s"), cluster("b")))
		r.load("")
		synctest.Wait()
		r.diff(q("wanted", "sent"))
		_, err := r.Diff(t.Context(), q("sent", "accepted")) // without a quarantine, the server does not keep the old content
		if is, ok := errors.AsType[*NotFound](err); !ok || !strings.Contains(is.Message, "no longer has version") {
			t.Error(err)
		}

		second := r.st.Snapshot().View("default").Table(xds.Cluster).Lookup("a")
		r.write("c.yaml", resources(timeout("a", "1s"), cluster("b"))) // the quarantine serves the first version instead
		r.load("")
		c.NACK(c.Expect(xds.Cluster, "a"), "no")
		synctest.Wait()
		r.deps.Held = func(_ *server.Stream, t *xds.Type) []quarantine.Held {
			return []quarantine.Held{{Type: t, Name: "a", Body: second, Refused: second.Version}}
		}
		r.Explainer = New(r.deps)
		r.diff(q("sent", "accepted"), "changed CDS a", " connect_timeout: 2s -> 1s")
	})
}

// An answer about one resource has the lines of its fields, and the clients that refuse it before the others.
func TestServedLinesAndNodes(t *testing.T) {
	within(t, "one resource", func(t *testing.T) {
		r := start(t, "c.yaml", "# a comment\n"+resources(cluster("a"), edsCluster("b")))
		for _, id := range []string{"edge-1", "edge-2"} {
			c := xdstest.Delta(t, r.conn, r.node(id))
			c.Subscribe(xds.Cluster, "*")
			if m := c.Expect(xds.Cluster, "a", "b"); id == "edge-1" {
				c.ACK(m)
			} else {
				c.NACK(m, "b is bad")
			}
		}
		synctest.Wait()
		got, err := r.Served(t.Context(), Query{Type: "CDS", Name: "b", Body: true, Places: true, Subscribers: true})
		if err != nil || len(got.Items) != 1 {
			t.Fatal(err)
		}
		is := got.Items[0]
		if want := map[string]int{"name": 7, "connect_timeout": 8, "type": 9, "eds_cluster_config": 10, "eds_cluster_config.eds_config": 10,
			"eds_cluster_config.eds_config.ads": 10, "eds_cluster_config.eds_config.resource_api_version": 10}; !maps.Equal(is.Lines, want) {
			t.Errorf("%v, want %v", is.Lines, want)
		}
		if n := is.Clients.Nodes; len(n) != 2 || n[0] != (api.SubscribedNode{Node: "edge-2", State: api.Nacked}) || n[1].Node != "edge-1" {
			t.Errorf("%+v", n)
		}
		r.write("c.yaml", resources(cluster("a"), timeout("b", "9s")))
		got, _ = r.Served(t.Context(), Query{Type: "CDS", Name: "b", Body: true, Places: true})
		if n := got.Items[0].Lines; len(n) > 0 {
			t.Errorf("lines of a file that has changed: %v", n)
		}
	})
}
