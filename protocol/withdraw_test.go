package protocol

import (
	"cmp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// What resources refer to of a type: by name or alias, to any, or nobody knows.
func TestRefSet(t *testing.T) {
	cds := func(name string) xds.Ref { return xds.Ref{Type: xds.Cluster, Name: name} }
	body := aliased("x", "n", "m")
	for _, c := range []struct {
		name string
		refs []xds.Ref // nil: not known
		has  string
		body *xds.Resource
		want bool
	}{
		{"ADS-3 nothing", []xds.Ref{}, "x", body, false},
		{"ADS-3 it", []xds.Ref{cds("x")}, "x", nil, true},
		{"ADS-3 another", []xds.Ref{cds("y")}, "x", body, false},
		{"ADS-3 one of another type that is called so", []xds.Ref{{Type: xds.Endpoint, Name: "x"}}, "x", body, false},
		{"ADS-3 not known", nil, "x", body, true},
		{"ADS-3 any", []xds.Ref{cds(xds.Wildcard)}, "x", body, true},
		{"ADS-3 any of another type", []xds.Ref{{Type: xds.Endpoint, Name: xds.Wildcard}}, "x", body, false},
		{"DELTA-11 by an alias", []xds.Ref{cds("y"), cds("m")}, "x", body, true},
		{"DELTA-11 by an alias, of what is not known any more", []xds.Ref{cds("m")}, "x", nil, false},
	} {
		var s refSet
		s.add(xds.Cluster, &xds.Stamp{Name: "r", Refs: []xds.Ref{}}) // refers to nothing
		s.add(xds.Cluster, &xds.Stamp{Name: "r", Refs: c.refs})
		if got := s.has(c.has, c.body); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// ADS-3: who holds a cluster, and until when. A refused route holds it for ever;
// a route that waits for its answer, as long as the client is not silent; what
// may still be opened, for the grace.
func TestReferrerHolds(t *testing.T) {
	now := time.Unix(1000, 0)
	lost := now.Add(-10 * time.Second)
	set := func(name string) refSet { return refSet{names: map[string]bool{name: true}} }
	sub := func(unacked bool, silent time.Time) *subscription {
		u := &subscription{typ: xds.Route}
		u.unacked, u.silent = unacked, silent
		return u
	}
	waits := sub(false, time.Time{})
	waits.waiting = &waiting{waits: map[string]wait{"r": {since: lost}}}
	until := now.Add(5 * time.Second)
	for _, c := range []struct {
		name  string
		r     referrer
		holds bool
		until time.Time
	}{
		{"ADS-3 nothing refers to it", referrer{sub: sub(true, lost), loose: set("y"), firm: set("y")}, false, time.Time{}},
		{"ADS-3 a NACK holds", referrer{sub: sub(true, lost), firm: set("x")}, true, time.Time{}},
		{"ADS-3 a NACK holds whatever else is unanswered", referrer{sub: sub(true, lost), firm: set("x"), loose: set("x")}, true, time.Time{}},
		{"ADS-3 unanswered since the loss", referrer{sub: sub(true, lost.Add(-time.Hour)), loose: set("x")}, true, lost.Add(silence)},
		{"ADS-3 unanswered since it was told", referrer{sub: sub(true, lost.Add(time.Second)), loose: set("x")}, true, lost.Add(time.Second + silence)},
		{"ADS-3 not told yet", referrer{sub: sub(false, time.Time{}), loose: set("x")}, true, time.Time{}},
		{"ADS-3 not opened yet", referrer{loose: refSet{all: true}, until: until}, true, until},
		{"ADS-3 it has something from before", referrer{sub: sub(false, time.Time{}), loose: refSet{all: true}, until: until}, true, until},
		{"ADS-3 it has something from before, and does not answer", referrer{sub: sub(true, now), loose: refSet{all: true}, until: until}, true, until},
		{"ADS-3 it has something from before, and has answered nothing for longer", referrer{sub: sub(true, lost), loose: refSet{all: true}, until: now.Add(time.Hour)}, true, lost.Add(silence)},
		{"ADS-3 it has something from before, and something waits", referrer{sub: waits, loose: refSet{all: true}, until: until}, true, until},
	} {
		holds, end := c.r.holds("x", nil, lost)
		if holds != c.holds || !end.Equal(c.until) {
			t.Errorf("%s: %v until %v, not %v until %v", c.name, holds, end, c.holds, c.until)
		}
	}
}

// route is a route that leads to a cluster.
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

// A leaver names the moment at which it may leave though nobody answers, so that
// the session is woken then, and leaves at that moment and not before.
func TestRemovalDeadline(t *testing.T) {
	for _, c := range []struct {
		name     string
		variant  xds.Variant
		clusters []string
		answer   func(l *line)
		due      time.Duration // zero: no deadline
		now      bool          // it leaves at once
	}{
		{"ADS-3 silence", xds.Delta, nil, func(l *line) {}, silence, false},
		{"ADS-3 a NACK", xds.Delta, nil, func(l *line) { l.nack(xds.Route) }, 0, false},
		{"ADS-3 an ACK", xds.Delta, nil, func(l *line) { l.ack(xds.Route) }, 0, true},
		{"ADS-3 an ACK, of a client that drops clusters by itself", xds.SotW, []string{"x", "y"}, func(l *line) {
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
				t.Fatalf("x is gone: %v", gone)
			}
			if c.now {
				return
			}
			if due := u.leaving["x"].due; c.due == 0 && !due.IsZero() || c.due != 0 && !due.Equal(l.now.Add(c.due)) {
				t.Fatalf("due %v, not %v", due.Sub(l.now), c.due)
			}
			if c.due == 0 {
				l.wait(24 * time.Hour)
				l.drain()
				if u.lingers("x") == nil {
					t.Error("it leaves after a day")
				}
				return
			}
			end := l.now.Add(c.due)
			for range 20 { // as a server wakes it
				next := l.Deadline()
				if next.IsZero() || next.After(end) {
					t.Fatalf("no deadline tells of %v", end)
				}
				if next.Before(end) && u.lingers("x") == nil {
					t.Fatal("it leaves too early")
				}
				l.now = next
				l.Advance(next)
				l.drain()
				if next.Equal(end) {
					break
				}
			}
			if u.lingers("x") != nil {
				t.Error("it does not leave in time")
			}
		})
	}
}

// What something waits for was waived: that is told once, with the withdrawal, and
// only if it was so.
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
			t.Errorf("SAFE-1: %d are leaving still", n)
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

// On a stream of one type what is lost stays for the grace: of types that others
// refer to, and in SotW of those with full state, since the others have no
// removals.
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

// ADS-3: what came back meanwhile has its time from when it was lost again, on a stream
// that was too busy to say anything before.
func TestRemovedAddedAndRemoved(t *testing.T) {
	l := newLine(t, xds.Delta, xds.Cluster, Options{}, xds.Tables{xds.Cluster.URL: tableOf(xds.Cluster, "x", "y")})
	l.ask(xds.Request{Type: xds.Cluster})
	l.settle()
	l.commit(xds.Cluster, nil, "x")
	l.commit(xds.Cluster, resources(1, "x"))
	l.wait(3 * time.Second)
	l.commit(xds.Cluster, nil, "x")
	if took, said := l.next(); took != 5*time.Second || said != "CDS -x" {
		t.Errorf("after %v it said %s", took, said)
	}
}

// DELTA-11, ADS-3: what loses the alias by which the client has it has its time from when the
// stream can say so.
func TestAliasRemoved(t *testing.T) {
	l := newLine(t, xds.Delta, xds.Cluster, Options{}, xds.Tables{xds.Cluster.URL: with(xds.NewTable(xds.Cluster), []*xds.Resource{aliased("x", "n")})})
	l.ask(xds.Request{Type: xds.Cluster, Subscribe: []string{"n"}})
	l.settle()
	l.commit(xds.Cluster, resources(2, "x"))
	l.wait(3 * time.Second)
	l.want("CDS -n")
	l.ack(xds.Cluster)
	if took, said := l.next(); took != 5*time.Second || said != "CDS -x" {
		t.Errorf("after %v it said %s", took, said)
	}
}

// ADS-6: an assignment that the client was told to be gone is not kept for a cluster that
// refers to it and leaves. Whoever has forgotten it asks again.
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
	l.Change(l.view, nil) // anything may have changed
	l.want("")
	if u := l.sub(xds.Endpoint); len(u.leaving) > 0 || !l.Deadline().IsZero() {
		t.Errorf("kept until %v: %v", l.Deadline(), u.leaving)
	}
}

// 10,000 removals, acknowledged, leave next to nothing behind on a stream; streams
// that held the same are told by the same Changes. What nothing refers to is not
// looked at one by one.
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
				t.Error("a stream makes Changes of its own")
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
		if u := l.subs[0]; u.names.len() > 0 || len(u.leaving) > 0 {
			t.Fatal(u.names.len(), len(u.leaving))
		}
	}
	runtime.KeepAlive(view)
}

