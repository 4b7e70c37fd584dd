package protocoltest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// generic is a correct client whose application subscribes to anything. It is [protocol.Client], with the odd
// requests that a server must accept.
type generic struct {
	*protocol.Client
	*world
	taste
	kinds []kind
	odd   bool
	lone  bool // the stream serves one type only
	first map[string]bool

	expired map[[2]string]bool // resources that expired since time last passed, by type and name
}

func newGeneric(w *world, ks []kind) *generic {
	g := &generic{world: w, expired: map[[2]string]bool{}, kinds: ks, taste: newTaste(w), odd: w.chance.IntN(3) == 0, lone: len(ks) == 1}
	g.Client = protocol.NewClient(w.cfg.Variant, protocol.ClientOptions{Node: agent(w), Legacy: w.plan.IntN(2) == 0, Check: g.refuse, Timeout: -1})
	if w.content.whole && !g.lone {
		// A client with all clusters must never have a route without its cluster.
		g.Subscribe(xds.Cluster, xds.Wildcard)
		g.Subscribe(xds.Endpoint, xds.Wildcard)
		g.Subscribe(xds.Listener, xds.Wildcard)
		g.Subscribe(xds.Route, kinds[4].names...)
		for _, k := range kinds {
			if slices.Contains(w.content.flips, k.typ()) {
				g.Subscribe(k.typ(), k.names...)
			}
		}
		g.kinds = ks[2:]
		g.Subscribe(xds.ScopedRoute, xds.Wildcard)
		for _, k := range []int{atSecrets, atFilters, atEndpoints, atLayers} {
			if !deltaOnly(kinds[k].typ()) || w.cfg.Variant == xds.Delta {
				g.Subscribe(kinds[k].typ(), kinds[k].names...)
			}
		}
		if w.cfg.Variant == xds.Delta {
			g.Subscribe(xds.VirtualHost, xds.Wildcard)
		}
	}
	return g
}

func (g *generic) connected() {
	g.first = map[string]bool{}
	g.Advance(g.now)
	g.Connected(nil)
}

func (g *generic) act() string {
	k := g.kinds[g.plan.IntN(len(g.kinds))]
	t := k.typ()
	asks := k.names
	if g.content.rich && g.cfg.Variant == xds.Delta {
		asks = append(slices.Clip(asks), k.aliases...)
	}
	name := asks[g.plan.IntN(len(asks))]
	if deltaOnly(t) && (g.cfg.Variant == xds.SotW || g.cfg.Accept) {
		return "" // delta only
	}
	if g.plan.IntN(4) == 0 {
		name = xds.Wildcard
	}
	if g.plan.IntN(3) == 0 {
		g.Unsubscribe(t, name)
		return fmt.Sprintf("unsubscribes %s %s", t, name)
	}
	g.Subscribe(t, name)
	return fmt.Sprintf("subscribes %s %s", t, name)
}

func (g *generic) receive(r *xds.Response) {
	if !r.TTL { // the client cannot know a TTL that the server does not send
		r = without(r)
	}
	_ = g.Receive(r)
	g.listen()
}

// without returns a response without the TTLs of its resources.
func without(r *xds.Response) *xds.Response {
	if !slices.ContainsFunc(r.Upserts, func(x *xds.Resource) bool { return x.TTL > 0 }) {
		return r
	}
	plain := *r
	plain.Changes = &xds.Changes{Removed: r.Removed, Beats: r.Beats, Absent: r.Absent, Missing: r.Missing}
	for _, x := range r.Upserts {
		plain.Upserts = append(plain.Upserts, &xds.Resource{Stamp: x.Stamp, Type: x.Type, Body: x.Body, Aliases: x.Aliases, OnDemand: x.OnDemand})
	}
	return &plain
}

// listen reads the events of the client.
func (g *generic) listen() {
	for e := range g.Events() {
		if errors.Is(e.Err, protocol.ErrExpired) {
			g.expired[[2]string{e.Type.URL, e.Name}] = true
		}
	}
}

func (g *generic) requests() (out []xds.Request) {
	for r := range g.Requests() {
		if g.odd && !g.world.calm {
			g.varyRequest(&r)
		}
		g.first[r.Type.URL] = true
		if g.lone && g.chance.IntN(4) == 0 {
			r.Type = nil // "on a per-type service the type URL is implicit"
		}
		out = append(out, r)
	}
	return out
}

// varyRequest changes a request without changing its meaning: names twice or in another order, names of no
// resource, unsubscriptions of unknown names, and repeated subscriptions.
func (g *generic) varyRequest(r *xds.Request) {
	first := !g.first[r.Type.URL]
	if len(r.Names) > 0 {
		if g.chance.IntN(4) == 0 {
			r.Names = append(r.Names, r.Names[0], "")
		}
		r.Names = shuffle(g.chance, slices.Clone(r.Names))
	}
	if g.cfg.Variant == xds.SotW || first {
		return
	}
	wants := g.Wants(r.Type)
	switch g.chance.IntN(6) {
	case 0: // "the client may have forgotten those resources"
		if len(wants) > 0 {
			r.Subscribe = append(r.Subscribe, wants[g.chance.IntN(len(wants))])
		}
	case 1:
		r.Unsubscribe = append(r.Unsubscribe, "phantom")
	case 2:
		r.Subscribe = append(r.Subscribe, r.Subscribe...)
		r.Unsubscribe = append(r.Unsubscribe, r.Unsubscribe...)
	case 3: // both at once: the name ends unsubscribed
		r.Subscribe = append(r.Subscribe, r.Unsubscribe...)
	case 4: // ignored in every request but the first
		r.Initial = []xds.Version{{Name: "c0", Version: "1"}, {Name: "r0", Version: "1"}}
	}
}

func (g *generic) advance(now time.Time) {
	clear(g.expired)
	g.Advance(now)
	g.listen()
}

func (g *generic) deadline() time.Time { return time.Time{} } // the lane has the clocks of its TTLs
func (g *generic) calm()               { g.taste.off = true }

// expire checks that the client drops the resource by itself, at exactly this time.
func (g *generic) expire(t *xds.Type, r *xds.Resource) bool {
	if same(g.Lookup(t, r.Name), r) {
		g.fail("CLI-8: the client still holds %s %s after its TTL", t, show(r))
	}
	return g.expired[[2]string{t.URL, r.Name}]
}

func (g *generic) held(t *xds.Type) map[string]*xds.Resource {
	out := map[string]*xds.Resource{}
	for r := range g.Held(t) {
		out[r.Name] = r
	}
	return out
}

func (g *generic) broken(spurns func(cluster string) bool, _ func(*xds.Type, *xds.Resource) bool) string {
	if g.lone {
		return ""
	}
	clusters := g.held(xds.Cluster)
	for _, r := range g.held(xds.Cluster) {
		for _, n := range r.Aliases {
			clusters[n] = r
		}
	}
	for _, t := range []*xds.Type{xds.Listener, xds.Route} {
		held := g.held(t)
		for _, name := range slices.Sorted(maps.Keys(held)) {
			r := held[name]
			if g.cfg.Variant == xds.SotW && g.content.dead[r.Sum] {
				continue // no response could remove it
			}
			for _, c := range refs(r, xds.Cluster) {
				if clusters[c] == nil && !spurns(c) {
					return fmt.Sprintf("%s is held without %s", show(r), c)
				}
			}
		}
	}
	return ""
}

func (g *generic) wants(t *xds.Type) ([]string, bool) { return g.Wants(t), true }
