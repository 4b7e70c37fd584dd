package protocol

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/xds"
)

// OND-4: a wildcard of virtual hosts covers the hosts of the routes to which the stream subscribes,
// in whatever order the client subscribes. It follows later changes of the routes.
func TestScopes(t *testing.T) {
	hosts := with(xds.NewTable(xds.VirtualHost), resources(1, "r/a", "r/b", "s/a", "t/a"))
	routes := func(sub, unsub string) xds.Request {
		return xds.Request{Type: xds.Route, Subscribe: strings.Fields(sub), Unsubscribe: strings.Fields(unsub)}
	}
	vhds := func(sub, unsub string) xds.Request {
		return xds.Request{Type: xds.VirtualHost, Subscribe: strings.Fields(sub), Unsubscribe: strings.Fields(unsub)}
	}
	for _, c := range []struct {
		name   string
		asks   []xds.Request
		scopes string // "-": no scopes
		said   string // virtual hosts sent for the last request
	}{
		{"OND-4 routes first", []xds.Request{routes("r", ""), vhds("", "")}, "r/*", "VHDS r/a@1 r/b@1"},
		{"OND-4 virtual hosts first, with the routes", []xds.Request{vhds("", ""), routes("r", "")}, "r/*", "VHDS -s/a -t/a"},
		{"OND-4 another route", []xds.Request{routes("r", ""), vhds("", ""), routes("s", "")}, "r/* s/*", "VHDS s/a@1"},
		{"OND-4 a route unsubscribed", []xds.Request{routes("r s", ""), vhds("", ""), routes("", "r")}, "s/*", "VHDS -r/a -r/b"},
		{"OND-4 no routes", []xds.Request{routes("", ""), vhds("", "")}, "", "VHDS"},
		{"OND-4 a wildcard of routes", []xds.Request{routes("*", ""), vhds("", "")}, "-", "VHDS r/a@1 r/b@1 s/a@1 t/a@1"},
		{"OND-4 unsubscribing a scope has no effect", []xds.Request{routes("r", ""), vhds("", ""), vhds("", "r/*")}, "r/*", ""},
		{"OND-4 unsubscribing a member keeps the scope", []xds.Request{routes("r", ""), vhds("", ""), vhds("", "r/a")}, "r/*", ""},
		{"OND-4 a collection also subscribed", []xds.Request{routes("r", ""), vhds("", ""), vhds("r/*", ""), routes("", "r")}, "", ""},
		{"OND-4 a collection also subscribed, then unsubscribed", []xds.Request{routes("r", ""), vhds("", ""), vhds("r/*", ""), vhds("", "r/*")}, "r/*", ""},
		{"OND-4 the wildcard unsubscribed", []xds.Request{routes("r", ""), vhds("", ""), vhds("", "*")}, "-", ""},
		{"OND-4 the wildcard unsubscribed, a host kept", []xds.Request{routes("r", ""), vhds("", ""), vhds("r/a", ""), vhds("", "*")}, "-", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{xds.VirtualHost.URL: hosts, xds.Route.URL: tableOf(xds.Route, "r", "s", "t")})
			var said []string
			for _, req := range c.asks {
				l.ask(req)
				said = nil
				for {
					s := l.said()
					if s == "" {
						break
					}
					for part := range strings.SplitSeq(s, ", ") {
						if strings.HasPrefix(part, "VHDS") {
							said = append(said, part)
						}
					}
					for url, nonce := range l.last {
						if err := l.Receive(xds.Request{Type: xds.TypeOf(url), Nonce: nonce}); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			u := l.sub(xds.VirtualHost)
			scopes := "-"
			if u.scopes != nil {
				scopes = strings.Join(slices.Sorted(maps.Keys(u.scopes)), " ")
			}
			if scopes != c.scopes {
				t.Errorf("scopes %q, want %q", scopes, c.scopes)
			}
			if got := strings.Join(said, ", "); got != c.said {
				t.Errorf("sent %q, want %q", got, c.said)
			}
		})
	}
}

// OND-4: on a per-type stream a wildcard covers everything. The first response to it also has the
// empty collections, and only these.
func TestEmptyCollections(t *testing.T) {
	view := xds.Tables{
		xds.Route.URL:       tableOf(xds.Route, "empty", "full"),
		xds.VirtualHost.URL: with(xds.NewTable(xds.VirtualHost), resources(1, "full/a")),
	}
	l := newLine(t, xds.Delta, xds.VirtualHost, Options{}, view)
	l.ask(xds.Request{})
	l.want("VHDS full/a@1 -empty/*")
	l.settle()
	if u := l.subs[0]; u.Set.Len() > 0 {
		t.Errorf("SAFE-1: %d entries", u.Set.Len())
	}
}

// OND-4, SUB-5: Interests reports when scopes become a wildcard again. Refusals of names under a
// wildcard end with the wildcard.
func TestScopesEnd(t *testing.T) {
	l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{
		xds.Route.URL: tableOf(xds.Route, "r"), xds.VirtualHost.URL: tableOf(xds.VirtualHost, "r/a"),
	})
	l.ask(xds.Request{Type: xds.Route, Subscribe: []string{"r"}})
	l.ask(xds.Request{Type: xds.VirtualHost})
	l.drain()
	l.nack(xds.VirtualHost)
	u := l.sub(xds.VirtualHost)
	if len(u.scopes) != 1 || len(u.refusals) != 1 {
		t.Fatal(u.scopes, u.refusals)
	}
	l.ask(xds.Request{Type: xds.VirtualHost, Unsubscribe: []string{"*"}})
	if len(u.scopes)+len(u.refusals) > 0 {
		t.Error("scopes or refusals are left:", u.scopes, u.refusals)
	}
	l.ask(xds.Request{Type: xds.VirtualHost, Subscribe: []string{"*"}})
	l.ask(xds.Request{Type: xds.Route, Unsubscribe: []string{"r"}})
	l.settle()
	if u.scopes == nil || len(u.scopes) > 0 {
		t.Fatal(u.scopes)
	}
	l.ask(xds.Request{Type: xds.Route, Subscribe: []string{"*"}})
	heard := false
	for i := range l.Interests() {
		heard = heard || i.Type.Is(xds.VirtualHost) && i.Wildcard
	}
	if !heard {
		t.Error("the source does not get the interest in everything")
	}
}
