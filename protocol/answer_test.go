package protocol

import (
	"testing"

	"github.com/chancery-xds/chancery/protocol/internal/names"
	"github.com/chancery-xds/chancery/xds"
)

// The state of a row after each event of its table.
func TestAnswers(t *testing.T) {
	both(t, func(t *testing.T, v xds.Variant) {
		l := newLine(t, v, nil, Options{}, xds.Tables{xds.Endpoint.URL: tableOf(xds.Endpoint, "a", "b")})
		want := func(event string, want names.State) {
			t.Helper()
			u := l.sub(xds.Endpoint)
			if _, _, _, is := u.answer(u.Entry("a"), "a"); is != want {
				t.Fatalf("%s: %+v is %s, want %s", event, u.Entry("a"), is, want)
			}
			if err := l.Check(); err != nil {
				t.Fatal(err)
			}
		}
		answer := func(is *xds.Status) {
			l.ask(xds.Request{Type: xds.Endpoint, Nonce: l.last[xds.Endpoint.URL], Names: l.names(xds.Endpoint), Error: is})
		}
		l.ask(named(v, xds.Endpoint, "a", "b"))
		if e := l.sub(xds.Endpoint).Entry("a"); !e.Untold() {
			t.Errorf("the row is added: %+v", e)
		}
		l.drain()
		want("a response has the name", names.InFlight)
		answer(nil)
		want("ACK", held)
		l.commit(xds.Endpoint, resources(2, "a"))
		l.drain()
		answer(&xds.Status{Message: "no"})
		want("NACK", names.Refused)
		l.commit(xds.Endpoint, resources(3, "a"))
		want("a change that is not sent yet", names.Refused)
		l.drain()
		want("the next state is sent", names.InFlight)
		answer(nil)
		want("ACK of the next state", held)
		l.commit(xds.Endpoint, resources(4, "a"))
		l.drain()
		l.wait(patience)
		l.commit(xds.Endpoint, resources(5, "a"))
		l.drain()
		want("two responses", names.InFlight)
		answer(nil)
		want("ACK of the newer response", held)
		l.commit(xds.Endpoint, nil, "a")
		l.drain()
		want("a removal", map[xds.Variant]names.State{xds.SotW: held, xds.Delta: names.InFlight}[v])
	})
}

// SOTW-3: a full state in flight has all names. The client keeps a subscribed name when it drops the wildcard.
func TestAnswersAfterWildcard(t *testing.T) {
	l := newLine(t, xds.SotW, nil, Options{}, xds.Tables{xds.Cluster.URL: tableOf(xds.Cluster, "a", "b")})
	l.ask(xds.Request{Type: xds.Cluster, Names: []string{"*", "a"}})
	l.settle()
	l.commit(xds.Cluster, resources(2, "b"))
	l.drain()
	l.ask(xds.Request{Type: xds.Cluster, Names: []string{"a"}})
	if err := l.Check(); err != nil {
		t.Error(err)
	}
	l.settleTypes(xds.Cluster)
	l.wantStates(xds.Cluster, "a:synced")
}

// SAFE-1: a name is in flight although an older response with the name is forgotten when the name is sent again.
func TestAnswersOfForgottenResponse(t *testing.T) {
	l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.Endpoint.URL: tableOf(xds.Endpoint, "a", "b", "c", "d", "e")})
	subscribe := func(name string) {
		t.Helper()
		l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{name}})
		if len(l.drain()) != 1 {
			t.Fatalf("%s is not sent", name)
		}
	}
	subscribe("a")
	subscribe("b")
	l.ack(xds.Endpoint)
	for _, name := range []string{"c", "d", "e", "a"} {
		subscribe(name)
	}
	if u := l.sub(xds.Endpoint); u.deliveries[0].Carries("a") != nil || u.Entry("a").Nonce != 6 {
		t.Errorf("%d responses, %+v", len(u.deliveries), u.Entry("a"))
	}
}

// DELTA-13: each message has its own answer. The client refuses the newer of two messages that say that a name does not
// exist, and wants the name by the wildcard alone from now on. So the refusal has no member, and the older message is
// the one in flight.
func TestAnswersOfForgottenRefusal(t *testing.T) {
	l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.Endpoint.URL: tableOf(xds.Endpoint, "b")})
	l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"*", "a"}})
	l.drain()
	l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"a"}})
	l.drain()
	l.ask(xds.Request{Type: xds.Endpoint, Unsubscribe: []string{"a"}, Nonce: l.last[xds.Endpoint.URL], Error: &xds.Status{Message: "no"}})
}
