package protocoltest

import (
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// A Memory records what SotW clients were sent, oldest first, for [protocol.Options.Told]. It forgets
// responses before the newest one that the client ACKed on the same stream.
type Memory []noted

// A noted is what a client may hold when it accepts a response.
type noted struct {
	stream              Session
	url, version, nonce string
	*protocol.World
}

// Note records an event of a session.
func (m *Memory) Note(stream Session, e protocol.Event) {
	switch {
	case e.Kind == protocol.Sent && e.World != nil:
		*m = append(*m, noted{stream: stream, url: e.Type.URL, version: e.Version, nonce: e.Nonce, World: e.World})
	case e.Kind == protocol.Acked:
		of := func(n noted) bool { return n.stream == stream && n.url == e.Type.URL }
		accepted := slices.IndexFunc(*m, func(n noted) bool { return of(n) && n.nonce == e.Nonce })
		if accepted >= 0 {
			later := slices.Clone((*m)[accepted:])
			*m = append(slices.DeleteFunc((*m)[:accepted], of), later...)
		}
	}
}

// World returns what a client may hold that states a version. The client may have accepted any
// response with that version; without such a response, it holds the table. The client may also hold
// the content of all later responses, because it may have applied a part before it answered.
func (m *Memory) World(t *xds.Type, version string, table *protocol.World) *protocol.World {
	var all, states []noted
	since := false
	for _, n := range *m {
		switch {
		case n.url != t.URL:
		case n.version == version:
			all, states = append(all, n), append(states, n)
		case len(states) > 0:
			all, since = append(all, n), true
		}
	}
	switch {
	case len(states) == 0:
		return table
	case len(all) == 1:
		return all[0].World
	}
	has := map[string][]*xds.Stamp{}
	add := func(st *xds.Stamp) {
		if !slices.ContainsFunc(has[st.Name], func(o *xds.Stamp) bool { return o.Sum == st.Sum }) {
			has[st.Name] = append(has[st.Name], st)
		}
	}
	for _, n := range slices.Backward(all) { // of several states of a name, the newest first
		for st := range n.Versions.All() {
			if !slices.Contains(n.Lacks, st.Name) {
				add(st)
			}
		}
		for _, st := range n.Others {
			add(st)
		}
	}
	w := &protocol.World{Versions: states[len(states)-1].Versions, Since: since}
	same := func(o, st *xds.Stamp) bool { return o != nil && o.Sum == st.Sum }
	for st := range w.Versions.All() {
		switch {
		case !slices.ContainsFunc(has[st.Name], func(o *xds.Stamp) bool { return same(o, st) }):
			w.Lacks = append(w.Lacks, st.Name)
		case slices.ContainsFunc(states, func(n noted) bool { return !same(n.Versions.Get(st.Name), st) }): // the client may have accepted this state
			w.Lacks, w.Since = append(w.Lacks, st.Name), true
		}
	}
	slices.Sort(w.Lacks)
	for _, name := range slices.Sorted(maps.Keys(has)) {
		for _, st := range has[name] {
			if is := w.Versions.Get(name); is == nil || is.Sum != st.Sum || slices.Contains(w.Lacks, name) {
				w.Others = append(w.Others, st)
			}
		}
	}
	return w
}
