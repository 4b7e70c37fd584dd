package protocol

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// aliased returns a resource of version 1 with aliases.
func aliased(name string, aliases ...string) *xds.Resource {
	r := resource(name, 1)
	r.Aliases = aliases
	r.Seal("1")
	return r
}

// DELTA-11: an unsubscription drops the name if it is subscribed. Otherwise it drops the subscribed
// names that match the resource with this name or alias.
func TestUnsubscribedBy(t *testing.T) {
	table := with(xds.NewTable(xds.VirtualHost), []*xds.Resource{
		aliased("r/a", "n"), aliased("r/b", "m", "k"), aliased("c", "both"), aliased("d", "both"),
	})
	for _, c := range []struct{ sub, unsub, want string }{
		{"n", "n", "n"},         // as it was subscribed
		{"n", "r/a", "n"},       // by the name of the matched resource
		{"r/a", "n", "r/a"},     // by an alias of it
		{"m,k", "r/b", "k m"},   // all its aliases
		{"r/*", "r/a", ""},      // a collection is not dropped with a member
		{"r/*", "r/*", "r/*"},   //
		{"r/*,n", "r/a", "n"},   //
		{"both", "c", "both"},   // "resource names and aliases" both match
		{"c,d", "both", "c d"},  //
		{"c,d", "nothing", ""},  // a phantom unsubscription
		{"r/a,n", "r/a", "r/a"}, // it is subscribed as it is
		{"n", "m", ""},          // an alias of something else
		{"missing", "r/a", ""},  //
		{"missing", "missing", "missing"},
	} {
		l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.VirtualHost.URL: table})
		l.ask(xds.Request{Type: xds.VirtualHost, Subscribe: strings.Split(c.sub, ",")})
		got := l.unsubscribedBy(l.subs[0], table, c.unsub)
		slices.Sort(got)
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("sub=%s unsub=%s: drops %q, want %q", c.sub, c.unsub, s, c.want)
		}
		l.settle()
		l.ask(xds.Request{Type: xds.VirtualHost, Unsubscribe: []string{c.unsub}})
		l.settle()
	}
}

// DELTA-11: the effect of an unsubscription does not depend on whether Responses was called since
// the view changed.
func TestUnsubscribedByAliasBeforeResponse(t *testing.T) {
	l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{})
	l.ask(xds.Request{Type: xds.Cluster, Subscribe: []string{"nick"}})
	l.want("CDS -nick")
	l.commit(xds.Cluster, []*xds.Resource{aliased("c", "nick")})
	l.ask(xds.Request{Type: xds.Cluster, Unsubscribe: []string{"c"}})
	l.ack(xds.Cluster)
	l.want("")
}

// ADS-3, SAFE-9: a kept resource stays matched until it is removed. Another resource that is lost
// at the same time does not stay matched.
func TestKeptResourceStaysMatched(t *testing.T) {
	l := newLine(t, xds.Delta, xds.VirtualHost, Options{}, xds.Tables{xds.VirtualHost.URL: with(xds.NewTable(xds.VirtualHost), []*xds.Resource{aliased("r/a")})})
	l.ask(xds.Request{Type: xds.VirtualHost, Subscribe: []string{"r/*"}})
	l.want("VHDS r/a@1")
	l.commit(xds.VirtualHost, []*xds.Resource{aliased("r/b")})
	l.want("")
	l.commit(xds.VirtualHost, nil, "r/a", "r/b")
	l.want("")
	if u := l.subs[0]; !u.covers("r/a") || u.covers("r/b") {
		t.Errorf("covers r/a, which the client has: %v, and r/b: %v", u.covers("r/a"), u.covers("r/b"))
	}
	l.ack(xds.VirtualHost)
	l.wait(5 * time.Second)
	l.want("VHDS -r/* -r/a")
}

// SAFE-1: a matched resource that was removed before it was sent leaves no record.
func TestMatchRemovedBeforeSent(t *testing.T) {
	l := newLine(t, xds.Delta, xds.VirtualHost, Options{}, xds.Tables{xds.VirtualHost.URL: with(xds.NewTable(xds.VirtualHost), []*xds.Resource{aliased("r/a", "n")})})
	l.ask(xds.Request{Type: xds.VirtualHost, Subscribe: []string{"n"}})
	l.commit(xds.VirtualHost, nil, "r/a")
	l.want("VHDS -n")
	if u := l.subs[0]; u.Entry("r/a") != nil {
		t.Error("r/a is remembered")
	}
}

