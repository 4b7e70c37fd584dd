package protocol

import (
	"testing"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// A route waits only for the clusters in flight to which it refers.
func TestReady(t *testing.T) {
	cds := func(name string) xds.Ref { return xds.Ref{Type: xds.Cluster, Name: name} }
	named := aliased("named", "n")
	for _, c := range []struct {
		name  string
		refs  []xds.Ref // nil: unknown
		ready bool      // while z is in flight
	}{
		{"ADS-6 no reference", []xds.Ref{}, true},
		{"ADS-7 a cluster in flight", []xds.Ref{cds("z")}, false},
		{"ADS-7 a cluster in flight and others", []xds.Ref{cds("x"), cds("z")}, false},
		{"ADS-6 an accepted cluster", []xds.Ref{cds("x")}, true},
		{"ADS-6 a missing cluster", []xds.Ref{cds("missing")}, true},
		{"ADS-6 an unsubscribed cluster", []xds.Ref{cds("unwanted")}, true},
		{"ADS-6 a name of another type", []xds.Ref{{Type: xds.Secret, Name: "z"}}, true},
		{"ADS-2 any cluster", []xds.Ref{cds(xds.Wildcard)}, false},
		{"ADS-2 unknown references", nil, false},
		{"DELTA-11 a cluster in flight, by its alias", []xds.Ref{cds("n")}, false},
	} {
		r := xds.NewResource(nil, "r", []byte("2"))
		r.Refs = c.refs
		r.Seal("2")
		l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{
			xds.Cluster.URL: tableOf(xds.Cluster, "x", "unwanted"), xds.Route.URL: tableOf(xds.Route, "r"),
		})
		l.ask(xds.Request{Type: xds.Cluster, Subscribe: []string{"x", "z", "named"}})
		l.ask(xds.Request{Type: xds.Route, Subscribe: []string{"r"}})
		l.settle()
		l.commit(xds.Cluster, append(resources(1, "z", "unwanted"), named))
		l.commit(xds.Route, []*xds.Resource{r})
		want := "CDS named@1 z@1"
		if c.ready {
			want += ", RDS r@2"
		}
		if got := l.said(); got != want {
			t.Errorf("%s: %s", c.name, got)
		}
		if c.ready {
			continue
		}
		// The route is sent when the client has answered, or was silent for too long.
		if next := l.Deadline(); next.IsZero() || next.After(l.now.Add(silence)) {
			t.Errorf("%s: woken at %v", c.name, next)
		}
		l.wait(silence - 1)
		if got := l.said(); got != "" {
			t.Errorf("%s: too early: %s", c.name, got)
		}
		l.wait(1)
		if got := l.said(); got != "RDS r@2" {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

// ADS-6: a resource that may refer to any cluster waits for the newest CDS response. It does not
// wait if no ACK is expected, or if the response is a heartbeat or too old.
func TestMayAnyCome(t *testing.T) {
	table := tableOf(xds.Cluster, "x")
	for _, c := range []struct {
		name string
		do   func(s *Session, u *subscription)
		want bool
	}{
		{"ADS-6 nothing is in flight", func(_ *Session, u *subscription) { u.deliveries, u.unacked = nil, false }, false},
		{"ADS-7 a response is in flight", func(*Session, *subscription) {}, true},
		{"ADS-7 a response is due", func(_ *Session, u *subscription) { u.deliveries, u.unacked, u.Due = nil, false, true }, true},
		{"ADS-6 the response cannot be answered", func(_ *Session, u *subscription) { u.deliveries[0].stuck = true }, false},
		{"ADS-6 the response is too old", func(s *Session, _ *subscription) { s.now = s.now.Add(silence) }, false},
		{"TTL-3 the response is a heartbeat", func(_ *Session, u *subscription) { u.deliveries[0].beats = []*xds.Resource{} }, false},
	} {
		s := &Session{now: time.Unix(100, 0), view: xds.Tables{xds.Cluster.URL: table}}
		u := newSubscription(xds.Cluster)
		s.deliver(u, &delivery{sent: s.now, parts: []part{{nonce: 1}}})
		c.do(s, u)
		if got := s.mayAnyCome(u).holds; got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// ADS-9: a resuming client may have clusters before it opens CDS. A resource that may refer to a
// cluster waits for the duration silence. A new client has no clusters, so nothing waits.
func TestOpensLater(t *testing.T) {
	for _, c := range []struct {
		name    string
		resumes bool
		refs    []xds.Ref
		waits   bool
	}{
		{"ADS-9 resumes, refers to a cluster", true, []xds.Ref{{Type: xds.Cluster, Name: "x"}}, true},
		{"ADS-9 resumes, may refer to anything", true, nil, true},
		{"ADS-9 resumes, refers to no cluster", true, []xds.Ref{{Type: xds.Secret, Name: "x"}}, false},
		{"ADS-9 a new client", false, []xds.Ref{{Type: xds.Cluster, Name: "x"}}, false},
	} {
		r := xds.NewResource(nil, "r", []byte("2"))
		r.Refs = c.refs
		r.Seal("2")
		l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.Route.URL: with(xds.NewTable(xds.Route), []*xds.Resource{r})})
		req := xds.Request{Type: xds.Route, Subscribe: []string{"r"}}
		if c.resumes {
			req.Initial = []xds.Version{{Name: "r", Version: "1"}}
		}
		l.ask(req)
		if got := l.said() == ""; got != c.waits {
			t.Fatalf("%s: it waits: %v", c.name, got)
		}
		if !c.waits {
			continue
		}
		end := l.now.Add(silence)
		for next := l.Deadline(); !next.IsZero() && next.Before(end); next = l.Deadline() {
			l.wait(next.Sub(l.now))
			l.want("")
		}
		if next := l.Deadline(); !next.Equal(end) {
			t.Fatalf("%s: woken at %v, not in %v", c.name, next, silence)
		}
		l.wait(end.Sub(l.now))
		waived := 0
		for range l.Responses() {
			waived--
		}
		for e := range l.Events() {
			if e.Kind == Waived && e.By.Is(xds.Cluster) && e.Name == "r" {
				waived += 10
			}
		}
		if waived != 9 {
			t.Errorf("%s: want one response and one waived event, got %d", c.name, waived)
		}
	}
}

// refusedCluster returns a line whose client has cluster x, its assignment, and a route to x. A
// route to the new cluster z is to be sent, but z is refused.
func refusedCluster(t *testing.T, eds bool) *line {
	view := xds.Tables{
		xds.Cluster.URL: tableOf(xds.Cluster, "x"), xds.Route.URL: with(xds.NewTable(xds.Route), route(1, "x")),
		xds.Endpoint.URL: tableOf(xds.Endpoint, "z"),
	}
	if !eds {
		delete(view, xds.Endpoint.URL)
	}
	l := newLine(t, xds.Delta, nil, Options{}, view)
	l.ask(xds.Request{Type: xds.Cluster})
	l.ask(xds.Request{Type: xds.Route, Subscribe: []string{"r", "fresh"}})
	l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"other"}})
	l.settle()
	l.commit(xds.Cluster, []*xds.Resource{resource("z", 1, xds.Ref{Type: xds.Endpoint, Name: "z"})})
	l.drain()
	l.nack(xds.Cluster)
	l.commit(xds.Route, append(route(2, "z"), resource("fresh", 1, xds.Ref{Type: xds.Cluster, Name: "z"})))
	return l
}

