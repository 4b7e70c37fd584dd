package protocol

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/xds"
)

// tells counts the due content of a type as told, and returns its items in the form that itemsOf
// reads. Lapsed items have a "!", and lapsed items of a collection have a "*".
func (l *line) tells(typ *xds.Type) string {
	l.t.Helper()
	u, t := l.sub(typ), l.view.Table(typ)
	l.recallLately(u)
	l.markAll(u)
	l.prepare(u)
	l.withdraw()
	var d diff
	l.diff(u, t, &d)
	l.Session.wait(u, d.waiting, d.upserts)
	var out []string
	items := l.tell(u, t, &d, 0)
	for _, it := range items {
		text := it.Name + ":"
		if it.Is != nil {
			text += strings.TrimPrefix(textOf(it.Was), "nothing") + ">" + textOf(it.Is)
		} else {
			text += ">"
		}
		if it.Lapsed {
			text += "!"
		}
		if it.Member {
			text += "*"
		}
		out = append(out, text)
	}
	l.check()
	return strings.Join(out, " ")
}

// toldText returns the told states of names: the states of entries and, after "|", the states of
// the wildcard.
func (l *line) toldText(typ *xds.Type) string {
	var own, base []string
	u := l.sub(typ)
	for e := range u.Entries() {
		text := e.Name + ":"
		switch {
		case stands(e.Told):
			text = e.Told.Name + e.Told.Version
		case e.Told == others:
			text += "others"
		}
		own = append(own, text)
	}
	for st := range u.base.All() {
		base = append(base, st.Name+st.Version)
	}
	slices.Sort(base)
	return strings.TrimSpace(strings.Join(own, " ") + " | " + strings.Join(base, " "))
}

// A diff counts as told, together with the states before. Names that only the wildcard's table has
// need no item.
func TestTell(t *testing.T) {
	const star = xds.Wildcard
	for _, c := range []struct {
		name    string
		variant xds.Variant
		names   []string
		do      func(l *line)
		items   string
		told    string
	}{
		{"SOTW-9 a name has changed", xds.SotW, []string{"a", "b"}, func(l *line) { l.commit(xds.Endpoint, resources(2, "a")) },
			"a:a1>a2", "a2 b1 |"},
		{"DELTA-1 a name has changed", xds.Delta, []string{"a", "b"}, func(l *line) { l.commit(xds.Endpoint, resources(2, "a")) },
			"a:a1>a2", "a2 b1 |"},
		{"DELTA-1 names of the wildcard come from the table", xds.Delta, []string{star}, func(l *line) { l.commit(xds.Endpoint, resources(2, "a"), "b") },
			"", "| a2 c1"},
		{"DELTA-1 a name subscribed in addition to the wildcard has an item", xds.Delta, []string{star, "a"}, func(l *line) { l.commit(xds.Endpoint, resources(2, "a", "b")) },
			"a:a1>a2", "a2 | a2 b2 c1"},
		{"DELTA-8 a name is deleted", xds.Delta, []string{"a", "b"}, func(l *line) { l.commit(xds.Endpoint, nil, "a") },
			"a:a1>-", "a: b1 |"},
		{"DELTA-8 a name that the wildcard also covers is deleted", xds.Delta, []string{star, "a"}, func(l *line) { l.commit(xds.Endpoint, nil, "a") },
			"a:a1>-", "a: | b1 c1"},
		{"DELTA-7 a name does not exist", xds.Delta, []string{"a"}, func(l *line) { l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"x"}}) },
			"x:->-", "a1 x: |"},
		{"DELTA-4 subscribed again", xds.Delta, []string{"a"}, func(l *line) { l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"a"}}) },
			"a:a1>a1", "a1 |"},
		{"DELTA-6 unsubscribed under the wildcard: sent, and then from the table", xds.Delta, []string{star, "a"}, func(l *line) {
			l.ask(xds.Request{Type: xds.Endpoint, Unsubscribe: []string{"a"}})
		}, "a:a1>a1", "| a1 b1 c1"},
		{"SOTW-9 the client keeps a deleted resource", xds.SotW, []string{"a", "b"}, func(l *line) { l.commit(xds.Endpoint, nil, "a") },
			"a:a1>-", "a: b1 |"},
		{"SOTW-9 until the resource is sent again", xds.SotW, []string{"a", "b"}, func(l *line) {
			l.commit(xds.Endpoint, nil, "a")
			l.drain()
			l.commit(xds.Endpoint, resources(3, "a"))
		}, "a:a1>a3", "a3 b1 |"},
		{"SOTW-9 also with the wildcard", xds.SotW, []string{star}, func(l *line) {
			l.commit(xds.Endpoint, nil, "a")
			l.drain()
			l.commit(xds.Endpoint, resources(3, "a"))
		}, "a:a1>a3", "| a3 b1 c1"},
		{"DELTA-4 unsubscribed in flight and subscribed again: not held", xds.Delta, []string{"b"}, func(l *line) {
			l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"a"}})
			l.drain()
			l.ask(xds.Request{Type: xds.Endpoint, Unsubscribe: []string{"a"}})
			l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"a"}})
		}, "a:->a1", "a1 b1 |"},
		{"DELTA-4 accepted, unsubscribed and subscribed again: not held", xds.Delta, []string{"a", "b"}, func(l *line) {
			l.ask(xds.Request{Type: xds.Endpoint, Unsubscribe: []string{"a"}})
			l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"a"}})
		}, "a:->a1", "a1 b1 |"},
		{"DELTA-11 an alias matches other resources, which are sent", xds.Delta, []string{"b"}, func(l *line) {
			l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"n"}})
		}, "c:->c1", "b1 c1 n:others |"},
		{"DELTA-11 a collection loses a member, which lapses", xds.Delta, []string{"xdstp://a/e/g/*"}, func(l *line) {
			l.commit(xds.Endpoint, nil, "xdstp://a/e/g/1")
		}, "xdstp://a/e/g/*:@>- xdstp://a/e/g/1:xdstp://a/e/g/11>-!*", "xdstp://a/e/g/*: |"},
		{"DELTA-11 a resource loses its alias and lapses", xds.Delta, []string{"n"}, func(l *line) {
			l.commit(xds.Endpoint, resources(2, "c"))
		}, "c:c1>-! n:@>-", "n: |"},
	} {
		t.Run(c.name, func(t *testing.T) {
			rs := append(resources(1, "a", "b"), aliased("c", "n"))
			if strings.Contains(c.name, "collection") {
				rs = append(rs, resource("xdstp://a/e/g/1", 1))
			}
			l := newLine(t, c.variant, nil, Options{}, xds.Tables{xds.Endpoint.URL: with(xds.NewTable(xds.Endpoint), rs)})
			l.ask(xds.Request{Type: xds.Endpoint, Names: c.names, Subscribe: c.names})
			l.settle()
			c.do(l)
			if got := l.tells(xds.Endpoint); got != c.items {
				t.Errorf("items %q, want %q", got, c.items)
			}
			if got := l.toldText(xds.Endpoint); got != c.told {
				t.Errorf("sent states %q, want %q", got, c.told)
			}
			if again := l.tells(xds.Endpoint); again != "" {
				t.Errorf("a second call has items %q", again)
			}
		})
	}
}

