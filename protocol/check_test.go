package protocol

import (
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/protocol/internal/names"
	"github.com/chancery-xds/chancery/xds"
)

// The check after each step finds each invariant that is broken by hand.
func TestCheck(t *testing.T) {
	st := func(name string) *xds.Stamp { return &xds.Stamp{Name: name} }
	items := []item{{Name: "a", Was: absent, Is: st("a")}}
	for _, c := range []struct {
		says string
		do   func(s *Session, u *subscription)
	}{
		{"comes before", func(s *Session, _ *subscription) { s.subs[0], s.subs[1] = s.subs[1], s.subs[0] }},
		{"has no sent state", func(_ *Session, u *subscription) { u.Entry("a").Told = nil }},
		{"are named", func(_ *Session, u *subscription) { u.named++ }},
		{"has scopes", func(_ *Session, u *subscription) { u.scopes = map[string]bool{} }},
		{"unsubscribed name \"b\" has no entry", func(_ *Session, u *subscription) { u.dropped, u.droppedSize = map[string]bool{"b": true}, 1 }},
		{"bytes of unsubscribed names", func(_ *Session, u *subscription) { u.droppedSize++ }},
		{"the wildcard is implicit", func(_ *Session, u *subscription) { u.implicit = true }},
		{"has not changed", func(_ *Session, u *subscription) { u.flipped = []string{"a"} }},
		{"toggled", func(_ *Session, u *subscription) { u.toggled = []string{"a"} }},
		{"unsubscription was after nonce", func(_ *Session, u *subscription) { u.gaveUp = u.nonce + 1 }},
		{"names match \"a\"", func(_ *Session, u *subscription) { u.Entry("a").Matched++ }},
		{"listed as an alias", func(_ *Session, u *subscription) { u.aliased["a"] = nil }},
		{"are empty or not sorted", func(_ *Session, u *subscription) { u.aliased["z"] = nil }},
		{"leftover \"b\" has no entry", func(_ *Session, u *subscription) { u.addLeftover("b", leftover{why: unmatched}) }},
		{"without a wildcard", func(_ *Session, u *subscription) { u.wildcard = false }},
		{"a search finds in flight", func(_ *Session, u *subscription) { u.Entry("a").Sent(names.Earlier) }},
		{"deliveries", func(_ *Session, u *subscription) { u.deliveries = make([]delivery, maxListed+2) }},
		{"settled true", func(_ *Session, u *subscription) { u.deliveries[0].parts[0].fate = accepted }},
		{"is unanswered", func(_ *Session, u *subscription) { u.nonce++ }},
		{"message 1 after", func(_ *Session, u *subscription) {
			u.deliveries[0].parts = append(u.deliveries[0].parts, part{nonce: 1, lo: "x", hi: "x"})
		}},
		{"of its messages have", func(_ *Session, u *subscription) { u.deliveries[0].parts[0].lo = "zz" }},
		{"after \"a\"", func(_ *Session, u *subscription) { u.deliveries[0].Items = []item{items[0], items[0]} }},
		{"item \"a\" has no state before", func(_ *Session, u *subscription) { u.deliveries[0].Items = []item{{Name: "a", Is: absent}} }},
		{"has lapsed, but has a resource", func(_ *Session, u *subscription) {
			u.deliveries[0].Items = []item{{Name: "a", Was: absent, Is: st("a"), Lapsed: true}}
		}},
		{"answered nonce", func(_ *Session, u *subscription) { u.heard = u.nonce + 1 }},
		{"elsewhere is set", func(_ *Session, u *subscription) { u.elsewhere = true }},
		{"stamps are not sorted", func(_ *Session, u *subscription) { u.brought = []*xds.Stamp{st("b"), st("a")} }},
		{"twice", func(_ *Session, u *subscription) { u.brought = []*xds.Stamp{st("b"), st("b")} }},
		{"leftover \"z\" is unsubscribed", func(s *Session, _ *subscription) {
			s.sub(xds.Route).addLeftover("z", leftover{cannotRemove, st("z")})
		}},
		{"leftover \"a\"", func(_ *Session, u *subscription) { u.addLeftover("a", leftover{cannotRemove, st("a")}) }},
		{"refusals are not sorted", func(_ *Session, u *subscription) {
			u.refusals = []refusal{list(items, 2, false), list(items, 1, false)}
		}},
		{"has 1 names, the count is 2", func(_ *Session, u *subscription) {
			u.refusals = []refusal{list(items, 1, false)}
			u.refusals[0].left++
		}},
		{"has 0 names", func(_ *Session, u *subscription) { u.refusals = []refusal{list(nil, 1, false)} }},
		{"as lapsed", func(_ *Session, u *subscription) {
			u.refusals = []refusal{list(items, 1, false)}
			u.refusals[0].lapsed = []string{"a"}
		}},
		{"leaving name \"b\" has no entry", func(s *Session, u *subscription) {
			u.leaving = map[string]*leaver{"b": {Kept: names.Kept{Stamp: st("b")}, since: s.now}}
		}},
		{"has no stamp", func(s *Session, u *subscription) { u.leaving = map[string]*leaver{"a": {since: s.now}} }},
		{"has the body of", func(s *Session, u *subscription) {
			u.leaving = map[string]*leaver{"a": {Kept: names.Kept{Stamp: st("a"), Body: resource("b", 1)}, since: s.now}}
		}},
		{"is due before its loss", func(s *Session, u *subscription) {
			u.leaving = map[string]*leaver{"a": {Kept: names.Kept{Stamp: st("a")}, since: s.now, hold: hold{condition: condition{until: s.now}}}}
		}},
		{"is due before its loss", func(s *Session, u *subscription) {
			u.leaving = map[string]*leaver{"a": {Kept: names.Kept{Stamp: st("a")}, hold: hold{condition: condition{until: s.now}}}}
		}},
		{"are not watched", func(_ *Session, u *subscription) { u.Watched, u.Noted = false, []string{"a"} }},
		{"which is not watched", func(s *Session, _ *subscription) {
			s.subs[0].Watched = false
		}},
		{"but no name waits", func(s *Session, _ *subscription) { s.sub(xds.Route).waiting.waits = nil }},
		{"waits since", func(s *Session, _ *subscription) { s.sub(xds.Route).waiting.waits["r"] = wait{} }},
		{"recorded", func(s *Session, _ *subscription) { s.sub(xds.Route).waiting.patient.count++ }},
		{"is dirty, but not listed", func(_ *Session, u *subscription) { u.Entry("a").Dirty = true }},
		{"anew is set", func(s *Session, _ *subscription) { s.sub(xds.Route).Anew = true }},
		{"has the stated version", func(_ *Session, u *subscription) { u.stated = "1" }},
		{"is muted", func(s *Session, u *subscription) { u.mute = &mutes{until: map[string]time.Time{"a": s.now}} }},
		{"mutings are not sorted", func(s *Session, u *subscription) {
			u.mute = &mutes{list: []muting{{"a", s.now.Add(1)}, {"b", s.now}}}
		}},
		{"heartbeats", func(s *Session, u *subscription) { u.beatAt = s.now }},
		{"differs from the view", func(s *Session, _ *subscription) {
			s.sub(xds.Route).Entry("q").Told = resource("q", 7).Stamp
		}},
		{"but need not", func(s *Session, _ *subscription) { // the cluster is not on its way
			s.subs[0].deliveries, s.subs[0].unacked = nil, false
		}},
	} {
		a := resource("a", 1)
		a.Aliases = []string{"n"}
		a.Seal("1")
		l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{
			xds.Cluster.URL:  tableOf(xds.Cluster, "x"),
			xds.Endpoint.URL: with(xds.NewTable(xds.Endpoint), []*xds.Resource{a}),
			xds.Route.URL:    with(tableOf(xds.Route, "q"), []*xds.Resource{resource("r", 1, xds.Ref{Type: xds.Cluster, Name: "x"})}),
		})
		l.ask(xds.Request{Type: xds.Cluster})
		l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"*", "a", "n"}})
		l.ask(xds.Request{Type: xds.Route, Subscribe: []string{"q", "r"}})
		l.drain()
		l.ack(xds.Route) // names of a blocked type do not rest
		l.drain()
		if !l.sub(xds.Route).isParked("r") {
			t.Fatal("no route is parked")
		}
		c.do(l.Session, l.sub(xds.Endpoint))
		if err := l.Check(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.says, err)
		}
	}
}
