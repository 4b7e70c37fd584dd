package protocoltest

import (
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// A past has the resources that a client holds from earlier streams, by type and name.
type past map[string]map[string][]*xds.Resource

func (p past) of(t *xds.Type, name string) []*xds.Resource { return p[t.URL][name] }

// A sending is the content of one response, of any stream.
type sending struct {
	version string
	told    []*xds.Resource
}

// since drops resources that the client cannot hold any more. It accepted the response whose version it
// states, so it holds the content of that response or of later ones. Several responses may have that version;
// the client may hold the first.
func (p past) since(t *xds.Type, version string, sent []sending) {
	i := slices.IndexFunc(sent, func(s sending) bool { return s.version == version })
	if version == "" || i < 0 {
		return
	}
	if t.FullState { // resources sent only between two full-state responses of one version are surely gone
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

// earlier returns what the client of a broken stream may hold.
func earlier(l *ledger) past {
	p := past{}
	if l == nil {
		return p
	}
	maps.Copy(p, l.past) // of types that the client did not open
	for _, a := range l.accounts {
		has := map[string][]*xds.Resource{}
		for n, before := range l.past[a.typ.URL] {
			// In SotW no response replaced it.
			if _, told := a.lastSent[n]; l.variant == xds.SotW && !a.world && (a.wildcard || a.names[n]) && (!told || a.heldBefore[n]) {
				has[n] = slices.Clone(before)
			}
		}
		for _, n := range a.everSent(true) {
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
