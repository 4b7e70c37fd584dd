package protocol

import (
	"cmp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/protocol/internal/delay"
	"github.com/chancery-xds/chancery/xds"
)

// References to resources of a type: by name or alias, to any resource, or unknown.
func TestRefSet(t *testing.T) {
	cds := func(name string) xds.Ref { return xds.Ref{Type: xds.Cluster, Name: name} }
	body := aliased("x", "n", "m")
	for _, c := range []struct {
		name string
		refs []xds.Ref // nil: unknown
		has  string
		body *xds.Resource
		want bool
	}{
		{"ADS-3 no reference", []xds.Ref{}, "x", body, false},
		{"ADS-3 the cluster", []xds.Ref{cds("x")}, "x", nil, true},
		{"ADS-3 another cluster", []xds.Ref{cds("y")}, "x", body, false},
		{"ADS-3 the same name of another type", []xds.Ref{{Type: xds.Endpoint, Name: "x"}}, "x", body, false},
		{"ADS-3 unknown references", nil, "x", body, true},
		{"ADS-3 any cluster", []xds.Ref{cds(xds.Wildcard)}, "x", body, true},
		{"ADS-3 any of another type", []xds.Ref{{Type: xds.Endpoint, Name: xds.Wildcard}}, "x", body, false},
		{"DELTA-11 by an alias", []xds.Ref{cds("y"), cds("m")}, "x", body, true},
		{"DELTA-11 by an alias, body unknown", []xds.Ref{cds("m")}, "x", nil, false},
	} {
		var s refSet
		s.add(xds.Cluster, &xds.Stamp{Name: "r", Refs: []xds.Ref{}}) // no references
		s.add(xds.Cluster, &xds.Stamp{Name: "r", Refs: c.refs})
		if got := s.has(c.has, c.body); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// ADS-3: the end of the time for which a type keeps a cluster. A refused route keeps the cluster for ever. A
// route without an answer keeps it until the client is silent. A type that the client may still open keeps
// it for the grace period.
func TestReferrerEnds(t *testing.T) {
	now := time.Unix(1000, 0)
	lost := now.Add(-10 * time.Second)
	sub := func(unacked bool, silent time.Time) *subscription {
		u := newSubscription(xds.Route)
		u.unacked, u.silent = unacked, silent
		return u
	}
	sent := sub(false, time.Time{})
	until := now.Add(5 * time.Second)
	for _, c := range []struct {
		name string
		from origin
		want time.Time
	}{
		{"ADS-3 a NACK holds", origin{sub: sub(true, lost), why: delay.Refused}, time.Time{}},
		{"ADS-3 unanswered since the loss", origin{sub: sub(true, lost.Add(-time.Hour)), why: delay.Unanswered}, lost.Add(silence)},
		{"ADS-3 unanswered since the removal was sent", origin{sub: sub(true, lost.Add(time.Second)), why: delay.Unanswered}, lost.Add(time.Second + silence)},
		{"ADS-3 not sent yet", origin{sub: sent, why: delay.Unsent}, time.Time{}},
		{"ADS-3 not sent yet, and an earlier response is unanswered", origin{sub: sub(true, lost), why: delay.Unsent}, lost.Add(silence)},
		{"ADS-3 not opened yet", origin{why: delay.Unopened, until: until}, until},
		{"ADS-3 unknown earlier resources", origin{sub: sent, why: delay.Earlier, until: until}, until},
		{"ADS-3 unknown earlier resources, unanswered", origin{sub: sub(true, now), why: delay.Earlier, until: until}, until},
		{"ADS-3 unknown earlier resources, silent for longer", origin{sub: sub(true, lost), why: delay.Earlier, until: now.Add(time.Hour)}, lost.Add(silence)},
	} {
		if got := (&referrer{origin: c.from}).ends(lost); !got.Equal(c.want) {
			t.Errorf("%s: until %v, want %v", c.name, got, c.want)
		}
	}
}

// route returns a route to a cluster.
func route(version int, cluster string) []*xds.Resource {
	return []*xds.Resource{resource("r", version, xds.Ref{Type: xds.Cluster, Name: cluster})}
}

// A line whose client has clusters x and y, and a route to x.
func withdrawing2(t *testing.T, v xds.Variant, clusters ...string) *line {
	l := newLine(t, v, nil, Options{}, xds.Tables{
		xds.Cluster.URL: tableOf(xds.Cluster, "x", "y"), xds.Route.URL: with(xds.NewTable(xds.Route), route(1, "x")),
	})
	l.ask(xds.Request{Type: xds.Cluster, Names: clusters, Subscribe: clusters})
	l.ask(xds.Request{Type: xds.Route, Names: []string{"r"}, Subscribe: []string{"r"}})
	l.settle()
	return l
}

// A kept resource has a time at which it is removed without an answer. The session has a deadline
// at this time, and removes the resource then and not before.
func TestRemovalDeadline(t *testing.T) {
	for _, c := range []struct {
		name     string
		variant  xds.Variant
		clusters []string
		answer   func(l *line)
		due      time.Duration // zero: no deadline
		now      bool          // removed at once
	}{
		{"ADS-3 silence", xds.Delta, nil, func(l *line) {}, silence, false},
		{"ADS-3 a NACK", xds.Delta, nil, func(l *line) { l.nack(xds.Route) }, 0, false},
		{"ADS-3 an ACK", xds.Delta, nil, func(l *line) { l.ack(xds.Route) }, 0, true},
		{"ADS-3 an ACK, from a client that drops clusters itself", xds.SotW, []string{"x", "y"}, func(l *line) {
			l.ask(xds.Request{Type: xds.Route, Nonce: l.last[xds.Route.URL], Names: []string{"r"}})
		}, silence, false},
		{"ADS-3 an ACK in SotW", xds.SotW, nil, func(l *line) {
			l.ask(xds.Request{Type: xds.Route, Nonce: l.last[xds.Route.URL], Names: []string{"r"}})
		}, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := withdrawing2(t, c.variant, c.clusters...)
			l.commit(xds.Route, route(2, "y"))
			l.commit(xds.Cluster, nil, "x")
			l.drain()
			u := l.sub(xds.Cluster)
			if u.lingers("x") == nil {
				t.Fatal("x does not linger")
			}
			c.answer(l)
			l.drain()
			if gone := u.lingers("x") == nil; gone != c.now {
				t.Fatalf("x is removed: %v", gone)
			}
			if c.now {
				return
			}
			if due := u.leaving["x"].until; c.due == 0 && !due.IsZero() || c.due != 0 && !due.Equal(l.now.Add(c.due)) {
				t.Fatalf("due %v, want %v", due.Sub(l.now), c.due)
			}
			if c.due == 0 {
				l.wait(24 * time.Hour)
				l.drain()
				if u.lingers("x") == nil {
					t.Error("x is removed after a day")
				}
				return
			}
			end := l.now.Add(c.due)
			for range 20 { // like a server
				next := l.Deadline()
				if next.IsZero() || next.After(end) {
					t.Fatalf("no deadline at %v", end)
				}
				if next.Before(end) && u.lingers("x") == nil {
					t.Fatal("x is removed too early")
				}
				l.now = next
				l.Advance(next)
				l.drain()
				if next.Equal(end) {
					break
				}
			}
			if u.lingers("x") != nil {
				t.Error("x is not removed in time")
			}
		})
	}
}

// An event reports a waived wait once, together with the removal, and only if the removal had to
// wait.
func TestWaived(t *testing.T) {
	for _, silent := range []bool{true, false} {
		l := withdrawing2(t, xds.Delta)
		l.commit(xds.Route, route(2, "y"))
		l.commit(xds.Cluster, nil, "x")
		var events []string
		listen := func() {
			for r := range l.Responses() {
				l.last[r.Type.URL] = r.Nonce
			}
			for e := range l.Events() {
				if e.Kind == Waived || e.Kind == Departed {
					s := e.Kind.String() + " " + e.Type.Short + " " + e.Name
					if e.By != nil {
						s += " by " + e.By.Short
					}
					events = append(events, s)
				}
			}
		}
		listen()
		for range 3 {
			l.wait(silence/3 - 1)
			listen()
		}
		if len(events) > 0 {
			t.Fatal("too early:", events)
		}
		if silent {
			l.wait(3)
		} else {
			l.ack(xds.Route)
		}
		for range 3 {
			listen()
		}
		if n := len(l.sub(xds.Cluster).leaving); n > 0 {
			t.Errorf("SAFE-1: %d names are still leaving", n)
		}
		want := 1
		if silent {
			want = 2
		}
		if len(events) != want || events[want-1] != "departed CDS x" || silent && events[0] != "waived CDS x by RDS" {
			t.Errorf("silent %v: %q", silent, events)
		}
	}
}

// A per-type stream keeps removed resources for the grace period, if other types refer to their
// type. In SotW that holds only for full-state types, because other types have no removals.
func TestGrace(t *testing.T) {
	for _, c := range []struct {
		name    string
		typ     *xds.Type
		variant xds.Variant
		grace   time.Duration
		want    bool
	}{
		{"ADS-3 clusters in delta", xds.Cluster, xds.Delta, 0, true},
		{"ADS-3 clusters in SotW", xds.Cluster, xds.SotW, 0, true},
		{"ADS-3 routes in delta", xds.Route, xds.Delta, 0, true},
		{"ADS-3 routes in SotW", xds.Route, xds.SotW, 0, false},
		{"ADS-3 nothing refers to listeners", xds.Listener, xds.Delta, 0, false},
		{"ADS-3 no grace", xds.Cluster, xds.Delta, -1, false},
		{"ADS-3 no grace in SotW", xds.Cluster, xds.SotW, -1, false},
	} {
		l := newLine(t, c.variant, c.typ, Options{Grace: c.grace}, xds.Tables{c.typ.URL: tableOf(c.typ, "x")})
		l.ask(xds.Request{Type: c.typ, Names: []string{"x"}, Subscribe: []string{"x"}})
		l.settle()
		l.commit(c.typ, nil, "x")
		if got := l.sub(c.typ).lingers("x") != nil; got != c.want {
			t.Errorf("%s: it lingers: %v", c.name, got)
		}
	}
}

// ADS-3: a name that was added again and removed again is kept from the second removal on, even if
// the stream could not send in between.
func TestRemovedAddedAndRemoved(t *testing.T) {
	l := newLine(t, xds.Delta, xds.Cluster, Options{}, xds.Tables{xds.Cluster.URL: tableOf(xds.Cluster, "x", "y")})
	l.ask(xds.Request{Type: xds.Cluster})
	l.settle()
	l.commit(xds.Cluster, nil, "x")
	l.commit(xds.Cluster, resources(1, "x"))
	l.wait(3 * time.Second)
	l.commit(xds.Cluster, nil, "x")
	if took, said := l.next(); took != 5*time.Second || said != "CDS -x" {
		t.Errorf("after %v the session sent %s", took, said)
	}
}

// DELTA-11, ADS-3: if a resource loses the alias because of which the client holds it, it is kept
// from the time at which the stream can send this change.
func TestAliasRemoved(t *testing.T) {
	l := newLine(t, xds.Delta, xds.Cluster, Options{}, xds.Tables{xds.Cluster.URL: with(xds.NewTable(xds.Cluster), []*xds.Resource{aliased("x", "n")})})
	l.ask(xds.Request{Type: xds.Cluster, Subscribe: []string{"n"}})
	l.settle()
	l.commit(xds.Cluster, resources(2, "x"))
	l.wait(3 * time.Second)
	l.want("CDS -n")
	l.ack(xds.Cluster)
	if took, said := l.next(); took != 5*time.Second || said != "CDS -x" {
		t.Errorf("after %v the session sent %s", took, said)
	}
}

// ADS-6: an assignment whose removal was sent is not kept for a kept cluster that refers to it. A
// client that has forgotten it subscribes again.
func TestRemovedAssignmentIsNotKept(t *testing.T) {
	refers := func(version int, assignment string) []*xds.Resource {
		return []*xds.Resource{resource("c", version, xds.Ref{Type: xds.Endpoint, Name: assignment})}
	}
	l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{
		xds.Cluster.URL: with(xds.NewTable(xds.Cluster), refers(1, "e")), xds.Endpoint.URL: tableOf(xds.Endpoint, "e", "f"),
	})
	l.commit(xds.Endpoint, nil, "e")
	l.ask(xds.Request{Type: xds.Cluster})
	l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"e"}})
	l.want("CDS c@1, EDS -e")
	l.ack(xds.Cluster)
	l.ack(xds.Endpoint)
	l.commit(xds.Cluster, refers(2, "f"))
	l.want("CDS c@2")
	l.Change(l.view, nil) // any name may have changed
	l.want("")
	if u := l.sub(xds.Endpoint); len(u.leaving) > 0 || !l.Deadline().IsZero() {
		t.Errorf("kept until %v: %v", l.Deadline(), u.leaving)
	}
}

