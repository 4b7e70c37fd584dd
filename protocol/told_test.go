package protocol

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/protocol/internal/delay"
	"github.com/chancery-xds/chancery/xds"
)

// held returns the states of a type that the client may hold and the view does not have: "a1" is a
// at version 1, "a1!" counts as refused, "?" has unknown content.
func (l *line) held(typ *xds.Type) string {
	var out []string
	l.mayHold(l.sub(typ), func(st *xds.Stamp, why delay.Reason) {
		s := st.Name + st.Version
		switch {
		case st.Name == "":
			s = "?"
		case why == delay.Refused:
			s += "!"
		}
		out = append(out, s)
	})
	slices.Sort(out)
	return strings.Join(slices.Compact(out), " ")
}

// ADS-3: the states that the client may hold and the view does not have. They decide which names
// are kept. If a state is missing here, clients break; if a state is too much, names are kept for
// ever.
func TestMayHold(t *testing.T) {
	set := func(version int, names ...string) func(*line) {
		return func(l *line) { l.commit(xds.Route, resources(version, names...)) }
	}
	remove := func(names ...string) func(*line) { return func(l *line) { l.commit(xds.Route, nil, names...) } }
	tell := func(l *line) { l.drain() }
	ack := func(l *line) { l.ack(xds.Route) }
	nack := func(l *line) { l.nack(xds.Route) }
	ask := func(req xds.Request) func(*line) {
		return func(l *line) {
			req.Type = xds.Route
			l.ask(req)
		}
	}
	pass := func(d time.Duration) func(*line) { return func(l *line) { l.wait(d) } }
	type steps []func(*line)
	for _, c := range []struct {
		name  string
		steps steps
		want  string
	}{
		{"ADS-3 the current state does not count", nil, ""},
		{"ADS-3 changed and not sent", steps{set(2, "a")}, "a1"},
		{"ADS-3 sent and not accepted", steps{set(2, "a"), tell}, "a1"},
		{"ADS-3 accepted", steps{set(2, "a"), tell, ack}, ""},
		{"ADS-3 refused: the earlier state is firm", steps{set(2, "a"), tell, nack}, "a1!"},
		{"ADS-3 refused and changed: both, refused", steps{set(2, "a"), tell, nack, set(3, "a")}, "a1! a2 a2!"},
		{"ADS-3 refused and sent again: not refused", steps{set(2, "a"), tell, nack, set(3, "a"), tell}, "a1 a2"},
		{"ADS-3 refused, sent again and accepted", steps{set(2, "a"), tell, nack, set(3, "a"), tell, ack}, ""},
		{"ADS-3 two in flight: the states before each", steps{set(2, "a"), tell, pass(patience), set(3, "a"), tell}, "a1 a2"},
		{"ADS-3 two in flight, the later accepted", steps{set(2, "a"), tell, pass(patience), set(3, "a"), tell, ack}, ""},
		{"ADS-3 reverted before the answer", steps{set(2, "a"), tell, set(1, "a")}, "a2"},
		{"ADS-3 deleted, removal not sent", steps{remove("a")}, "a1"},
		{"ADS-3 deleted, removal sent", steps{remove("a"), tell}, "a1"},
		{"ADS-3 deleted, removal accepted", steps{remove("a"), tell, ack}, ""},
		{"ADS-3 an unsubscribed name is not held", steps{set(2, "a"), tell, nack, ask(xds.Request{Unsubscribe: []string{"a"}})}, ""},
		{"ADS-3 unsubscribed in flight", steps{set(2, "a"), tell, ask(xds.Request{Unsubscribe: []string{"a"}})}, ""},
		{"DELTA-6 the wildcard dropped", steps{set(2, "a"), ask(xds.Request{Subscribe: []string{"*"}, Unsubscribe: []string{"a"}}), tell, ask(xds.Request{Unsubscribe: []string{"*"}})}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, sub := range []string{"a", "*"} {
				if strings.Contains(c.name, "unsubscribed") && sub == "*" {
					continue
				}
				l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.Route.URL: tableOf(xds.Route, "a", "z")})
				l.ask(xds.Request{Type: xds.Route, Subscribe: []string{sub}})
				l.settle()
				for _, step := range c.steps {
					step(l)
				}
				if got := l.held(xds.Route); got != c.want {
					t.Errorf("sub=%s: %q, want %q", sub, got, c.want)
				}
			}
		})
	}
}

