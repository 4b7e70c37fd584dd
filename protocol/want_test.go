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

// Lists of the same names are the same request, whatever their order; any other
// list is another.
func TestSpelling(t *testing.T) {
	a := spell([]string{"a", "b", "c"})
	if a != spell([]string{"c", "a", "b"}) {
		t.Error("SOTW-20: the order counts")
	}
	for _, other := range [][]string{nil, {"a", "b"}, {"a", "b", "d"}, {"a", "b", "c", ""}, {"a", "b", "c", "c"}, {"abc"}} {
		if spell(other) == a {
			t.Errorf("%q is taken for a, b, c", other)
		}
	}
}

// A request whose names are left out, since they are the same, is one that lists them.
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

// SOTW-14, DELTA-4: a name counts once, however often it is listed or asked for.
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

// What a server has to wake the stream for: the interest moves with what is
// wanted, by name or by what names find, and is told once.
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
		{"a", "", ""}, // asked for again: nothing new
		{"", "a,nobody", "-a"},
		{"a", "a", ""}, // subscribed, then unsubscribed: it has not moved
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
			t.Errorf("%d: sub=%s unsub=%s: %q, not %q", i, c.sub, c.unsub, got, c.want)
		}
		for in := range l.Interests() {
			t.Errorf("%d: told twice: %+v", i, in)
		}
		l.drain()
	}
}

// SAFE-1: a session keeps none of a request's memory: names share that of the
// table, or have their own.
func TestNamesOwnTheirMemory(t *testing.T) {
	known := resource("known", 1)
	l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.Endpoint.URL: with(xds.NewTable(xds.Endpoint), []*xds.Resource{known})})
	buffer := "known,unknown,stated,old" // as a request is decoded
	names := strings.Split(buffer, ",")
	l.ask(xds.Request{Type: xds.Endpoint, Subscribe: names[:2]})
	l.ask(xds.Request{Type: xds.Cluster, Subscribe: []string{"*"}, Initial: []xds.Version{{Name: names[2], Version: names[3]}}})
	from, to := uintptr(unsafe.Pointer(unsafe.StringData(buffer))), uintptr(len(buffer))
	for _, u := range l.subs {
		for e := range u.entries() {
			for _, s := range []string{e.name, e.told.Name, e.told.Version} {
				if p := uintptr(unsafe.Pointer(unsafe.StringData(s))); s != "" && p >= from && p < from+to {
					t.Errorf("%s %q keeps the memory of the request", u.typ, s)
				}
			}
		}
	}
	if e := l.sub(xds.Endpoint).entry("known"); unsafe.StringData(e.name) != unsafe.StringData(known.Name) {
		t.Error("the name of a resource is not that of the table")
	}
}

// An ACK that repeats 100,000 names is recognised by its spelling: it allocates
// nothing that grows with them.
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

// DELTA-6: what the client drops under a wildcard is remembered until it is told
// what becomes of it, or asks for it again.
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
	if u.names.len() != 1 {
		t.Errorf("SAFE-1: %d entries are kept of one name", u.names.len())
	}
}

// SAFE-9: "What a client can make the server hold or do is bounded per stream": what is
// given up under a wildcard, too, by a client that is not told of it since it answers nothing.
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
	t.Errorf("%d names are kept, more than %d", len(l.subs[0].dropped), most)
}

// SAFE-9: with the wildcard goes what was given up under it and is not told of.
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

// DELTA-6, OND-4: the hosts of a route are given up, and found by the wildcard all the same
// before the client is told that there were none. They tell what becomes of that, and nothing
// of it is left when all routes are asked for.
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

// SAFE-1: whoever drops all names leaves nothing behind, few or many at once.
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
			if u := l.subs[0]; u.names.len() != 0 || u.named != 0 || u.wildcard {
				t.Errorf("%s: of %d names %d are left", v, n, u.names.len())
			}
			l.want("")
		}
	}
}

// SAFE-1: what a wildcard told is let go of with it, answered or not: what the client
// may come to hold of it all the same is under way.
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
		if u.base != nil || u.names.len() != 1 {
			t.Errorf("answered %v: %d stamps are kept, %d entries", answered, u.base.Len(), u.names.len())
		}
	}
}

// SAFE-1: what subscribing to a name costs does not depend on how many there are: it copied
// all names at each step once, 20,000 times.
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

// SAFE-9: who asks for one name after the other and answers nothing makes no request look at
// all that it has asked for, in a stream that is brought up to date before each: 20,000 took
// a core for half a minute.
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

// SAFE-1: a name that is unsubscribed many times at once is looked up once.
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

// SAFE-9: what a client has given up is counted once, by however many names it had that, and
// no more when it has been told what becomes of it: else a stream that lives long enough would
// end.
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
			t.Errorf("%d names of %d bytes are given up", names, bytes)
		}
		l.settle()
		if names, bytes := l.GivenUp(); names != 0 || bytes != 0 {
			t.Errorf("%d names of %d bytes are given up and told", names, bytes)
		}
	}
}

// What was given up, and ends with the wildcard that it was given up under, is remembered no
// more: a client that does so again and again holds no memory by it.
func TestGivenUpEndsWithTheWildcard(t *testing.T) {
	l := newLine(t, xds.Delta, xds.Cluster, Options{}, xds.Tables{xds.Cluster.URL: with(xds.NewTable(xds.Cluster), []*xds.Resource{aliased("a", "x")})})
	for range 3 {
		l.ask(xds.Request{Type: xds.Cluster, Subscribe: []string{"*", "a", "x"}})
		l.settle()
		l.commit(xds.Cluster, nil, "a")
		l.ask(xds.Request{Type: xds.Cluster, Unsubscribe: []string{"a"}})
		l.ask(xds.Request{Type: xds.Cluster, Unsubscribe: []string{"x", "*"}})
		if names, bytes := l.GivenUp(); names != 0 || bytes != 0 {
			t.Errorf("SAFE-9 %d names of %d bytes are given up", names, bytes)
		}
	}
}
