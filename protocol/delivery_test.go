package protocol

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// versionsOf returns the stamps of a table: "a1 b2" is a at version 1, b at 2.
func versionsOf(text string) *xds.Versions {
	t := xds.NewTable(nil)
	for f := range strings.FieldsSeq(text) {
		t = with(t, []*xds.Resource{stampedResource(f)})
	}
	return t.Versions()
}

func stampedResource(f string) *xds.Resource {
	return resource(f[:1], int(f[1]-'0'))
}

// stampOf returns the stamp for "a1"; "-" is absent, "" nil.
func stampOf(f string) *xds.Stamp {
	switch f {
	case "":
		return nil
	case "-":
		return absent
	}
	return stampedResource(f).Stamp
}

func textOf(s *xds.Stamp) string {
	switch s {
	case nil:
		return "nothing"
	case absent:
		return "-"
	}
	return s.Name + s.Version
}

// itemsOf reads items: "a:a1>a2" changes a from a1 to a2, "a:>" does not mention it.
func itemsOf(text string) (items []item) {
	for f := range strings.FieldsSeq(text) {
		name, rest, _ := strings.Cut(f, ":")
		was, is, _ := strings.Cut(rest, ">")
		items = append(items, item{name: name, was: stampOf(was), is: stampOf(is)})
	}
	return items
}

