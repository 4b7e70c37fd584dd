package protocol

import (
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/protocol/internal/delay"
	"github.com/chancery-xds/chancery/xds"
)

// states returns the states of the names of a type as text: "a:synced b:sent@3".
func (l *line) states(typ *xds.Type) string {
	var all []string
	for n := range l.NameStates(typ) {
		word := n.Name + ":" + n.State.String()
		if n.Nonce != "" {
			word += "@" + n.Nonce
		}
		for _, ref := range n.WaitsFor {
			word += "<" + ref.Type.Short + "/" + ref.Name
		}
		all = append(all, word)
	}
	return strings.Join(all, " ")
}

func (l *line) wantStates(typ *xds.Type, want string) {
	l.t.Helper()
	if got := l.states(typ); got != want {
		l.t.Fatalf("states of %s:\n%s\nwant\n%s", typ, got, want)
	}
}

// The states of names during a client's first minutes.
func TestStates(t *testing.T) {
	both(t, func(t *testing.T, v xds.Variant) {
		l := newLine(t, v, nil, Options{}, xds.Tables{
			xds.Cluster.URL:  with(xds.NewTable(xds.Cluster), []*xds.Resource{resource("x", 1, xds.Ref{Type: xds.Endpoint, Name: "e"})}),
			xds.Endpoint.URL: tableOf(xds.Endpoint, "e"),
			xds.Route.URL:    with(xds.NewTable(xds.Route), []*xds.Resource{resource("r", 1, xds.Ref{Type: xds.Cluster, Name: "x"})}),
		})
		if len(l.States()) != 0 || l.states(xds.Cluster) != "" {
			t.Error("a session without types has states")
		}
		if n := l.NameState(xds.Cluster, "x"); n.View == nil || n.State != StateUnwanted || n.Why.String() != "" {
			t.Errorf("%+v", n)
		}
		l.ask(xds.Request{Type: xds.Cluster})
		l.wantStates(xds.Cluster, "x:due")
		if s := l.States()[0]; !s.Due || !s.Wildcard || s.Type != xds.Cluster || s.Version != l.view.Table(xds.Cluster).Version() {
			t.Errorf("%+v", s)
		}
		l.drain()
		l.wantStates(xds.Cluster, "x:sent@1")
		s := l.States()[0]
		if s.Due || len(s.Unanswered) != 1 || s.Unanswered[0] != (Message{Nonce: "1", Version: s.Version, Sent: l.now}) {
			t.Errorf("%+v", s)
		}
		if n := l.NameState(xds.Cluster, "x"); n.Held != nil || n.Told == nil || n.View != n.Told || n.Why != ByWildcard || !n.Since.Equal(l.now) {
			t.Errorf("%+v", n)
		}
		l.ask(named(v, xds.Route, "r", "s"))
		l.drain()
		l.wantStates(xds.Route, map[xds.Variant]string{
			xds.SotW:  "r:waiting<CDS/x s:absent", // SotW cannot remove s
			xds.Delta: "r:waiting<CDS/x s:sent@2",
		}[v])
		if s := l.States()[1]; s.Waiting != 1 || s.Names != 2 || s.Wildcard || s.Leaving != 0 {
			t.Errorf("%+v", s)
		}
		l.settleTypes(xds.Route)
		waits := l.now
		l.wait(patience / 2)
		if n := l.NameState(xds.Route, "r"); !n.Since.Equal(waits) || n.Told != nil {
			t.Errorf("%+v", n)
		}
		l.settleTypes(xds.Cluster, xds.Route)
		l.wantStates(xds.Cluster, "x:synced")
		l.wantStates(xds.Route, "r:synced s:absent")
		was := l.NameState(xds.Route, "r").View
		l.commit(xds.Route, []*xds.Resource{resource("r", 2, xds.Ref{Type: xds.Cluster, Name: "x"})})
		l.wantStates(xds.Route, "r:due s:absent")
		l.drain()
		if n := l.NameState(xds.Route, "r"); n.State != StateSent || n.Held != was || n.Told != n.View || n.RefusedIn != "" {
			t.Errorf("%+v", n)
		}
		l.ask(xds.Request{Type: xds.Route, Nonce: l.last[xds.Route.URL], Names: l.names(xds.Route), Error: &xds.Status{Message: "no"}})
		nonce := l.last[xds.Route.URL]
		l.wantStates(xds.Route, "r:refused@"+nonce+" s:absent")
		if n := l.NameState(xds.Route, "r"); n.Held != was || n.Told != n.View || n.RefusedIn != nonce {
			t.Errorf("%+v", n)
		}
		if s := l.States()[1]; len(s.Refused) != 1 || s.Refused[0] != (RefusedState{Nonce: nonce, Names: 1}) || len(s.Unanswered) != 0 || s.Due {
			t.Errorf("%+v", s)
		}
		l.commit(xds.Route, []*xds.Resource{resource("r", 3, xds.Ref{Type: xds.Cluster, Name: "x"})})
		l.drain()
		if n := l.NameState(xds.Route, "r"); n.State != StateSent || n.Held != was || n.RefusedIn != nonce || n.Nonce != l.last[xds.Route.URL] {
			t.Errorf("%+v", n)
		}
		l.settleTypes(xds.Route)
		l.wantStates(xds.Route, "r:synced s:absent")
		if n := l.NameState(xds.Route, "r"); n.Held != n.View || n.RefusedIn != "" {
			t.Errorf("%+v", n)
		}
	})
}

