package protocol

import (
	"slices"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// A removed cluster is kept while a route on the client refers to it by an alias.
func TestStatesOfNameKeptByAlias(t *testing.T) {
	both(t, func(t *testing.T, v xds.Variant) {
		x := resource("x", 1)
		x.Aliases = []string{"alias"}
		x.Seal("1")
		l := newLine(t, v, nil, Options{}, xds.Tables{
			xds.Cluster.URL: with(xds.NewTable(xds.Cluster), []*xds.Resource{x, resource("y", 1)}),
			xds.Route.URL:   with(xds.NewTable(xds.Route), []*xds.Resource{resource("r", 1, xds.Ref{Type: xds.Cluster, Name: "alias"})}),
		})
		l.ask(xds.Request{Type: xds.Cluster})
		l.ask(named(v, xds.Route, "r"))
		l.settle()
		l.commit(xds.Route, []*xds.Resource{resource("r", 2, xds.Ref{Type: xds.Cluster, Name: "y"})})
		l.commit(xds.Cluster, nil, "x")
		l.drain()
		l.wantStates(xds.Cluster, "x:lingering<RDS/r y:synced")
	})
}

// A refused heartbeat is a refusal of its resource, if nothing was sent after the heartbeat.
func TestStatesOfRefusedHeartbeat(t *testing.T) {
	a := resource("a", 1)
	a.TTL = 30 * time.Second
	a.Seal("1")
	l := newLine(t, xds.Delta, nil, Options{ForceTTL: true}, xds.Tables{xds.Endpoint.URL: with(xds.NewTable(xds.Endpoint), []*xds.Resource{a})})
	l.ask(named(xds.Delta, xds.Endpoint, "a"))
	l.settle()
	l.wait(20 * time.Second)
	if all := l.drain(); len(all) != 1 || len(all[0].Beats) != 1 {
		t.Fatalf("no heartbeat: %v", all)
	}
	nonce := l.last[xds.Endpoint.URL]
	l.nack(xds.Endpoint)
	if got := l.States()[0].Refused; !slices.Equal(got, []RefusedState{{Nonce: nonce, Names: 1}}) {
		t.Errorf("%+v", got)
	}
}

// Names accepted in a later response leave an older response, and mark the messages that had these
// names.
func TestAcceptedLaterLeavesOlderResponse(t *testing.T) {
	d := delivery{
		cargo: cargo{Items: itemsOf("b:->b1 c:->c1 d:b1>-")},
		parts: []part{{nonce: 1, lo: "b", hi: "b"}, {nonce: 2, lo: "c", hi: "c"}, {nonce: 3, gone: "d", last: "d"}},
	}
	later := cargo{Items: itemsOf("a:->a1 c:->c2 d:->d1")} // the older response has no a
	d.overtaken(later.Each)
	var moved []uint64
	for _, p := range d.parts {
		if p.moved {
			moved = append(moved, p.nonce)
		}
	}
	if !slices.Equal(moved, []uint64{2, 3}) || cargoText(&d.cargo) != "b:->b1" {
		t.Errorf("messages %v, left %s", moved, cargoText(&d.cargo))
	}
}

// A kept resource names the resources that keep it, also if they refer to its collection, or if the client has not opened
// their type yet.
func TestStatesNameReferrers(t *testing.T) {
	t.Run("ADS-3 by a collection", func(t *testing.T) {
		const member, collection = "xdstp://h/t/c/1", "xdstp://h/t/c/*"
		l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{
			xds.LbEndpoint.URL: tableOf(xds.LbEndpoint, member),
			xds.Endpoint.URL:   with(xds.NewTable(xds.Endpoint), []*xds.Resource{resource("e", 1, xds.Ref{Type: xds.LbEndpoint, Name: collection})}),
		})
		l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"e"}})
		l.ask(xds.Request{Type: xds.LbEndpoint, Subscribe: []string{collection}})
		l.settle()
		l.commit(xds.Endpoint, resources(2, "e"))
		l.commit(xds.LbEndpoint, nil, member)
		l.drain()
		l.wantStates(xds.LbEndpoint, collection+":synced "+member+":lingering<EDS/e")
	})
	t.Run("ADS-9 of types that are not open", func(t *testing.T) {
		l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.Endpoint.URL: tableOf(xds.Endpoint, "e")})
		l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"e"}, Initial: []xds.Version{{Name: "e", Version: tableOf(xds.Endpoint, "e").Lookup("e").Version}}})
		l.commit(xds.Endpoint, nil, "e")
		l.drain()
		l.wantStates(xds.Endpoint, "e:lingering<CDS/*")
	})
}

