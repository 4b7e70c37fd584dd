package protocol

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// SAFE-9: "What a client can make the server hold or do is bounded per stream". The cost of a
// request is the number of names in it, not of all names that wait for clusters without an answer.
func TestWaitingNamesAreCheap(t *testing.T) {
	names := numbered(4000)
	var clusters, routes []*xds.Resource
	for _, n := range names {
		clusters = append(clusters, resource(n, 1, xds.Ref{Type: xds.Endpoint, Name: n}))
		routes = append(routes, resource(n, 1, xds.Ref{Type: xds.Cluster, Name: n}))
	}
	view := xds.Tables{
		xds.Cluster.URL:  with(xds.NewTable(xds.Cluster), clusters),
		xds.Endpoint.URL: tableOf(xds.Endpoint, names...),
		xds.Route.URL:    with(xds.NewTable(xds.Route), routes),
	}
	run := func(n int, ask func(l *line, name string)) time.Duration {
		l := newLine(t, xds.Delta, nil, Options{}, view)
		l.talk(xds.Request{Type: xds.Cluster})
		l.talk(xds.Request{Type: xds.Route, Subscribe: names[:n]})
		l.talk(xds.Request{Type: xds.Endpoint, Subscribe: []string{"none"}})
		took := computing(func() {
			for _, name := range names[:n] {
				ask(l, name)
			}
		})
		u := l.sub(xds.Route)
		if u.waiting.len() != n {
			t.Errorf("ADS-6: %d of %d routes wait", u.waiting.len(), n)
		}
		if u.waiting.put > 3*n {
			t.Errorf("%d of %d waiting names are listed", u.waiting.put, n)
		}
		return took
	}
	for _, c := range []struct {
		name string
		ask  func(l *line, name string)
	}{
		{"again", func(l *line, name string) { l.talk(xds.Request{Type: xds.Route, Subscribe: []string{name}}) }},
		{"unsubscribed and subscribed again", func(l *line, name string) {
			l.talk(xds.Request{Type: xds.Route, Unsubscribe: []string{name}})
			l.talk(xds.Request{Type: xds.Route, Subscribe: []string{name}})
		}},
		{"missing", func(l *line, name string) {
			nonce := l.talk(xds.Request{Type: xds.Route, Subscribe: []string{"no-" + name}})
			l.talk(xds.Request{Type: xds.Route, Unsubscribe: []string{"no-" + name}, Nonce: nonce})
		}},
		{"nothing", func(l *line, _ string) { l.talk(xds.Request{Type: xds.Route}) }},
		{"an assignment", func(l *line, name string) {
			l.talk(xds.Request{Type: xds.Endpoint, Nonce: l.talk(xds.Request{Type: xds.Endpoint, Subscribe: []string{name}})})
		}},
		{"an assignment, unsubscribed and subscribed again", func(l *line, name string) {
			l.talk(xds.Request{Type: xds.Endpoint, Subscribe: []string{name}})
			for range 5 {
				l.talk(xds.Request{Type: xds.Route, Unsubscribe: []string{name}})
				l.talk(xds.Request{Type: xds.Route, Subscribe: []string{name}})
			}
		}},
		{"no assignments", func(l *line, _ string) { l.talk(xds.Request{Type: xds.Endpoint, Nonce: "1"}) }},
		{"a cluster", func(l *line, name string) { l.talk(xds.Request{Type: xds.Cluster, Subscribe: []string{name}}) }},
		{"a cluster, and refuses it", func(l *line, name string) {
			l.talk(xds.Request{Type: xds.Cluster, Nonce: l.talk(xds.Request{Type: xds.Cluster, Subscribe: []string{name}}), Error: &xds.Status{}})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			grows(t, 25, func() time.Duration { return run(500, c.ask) }, func() time.Duration { return run(4000, c.ask) })
		})
	}
}