// The states of names that the view has lost, with the references to them.
func TestStatesOfRemovedNames(t *testing.T) {
	both(t, func(t *testing.T, v xds.Variant) {
		l := newLine(t, v, nil, Options{}, xds.Tables{
			xds.Cluster.URL: tableOf(xds.Cluster, "x", "y"),
			xds.Route.URL:   with(xds.NewTable(xds.Route), []*xds.Resource{resource("r", 1, xds.Ref{Type: xds.Cluster, Name: "x"})}),
		})
		l.ask(xds.Request{Type: xds.Cluster})
		l.ask(named(v, xds.Route, "r"))
		l.settle()
		l.commit(xds.Route, []*xds.Resource{resource("r", 2, xds.Ref{Type: xds.Cluster, Name: "y"})})
		l.commit(xds.Cluster, nil, "x")
		l.drain()
		l.wantStates(xds.Cluster, "x:lingering<RDS/r y:synced")
		if n := l.NameState(xds.Cluster, "x"); n.View != nil || n.Held == nil || n.Held != n.Told || !n.Since.Equal(l.now) || n.Until.IsZero() {
			t.Errorf("%+v", n)
		}
		if s := l.States()[0]; s.Leaving != 1 {
			t.Errorf("%+v", s)
		}
		if n := l.NameState(xds.Cluster, "x"); n.Because != delay.Unanswered.String() {
			t.Errorf("%+v", n)
		}
		l.ask(xds.Request{Type: xds.Route, Nonce: l.last[xds.Route.URL], Error: &xds.Status{Message: "no"}, Names: []string{"r"}})
		l.drain()
		if n := l.NameState(xds.Cluster, "x"); n.Because != delay.Refused.String() || !n.Until.IsZero() {
			t.Errorf("ADS-3 a NACK holds: %+v", n)
		}
		l.commit(xds.Route, []*xds.Resource{resource("r", 3, xds.Ref{Type: xds.Cluster, Name: "y"})})
		l.drain()
		l.settleTypes(xds.Route)
		l.wantStates(xds.Cluster, "x:sent@"+l.last[xds.Cluster.URL]+" y:synced")
		if n := l.NameState(xds.Cluster, "x"); n.View != nil || n.Told != nil || n.Held == nil {
			t.Errorf("%+v", n)
		}
		l.ack(xds.Cluster)
		l.wantStates(xds.Cluster, "y:synced")
		if n := l.NameState(xds.Cluster, "x"); n.State != StateAbsent || n.Why != ByWildcard || n.Held != nil {
			t.Errorf("%+v", n)
		}
	})
}