// A listener that takes an address waits for the listener that releases it. The complete set waits as a whole.
func TestStatesOfDelayedListeners(t *testing.T) {
	listener := func(name string, version int, port, cluster string) *xds.Resource {
		r := resource(name, version, xds.Ref{Type: xds.Cluster, Name: cluster})
		r.Addresses = &[]xds.Address{{Port: port}}
		r.Seal(port)
		return r
	}
	start := func(t *testing.T, v xds.Variant) *line {
		l := newLine(t, v, nil, Options{}, xds.Tables{
			xds.Cluster.URL:  tableOf(xds.Cluster, "old"),
			xds.Listener.URL: with(xds.NewTable(xds.Listener), []*xds.Resource{listener("a", 1, "1", "old"), listener("b", 1, "2", "old"), listener("c", 1, "3", "old")}),
		})
		l.ask(xds.Request{Type: xds.Cluster})
		l.ask(xds.Request{Type: xds.Listener})
		l.settle()
		return l
	}
	t.Run("HEAL-4", func(t *testing.T) {
		l := start(t, xds.Delta)
		l.commit(xds.Cluster, resources(1, "new"))
		l.commit(xds.Listener, []*xds.Resource{listener("b", 2, "4", "new"), listener("a", 2, "2", "old"), listener("c", 2, "1", "old")})
		l.drain()
		l.wantStates(xds.Listener, "a:waiting<LDS/b b:waiting<CDS/new c:waiting<LDS/a")
	})
	t.Run("SOTW-8", func(t *testing.T) {
		l := start(t, xds.SotW)
		l.commit(xds.Cluster, resources(1, "new"))
		l.commit(xds.Listener, []*xds.Resource{listener("a", 2, "1", "new")})
		l.drain()
		l.wantStates(xds.Listener, "a:waiting<CDS/new b:synced c:synced")
		l.commit(xds.Cluster, resources(1, "newer"))
		l.commit(xds.Listener, []*xds.Resource{listener("b", 2, "2", "newer")})
		l.settleTypes(xds.Cluster)
		l.wantStates(xds.Listener, "a:waiting<CDS/newer b:waiting<CDS/newer c:synced")
	})
}

// A client refuses a version, then a replacement, and then the first version again: it has accepted neither.
func TestStateRefusedTwiceIsNotHeld(t *testing.T) {
	both(t, func(t *testing.T, v xds.Variant) {
		l := newLine(t, v, nil, Options{Retry: func(*xds.Type, int) bool { return true }}, xds.Tables{xds.Endpoint.URL: tableOf(xds.Endpoint, "e", "other")})
		l.ask(named(v, xds.Endpoint, "e", "other"))
		refuse := func() {
			l.drain()
			l.ask(xds.Request{Type: xds.Endpoint, Nonce: l.last[xds.Endpoint.URL], Names: l.names(xds.Endpoint), Error: &xds.Status{Message: "no"}})
		}
		refuse()
		for _, version := range []int{2, 3, 1} {
			l.commit(xds.Endpoint, resources(version, "e"))
			refuse()
		}
		if n := l.NameState(xds.Endpoint, "e"); n.State != StateRefused || n.Held != nil {
			t.Errorf("HEAL-5: %+v", n)
		}
	})
}
