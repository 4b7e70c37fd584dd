package clients

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

func (f *fleet) tell(st *server.Stream, kind protocol.EventKind, nonce string, refuses bool) {
	e := protocol.Event{Kind: kind, Type: xds.Route, Nonce: nonce, Refuses: refuses, Count: 2}
	if kind == protocol.Nacked {
		e.Error = &xds.Status{Message: "r is bad"}
		e.Names = []string{"r"}
	}
	f.Event(st, e)
}

// Events change the state of a client.
func TestEventsChangeClientState(t *testing.T) {
	const sent, acked, nacked = protocol.Sent, protocol.Acked, protocol.Nacked
	type step struct {
		kind    protocol.EventKind
		nonce   string
		refuses bool
	}
	for _, c := range []struct {
		name    string
		variant xds.Variant
		steps   []step
		want    api.State
	}{
		{"who answers a response has answered those before (SotW)", xds.SotW, []step{{sent, "1", false}, {sent, "2", false}, {acked, "2", false}}, api.Synced},
		{"delta answers each", xds.Delta, []step{{sent, "1", false}, {sent, "2", false}, {acked, "2", false}}, api.Sent},
		{"an earlier one is answered", xds.SotW, []step{{sent, "1", false}, {sent, "2", false}, {sent, "3", false}, {acked, "1", false}}, api.Sent},
		{"it accepts one, and still refuses another", xds.Delta, []step{{sent, "1", false}, {sent, "2", false}, {nacked, "1", true}, {acked, "2", true}}, api.Nacked},
		{"it refuses what it has taken since", xds.SotW, []step{{sent, "1", false}, {sent, "2", false}, {acked, "2", false}, {nacked, "1", false}}, api.Synced},
		{"HEAL-5 an ACK alone ends no refusal", xds.Delta, []step{{sent, "1", false}, {sent, "2", false}, {nacked, "1", true}, {acked, "2", false}}, api.Nacked},
		{"HEAL-5 the refusal ends", xds.Delta, []step{{sent, "1", false}, {sent, "2", false}, {nacked, "1", true}, {acked, "2", false}, {protocol.Recovered, "", false}}, api.Synced},
		{"an answer to nothing", xds.Delta, []step{{sent, "1", false}, {acked, "9", false}}, api.Sent},
	} {
		f := &fleet{Tracker: New(Options{})}
		st := &server.Stream{ID: 1, Node: &xds.Node{ID: "a"}, Variant: c.variant, Peer: at("10.0.0.1:1")}
		f.Opened(st)
		f.tell(st, protocol.Subscribed, "", false)
		for _, s := range c.steps {
			f.tell(st, s.kind, s.nonce, s.refuses)
		}
		if got := f.Client("a")[0].State; got != c.want {
			t.Errorf("%s: %s, not %s", c.name, got, c.want)
		}
	}
}

func TestRepeatedRefusalKeepsItsBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{Tracker: New(Options{})}
		began := time.Now()
		one, two := f.open(envoy("a"), "10.0.0.1:1", xds.Route, xds.Route), f.open(envoy("a"), "10.0.0.1:1", xds.Route, xds.Route)
		f.tell(one, protocol.Sent, "2", false)
		f.tell(one, protocol.Nacked, "2", true)
		time.Sleep(time.Minute)
		f.tell(one, protocol.Sent, "3", false)
		f.tell(one, protocol.Nacked, "3", true)
		f.tell(two, protocol.Nacked, "9", true) // the nonce is unknown, so its response is, too
		n := f.Client("a")[0].Types[0].Nacked
		if !n.Since.Equal(began) || !n.At.Equal(time.Now()) || n.Nonce != "3" {
			t.Errorf("%+v", n)
		}
		if _, refusals, _ := f.Summary(); len(refusals) != 1 || refusals[0].Clients != 1 || !refusals[0].Partly {
			t.Errorf("%+v", refusals)
		}
	})
}

func TestWorstFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{Tracker: New(Options{})}
		f.open(envoy("a"), "10.0.0.1:1", nil, xds.Route)
		f.open(envoy("b"), "10.0.0.1:1", nil, xds.Cluster)
		f.send(f.open(envoy("c"), "10.0.0.1:1", nil, xds.Route), xds.Route)
		time.Sleep(15 * time.Second)
		got := ""
		for _, c := range f.Clients(Filter{All: true}).Items {
			got += c.Node + " "
		}
		if l := f.Clients(Filter{}); got != "c b a " || l.Hidden != 1 || l.Total != 3 {
			t.Errorf("%s, %+v", got, l)
		}
	})
}

func TestSameNodeOfSingleTypes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{Tracker: New(Options{})}
		f.open(envoy("a"), "10.0.0.1:1", xds.Listener, xds.Listener)
		f.open(envoy("a"), "10.0.0.1:2", xds.Listener, xds.Listener)
		time.Sleep(9 * time.Second)
		if got := f.troubles(); len(got) != 0 {
			t.Error(got)
		}
		time.Sleep(time.Second)
		if got := fmt.Sprint(f.troubles()); got != "[same-node a  10s]" {
			t.Error(got)
		}
		for i := range 5 { // other clients connect in the meantime: that is not flapping
			f.open(xds.Node{ID: "b"}, fmt.Sprint("10.0.0.1:", i+1), xds.Endpoint, xds.Endpoint)
		}
		if got := f.troubles(); len(got) != 1 {
			t.Error(got)
		}
	})
}

// Many waits that end at the same time are one event for each type.
func TestWaitsOfOneTypeAreOneEvent(t *testing.T) {
	f := &fleet{Tracker: New(Options{})}
	st := f.open(envoy("a"), "10.0.0.1:1", nil)
	for _, u := range []*xds.Type{xds.Route, xds.Route, xds.Route, xds.Listener} {
		f.Event(st, protocol.Event{Kind: protocol.Waived, Type: u, By: xds.Cluster, Name: "r"})
	}
	got := ""
	for _, e := range f.Events(1) {
		got += fmt.Sprint(e.Kind, " ", e.Type, " ", e.Count, " ", e.Text, "; ")
	}
	if got != "wait RDS 3 continued without an answer for CDS, r first; wait LDS 1 continued without an answer for CDS, r first; " {
		t.Error(got)
	}
}

// A reader gets the number of lost events with the next event that its filter keeps.
func TestMissedCountIsKept(t *testing.T) {
	tr := New(Options{Events: 10})
	note(tr, 25)
	for e := range tr.Subscribe(context.Background(), 3, func(e api.Event) bool { return e.ID >= 20 }) {
		if e.ID != 20 || e.Missed != 12 {
			t.Errorf("%+v", e)
		}
		break
	}
}

// The age of the oldest unanswered response decides. The number of remembered responses is limited.
func TestOldest(t *testing.T) {
	for _, c := range []struct {
		variant  xds.Variant
		answered uint64
		oldest   int64
	}{{xds.SotW, 1, 2}, {xds.SotW, 2, 3}, {xds.SotW, 3, 0}, {xds.Delta, 1, 2}, {xds.Delta, 2, 1}, {xds.Delta, 3, 1}} {
		u := typeRow{typ: xds.Cluster, answered: true}
		for i := range 3 {
			u.send(&protocol.Event{}, uint64(i)+1, int64(i)+1)
		}
		u.answer(c.variant, c.answered)
		if got := u.oldest(); got != c.oldest {
			t.Errorf("%s, answer to %d: the oldest unanswered response is %d, want %d", c.variant, c.answered, got, c.oldest)
		}
	}
	u := typeRow{typ: xds.Cluster, answered: true}
	for i := range 3 * maxOlder {
		u.send(&protocol.Event{}, uint64(i)+1, int64(i)+1)
	}
	if n := len(u.older); n != maxOlder || u.oldest() != 2*maxOlder {
		t.Errorf("%d unanswered responses are remembered, from %d on", n, u.oldest())
	}
}