// The states of names that match other resources, and of names that a wildcard does not cover.
func TestStatesOfMatches(t *testing.T) {
	a, hidden := resource("a", 1), resource("hidden", 1)
	a.Aliases = []string{"n"}
	a.Seal("1")
	hidden.OnDemand = true
	l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{
		xds.Endpoint.URL:   with(xds.NewTable(xds.Endpoint), []*xds.Resource{a, hidden}),
		xds.LbEndpoint.URL: tableOf(xds.LbEndpoint, "xdstp://h/t/c/1"),
	})
	l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"n"}})
	l.ask(xds.Request{Type: xds.LbEndpoint, Subscribe: []string{"xdstp://h/t/c/*"}})
	l.settle()
	l.wantStates(xds.Endpoint, "a:synced n:synced")
	l.wantStates(xds.LbEndpoint, "xdstp://h/t/c/*:synced xdstp://h/t/c/1:synced")
	for _, c := range []struct {
		typ   *xds.Type
		name  string
		why   Reason
		by    string
		finds int
	}{
		{xds.Endpoint, "a", ByAlias, "n", 0},
		{xds.Endpoint, "n", ByName, "", 1},
		{xds.LbEndpoint, "xdstp://h/t/c/1", ByCollection, "xdstp://h/t/c/*", 0},
	} {
		if n := l.NameState(c.typ, c.name); n.Why != c.why || n.By != c.by || n.Finds != c.finds {
			t.Errorf("%s: %+v", c.name, n)
		}
	}
	l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"*", "a"}})
	l.settle()
	l.wantStates(xds.Endpoint, "a:synced n:synced")
	if n := l.NameState(xds.Endpoint, "hidden"); n.State != StateUnwanted || n.View == nil || n.Why != NotWanted {
		t.Errorf("%+v", n)
	}
	if n := l.NameState(xds.Endpoint, "a"); n.Why != ByName {
		t.Errorf("%+v", n)
	}
}

// The states of undecided names, and of names with unknown content from an earlier stream.
func TestStatesOfUnknownNames(t *testing.T) {
	both(t, func(t *testing.T, v xds.Variant) {
		l := newLine(t, v, nil, Options{}, xds.Tables{})
		l.Change(lookingFor{l.view, "e"}, nil)
		l.ask(named(v, xds.Endpoint, "e"))
		l.drain()
		l.wantStates(xds.Endpoint, "e:waiting")
		l.Change(l.view, nil)
		l.settle()
		l.wantStates(xds.Endpoint, "e:absent")
	})
	l := newLine(t, xds.SotW, nil, Options{}, xds.Tables{})
	l.ask(xds.Request{Type: xds.Endpoint, Names: []string{"e"}, Version: "of before"})
	l.drain()
	l.wantStates(xds.Endpoint, "e:unknown")
	l.ask(xds.Request{Type: xds.Endpoint, Names: []string{"e", "later"}})
	l.drain()
	l.wantStates(xds.Endpoint, "e:unknown later:absent") // the client did not bring this name
	l.wait(silence)
	l.drain()
	l.wantStates(xds.Endpoint, "e:absent later:absent")
}

// A resource with unknown references waits for any cluster.
func TestStatesOfUnknownReferences(t *testing.T) {
	l := newLine(t, xds.SotW, nil, Options{}, xds.Tables{xds.Cluster.URL: tableOf(xds.Cluster, "x")})
	l.ask(xds.Request{Type: xds.Cluster})
	l.ask(xds.Request{Type: xds.Route, Names: []string{"r"}})
	l.drain() // the client does not answer
	l.commit(xds.Route, []*xds.Resource{xds.NewResource(nil, "r", []byte("1"))})
	l.drain()
	l.wantStates(xds.Route, "r:waiting<CDS/*")
}

// lookingFor is a view that has not decided whether a name exists.
type lookingFor struct {
	xds.View
	name string
}

func (l lookingFor) Undecided(_ *xds.Type, name string) bool { return name == l.name }

