package protocol

import (
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/xds"
)

// states tells in words how the client stands with the names of a type: "a:synced b:sent@3".
func (l *line) states(typ *xds.Type) string {
	var all []string
	for n := range l.NameStates(typ) {
		word := n.Name + ":" + n.State.String()
		if n.Nonce != "" {
			word += "@" + n.Nonce
		}
		for _, ref := range n.WaitsFor {
			word += "<" + ref.Type.Short + "/" + ref.Name
		}
		all = append(all, word)
	}
	return strings.Join(all, " ")
}

func (l *line) wantStates(typ *xds.Type, want string) {
	l.t.Helper()
	if got := l.states(typ); got != want {
		l.t.Fatalf("of %s it says\n%s, not\n%s", typ, got, want)
	}
}

// A client's first minute, from name to name.
func TestStates(t *testing.T) {
	both(t, func(t *testing.T, v xds.Variant) {
		l := newLine(t, v, nil, Options{}, xds.Tables{
			xds.Cluster.URL:  with(xds.NewTable(xds.Cluster), []*xds.Resource{resource("x", 1, xds.Ref{Type: xds.Endpoint, Name: "e"})}),
			xds.Endpoint.URL: tableOf(xds.Endpoint, "e"),
			xds.Route.URL:    with(xds.NewTable(xds.Route), []*xds.Resource{resource("r", 1, xds.Ref{Type: xds.Cluster, Name: "x"})}),
		})
		l.ask(xds.Request{Type: xds.Cluster})
		l.wantStates(xds.Cluster, "x:due")
		l.drain()
		l.wantStates(xds.Cluster, "x:sent@1")
		l.ask(named(v, xds.Route, "r", "s"))
		l.drain()
		l.wantStates(xds.Route, map[xds.Variant]string{
			xds.SotW:  "r:waiting<CDS/x s:absent", // it cannot be told so
			xds.Delta: "r:waiting<CDS/x s:sent@2",
		}[v])
	})
}

// both runs a test in both variants.
func both(t *testing.T, f func(t *testing.T, v xds.Variant)) {
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		t.Run(v.String(), func(t *testing.T) { f(t, v) })
	}
}

// named is a request for names.
func named(v xds.Variant, typ *xds.Type, names ...string) xds.Request {
	if v == xds.SotW {
		return xds.Request{Type: typ, Names: names}
	}
	return xds.Request{Type: typ, Subscribe: names}
}