// DELTA-11: a resource stays while one name matches it. With the last name it is removed or
// forgotten.
func TestMatchedByTwoNames(t *testing.T) {
	l := newLine(t, xds.Delta, xds.Endpoint, Options{Grace: -1}, xds.Tables{xds.Endpoint.URL: with(xds.NewTable(xds.Endpoint), []*xds.Resource{aliased("c", "m", "n")})})
	l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"m", "n"}})
	l.want("EDS c@1")
	l.ack(xds.Endpoint)
	u := l.subs[0]
	if e := u.Entry("c"); e == nil || e.Matched != 2 {
		t.Fatalf("%+v", e)
	}
	l.commit(xds.Endpoint, []*xds.Resource{aliased("c", "n")}) // one alias less
	l.want("EDS c@1 -m")
	l.ack(xds.Endpoint)
	if e := u.Entry("c"); e == nil || e.Matched != 1 {
		t.Fatalf("%+v", e)
	}
	l.ask(xds.Request{Type: xds.Endpoint, Unsubscribe: []string{"m"}})
	l.want("")
	l.commit(xds.Endpoint, []*xds.Resource{aliased("c")})
	l.want("EDS -c -n")
	l.ack(xds.Endpoint)
	if u.Entry("c") != nil || u.Set.Len() != 1 {
		t.Errorf("%d entries", u.Set.Len())
	}
}

// The names that match a resource. A lost alias counts until match is called for it.
func TestMatchedBy(t *testing.T) {
	l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.VirtualHost.URL: with(xds.NewTable(xds.VirtualHost), []*xds.Resource{aliased("r/c", "m", "n", "other")})})
	l.ask(xds.Request{Type: xds.VirtualHost, Subscribe: []string{"m", "n", "r/*", "x"}})
	u := l.subs[0]
	want := func(name, want string) {
		t.Helper()
		got := u.matchedBy(name)
		slices.Sort(got)
		if s := fmt.Sprint(got); s != want {
			t.Errorf("%s is matched by %s, want %s", name, s, want)
		}
	}
	want("m", "[]")
	want("r/c", "[m n r/*]")
	l.Change(xds.Tables{xds.VirtualHost.URL: with(xds.NewTable(xds.VirtualHost), []*xds.Resource{aliased("r/c", "n")})}, nil)
	want("r/c", "[m n r/*]")
	l.settle()
	want("r/c", "[n r/*]")
	l.ask(xds.Request{Type: xds.VirtualHost, Unsubscribe: []string{"n"}})
	want("r/c", "[r/*]")
	if len(u.aliased) > 0 {
		t.Errorf("remembered: %q", u.aliased)
	}
}

// SAFE-9: "cheap per request whatever was asked before". If a resource returns with another alias
// while a reference keeps it, the cost is that of one resource.
func TestReturnByAliasIsCheap(t *testing.T) {
	run := func(n int) time.Duration {
		names := numbered(n)
		var subs []string
		var refs []xds.Ref
		var set [2][]*xds.Resource
		for _, name := range names {
			refs = append(refs, xds.Ref{Type: xds.Cluster, Name: name})
			for i, alias := range []string{"old-" + name, "new-" + name} {
				subs, set[i] = append(subs, alias), append(set[i], aliased(name, alias))
			}
		}
		was := with(xds.NewTable(xds.Cluster), set[0])
		gone := with(was, nil, names...)
		route := with(xds.NewTable(xds.Route), []*xds.Resource{resource("r", 1, refs...)})
		l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.Cluster.URL: was, xds.Route.URL: route})
		l.talk(xds.Request{Type: xds.Cluster, Nonce: l.talk(xds.Request{Type: xds.Cluster, Subscribe: subs})})
		l.talk(xds.Request{Type: xds.Route, Nonce: l.talk(xds.Request{Type: xds.Route, Subscribe: []string{"r"}})})
		route = with(tableOf(xds.Route, "r"), resources(2, "r"))
		touched := []xds.Names{{xds.Cluster.URL: slices.Concat(names, subs), xds.Route.URL: {"r"}}}
		l.Change(xds.Tables{xds.Cluster.URL: gone, xds.Route.URL: route}, touched)
		for range l.Responses() {
		}
		if u := l.sub(xds.Cluster); len(u.leaving) != n {
			t.Errorf("%d of %d names are leaving", len(u.leaving), n)
		}
		back := xds.Tables{xds.Cluster.URL: with(gone, set[1]), xds.Route.URL: route}
		return computing(func() {
			l.Change(back, touched)
			for range l.Responses() {
			}
		})
	}
	t.Run("SAFE-9", func(t *testing.T) {
		grows(t, 25, func() time.Duration { return run(500) }, func() time.Duration { return run(4000) })
	})
}