// ADS-3: waiting names have no item although the wildcard's table counts as told. Their told state
// is an exception to the table until they are sent.
func TestTellWaitingNames(t *testing.T) {
	for _, before := range []bool{false, true} {
		l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.Cluster.URL: tableOf(xds.Cluster, "x"), xds.Listener.URL: tableOf(xds.Listener, "m")})
		was := ""
		if before {
			l.commit(xds.Listener, resources(1, "l"))
			was = "l1"
		}
		l.ask(xds.Request{Type: xds.Cluster})
		l.ask(xds.Request{Type: xds.Listener})
		l.settle()
		l.commit(xds.Cluster, resources(1, "z"))
		l.commit(xds.Listener, []*xds.Resource{resource("l", 2, xds.Ref{Type: xds.Cluster, Name: "z"}), resource("m", 2)})
		if got := l.tells(xds.Listener); got != "l:>" {
			t.Errorf("ADS-3: items %q", got)
		}
		if got := l.toldText(xds.Listener); got != cmp.Or(was, "l:")+" | l2 m2" {
			t.Errorf("ADS-3: sent states %q", got)
		}
		if e := l.sub(xds.Listener).Entry("l"); e.Untold() == before || !e.Dirty {
			t.Errorf("ADS-3: nonce %v, dirty %v", e.Nonce, e.Dirty)
		}
	}
}

// An undecided view is looking for names.
type undecided struct {
	xds.Tables
	names map[string]bool
}

func (v undecided) Undecided(_ *xds.Type, name string) bool { return v.names[name] }

