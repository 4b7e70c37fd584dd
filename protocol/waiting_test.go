package protocol

import (
	"testing"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// SAFE-9: "What a client can make the server hold or do is bounded per stream": a request
// costs what it asks for, and not all that waits for clusters that the client does not
// answer.
func TestWaitingNamesAreCheap(t *testing.T) {
	names := numbered(4000)
	var clusters, routes []*xds.Resource
	for _, n := range names {
		clusters = append(clusters, resource(n, 1, xds.Ref{Type: xds.Endpoint, Name: n}))
		routes = append(routes, resource(n, 1, xds.Ref{Type: xds.Cluster, Name: n}))
	}
	view := xds.Tables{
		xds.Cluster.URL:  xds.NewTable(xds.Cluster).With(clusters),
		xds.Endpoint.URL: tableOf(xds.Endpoint, names...),
		xds.Route.URL:    xds.NewTable(xds.Route).With(routes),
	}
	run := func(n int, ask func(l *line, name string)) time.Duration {
		l := newLine(t, xds.Delta, nil, Options{}, view)
		l.talk(xds.Request{Type: xds.Cluster})
		l.talk(xds.Request{Type: xds.Route, Subscribe: names[:n]})
		l.talk(xds.Request{Type: xds.Endpoint, Subscribe: []string{"none"}})
		took := computing(func() {
			for _, name := range names[:n] {
				ask(l, name)
			}
		})
		u := l.sub(xds.Route)
		if u.waiting.len() != n {
			t.Errorf("ADS-6: %d of %d routes wait", u.waiting.len(), n)
		}
		if u.waiting.put > 3*n {
			t.Errorf("%d are listed of %d that wait", u.waiting.put, n)
		}
		return took
	}
	for _, c := range []struct {
		name string
		ask  func(l *line, name string)
	}{
		{"again", func(l *line, name string) { l.talk(xds.Request{Type: xds.Route, Subscribe: []string{name}}) }},
		{"given up and back", func(l *line, name string) {
			l.talk(xds.Request{Type: xds.Route, Unsubscribe: []string{name}})
			l.talk(xds.Request{Type: xds.Route, Subscribe: []string{name}})
		}},
		{"not there", func(l *line, name string) {
			nonce := l.talk(xds.Request{Type: xds.Route, Subscribe: []string{"no-" + name}})
			l.talk(xds.Request{Type: xds.Route, Unsubscribe: []string{"no-" + name}, Nonce: nonce})
		}},
		{"nothing", func(l *line, _ string) { l.talk(xds.Request{Type: xds.Route}) }},
		{"an assignment", func(l *line, name string) {
			l.talk(xds.Request{Type: xds.Endpoint, Nonce: l.talk(xds.Request{Type: xds.Endpoint, Subscribe: []string{name}})})
		}},
		{"an assignment, given up and back", func(l *line, name string) {
			l.talk(xds.Request{Type: xds.Endpoint, Subscribe: []string{name}})
			for range 5 {
				l.talk(xds.Request{Type: xds.Route, Unsubscribe: []string{name}})
				l.talk(xds.Request{Type: xds.Route, Subscribe: []string{name}})
			}
		}},
		{"nothing of assignments", func(l *line, _ string) { l.talk(xds.Request{Type: xds.Endpoint, Nonce: "1"}) }},
		{"a cluster", func(l *line, name string) { l.talk(xds.Request{Type: xds.Cluster, Subscribe: []string{name}}) }},
		{"a cluster, and refuses it", func(l *line, name string) {
			l.talk(xds.Request{Type: xds.Cluster, Nonce: l.talk(xds.Request{Type: xds.Cluster, Subscribe: []string{name}}), Error: &xds.Status{}})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			grows(t, 25, func() time.Duration { return run(500, c.ask) }, func() time.Duration { return run(4000, c.ask) })
		})
	}
}