// After the ACK, 10,000 removals leave almost no memory in use on a stream. Streams that held the
// same resources share the same Changes. Names without references are not evaluated one by one.
func TestMassRemoval(t *testing.T) {
	const n, streams = 10_000, 10
	names := numbered(n)
	view := xds.Tables{xds.Cluster.URL: tableOf(xds.Cluster, names...)}
	var lines []*line
	for range streams {
		l := newLine(t, xds.Delta, nil, Options{}, view)
		l.ask(xds.Request{Type: xds.Cluster})
		l.ask(xds.Request{Type: xds.Listener})
		l.settle()
		lines = append(lines, l)
	}
	for _, l := range lines {
		l.Release()
		l.view = nil
	}
	before := liveBytes()
	func() {
		next := xds.Tables{xds.Cluster.URL: with(view.Table(xds.Cluster), nil, names[1:]...)}
		var first *xds.Changes
		for i, l := range lines {
			var all []*xds.Response
			if allocs := countAllocs(func() {
				l.Change(next, []xds.Names{{xds.Cluster.URL: names}})
				all = slices.Collect(l.Responses())
			}); i > 0 && allocs > 100 {
				t.Errorf("a stream makes %v allocations", allocs)
			}
			l.last[xds.Cluster.URL] = all[0].Nonce
			l.drain()
			if len(all) != 1 || len(all[0].Removed) != n-1 {
				t.Fatal(len(all))
			}
			if first = cmp.Or(first, all[0].Changes); all[0].Changes != first {
				t.Error("a stream does not share its Changes")
			}
			l.ack(xds.Cluster)
			l.drain()
			l.Release()
		}
	}()
	if grown := (int64(liveBytes()) - int64(before)) / streams; grown > 2<<10 {
		t.Errorf("%d bytes stay on each stream", grown)
	}
	for _, l := range lines {
		if u := l.subs[0]; u.Set.Len() > 0 || len(u.leaving) > 0 {
			t.Fatal(u.Set.Len(), len(u.leaving))
		}
	}
	runtime.KeepAlive(view)
}

