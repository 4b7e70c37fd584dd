package protocol

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/chancery-xds/chancery/xds"
)

// Lists of the same names are equal, whatever their order. Other lists are not equal.
func TestSpelling(t *testing.T) {
	a := spell([]string{"a", "b", "c"})
	if a != spell([]string{"c", "a", "b"}) {
		t.Error("SOTW-20: the order of names matters")
	}
	for _, other := range [][]string{nil, {"a", "b"}, {"a", "b", "d"}, {"a", "b", "c", ""}, {"a", "b", "c", "c"}, {"abc"}} {
		if spell(other) == a {
			t.Errorf("%q counts as a, b, c", other)
		}
	}
}

// A request with SameNames is equal to one with these names.
func TestSameNames(t *testing.T) {
	l := newLine(t, xds.SotW, nil, Options{}, xds.Tables{xds.Endpoint.URL: tableOf(xds.Endpoint, "a", "b")})
	l.ask(xds.Request{Type: xds.Endpoint, Names: []string{"a", "b"}})
	l.want("EDS a@1 b@1")
	l.ask(xds.Request{Type: xds.Endpoint, Nonce: "1", SameNames: true})
	l.want("")
	if u := l.subs[0]; u.named != 2 || u.unacked {
		t.Errorf("%d names; unanswered: %v", u.named, u.unacked)
	}
	l.ask(xds.Request{Type: xds.Endpoint, Nonce: "1", Names: []string{"b"}})
	l.ask(xds.Request{Type: xds.Endpoint, Nonce: "1", SameNames: true})
	if n := l.subs[0].named; n != 1 {
		t.Errorf("%d names", n)
	}
}

// SOTW-14, DELTA-4: a name counts once, however often it is listed or subscribed.
func TestNamesCountOnce(t *testing.T) {
	l := newLine(t, xds.SotW, nil, Options{}, xds.Tables{})
	l.ask(xds.Request{Type: xds.Endpoint, Names: []string{"a", "b", "a", "a"}})
	if n := l.subs[0].named; n != 2 {
		t.Errorf("%d names", n)
	}
	l = newLine(t, xds.Delta, nil, Options{}, xds.Tables{})
	l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"a", "b", "a"}})
	l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"a"}})
	l.ask(xds.Request{Type: xds.Endpoint, Unsubscribe: []string{"b", "b"}})
	if n := l.subs[0].named; n != 1 {
		t.Errorf("%d names", n)
	}
}

// Interests reports each change of the wanted names once, by name or by match. The server wakes the
// stream for these names.
func TestInterest(t *testing.T) {
	alias := resource("c", 1)
	alias.Aliases = []string{"n"}
	alias.Seal("1")
	l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.Endpoint.URL: with(tableOf(xds.Endpoint, "a", "b"), []*xds.Resource{alias})})
	for i, c := range []struct {
		sub, unsub string
		want       string
	}{
		{"a,x", "", "+a +x"},
		{"a", "", ""}, // subscribed again: no change
		{"", "a,nobody", "-a"},
		{"a", "a", ""}, // subscribed, then unsubscribed: no change
		{"*", "", "* "},
		{"a", "a", "* "}, // the same under the wildcard
		{"b", "", "* +b"},
		{"", "*", ""},
		{"n", "", "+c +n"},
		{"", "n", "-c -n"},
		{"", "b,x", "-b -x"},
	} {
		split := func(s string) []string { return strings.FieldsFunc(s, func(r rune) bool { return r == ',' }) }
		l.ask(xds.Request{Type: xds.Endpoint, Subscribe: split(c.sub), Unsubscribe: split(c.unsub)})
		var words []string
		wild := ""
		for in := range l.Interests() {
			if in.Wildcard {
				wild = "* "
			}
			for _, n := range in.Added {
				words = append(words, "+"+n)
			}
			for _, n := range in.Removed {
				words = append(words, "-"+n)
			}
		}
		slices.Sort(words)
		if got := wild + strings.Join(words, " "); got != c.want {
			t.Errorf("%d: sub=%s unsub=%s: %q, want %q", i, c.sub, c.unsub, got, c.want)
		}
		for in := range l.Interests() {
			t.Errorf("%d: interest reported twice: %+v", i, in)
		}
		l.drain()
	}
}

