package clients

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// A regression needs a resource of the type that the client had before, and a refusal that began after the
// given time.
func TestAcceptance(t *testing.T) {
	for _, v := range variants {
		within(t, v.String(), func(w *testServer) {
			w.put(xds.Cluster, "one")
			healthy, sick := w.client(v, envoy("healthy")), w.client(v, envoy("sick"))
			healthy.Subscribe(xds.Cluster, "*")
			sick.Subscribe(xds.Cluster, "*")
			healthy.ACK(healthy.Next(xds.Cluster))
			sick.NACK(sick.Next(xds.Cluster), "no")
			want := func(groups []string, since time.Time, clients, acked, refused, waiting int, fallen ...string) {
				t.Helper()
				synctest.Wait()
				k := w.Acceptance(groups, since)
				if k.Clients != clients || k.Acked != acked || k.Refused != refused || k.Waiting != waiting || len(k.Regressions) != len(fallen) {
					t.Fatalf("%+v", k)
				}
				for i, f := range k.Regressions {
					if f.Node != fallen[i] || f.Type != xds.Cluster || f.Text != "cluster two is bad" || len(f.Names) != 1 || f.Names[0] != "two" || f.Of != map[xds.Variant]int{xds.SotW: 2, xds.Delta: 1}[v] {
						t.Errorf("%+v", f)
					}
				}
			}
			edge := []string{"other", "edge"}
			want(edge, time.Time{}, 2, 1, 1, 0)
			want([]string{"other"}, time.Time{}, 0, 0, 0, 0)
			time.Sleep(time.Second)
			since := time.Now()
			w.put(xds.Cluster, "two")
			want(edge, since, 2, 0, 1, 1)
			r := healthy.Next(xds.Cluster)
			sick.NACK(sick.Next(xds.Cluster), "cluster two is bad")
			time.Sleep(time.Second)
			healthy.NACK(r, "cluster two is bad")
			want(edge, since, 2, 0, 2, 0, "healthy")
			want(edge, time.Now().Add(time.Second), 2, 0, 2, 0)
			healthy.Close() // its refusal is remembered
			want(edge, since, 1, 0, 1, 0, "healthy")
		})
	}
}

// A client that states its resources, refuses a new one and disconnects immediately is a regression,
// even if it reconnects. A client that refused the type before is not. Nor is a client that accepts
// the type without the refused resource.
func TestAcceptanceOfClientsThatLeave(t *testing.T) {
	typ := xds.Cluster
	var now time.Time
	group := "edge"
	testServer := func() (*Tracker, func(node string, stated bool) (func(protocol.Event), func())) {
		now = time.Unix(1000, 0)
		tr := New(Options{Now: func() time.Time { return now }, Groups: func(*xds.Node) []string { return []string{group} }})
		id := uint64(0)
		group = "edge"
		return tr, func(node string, stated bool) (func(protocol.Event), func()) {
			id++
			st := &server.Stream{ID: id, Node: &xds.Node{ID: node}, Since: now}
			tr.Opened(st)
			e := protocol.Event{Kind: protocol.Opened, Type: typ}
			if stated {
				e.Version = "1"
			}
			tr.Event(st, e)
			return func(e protocol.Event) {
				e.Type, e.Nonce = typ, "1"
				tr.Event(st, protocol.Event{Kind: protocol.Sent, Type: typ, Nonce: "1", Count: 1})
				tr.Event(st, e)
				if e.Kind == protocol.Acked && !e.Refuses {
					tr.Event(st, protocol.Event{Kind: protocol.Recovered, Type: typ})
				}
			}, func() { tr.Closed(st, nil) }
		}
	}
	ack, nack := protocol.Event{Kind: protocol.Acked}, protocol.Event{Kind: protocol.Nacked, Refuses: true, Error: &xds.Status{Message: "no"}}
	part := protocol.Event{Kind: protocol.Acked, Refuses: true} // accepted without the resource in quarantine
	type client = func(node string, stated bool) (func(protocol.Event), func())
	for _, c := range []struct {
		name   string
		before func(client) func(protocol.Event) // an earlier client of the selected nodes, or nil
		fallen bool
		after  []protocol.Event
	}{
		{"states, refuses, leaves", nil, true, []protocol.Event{nack}},
		{"has nothing", func(come client) func(protocol.Event) { say, _ := come("n", false); return say }, false, []protocol.Event{nack}},
		{"has nothing, and takes a part", func(come client) func(protocol.Event) { say, _ := come("n", false); return say }, false, []protocol.Event{nack, part, ack, nack}},
		{"was well", func(come client) func(protocol.Event) { say, _ := come("n", false); say(ack); return say }, true, []protocol.Event{nack}},
		{"refuses already, and something else", func(come client) func(protocol.Event) { say, _ := come("n", false); say(ack); say(nack); return say }, false, []protocol.Event{nack, ack, nack}},
		{"is in quarantine", func(come client) func(protocol.Event) { say, _ := come("n", false); say(nack); say(part); return say }, false, []protocol.Event{ack, nack}},
		{"refused already, and comes back", func(come client) func(protocol.Event) {
			say, leave := come("n", true)
			say(nack)
			leave()
			return nil
		}, false, []protocol.Event{nack}},
		{"refused, and was well again", func(come client) func(protocol.Event) {
			say, _ := come("n", true)
			say(nack)
			say(ack)
			return say
		}, true, []protocol.Event{nack}},
		{"fell before, came back, and was content", func(come client) func(protocol.Event) {
			group = "edge@next"
			say, leave := come("n", true)
			say(nack)
			leave()
			group = "edge"
			say, _ = come("n", true)
			now = now.Add(time.Minute)
			return say
		}, true, []protocol.Event{nack}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr, come := testServer()
			var say func(protocol.Event)
			if c.before != nil {
				say = c.before(come)
			}
			now = now.Add(time.Second)
			since := now
			group = "edge@next"
			leave := func() {}
			for _, e := range c.after {
				now = now.Add(time.Second)
				if say == nil {
					say, leave = come("n", true)
				}
				say(e)
			}
			leave()
			if k := tr.Acceptance([]string{"edge@next"}, since); len(k.Regressions) > 0 != c.fallen {
				t.Errorf("%+v", k)
			}
		})
	}
}

// The memory for refusals is limited.
func TestHistoryIsBounded(t *testing.T) {
	tr := New(Options{Groups: func(*xds.Node) []string { return []string{"edge"} }})
	for i := range maxHistories + 10 {
		r := &row{client: &client{clientID: clientID{node: fmt.Sprint(i % (maxHistories + 5))}}}
		st := &server.Stream{Node: &xds.Node{}}
		for j := range 1 + i/maxHistories*2*maxPeriods {
			tr.refusalBegan(r, st, newCause(xds.Cluster, fmt.Sprint(i, j), nil), 1, true, int64(j+1))
			tr.refusalEnded(r, xds.Cluster, int64(j+1))
		}
	}
	d := &tr.history
	most := 0
	for _, p := range d.all {
		most = max(most, len(p.periods))
	}
	if len(d.all) != maxHistories || len(d.order) != maxHistories || most != maxPeriods || d.open.Load() != 0 {
		t.Error(len(d.all), len(d.order), most, d.open.Load())
	}
}