// 10,000 removals and their ACK cost a stream less than twice as much as 10,000 changed resources.
func TestMassRemovalIsCheap(t *testing.T) {
	names := numbered(10_000)
	table := tableOf(xds.Cluster, names...)
	base := xds.Tables{xds.Cluster.URL: table, xds.Listener.URL: tableOf(xds.Listener, "l")}
	change := func(to *xds.Table) func() time.Duration {
		l := newLine(t, xds.Delta, nil, Options{}, base)
		l.ask(xds.Request{Type: xds.Cluster})
		l.ask(xds.Request{Type: xds.Listener})
		l.settle()
		next := xds.Tables{xds.Cluster.URL: to, xds.Listener.URL: base[xds.Listener.URL]}
		shared := []*xds.Changes{to.Since(table.Versions()), table.Since(to.Versions())} // other streams hold them
		told := func(view xds.Tables) {
			l.Change(view, []xds.Names{{xds.Cluster.URL: names}})
			n := 0
			for r := range l.Responses() {
				n += len(r.Upserts) + len(r.Removed)
				if err := l.Receive(xds.Request{Type: r.Type, Nonce: r.Nonce}); err != nil {
					t.Fatal(err)
				}
			}
			if l.drain(); n != len(names) {
				t.Fatalf("%d are told", n)
			}
		}
		return func() time.Duration {
			defer runtime.KeepAlive(shared)
			defer told(base)
			return computing(func() { told(next) })
		}
	}
	grows(t, 2, change(with(table, resources(2, names...))), change(with(table, nil, names...)))
}

