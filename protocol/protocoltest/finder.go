package protocoltest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// finder is a delta client that subscribes to resources in every way: by names, aliases, collections and "*".
type finder struct {
	*world
	passive
	taste
	node  *xds.Node
	types []*finding // in push order
	out   []xds.Request
}

// A finding is the subscription and cache of a finder for one type.
type finding struct {
	kind
	typ    *xds.Type
	names  map[string]bool // wanted names, perhaps with "*"
	told   map[string]bool // names that the server knows
	opened bool
	cache  map[string]*xds.Resource
}

func newFinder(w *world) *finder {
	f := &finder{world: w, taste: newTaste(w), node: agent(w)}
	for _, k := range []int{atClusters, atEndpoints, atSecrets, atFilters, atScopes, atRoutes, atHosts, atLayers} {
		f.types = append(f.types, &finding{kind: kinds[k], typ: kinds[k].typ(), names: map[string]bool{}, cache: map[string]*xds.Resource{}})
	}
	return f
}

func (f *finder) connected() {
	f.out = nil
	for _, s := range f.types {
		s.opened = false
	}
}

func (f *finder) act() string {
	s := f.types[f.plan.IntN(len(f.types))]
	asks := append(s.asks(), xds.Wildcard)
	name := asks[f.plan.IntN(len(asks))]
	if name == xds.Wildcard && s.typ.Parent != nil && s.opened {
		return "" // the collections that the wildcard covers would depend on earlier subscriptions
	}
	if name == xds.Wildcard && s.typ.Is(xds.Route) {
		return "" // the subscription is unchanged
	}
	s.names[name] = f.plan.IntN(3) > 0
	if s.names[name] {
		return fmt.Sprintf("subscribes %s %s", s.typ, name)
	}
	delete(s.names, name)
	return fmt.Sprintf("unsubscribes %s %s", s.typ, name)
}

// requests sends the changes of the subscriptions.
func (f *finder) requests() []xds.Request {
	var out []xds.Request
	for _, s := range f.types {
		switch {
		case !s.opened && len(s.names) > 0:
			s.opened = true
			r := xds.Request{Type: s.typ, Node: f.node, Subscribe: slices.Sorted(maps.Keys(s.names))}
			if s.typ.Implicit && len(s.names) == 1 && s.names[xds.Wildcard] {
				r.Subscribe = nil // "(legacy behavior)"
			}
			s.told = maps.Clone(s.names)
			s.forget()
			for _, n := range slices.Sorted(maps.Keys(s.cache)) {
				r.Initial = append(r.Initial, xds.Version{Name: n, Version: s.cache[n].Version})
			}
			out = append(out, r)
		case s.opened && !maps.Equal(s.names, s.told):
			out = append(out, xds.Request{Type: s.typ, Subscribe: difference(s.names, s.told), Unsubscribe: difference(s.told, s.names)})
		default:
			continue
		}
		s.told = maps.Clone(s.names)
		s.forget()
	}
	out = append(out, f.out...)
	f.out = nil
	return out
}

// wants reports whether a resource is subscribed, as far as the client can know. The names of the last request
// count until the next one.
func (s *finding) wants(r *xds.Resource) bool {
	c := s.typ.Collection(r.Name)
	return s.told[xds.Wildcard] || s.told[r.Name] || c != "" && s.told[c] ||
		slices.ContainsFunc(r.Aliases, func(a string) bool { return s.told[a] })
}

func (s *finding) forget() {
	maps.DeleteFunc(s.cache, func(_ string, r *xds.Resource) bool { return !s.wants(r) })
}

func (f *finder) receive(r *xds.Response) {
	s := f.of(r.Type)
	if s == nil {
		return
	}
	a := xds.Request{Type: s.typ, Nonce: r.Nonce}
	for _, x := range slices.Concat(r.Upserts, r.Beats) {
		if err := f.refuse(x); err != nil {
			a.Error = &xds.Status{Code: 3, Message: err.Error()}
		}
	}
	f.out = append(f.out, a)
	if a.Error != nil {
		return // a response is accepted or refused as a whole
	}
	gone := slices.Concat(r.Removed, r.Absent)
	wanted := maps.Clone(s.told)
	// A removed name means the resource of exactly that name, if the client holds one. Otherwise the name no
	// longer matches the resources that it matched alone.
	gone = slices.DeleteFunc(gone, func(n string) bool {
		_, named := s.cache[n]
		delete(s.cache, n)
		return named
	})
	for _, n := range gone {
		delete(s.told, n)
	}
	maps.DeleteFunc(s.cache, func(_ string, x *xds.Resource) bool {
		return !s.wants(x) && slices.ContainsFunc(gone, func(n string) bool { return wanted[n] && matches(s.typ, x, n) })
	})
	s.told = wanted
	for _, x := range r.Upserts { // a removed resource may match another name now
		if s.wants(x) {
			s.cache[x.Name] = x
		}
	}
}

func (f *finder) calm() { f.off = true }

// of returns the finding of a type, or nil.
func (f *finder) of(t *xds.Type) *finding {
	for _, s := range f.types {
		if s.typ.Is(t) {
			return s
		}
	}
	return nil
}

func (f *finder) expire(t *xds.Type, r *xds.Resource) bool {
	held := same(f.held(t)[r.Name], r)
	if held {
		delete(f.of(t).cache, r.Name)
	}
	return held
}

func (f *finder) held(t *xds.Type) map[string]*xds.Resource {
	if s := f.of(t); s != nil {
		return maps.Clone(s.cache)
	}
	return nil
}

func (f *finder) wants(t *xds.Type) ([]string, bool) {
	s := f.of(t)
	if s == nil {
		return nil, false
	}
	return slices.Sorted(maps.Keys(s.names)), true
}