// SOTW-9: the client keeps names that SotW cannot remove, until it unsubscribes or the name is sent
// again.
func TestOrphans(t *testing.T) {
	for _, wild := range []bool{false, true} {
		names := []string{"a", "b"}
		if wild {
			names = []string{"*"}
		}
		l := newLine(t, xds.SotW, nil, Options{}, xds.Tables{xds.Endpoint.URL: tableOf(xds.Endpoint, "a", "b", "c")})
		l.ask(xds.Request{Type: xds.Endpoint, Names: names})
		l.settle()
		l.commit(xds.Endpoint, nil, "a", "b")
		l.want("")
		if got := l.held(xds.Endpoint); got != "a1 b1" {
			t.Errorf("wildcard %v: %q", wild, got)
		}
		l.commit(xds.Endpoint, resources(2, "a")) // back, at another version
		l.said()
		if got := l.held(xds.Endpoint); got != "a1 b1" {
			t.Errorf("before a is accepted: %q", got)
		}
		l.ask(xds.Request{Type: xds.Endpoint, Names: names, Nonce: l.last[xds.Endpoint.URL]})
		if got := l.held(xds.Endpoint); got != "b1" {
			t.Errorf("then: %q", got)
		}
		l.ask(xds.Request{Type: xds.Endpoint, Names: []string{"a"}, Nonce: l.last[xds.Endpoint.URL]})
		if u := l.subs[0]; l.held(xds.Endpoint) != "" || len(u.leftovers) > 0 {
			t.Errorf("b was dropped: %v", u.leftovers)
		}
	}
}

// Unknown content from an earlier stream counts as held until the client accepts all responses. If
// nothing is to be sent, it counts for the duration silence.
func TestUnknownContentIsHeld(t *testing.T) {
	route := resource("r", 1, xds.Ref{Type: xds.Cluster, Name: "c"})
	view := xds.Tables{xds.Route.URL: with(xds.NewTable(xds.Route), []*xds.Resource{route}), xds.Cluster.URL: tableOf(xds.Cluster, "c")}
	begin := func(names ...string) *line {
		l := newLine(t, xds.SotW, nil, Options{}, view)
		l.ask(xds.Request{Type: xds.Route, Version: "of another server", Names: names})
		return l
	}
	l := begin("r")
	if got := l.held(xds.Route); got != "?" {
		t.Error("before the first response:", got)
	}
	l.ask(xds.Request{Type: xds.Cluster})
	l.drain() // the route waits for its cluster
	l.wait(silence - time.Second)
	if got := l.held(xds.Route); got != "?" {
		t.Error("while a name waits:", got)
	}
	l.ack(xds.Cluster)
	l.drain()
	l.wait(time.Hour)
	if got := l.held(xds.Route); got != "?" {
		t.Error("sent and unanswered:", got)
	}
	l.ask(xds.Request{Type: xds.Route, Names: []string{"r"}, Nonce: l.last[xds.Route.URL]})
	if got := l.held(xds.Route); got != "" {
		t.Error("accepted:", got)
	}
	l = newLine(t, xds.SotW, nil, Options{}, xds.Tables{xds.Cluster.URL: tableOf(xds.Cluster, "c"), xds.Route.URL: with(view.Table(xds.Route), resources(1, "free"))})
	l.ask(xds.Request{Type: xds.Route, Version: "of another server", Names: []string{"free", "r"}})
	l.ask(xds.Request{Type: xds.Cluster})
	l.want("CDS c@1, RDS free@1") // r waits
	l.ask(xds.Request{Type: xds.Route, Names: []string{"free", "r"}, Nonce: l.last[xds.Route.URL]})
	if got := l.held(xds.Route); got != "?" {
		t.Error("accepted a part of the names:", got)
	}
	l = begin("nothing") // there is nothing to send
	l.drain()
	l.wait(silence - 1)
	if got := l.held(xds.Route); got != "?" {
		t.Error("before the end of silence:", got)
	}
	l.wait(1)
	if got := l.held(xds.Route); got != "" {
		t.Error("after a long time:", got)
	}
}

