package protocol

import (
	"testing"

	"github.com/chancery-xds/chancery/xds"
)

// cluster returns a cluster that refers to an assignment.
func cluster(name string, version int, assignment string) *xds.Resource {
	return resource(name, version, xds.Ref{Type: xds.Endpoint, Name: assignment})
}

// WARM-2: "a new ClusterLoadAssignment response is supplied". With each change of a cluster its
// assignment is sent again, even an assignment that an alias matches.
func TestWarm(t *testing.T) {
	for _, c := range []struct {
		name, assignment string
		sub              []string
		want             string
	}{
		{"WARM-2 its assignment", "e", []string{"e", "f"}, "CDS c@2, EDS e@1"},
		{"WARM-2 matched by an alias", "n", []string{"n"}, "CDS c@2, EDS aliased@1"},
		{"WARM-2 under a wildcard", "e", []string{"*"}, "CDS c@2, EDS e@1"},
		{"WARM-2 not subscribed", "f", []string{"e"}, "CDS c@2"},
		{"DELTA-7 a missing assignment", "missing", []string{"missing"}, "CDS c@2, EDS -missing"},
	} {
		l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{
			xds.Cluster.URL:  with(xds.NewTable(xds.Cluster), []*xds.Resource{cluster("c", 1, c.assignment)}),
			xds.Endpoint.URL: with(tableOf(xds.Endpoint, "e", "f"), []*xds.Resource{aliased("aliased", "n")}),
		})
		l.ask(xds.Request{Type: xds.Cluster})
		l.ask(xds.Request{Type: xds.Endpoint, Subscribe: c.sub})
		l.settle()
		l.commit(xds.Cluster, []*xds.Resource{cluster("c", 2, c.assignment)})
		if got := l.said(); got != c.want {
			t.Errorf("%s: %s", c.name, got)
		}
		for e := range l.sub(xds.Endpoint).Entries() {
			if !l.sub(xds.Endpoint).covers(e.Name) {
				t.Errorf("%s: the unsubscribed name %s is remembered", c.name, e.Name)
			}
		}
	}
}

// ADS-6: a response is stuck if one of its clusters has no assignment.
func TestStuck(t *testing.T) {
	for _, c := range []struct {
		name       string
		assignment string
		only       *xds.Type
		sub        []string
		want       bool
	}{
		{"ADS-6 an assignment", "e", nil, []string{"e"}, false},
		{"ADS-6 not subscribed yet", "e", nil, nil, false},
		{"ADS-6 a missing assignment", "missing", nil, []string{"missing"}, true},
		{"ADS-6 matched by an alias", "n", nil, []string{"n"}, false},
		{"ADS-6 any assignment", xds.Wildcard, nil, nil, false},
		{"ADS-6 on a per-type stream", "missing", xds.Cluster, nil, false},
	} {
		l := newLine(t, xds.Delta, c.only, Options{}, xds.Tables{
			xds.Cluster.URL:  with(xds.NewTable(xds.Cluster), []*xds.Resource{cluster("c", 1, c.assignment)}),
			xds.Endpoint.URL: with(tableOf(xds.Endpoint, "e"), []*xds.Resource{aliased("aliased", "n")}),
		})
		if c.sub != nil {
			l.ask(xds.Request{Type: xds.Endpoint, Subscribe: c.sub})
			l.settle()
		}
		l.ask(xds.Request{Type: xds.Cluster})
		l.drain()
		if got := l.sub(xds.Cluster).stuck(); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// A kept cluster does not make a response stuck, because no resource that is sent now
// refers to it.
func TestRemovedClusterIsNotStuck(t *testing.T) {
	view := xds.Tables{
		xds.Cluster.URL:  with(xds.NewTable(xds.Cluster), []*xds.Resource{cluster("x", 1, "missing"), cluster("y", 1, "e")}),
		xds.Endpoint.URL: tableOf(xds.Endpoint, "e"),
		xds.Route.URL:    with(xds.NewTable(xds.Route), route(1, "x")),
	}
	l := newLine(t, xds.Delta, nil, Options{}, view)
	l.ask(xds.Request{Type: xds.Cluster})
	l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"e"}})
	l.ask(xds.Request{Type: xds.Route, Subscribe: []string{"r"}})
	l.settle()
	l.commit(xds.Route, route(2, "y"))
	l.commit(xds.Cluster, []*xds.Resource{cluster("z", 1, "e")}, "x")
	l.ask(xds.Request{Type: xds.Cluster, Subscribe: []string{"x"}}) // sent again, in its earlier state
	if got := l.said(); got != "CDS x@1 z@1, EDS e@1, RDS r@2" && got != "CDS x@1 z@1, EDS e@1" {
		t.Fatal(got)
	}
	u := l.sub(xds.Cluster)
	if u.lingers("x") == nil {
		t.Fatal("x does not linger")
	}
	if u.stuck() {
		t.Error("the response is stuck because of a leaving cluster without an assignment")
	}
}
