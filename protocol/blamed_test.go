package protocol

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// refusing refuses the newest response of a type, and returns the names in the event.
func (l *line) refusing(typ *xds.Type, text string) (names []string) {
	l.t.Helper()
	l.drain()
	l.ask(xds.Request{Type: typ, Nonce: l.last[typ.URL], Error: &xds.Status{Message: text}})
	for e := range l.Events() {
		if e.Kind == Nacked {
			return e.Names
		}
	}
	l.t.Fatal("no event of a NACK")
	return nil
}

// OBS-1: the event of a NACK has names of the response. Names in the client's text come first.
func TestBlamed(t *testing.T) {
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		clusters := func(t *testing.T, names ...string) *line {
			l := newLine(t, v, nil, Options{}, xds.Tables{xds.Cluster.URL: tableOf(xds.Cluster, names...)})
			l.ask(xds.Request{Type: xds.Cluster})
			return l
		}
		for text, first := range map[string]string{
			"":   "",
			"no": "",
			"Error adding/updating cluster(s) f, b: no":    "f b",
			`resource "f": no; 'c'.`:                       "f c",
			"b b (b) [b]: b":                               "b",
			"goo.gle/debug\nname: \"e\"\n}\n: Proto":       "e",
			"all of f e d c b a":                           "f e d c b",
			"ab bc fa":                                     "",
			"cannot add [::1]:80, it is in use":            "[::1]:80",
			strings.Repeat("x ", maxBlameText/2) + "f":     "",
			strings.Repeat("x", maxBlameText-2) + " f nor": "f",
		} {
			t.Run("OBS-1 "+v.String()+" "+text[:min(len(text), 40)], func(t *testing.T) {
				got := clusters(t, "a", "b", "c", "d", "e", "f", "[::1]:80").refusing(xds.Cluster, text)
				want := strings.Fields(first)
				if len(got) != maxBlamed || !slices.Equal(got[:min(len(got), len(want))], want) {
					t.Errorf("%q, want %q first", got, want)
				}
				for i, name := range got {
					if slices.Contains(got[:i], name) {
						t.Errorf("%q twice: %q", name, got)
					}
				}
			})
		}
		t.Run("OBS-1 the names that the response changed, "+v.String(), func(t *testing.T) {
			l := clusters(t, "a", "b", "c")
			l.drain()
			l.ack(xds.Cluster)
			l.commit(xds.Cluster, resources(2, "b"), "c")
			if got := l.refusing(xds.Cluster, "no"); !slices.Equal(got, []string{"b"}) {
				t.Errorf("%q", got)
			}
			// A full state also has unchanged names, and names of a refusal that are sent again.
			l = clusters(t, "a", "b", "c")
			l.drain()
			l.ack(xds.Cluster)
			l.commit(xds.Cluster, resources(2, "b"))
			want := map[xds.Variant][]string{xds.SotW: {"a", "b"}, xds.Delta: {"b"}}[v]
			if got := l.refusing(xds.Cluster, "a is bad"); !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		})
		t.Run("OBS-1 a part has its own names, "+v.String(), func(t *testing.T) {
			names := []string{"a", "b", "c", "d"}
			l := newLine(t, v, nil, Options{MaxResponse: 1}, xds.Tables{xds.Endpoint.URL: tableOf(xds.Endpoint, names...)})
			l.ask(xds.Request{Type: xds.Endpoint, Names: names, Subscribe: names})
			if got := l.refusing(xds.Endpoint, "a"); !slices.Equal(got, []string{"d"}) {
				t.Errorf("%q", got)
			}
		})
	}
	t.Run("OBS-1 removed names, if the text has them", func(t *testing.T) {
		l := newLine(t, xds.Delta, nil, Options{}, xds.Tables{})
		l.ask(xds.Request{Type: xds.Endpoint, Subscribe: []string{"a", "b"}})
		if got := l.refusing(xds.Endpoint, "b: no"); !slices.Equal(got, []string{"b"}) {
			t.Errorf("%q", got)
		}
	})
	t.Run("OBS-1 heartbeats", func(t *testing.T) {
		r := resource("a", 1)
		r.TTL = 30 * time.Second
		r.Seal("1")
		l := newLine(t, xds.Delta, nil, Options{ForceTTL: true}, xds.Tables{xds.Endpoint.URL: with(xds.NewTable(xds.Endpoint), []*xds.Resource{r})})
		l.ask(xds.Request{Type: xds.Endpoint, Node: &xds.Node{}, Subscribe: []string{"a"}})
		l.drain()
		l.ack(xds.Endpoint)
		l.drain()
		l.now = l.Deadline()
		l.Advance(l.now)
		if got := l.refusing(xds.Endpoint, "no"); !slices.Equal(got, []string{"a"}) {
			t.Errorf("%q", got)
		}
	})
}

// HEAL-5: the event of a NACK has the number of resources in the response, also if it has more than the names.
func TestNackedCountsResources(t *testing.T) {
	both(t, func(t *testing.T, v xds.Variant) {
		l := newLine(t, v, nil, Options{}, xds.Tables{xds.Cluster.URL: tableOf(xds.Cluster, "a", "b", "c", "d", "e", "f")})
		l.ask(xds.Request{Type: xds.Cluster})
		l.drain()
		l.ask(xds.Request{Type: xds.Cluster, Nonce: l.last[xds.Cluster.URL], Error: &xds.Status{Message: "no"}})
		for e := range l.Events() {
			if e.Kind == Nacked && (e.Count != 6 || len(e.Names) != maxBlamed) {
				t.Errorf("%+v", e)
			}
		}
	})
}