// The first of several times, and the number of times equal to it.
func TestEarliest(t *testing.T) {
	at := func(n int) time.Time { return time.Unix(int64(n), 0) }
	for _, c := range []struct {
		more, less []int // seconds; zero: the zero time
		at, count  int
		over       bool
	}{
		{nil, nil, 0, 0, false},
		{[]int{0, 0}, []int{0}, 0, 0, false}, // zero times do not count
		{[]int{5, 3, 7}, nil, 3, 1, false},
		{[]int{3, 5, 3}, nil, 3, 2, false},
		{[]int{3, 5, 3}, []int{3}, 3, 1, false},
		{[]int{3, 5, 3}, []int{5, 5}, 3, 2, false}, // others are removed: the first stays
		{[]int{3, 5, 3}, []int{3, 3}, 3, 0, true},  // the first is gone: the next is unknown
		{[]int{5, 3}, []int{3}, 3, 0, true},
	} {
		var e earliest
		for _, n := range c.more {
			if n == 0 {
				e.more(time.Time{})
			} else {
				e.more(at(n))
			}
		}
		for _, n := range c.less {
			if n == 0 {
				e.less(time.Time{})
			} else {
				e.less(at(n))
			}
		}
		want := time.Time{}
		if c.at > 0 {
			want = at(c.at)
		}
		if !e.at.Equal(want) || e.count != c.count || e.over() != c.over {
			t.Errorf("%v without %v: %v, over %v", c.more, c.less, e, e.over())
		}
	}
}

// Waiting names are not evaluated, except dirty ones. The methods accept a nil waiting.
func TestParked(t *testing.T) {
	waits := func() map[string]wait { return map[string]wait{"a": {}, "b": {}} }
	for _, c := range []struct {
		name    string
		w       *waiting
		touched string
		parked  string
	}{
		{"nothing waits", nil, "a", ""},
		{"all are evaluated", &waiting{waits: waits()}, "a", ""},
		{"all are parked", &waiting{waits: waits(), parked: true}, "", "a b"},
		{"one is touched", &waiting{waits: waits(), parked: true}, "a", "b"},
		{"one is touched twice", &waiting{waits: waits(), parked: true}, "a a", "b"},
		{"all are touched", &waiting{waits: waits(), parked: true}, "a b", ""},
		{"another name", &waiting{waits: waits(), parked: true}, "c", "a b"},
	} {
		u := &subscription{waiting: c.w}
		u.add(entry{Name: "a"}, entry{Name: "b"}, entry{Name: "c"})
		for n := range strings.FieldsSeq(c.touched) {
			u.Touch(u.Entry(n))
		}
		var parked []string
		for _, n := range []string{"a", "b", "c"} {
			if u.isParked(n) {
				parked = append(parked, n)
			}
		}
		if got := strings.Join(parked, " "); got != c.parked {
			t.Errorf("%s: %q are parked", c.name, got)
		}
		if n := len(slices.Collect(c.w.all)); n != c.w.len() {
			t.Errorf("%s: %d waiting names of %d", c.name, n, c.w.len())
		}
	}
}

// ADS-3: the names that wait, the start of each wait, and the end of the wait if no answer comes.
func TestWait(t *testing.T) {
	now := time.Unix(1000, 0)
	until := now.Add(7 * time.Second)
	for _, c := range []struct {
		name    string
		typ     *xds.Type
		before  map[string]wait
		checked string
		waiting []waiter
		want    string // name, start in seconds ago
		ends    earliest
		patient earliest
	}{
		{"the first", xds.Route, nil, "", []waiter{{"a", condition{holds: true, until: until}}}, "a0", earliest{until, 1}, earliest{}},
		{"a new wait, and one that continues", xds.Route, map[string]wait{"a": {since: now.Add(-3 * time.Second)}}, "a", []waiter{{"a", condition{holds: true, patient: true}}, {"b", condition{holds: true, until: until}}},
			"a3 b0", earliest{until, 1}, earliest{now.Add(-3 * time.Second), 1}},
		{"a parked wait stays unchanged", xds.Route, map[string]wait{"a": {now.Add(-3 * time.Second), condition{holds: true, until: until}}}, "", []waiter{{name: "b"}},
			"a3 b0", earliest{until, 1}, earliest{}},
		{"an evaluated name no longer waits", xds.Route, map[string]wait{"a": {now, condition{holds: true, until: until}}, "b": {now, condition{holds: true, until: until.Add(1)}}}, "a", nil,
			"b0", earliest{until.Add(1), 1}, earliest{}},
		{"a name evaluated twice counts once", xds.Route, map[string]wait{"a": {now, condition{holds: true, until: until}}}, "", []waiter{{"a", condition{holds: true, until: until}}},
			"a0", earliest{until, 1}, earliest{}},
	} {
		s := NewSession(xds.Delta, nil, xds.Tables{}, Options{})
		s.Advance(now)
		u := newSubscription(c.typ)
		if c.before != nil {
			u.waiting = &waiting{waits: map[string]wait{}, parked: true}
			for n, one := range c.before {
				u.waiting.waits[n] = one
				u.waiting.endsBy(one)
			}
			for n := range strings.FieldsSeq(c.checked) {
				u.add(entry{Name: n})
				u.Touch(u.Entry(n))
			}
		}
		s.wait(u, c.waiting, nil)
		var got []string
		for n, one := range u.waiting.waits {
			got = append(got, fmt.Sprint(n, int(now.Sub(one.since).Seconds())))
		}
		slices.Sort(got)
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: %q wait", c.name, text)
		}
		if u.waiting.ends != c.ends || u.waiting.patient != c.patient {
			t.Errorf("%s: ends %v, patient %v", c.name, u.waiting.ends, u.waiting.patient)
		}
	}
}