// ADS-8, ADS-9: of unknown content, the client keeps the names to which it still subscribes, by
// name or by wildcard. For a full-state type the next full state ends the unknown content, unless
// the client has no subscription.
func TestUnknownContentAfterUnsubscribe(t *testing.T) {
	for _, c := range []struct {
		typ   *xds.Type
		asked [][]string
		want  string
	}{
		{xds.Route, [][]string{{"*"}}, "all:"},
		{xds.Route, [][]string{{"*"}, {"*", "r"}}, "all:"},
		{xds.Route, [][]string{{"*"}, {"r"}}, "r"},
		{xds.Route, [][]string{{"*", "r"}, {"r"}}, "r"},
		{xds.Route, [][]string{{"*"}, {"r"}, {"*", "q"}}, "r"},
		{xds.Route, [][]string{{"*"}, {"r"}, {"*", "q"}, {"q"}}, ""},
		{xds.Route, [][]string{{"*", "r"}, {}, {"*", "r"}}, ""},
		{xds.Listener, [][]string{{"*"}, {"l"}}, "all:"},
		{xds.Listener, [][]string{{"*", "l"}, {}, {"l"}}, ""},
	} {
		l := newLine(t, xds.SotW, nil, Options{}, xds.Tables{})
		for _, names := range c.asked {
			l.ask(xds.Request{Type: c.typ, Names: names, Version: "of another replica"})
		}
		u, got := l.sub(c.typ), ""
		if u.vagueAll {
			got = "all:"
		}
		for _, st := range u.brought {
			got += st.Name
		}
		if got != c.want {
			t.Errorf("%s subscribed to %q: may hold %q of an earlier stream, want %q", c.typ, c.asked, got, c.want)
		}
	}
}

// A stamp with unknown content is not equal to any other stamp, known or unknown.
func TestSame(t *testing.T) {
	a, b := stampOf("a1"), stampOf("a2")
	unknown, another := &xds.Stamp{Name: "a"}, &xds.Stamp{Name: "a"}
	for _, c := range []struct {
		a, b *xds.Stamp
		want bool
	}{
		{a, a, true}, {a, stampOf("a1"), true}, {a, b, false}, {unknown, unknown, true}, {unknown, another, false},
		{unknown, absent, false}, {absent, absent, true}, {a, nil, false}, {nil, nil, true},
	} {
		if same(c.a, c.b) != c.want || same(c.b, c.a) != c.want {
			t.Errorf("%v, %v", c.a, c.b)
		}
	}
	for s, want := range map[*xds.Stamp]bool{a: true, unknown: true, absent: false, others: false, nil: false} {
		if stands(s) != want {
			t.Errorf("%+v stands: %v", s, !want)
		}
	}
}

// ADS-9: if nothing is to be sent, unknown content is forgotten after a while. It stays forgotten
// when any entry may have changed.
func TestUnknownContentEndsWithoutHints(t *testing.T) {
	l := newLine(t, xds.SotW, nil, Options{}, xds.Tables{xds.Route.URL: tableOf(xds.Route, "q")})
	l.ask(xds.Request{Type: xds.Route, Names: []string{"r"}, Version: "before"})
	u := l.sub(xds.Route)
	l.drain()
	if !l.vague(u) {
		t.Error("the resources of a new client are known")
	}
	l.wait(silence)
	for what, touched := range map[string][]xds.Names{"with hints": {}, "without": nil} {
		l.Change(l.view, touched)
		if l.vague(u) {
			t.Errorf("%s it is not known what the client has", what)
		}
	}
}

// Names that a client brings from an earlier stream are found, in whatever order and how often they were recorded.
func TestBroughtNamesInAnyOrder(t *testing.T) {
	u := newSubscription(xds.Endpoint)
	u.bring([]string{"d", "b", "d"})
	u.bring([]string{"e", "a", "b", "c"})
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		if !u.hadBefore(name) {
			t.Errorf("ADS-9: %s is not found", name)
		}
	}
	if len(u.brought) != 5 || u.hadBefore("f") {
		t.Errorf("ADS-9: %d names", len(u.brought))
	}
}