// A kept resource is removed when its wait ends, without another input, and the event has its name.
func TestDeadlineRemoves(t *testing.T) {
	begin := func(known bool) *line {
		routes := with(xds.NewTable(xds.Route), route(1, "x"))
		l := newLine(t, xds.SotW, nil, Options{Grace: time.Second}, xds.Tables{
			xds.Cluster.URL: tableOf(xds.Cluster, "x", "y"), xds.Route.URL: routes,
		})
		version := "?"
		if known {
			version = routes.Version()
		}
		l.ask(xds.Request{Type: xds.Cluster, Version: l.view.Table(xds.Cluster).Version()})
		l.ask(xds.Request{Type: xds.Route, Names: []string{"r", "gone"}, Version: version})
		return l
	}
	t.Run("ADS-9 the earlier resources are unknown", func(t *testing.T) {
		l := begin(false)
		l.settle()
		l.commit(xds.Cluster, nil, "x")
		if after, said := l.next(); after != silence || said != "CDS y@1" {
			t.Error(after, said)
		}
	})
	t.Run("ADS-3 the last of two waits", func(t *testing.T) {
		l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{
			xds.Cluster.URL:  tableOf(xds.Cluster, "x", "y"),
			xds.Route.URL:    with(xds.NewTable(xds.Route), route(1, "x")),
			xds.Listener.URL: with(xds.NewTable(xds.Listener), []*xds.Resource{resource("l", 1, xds.Ref{Type: xds.Cluster, Name: "x"})}),
		})
		l.ask(xds.Request{Type: xds.Cluster})
		l.ask(xds.Request{Type: xds.Listener})
		l.ask(xds.Request{Type: xds.Route, Subscribe: []string{"r"}})
		l.settle()
		l.commit(xds.Cluster, nil, "x")
		l.commit(xds.Listener, resources(2, "l"))
		l.want("LDS l@2")
		l.wait(7 * time.Second)
		l.commit(xds.Route, route(2, "y"))
		l.want("RDS r@2")
		l.Advance(l.now)
		if at := l.Deadline(); !at.Equal(l.now.Add(silence)) { // the listeners are silent for longer than the routes
			t.Errorf("woken after %v", at.Sub(l.now))
		}
		l.nack(xds.Route)
		l.drain()
		if n := l.NameState(xds.Cluster, "x"); n.State != StateLingering || !n.Until.IsZero() || !l.Deadline().IsZero() {
			t.Errorf("the refused route holds x, but it ends at %v", n.Until)
		}
	})
	t.Run("ADS-4 a name that the view does not have yet does not linger", func(t *testing.T) {
		for _, after := range []bool{true, false} {
			is, other := xds.NewTable(xds.Endpoint), tableOf(xds.Endpoint, "e")
			recent := []*xds.Table{is, other}
			if after {
				slices.Reverse(recent)
			}
			l := newLine(t, xds.SotW, nil, Options{Recent: func(typ *xds.Type) []*xds.Table {
				if typ == xds.Endpoint {
					return recent
				}
				return nil
			}}, xds.Tables{
				xds.Cluster.URL:  with(xds.NewTable(xds.Cluster), []*xds.Resource{resource("x", 1, xds.Ref{Type: xds.Endpoint, Name: "e"})}),
				xds.Endpoint.URL: is,
			})
			l.ask(xds.Request{Type: xds.Cluster})
			l.drain()
			l.commit(xds.Cluster, nil, "x") // the client may be warming it
			l.ask(xds.Request{Type: xds.Endpoint, Names: []string{"e"}})
			if told := strings.Contains(l.said(), "EDS e@1"); told == after {
				t.Errorf("comes after the view: %v; sent: %v", after, told)
			}
		}
	})
	t.Run("ADS-3 a departed resource is sent with its version", func(t *testing.T) {
		l := begin(true)
		l.settle()
		l.commit(xds.Cluster, nil, "x")
		var got []string
		for range 3 {
			for range l.Responses() {
			}
			for e := range l.Events() {
				if e.Kind == Departed {
					got = append(got, e.Name+" "+e.Version)
				}
			}
			l.wait(silence)
		}
		if len(got) != 1 || got[0] != "x 1" {
			t.Error(got)
		}
	})
}