func cargoText(c *cargo) string {
	var out []string
	for name, it := range c.each {
		out = append(out, fmt.Sprintf("%s:%s>%s", name, textOf(it.was), textOf(it.is)))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// ADS-3: two consecutive deliveries become one with the states of the later delivery. Before that,
// the client may hold the state before both deliveries. If this state is no resource, the client
// may hold the state of the older delivery.
func TestJoinDeliveries(t *testing.T) {
	u := new(subscription)
	join := u.join
	said := func(text string) *delivery {
		return &delivery{cargo: cargo{items: itemsOf(text)}, parts: []part{{nonce: 1, lo: "a", hi: "z", gone: "a", last: "z"}}}
	}
	for _, c := range []struct{ a, b, want string }{
		{"a:a1>a2", "b:b1>b2", "a:a1>a2 b:b1>b2"},
		{"a:a1>a2", "a:a2>a3", "a:a1>a3"},
		{"a:a1>a2", "a:a2>-", "a:a1>-"},
		{"a:->a1 c:c1>c2", "a:a1>a2", "a:a1>a2 c:c1>c2"},
		{"a:->a1", "a:a1>-", "a:a1>-"},
		{"a:->a1", "a:a1>a1", "a:->a1"},
	} {
		j := join(said(c.a), said(c.b))
		if got := cargoText(&j); got != c.want {
			t.Errorf("%s, %s: %s, want %s", c.a, c.b, got, c.want)
		}
		if !slices.IsSortedFunc(j.items, func(a, b item) int { return strings.Compare(a.name, b.name) }) {
			t.Errorf("in no order: %v", j.items)
		}
	}
	// In SotW no message removes a name, so the state of the older delivery stays.
	for _, c := range []struct{ a, b, want string }{
		{"a:a1>a2", "a:a2>-", "a:a1>a2"},
		{"", "a:a2>-", "a:a2>-"},
		{"a:a1>-", "a:->a2", "a:a1>a2"},
	} {
		b := said(c.b)
		b.untold = true
		j := join(said(c.a), b)
		if got := cargoText(&j); got != c.want {
			t.Errorf("%s, %s, unsent: %s, want %s", c.a, c.b, got, c.want)
		}
	}
	// The client holds names that it has accepted.
	old := said("a:a1>a2")
	old.parts[0].fate = accepted
	if j := join(old, said("a:a2>a3")); cargoText(&j) != "a:a2>a3" {
		t.Error("accepted:", cargoText(&j))
	}
	// If the later delivery does not have a name, the state of the older delivery stays.
	if j := join(said("a:a1>a2"), &delivery{cargo: cargo{items: []item{{name: "a"}}}}); cargoText(&j) != "a:a1>a2" {
		t.Error("without a new state:", cargoText(&j))
	}
	table := func(from, to string) *delivery {
		return &delivery{cargo: cargo{from: versionsOf(from), to: versionsOf(to)}, parts: []part{{nonce: 1, lo: "a", hi: "z", gone: "a", last: "z"}}}
	}
	one, two, three := table("a1 b1", "a2 b1"), table("a2 b1", "a2 b2"), table("a2 b2", "b2")
	two.from, three.from = one.to, two.to
	j := join(one, two)
	if got := cargoText(&j); got != "a:a1>a2 b:b1>b2" {
		t.Error("by the wildcard:", got)
	}
	// If a wildcard began between the two deliveries, its first table is in the later one.
	j = join(said("a:a1>a2"), two)
	if got := cargoText(&j); got != "a:a1>a2 b:b1>b2" {
		t.Error("names, then the wildcard:", got)
	}
	// If a wildcard ended between the two deliveries, its last table is in the older one. Names
	// that no message reported keep their reported state.
	j = join(one, said("c:c1>c2"))
	if got := cargoText(&j); got != "a:a1>a2 c:c1>c2" {
		t.Error("the wildcard, then names:", got)
	}
	four := table("a2 b2 c2", "a2 b3 c2")
	j = join(table("a1 b1 c1 d1", "a2 b1 c1 d1"), four)
	if got := cargoText(&j); got != "a:a1>a2 b:b1>b3" {
		t.Error("a name was not sent in between:", got)
	}
	// The state before a full table stays.
	again := table("a2 b1 c1", "a2 b1 c1")
	again.whole = true
	one = said("a:a1>a2")
	one.to = again.from
	j = join(one, again)
	if got := cargoText(&j); got != "a:a1>a2 b:->b1 c:->c1" {
		t.Error("sent again:", got)
	}
	// The result is a full table if either delivery was a full table.
	whole, more := table("a1 b1 c1", "a2 b1 c1"), table("", "a2 b2 c1")
	whole.whole, more.from = true, whole.to
	j = join(whole, more)
	if got := cargoText(&j); got != "a:a1>a2 b:b1>b2 c:c1>c1" {
		t.Error("a full table:", got)
	}
	// A name that was added and removed is kept, for the client may still hold it.
	one = table("b2", "a2 b2")
	three.from = one.to
	j = join(one, three)
	if got := cargoText(&j); got != "a:a2>-" {
		t.Error("added and removed:", got)
	}
	three.untold = true
	if j = join(one, three); cargoText(&j) != "a:->a2" {
		t.Error("added and removed, not sent:", cargoText(&j))
	}
	// Names that were dropped before the later delivery was sent count as not held before it. Names
	// in the later delivery, and accepted names, count as held. A name in both tables has no item.
	whole, again = table("", "a1 b1"), table("", "a1 b1")
	whole.whole, whole.dropped, again.whole, again.from, again.to = true, true, true, whole.to, whole.to
	if j = join(whole, again); cargoText(&j) != "a:->a1 b:->b1" || len(j.items) > 0 {
		t.Error("dropped, and sent again:", cargoText(&j), j.items)
	}
	whole.parts[0].hi, whole.parts[0].fate = "a", accepted
	if j = join(whole, again); cargoText(&j) != "a:a1>a1 b:->b1" {
		t.Error("accepted in part:", cargoText(&j))
	}
	one, two = table("a1 b1", "a2 b1"), table("", "a2 b2")
	two.from, one.dropped = one.to, true
	if j = join(one, two); cargoText(&j) != "a:->a2 b:b1>b2" {
		t.Error("dropped, and another changed:", cargoText(&j))
	}
	one = said("c:->c1")
	one.dropped = true
	if j = join(one, two); cargoText(&j) != "b:b1>b2 c:->c1" {
		t.Error("dropped, and a wildcard begins:", cargoText(&j))
	}
	again.from, again.dropped = again.to, false // the client had all that it is told again
	if j = join(one, again); cargoText(&j) != "a:a1>a1 b:b1>b1 c:->c1" {
		t.Error("dropped, and a wildcard with all resources held begins:", cargoText(&j))
	}
	// A refusal keeps its refused states.
	u.refusals = []refusal{list(itemsOf("a:->a1"), 1, true)}
	j = join(said("a:a1>a2"), said("a:a2>a3"))
	if got := cargoText(&j); got != "a:a2>a3" {
		t.Error("after a refusal:", got)
	}
}

// DELTA-13: each message of a split response has its own names and its own answer. Removals are in
// the last message.
func TestPartsAreAnsweredSeparately(t *testing.T) {
	one, removed := stampOf("a1"), absent
	p := part{lo: "b", hi: "d", gone: "f", last: "h"}
	for name, want := range map[string][2]bool{"a": {false, false}, "b": {true, false}, "c": {true, false}, "d": {true, false}, "e": {false, false}, "f": {false, true}, "h": {false, true}, "i": {false, false}} {
		if got := [2]bool{p.within(name, one), p.within(name, removed)}; got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	d := delivery{parts: []part{{nonce: 1, lo: "a", hi: "b", fate: accepted}, {nonce: 2, lo: "c", hi: "d"}, {nonce: 3, lo: "e", hi: "f", gone: "x", last: "z", fate: refused}}}
	for name, want := range map[string]bool{"a": false, "c": true, "e": false} {
		if d.open(name, one) != want {
			t.Errorf("%s open: %v", name, !want)
		}
	}
	if d.open("y", removed) || d.settled() || d.last() != 3 {
		t.Error("removals, or the end")
	}
	d.parts[1].fate = accepted
	if !d.settled() {
		t.Error("not settled")
	}
}

// SAFE-2: four unanswered responses are listed. For the fifth, a superseded response is dropped, or
// else a heartbeat. Without these, the oldest response is joined to the second.
func TestEvictDelivery(t *testing.T) {
	listed := func(u *subscription) string {
		var out []string
		for i := range u.deliveries {
			s := fmt.Sprint(u.deliveries[i].last())
			if u.deliveries[i].stuck > 0 {
				s += " stuck"
			}
			out = append(out, s)
		}
		return strings.Join(out, ", ")
	}
	make4 := func() (*Session, *subscription) {
		u := &subscription{typ: xds.Cluster}
		s := &Session{now: time.Unix(1, 0), variant: xds.Delta}
		for n := range uint64(4) {
			is := fmt.Sprintf("a:a%d>a%d", n, n+1)
			u.deliver(s, &delivery{cargo: cargo{items: itemsOf(is)}, parts: []part{{nonce: n + 1}}})
		}
		return s, u
	}
	fifth := delivery{cargo: cargo{items: itemsOf("a:a4>a5")}, parts: []part{{nonce: 5}}}

	s, u := make4()
	u.deliveries[0].stuck = 1 // ADS-6: the wait for a cluster that cannot warm does not begin again
	u.deliver(s, &fifth)
	if got := listed(u); got != "2 stuck, 3, 4, 5" {
		t.Error(got)
	}
	if got := cargoText(&u.deliveries[0].cargo); got != "a:a0>a2" {
		t.Error("ADS-3: the state before the oldest:", got)
	}
	s.acceptUnlisted(u, 0)
	if !u.stuck() {
		t.Error("ADS-6: an earlier response proves that a cluster has warmed")
	}
	if s.acceptUnlisted(u, 1); u.stuck() {
		t.Error("ADS-6: an unlisted response counts as accepted")
	}
	s, u = make4()
	u.deliveries[0].stuck = 1
	u.deliver(s, &fifth)
	if u.settle(s, xds.Request{Nonce: "1", Error: &xds.Status{}}); !u.stuck() {
		t.Error("ADS-6: the refusal of an unlisted response proves that a cluster has warmed")
	}
	s, u = make4()
	u.deliveries[1].stuck = 2
	u.deliver(s, &fifth)
	if got := listed(u); got != "2 stuck, 3, 4, 5" {
		t.Error("ADS-6: the response joined to the oldest cannot be answered:", got)
	}
	s, u = make4()
	u.deliveries[2].beats = []*xds.Resource{}
	u.deliver(s, &fifth)
	if got := listed(u); got != "1, 2, 4, 5" {
		t.Error("a heartbeat goes first:", got)
	}
	s, u = make4()
	u.deliveries[1].superseded, u.deliveries[0].beats = true, []*xds.Resource{}
	u.deliver(s, &fifth)
	if got := listed(u); got != "1, 3, 4, 5" {
		t.Error("a settled response goes first:", got)
	}
	if u.nonce != 5 || !u.unacked {
		t.Errorf("the newest nonce is %d, unanswered: %v", u.nonce, u.unacked)
	}
}

// ADS-3: silence begins with the first unanswered response. It begins neither with an earlier
// answer nor again with each response.
func TestSilence(t *testing.T) {
	u := &subscription{typ: xds.Route}
	s := &Session{now: time.Unix(100, 0), variant: xds.Delta, view: xds.Tables{}}
	at := func(sec int64) { s.now = time.Unix(sec, 0) }
	u.deliver(s, &delivery{parts: []part{{nonce: 1}}})
	at(110)
	u.deliver(s, &delivery{parts: []part{{nonce: 2}}})
	if u.silent != time.Unix(100, 0) {
		t.Error("the second response restarted silence:", u.silent.Unix())
	}
	at(120)
	u.settle(s, xds.Request{Nonce: "1"})
	if u.silent != time.Unix(120, 0) || !u.unacked {
		t.Error("after an answer, silence is", u.silent.Unix(), u.unacked)
	}
	at(130)
	u.settle(s, xds.Request{Nonce: "2"})
	at(200)
	u.deliver(s, &delivery{parts: []part{{nonce: 3}}})
	if u.silent != time.Unix(200, 0) {
		t.Error("silent before a response:", u.silent.Unix())
	}
	// The last message of a split response is answered, but not the first. So the next response is
	// the first response that needs an answer.
	w := &subscription{typ: xds.Route}
	w.deliver(s, &delivery{parts: []part{{nonce: 1}, {nonce: 2}}})
	w.settle(s, xds.Request{Nonce: "2"})
	at(300)
	w.deliver(s, &delivery{parts: []part{{nonce: 3}}})
	if w.silent != time.Unix(300, 0) {
		t.Error("silent before a new response:", w.silent.Unix())
	}
	at(200)
	if got := u.waitsUntil(time.Unix(205, 0)); got != time.Unix(205, 0).Add(silence) {
		t.Error("since a later loss:", got.Unix())
	}
	if got := u.waitsUntil(time.Unix(150, 0)); got != time.Unix(200, 0).Add(silence) {
		t.Error("since the response:", got.Unix())
	}
}

// ADS-3: a dropped name counts as not held before a full state in flight, and arrives with this
// full state, whatever its item was. Each name has one item.
func TestUnsubscribeInFlight(t *testing.T) {
	u := subscription{typ: xds.Cluster}
	for name, told := range map[string]string{"a": "a2", "b": "b1", "c": "c1"} {
		u.add(entry{name: name, told: stampOf(told), named: true})
	}
	d := delivery{cargo: cargo{items: append(itemsOf("a:a1>a2"), item{name: "b"})}, parts: []part{{nonce: 1, world: true}}}
	u.deliveries = []delivery{d}
	u.letGo(map[string]bool{"a": true, "b": true, "c": true, "x": true})
	if got := cargoText(&u.deliveries[0].cargo); got != "a:->a2 b:->b1 c:->c1" {
		t.Error(got)
	}
}

// ADS-8: if the client unsubscribes from the wildcard, it drops all names without an entry. A full
// state in flight brings these names again, even if it did not change them.
func TestUnsubscribeWildcardInFlight(t *testing.T) {
	for _, c := range []struct {
		world bool
		want  string
	}{{false, "a:a1>a2 b:->b2 d:->-"}, {true, "a:a1>a2 b:->b2 c:->c1 d:->-"}} {
		u := subscription{typ: xds.Cluster}
		u.add(entry{name: "a", told: stampOf("a2"), named: true})
		from, to := versionsOf("a1 b1 c1 d1"), versionsOf("a2 b2 c1")
		u.deliveries = []delivery{{cargo: cargo{from: from, to: to}, parts: []part{{nonce: 1, world: c.world}}}}
		for range 2 {
			u.letGoAll()
			if got := cargoText(&u.deliveries[0].cargo); got != c.want {
				t.Errorf("a world %v: %s", c.world, got)
			}
		}
	}
}

// TTL-3: for a name without heartbeats, the TTL counts from its first response. That is so even if
// a later response had the name again and is no longer listed.
func TestTTLCountsFromEvictedResponse(t *testing.T) {
	r := xds.NewResource(nil, "r", []byte("1"))
	r.TTL, r.Refs = 30*time.Second, []xds.Ref{}
	r.Seal("1")
	l := newLine(t, xds.Delta, nil, Options{ForceTTL: true}, xds.Tables{xds.Endpoint.URL: with(xds.NewTable(xds.Endpoint), []*xds.Resource{r})})
	l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"r"}})
	l.want("EDS r@1")
	u := l.sub(xds.Endpoint)
	for _, want := range []time.Time{l.now, l.now.Add(-time.Second)} {
		if l.unlisted(u, &u.deliveries[0]); !u.unfed["r"].Equal(want) {
			t.Errorf("since %v, want %v", u.unfed["r"], want)
		}
		u.starve("r", l.now.Add(-time.Second))
	}
}