// SAFE-1: a session does not keep the memory of a request. Names share the strings of the table, or
// have their own.
func TestNamesOwnTheirMemory(t *testing.T) {
	known := resource("known", 1)
	l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.Endpoint.URL: with(xds.NewTable(xds.Endpoint), []*xds.Resource{known})})
	buffer := "known,unknown,stated,old" // like a decoded request
	names := strings.Split(buffer, ",")
	l.ask(xds.Request{Type: xds.Endpoint, Subscribe: names[:2]})
	l.ask(xds.Request{Type: xds.Cluster, Subscribe: []string{"*"}, Initial: []xds.Version{{Name: names[2], Version: names[3]}}})
	from, to := uintptr(unsafe.Pointer(unsafe.StringData(buffer))), uintptr(len(buffer))
	for _, u := range l.subs {
		for e := range u.Entries() {
			for _, s := range []string{e.Name, e.Told.Name, e.Told.Version} {
				if p := uintptr(unsafe.Pointer(unsafe.StringData(s))); s != "" && p >= from && p < from+to {
					t.Errorf("%s %q keeps the memory of the request", u.typ, s)
				}
			}
		}
	}
	if e := l.sub(xds.Endpoint).Entry("known"); unsafe.StringData(e.Name) != unsafe.StringData(known.Name) {
		t.Error("the name does not share the memory of the table")
	}
}

// An ACK that repeats 100,000 names is recognised by its spelling: its allocations do not grow with
// the number of names.
func TestACKOfManyNames(t *testing.T) {
	names := numbered(100_000)
	l := newLine(t, xds.SotW, nil, Options{}, xds.Tables{})
	l.ask(xds.Request{Type: xds.Endpoint, Names: names})
	l.drain()
	slices.Reverse(names)
	req := xds.Request{Type: xds.Endpoint, Names: names}
	if n := testing.AllocsPerRun(3, func() {
		l.ask(req)
		for range l.Events() {
		}
	}); n > 20 {
		t.Errorf("%v allocations", n)
	}
}

// DELTA-6: a name that the client unsubscribes from under a wildcard is remembered until the client
// is told its state, or subscribes again.
func TestUnsubscribedUnderWildcard(t *testing.T) {
	l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.Endpoint.URL: tableOf(xds.Endpoint, "a", "b")})
	l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"*", "a", "b", "x"}})
	l.settle()
	u := l.subs[0]
	l.ask(xds.Request{Type: xds.Endpoint, Unsubscribe: []string{"a", "b", "x"}})
	if got := fmt.Sprint(u.dropped); got != "map[a:true b:true x:true]" {
		t.Error(got)
	}
	l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"a"}})
	if got := fmt.Sprint(u.dropped); got != "map[b:true x:true]" {
		t.Error(got)
	}
	l.want("EDS a@1 b@1 -x")
	if len(u.dropped) > 0 {
		t.Error(u.dropped)
	}
	l.settle()
	if u.Set.Len() != 1 {
		t.Errorf("SAFE-1: one name has %d entries", u.Set.Len())
	}
}

// SAFE-9: "What a client can make the server hold or do is bounded per stream". That includes names
// that a client unsubscribes under a wildcard and whose state it is not told, because it answers
// nothing.
func TestUnsubscribedUnderWildcardIsBounded(t *testing.T) {
	const most = 20
	l := newLine(t, xds.Delta, nil, Options{MaxNames: most}, xds.Tables{})
	l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"*"}})
	for i := range 2 * most {
		name := fmt.Sprint("none-", i)
		for _, req := range []xds.Request{{Subscribe: []string{name}}, {Unsubscribe: []string{name}}} {
			req.Type = xds.Endpoint
			if err := l.Receive(req); errors.Is(err, ErrLimit) && i > most {
				return
			} else if err != nil {
				t.Fatal(err)
			}
			l.drain()
		}
	}
	t.Errorf("%d names are kept, want at most %d", len(l.subs[0].dropped), most)
}