// SAFE-2: an unreferenced removal that waits for an answer is sent after the duration patience.
func TestRemovalAfterPatience(t *testing.T) {
	l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{
		xds.Cluster.URL: tableOf(xds.Cluster, "x", "y"), xds.Route.URL: with(xds.NewTable(xds.Route), route(1, "x")),
	})
	l.ask(xds.Request{Type: xds.Cluster})
	l.ask(xds.Request{Type: xds.Route, Subscribe: []string{"r"}})
	l.settle()
	l.commit(xds.Route, route(2, "y"))
	l.commit(xds.Cluster, resources(1, "z"), "x")
	l.want("CDS z@1, RDS r@2")
	l.wait(2 * time.Second)
	l.ack(xds.Route)
	if after, said := l.next(); after != patience-2*time.Second || said != "CDS -x" {
		t.Error(after, said)
	}
}

// ADS-3: for a reconnecting client, only the stamp of a sent state may be known.
func TestLingersWithStampOnly(t *testing.T) {
	c := func(version int) []*xds.Resource { return []*xds.Resource{cluster("c", version, "e")} }
	world := &World{Versions: with(xds.NewTable(xds.Cluster), c(1)).Versions()}
	for _, tt := range []struct {
		name string
		cds  *xds.Table
		said string
		told string // of c; empty: it is not kept
	}{
		{"ADS-3 the last state is sent", with(with(xds.NewTable(xds.Cluster), append(c(2), resource("y", 1))), nil, "c"), "CDS c@2 y@1, EDS e@1", "2"},
		{"ADS-3 a full state cannot have an unknown resource", tableOf(xds.Cluster, "y"), "CDS y@1", ""},
	} {
		opts := Options{Grace: time.Minute, Told: func(typ *xds.Type, _ string, _ *World) *World {
			if typ.Is(xds.Cluster) {
				return world
			}
			return nil
		}}
		l := newLine(t, xds.SotW, nil, opts, xds.Tables{xds.Cluster.URL: tt.cds, xds.Endpoint.URL: tableOf(xds.Endpoint, "e")})
		l.ask(xds.Request{Type: xds.Endpoint, Names: []string{"e"}})
		l.settle()
		l.ask(xds.Request{Type: xds.Cluster, Version: "v"})
		if got := l.said(); got != tt.said {
			t.Errorf("%s: %s", tt.name, got)
		}
		u := l.sub(xds.Cluster)
		if lingers := u.lingers("c") != nil; lingers != (tt.told != "") || lingers && u.told("c").Version != tt.told {
			t.Errorf("%s: lingers %v, sent %+v", tt.name, lingers, u.told("c"))
		}
	}
}