// ADS-3: a name that the view has lost, and looks for again, stays dirty after everything else is
// sent, because the client may hold it. The name is sent when the view has decided. If other types
// refer to its type, the name is kept instead.
func TestUndecidedStaysListed(t *testing.T) {
	l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.Listener.URL: tableOf(xds.Listener, "a", "b")})
	l.ask(xds.Request{Type: xds.Listener, Subscribe: []string{"a", "b"}})
	l.settle()
	l.commit(xds.Listener, resources(2, "b"), "a")
	looks := map[string]bool{"a": true}
	l.Change(undecided{l.view, looks}, []xds.Names{{xds.Listener.URL: []string{"a"}}})
	for range 2 {
		if got := l.tells(xds.Listener); got != "b:b1>b2" && got != "" {
			t.Errorf("items %q", got)
		}
		if u := l.sub(xds.Listener); !slices.Equal(u.Dirty, []string{"a"}) || !u.Entry("a").Dirty {
			t.Errorf("dirty names %q", u.Dirty)
		}
		if got := l.held(xds.Listener); got != "a1" {
			t.Errorf("the client may hold %q", got)
		}
	}
	delete(looks, "a")
	if got := l.tells(xds.Listener); got != "a:a1>-" {
		t.Errorf("items %q", got)
	}
	if u := l.sub(xds.Listener); len(u.Dirty) > 0 {
		t.Errorf("dirty names %q", u.Dirty)
	}
}

// SAFE-1: entries that no longer differ from the wildcard's table are removed, after few items or
// many.
func TestForgetPlain(t *testing.T) {
	for _, n := range []int{3, 200} {
		names := numbered(n)
		l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.Endpoint.URL: tableOf(xds.Endpoint, names...)})
		l.ask(xds.Request{Type: xds.Endpoint, Subscribe: append([]string{"*"}, names...)})
		l.settle()
		if got := l.sub(xds.Endpoint).Set.Len(); got != n {
			t.Errorf("SAFE-1: %d entries of %d names", got, n)
		}
		l.ask(xds.Request{Type: xds.Endpoint, Unsubscribe: names[1:]})
		l.commit(xds.Endpoint, nil, names[2])
		l.settle()
		if got := l.toldText(xds.Endpoint); !strings.HasPrefix(got, names[0]+"1 | ") {
			t.Errorf("SAFE-1: of %d names, the sent states are %q", n, got)
		}
	}
}

// SAFE-1: a name has an entry while it is to be sent again, waits, or differs from the wildcard's
// table, and no longer.
func TestExceptionsEnd(t *testing.T) {
	l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{
		xds.Cluster.URL: tableOf(xds.Cluster, "x", "y"), xds.Listener.URL: tableOf(xds.Listener, "l", "m"),
	})
	l.ask(xds.Request{Type: xds.Cluster})
	l.ask(xds.Request{Type: xds.Listener})
	l.settle()
	entries := func(why string, want int) {
		t.Helper()
		if n := l.sub(xds.Listener).Set.Len(); n != want {
			t.Fatalf("%s: %d entries", why, n)
		}
	}
	entries("all is told", 0)
	l.commit(xds.Cluster, resources(1, "z"))
	l.commit(xds.Listener, []*xds.Resource{resource("l", 2, xds.Ref{Type: xds.Cluster, Name: "z"}), resource("m", 2)})
	l.want("CDS z@1, LDS m@2")
	entries("l waits for z", 1)
	l.ack(xds.Listener)
	l.ack(xds.Cluster)
	l.want("LDS l@2")
	l.ack(xds.Listener)
	l.commit(xds.Listener, resources(3, "m"))
	l.want("LDS m@3")
	entries("l is told", 0)
	l.nack(xds.Listener)
	l.commit(xds.Listener, resources(4, "m"))
	l.settle()
	l.commit(xds.Listener, resources(5, "m"))
	l.settle()
	entries("m was refused, told anew and accepted", 0)
}

// DELTA-4: a client that subscribes to the wildcard again gets everything again, even names that
// have to wait.
func TestWildcardAgainWaits(t *testing.T) {
	l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{
		xds.Cluster.URL:  tableOf(xds.Cluster, "x"),
		xds.Listener.URL: with(xds.NewTable(xds.Listener), []*xds.Resource{resource("l", 1, xds.Ref{Type: xds.Cluster, Name: "x"}), resource("m", 1)}),
	})
	l.ask(xds.Request{Type: xds.Cluster, Subscribe: []string{"*"}})
	l.ask(xds.Request{Type: xds.Listener, Subscribe: []string{"*"}})
	l.settle()
	l.commit(xds.Cluster, resources(2, "x"))
	l.want("CDS x@2")
	l.ask(xds.Request{Type: xds.Listener, Subscribe: []string{"*"}})
	l.want("LDS m@1")
	l.ack(xds.Listener)
	l.ack(xds.Cluster)
	l.want("LDS l@1")
}

// ADS-3: a kept name has an empty item, even if other removals are sent. Each name has one item.
func TestKeptNameIsListedOnce(t *testing.T) {
	l := withdrawing2(t, xds.Delta, "*", "y")
	l.commit(xds.Route, route(2, "z"))
	l.want("RDS r@2")
	l.commit(xds.Cluster, nil, "x", "y")
	l.want("CDS -y")
	if items := l.sub(xds.Cluster).deliveries[0].Items; len(items) != 2 {
		t.Errorf("listed items %v", items)
	}
}