// SAFE-9: names unsubscribed under a wildcard are forgotten when the wildcard ends.
func TestUnsubscribedNamesEndWithWildcard(t *testing.T) {
	l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.Endpoint.URL: tableOf(xds.Endpoint, "a")})
	l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"*", "a", "x"}})
	l.settle()
	l.ask(xds.Request{Type: xds.Endpoint, Unsubscribe: []string{"a", "x"}})
	l.ask(xds.Request{Type: xds.Endpoint, Unsubscribe: []string{"*"}})
	if u := l.subs[0]; len(u.dropped) > 0 {
		t.Error(u.dropped)
	}
	l.want("")
}

// DELTA-6, OND-4: a client unsubscribes from the virtual hosts of a route. The wildcard matches new
// hosts before the client is told that the route had none. The new hosts then show the state, and
// no record is left when all routes are subscribed.
func TestDroppedScopeIsMatched(t *testing.T) {
	l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.Route.URL: tableOf(xds.Route, "r"), xds.VirtualHost.URL: tableOf(xds.VirtualHost)})
	l.ask(xds.Request{Type: xds.Route, Subscribe: []string{"r"}})
	l.settle()
	l.ask(xds.Request{Type: xds.VirtualHost, Subscribe: []string{"*", "r/*"}})
	l.settle()
	l.commit(xds.VirtualHost, resources(1, "r/a"))
	l.ask(xds.Request{Type: xds.VirtualHost, Unsubscribe: []string{"r/*"}})
	l.want("VHDS r/a@1")
	if u := l.sub(xds.VirtualHost); len(u.dropped) > 0 {
		t.Error(u.dropped)
	}
	l.settle()
	l.ask(xds.Request{Type: xds.Route, Subscribe: []string{"*"}})
	l.want("RDS r@1")
}

// SAFE-1: a client that unsubscribes from all names leaves nothing behind, few or many at once.
func TestDropAll(t *testing.T) {
	for _, n := range []int{1, 8, 9, 300} {
		for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
			names := numbered(n)
			l := newLine(t, v, nil, Options{}, xds.Tables{xds.Endpoint.URL: tableOf(xds.Endpoint, names[:n/2+1]...)})
			l.ask(xds.Request{Type: xds.Endpoint, Names: names, Subscribe: names})
			l.settle()
			if v == xds.SotW {
				names = nil
			}
			l.ask(xds.Request{Type: xds.Endpoint, Unsubscribe: names})
			if u := l.subs[0]; u.Set.Len() != 0 || u.named != 0 || u.wildcard {
				t.Errorf("%s: of %d names, %d are left", v, n, u.Set.Len())
			}
			l.want("")
		}
	}
}

// SAFE-1: when a wildcard ends, the states that it was told are released, answered or not. Names
// that may still arrive are in flight.
func TestDroppedWildcard(t *testing.T) {
	for _, answered := range []bool{true, false} {
		l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.Endpoint.URL: tableOf(xds.Endpoint, "a", "b")})
		l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"*", "b"}})
		l.drain()
		if answered {
			l.ack(xds.Endpoint)
		}
		l.ask(xds.Request{Type: xds.Endpoint, Unsubscribe: []string{"*"}})
		u := l.subs[0]
		if u.base != nil || u.Set.Len() != 1 {
			t.Errorf("answered %v: %d stamps are kept, %d entries", answered, u.base.Len(), u.Set.Len())
		}
	}
}

// SAFE-1: the cost of a subscription does not depend on the number of names. Each step used to copy
// all names, 20,000 times.
func TestSubscribeTwoAtATime(t *testing.T) {
	run := func(n int) func() time.Duration {
		return func() time.Duration {
			names := numbered(n)
			l := newLine(t, xds.Delta, xds.Endpoint, Options{}, xds.Tables{xds.Endpoint.URL: tableOf(xds.Endpoint, "x")})
			return computing(func() {
				for i := 0; i < n; i += 2 {
					l.talk(xds.Request{Type: xds.Endpoint, Nonce: l.talk(xds.Request{Type: xds.Endpoint, Subscribe: names[i : i+2]})})
				}
			})
		}
	}
	grows(t, 25, run(500), run(4000))
}

