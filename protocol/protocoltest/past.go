package protocoltest

import (
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// A past is what a client has from earlier streams, by type and name.
type past map[string]map[string][]*xds.Resource

func (p past) of(t *xds.Type, name string) []*xds.Resource { return p[t.URL][name] }

// A sending is what one response told, on whatever stream.
type sending struct {
	version string
	told    []*xds.Resource
}

// since drops what a client has let go of: it has accepted the response of the version
// that it states, so of what that told it has that, or what came later. Of responses of
// one version it may be the first.
func (p past) since(t *xds.Type, version string, sent []sending) {
	i := slices.IndexFunc(sent, func(s sending) bool { return s.version == version })
	if version == "" || i < 0 {
		return
	}
	if t.FullState { // what came between two of one version it surely has no more
		for j, s := range sent {
			if s.version == version {
				i = j
			}
		}
	}
	later := func(x *xds.Resource) bool {
		return slices.ContainsFunc(sent[i:], func(s sending) bool {
			return slices.ContainsFunc(s.told, func(r *xds.Resource) bool { return r.Name == x.Name && same(r, x) })
		})
	}
	for name, has := range p[t.URL] {
		if t.FullState || slices.ContainsFunc(sent[i].told, func(r *xds.Resource) bool { return r.Name == name }) {
			p[t.URL][name] = slices.DeleteFunc(slices.Clone(has), func(x *xds.Resource) bool { return !later(x) })
		}
	}
}

// earlier is what the client of a stream that broke may hold.
func earlier(l *ledger) past {
	p := past{}
	if l == nil {
		return p
	}
	maps.Copy(p, l.past) // of types that it did not open
	for _, a := range l.accounts {
		has := map[string][]*xds.Resource{}
		for n, before := range l.past[a.typ.URL] {
			// In SotW nothing has told it otherwise.
			if _, told := a.told[n]; l.variant == xds.SotW && !a.world && (a.wildcard || a.names[n]) && (!told || a.before[n]) {
				has[n] = slices.Clone(before)
			}
		}
		for _, n := range a.everTold(true) {
			for _, k := range a.mayHold(n, false, surely) {
				if r := l.content(a, n, k); r != nil {
					has[n] = append(has[n], r)
				}
			}
		}
		p[a.typ.URL] = has
	}
	return p
}