// TTL-5: a kept resource that was refused gets no heartbeats, so its stream has no deadline for
// them.
func TestRefusedAndKeptGetsNoHeartbeat(t *testing.T) {
	for _, refused := range []bool{false, true} {
		x := xds.NewResource(nil, "x", []byte("1"))
		x.TTL, x.Refs = 9*time.Second, []xds.Ref{}
		x.Seal("1")
		l := newLine(t, xds.Delta, nil, Options{ForceTTL: true}, xds.Tables{
			xds.Cluster.URL: with(xds.NewTable(xds.Cluster), []*xds.Resource{x}), xds.Route.URL: with(xds.NewTable(xds.Route), route(1, "x")),
		})
		l.ask(xds.Request{Type: xds.Cluster})
		l.want("CDS x@1")
		if refused {
			l.nack(xds.Cluster)
		} else {
			l.ack(xds.Cluster)
		}
		l.ask(xds.Request{Type: xds.Route, Subscribe: []string{"r"}})
		l.want("RDS r@1")
		l.nack(xds.Route) // it may hold it all the same
		l.commit(xds.Cluster, nil, "x")
		l.commit(xds.Route, route(2, "y"))
		l.want("RDS r@2")
		l.nack(xds.Route)
		l.want("")
		if wakes := !l.Deadline().IsZero(); wakes == refused || l.sub(xds.Cluster).lingers("x") == nil {
			t.Errorf("refused %v: wakes at %v", refused, wakes)
		}
	}
}

