package protocol_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/testkit/tabletest"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

var with = tabletest.With

// TTL-3: after the server process was stopped for longer than a TTL, clients may have dropped the
// resource. A heartbeat would not bring it back, so it is sent again.
func TestLateHeartbeatsSendAgain(t *testing.T) {
	const ttl = 30 * time.Second
	for _, c := range []struct {
		stopped time.Duration
		want    string
	}{
		{12 * time.Second, "heartbeat a"},
		{29 * time.Second, "heartbeat a"},
		{ttl, "a"},
		{35 * time.Second, "a"},
		{2 * time.Minute, "a"},
	} {
		t.Run(fmt.Sprint("TTL-3 after ", c.stopped), func(t *testing.T) {
			r := xds.NewResource(xds.Endpoint, "a", []byte("1"))
			r.TTL = ttl
			r.Seal("")
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			view := xds.Tables{xds.Endpoint.URL: with(xds.NewTable(xds.Endpoint), []*xds.Resource{r, xds.NewResource(xds.Endpoint, "b", nil)})}
			s := protocol.NewSession(xds.Delta, nil, view, protocol.Options{ForceTTL: true})
			said := func() string {
				var out []string
				for r := range s.Responses() {
					for _, u := range r.Upserts {
						out = append(out, u.Name)
					}
					for _, b := range r.Beats {
						out = append(out, "heartbeat "+b.Name)
					}
					if err := s.Receive(xds.Request{Type: r.Type, Nonce: r.Nonce}); err != nil {
						t.Fatal(err)
					}
				}
				slices.Sort(out)
				return strings.Join(out, ", ")
			}
			s.Advance(now)
			if err := s.Receive(xds.Request{Type: xds.Endpoint, Node: &xds.Node{}, Subscribe: []string{"a", "b"}}); err != nil {
				t.Fatal(err)
			}
			if got := said(); got != "a, b" {
				t.Fatalf("at first: %s", got)
			}
			said()
			// The last message to the client is at most a third of the TTL before the first missed
			// heartbeat.
			s.Advance(s.Deadline().Add(c.stopped - ttl/3))
			if got := said(); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if next := s.Deadline(); next.IsZero() {
				t.Error("no heartbeat follows")
			}
		})
	}
}

// TTL-3 "jittered": streams with different Spread send heartbeats at different times within a third
// of the TTL, even for consecutive numbers. Streams with the same Spread send heartbeats together,
// whenever the streams began, and share the responses.
func TestBeatsAreSpread(t *testing.T) {
	const ttl, streams = 30 * time.Second, 100
	r := xds.NewResource(xds.Endpoint, "a", []byte("1"))
	r.TTL = ttl
	r.Seal("")
	view := xds.Tables{xds.Endpoint.URL: with(xds.NewTable(xds.Endpoint), []*xds.Resource{r})}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	beat := func(spread uint64, began time.Duration) time.Time {
		s := protocol.NewSession(xds.Delta, nil, view, protocol.Options{ForceTTL: true, Spread: spread})
		s.Advance(start.Add(began))
		if err := s.Receive(xds.Request{Type: xds.Endpoint, Node: &xds.Node{}, Subscribe: []string{"a"}}); err != nil {
			t.Fatal(err)
		}
		for r := range s.Responses() {
			if err := s.Receive(xds.Request{Type: r.Type, Nonce: r.Nonce}); err != nil {
				t.Fatal(err)
			}
		}
		for range s.Responses() {
			t.Fatal("a response")
		}
		at := s.Deadline()
		if at.Before(start.Add(began)) || at.After(start.Add(began+ttl/3)) {
			t.Fatalf("TTL-3: a heartbeat %v after the stream began", at.Sub(start.Add(began)))
		}
		return at
	}
	buckets := map[int64]int{} // by second
	for spread := range uint64(streams) {
		at := beat(spread, 0)
		buckets[int64(at.Sub(start)/time.Second)]++
		if again := beat(spread, 20*time.Second+time.Millisecond); again.Sub(at)%(ttl/3) != 0 {
			t.Errorf("TTL-3: with spread %d one stream beats at %v, another at %v", spread, at.Sub(start), again.Sub(start))
		}
	}
	for second := range int64(10) {
		if n := buckets[second]; n < streams/20 || n > streams/5 {
			t.Errorf("TTL-3: %d of %d streams beat in second %d", n, streams, second)
		}
	}
}

// TTL-5: a refused resource gets no heartbeats. So its stream is not woken while the next state
// waits for a cluster that was refused, too.
func TestRefusedAndWaitingGetsNoHeartbeat(t *testing.T) {
	set := func(view xds.Tables, typ *xds.Type, name, body string, ttl time.Duration, refs []xds.Ref) {
		r := xds.NewResource(typ, name, []byte(body))
		r.TTL, r.Refs = ttl, append([]xds.Ref{}, refs...)
		r.Seal("")
		view[typ.URL] = with(view.Table(typ), []*xds.Resource{r})
	}
	tables := func(route string, ttl time.Duration, to []xds.Ref) xds.Tables {
		view := xds.Tables{xds.Cluster.URL: xds.NewTable(xds.Cluster), xds.Endpoint.URL: xds.NewTable(xds.Endpoint), xds.Route.URL: xds.NewTable(xds.Route)}
		set(view, xds.Cluster, "c", "1", 0, []xds.Ref{{Type: xds.Endpoint, Name: "e"}})
		set(view, xds.Endpoint, "e", "1", 0, nil)
		set(view, xds.Route, "r", route, ttl, to)
		return view
	}
	first := tables("1", 30*time.Second, nil)
	s := protocol.NewSession(xds.Delta, nil, first, protocol.Options{ForceTTL: true, Recent: func(typ *xds.Type) []*xds.Table { return []*xds.Table{first.Table(typ)} }})
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s.Advance(now)
	receive := func(r xds.Request) {
		if err := s.Receive(r); err != nil {
			t.Fatal(err)
		}
	}
	said := func() (out []string) {
		var answers []xds.Request
		for r := range s.Responses() {
			answers = append(answers, xds.Request{Type: r.Type, Nonce: r.Nonce, Error: &xds.Status{Code: 3}})
			for _, x := range slices.Concat(r.Upserts, r.Beats) {
				out = append(out, r.Type.Short+" "+x.Name)
			}
		}
		for _, a := range answers {
			receive(a)
		}
		return out
	}
	receive(xds.Request{Type: xds.Cluster, Node: &xds.Node{}})
	receive(xds.Request{Type: xds.Endpoint, Subscribe: []string{"other"}})
	receive(xds.Request{Type: xds.Route, Subscribe: []string{"r"}})
	if got := said(); !slices.Contains(got, "CDS c") || !slices.Contains(got, "RDS r") {
		t.Fatalf("sent %v", got)
	}
	s.Change(tables("2", 0, []xds.Ref{{Type: xds.Cluster, Name: "c"}}), nil)
	for range 20 {
		for _, what := range said() {
			if what == "RDS r" {
				t.Fatal("the route does not wait")
			}
		}
		next := s.Deadline()
		if next.IsZero() {
			return
		}
		s.Advance(next)
	}
	t.Error("the session wakes again and again without a response")
}
