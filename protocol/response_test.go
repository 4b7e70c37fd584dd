package protocol

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/xds"
)

// DELTA-13: the names of a message identify it. They are names of resources, heartbeats, removals
// or absences.
func TestPartOf(t *testing.T) {
	rs := resources(1, "b", "c", "d")
	for _, c := range []struct {
		changes *xds.Changes
		want    string
	}{
		{&xds.Changes{Upserts: rs}, "b-d --"},
		{&xds.Changes{Beats: rs[1:]}, "c-d --"},
		{&xds.Changes{Upserts: rs[:1], Removed: []string{"e", "g"}}, "b-b e-g"},
		{&xds.Changes{Absent: []string{"a", "f"}}, "-- a-f"},
		{&xds.Changes{Removed: []string{"e", "g"}, Absent: []string{"f", "h"}}, "-- e-h"},
		{&xds.Changes{Removed: []string{"e"}, Absent: []string{"a"}}, "-- a-e"},
		{&xds.Changes{Removed: []string{""}}, "-- -"}, // the empty name is a name, too
	} {
		p := partOf(9, c.changes, false)
		if got := fmt.Sprintf("%s-%s %s-%s", p.lo, p.hi, p.gone, p.last); got != c.want || p.nonce != 9 {
			t.Errorf("%s, want %s", got, c.want)
		}
		if says := slices.Contains(c.changes.Removed, ""); p.within("", absent) != says || p.within("", rs[0].Stamp) {
			t.Errorf("SOTW-20: %s: wrong result for the empty name", c.want)
		}
	}
}

// DELTA-13: each message of a split response is one event, and the missing names are in one of
// these messages.
func TestSplitTellsMissing(t *testing.T) {
	l := newLine(t, xds.Delta, xds.Endpoint, Options{MaxResponse: 1, ResourceErrors: true}, xds.Tables{xds.Endpoint.URL: tableOf(xds.Endpoint, "a", "b")})
	l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"a", "b", "x"}})
	var events []string
	got := []string{}
	for r := range l.Responses() {
		got = append(got, fmt.Sprint(len(r.Upserts), r.Removed, r.Missing))
	}
	for e := range l.Events() {
		if e.Kind == Sent {
			events = append(events, fmt.Sprint(e.Nonce, " ", e.Count, " ", e.Removed))
		}
	}
	if want := []string{"1 [] []", "1 [] []", "0 [x] [x]"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if want := []string{"1 1 0", "2 1 0", "3 0 1"}; !slices.Equal(events, want) {
		t.Errorf("events %q, want %q", events, want)
	}
}

// changesText returns the content of a response: "a1 b2", and removals.
func changesText(c *xds.Changes) string {
	var out []string
	for _, r := range c.Upserts {
		out = append(out, r.Name+r.Version)
	}
	for _, list := range []struct {
		mark  string
		names []string
	}{{"-", c.Removed}, {"?", c.Absent}, {"!", c.Missing}} {
		for _, n := range list.names {
			out = append(out, list.mark+n)
		}
	}
	return strings.Join(out, " ")
}

// SOTW-8: "the server must include the complete state of the world": all resources of the view that
// the subscription covers, and the kept resources, by name.
func TestFullStateHasAll(t *testing.T) {
	late := resource("d", 1)
	late.OnDemand = true
	late.Seal("1")
	for _, c := range []struct {
		names string
		want  string
	}{
		{"", "a1 b1 e1"},
		{"*", "a1 b1 e1"},
		{"b", "b1"},
		{"b z", "b1"},
		{"d a", "a1 d1"},
		{"* d", "a1 b1 d1 e1"},
		{"d *", "a1 b1 d1 e1"},
	} {
		l := newLine(t, xds.SotW, nil, Options{}, xds.Tables{xds.Cluster.URL: with(tableOf(xds.Cluster, "e", "b", "a"), []*xds.Resource{late})})
		l.ask(xds.Request{Type: xds.Cluster, Names: strings.Fields(c.names)})
		u, table := l.sub(xds.Cluster), l.view.Table(xds.Cluster)
		if got := changesText(l.fullState(u, table)); got != c.want {
			t.Errorf("SOTW-8: the full state of %q is %q", c.names, got)
		}
		if c.names == "*" && l.fullState(u, table) != table.Since(nil) {
			t.Error("a shared full state is not reused")
		}
	}
}