// 10,000 removals, told and acknowledged, cost a stream less than twice what it costs to be
// told of as many resources that have changed.
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
		shared := []*xds.Changes{to.Since(table.Versions()), table.Since(to.Versions())} // other streams keep them
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

// What leaves is told when the wait for it ends, though nothing else happens; and
// the event says what it was.
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
	t.Run("ADS-9 nobody knows what the client had", func(t *testing.T) {
		l := begin(false)
		l.settle()
		l.commit(xds.Cluster, nil, "x")
		if after, said := l.next(); after != silence || said != "CDS y@1" {
			t.Error(after, said)
		}
	})
	t.Run("ADS-3 the first of two waits", func(t *testing.T) {
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
		lost := l.now.Add(-7 * time.Second)
		if at := l.Deadline(); !at.Equal(lost.Add(silence)) {
			t.Errorf("woken %v after x was lost", at.Sub(lost))
		}
	})
	t.Run("ADS-4 what the view is yet to have does not linger", func(t *testing.T) {
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
				t.Errorf("that it comes after the view is %v; told: %v", after, told)
			}
		}
	})
	t.Run("ADS-3 what departed is told with its version", func(t *testing.T) {
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

// SAFE-2: what may leave and waits for an answer leaves when patience is over.
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

// ADS-3: what a client that comes back has, as the server told it, may be known by
// its stamp alone.
func TestLingersWithStampOnly(t *testing.T) {
	c := func(version int) []*xds.Resource { return []*xds.Resource{cluster("c", version, "e")} }
	world := &World{Versions: with(xds.NewTable(xds.Cluster), c(1)).Versions()}
	for _, tt := range []struct {
		name string
		cds  *xds.Table
		said string
		told string // of c; empty: it does not linger
	}{
		{"ADS-3 it is told as it was at last", with(with(xds.NewTable(xds.Cluster), append(c(2), resource("y", 1))), nil, "c"), "CDS c@2 y@1, EDS e@1", "2"},
		{"ADS-3 no world can have what nobody knows", tableOf(xds.Cluster, "y"), "CDS y@1", ""},
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
			t.Errorf("%s: lingers %v, told %+v", tt.name, lingers, u.told("c"))
		}
	}
}

// TTL-5: "not of a resource which the client has not ACKed": what lingers, and was refused, gets
// no heartbeats, so that it wakes nobody.
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
		l.nack(xds.Route) // it may have it all the same
		l.commit(xds.Cluster, nil, "x")
		l.commit(xds.Route, route(2, "y"))
		l.want("RDS r@2")
		l.nack(xds.Route)
		l.want("")
		if wakes := !l.Deadline().IsZero(); wakes == refused || l.sub(xds.Cluster).lingers("x") == nil {
			t.Errorf("refused %v: it wakes %v", refused, wakes)
		}
	}
}

// ADS-3, ADS-8: what the view has lost and looks for lingers since then, though nothing refers to
// it yet. What else is lost does not.
func TestRemovedWhileUndecided(t *testing.T) {
	l := newLine(t, xds.Delta, nil, Options{Grace: -1}, xds.Tables{})
	l.Change(undecided{l.view, map[string]bool{"c": true}}, nil)
	l.ask(xds.Request{Type: xds.Cluster, Initial: []xds.Version{{Name: "c", Version: "1"}, {Name: "a", Version: "1"}}})
	if u := l.sub(xds.Cluster); len(u.leaving) != 1 || u.leaving["c"] == nil {
		t.Errorf("about to leave are %v", u.leaving)
	}
}