// The Sent event has the approximate size of a response.
func TestSentBytes(t *testing.T) {
	l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.Cluster.URL: tableOf(xds.Cluster, "a", "b")})
	l.ask(xds.Request{Type: xds.Cluster})
	var bytes int
	for r := range l.Responses() {
		bytes = r.Changes.Bytes()
	}
	for e := range l.Events() {
		if e.Kind == Sent && (e.Bytes != bytes || bytes == 0) {
			t.Errorf("the event has %d bytes, want about %d", e.Bytes, bytes)
		}
	}
}

// settleTypes acknowledges all responses of types, and drains.
func (l *line) settleTypes(types ...*xds.Type) {
	l.t.Helper()
	for _, typ := range types {
		l.ask(xds.Request{Type: typ, Nonce: l.last[typ.URL], Names: l.names(typ)})
		l.drain()
	}
}

// both runs a test in both variants.
func both(t *testing.T, f func(t *testing.T, v xds.Variant)) {
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		t.Run(v.String(), func(t *testing.T) { f(t, v) })
	}
}

// named is a request for names.
func named(v xds.Variant, typ *xds.Type, names ...string) xds.Request {
	if v == xds.SotW {
		return xds.Request{Type: typ, Names: names}
	}
	return xds.Request{Type: typ, Subscribe: names}
}

// In SotW a client answers in order: after an answer, earlier responses need no answer.
func TestStatesUnansweredInOrder(t *testing.T) {
	both(t, func(t *testing.T, v xds.Variant) {
		l := newLine(t, v, nil, Options{}, xds.Tables{xds.Cluster.URL: tableOf(xds.Cluster, "a")})
		l.ask(xds.Request{Type: xds.Cluster})
		l.drain()
		l.wait(patience)
		l.commit(xds.Cluster, resources(1, "b"))
		l.drain()
		l.nack(xds.Cluster)
		if n := len(l.States()[0].Unanswered); (n == 0) != (v == xds.SotW) {
			t.Errorf("%d responses are unanswered", n)
		}
		l.wantStates(xds.Cluster, map[xds.Variant]string{xds.SotW: "a:refused@2 b:refused@2", xds.Delta: "a:sent@1 b:refused@2"}[v])
	})
}

// "The API provides no mechanism" to remove a resource of a SotW type without full state. A refused
// and then removed resource has the state absent.
func TestStatesOfRefusedAndRemoved(t *testing.T) {
	both(t, func(t *testing.T, v xds.Variant) {
		l := newLine(t, v, nil, Options{}, xds.Tables{xds.Endpoint.URL: tableOf(xds.Endpoint, "a", "b")})
		l.ask(named(v, xds.Endpoint, "a", "b"))
		l.settle()
		l.commit(xds.Endpoint, resources(2, "a"))
		l.drain()
		l.ask(xds.Request{Type: xds.Endpoint, Nonce: l.last[xds.Endpoint.URL], Names: l.names(xds.Endpoint), Error: &xds.Status{Message: "no"}})
		l.wantStates(xds.Endpoint, "a:refused@2 b:synced")
		l.commit(xds.Endpoint, nil, "a")
		l.settle()
		l.wantStates(xds.Endpoint, "a:absent b:synced")
	})
}

// HEAL-5: a SotW client has accepted no version of a resource that it refused as new. SotW cannot remove the
// resource, and still the refused version is not the accepted one.
func TestRefusedNewResourceIsNotHeld(t *testing.T) {
	l := newLine(t, xds.SotW, nil, Options{}, xds.Tables{xds.Endpoint.URL: tableOf(xds.Endpoint, "a")})
	l.ask(named(xds.SotW, xds.Endpoint, "a"))
	l.drain()
	l.ask(xds.Request{Type: xds.Endpoint, Nonce: l.last[xds.Endpoint.URL], Names: []string{"a"}, Error: &xds.Status{Message: "no"}})
	l.commit(xds.Endpoint, nil, "a")
	l.drain()
	if n := l.NameState(xds.Endpoint, "a"); n.Held != nil {
		t.Errorf("held %+v in state %s", n.Held, n.State)
	}
	if s := l.States()[0]; s.Refusing {
		t.Errorf("%+v", s)
	}
}