// ADS-3: kept resources are in the full state. While it has kept resources, the version of the full
// state is not the version of the view.
func TestFullStateHasKeptResources(t *testing.T) {
	l := withdrawing2(t, xds.SotW, "*")
	l.commit(xds.Route, route(2, "z"))
	l.want("RDS r@2") // unanswered, so the old state of r may still refer to x
	u := l.sub(xds.Cluster)
	before := l.version(u, l.view.Table(xds.Cluster))
	l.commit(xds.Cluster, nil, "x", "y")
	table := l.view.Table(xds.Cluster)
	if got := changesText(l.fullState(u, table)); got != "x1" {
		t.Errorf("the full state is %q", got)
	}
	switch v := l.version(u, table); v {
	case before:
		t.Error("a smaller full state has the same version")
	case table.Version():
		t.Error("a full state with kept resources has the version of the table")
	}
	if r := l.sub(xds.Route); l.version(r, l.view.Table(xds.Route)) != l.view.Table(xds.Route).Version() {
		t.Error("a type without full state has another version than its table")
	}
}

// The content sent for a diff. In SotW that is the full state or, for other types, only the
// upserts: "the API provides no mechanism" for removals. In delta it is upserts and removals.
func TestChanges(t *testing.T) {
	d := diff{upserts: resources(2, "a"), removed: []string{"b", "c"}, absent: []string{"c"}, missing: []string{"c"}}
	shared := &xds.Changes{Upserts: resources(2, "a"), Removed: []string{"b"}}
	for _, c := range []struct {
		name    string
		variant xds.Variant
		typ     *xds.Type
		shared  bool
		missing bool
		want    string
	}{
		{"SOTW-8 a full state", xds.SotW, xds.Cluster, false, false, "a1 z1"},
		{"SOTW-9 new content", xds.SotW, xds.Endpoint, false, false, "a2"},
		{"SOTW-11 new content and missing names", xds.SotW, xds.Endpoint, false, true, "a2 !c"},
		{"DELTA-8 new content and removals", xds.Delta, xds.Endpoint, false, false, "a2 -b ?c"},
		{"DELTA-7 new content, removals and missing names", xds.Delta, xds.Endpoint, false, true, "a2 -b ?c !c"},
		{"DELTA-1 shared changes", xds.Delta, xds.Cluster, true, false, "a2 -b"},
	} {
		l := newLine(t, c.variant, nil, Options{}, xds.Tables{c.typ.URL: tableOf(c.typ, "a", "z")})
		l.ask(xds.Request{Type: c.typ, Names: []string{"*"}, Subscribe: []string{"*"}})
		is := d
		if !c.missing {
			is.missing = nil
		}
		if c.shared {
			is.shared = shared
		}
		got := l.changes(l.sub(c.typ), l.view.Table(c.typ), &is)
		if text := changesText(got); text != c.want {
			t.Errorf("%s: %q, want %q", c.name, text, c.want)
		}
		if c.shared && got != shared {
			t.Errorf("%s: shared changes are not reused", c.name)
		}
	}
}

// SOTW-2: no two messages of a stream have the same nonce, whatever their type and however a
// response is split. Each message is listed with its own nonce.
func TestNoncesDiffer(t *testing.T) {
	l := newLine(t, xds.Delta, nil, Options{MaxResponse: 1}, xds.Tables{
		xds.Cluster.URL: tableOf(xds.Cluster, "x", "y"), xds.Endpoint.URL: tableOf(xds.Endpoint, "a", "b", "c"),
	})
	l.ask(xds.Request{Type: xds.Cluster})
	l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"a", "b", "c"}})
	var said, listed []string
	for _, r := range l.drain() {
		said = append(said, r.Nonce)
	}
	for _, u := range l.subs {
		for _, d := range u.deliveries {
			for _, p := range d.parts {
				listed = append(listed, fmt.Sprint(p.nonce))
			}
		}
		if u.nonce != u.deliveries[0].last() {
			t.Errorf("SOTW-2: the newest nonce of %s is %d", u.typ, u.nonce)
		}
	}
	if want := []string{"1", "2", "3", "4", "5"}; !slices.Equal(said, want) || !slices.Equal(listed, want) {
		t.Errorf("SOTW-2: sent nonces %q, listed %q", said, listed)
	}
}

// ADS-6: if a cluster has no assignment, no ACK is expected for any message that may have the
// cluster. The last of these messages is recorded.
func TestStuckUntilLastMessage(t *testing.T) {
	l := newLine(t, xds.Delta, nil, Options{MaxResponse: 1}, xds.Tables{
		xds.Cluster.URL: with(xds.NewTable(xds.Cluster), []*xds.Resource{cluster("x", 1, "none"), cluster("y", 1, "e")}), xds.Endpoint.URL: tableOf(xds.Endpoint, "e"),
	})
	l.ask(xds.Request{Type: xds.Cluster})
	if n := len(l.drain()); n != 2 {
		t.Fatalf("%d messages", n)
	}
	if d := l.sub(xds.Cluster).deliveries[0]; !d.stuck || d.last() != 2 {
		t.Errorf("ADS-6: stuck: %v, and the last is %d", d.stuck, d.last())
	}
}