// ADS-7: a full state is sent as a whole. While one of its names waits, all its names wait, each
// with its own start.
func TestWaitOfAWorld(t *testing.T) {
	now := time.Unix(1000, 0)
	s := NewSession(xds.SotW, nil, xds.Tables{}, Options{})
	s.Advance(now)
	u := newSubscription(xds.Listener)
	u.waiting = &waiting{waits: map[string]wait{"a": {since: now.Add(-time.Second)}}}
	d := diff{upserts: resources(1, "a", "b"), waiting: []waiter{{name: "c"}}}
	d.waitAll(u.waiting)
	s.wait(u, d.waiting, d.upserts)
	if len(d.upserts) > 0 || u.waiting.len() != 2 || !u.waiting.waits["a"].since.Equal(now.Add(-time.Second)) || !u.waiting.waits["c"].since.Equal(now) {
		t.Errorf("%d names are sent, and %v wait", len(d.upserts), u.waiting.waits)
	}
	d = diff{upserts: resources(1, "a", "b", "c")}
	if s.wait(u, d.waiting, d.upserts); len(d.upserts) != 3 || u.waiting.len() > 0 {
		t.Errorf("%d names are sent, and %v wait", len(d.upserts), u.waiting.waits)
	}
}

// ADS-6: a wait ends without an answer at the time of its rule, or when the client has been silent
// for too long, whichever comes first.
func TestWaitEnds(t *testing.T) {
	at := func(n int) time.Time { return time.Unix(int64(n), 0) }
	s := NewSession(xds.Delta, nil, xds.Tables{}, Options{})
	cds, rds := newSubscription(xds.Cluster), newSubscription(xds.Route)
	s.subs = []*subscription{cds, rds}
	for _, c := range []struct {
		name    string
		w       *waiting
		unacked bool
		silent  time.Time
		want    time.Time
	}{
		{"nothing waits", nil, true, at(10), time.Time{}},
		{"for ever", &waiting{}, true, at(10), time.Time{}},
		{"until then", &waiting{ends: earliest{at(20), 1}}, true, at(10), at(20)},
		{"patient, silent since later", &waiting{patient: earliest{at(5), 1}}, true, at(10), at(10).Add(silence)},
		{"patient, silent since before", &waiting{patient: earliest{at(12), 1}}, true, at(10), at(12).Add(silence)},
		{"patient, answered", &waiting{patient: earliest{at(5), 1}}, false, at(10), time.Time{}},
		{"both, the earlier", &waiting{ends: earliest{at(20), 1}, patient: earliest{at(5), 1}}, true, at(10), at(20)},
		{"both, the later", &waiting{ends: earliest{at(30), 1}, patient: earliest{at(5), 1}}, true, at(10), at(10).Add(silence)},
		{"both, answered", &waiting{ends: earliest{at(30), 1}, patient: earliest{at(5), 1}}, false, at(10), at(30)},
	} {
		cds.unacked, cds.silent, rds.waiting = c.unacked, c.silent, c.w
		if got := s.waitEnds(rds); !got.Equal(c.want) {
			t.Errorf("ADS-6: %s: %v, want %v", c.name, got, c.want)
		}
		if rds.waiting.blocked(); !s.waitEnds(rds).IsZero() {
			t.Errorf("ADS-6: %s: the wait for its own type ends", c.name)
		}
	}
}