// SAFE-9: "cheap per request whatever was asked before": a missing name costs the same for any
// number of names in flight, some of them unsubscribed.
func TestUnsubscribedInFlightIsCheap(t *testing.T) {
	for _, aliases := range []bool{false, true} {
		t.Run(fmt.Sprint("SAFE-9 what has aliases: ", aliases), func(t *testing.T) {
			ask := func(n int) func() time.Duration {
				names, asked := numbered(n), 0
				var set []*xds.Resource
				for _, name := range names {
					if aliases {
						set = append(set, aliased(name, "alias-"+name))
					} else {
						set = append(set, aliased(name))
					}
				}
				l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.Cluster.URL: with(xds.NewTable(xds.Cluster), set)})
				l.talk(xds.Request{Type: xds.Cluster, Subscribe: names})
				l.talk(xds.Request{Type: xds.Cluster, Unsubscribe: names[n/2:]})
				return func() time.Duration {
					return computing(func() {
						for range 50 {
							asked++
							l.talk(xds.Request{Type: xds.Cluster, Subscribe: []string{fmt.Sprint("none-", asked)}})
						}
					})
				}
			}
			grows(t, 5, ask(500), ask(20_000))
		})
	}
}

// SAFE-9: "bounded per stream". The list of names that may be unwanted is emptied in each step. The
// client and the view may change again and again, with or without answers.
func TestUnwantedNamesAreBounded(t *testing.T) {
	for _, variant := range []xds.Variant{xds.SotW, xds.Delta} {
		for _, answers := range []bool{true, false} {
			t.Run(fmt.Sprintf("SAFE-9 %v, answers: %v", variant, answers), func(t *testing.T) {
				typ, most := xds.Endpoint, 0
				if variant == xds.Delta {
					typ = xds.VirtualHost // has aliases and collections
				}
				l := newLine(t, variant, nil, Options{}, xds.Tables{})
				for i := range 200 {
					name := fmt.Sprint("r/", i)
					if l.ask(xds.Request{Type: typ, Subscribe: []string{name, "alias-" + name}, Names: []string{name}}); answers {
						l.settle()
					}
					l.commit(typ, []*xds.Resource{aliased(name, "alias-"+name)})
					if answers {
						l.settle()
					}
					l.commit(typ, nil, name)
					for range l.Responses() {
					}
					if answers {
						l.ack(typ)
					}
					l.ask(xds.Request{Type: typ, Unsubscribe: []string{name, "alias-" + name}, Names: []string{"other"}})
					for range l.Responses() {
					}
					most = max(most, len(l.subs[0].quit))
				}
				if most > 4 {
					t.Errorf("%d names are kept", most)
				}
			})
		}
	}
}