// ADS-3, ADS-8: a removed name that the view is looking for is kept, even without references. Other
// removed names without references are not kept.
func TestRemovedWhileUndecided(t *testing.T) {
	l := newLine(t, xds.Delta, nil, Options{Grace: -1}, xds.Tables{})
	l.Change(undecided{l.view, map[string]bool{"c": true}}, nil)
	l.ask(xds.Request{Type: xds.Cluster, Initial: []xds.Version{{Name: "c", Version: "1"}, {Name: "a", Version: "1"}}})
	if u := l.sub(xds.Cluster); len(u.leaving) != 1 || u.leaving["c"] == nil {
		t.Errorf("leaving names: %v", u.leaving)
	}
}

// Kept clusters that refer to each other, and to lost clusters, cost their number: a long chain of kept aggregates,
// and many kept aggregates of the same members.
func TestKeptMembersAreCheap(t *testing.T) {
	refer := func(names ...string) (refs []xds.Ref) {
		for _, n := range names {
			refs = append(refs, xds.Ref{Type: xds.Cluster, Name: n})
		}
		return refs
	}
	shapes := map[string]func(names []string) []*xds.Resource{
		"a chain": func(names []string) (rs []*xds.Resource) {
			for i, n := range names {
				rs = append(rs, resource(n, 1, refer(names[min(i+1, len(names)-1)])...))
			}
			return rs
		},
		"a cycle": func(names []string) (rs []*xds.Resource) {
			for i, n := range names {
				rs = append(rs, resource(n, 1, refer(names[(i+1)%len(names)])...))
			}
			return rs
		},
		"many aggregates and many members": func(names []string) (rs []*xds.Resource) {
			for i, n := range names {
				rs = append(rs, resource(n, 1, refer(names[i/2*2+1])...))
			}
			return rs
		},
	}
	for name, shape := range shapes {
		run := func(n int) time.Duration {
			names := numbered(n)
			clusters := shape(names)
			l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{
				xds.Cluster.URL: with(xds.NewTable(xds.Cluster), clusters),
				xds.Route.URL:   with(xds.NewTable(xds.Route), route(1, names[0])),
			})
			l.ask(xds.Request{Type: xds.Cluster})
			l.ask(xds.Request{Type: xds.Route, Subscribe: []string{"r"}})
			l.settle()
			next := xds.Tables{xds.Cluster.URL: xds.NewTable(xds.Cluster), xds.Route.URL: with(xds.NewTable(xds.Route), []*xds.Resource{resource("r", 2)})}
			return computing(func() {
				l.Change(next, []xds.Names{{xds.Cluster.URL: names, xds.Route.URL: {"r"}}})
				for range l.Responses() {
				}
			})
		}
		t.Run("SAFE-9 "+name, func(t *testing.T) {
			grows(t, 25, func() time.Duration { return run(1000) }, func() time.Duration { return run(8000) })
		})
	}
}