// ADS-3: a route does not switch from a working cluster to a refused cluster, until the client
// proves that it has the refused cluster: it subscribes to the assignment and ACKs it. A new route
// does not wait.
func TestRefusedCluster(t *testing.T) {
	l := refusedCluster(t, true)
	l.want("RDS fresh@1")
	l.ack(xds.Route)
	l.wait(time.Hour)
	l.want("")
	l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"z"}})
	l.want("EDS z@1") // this is not a proof: the client may refuse the assignment
	l.ack(xds.Endpoint)
	l.want("RDS r@2")

	l = refusedCluster(t, false) // without an assignment, only silence ends the wait
	l.want("RDS fresh@1")
	l.ack(xds.Route)
	l.want("")
	for range 10 {
		next := l.Deadline()
		if next.IsZero() || next.After(l.now.Add(silence)) {
			t.Fatalf("woken at %v", next)
		}
		l.wait(next.Sub(l.now))
		if l.said() == "RDS r@2" {
			return
		}
	}
	t.Error("the route waits for ever")
}

// ADS-6: a route that waits for a cluster is sent when the CDS response is unanswered for long
// enough. The route itself need not have waited that long.
func TestDeadlineSendsWaitingRoute(t *testing.T) {
	l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{})
	l.ask(xds.Request{Type: xds.Cluster})
	l.ask(xds.Request{Type: xds.Route, Subscribe: []string{"r"}})
	l.settle()
	l.commit(xds.Cluster, resources(1, "c"))
	l.want("CDS c@1")
	l.wait(3 * time.Second)
	l.commit(xds.Route, route(1, "c"))
	if after, said := l.next(); after != silence-3*time.Second || said != "RDS r@1" {
		t.Error(after, said)
	}
}