// DELTA-11: a resource in flight that was unsubscribed comes back with a subscription to its
// collection or an alias. Its aliases are those of the sent state or, if this state is no longer
// known, of the last state.
func TestResubscribedByAliasInFlight(t *testing.T) {
	change := func(l *line, name, alias string) {
		r := resource(name, 2)
		r.Aliases = []string{alias}
		r.Seal("2")
		l.commit(xds.VirtualHost, []*xds.Resource{r})
	}
	for _, c := range []struct{ by, known, unknown string }{
		{"m", "[r/a]", "[r/a]"},
		{"r/*", "[r/a r/b]", "[r/a r/b]"},
		{"new", "[r/b]", "[r/b]"},
		{"old", "[]", "[]"},
		{"n", "[c]", "[]"},
		{"third", "[]", "[c]"},
		{"none", "[]", "[]"},
		{"", "[]", "[]"},
	} {
		for _, known := range []bool{true, false} {
			table := with(xds.NewTable(xds.VirtualHost), []*xds.Resource{aliased("r/a", "m"), aliased("r/b", "old"), aliased("c", "n")})
			opts, want := Options{}, c.unknown
			if known {
				opts.Recent, want = func(*xds.Type) []*xds.Table { return []*xds.Table{table} }, c.known
			}
			l := newLine(t, xds.Delta, nil, opts, xds.Tables{xds.VirtualHost.URL: table})
			names := []string{"r/a", "r/b", "c"}
			l.ask(xds.Request{Type: xds.VirtualHost, Subscribe: names})
			l.want("VHDS c@1 r/a@1 r/b@1")
			change(l, "r/b", "new")
			l.wait(patience)
			l.want("VHDS r/b@2")
			l.ask(xds.Request{Type: xds.VirtualHost, Unsubscribe: names})
			l.ask(xds.Request{Type: xds.VirtualHost, Subscribe: []string{"early"}}) // before the view changes
			change(l, "c", "third")
			l.commit(xds.VirtualHost, nil, names...)
			l.ask(xds.Request{Type: xds.VirtualHost, Subscribe: []string{c.by}})
			if got := fmt.Sprint(slices.Sorted(maps.Keys(l.subs[0].leftovers))); got != want {
				t.Errorf("by %q: %s, want %s; the body is known: %v", c.by, got, want, known)
			}
		}
	}
}

// SAFE-9: "bounded per stream". A kept resource that no name matches any more is forgotten when the
// client unsubscribes from the alias because of which it holds the resource.
func TestUnmatchedThenUnsubscribed(t *testing.T) {
	l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.Cluster.URL: with(xds.NewTable(xds.Cluster), []*xds.Resource{aliased("a", "alias"), aliased("z")})})
	l.ask(xds.Request{Type: xds.Cluster, Subscribe: []string{"alias", "z"}})
	l.want("CDS a@1 z@1")
	l.nack(xds.Cluster)
	l.ask(xds.Request{Type: xds.Cluster, Subscribe: []string{"z"}})
	l.want("CDS a@1 z@1")
	l.commit(xds.Cluster, []*xds.Resource{aliased("a")})
	l.ask(xds.Request{Type: xds.Route}) // its routes may refer to anything
	l.want("")
	u := l.sub(xds.Cluster)
	if !u.isLeftover("a", unmatched) || u.leaving["a"] == nil || !u.refusals[0].has("a") {
		t.Fatal("it is not kept")
	}
	l.ask(xds.Request{Type: xds.Cluster, Unsubscribe: []string{"alias"}})
	if len(u.leftovers)+len(u.leaving) > 0 || u.refusals[0].has("a") {
		t.Error("it is kept")
	}
}

// SAFE-1: the cost of n phantom unsubscriptions is n, for any number of subscribed aliases. Each
// unsubscription used to walk over all aliases. A walk allocates nothing, so the test measures
// time. In one of the many tries the machine is idle.
func TestPhantomUnsubscriptionsAreCheap(t *testing.T) {
	timer := func(n int) func() time.Duration {
		var set []*xds.Resource
		var subs, phantoms []string
		for i, name := range numbered(n) {
			set = append(set, aliased(name, fmt.Sprint("alias-", i)))
			subs, phantoms = append(subs, fmt.Sprint("alias-", i)), append(phantoms, fmt.Sprint("phantom-", i))
		}
		l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.Endpoint.URL: with(xds.NewTable(xds.Endpoint), set)})
		l.ask(xds.Request{Type: xds.Endpoint, Subscribe: subs})
		l.settle()
		return l.timer(xds.Request{Type: xds.Endpoint, Unsubscribe: phantoms})
	}
	grows(t, 64, timer(1500), timer(24_000)) // sixteen times as many
}
