package protocol

import (
	"fmt"
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

// DELTA-11: whoever unsubscribes drops what the name means: the name if it is
// subscribed, else the names that the resource behind it is found by.
func TestUnsubscribedBy(t *testing.T) {
	table := xds.NewTable(xds.VirtualHost).With([]*xds.Resource{
		aliased("r/a", "n"), aliased("r/b", "m", "k"), aliased("c", "both"), aliased("d", "both"),
	})
	for _, c := range []struct{ sub, unsub, want string }{
		{"n", "n", "n"},         // as it was subscribed
		{"n", "r/a", "n"},       // by the name behind it
		{"r/a", "n", "r/a"},     // by an alias of it
		{"m,k", "r/b", "k m"},   // all its aliases
		{"r/*", "r/a", ""},      // a collection is not dropped with a member
		{"r/*", "r/*", "r/*"},   //
		{"r/*,n", "r/a", "n"},   //
		{"both", "c", "both"},   // "resource names and aliases" both match
		{"c,d", "both", "c d"},  //
		{"c,d", "nothing", ""},  // a phantom
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
			t.Errorf("sub=%s unsub=%s: drops %q, not %q", c.sub, c.unsub, s, c.want)
		}
		l.settle()
		l.ask(xds.Request{Type: xds.VirtualHost, Unsubscribe: []string{c.unsub}})
		l.settle()
	}
}

// DELTA-11: what a name means when it is dropped does not depend on whether the session was
// asked for its responses since the view changed.
func TestUnsubscribedByUntold(t *testing.T) {
	l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{})
	l.ask(xds.Request{Type: xds.Cluster, Subscribe: []string{"nick"}})
	l.want("CDS -nick")
	l.commit(xds.Cluster, []*xds.Resource{aliased("c", "nick")})
	l.ask(xds.Request{Type: xds.Cluster, Unsubscribe: []string{"c"}})
	l.ack(xds.Cluster)
	l.want("")
}

// ADS-3, SAFE-9: what lingers is found until it leaves, and what is lost beside it is not.
func TestFoundBesideWhatLingers(t *testing.T) {
	l := newLine(t, xds.Delta, xds.VirtualHost, Options{}, xds.Tables{xds.VirtualHost.URL: xds.NewTable(xds.VirtualHost).With([]*xds.Resource{aliased("r/a")})})
	l.ask(xds.Request{Type: xds.VirtualHost, Subscribe: []string{"r/*"}})
	l.want("VHDS r/a@1")
	l.commit(xds.VirtualHost, []*xds.Resource{aliased("r/b")})
	l.want("")
	l.commit(xds.VirtualHost, nil, "r/a", "r/b")
	l.want("")
	if u := l.subs[0]; !u.covers("r/a") || u.covers("r/b") {
		t.Errorf("finds r/a, which the client has: %v, and r/b: %v", u.covers("r/a"), u.covers("r/b"))
	}
	l.ack(xds.VirtualHost)
	l.wait(5 * time.Second)
	l.want("VHDS -r/* -r/a")
}

// SAFE-1: what was found, and lost before it could be told, leaves nothing behind.
func TestFoundAndLostUntold(t *testing.T) {
	l := newLine(t, xds.Delta, xds.VirtualHost, Options{}, xds.Tables{xds.VirtualHost.URL: xds.NewTable(xds.VirtualHost).With([]*xds.Resource{aliased("r/a", "n")})})
	l.ask(xds.Request{Type: xds.VirtualHost, Subscribe: []string{"n"}})
	l.commit(xds.VirtualHost, nil, "r/a")
	l.want("VHDS -n")
	if u := l.subs[0]; u.entry("r/a") != nil {
		t.Error("r/a is remembered")
	}
}

// DELTA-11: a resource is found as long as one name finds it, and is told to be
// gone, or forgotten, with the last.
func TestFoundByTwo(t *testing.T) {
	l := newLine(t, xds.Delta, xds.Endpoint, Options{Grace: -1}, xds.Tables{xds.Endpoint.URL: xds.NewTable(xds.Endpoint).With([]*xds.Resource{aliased("c", "m", "n")})})
	l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"m", "n"}})
	l.want("EDS c@1")
	l.ack(xds.Endpoint)
	u := l.subs[0]
	if e := u.entry("c"); e == nil || e.matched != 2 {
		t.Fatalf("%+v", e)
	}
	l.commit(xds.Endpoint, []*xds.Resource{aliased("c", "n")}) // one alias less
	l.want("EDS c@1 -m")
	l.ack(xds.Endpoint)
	if e := u.entry("c"); e == nil || e.matched != 1 {
		t.Fatalf("%+v", e)
	}
	l.ask(xds.Request{Type: xds.Endpoint, Unsubscribe: []string{"m"}})
	l.want("")
	l.commit(xds.Endpoint, []*xds.Resource{aliased("c")})
	l.want("EDS -c -n")
	l.ack(xds.Endpoint)
	if u.entry("c") != nil || u.names.len() != 1 {
		t.Errorf("%d entries", u.names.len())
	}
}

// What finds a resource is looked for among its own names first, then among all:
// an alias that it lost still finds it until it has looked anew.
func TestMatchedBy(t *testing.T) {
	l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.VirtualHost.URL: xds.NewTable(xds.VirtualHost).With([]*xds.Resource{aliased("r/c", "m", "n", "other")})})
	l.ask(xds.Request{Type: xds.VirtualHost, Subscribe: []string{"m", "n", "r/*", "x"}})
	u := l.subs[0]
	by := func(table *xds.Table) string {
		got := slices.Collect(u.matchedBy(table, "r/c"))
		slices.Sort(got)
		return fmt.Sprint(got)
	}
	for _, table := range []*xds.Table{l.view.Table(xds.VirtualHost), xds.NewTable(xds.VirtualHost).With([]*xds.Resource{aliased("r/c", "n")}), xds.NewTable(xds.VirtualHost)} {
		if got := by(table); got != "[m n r/*]" {
			t.Error(got)
		}
	}
	if got := fmt.Sprint(slices.Collect(u.matchedBy(xds.NewTable(nil), "m"))); got != "[]" {
		t.Error(got)
	}
}

// SAFE-1: n phantom unsubscriptions cost n, however many aliases are subscribed:
// each walked over all of them once. Sixteen times as many, which fit into no cache, may
// take 130 times as long, not 256. No allocation shows a walk, so it has to be time; but
// once in so many tries the machine lets them be what they are.
func TestPhantomsAreCheap(t *testing.T) {
	timer := func(n int) func() time.Duration {
		var set []*xds.Resource
		var subs, phantoms []string
		for i, name := range numbered(n) {
			set = append(set, aliased(name, fmt.Sprint("alias-", i)))
			subs, phantoms = append(subs, fmt.Sprint("alias-", i)), append(phantoms, fmt.Sprint("phantom-", i))
		}
		l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.Endpoint.URL: xds.NewTable(xds.Endpoint).With(set)})
		l.ask(xds.Request{Type: xds.Endpoint, Subscribe: subs})
		l.settle()
		return l.timer(xds.Request{Type: xds.Endpoint, Unsubscribe: phantoms})
	}
	grows(t, 130, timer(1500), timer(24_000))
}