// SAFE-9: a client subscribes to one name after the other and answers nothing, and the stream sends
// a response before each request. A request must not look at all names: 20,000 requests used to
// take half a minute.
func TestSubscribeWithoutAnswers(t *testing.T) {
	view := xds.Tables{xds.Cluster.URL: tableOf(xds.Cluster, "x")}
	run := func(n int) func() time.Duration {
		return func() time.Duration {
			names := numbered(n)
			l := newLine(t, xds.Delta, nil, Options{}, view)
			return computing(func() {
				for i := range names {
					l.Change(view, []xds.Names{})
					if err := l.Receive(xds.Request{Type: xds.Cluster, Subscribe: names[i : i+1]}); err != nil {
						t.Fatal(err)
					}
					l.Change(view, []xds.Names{})
					for range l.Responses() {
					}
					for range l.Events() {
					}
					for range l.Interests() {
					}
					l.Release()
				}
			})
		}
	}
	grows(t, 25, run(500), run(4000))
}

// SAFE-1: a name that one request unsubscribes many times is looked up once.
func TestUnsubscribedManyTimes(t *testing.T) {
	members := numbered(300)
	for i, n := range members {
		members[i] = "r/" + n
	}
	l := newLine(t, xds.Delta, xds.VirtualHost, Options{}, xds.Tables{xds.VirtualHost.URL: tableOf(xds.VirtualHost, members...)})
	l.ask(xds.Request{Type: xds.VirtualHost, Subscribe: []string{"none"}})
	l.settle()
	run := func(k int) func() time.Duration {
		return l.timer(xds.Request{Type: xds.VirtualHost, Unsubscribe: slices.Repeat([]string{"r/*"}, k)})
	}
	grows(t, 100, run(1), run(1000))
}

// SAFE-9: an unsubscribed name counts once, however many subscriptions covered it. It no longer
// counts after the client is told its state. Otherwise a long-lived stream would end.
func TestGivenUpIsCountedOnce(t *testing.T) {
	l := newLine(t, xds.Delta, xds.VirtualHost, Options{}, xds.Tables{xds.VirtualHost.URL: with(xds.NewTable(xds.VirtualHost), []*xds.Resource{aliased("r/a", "x", "y")})})
	l.ask(xds.Request{Type: xds.VirtualHost, Subscribe: []string{"*"}})
	l.settle()
	for range 3 {
		l.ask(xds.Request{Type: xds.VirtualHost, Subscribe: []string{"r/a", "x", "y"}})
		l.settle()
		for _, names := range [][]string{{"x"}, {"r/a", "y"}} {
			l.ask(xds.Request{Type: xds.VirtualHost, Unsubscribe: names})
		}
		if names, bytes := l.GivenUp(); names == 0 || bytes != len("r/a")*names {
			t.Errorf("%d names of %d bytes are unsubscribed", names, bytes)
		}
		l.settle()
		if names, bytes := l.GivenUp(); names != 0 || bytes != 0 {
			t.Errorf("%d names of %d bytes are unsubscribed and sent", names, bytes)
		}
	}
}

// Unsubscribed names are forgotten when their wildcard ends, so a client that repeats this does not
// use up memory.
func TestGivenUpEndsWithTheWildcard(t *testing.T) {
	l := newLine(t, xds.Delta, xds.Cluster, Options{}, xds.Tables{xds.Cluster.URL: with(xds.NewTable(xds.Cluster), []*xds.Resource{aliased("a", "x")})})
	for range 3 {
		l.ask(xds.Request{Type: xds.Cluster, Subscribe: []string{"*", "a", "x"}})
		l.settle()
		l.commit(xds.Cluster, nil, "a")
		l.ask(xds.Request{Type: xds.Cluster, Unsubscribe: []string{"a"}})
		l.ask(xds.Request{Type: xds.Cluster, Unsubscribe: []string{"x", "*"}})
		if names, bytes := l.GivenUp(); names != 0 || bytes != 0 {
			t.Errorf("SAFE-9 %d names of %d bytes are unsubscribed", names, bytes)
		}
	}
}