// ADS-6: removals are sent last. A route that waited for the removal of a cluster then waits for
// the answer "at most 15 s", and an event reports that.
func TestRouteWaitsForRemovedCluster(t *testing.T) {
	unknown := xds.NewResource(nil, "r", []byte("2"))
	unknown.Seal("2")
	l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{
		xds.Route.URL: with(xds.NewTable(xds.Route), []*xds.Resource{unknown}),
	})
	l.ask(xds.Request{Type: xds.Route, Subscribe: []string{"r"}, Initial: []xds.Version{{Name: "r", Version: "1"}}})
	l.said()
	l.ask(xds.Request{Type: xds.Cluster, Subscribe: []string{"c"}})
	if got := l.said(); got != "CDS -c" {
		t.Errorf("sent %s", got)
	}
	if want := l.now.Add(silence); !l.Deadline().Equal(want) {
		t.Errorf("the deadline is %v, want %v", l.Deadline(), want)
	}
	l.wait(silence)
	if got := l.said(); got != "RDS r@2" {
		t.Errorf("sent %s", got)
	}
}

// ADS-6: nothing waits for the assignments of a cluster that the client has dropped since the
// cluster was sent, even if no ACK is expected any more.
func TestDroppedClusterIsNotAwaited(t *testing.T) {
	for _, drop := range []bool{false, true} {
		l := newLine(t, xds.SotW, nil, Options{}, xds.Tables{
			xds.Cluster.URL:  with(xds.NewTable(xds.Cluster), []*xds.Resource{cluster("x", 1, "missing"), cluster("y", 1, "e")}),
			xds.Endpoint.URL: tableOf(xds.Endpoint, "e"),
			xds.Route.URL:    tableOf(xds.Route, "r"),
		})
		l.ask(xds.Request{Type: xds.Endpoint, Names: []string{"e", "missing"}})
		l.ask(xds.Request{Type: xds.Route, Names: []string{"r"}})
		l.settle()
		l.ask(xds.Request{Type: xds.Cluster, Names: []string{xds.Wildcard}})
		l.want("CDS x@1 y@1, EDS e@1")
		l.commit(xds.Route, []*xds.Resource{resource("r", 2, xds.Ref{Type: xds.Cluster, Name: xds.Wildcard})})
		want := ""
		if drop {
			l.ask(xds.Request{Type: xds.Cluster})
			want = "RDS r@2"
		}
		l.want(want)
	}
}

// ADS-6: nothing waits for the assignments of a cluster that is on demand now, so that the wildcard
// does not cover it. The client does not know the new state, and the old state had no assignment.
func TestOnDemandClusterIsNotAwaited(t *testing.T) {
	for _, onDemand := range []bool{false, true} {
		l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{
			xds.Endpoint.URL: tableOf(xds.Endpoint, "e"),
		})
		l.ask(xds.Request{Type: xds.Cluster})
		l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"missing"}})
		l.ask(xds.Request{Type: xds.Route, Subscribe: []string{"r"}})
		l.settle()
		l.commit(xds.Cluster, []*xds.Resource{cluster("x", 1, "missing")})
		l.want("CDS x@1, EDS -missing")
		c, want := cluster("x", 2, "e"), "CDS x@2"
		if c.OnDemand = onDemand; onDemand {
			want = "RDS r@1, CDS -x"
		}
		l.commit(xds.Cluster, []*xds.Resource{c})
		l.commit(xds.Route, route(1, "x"))
		l.want(want)
	}
}
