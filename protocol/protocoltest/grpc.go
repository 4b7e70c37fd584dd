package protocoltest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// grpc follows the names from the listeners of its channels to routes, clusters and endpoints, in SotW over
// ADS. It sends the node in the first request only, uses the accepted part of a refused response, sends two
// requests with one nonce when a route moves, and unsubscribes from everything with an empty list.
type grpc struct {
	*world
	passive
	taste
	targets map[string]bool
	steps   [4]*step // LDS, RDS, CDS, EDS
	out     []xds.Request
	greeted bool
	lost    map[string]bool // clusters that a response removed
}

// A step is the subscription to one type.
type step struct {
	typ     *xds.Type
	names   []string
	opened  bool
	nonce   string
	version string
	cache   map[string]*xds.Resource
}

func newGRPC(w *world) *grpc {
	g := &grpc{world: w, taste: newTaste(w), targets: map[string]bool{}, lost: map[string]bool{}}
	for i, t := range []*xds.Type{xds.Listener, xds.Route, xds.Cluster, xds.Endpoint} {
		g.steps[i] = &step{typ: t, cache: map[string]*xds.Resource{}}
	}
	g.picky = false
	g.targets["l0"] = true
	g.walk()
	return g
}

func (g *grpc) connected() {
	g.out, g.greeted = nil, false
	for _, s := range g.steps {
		s.opened, s.nonce = false, ""
	}
	for _, s := range g.steps {
		if len(s.names) > 0 {
			g.send(s, s.names, nil)
		}
	}
}

func (g *grpc) act() string {
	l := kinds[3].names[g.plan.IntN(3)]
	if g.plan.IntN(3) == 0 {
		delete(g.targets, l)
	} else {
		g.targets[l] = true
	}
	g.walk()
	return fmt.Sprintf("dials %v", slices.Sorted(maps.Keys(g.targets)))
}

// walk derives the subscription of each step from the step before.
func (g *grpc) walk() {
	want := maps.Clone(g.targets)
	for i, s := range g.steps {
		g.subscribe(s, slices.Sorted(maps.Keys(want)))
		want = map[string]bool{}
		for _, n := range s.names {
			if i+1 == len(g.steps) {
				break
			}
			for _, n := range refs(s.cache[n], g.steps[i+1].typ) {
				if n != xds.Wildcard {
					want[n] = true
				}
			}
		}
	}
}

func (g *grpc) subscribe(s *step, names []string) {
	if slices.Equal(names, s.names) {
		return
	}
	old := s.names
	if s.typ.Is(xds.Cluster) {
		maps.DeleteFunc(g.lost, func(n string, _ bool) bool { return slices.Contains(names, n) && !slices.Contains(old, n) }) // subscribed again
	}
	s.names = names
	maps.DeleteFunc(s.cache, func(n string, _ *xds.Resource) bool { return !slices.Contains(names, n) })
	if !s.opened && len(names) == 0 {
		return
	}
	if s.opened && len(old) > 0 && len(names) > 0 {
		// First the old and new names together, then only the new names, both with one nonce.
		if both := slices.Sorted(keys(setOf(slices.Concat(old, names)))); !slices.Equal(both, names) {
			g.send(s, both, nil)
		}
	}
	g.send(s, names, nil)
	if len(names) == 0 {
		s.version = "" // subscribes again with the old nonce and no version
	}
}

func (g *grpc) send(s *step, names []string, err error) {
	s.opened = true
	r := xds.Request{Type: s.typ, Names: slices.Clone(names), Nonce: s.nonce, Version: s.version}
	if !g.greeted {
		r.Node, g.greeted = &xds.Node{ID: "g", UserAgentName: "gRPC Go"}, true
	}
	if err != nil {
		r.Error = &xds.Status{Code: 3, Message: err.Error()}
	}
	g.out = append(g.out, r)
}

func (g *grpc) receive(r *xds.Response) {
	i := slices.IndexFunc(g.steps[:], func(s *step) bool { return s.typ.Is(r.Type) })
	if i < 0 || !g.steps[i].opened {
		return
	}
	s := g.steps[i]
	s.nonce = r.Nonce
	var refused error
	seen := map[string]bool{}
	for _, x := range r.Upserts {
		seen[x.Name] = true
		if !slices.Contains(s.names, x.Name) {
			continue
		}
		if err := g.refuse(x); err != nil {
			refused = err
			continue
		}
		s.cache[x.Name] = x
	}
	if s.typ.FullState {
		maps.DeleteFunc(s.cache, func(n string, _ *xds.Resource) bool {
			if s.typ.Is(xds.Cluster) {
				g.lost[n] = !seen[n]
			}
			return !seen[n]
		})
	}
	if refused == nil {
		s.version = r.Version
	}
	g.send(s, s.names, refused)
	g.walk()
}

func (g *grpc) requests() []xds.Request {
	out := g.out
	g.out = nil
	return out
}

func (g *grpc) calm() { g.off = true }

// broken returns a complaint if a route in use refers to a cluster that the client had and the
// server removed, although the client subscribes to the cluster. A cluster that the client never
// had may still arrive.
func (g *grpc) broken(spurns func(cluster string) bool, _ func(*xds.Type, *xds.Resource) bool) string {
	routes, clusters := g.steps[1], g.steps[2]
	for _, n := range routes.names {
		for _, c := range refs(routes.cache[n], xds.Cluster) {
			if g.lost[c] && slices.Contains(clusters.names, c) && clusters.cache[c] == nil && !spurns(c) {
				return fmt.Sprintf("%s is in use, but %s was removed", show(routes.cache[n]), c)
			}
		}
	}
	return ""
}

func (g *grpc) held(t *xds.Type) map[string]*xds.Resource {
	for _, s := range g.steps {
		if s.typ.Is(t) {
			return maps.Clone(s.cache)
		}
	}
	return nil
}

// expire drops nothing: gRPC does not support TTLs.
func (g *grpc) expire(t *xds.Type, r *xds.Resource) bool { return same(g.held(t)[r.Name], r) }

func (g *grpc) wants(t *xds.Type) ([]string, bool) {
	for _, s := range g.steps {
		if s.typ.Is(t) {
			return s.names, true
		}
	}
	return nil, true
}
