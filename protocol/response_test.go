package protocol

import (
	"fmt"
	"slices"
	"testing"

	"github.com/chancery-xds/chancery/xds"
)

// DELTA-13: a message is known by the names it tells of, whether it has resources,
// heartbeats, removals or names told absent.
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
		{&xds.Changes{Removed: []string{""}}, "-- -"}, // the empty name is one, too
	} {
		p := partOf(9, c.changes, false)
		if got := fmt.Sprintf("%s-%s %s-%s", p.lo, p.hi, p.gone, p.last); got != c.want || p.nonce != 9 {
			t.Errorf("%s, not %s", got, c.want)
		}
		if says := slices.Contains(c.changes.Removed, ""); p.within("", absent) != says || p.within("", rs[0].Stamp) {
			t.Errorf("SOTW-20: %s tells of the empty name, or does not", c.want)
		}
	}
}

// DELTA-13: of a response that is split each message is one event, and its names
// told missing are in one of them.
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
		t.Errorf("%q, not %q", got, want)
	}
	if want := []string{"1 1 0", "2 1 0", "3 0 1"}; !slices.Equal(events, want) {
		t.Errorf("events %q, not %q", events, want)
	}
}
