package protocoltest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// spurn notes which clusters the client was offered and has not taken, until it has
// them: warm, if it is one that warms them. One that gRPC had given up and asks for anew
// while a world is on its way, it takes for gone if that lacks it: the server could not know.
func (n *lane) spurn(r *xds.Response) {
	if !n.content.whole {
		return
	}
	if n.spurned == nil {
		n.spurned, n.crossed = map[string]bool{}, map[string]bool{}
	}
	if r.Type.Is(xds.Cluster) {
		held := n.client.held(xds.Cluster)
		for _, x := range r.Upserts {
			n.spurned[x.Name] = n.spurned[x.Name] || held[x.Name] == nil
		}
		if g, ok := n.client.(*grpc); ok {
			for c, lost := range g.lost {
				n.crossed[c] = n.crossed[c] || lost && n.ledger.account(r.Type).crossed(r.Nonce, c)
			}
		}
	}
	for _, set := range []map[string]bool{n.spurned, n.crossed} {
		for c := range set {
			if e, ok := n.client.(*envoy); ok && e.active[c] || !ok && n.client.held(xds.Cluster)[c] != nil {
				delete(set, c)
			}
		}
	}
}

// spurns reports whether it is the client's own loss that it lacks a cluster.
func (n *lane) spurns(cluster string) bool {
	return n.spurned[cluster] && n.grants(spurned) || n.crossed[cluster] && n.grants(crossed)
}

// forgotten reports whether the client has something from an earlier stream of which nobody
// knows, and there is nothing to tell it of that: the view has lost it. In SotW no answer
// says what becomes of it, so its clusters stay for 15 s.
func (n *lane) forgotten(t *xds.Type, r *xds.Resource) bool {
	return n.content.dead[r.Sum] && n.ledger.forgotten(t, r.Name)
}

// shake notes why "never breaks" is not judged, until all is even.
func (n *lane) shake(why Excuse, is bool) {
	if is && n.shaky == nil {
		n.shaky = map[Excuse]bool{}
	}
	if is {
		n.shaky[why] = true
	}
}

// unbroken judges what the client holds by "never breaks".
func (n *lane) unbroken() {
	why := slices.Sorted(maps.Keys(n.shaky))
	if len(n.expired) > 0 && !n.shaky[dropped] {
		why = append(why, dropped)
	}
	if n.deliveries++; len(why) > 0 {
		n.unjudged[why[0]]++
	} else {
		n.judged++
	}
	what := ""
	if !n.lets(func() bool {
		what = n.client.broken(n.spurns, n.forgotten)
		return what == "" || slices.ContainsFunc(why, n.grants)
	}, append(why, spurned, crossed, dead, forgotten)...) {
		n.fail(fmt.Errorf("never breaks: %s", what))
	}
}