// ADS-3: a parked name is evaluated only when a cluster to which it refers changes, or an
// assignment of this cluster. A name that may refer to anything is evaluated after each answer.
func TestRecheck(t *testing.T) {
	for _, c := range []struct {
		name    string
		do      func(l *line)
		checked string // of r1 and r2, which wait for c1 and c2, and any, with unknown references
	}{
		{"nothing", func(*line) {}, ""},
		{"its cluster", func(l *line) { l.sub(xds.Cluster).Note("c1") }, "r1"},
		{"another cluster", func(l *line) { l.sub(xds.Cluster).Note("c9") }, ""},
		{"its assignment", func(l *line) { l.sub(xds.Endpoint).Note("e2") }, "r2"},
		{"a cluster with the name of an assignment", func(l *line) { l.sub(xds.Cluster).Note("e2") }, ""},
		{"several", func(l *line) { l.sub(xds.Cluster).Note("c1", "c2") }, "r1 r2"},
		{"more names than wait", func(l *line) { l.sub(xds.Cluster).Note("a", "b", "c", "d") }, "any r1 r2"},
		{"a delivery of others", func(l *line) { l.sub(xds.Cluster).noteContent(&cargo{Items: itemsOf("x:->x1")}) }, "any"}, // it is answered
		{"a delivery of its cluster", func(l *line) {
			l.sub(xds.Cluster).noteContent(&cargo{Items: []item{{Name: "c1", Was: absent, Is: stampOf("c1")}}})
		}, "any r1"},
		{"all of a type", func(l *line) { l.sub(xds.Cluster).NoteAll() }, "any r1 r2"},
		{"itself", func(l *line) { l.sub(xds.Route).Touch(l.sub(xds.Route).Entry("r2")) }, "r2"},
		{"the view", func(l *line) { l.Change(l.view, []xds.Names{{xds.Secret.URL: {"s"}}}) }, "any r1 r2"},
		{"the same view", func(l *line) { l.Change(l.view, []xds.Names{}) }, ""},
		{"the first answer", func(l *line) { l.ack(xds.Cluster) }, "any r1 r2"},
	} {
		any := resource("any", 1)
		any.Refs = nil
		any.Seal("1")
		l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{
			xds.Cluster.URL:  with(xds.NewTable(xds.Cluster), []*xds.Resource{cluster("c1", 1, "e1"), cluster("c2", 1, "e2")}),
			xds.Endpoint.URL: tableOf(xds.Endpoint, "e1", "e2"),
			xds.Route.URL: with(xds.NewTable(xds.Route), []*xds.Resource{any, resource("r1", 1, xds.Ref{Type: xds.Cluster, Name: "c1"}),
				resource("r2", 1, xds.Ref{Type: xds.Cluster, Name: "c2"})}),
		})
		l.ask(xds.Request{Type: xds.Cluster})
		l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"e1", "e2"}})
		l.ask(xds.Request{Type: xds.Route, Subscribe: []string{"any", "r1", "r2"}})
		l.want("CDS c1@1 c2@1, EDS e1@1 e2@1")
		u := l.sub(xds.Route)
		for _, n := range []string{"any", "r1", "r2"} {
			if !u.isParked(n) {
				t.Fatalf("%s is not parked", n)
			}
		}
		c.do(l)
		l.recheck(u)
		var checked []string
		for _, n := range []string{"any", "r1", "r2"} {
			if !u.isParked(n) {
				checked = append(checked, n)
			}
		}
		if got := strings.Join(checked, " "); got != c.checked {
			t.Errorf("ADS-3: %s: evaluated %q, want %q", c.name, got, c.checked)
		}
		l.check()
	}
}

// ADS-6: an event reports the names that waited for a silent client. Names whose wait ended with an
// answer are not reported.
func TestWaive(t *testing.T) {
	for _, answers := range []bool{false, true} {
		l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{
			xds.Cluster.URL: tableOf(xds.Cluster, "c"), xds.Route.URL: with(xds.NewTable(xds.Route), route(1, "c")),
		})
		l.ask(xds.Request{Type: xds.Cluster})
		l.ask(xds.Request{Type: xds.Route, Subscribe: []string{"r"}})
		l.want("CDS c@1")
		if answers {
			l.ack(xds.Cluster)
		} else {
			l.wait(silence)
		}
		for range l.Responses() {
		}
		waived := ""
		for e := range l.Events() {
			if e.Kind == Waived {
				waived += fmt.Sprint(e.Type, " ", e.Name, " by ", e.By)
			}
		}
		if want := map[bool]string{false: fmt.Sprint(xds.Route, " r by ", xds.Cluster)}[answers]; waived != want {
			t.Errorf("ADS-6: answered %v: waived names %q", answers, waived)
		}
	}
}
